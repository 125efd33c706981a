"""A public masked language model fills gaps, leaning to the words around them: python masked_lm.py [MODEL]."""

import sys

import truetilt as tt

name = sys.argv[1] if len(sys.argv) > 1 else "answerdotai/ModernBERT-base"
text = "the film was [MASK:3] and we left [MASK]."

nets = tt.from_transformers(name)
for alpha in (0.0, 1.0, 2.0):  # 0: the text is not seen; 1: the network as it is; 2: closer to the text
    result = tt.reveal(nets.model(text), alpha, particles=16, populations=4, seed=1)
    print(f"alpha = {alpha:g}: {result.trust().verdict}")
    for words in nets.filled(text, result.draw(5)):
        print("  ", words)
