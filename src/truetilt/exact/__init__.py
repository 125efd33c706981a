"""Exact answers on enumerable spaces and chains; tables implement the same protocols as networks."""
