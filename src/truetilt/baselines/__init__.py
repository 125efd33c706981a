"""Baselines: the methods that others use for rewards, as their papers define them, with the same cost counters."""
