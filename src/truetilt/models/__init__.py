"""Networks over tokens, the adapters that turn them into Scores and Potentials, and how their weights are loaded."""
