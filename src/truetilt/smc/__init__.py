"""Sequential Monte Carlo on any Feynman-Kac value: knows weights and particles, never models, masks or time."""
