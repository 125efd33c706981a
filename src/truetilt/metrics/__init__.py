"""How far a sample or a law is from another."""
