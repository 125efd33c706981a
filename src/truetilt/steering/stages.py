"""The stages of a `steer` call: each run, fit or check is carried out, paid for and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from ..api import run
from ..core.evaluation import Meter
from ..core.metering import metered
from ..core.spent import Spent
from ..core.storage import read_json, write_json
from ..core.types import Potential
from ..result import Result
from ..targets.consistency import STATES, disagreement
from ..twists.learned_twist import LearnedTwist
from ..twists.learning import learn_twist
from .account import Account
from .drift import Drift, drift_of
from .problem import SteerProblem
from .routes import Route, kernel
from .stage_folder import StageFolder

APART = 1 << 40  # distance of population numbers between two stages, so that no two share random numbers
WITHIN = " · "  # separates a stage from its progress in the messages that `progress` gets
BudgetProgress = Callable[[str, float], object]  # (what is being done, share of the budget spent)
T = TypeVar("T")


class DoneStage(NamedTuple):
    """A finished stage: what was done, why, and what it cost."""

    what: str
    why: str
    spent: Spent


def several(count: int, what: str) -> str:
    """A count with its noun, in words."""
    return f"{count:,} {what}{'s' * (count != 1)}"


class FirstLook(NamedTuple):
    """What the pilot found: how many draws were effective, and how many the whole budget would buy.

    `promise` is the forecast effective share of draws with a learned twist; None if there is no forecast. `new` is the
    share of calls on new states, 1 if calls are not limited. `left` is the share of the post-pilot budget that remains:
    less after the pilot was enlarged.
    """

    effective: float
    in_all: float
    promise: float | None = None
    new: float = 1.0
    left: float = 1.0


@dataclass
class Work:
    """A problem, its account, the stages done so far, and the folder they are stored in; and what was found out.

    `choose` alone writes what the pilot found (`first`, `movable`) and which routes it left out, `candidates` alone the
    twist that a route has learned.
    """

    problem: SteerProblem
    account: Account
    folder: StageFolder
    seed: int
    progress: BudgetProgress | None = None
    twist: Potential | None = None  # the user's, or the learned one
    first: FirstLook | None = None
    learned: bool = False  # whether learning a twist was tried
    movable: bool = False  # whether moves that redraw a site keep the target
    stages: list[DoneStage] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)  # what could not be tried, and the budget it needs
    left_out: list[str] = field(default_factory=list)  # routes not tried because they promised no improvement

    @property
    def populations(self) -> int:
        return self.problem.populations

    @property
    def budget_told(self) -> str:
        """The budget, in words."""
        evaluations, calls = self.account.budget
        return f"{evaluations:,} evaluations" + ("" if calls is None else f" and {calls:,} calls")

    def run(self, route: Route, particles: int, populations: int, why: str) -> Result:
        """The result of running a route; a stage."""
        first = len(self.stages) * APART
        what = f"{route.name}: {several(populations, 'population')} of {several(particles, 'particle')}"
        what += f", {several(route.moves, 'move')} each" if route.moves else ""
        options: dict[str, Any] = {"particles": particles, "populations": populations, "resample": route.resample}
        options |= {"seed": self.seed, "first_population": first}

        def make(checkpoint: Path | None) -> tuple[Result, Spent]:
            result = self.problem.counted(run(route.fk, route.grid, checkpoint=checkpoint, **options))
            return result, Spent(*result.counts.sum(0).tolist())

        if self.progress is not None:
            options["callback_on_step_end"] = lambda done, steps, _: self.tell(what, f"step {done} of {steps}")
        return self._stage("run", what, why, make, Result.save, Result.load)

    def learn(self, calls: int, draws: int, why: str, **options: Any) -> LearnedTwist:
        """A twist learned from `draws` draws a round and `calls` calls in all; a stage."""
        problem, names = self.problem, "twist.safetensors"
        what = f"a twist learned from {several(draws, 'draw')} a round and {several(calls, 'call')}"
        options |= {"calls": calls, "draws": draws, "order": problem.order, "seed": self.seed}
        options["progress"] = lambda turn, _: self.tell(what, turn)

        def make(checkpoint: Path | None) -> tuple[LearnedTwist, Spent]:
            before = problem.distinct
            twist = learn_twist(problem.model, cast("Any", problem.reward), problem.strength, **options)
            return twist, twist.spent._replace(distinct=problem.distinct - before)

        def read(folder: Path) -> LearnedTwist:
            return LearnedTwist.load(folder / names, problem.model.device)

        return self._stage("twist", what, why, make, lambda twist, folder: twist.save(folder / names), read)

    def agree(self, result: Result) -> float:
        """The disagreement of the model's conditionals on states of a result, in nats; see `consistency`. A stage."""

        def make(checkpoint: Path | None) -> tuple[float, Spent]:
            meter = Meter()
            goal = metered(self.problem.goal(), meter)
            found = disagreement(goal, result.particles.flatten(0, 1)[:STATES])
            return float(found.mean()), meter.spent

        def write(nats: float, folder: Path) -> None:
            write_json(folder / "disagreement.json", nats)

        def read(folder: Path) -> float:
            return read_json(folder / "disagreement.json")

        what, why = "whether the model's conditionals agree", "moves redraw sites, and keep the target only if they do"
        return self._stage("agree", what, why, make, write, read)

    def check(self, result: Result, size: tuple[int, int], why: str) -> Drift:
        """The check by moves: size[0] draws of an answer, each moved size[1] times; a stage."""
        redraw = kernel(self.problem, self.account, self.twist)

        def make(checkpoint: Path | None) -> tuple[Drift, Spent]:
            return drift_of(self.problem, result, size, redraw, self.seed, len(self.stages) * APART)

        def write(drift: Drift, folder: Path) -> None:
            write_json(folder / "drift.json", drift._asdict())

        what = f"a check by {several(size[1], 'move')} of {several(size[0], 'draw')}"
        return self._stage("check", what, why, make, write, lambda folder: Drift(**read_json(folder / "drift.json")))

    def note(self, words: str) -> None:
        """Add the outcome to the record of the last stage."""
        last = self.stages[-1]
        self.stages[-1] = last._replace(what=f"{last.what} ({words})")

    def _stage(
        self,
        name: str,
        what: str,
        why: str,
        make: Callable[[Path | None], tuple[T, Spent]],
        write: Callable[[T, Path], object],
        read: Callable[[Path], T],
    ) -> T:
        self.tell(what)
        found, spent = self.folder.stage(f"{len(self.stages)}-{name}", make, write, read)
        spent = self.problem.priced(spent)
        self.account.pay(spent)
        self.stages.append(DoneStage(what, why, spent))
        self.tell(what)
        return found

    def tell(self, what: str, where: str = "") -> None:
        """Report what is being done, and how far it is."""
        if self.progress is not None:
            self.progress(what + (f"{WITHIN}{where}" if where else ""), self.account.used)
