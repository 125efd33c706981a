"""Exact answers on spaces small enough to know them; tables speak the same protocols as networks."""
