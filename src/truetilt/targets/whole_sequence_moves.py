"""Moves of bases that know the law of whole sequences.

A causal model under an order, a chain or a table gives log p0(x) of a finished sequence. A move at any site is then a
Metropolis move with the ratio of these; no conditional of a site given all others is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import function
from ..core.errors import InvalidInput
from ..core.evaluation import evaluate_all, value_of
from ..core.logits import SiteLogits
from ..core.target import Target
from ..core.types import NEG_INF, Particles, Score, Tokens
from .accept_move import AcceptMove
from .any_order import RevealLaw
from .moves import Draw, Proposed, SiteKernel, accepting, at_end_target, check_kind, check_noisy_reward, hide, revealed
from .scans import Scan, check_scan, random_scan
from .stage import SiteLaws, SiteTarget, minus


@dataclass(frozen=True)
class WholeSequence(SiteKernel):
    """For a base that knows $log p0(x)$ of finished sequences: change a token, accept by the ratio of the target.

    Args:
        fk: The value whose target the move leaves unchanged, the one that is run: `tt.Steered`, `tt.Tilted`, or a
            `tt.Composed` with a reward and no conditions.
        log_prob: Function of clean states [B, D] that returns $log p0$ [B], such as one pass of a causal model under
            its order. Of a `tt.Tilted`, whose base is the conditional model, it returns $log p(x|zeta)$.
        scan: Which site is changed: `tt.random_scan` (the default), `tt.systematic_scan` or `tt.backward_scan`.
        proposal: Score that proposes the token, evaluated with the site masked. None (the default): tokens are proposed
            uniformly.
    """

    fk: SiteTarget
    log_prob: Callable[[Tokens], Tensor]
    scan: Scan = random_scan
    proposal: Score | None = None

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_noisy_reward(self, self.fk, remembers_values=True)
        function("log_prob", self.log_prob, "(x)", "of clean states [B, D]")
        if self.proposal is not None:
            function("proposal", self.proposal, "(x, t)")
        if len(self.fk.scores) > 1:
            raise InvalidInput(
                "WholeSequence knows log p0(x) and not log p(x|zeta) of conditions; make it from tt.Steered, tt.Tilted "
                "or a tt.Composed with a reward and no conditions"
            )

    @property
    def target(self) -> Target | None:
        return at_end_target(self.fk)

    def movable(self, particles: Particles, t: float) -> Tensor:
        return revealed(self.fk, particles.x)

    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw) -> AcceptMove:
        """Propose a token at this site [..., 1] of clean states."""
        fk, x, stage, log = self.fk, particles.x, self.fk.stage(t), self.fk.log
        law = self._proposal(particles, t, site)
        y = draw(law)
        mine, new = fk.values(particles, t), stage.values(y, log)
        log_p = [value_of(self._log_p0, states, t, log) for states in (x, y)]
        here, there = (stage.sharpness * p + stage.total(v) for p, v in zip(log_p, (mine, new), strict=True))
        back, forth = (law.logits.pick(state.gather(-1, site)).sum(-1) for state in (x, y))
        log_accept = torch.where(here > NEG_INF, minus(there + back, here + forth), NEG_INF).clamp(max=0.0)
        aux = fk.recall(particles, t)
        after = aux | {"log_p": aux["log_p"] + minus(log_p[1], log_p[0]), "values": new}
        return accepting(fk, particles, t, Proposed(y, after, log_accept), mine)

    def _log_p0(self, x: Tokens, t: float) -> Tensor:
        return self.log_prob(x)

    def _proposal(self, particles: Particles, t: float, site: Tensor) -> RevealLaw:
        hidden, model = hide(self.fk, particles.x, site), self.fk.model
        if self.proposal is None:
            size = model.process.vocabulary
            flat = torch.full((1, size), -math.log(size), dtype=torch.float64, device=hidden.device)
            return RevealLaw(hidden, site, SiteLogits(flat, torch.zeros_like(site)))
        now = self.fk.asked_at(t, 1)
        (answer,) = evaluate_all(model, hidden, now, proposal=self.proposal)
        return RevealLaw(hidden, site, SiteLaws.of(self.fk, now, (answer,), site, self.fk.log).base)
