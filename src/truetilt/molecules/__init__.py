"""Drug-like molecules: an embedded network of pieces of strings, rewards as chemists mean them, fragments kept."""
