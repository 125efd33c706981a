"""DNA that holds a binding site: a model of DNA, a reward of strings, and how far to trust the answer."""

import torch

import truetilt as tt

LENGTH, MOTIF = 24, "TGACTCA"  # the site that AP-1 binds
follows = torch.tensor([  # which letter follows A, C, G, T: few C before G, as in a mammal's genome
    [0.30, 0.18, 0.25, 0.27], [0.32, 0.28, 0.06, 0.34], [0.26, 0.23, 0.27, 0.24], [0.20, 0.21, 0.27, 0.32],
])  # fmt: skip
process = tt.Masking(4)
law = tt.ChainLaw(torch.full((4,), 0.25), follows, torch.zeros(LENGTH, 4))
model = tt.Model(process, LENGTH, tt.ChainScore(process, law))  # your network stands here


def best_match(dna):
    """How many letters of the motif the best place has; letters that repeat six times are forbidden."""
    if any(letter * 6 in dna for letter in "ACGT"):
        return float("-inf")
    places = range(LENGTH - len(MOTIF) + 1)
    return max(sum(a == b for a, b in zip(dna[k:], MOTIF, strict=False)) for k in places)


reward = tt.Reward(best_match, tokenizer="ACGT", one_at_a_time=True)
result = tt.steer(model, reward, strength=2.0, calls=8_000)

print("\n".join(result.story))
print(result.trust())
for dna in reward.spell(result.draw(8)):
    print(dna, best_match(dna))
result.report("dna.html", view=tt.SequenceLogo("ACGT"))
print("look at it: dna.html")
