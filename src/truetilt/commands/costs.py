"""What a run costs: evaluations of each network, counted by wrappers around the scores and the potential of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ..core.evaluation import Batch, BatchScore, RunLog, ask
from ..core.logits import SiteLogits
from ..core.types import Model


def wrapped(model: Model, wrap: Callable[[str, Any], Any]) -> Model:
    """The model with each network it has replaced by wrap(its name, the network)."""
    nets = {"base": model.base, "conditional": model.conditional, "potential": model.potential}
    return replace(model, **{name: wrap(name, net) for name, net in nets.items() if net is not None})


@dataclass
class StateCounter:
    """Counts the states that each network is evaluated on, a count that does not depend on the chunk size."""

    meters: dict[str, RunLog] = field(default_factory=dict)

    @property
    def states(self) -> dict[str, int]:
        return {name: meter.evaluations for name, meter in self.meters.items() if meter.rounds}

    def watch(self, model: Model) -> Model:
        return wrapped(model, self._count)

    def _count(self, name: str, net: Any) -> Any:
        meter = self.meters.setdefault(name, RunLog())
        return CountedPotential(net, meter) if name == "potential" else CountedScore(net, meter)

    def add(self, name: str, states: int) -> None:
        self.meters.setdefault(name, RunLog()).evaluated(states)


@dataclass
class RoundCounter:
    """Counts network evaluations and rounds: different networks evaluated in turn at one time make one round."""

    passes: int = 0
    rounds: int = 0
    asked: set[str] = field(default_factory=set)
    time: float | None = None

    def watch(self, model: Model) -> Model:
        return wrapped(model, self._count)

    def _count(self, name: str, net: Callable) -> Callable:
        def counted(x: Tensor, t: float) -> object:
            self.passes += 1
            if t != self.time or name in self.asked:  # a new time, or the same network again: a new round
                self.rounds, self.time, self.asked = self.rounds + 1, t, set()
            self.asked.add(name)
            return net(x, t)

        return counted


@dataclass(frozen=True)
class CountedScore(BatchScore):
    """A Score whose states are counted."""

    asks_others: ClassVar[bool] = True
    score: Any
    meter: RunLog

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        self.meter.evaluated(len(batch.x))
        return ask(self.score, batch, t)


@dataclass(frozen=True)
class CountedPotential:
    """A potential whose states are counted, in this log beside that of the run."""

    potential: Any
    meter: RunLog

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.meter.evaluated(len(x))
        return self.potential(x, t)


class Cost(NamedTuple):
    """The cost of a run: network evaluations per particle, and seconds in all."""

    networks: float  # base and conditional together
    potentials: float
    seconds: float


def cost_of(meter: StateCounter, particles: int, seconds: float) -> Cost:
    seen = {name: count / particles for name, count in meter.states.items()}
    return Cost(seen.get("base", 0.0) + seen.get("conditional", 0.0), seen.get("potential", 0.0), seconds)
