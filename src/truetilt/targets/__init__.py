"""What is sampled: Feynman-Kac values, the ramps of their exponents, the moves that leave their targets unchanged, and
jumps at exact times.
"""
