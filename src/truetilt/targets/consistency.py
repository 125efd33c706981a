"""Whether the conditionals of a model agree with one another, which Gibbs moves and annealing take for granted.

For a joint law p(a) p(b|a) = p(b) p(a|b). The outputs of a masked network need not obey this. Then no joint law has
these conditionals: revealing in another order draws from another p0, and moves that redraw sites leave a third law
invariant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.evaluation import BatchScore
from ..core.types import Tokens
from ..smc.model_findings import ALLOWED
from .stage import SiteTarget

STATES = 32  # states compared, in three rounds of evaluation


def disagreement(fk: SiteTarget, x: Tokens) -> Tensor:
    """|log p(a) p(b|a) - log p(b) p(a|b)| of two neighbours of each clean state [B, D], in nats [B].

    Of several scores the largest; a and b are the state's own tokens, given all others. 0 for scores with `consistent`
    set, whose conditionals are computed from one joint law.
    """
    if all(isinstance(score, BatchScore) and score.consistent for score in fk.scores.values()):
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    number, length = torch.arange(len(x), device=x.device), x.shape[-1]
    one = (number % (length - 1))[:, None]
    two, mask = one + 1, fk.model.process.states - 1
    both = x.scatter(-1, one, mask).scatter(-1, two, mask)
    first = fk.site_laws(both, fk.asked_at(0.0, 2), torch.cat([one, two], -1))
    alone = {site: fk.site_laws(x.scatter(-1, at, mask), fk.asked_at(0.0, 1), at) for site, at in ((0, one), (1, two))}
    worst = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for k in range(len(fk.scores)):
        law = (first.base, *first.conditions)[k]
        last = [(alone[site].base, *alone[site].conditions)[k] for site in (0, 1)]
        begun = law.pick(torch.cat([x.gather(-1, one), x.gather(-1, two)], -1))
        a_first = begun[:, 0] + last[1].pick(x.gather(-1, two))[:, 0]
        b_first = begun[:, 1] + last[0].pick(x.gather(-1, one))[:, 0]
        worst = torch.maximum(worst, torch.where(a_first == b_first, 0.0, (a_first - b_first).abs()))
    return worst


def disagreeing(nats: float) -> UserWarning | None:
    """The warning about conditionals that disagree by more than `ALLOWED` nats; None if they disagree by less."""
    if nats <= ALLOWED:
        return None
    return UserWarning(
        f"the conditionals of this model disagree with one another by {nats:.2g} nats for a pair of neighbours (more "
        f"than {ALLOWED:g}): moves that redraw sites keep another law than revealing draws from, and log Z is of "
        "neither. Reveal in a fixed order without such moves, or move by tt.WholeSequence with the log p0 of that order"
    )
