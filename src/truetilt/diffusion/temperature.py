"""Local temperature: every site's posterior sharpened by itself, softmax(log p(v|x) / temperature).

A baseline. On several sites its law is not p0^(1/temperature): the site drawn first ignores how the normaliser of the
others depends on it. `targets.sharper` samples that law with weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import LARGEST, bounded, function, set_fields, whole_number
from ..core.evaluation import Batch, BatchScore, ask
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Process, Score, check_process
from .kernels import log1mexp


@dataclass(frozen=True)
class LocalTemperature(BatchScore):
    """The `Score` whose posterior of each site is $softmax(log p(v|x) / temperature)$; the rate of revealing is kept.

    Args:
        process: The noising process of the score.
        score: The score to be cooled (temperature below 1) or heated: a base, a conditional, or a `tt.Guided`.
        temperature: Above 0; at 1 the score's own law, below 1 likelier tokens gain.
        keep: A token whose probability stays, such as the one that ends a text; the others are cooled among themselves.
            None (the default): all are cooled, and texts grow short.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    score: Score
    temperature: float
    keep: int | None = None

    def __post_init__(self) -> None:
        check_process(self.process)
        function("score", self.score, "(x, t)")
        need = f"give a number above 0 (1 changes nothing), {1 / LARGEST:.0e} to {LARGEST:.0e}"
        set_fields(self, temperature=bounded("temperature", self.temperature, need, 1 / LARGEST, LARGEST))
        if self.keep is not None:
            set_fields(self, keep=whole_number("keep", self.keep, 0, self.process.vocabulary - 1))

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        posterior = self.process.posterior(ask(self.score, batch, t), batch.x, t)
        cooled = posterior.map(self._cooled)
        return self.process.score(cooled.normalised(), batch.x, t)

    def _cooled(self, log_p: Tensor) -> Tensor:
        cooled = log_p / self.temperature
        if self.keep is None:
            return cooled
        kept = log_p[..., self.keep, None]
        others = torch.arange(log_p.shape[-1], device=log_p.device) != self.keep
        cooled = cooled.where(others, NEG_INF)
        cooled = cooled - cooled.logsumexp(-1, keepdim=True) + log1mexp(-kept)
        return torch.where(others & (kept < 0), cooled, kept.where(~others, NEG_INF))
