"""Proteins: ProteinMPNN on a backbone, as an exact autoregressive law of the open residues."""
