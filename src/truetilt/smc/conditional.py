"""Conditional SMC: a move on whole paths that leaves the path law of any Feynman-Kac value invariant, at any N >= 2.

One slot (0) holds a reference path and keeps its states and choices; the others are run as in `sampler`, and compete
with it (Andrieu, Doucet & Holenstein 2010). Resampling is multinomial, where the effective sample size is low: given
that the reference survives, the other slots are still independent draws, which holds of no other scheme here. A path
drawn from the final weights is the next reference. Choices (which site to reveal) come before the weight, so they are
part of the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..types import (
    NEG_INF,
    Aux,
    DegenerateWeights,
    FeynmanKac,
    InvalidInput,
    LogWeights,
    Move,
    Particles,
    Resampled,
    State,
    take,
)
from .resampling import adaptive, multinomial
from .stream import CHOOSE, DRAW, OUTPUT, RESAMPLE, Stream
from .weights import check_weights, effective_sample_size, log_mean_exp

_ROUNDING = 1e-9  # two memories of one state differ by no more than this


@dataclass(frozen=True)
class Trajectory:
    """One path a chain: its state at every time of the grid, and the uniforms that made each step's choice."""

    states: State  # [steps + 1, chains, ...]
    choices: tuple[Tensor, ...]  # one a step, float64 [chains, width]; the width may differ from step to step
    aux: Aux = field(default_factory=dict)  # [steps + 1, chains, ...]; follows from the rest, and is never read back

    @property
    def end(self) -> State:
        """The final state of each chain [chains, ...]."""
        return self.states[-1]


class Generation(NamedTuple):
    """The population after a step, and what it takes to trace a path back through it."""

    particles: Particles
    ancestors: Tensor  # int64 [chains, N]
    choices: Tensor  # float64 [chains, N, width], of the ancestor


class Lineage(Protocol):
    """The reference's ancestor [chains, 1] at a resampling, for its next state y [chains, ...]; u is [chains, 1]."""

    def __call__(self, move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor: ...


def keep_lineage(move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor:
    """The reference descends from itself."""
    return torch.zeros_like(u, dtype=torch.int64)


def ancestor_sampling(move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor:
    """Draw whom the rest of the reference descends from, by weight times the density of its next state.

    Lindsten, Jordan & Schön (2014). Only an ancestor that leaves the model the same memory counts, because later
    weights read it. The law of every particle is needed before resampling: in clock time, twice the evaluations.
    """
    everyone = y.unsqueeze(1).expand(*log_w.shape, *y.shape[1:])
    log_q = move.law.log_prob(everyone)
    possible = log_q > NEG_INF
    stand_in = move.law.sample(torch.zeros(*log_w.shape, move.uniforms, dtype=u.dtype, device=u.device))
    aligned = possible.reshape(possible.shape + (1,) * (y.dim() - 1))
    log_after, aux = move.after(torch.where(aligned, everyone, stand_in))
    for memory in aux.values():
        near = torch.isclose(memory.double(), memory[:, :1].double(), rtol=_ROUNDING, atol=_ROUNDING)
        possible = possible & near.reshape(*log_w.shape, -1).all(-1)
    return multinomial(torch.where(possible, log_w + log_q + log_after, NEG_INF), u).ancestors[:, :1]


@dataclass(frozen=True)
class Rule:
    """Resample the chains whose effective sample size is below threshold times N; whom the reference then follows."""

    threshold: float = 0.5
    lineage: Lineage = keep_lineage

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise InvalidInput(f"the ESS threshold is {self.threshold}; give a fraction of the particles in [0, 1]")


USUAL, NO_RESAMPLING = Rule(), Rule(threshold=0.0)


def conditional_smc(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None,
    shape: tuple[int, int],
    at: tuple[Stream, int],
    rule: Rule = USUAL,
) -> Trajectory:
    """One sweep: a new path for each chain, given its reference; without one, a path drawn by plain SMC.

    `shape` is (chains, particles), `at` the stream and the sweep's number: a number for each sweep, or uniforms repeat.
    Every particle of every step is held until the sweep ends: (steps + 1) x chains x particles x (state + choices +
    memory + 2) words of 8 bytes. Run the chains in parts (`Stream.first_population`) to hold less.
    """
    check_shape(shape)
    if reference is not None:
        check_reference(fk, grid, reference, shape[0])
    history = list(generations(fk, grid, reference, shape, at, rule))
    log_w = history[-1].particles.log_w
    dead = int((log_mean_exp(log_w) == NEG_INF).sum())
    if dead and reference is None:
        raise DegenerateWeights(
            f"{dead} of {shape[0]} chains ended with no path of positive weight; start with more than {shape[1]} "
            "particles a chain, or give a reference"
        )
    stream, sweep = at
    return trace_back(history, multinomial(log_w, stream.uniforms(sweep * len(grid), OUTPUT, shape[0], (0, 1))))


def generations(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None,
    shape: tuple[int, int],
    at: tuple[Stream, int],
    rule: Rule = USUAL,
) -> Iterator[Generation]:
    """The population after the first draw and after every step, its slot 0 held to the reference."""
    stream, number = at[0], at[1] * len(grid)
    weightless = torch.zeros(shape, dtype=torch.float64, device=stream.device)
    kept = None if reference is None else reference.states[0]
    now = advance(
        fk.start(shape, grid[0]), (weightless, weightless[..., None][..., :0]), kept, NO_RESAMPLING, (stream, number)
    )
    yield now
    for step, (t, s) in enumerate(pairwise(grid), start=1):
        u = _uniforms((stream, number + step), CHOOSE, shape, fk.choices(t, s))
        if reference is not None:
            kept, u = reference.states[step], _held(u, reference.choices[step - 1])
        move = fk.move(now.particles, t, s, u)
        now = advance(move, (now.particles.log_w, u), kept, rule, (stream, number + step))
        yield now


def advance(
    move: Move, before: tuple[LogWeights, Tensor], kept: State | None, rule: Rule, at: tuple[Stream, int]
) -> Generation:
    """Carry out a move as the sampler does, with the reference's next state, if any, in place of slot 0's draw."""
    log_w, choices = before
    where = f"step {at[1]} of the chains, counted over all sweeps"
    log_w = log_w + move.log_before
    check_weights(log_w, where)
    ancestors, log_w = _resample(move, log_w, kept, rule, at)
    move = move.take(ancestors)
    y = move.law.sample(_uniforms(at, DRAW, log_w.shape, move.uniforms))
    if kept is not None:
        y = _held(y, kept)
        _check_possible(move.law.log_prob(y)[:, 0], where)
    log_after, aux = move.after(y)
    log_w = log_w + log_after
    check_weights(log_w, where)
    return Generation(Particles(y, log_w, aux), ancestors, take(choices, ancestors))


def trace_back(history: Sequence[Generation], last: Resampled) -> Trajectory:
    """The path of each chain that ends in the first slot drawn from its last generation."""
    slot, path = last.ancestors[:, :1], []
    for now in reversed(history):
        memory = {key: take(value, slot)[:, 0] for key, value in now.particles.aux.items()}
        path.append((take(now.particles.x, slot)[:, 0], take(now.choices, slot)[:, 0], memory))
        slot = now.ancestors.gather(1, slot)
    states, choices, memories = zip(*reversed(path), strict=True)
    aux = {key: torch.stack([memory[key] for memory in memories]) for key in memories[-1]}
    return Trajectory(torch.stack(states), choices[1:], aux)


def _resample(move: Move, log_w: LogWeights, kept: State | None, rule: Rule, at: tuple[Stream, int]) -> Resampled:
    """Multinomial where the effective sample size is low; there slot 0 follows the rule's lineage, else itself."""
    chains, n = log_w.shape
    u = at[0].uniforms(at[1], RESAMPLE, chains, (0, n))
    drawn = adaptive(multinomial, rule.threshold)(log_w, u)
    low = (effective_sample_size(log_w) < rule.threshold * n)[:, None]
    if kept is None or not low.any():
        return drawn
    first = torch.where(low, rule.lineage(move, log_w, kept, u[:, :1]), 0)
    return Resampled(torch.cat([first, drawn.ancestors[:, 1:]], 1), drawn.log_w)


def _uniforms(at: tuple[Stream, int], purpose: int, shape: Sequence[int], width: int) -> Tensor:
    chains, n = shape
    return at[0].uniforms(at[1], purpose, chains, (0, n * width)).reshape(chains, n, width)


def _held(values: Tensor, kept: Tensor) -> Tensor:
    """The values of every slot [chains, N, ...], with the reference's own [chains, ...] in slot 0."""
    return torch.cat([kept.unsqueeze(1), values[:, 1:]], 1)


def check_shape(shape: tuple[int, int]) -> None:
    """A reference alone cannot move."""
    if shape[0] < 1 or shape[1] < 2:
        raise InvalidInput(
            f"{shape[0]} chains of {shape[1]} particles; need at least 1 chain, and at least 2 particles in it: "
            "the reference and one that can differ"
        )


def check_reference(fk: FeynmanKac, grid: Sequence[float], reference: Trajectory, chains: int) -> None:
    """The reference must fit the grid, the chains and the model's choices."""
    states, widths = reference.states, [fk.choices(t, s) for t, s in pairwise(grid)]
    remedy = "give a path made with this model and grid (reference=None makes one)"
    if len(states) != len(grid) or states.shape[1] != chains:
        raise InvalidInput(
            f"the reference has {len(states)} times of {states.shape[1]} chains, and the run {len(grid)} of {chains}; "
            + remedy
        )
    expected, found = [(chains, width) for width in widths], [tuple(u.shape) for u in reference.choices]
    if found != expected:
        raise InvalidInput(f"the reference's choices have shapes {found}, and the model takes {expected}; {remedy}")
    drawn = fk.start((1, 1), grid[0])
    like = drawn.law.sample(torch.zeros(1, 1, drawn.uniforms, dtype=torch.float64, device=states.device))
    if states.shape[2:] != like.shape[2:] or states.dtype != like.dtype:
        raise InvalidInput(
            f"the reference's states are {states.dtype} {tuple(states.shape[2:])}, and the model's {like.dtype} "
            f"{tuple(like.shape[2:])}; {remedy}"
        )
    u = torch.cat([choice.reshape(-1) for choice in reference.choices])
    if not ((u >= 0) & (u < 1)).all() or (not states.is_floating_point() and (states < 0).any()):
        raise InvalidInput(f"the reference holds choices outside [0, 1) or negative tokens; {remedy}")


def _check_possible(log_q: Tensor, where: str) -> None:
    impossible = int((~(log_q > NEG_INF)).sum())
    if impossible:
        raise InvalidInput(
            f"{where}: the reference of {impossible} of {log_q.numel()} chains makes a step that its model cannot "
            "draw; give a path made with this model and grid (reference=None makes one)"
        )
