"""Antibodies: a public language model (AntiBERTy), regions by numbering, and redesigns of a chain."""
