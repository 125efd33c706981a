"""Exact jumps in continuous time (Prop. 4.1). Jump times are exact; the grid only says when to resample."""
