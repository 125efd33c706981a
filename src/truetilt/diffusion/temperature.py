"""Local temperature: every site's posterior sharpened by itself, softmax(log p(v|x) / temperature).

A baseline. On several sites its law is not p0^(1/temperature): the site drawn first ignores how the normaliser of the
others depends on it. `targets.sharper` samples that law with weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core.arguments import LARGEST, bounded, function, set_fields
from ..core.evaluation import Batch, BatchScore, ask
from ..core.logits import SiteLogits
from ..core.types import Process, Score, check_process


@dataclass(frozen=True)
class LocalTemperature(BatchScore):
    """The `Score` whose posterior of each site is $softmax(log p(v|x) / temperature)$; the rate of revealing is kept.

    Args:
        process: The noising process of the score.
        score: The score to be cooled (temperature below 1) or heated: a base, a conditional, or a `tt.Guided`.
        temperature: Above 0; at 1 the score's own law, below 1 likelier tokens gain.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    score: Score
    temperature: float

    def __post_init__(self) -> None:
        check_process(self.process)
        function("score", self.score, "(x, t)")
        need = f"give a number above 0 (1 changes nothing), {1 / LARGEST:.0e} to {LARGEST:.0e}"
        set_fields(self, temperature=bounded("temperature", self.temperature, need, 1 / LARGEST, LARGEST))

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        posterior = self.process.posterior(ask(self.score, batch, t), batch.x, t)
        cooled = posterior.map(self._cooled)
        return self.process.score(cooled.normalised(), batch.x, t)

    def _cooled(self, log_p: Tensor) -> Tensor:
        return log_p / self.temperature
