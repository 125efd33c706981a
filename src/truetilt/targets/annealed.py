"""Annealing on clean states: draw them where that is easy, then change the target little by little and move them.

The first steps reveal states under a start that is easy to sample: the base itself, a conditional model, a twisted law.
The annealing steps then go from the start's target to the goal's by shares of the way: each weighs the particles by the
ratio of the new target to the old, resamples, and moves every particle by a Markov kernel that leaves the new target
invariant. With shares fixed beforehand the estimate of Z is unbiased; a repeated share adds a move at the same target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple, cast

from torch import Tensor

from ..core.arguments import LARGEST, bounded, called, listed, number, set_fields, shown, whole_number
from ..core.bases import MakeMoves, MoveKernel, check_kernel_of_moves, check_listed
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog
from ..core.spent import Spent
from ..core.target import Remedies, Target
from ..core.types import NEG_INF, Aux, LogWeights, Model, Move, Particles, Score, Tokens
from ..diffusion.grids import MOST_STEPS, masked_fraction_grid
from ..diffusion.processes import Masking
from .accept_move import WeighedMove
from .advice import better_twist, listed_ways
from .composed import Composed
from .moves import scan_gibbs
from .stage import SiteTarget, Stage

_SHARES = "give the share of the way after each step, from above 0 to 1 and never falling, such as tt.pilot finds"


@dataclass(frozen=True)
class Ladder:
    """Shares of the way that a pilot found (`tt.pilot`), to be given to `tt.Annealed`.

    Args:
        shares: Share of the way to the goal after each annealing step: numbers that never fall and end at 1.
        steps: Steps that the pilot itself took with the loss it was allowed: with fewer shares than that each costs
            more.
        spent: What the pilot cost, a `tt.Spent`; nothing by default.
    """

    shares: tuple[float, ...]
    steps: int
    spent: Spent = field(default=Spent(), compare=False)

    def __post_init__(self) -> None:
        set_fields(self, shares=_check_shares(self.shares), steps=whole_number("steps", self.steps, 1))
        if not isinstance(self.spent, Spent):
            raise InvalidInput(f"spent is {shown(self.spent)}; give a tt.Spent")


class AnnealedTime(NamedTuple):
    """A time of the run as steps done; while sites are revealed, `t` is the time of the start's own clock."""

    done: int
    t: float
    share: float  # of the way from the start's target to the goal's


@dataclass(frozen=True)
class Annealed(SiteTarget):
    """The target of `goal`, by annealing clean states from the target of `start_from`.

    It has a time grid of its own: run it as `tt.run(fk)`.

    Args:
        goal: What is targeted, a `tt.Composed`.
        shares: Share of the way to the goal after each annealing step: numbers that never fall and end at 1; a whole
            number of equal steps; or a `Ladder` that `tt.pilot` found, whose steps cost alike.
        start_from: What clean states are revealed from, a `tt.Composed` on the same model with the same scores. None
            (the default): the goal with its twist for a reward, else without one; sharpness 1, and exponents of
            conditions within 0 to 1.
        kernel: Makes the Markov kernel of a step from this value, once. By default `tt.Gibbs` with a systematic scan:
            one site a step, and a call of the reward for every other token there.
        reveal_steps: Steps that reveal, 1 to the length. None (the default): one site a step, which is exact.
        floor: Rewards below this count as this much on the way, so that forbidden states (-inf) may still be mended; at
            the last step they count for what they are. None (the default): they are what they are throughout.
        spent: What finding the ladder cost, a `tt.Spent`, taken from a `Ladder`; nothing by default.
    """

    how: ClassVar[str] = "draws clean states, then changes the target by shares and moves them"
    level: ClassVar[bool] = True
    goal: Composed
    shares: Ladder | Sequence[float] | int
    start_from: Composed | None = None
    kernel: MakeMoves = scan_gibbs
    reveal_steps: int | None = None
    floor: float | None = None
    spent: Spent = field(default=Spent(), repr=False, kw_only=True, compare=False)  # what its ladder cost

    def __post_init__(self) -> None:
        if not isinstance(self.goal, Composed):
            raise InvalidInput(f"the goal is a {type(self.goal).__name__}; give tt.Composed(model, ...)")
        if not isinstance(self.spent, Spent):
            raise InvalidInput(f"spent is {shown(self.spent)}; give a tt.Spent")
        if isinstance(self.shares, Ladder):
            set_fields(self, spent=self.shares.spent, shares=self.shares.shares)
        set_fields(self, shares=_check_shares(self.shares))
        set_fields(self, start_from=natural_start(self.goal) if self.start_from is None else self.start_from)
        _check_start(self.goal, self.begin)
        length = self.goal.model.length
        steps = length if self.reveal_steps is None else self.reveal_steps
        set_fields(self, reveal_steps=whole_number("reveal_steps", steps, 1, length))
        if self.floor is not None:
            need = f"give the least that a reward counts on the way, a number up to {LARGEST:.0e}, or None"
            set_fields(self, floor=bounded("floor", self.floor, need))
        need = "give what makes a Markov kernel of this value, such as tt.Gibbs"
        if not callable(self.kernel):
            raise InvalidInput(f"kernel is {shown(self.kernel)}; {need}")
        check_kernel_of_moves(self.moves, need, "what kernel returned")
        whole_number("the number of choices of what kernel returned", self.moves.choices, 0)

    @property
    def model(self) -> Model:
        return self.goal.model

    @property
    def begin(self) -> Composed:
        """The value whose target is annealed."""
        return cast("Composed", self.start_from)

    @property
    def target(self) -> Target:
        way = {"weights": "annealed", "shares": self.shares, "start": self.begin.target.final, "floor": self.floor}
        goal = self.goal.target
        return Target(goal.final, way, goal.constant, goal.formula)

    @property
    def most_log_weight(self) -> float | None:
        return self.goal.most_log_weight

    @property
    def revealer(self) -> Composed:
        """The start, whose sites are revealed before anything is annealed."""
        return self.begin

    @property
    def remedies(self) -> Remedies:
        more = f"more annealing steps (shares={2 * len(self.ladder)})"
        spaced = "" if self.spent != Spent() else "a ladder that a pilot spaces (shares=tt.pilot(fk))"
        twist = better_twist(self.goal.twist) if self.goal.factor else ""
        weigh, again = listed_ways(spaced, more, twist), "more moves (each share named twice)"
        return Remedies(self.goal.remedies.lower, weigh, again, steps="")

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return self.goal.scores

    @cached_property
    def moves(self) -> MoveKernel:
        """The Markov kernel of the annealing steps."""
        return called("kernel", self.kernel, self)

    @property
    def ladder(self) -> tuple[float, ...]:
        """The share of the way after each annealing step."""
        return cast("tuple[float, ...]", self.shares)

    @property
    def steps(self) -> int:
        """Steps that reveal and steps that anneal."""
        return cast("int", self.reveal_steps) + len(self.ladder)

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """The times of its run: one for each step, evenly spaced."""
        return (*(1 - k / self.steps for k in range(self.steps)), 0.0)

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        return masked_fraction_grid(cast("Masking", self.model.process).schedule, cast("int", self.reveal_steps))

    def place(self, t: float) -> AnnealedTime:
        """Where a time of the grid lies."""
        done, reveals = round((1 - t) * self.steps), cast("int", self.reveal_steps)
        if self.grid[done] != t:
            raise InvalidInput(
                f"t = {t:.6g} is no time of this annealed value, which has a grid of its own: run it as tt.run(fk)"
            )
        if done <= reveals:
            return AnnealedTime(done, self._inner[done], 0.0)
        return AnnealedTime(done, 0.0, self.ladder[done - reveals - 1])

    def stage(self, t: float) -> Stage:
        """The start's stage while sites are revealed; then the share of the way between its last and the goal's."""
        done, inner, share = self.place(t)
        if done <= cast("int", self.reveal_steps) and inner > 0:
            return self.begin.stage(inner)
        return self.between(share)

    def between(self, share: float) -> Stage:
        """The target at this share of the way from the start's to the goal's; its values are the start's and the
        goal's. The floor applies strictly between the two ends.
        """
        first, last = self.begin.stage(0.0), self.goal.stage(0.0)
        potentials = (first.potentials[0], last.potentials[0])
        factors = ((1 - share) * first.factors[0], share * last.factors[0])
        if potentials[0] is potentials[1]:  # the same reward at both ends: its factor grows
            potentials, factors = (None, potentials[1]), (0.0, sum(factors))
        alphas = zip(first.conditions, last.conditions, strict=True)
        conditions = tuple(b if share == 1 else a + share * (b - a) for a, b in alphas)
        sharpness = first.sharpness + share * (last.sharpness - first.sharpness) if share != 1 else last.sharpness
        floor = NEG_INF if self.floor is None or share in (0, 1) else self.floor
        return Stage(0.0, sharpness, conditions, potentials, factors, floor)

    def masked(self, t: float) -> int:
        return self.begin.masked(self.place(t).t)

    def recall(self, particles: Particles, t: float) -> Aux:
        """The memory (aux) of the run; when annealing begins, the goal's reward joins the values."""
        aux = self.begin.recall(particles, self.place(t).t)
        _, inner, share = self.place(t)
        if inner > 0:
            return aux
        stage = self.between(share)
        counted = share == 1 or all(h is None or f != 0 for h, f in zip(stage.potentials, stage.factors, strict=True))
        if "log_ratios" in particles.aux and particles.aux["values"].shape[-1] == 2 and counted:
            return aux
        return aux | {"values": self.between_values(particles.x, self.log)}  # a value with factor 0 was not computed

    def values(self, particles: Particles, t: float) -> Tensor:
        return self.recall(particles, t)["values"]

    def between_values(self, x: Tokens, log: RunLog | None = None) -> Tensor:
        """The start's and the goal's reward of clean states [..., 2]."""
        middle = self.between(0.5)
        factors = tuple(1.0 if h is not None else 0.0 for h in middle.potentials)
        return middle._replace(factors=factors).values(x, log)

    def start(self, shape: tuple[int, ...], t: float) -> Move:
        return self.begin.start(shape, t)

    def choices(self, t: float, s: float) -> int:
        here, there = self.place(t), self.place(s)
        return self.begin.choices(here.t, there.t) if here.t > there.t else self.moves.choices

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> Move:
        here, there = self.place(t), self.place(s)
        if here.t > there.t:
            return self.begin.move(particles, here.t, there.t, u)
        particles, log_before = self._weighed(particles, t, s)
        return WeighedMove(self.moves.move(particles, s, here.done - cast("int", self.reveal_steps), u), log_before)

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, Move]]:
        here, there = self.place(t), self.place(s)
        if here.t > there.t:
            return list(self.begin.branches(particles, here.t, there.t))
        particles, log_before = self._weighed(particles, t, s)
        need = "exact answers sum over all that a move may do; give a kernel that has `branches`, such as tt.Gibbs"
        kernel = check_listed("the kernel", self.moves, need)
        every = kernel.branches(particles, s, here.done - cast("int", self.reveal_steps))
        return [(log_p, WeighedMove(move, log_before)) for log_p, move in every]

    def _weighed(self, particles: Particles, t: float, s: float) -> tuple[Particles, LogWeights]:
        """The particles with all their aux values, and what the next share adds to their log-weights."""
        aux = self.recall(particles, t)
        return particles._replace(aux=aux), self.stage(s).grown(self.stage(t), aux, self.log)


def natural_start(goal: Composed) -> Composed:
    """The default start of a goal: sharpness 1, exponents clipped to 0 to 1, and its twist as the reward, if it has
    one.
    """
    conditions = tuple((score, min(max(alpha, 0.0), 1.0)) for score, alpha in goal.conditions)
    return replace(goal, sharpness=1.0, conditions=conditions, reward=goal.twist)


def _check_start(goal: Composed, start: object) -> None:
    """Raise unless start and goal are targets of the same model, with the same networks in the same places."""
    if not isinstance(start, Composed):
        raise InvalidInput(f"the start is a {type(start).__name__}; give tt.Composed on the goal's model")
    scores = [tuple(score for score, _ in fk.conditions) for fk in (start, goal)]
    same = len(scores[0]) == len(scores[1]) and all(a is b for a, b in zip(*scores, strict=True))
    if start.model is not goal.model or not same:
        raise InvalidInput(
            "the start and the goal of an annealed value differ in their model or in the scores of their conditions; "
            "give both the same ones, with exponent 0 for a condition that only one has"
        )


def _check_shares(shares: object) -> tuple[float, ...]:
    if isinstance(shares, int) and not isinstance(shares, bool):
        count = whole_number("shares", shares, 1, MOST_STEPS)
        return tuple((k + 1) / count for k in range(count))
    found = tuple(number("a share of the way", share, _SHARES) for share in listed("shares", shares, _SHARES))
    rising = all(a <= b for a, b in pairwise(found))
    if not found or not found[0] > 0 or not rising or found[-1] != 1:
        raise InvalidInput(f"the shares of the way are {len(found)} numbers that do not rise to 1; {_SHARES}")
    return found
