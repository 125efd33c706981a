"""Antibodies: a language model that others trained (AntiBERTy), regions by numbering, and redesigns of a chain."""
