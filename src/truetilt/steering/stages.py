"""The stages of a `steer` call: each run, fit or check is carried out, paid for and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..api import run
from ..core.binding import bind
from ..core.evaluation import RunLog
from ..core.spent import Spent
from ..core.storage import check_plain, read_json, write_json, write_with
from ..core.types import NEG_INF, Potential, Tokens
from ..result import Result
from ..smc.resampling import effective_sample_size
from ..smc.sampler import Whole
from ..targets.composed import Composed
from ..targets.consistency import STATES, disagreement
from ..targets.diagnose_model import log_prob_in_order
from ..twists.learned_twist import HeldOut, LearnedTwist
from ..twists.learning import Learning, learned_from, plan_of
from ..twists.pool import Sample, read_sample, sample_of
from ..twists.recorded_draws import weighed_draws
from ..twists.tables import TableTwist
from .account import Account
from .drift import Drift, drift_of, walked
from .problem import SteerProblem
from .routes import IMPORTANCE, Route, kernel
from .stage_folder import StageFolder

ROUNDING = 1e-6  # nats
LED = 1 << 10  # draws led to states of high reward come after this many rounds of learning
APART = 1 << 40  # distance of population numbers between two stages, so that no two share random numbers
PART = Whole(complete=False)  # a run is a part of the answer: it may die, which counts as mass 0
WITHIN = " · "  # separates a stage from its progress in the messages that `progress` gets
BudgetProgress = Callable[[str, float], object]  # (what is being done, share of the budget spent)
T = TypeVar("T")


class DoneStage(NamedTuple):
    """A finished stage: what was done, why, what it cost, and what came out."""

    what: str
    why: str
    spent: Spent
    found: str = ""


def rounded(value: float) -> str:
    """A number to two digits, as text."""
    return f"{float(f'{value:.2g}'):,.10g}"


def several(count: int, what: str) -> str:
    """A count with its noun, in words."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def ess_told(result: Result) -> str:
    """The effective sample size and log Z of a result, in words."""
    ess = float(effective_sample_size(result.log_weights.reshape(-1)))
    told = f"{ess:,.0f}" if ess >= 10 else f"{ess:.2g}"
    return f"{told} of {result.log_weights.numel():,} effective, log Z {result.log_z:.4g}"


class LessonPlan(NamedTuple):
    """The training data of a twist: draws per round, calls in all rounds, and states a round may meet for the first
    time (None: any number)."""

    draws: int
    calls: int
    new: int | None = None


class FirstLook(NamedTuple):
    """What the pilot found: how many draws were effective, how many the whole budget would buy, and the share of a
    draw that is effective.

    `promise` is the forecast effective share of draws with a learned twist; None if there is no forecast. `new` is the
    share of calls on new states, 1 if calls are not limited. `left` is the share of the post-pilot budget that remains:
    less after the pilot was enlarged.
    """

    effective: float
    in_all: float
    worth: float = 0.0
    promise: float | None = None
    new: float = 1.0
    left: float = 1.0


class Reordered(NamedTuple):
    """The change of log Z in the reverse order of revealing, and its standard error."""

    change: float
    stderr: float


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
    samples: list[Sample] = field(default_factory=list)  # of known laws: draws of p0 first, then those of twists
    differ: float = 0.0  # nats by which the conditionals of neighbouring sites differ
    reordered: Reordered | None = None
    led: bool = False  # whether chains stayed above the answer, and draws were led there
    stages: list[DoneStage] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)  # what could not be tried, and the budget it needs
    left_out: dict[str, str] = field(default_factory=dict)  # routes not tried, and why

    @property
    def populations(self) -> int:
        return self.problem.populations

    @property
    def nothing_allowed(self) -> bool:
        """Whether every state drawn so far is forbidden, so that nothing can be learned or moved from."""
        return bool(self.samples) and not bool((self.samples[0].value > NEG_INF).any())

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
        options |= {"seed": self.seed, "first_population": first, "shard": PART}

        def make(checkpoint: Path | None) -> tuple[Result, Spent]:
            result = self.problem.counted(run(route.fk, route.grid, checkpoint=checkpoint, **options))
            return result, Spent(*result.counts.sum(0).tolist())

        if self.progress is not None:
            options["callback_on_step_end"] = lambda done, steps, _: self.tell(what, f"step {done} of {steps}")
        found = self._stage("run", what, why, make, Result.save, Result.load)
        if route.name == IMPORTANCE:  # draws of p0, weighed by the reward alone
            x, value = found.particles.flatten(0, 1).cpu(), found.log_weights.reshape(-1).cpu()
            self._drew_base(Sample(x, value, torch.zeros_like(value)))
        self.note(ess_told(found))
        return found

    def _drew_base(self, more: Sample) -> None:
        """Add draws of p0 to those drawn before, the first of the samples."""
        if self.samples:
            x, value, own = (torch.cat(pair) for pair in zip(self.samples[0][:3], more[:3], strict=True))
            more = Sample(x, value, own)
        self.samples[:1] = [more]

    def learn(
        self, lessons: LessonPlan, refits: int, why: str, go_on: Callable[[HeldOut, float], bool]
    ) -> LearnedTwist:
        """A twist learned from the draws of p0 and from up to `refits` further rounds; a stage."""
        problem, reward = self.problem, cast("Any", self.problem.reward)
        draws, calls, new = lessons
        limit = several(calls, "call") if new is None else several(refits * new, "new state")
        what = f"a twist learned from {several(draws, 'draw')} a round and at most {limit}"
        begun, sizes = self.samples[:1], (calls, draws, refits, problem.order, self.seed)
        plan = plan_of(problem.model, reward, problem.strength, *sizes, begun=bool(begun), new=new)

        def make(checkpoint: Path | None) -> tuple[Learning, Spent]:
            before, first = problem.distinct, next(iter(begun), None)
            found = learned_from(problem.model, reward, plan, None, lambda turn, _: self.tell(what, turn), first, go_on)
            return found, found.twist.spent._replace(distinct=problem.distinct - before)

        def write(found: Learning, folder: Path) -> None:
            found.twist.save(folder / "twist.safetensors")
            for number, sample in enumerate(found.samples[len(begun) :], start=1):
                sample.save(folder / f"round-{number}.safetensors")

        def read(folder: Path) -> Learning:
            device, paths = problem.model.device, sorted(folder.glob("round-*.safetensors"))
            rounds = [read_sample(path, device) for path in paths]
            return Learning(LearnedTwist.load(folder / "twist.safetensors", device), [*begun, *rounds])

        learning = self._stage("twist", what, why, make, write, read)
        self.samples += learning.samples[len(begun) :]
        best = learning.twist.held_out
        self.note(f"{best.family}, {best.ess:.0%} of its draws effective by those held out")
        return learning.twist

    def sample(self, twist: TableTwist, draws: int, why: str) -> Sample:
        """Fresh draws of p0 exp(twist) with their rewards, to tell what mass there is; a stage."""
        problem, number = self.problem, len(self.stages)
        what = f"{several(draws, 'draw')} led to where the reward was found high"

        def make(checkpoint: Path | None) -> tuple[Sample, Spent]:
            before, log = problem.distinct, RunLog()
            drawn = weighed_draws(problem.model, draws, twist, problem.order, self.seed, LED + number)
            value = problem.nats(bind(problem.goal(), log), drawn.x)
            spent = drawn.spent.plus(log.spent)._replace(distinct=problem.distinct - before)
            return sample_of(drawn, value, twist), spent

        def read(folder: Path) -> Sample:
            return read_sample(folder / "sample.safetensors", problem.model.device)

        found = self._stage(
            "sample", what, why, make, lambda one, folder: one.save(folder / "sample.safetensors"), read
        )
        self.samples.append(found)
        self.note(f"mean {float(found.value.mean()):.4g} nats of strength x reward")
        return found

    def agree(self, result: Result) -> float:
        """The disagreement of the model's conditionals on states of a result, in nats; see `consistency`. A stage."""

        def make(checkpoint: Path | None) -> tuple[float, Spent]:
            log = RunLog()
            goal = bind(self.problem.goal(), log)
            found = disagreement(goal, result.particles.flatten(0, 1)[:STATES])
            return float(found.mean()), log.spent

        def write(nats: float, folder: Path) -> None:
            write_json(folder / "disagreement.json", nats)

        def read(folder: Path) -> float:
            return read_json(folder / "disagreement.json")

        what, why = "whether the model's conditionals agree", "moves redraw sites, and keep the target only if they do"
        found = self._stage("agree", what, why, make, write, read)
        agree = found <= ROUNDING
        self.note("they do" if agree else f"they differ by {found:.2g} nats for a pair of neighbours")
        return 0.0 if agree else found

    def reorder(self, result: Result, draws: int) -> Reordered:
        """What log Z would be if sites were revealed from the last of the order to the first; a stage."""
        problem, order = self.problem, cast("tuple[int, ...]", self.problem.order)

        def make(checkpoint: Path | None) -> tuple[Reordered, Spent]:
            log, x = RunLog(), result.draw(draws, self.seed)
            goal = bind(Composed(problem.model, order=order), log)
            ratio = log_prob_in_order(goal, x, order[::-1]) - log_prob_in_order(goal, x, order)
            weight = (ratio - ratio.max()).exp()
            change = float(weight.mean().log() + ratio.max())
            return Reordered(change, float(weight.std() / weight.mean()) / math.sqrt(draws)), log.spent

        def write(found: Reordered, folder: Path) -> None:
            write_json(folder / "order.json", found._asdict())

        what, why = f"log p0 of {several(draws, 'draw')} in the reverse order", "the conditionals differ"
        found = self._stage("order", what, why, make, write, lambda at: Reordered(**read_json(at / "order.json")))
        self.note(f"log Z would change by {found.change:+.2g} ± {found.stderr:.2g}")
        return found

    def check(self, result: Result, size: tuple[int, int], why: str) -> Drift:
        """The check by moves: size[0] draws of an answer, each moved size[1] times; a stage."""
        redraw = kernel(self.problem, self.account, self.twist)

        def make(checkpoint: Path | None) -> tuple[Drift, Spent]:
            return drift_of(self.problem, result, size, redraw, self.seed, len(self.stages) * APART)

        def write(drift: Drift, folder: Path) -> None:
            write_json(folder / "drift.json", drift._asdict())

        what = f"a check by {several(size[1], 'move')} of {several(size[0], 'draw')}"
        found = self._stage("check", what, why, make, write, lambda folder: Drift(**read_json(folder / "drift.json")))
        self.note(f"they moved by {found.mean:+.2g} ± {found.stderr:.2g} nats of strength x reward")
        return found

    def walk(self, x: Tokens, moves: int, parts: int, why: str) -> tuple[Tokens, Tensor]:
        """Chains of moves from clean states, and what each state noted on the way is worth in nats; a stage."""
        redraw = kernel(self.problem, self.account, self.twist)

        def make(checkpoint: Path | None) -> tuple[tuple[Tokens, Tensor], Spent]:
            found = walked(self.problem, x, moves, parts, redraw, self.seed, len(self.stages) * APART)
            return (found.x, found.value), found.spent

        def write(found: tuple[Tokens, Tensor], folder: Path) -> None:
            parts = dict(zip(("x", "value"), found, strict=True))
            write_with(folder / "chains.safetensors", lambda file: save_file(parts, file))

        def read(folder: Path) -> tuple[Tokens, Tensor]:
            found = load_file(check_plain(folder / "chains.safetensors"))
            return found["x"], found["value"]

        what = f"{several(moves * parts, 'move')} of each of {several(len(x), 'chain')}"
        found = self._stage("chains", what, why, make, write, read)
        told = " to ".join(f"{float(found[1][k].mean()):.4g}" for k in (0, -1))
        self.note(f"from {told} nats of strength x reward on average")
        return found

    def note(self, words: str) -> None:
        """Add to what came out of the last stage."""
        last = self.stages[-1]
        self.stages[-1] = last._replace(found="; ".join(filter(None, [last.found, words])))

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
