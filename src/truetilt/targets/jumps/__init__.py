"""Exact jumps in continuous time: no time grid is left, but for where to resample; weights are those of Prop. 4.1."""
