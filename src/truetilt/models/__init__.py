"""Networks over grids of tokens, the adapters that make Scores and Potentials of them, and where their weights live."""
