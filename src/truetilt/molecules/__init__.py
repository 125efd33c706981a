"""Drug-like molecules: an embedded network over pieces of strings, rewards of chemists, and fixed fragments."""
