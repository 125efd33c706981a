"""What is sampled: Feynman-Kac values and how their exponents grow, the moves that keep them, their exact jumps."""
