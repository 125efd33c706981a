"""One call with a budget: look, choose a way, run it, judge it by `trust()`, and say what was done and why."""
