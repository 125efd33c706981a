"""The tables and figures of the paper, a module each: its jobs, its rows and its figure."""
