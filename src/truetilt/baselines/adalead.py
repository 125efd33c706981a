"""AdaLead (Sinai et al. 2020): evolution of base draws by recombination and mutation, greedily towards the reward."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.arguments import number, whole_number
from ..core.binding import bind
from ..core.budget import Budget
from ..core.errors import InvalidInput
from ..core.evaluation import CountedFunction, RunLog
from ..core.types import NEG_INF, Model, Tokens
from ..rewards.calls import Rewarding, call_reward, check_reward_of
from ..smc.sampler import CHOOSE, DRAW, OUTPUT, Stream
from .base_draws import WalkMaker, base_draws, site_by_site
from .record import Baseline

_TRIES = 20  # attempts at a mutant not seen before
_IDLE = 10  # rounds without a new state, after which the search stops
_APART = 1 << 20  # first step of the random stream, apart from those of the base draws


@torch.no_grad()
def adalead(
    model: Model,
    reward: Rewarding,
    *,
    budget: Budget,
    particles: int = 64,
    batch: int = 100,
    threshold: float = 0.05,
    recombination: float = 0.2,
    mutation: float = 1.0,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """The best states that evolution finds from base draws until the calls are spent. It has no target distribution.

    A round takes all states within `threshold` of the best as parents, recombines them in pairs, and mutates each child
    on and on as long as a mutant is no worse than that child. The paper queries a surrogate model and measures one
    batch per round; here the reward itself is called, once per state.

    Args:
        model: A `tt.Model` on `tt.Masking`; the first batch is drawn from its base.
        reward: Function of clean states [B, D] that returns one number a state; -inf forbids.
        budget: Calls to spend (all of them), and evaluations for the first batch.
        particles: Number of best states returned, 64 by default.
        batch: Base draws to begin with, and parents of a round; 100 by default.
        threshold: kappa of the paper: parents are worth at least (1 - kappa) of the best; 0.05 by default.
        recombination: Probability to switch to the other parent at a site; 0.2 by default.
        mutation: Expected number of sites that a mutation redraws, uniformly over tokens; 1 by default.
        walk: How the first states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    check_reward_of(reward, 1.0)
    particles, batch = whole_number("particles", particles, 1), whole_number("batch", batch, 2)
    kappa = _fraction("threshold", threshold)
    rates = _fraction("recombination", recombination), number("mutation", mutation) / model.length
    if budget.calls is None:
        raise InvalidInput("AdaLead goes on until its calls are spent; give a budget of calls")
    log = RunLog()
    way = walk(bind(model, log))
    count = budget.most(way.steps, 1, "draws to begin with", batch)
    chance = _Chance(Stream(seed, device=model.device))
    known = _KnownStates(CountedFunction(reward, log), budget.calls)
    known.ask(base_draws(way, count, seed))
    idle = 0
    while known.left() and idle < _IDLE:
        before = len(known)
        roots = _recombined(known.parents(batch, kappa), rates[0], chance)
        _rollouts(roots, known, rates[1], model.process.vocabulary, chance)
        idle = 0 if len(known) > before else idle + 1
    return Baseline(known.best(particles), None, None, log.spent, len(known))


def _fraction(name: str, value: object) -> float:
    found = number(name, value)
    if not 0 <= found <= 1:
        raise InvalidInput(f"{name} is {found}; give a fraction from 0 to 1")
    return found


class _Chance:
    """Uniforms of a random stream, each key used once."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.number = stream, _APART

    def uniforms(self, purpose: int, *shape: int) -> Tensor:
        self.number += 1
        count = int(torch.tensor(shape).prod())
        return self.stream.uniforms(self.number, purpose, 1, count).reshape(shape)


class _KnownStates:
    """Evaluated states and their rewards: no state is evaluated twice, and never more than the calls allow."""

    def __init__(self, reward: CountedFunction, calls: int) -> None:
        self.reward, self.calls = reward, calls
        self.rows: dict[bytes, int] = {}
        self.x: Tokens | None = None  # [capacity, D], doubled when full
        self.values: list[float] = []

    def __len__(self) -> int:
        return len(self.values)

    def left(self) -> int:
        return self.calls - len(self)

    def new(self, x: Tokens) -> list[int]:
        """Row numbers of x [B, D] not evaluated yet, without duplicates, as many as calls are left for."""
        first = {key: row for row, key in reversed(list(enumerate(_keys(x)))) if key not in self.rows}
        return sorted(first.values())[: self.left()]

    def ask(self, x: Tokens) -> list[float | None]:
        """The rewards of states [B, D]; None for states that no call was left for."""
        rows = self.new(x)
        if rows:
            self._add(x[torch.tensor(rows, device=x.device)])
        found = [self.rows.get(key) for key in _keys(x)]
        return [None if row is None else self.values[row] for row in found]

    def _add(self, x: Tokens) -> None:
        before, values = len(self), call_reward(self.reward, x).tolist()
        self.rows |= {key: row for row, key in enumerate(_keys(x), start=before)}
        self.values += values
        if self.x is None or len(self.x) < len(self):
            wider = x.new_empty(2 * len(self), x.shape[-1])
            wider[:before] = wider[:0] if self.x is None else self.x[:before]
            self.x = wider
        self.x[before : len(self)] = x

    def best(self, count: int, least: float | None = None) -> Tokens:
        """The best states with at least this reward, best first; by default all allowed ones, or one if none is."""
        value, order = torch.tensor(self.values, dtype=torch.float64).topk(min(count, len(self)))
        enough = value.isfinite() if least is None else value >= least
        return self.x[order[: max(int(enough.sum()), 1)].to(self.x.device)] if self.x is not None else torch.empty(0)

    def parents(self, count: int, kappa: float) -> Tokens:
        """States within a share kappa of the best, repeated or cut to `count`."""
        top = max(self.values)
        near = self.best(count, top - abs(top) * kappa if top > NEG_INF else top)
        return near[torch.arange(count, device=near.device) % len(near)]


def _keys(x: Tokens) -> list[bytes]:
    return [row.tobytes() for row in x.cpu().numpy()]


def _recombined(parents: Tokens, rate: float, chance: _Chance) -> Tokens:
    """Children of random pairs, which switch from one parent to the other at sites drawn with this rate."""
    count, length = parents.shape
    mixed = parents[chance.uniforms(CHOOSE, count).argsort()]
    half = count // 2
    one, other = mixed[:half], mixed[half : 2 * half]
    over = (chance.uniforms(OUTPUT, half, length) < rate).cumsum(-1) % 2 == 1
    return torch.cat([torch.where(over, other, one), torch.where(over, one, other), mixed[2 * half :]])


def _rollouts(roots: Tokens, known: _KnownStates, rate: float, vocabulary: int, chance: _Chance) -> None:
    """From each root mutate repeatedly, as long as the mutant is no worse than the root."""
    values = known.ask(roots)
    nodes = [(x, value) for x, value in zip(roots, values, strict=True) if value is not None]
    while nodes and known.left():
        children, floor = _mutants(nodes, known, rate, vocabulary, chance)
        if not floor:
            return
        found = known.ask(children)
        kept = zip(children, floor, found, strict=True)
        nodes = [(x, least) for x, least, value in kept if value is not None and value >= least]


def _mutants(
    nodes: list[tuple[Tensor, float]], known: _KnownStates, rate: float, vocabulary: int, chance: _Chance
) -> tuple[Tokens, list[float]]:
    """An unseen mutant of each node, if one is found in a few attempts, and the reward it must reach."""
    children: list[Tensor] = []
    floor: list[float] = []
    for _ in range(_TRIES):
        x = torch.stack([state for state, _ in nodes])
        u = chance.uniforms(DRAW, 2, *x.shape)
        y = torch.where(u[0] < rate, (u[1] * vocabulary).long().clamp(max=vocabulary - 1), x)
        fresh = set(known.new(torch.cat([torch.stack(children), y]) if children else y))
        rows = [row for row in range(len(y)) if row + len(children) in fresh]
        again = [node for row, node in enumerate(nodes) if row not in set(rows)]
        children, floor = children + [y[row] for row in rows], floor + [nodes[row][1] for row in rows]
        if not again or len(children) >= known.left():
            break
        nodes = again
    return torch.stack(children) if children else torch.stack([state for state, _ in nodes])[:0], floor
