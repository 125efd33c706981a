"""What a redesign is steered by: p(species | x) of the network's head, and a pull towards the parent.

    r(x) = alpha log p(species | x) - pull * (how far x is from its parent)

The head was trained on masked sequences too, so it says of a partly masked one what it is worth on the way. Draws adapt
to the pull, which is known of every token at no cost; asking the head about each would cost twenty passes a site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.fasta import AMINO_ACIDS
from ..core.types import Batch, InvalidInput, Potential, Score, Tokens, ask, number, settle
from ..diffusion.processes import Masking

ANY_TIME = 1.0  # the network is not told the time


@dataclass(frozen=True, eq=False)
class Pull:
    """-strength times the distance to the parent: 1 for each residue that differs, or what a matrix says.

    Args:
        parent: The parent's tokens at the open sites, int64 [D].
        strength: What a unit of distance costs, in nats; 0 or more.
        costs: The distance of each token from each, float64 [20, 20] with zeros on its diagonal: row the parent's,
            column the new one's. None (the default): 1 off the diagonal, which counts changes.
    """

    parent: Tensor
    strength: float
    costs: Tensor | None = None

    def __post_init__(self) -> None:
        need = "give a number of nats for each change, 0 or more"
        settle(self, strength=number("pull", self.strength, need))
        if not 0 <= self.strength < float("inf"):
            raise InvalidInput(f"pull is {self.strength}; {need}")
        if self.costs is not None and bool(self.costs.diagonal().any()):
            raise InvalidInput("the costs of changes have a diagonal that is not zero; keeping a residue costs nothing")

    def of_tokens(self) -> Tensor:
        """What each token costs at each open site, float64 [D, 21]; a masked site costs nothing yet."""
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
    """alpha log p(species | x) plus the pull: the reward of a redesign, and of masked states what they are worth."""

    species: Potential
    alpha: float
    pull: Pull

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        pulled = self.pull(x, t)
        return pulled if self.alpha == 0 else self.alpha * self.species(x, t).double() + pulled


@dataclass(frozen=True, eq=False)
class Promise:
    """What a partly masked chain is worth: what it is now, and what its masked sites will add, each by itself.

    At strength 1 a masked site adds log sum_v p0(v|x)^sharpness exp(-pull of v). So a state whose conditionals have
    turned away from the parent is told before its sites are drawn. The base answers it in the pass that the next site
    is drawn from.
    """

    likeness: Likeness
    base: Score
    process: Masking
    sharpness: float
    strength: float = 1.0  # the factor that it will have

    def __call__(self, x: Tokens, t: float) -> Tensor:
        law = self.process.posterior(ask(self.base, Batch(x), ANY_TIME), x, ANY_TIME).dense().double()
        costs = self.likeness.pull.of_tokens()[:, :-1].to(x.device)
        added = (self.sharpness * law + self.strength * costs).logsumexp(-1) / self.strength
        return self.likeness(x, t) + added.masked_fill(x != self.process.mask, 0.0).sum(-1)


@dataclass(frozen=True, eq=False)
class PullGuide:
    """What draws adapt to: the pull of each token, as if no token changed anything else about what a state is worth."""

    worth: Potential
    pull: Pull

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.worth(x, t)

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """[B, D], [B] -> [B, S]."""
        return (self.worth(x, t) - self.pull(x, t))[:, None] + self.pull.site_values(x, site, t)


def substitution_costs(scores: Any, letters: str = AMINO_ACIDS) -> Tensor:
    """Costs of changes from a substitution matrix, scores[a][b] by letters: how much less b scores at a than a itself.

    They are scaled so that the mean over all changes is 1.
    """
    rows = [[float(scores[a][a]) - float(scores[a][b]) for b in letters] for a in letters]
    costs = torch.tensor(rows, dtype=torch.float64)
    return costs * (len(letters) * (len(letters) - 1) / costs.sum())
