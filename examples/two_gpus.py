"""One run over several processes, to the same bits: torchrun --nproc-per-node 2 two_gpus.py (GPUs, or CPUs)."""

import torch

import truetilt as tt
from truetilt import distributed

here, device = distributed.world(), distributed.device()
torch.manual_seed(0)
process = tt.Masking(32)
net = torch.nn.Sequential(torch.nn.Embedding(33, 64), torch.nn.Linear(64, 32)).to(device).eval()  # your network
model = tt.Model(process, 64, tt.PosteriorScore(process, lambda x, t: net(x)), device=device)


def evens(x):
    """A reward: how many tokens are even."""
    return (x % 2 == 0).sum(-1).double()


target = tt.Composed(model, reward=evens, strength=0.5)
result = distributed.run_populations(target, particles=64, populations=8, seed=0)  # four of them on each of two
if here.rank == 0:
    alone = tt.run(target, particles=64, populations=8, seed=0)
    print(f"{here.size} processes, {device}: {result}")
    print("the same bits as one process alone:", torch.equal(result.log_weights, alone.log_weights))
    print(result.trust())
distributed.leave()
