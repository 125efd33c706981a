"""Ways to draw from the base step by step (site by site, or in clock time), and a base score with a one-step cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import torch

from ..core.bases import FeynmanKac
from ..core.binding import bind
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, RunLog, ask, needs_of
from ..core.logits import SiteLogits
from ..core.types import Model, Tokens, check_model
from ..diffusion.grids import Grid, masked_fraction_grid, uniform_grid
from ..diffusion.kernels import tweedie
from ..diffusion.processes import Masking
from ..smc.resampling import never
from ..smc.sampler import Source, Stream, last_of, run_steps
from ..targets.composed import Composed
from ..targets.on_clock import Unweighted


class Walk(NamedTuple):
    """Unweighted draws from a model's base: the moves and their time grid; one network evaluation per step."""

    fk: FeynmanKac
    grid: Grid

    @property
    def steps(self) -> int:
        return len(self.grid) - 1


class WalkMaker(Protocol):
    """Makes a walk from a model: `site_by_site`, `in_clock_time`, or either with options bound."""

    def __call__(self, model: Model) -> Walk: ...


def site_by_site(model: Model, order: Sequence[int] | None = None, steps: int | None = None) -> Walk:
    """Reveal sites in an order, random by default; one site per step by default, and then draws are exact."""
    check_masked(model)
    schedule = cast("Masking", model.process).schedule
    fk = Composed(model, order=None if order is None else tuple(order))
    return Walk(fk, masked_fraction_grid(schedule, model.length if steps is None else steps))


def in_clock_time(model: Model, steps: int = 100) -> Walk:
    """Reveal each site at its random time, over equal time steps: sites of one step are drawn independently."""
    check_masked(model)
    return Walk(Unweighted(model, model.base, kernel=tweedie), uniform_grid(steps))


def check_masked(model: object) -> None:
    """Raise unless the model's process is masking."""
    check_model(model)
    process = cast("Model", model).process
    if not isinstance(process, Masking):
        raise InvalidInput(f"these baselines reveal masked sites, and {type(process).__name__} has no mask")


def base_draws(walk: Walk, count: int, seed: int, population: int = 0) -> Tokens:
    """Clean states [count, D] of the base, from the random stream of a population."""
    source = Source(Stream(seed, population, walk.fk.device))
    return last_of(run_steps(walk.fk, walk.grid, (1, count), never, source)).x[0]


@dataclass(eq=False)
class LastAnswer(BatchScore):
    """A score with a cache of its last batch: the network is not evaluated again for states in it.

    The value of a state and its next step need the same network pass, which the papers count once.
    """

    asks_others: ClassVar[bool] = True
    score: Any
    t: float | None = None
    x: Tokens | None = None
    answer: SiteLogits | None = None

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        if self.answer is not None and self.t == t:
            found = _rows(cast("Tokens", self.x), batch.x)
            if found is not None:
                return SiteLogits(self.answer.store, self.answer.index[found])
        answer = ask(self.score, Batch(batch.x, batch.log), t)
        self.t, self.x, self.answer = t, batch.x, answer
        return answer


def _rows(known: Tokens, x: Tokens) -> torch.Tensor | None:
    """Indices of states [B, D] among the cached ones [K, D]; None if one is missing."""
    _, number = torch.unique(torch.cat([known, x]), dim=0, return_inverse=True)
    place = torch.full((int(number.max()) + 1,), -1, device=x.device)
    place[number[: len(known)]] = torch.arange(len(known), device=x.device)
    found = place[number[len(known) :]]
    return None if bool((found < 0).any()) else found


def remembering(model: Model, log: RunLog) -> Model:
    """The same model with its evaluations counted, and a cache for the states of a step."""
    check_masked(model)
    return bind(replace(model, base=LastAnswer(model.base)), log)
