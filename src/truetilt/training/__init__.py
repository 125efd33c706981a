"""Training: digits and texts from disk, losses with known minima, and one loop that resumes bit for bit."""
