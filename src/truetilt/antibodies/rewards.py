"""The reward of a redesign: p(species | x) of the network's head, and a pull towards the parent.

    r(x) = alpha log p(species | x) - pull * (how far x is from its parent)

The head was trained on masked sequences too, so it gives a value of partly masked ones. Draws are tilted by the pull,
which is known for every token at no cost; evaluating the head for each token would cost twenty passes per site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import number, set_fields, shown, tensor_of
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.fasta import AMINO_ACIDS
from ..core.types import Potential, Score, Tokens
from ..diffusion.processes import Masking

ANY_TIME = 1.0  # the network does not take the time


@dataclass(frozen=True, eq=False)
class Pull:
    """-strength times the distance to the parent: the number of changed residues, or a sum of matrix entries.

    Args:
        parent: The parent's tokens at the open sites, int64 [D].
        strength: Cost of a unit of distance, in nats; 0 or more.
        costs: The distance between tokens, float64 [20, 20] with zeros on its diagonal: row the parent's token, column
            the new one. None (the default): 1 off the diagonal, which counts changes.
    """

    parent: Tensor
    strength: float
    costs: Tensor | None = None

    def __post_init__(self) -> None:
        need = "give a number of nats for each change, 0 or more"
        set_fields(self, strength=number("pull", self.strength, need))
        if not 0 <= self.strength < float("inf"):
            raise InvalidInput(f"pull is {self.strength}; {need}")
        if self.costs is None:
            return
        size, need = len(AMINO_ACIDS), "give a matrix of 20 x 20 costs, 0 or more, the parent's residue by rows"
        set_fields(self, costs=tensor_of("the costs of changes", self.costs, need))
        if self.costs.shape != (size, size) or not bool((self.costs >= 0).all() & self.costs.isfinite().all()):
            raise InvalidInput(f"the costs of changes are {shown(self.costs)}, or not all of them are costs; {need}")
        if bool(self.costs.diagonal().any()):
            raise InvalidInput("the costs of changes have a diagonal that is not zero; keeping a residue costs nothing")

    def of_tokens(self) -> Tensor:
        """The cost of each token at each open site, float64 [D, 21]; a masked site costs 0."""
        parent = self.parent
        if self.costs is None:
            costs = (torch.arange(len(AMINO_ACIDS), device=parent.device) != parent[:, None]).double()
        else:
            costs = self.costs.to(parent.device).double()[parent]
        return -self.strength * torch.cat([costs, costs.new_zeros(len(costs), 1)], -1)

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        costs = self.of_tokens().to(x.device)
        return costs.expand(len(x), -1, -1).gather(-1, x[..., None]).squeeze(-1).sum(-1)

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The pull with each token at a site: [B, D], [B] -> [B, S]."""
        costs = self.of_tokens().to(x.device)[site]
        return self(x, t)[:, None] - costs.gather(-1, x.gather(-1, site[:, None])) + costs[:, :-1]


@dataclass(frozen=True, eq=False)
class Likeness:
    """alpha log p(species | x) plus the pull: the reward of a redesign, and a value of masked states."""

    species: Potential
    alpha: float
    pull: Pull

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        pulled = self.pull(x, t)
        return pulled if self.alpha == 0 else self.alpha * self.species(x, t).double() + pulled


@dataclass(frozen=True, eq=False)
class Promise:
    """The value of a partly masked chain: its present value, plus what each masked site is expected to add
    independently.

    At strength 1 a masked site adds log sum_v p0(v|x)^sharpness exp(-pull of v). So a state whose conditionals have
    turned away from the parent is recognised before its sites are drawn. The base computes this in the pass from which
    the next site is drawn.
    """

    likeness: Likeness
    base: Score
    process: Masking
    sharpness: float
    strength: float = 1.0  # its factor in the target

    def __call__(self, x: Tokens, t: float) -> Tensor:
        law = self.process.posterior(ask(self.base, Batch(x), ANY_TIME), x, ANY_TIME).dense().double()
        costs = self.likeness.pull.of_tokens()[:, :-1].to(x.device)
        added = (self.sharpness * law + self.strength * costs).logsumexp(-1) / self.strength
        return self.likeness(x, t) + added.masked_fill(x != self.process.mask, 0.0).sum(-1)


@dataclass(frozen=True, eq=False)
class PullGuide:
    """The values by which draws are tilted: the pull of each token, all else of a state's value held constant."""

    worth: Potential
    pull: Pull

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.worth(x, t)

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """[B, D], [B] -> [B, S]."""
        return (self.worth(x, t) - self.pull(x, t))[:, None] + self.pull.site_values(x, site, t)


def substitution_costs(scores: Any, letters: str = AMINO_ACIDS) -> Tensor:
    """Costs of changes from a substitution matrix, scores[a][b] by letters: how much less b scores at a than a itself.

    They are scaled to a mean of 1 over all changes.
    """
    rows = [[float(scores[a][a]) - float(scores[a][b]) for b in letters] for a in letters]
    costs = torch.tensor(rows, dtype=torch.float64)
    return costs * (len(letters) * (len(letters) - 1) / costs.sum())
