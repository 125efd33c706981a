"""Sequential Monte Carlo on any Feynman-Kac value.

It imports core/ alone: it reads no token and evaluates no network, and hands the times of a step on as they are.
"""
