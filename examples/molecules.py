"""Drug-like molecules around a pyridine, by the network that comes along (pip install 'truetilt[chem]')."""

import truetilt as tt
from truetilt.molecules.rewards import Lacks, qed, together

molecules = tt.load("molecules").fix("*c1ccncc1")  # no download
score = together((qed, 20.0), Lacks("[N+](=O)[O-]"))  # 20 QED, and no nitro group
result = tt.steer(molecules.model(), molecules.reward(score), calls=200, populations=8)

print(f"{result.trust().verdict}: {result.spent}")
print(f"{'weight':>8} {'QED':>6}  molecule")
for row in molecules.table(result)[:12]:
    print(f"{row['weight']:8.3f} {row['qed'] or 0:6.3f}  {row['smiles']}")
result.report("molecules.html", view=molecules.view)
print("look at it: molecules.html")
