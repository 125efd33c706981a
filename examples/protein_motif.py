"""Proteins around a motif that is kept, by ESM2, with a charge that you want: python protein_motif.py [MODEL]."""

import sys

import truetilt as tt

name = sys.argv[1] if len(sys.argv) > 1 else "facebook/esm2_t6_8M_UR50D"
text = "M[MASK:8]HELGH[MASK:8]"  # the motif that binds zinc, residues before and behind it open

nets = tt.from_transformers(name)


def charge(proteins):
    """The net charge of whole sequences, as far as +3."""
    return [min(sum(map(p.count, "KR")) - sum(map(p.count, "DE")), 3) for p in proteins]


reward = tt.Reward(charge, tokenizer=lambda x: nets.filled(text, x), vocabulary=nets.vocabulary)
result = tt.steer(nets.given(text), reward, strength=1.0, calls=600)

print(*result.story, sep="\n")
print(result.trust().verdict)
for protein in nets.filled(text, result.draw(8)):
    print(protein, *charge([protein]))
