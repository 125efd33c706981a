"""The Score of a law in one decoding order: conditionals of a site given any others, computed from p(x | order).

Revealing in decoding order takes one pass per site. A single site given all others (Gibbs) takes a pass for every
letter, p(v | rest) ~ p(x with v); with a few more hidden sites, one for every combination of letters. If that is too
expensive, the request raises an error: the network alone would answer with another order's law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, RunLog
from ..core.fasta import AMINO_ACIDS
from ..core.logits import LazyRows, SiteLogits
from ..core.types import Tokens
from ..diffusion.processes import Masking
from .decoding import distinct_rows
from .law import OrderedLaw

SIZE = len(AMINO_ACIDS)
MOST = SIZE**3  # states summed over for the law of one site, at most
AT_A_TIME = 1024  # states completed in one batch


@dataclass(frozen=True, eq=False)
class OrderedScore(BatchScore):
    """The Score of an `OrderedLaw` under masking; equal states are evaluated once, and the log counts that.

    Its conditionals are those of one joint law, so moves that redraw sites leave the law of revealing invariant.
    """

    asks_others: ClassVar[bool] = True  # it counts its own passes
    consistent: ClassVar[bool] = True
    law: OrderedLaw

    @property
    def process(self) -> Masking:
        return Masking(SIZE)

    @property
    def needs(self) -> Needs:
        return Needs(batch=self.law.batch)

    def in_another_order(self, x: Tokens) -> Tensor:
        """log p of finished states [B, D] when the open sites are decoded from the last to the first, float64 [B]."""
        return self.law.reversed.log_prob(x)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, lift = batch.x, Masking(SIZE).log_odds_kept(t)
        index = batch.known.get("site numbers")
        if index is None:
            index = batch.known["site numbers"] = torch.arange(x.numel(), device=x.device).reshape(x.shape)

        def rows(numbers: Tensor) -> Tensor:
            return self._rows(x, numbers, batch.log) + lift

        return SiteLogits(LazyRows((x.numel(), SIZE), rows), index)

    def _rows(self, x: Tokens, numbers: Tensor, log: RunLog | None) -> Tensor:
        """log p(v | revealed sites) for sites by number; sites are numbered state by state."""
        if not len(numbers):
            return torch.empty(0, SIZE, dtype=torch.float64, device=x.device)
        site, turns = numbers % x.shape[1], self.law.turns.to(x.device)
        asked = x[numbers // x.shape[1]].scatter(1, site[:, None], SIZE)
        ordered = asked[:, list(self.law.order)]
        turn = turns[site]
        place = torch.arange(x.shape[1], device=x.device)
        known = ordered != SIZE
        last = torch.where(known, place, -1).amax(1)  # the last revealed site, by its turn
        end = torch.maximum(last, turn)
        summed = (~known & (place < end[:, None]) & (place != turn[:, None])).sum(1)
        plain = (summed == 0) & (last < turn)
        ordered = torch.where(place <= end[:, None], ordered, SIZE)  # later sites are not read
        found = torch.empty(len(numbers), SIZE, dtype=torch.float64, device=x.device)
        for now in turn[plain].unique().tolist():
            chosen = (plain & (turn == now)).nonzero().squeeze(-1)
            found[chosen] = self._next(ordered[chosen], now, log)
        rest = (~plain).nonzero().squeeze(-1)
        if len(rest):
            _check_few(int(summed[rest].max()))
            asked, which = torch.cat([ordered[rest], turn[rest, None], end[rest, None]], 1).unique(
                dim=0, return_inverse=True
            )
            answers = [self._summed(q[:-2], int(q[-2]), int(q[-1]), log) for q in asked]
            found[rest] = torch.stack(answers)[which]
        return found

    def _next(self, ordered: Tokens, turn: int, log: RunLog | None) -> Tensor:
        """The law of the next site in decoding order; one pass."""
        begun, which = distinct_rows(ordered[:, :turn])
        if log is not None:
            log.evaluated(len(begun))
        return self.law.after(begun.to(self.law.device)).to(ordered.device)[which]

    def _summed(self, state: Tokens, turn: int, end: int, log: RunLog | None) -> Tensor:
        """The law of the site at this turn, summed over the other hidden sites up to turn `end`."""
        hidden = [k for k in (state[: end + 1] == SIZE).nonzero().squeeze(-1).tolist() if k != turn]
        places = [turn, *hidden]
        letters = torch.cartesian_prod(*[torch.arange(SIZE)] * len(places)).reshape(-1, len(places)).to(state.device)
        every = torch.where(state == SIZE, 0, state).repeat(len(letters), 1)
        every[:, places] = letters
        if log is not None:
            log.evaluated(len(every))
        parts = [self._log_p(part, end) for part in every.split(AT_A_TIME)]
        return torch.cat(parts).reshape(SIZE, -1).logsumexp(1).log_softmax(0)

    def _log_p(self, ordered: Tokens, end: int) -> Tensor:
        log_p = self.law.logits(ordered.to(self.law.device), 0, end + 1).log_softmax(-1).to(ordered.device)
        return log_p.gather(-1, ordered[:, : end + 1, None]).squeeze(-1).sum(-1)


def _check_few(hidden: int) -> None:
    if SIZE ** (hidden + 1) > MOST:
        raise InvalidInput(
            f"a site is asked for while {hidden} others before it in the order of decoding are masked; this network's "
            "law is that of one order. Draw from it with tt.run(tt.Composed(model, order=protein.order)), lean to "
            "other weights with tt.run(tt.AnyOrder(model, alpha, order=protein.order)), or use tt.steer"
        )


@dataclass(frozen=True, eq=False)
class GivenBefore(BatchScore):
    """The law of a site given those decoded before it, ignoring later ones: a proposal that takes one pass.

    It equals the law itself only where the later sites are masked; `tt.WholeSequence` corrects for the difference.
    """

    asks_others: ClassVar[bool] = True
    law: OrderedLaw

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        score = OrderedScore(self.law)
        lift = Masking(SIZE).log_odds_kept(t)
        index = torch.arange(batch.x.numel(), device=batch.x.device).reshape(batch.x.shape)

        def rows(numbers: Tensor) -> Tensor:
            site = numbers % batch.x.shape[1]
            turn, turns = self.law.turns.to(site.device)[site], self.law.turns.to(site.device)
            seen = batch.x[numbers // batch.x.shape[1]].masked_fill(turns >= turn[:, None], SIZE)
            own = torch.arange(len(seen), device=site.device) * seen.shape[1] + site
            return score._rows(seen, own, batch.log) + lift

        return SiteLogits(LazyRows((batch.x.numel(), SIZE), rows), index)
