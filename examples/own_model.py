"""A network of your own: train it on sorted rows of digits, then ask for sorted rows that add up to 20."""

import torch
from torch import nn

import truetilt as tt

torch.manual_seed(0)
DIGITS, LENGTH = 10, 8
net = nn.Sequential(  # tokens, 10 where they are masked, to logits of the digits [B, 8, 10]
    nn.Embedding(DIGITS + 1, 32), nn.Flatten(), nn.Linear(32 * LENGTH, 256), nn.ReLU(),
    nn.Linear(256, LENGTH * DIGITS), nn.Unflatten(1, (LENGTH, DIGITS)),
)  # fmt: skip
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(600):  # masked diffusion: hide a random share, predict what was hidden
    rows = torch.randint(DIGITS, (256, LENGTH)).sort(-1).values
    hidden = torch.rand(rows.shape) < torch.rand(256, 1)
    logits = net(rows.masked_fill(hidden, DIGITS))
    loss = nn.functional.cross_entropy(logits[hidden], rows[hidden])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
net.eval()
process = tt.Masking(DIGITS)
model = tt.Model(process, LENGTH, base=tt.PosteriorScore(process, lambda x, t: net(x)))


def near_20(x):  # the reward of rows [B, 8], one number each
    return -(x.sum(-1) - 20).abs().double()


plain = tt.sample(model, alpha=0, particles=500)
steered = tt.steer(model, near_20, strength=1.0, calls=1_500)
for name, result in {"the network": plain, "steered": steered}.items():
    rows = result.draw(500)
    in_order = (rows.diff() >= 0).all(-1).double().mean()
    sums = rows.sum(-1).double()
    print(f"{name}: {in_order:.0%} sorted, sums {sums.mean():.1f} ± {sums.std():.1f}")
    print(*("".join(map(str, row)) for row in rows[:6].tolist()))
print(steered.trust())
