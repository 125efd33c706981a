"""What people want more of: a function of finished sequences, asked once a state, in worker processes, and kept."""
