"""Twists: log-values of partly masked states on the way to a reward, learned, or estimated by completing the state."""
