"""Conditional SMC: a move on whole paths that leaves the path law of any Feynman-Kac value invariant, at any N >= 2.

Slot 0 of the particles holds the reference path, with its own states and choices; the other slots are run as in
`sampler`. At the end one path is drawn by the final weights: it is the next reference (Andrieu, Doucet & Holenstein
2010). A chain is resampled where the effective sample size of all N weights, the reference's among them, is low.
Resampling is multinomial: of the schemes here only this one leaves the other slots independent draws given that the
reference survives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..core.arguments import function, listed, number, set_fields, shown, whole_number
from ..core.bases import FeynmanKac, check_sampled
from ..core.errors import DegenerateWeights, InvalidInput
from ..core.logits import take
from ..core.types import NEG_INF, LogWeights, Move, Particles, Resampled, State
from .paths import REMEDY, Generation, Trajectory, check_reference, trace_back
from .resampling import adaptive, check_weights, effective_sample_size, log_mean_exp, multinomial
from .sampler import CHOOSE, DRAW, OUTPUT, RESAMPLE, Stream

_ROUNDING = 1e-9  # tolerance, relative and absolute, between two evaluations of one state's memory (aux)


class Lineage(Protocol):
    """The reference's ancestor [chains, 1] at a resampling, for its next state y [chains, ...]; u is [chains, 1]."""

    def __call__(self, move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor: ...


def keep_lineage(move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor:
    """The reference stays its own ancestor.

    Args:
        move: The move of the step; not used.
        log_w: Log-weights of the particles [chains, N]; not used.
        y: The reference's next state [chains, ...]; not used.
        u: A uniform for each chain, [chains, 1]; only its shape is used.
    """
    return torch.zeros_like(u, dtype=torch.int64)


def ancestor_sampling(move: Move, log_w: LogWeights, y: State, u: Tensor) -> Tensor:
    """Draw the reference's ancestor anew, by weight times the weighted density of the reference's next state.

    Lindsten, Jordan & Schön (2014). Only an ancestor that gives the model the same memory is eligible, because later
    weights read that memory. The law of every particle is needed before resampling, which on a time grid doubles the
    network evaluations.

    Args:
        move: The move of the step: the law of every particle and what a draw from it weighs.
        log_w: Log-weights of the particles before the step [chains, N].
        y: The reference's next state [chains, ...].
        u: A uniform for each chain, [chains, 1].
    """
    everyone = y.unsqueeze(1).expand(*log_w.shape, *y.shape[1:])
    log_q = move.law.log_prob(everyone)
    possible = log_q > NEG_INF
    stand_in = move.law.sample(torch.zeros(*log_w.shape, move.uniforms, dtype=u.dtype, device=u.device))
    mask = possible.reshape(possible.shape + (1,) * (y.dim() - 1))
    log_after, aux = move.after(torch.where(mask, everyone, stand_in))  # a move weighs only what it can draw
    for memory in aux.values():
        near = torch.isclose(memory.double(), memory[:, :1].double(), rtol=_ROUNDING, atol=_ROUNDING)
        possible = possible & near.reshape(*log_w.shape, -1).all(-1)
    return multinomial(torch.where(possible, log_w + log_q + log_after, NEG_INF), u).ancestors[:, :1]


@dataclass(frozen=True)
class Rule:
    """When conditional SMC resamples, and which ancestor the reference gets then.

    Args:
        threshold: Resample where the effective sample size is below this fraction of the particles, 0 to 1; 0.5 by
            default.
        lineage: Ancestor of the reference: `tt.keep_lineage` (the default) or `tt.ancestor_sampling`.
    """

    threshold: float = 0.5
    lineage: Lineage = keep_lineage

    def __post_init__(self) -> None:
        set_fields(self, threshold=number("the ESS threshold", self.threshold))
        function("lineage", self.lineage, "(move, log_w, y, u)", "such as tt.keep_lineage or tt.ancestor_sampling")
        if not 0 <= self.threshold <= 1:
            raise InvalidInput(f"the ESS threshold is {self.threshold}; give a fraction of the particles in [0, 1]")


USUAL, NO_RESAMPLING = Rule(), Rule(threshold=0.0)


class Sweep(NamedTuple):
    """Which sweep of a chain this is: the stream of its uniforms and its number; each number is used once."""

    stream: Stream
    number: int


@dataclass(frozen=True)
class Place:
    """A step's position in the run: the key of its uniforms, and the words by which an error names it."""

    stream: Stream
    number: int
    words: str

    def uniforms(self, purpose: int, shape: Sequence[int], width: int) -> Tensor:
        """Uniforms [chains, N, width]."""
        chains, n = shape
        return self.stream.uniforms(self.number, purpose, chains, n * width).reshape(chains, n, width)


def conditional_smc(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None,
    shape: tuple[int, int],
    at: Sweep | tuple[Stream, int],
    rule: Rule = USUAL,
) -> Trajectory:
    """One sweep: a new path for each chain given its reference; without one, a path drawn by plain SMC.

    Each particle of every step is held until the sweep ends, (steps + 1) x chains x particles x (state + choices +
    memory + 2) words of 8 bytes; run the chains in parts (`Stream.first_population`) to hold less.

    Args:
        fk: What to sample: how particles move, and what each move weighs.
        grid: Times that fall strictly from 1 (noise) to 0 (data), such as `tt.uniform_grid(100)`.
        reference: The path of each chain that survives the sweep. None: plain SMC draws the first paths.
        shape: (chains, particles): 1 chain or more, and 2 particles or more in each.
        at: (stream, number): a `tt.Stream` and the number of the sweep, 0 or more. Two sweeps of one number would draw
            the same uniforms.
        rule: When particles are resampled and what becomes of the reference then, a `tt.Rule`; by default where the
            effective sample size is below half, and the reference keeps its lineage.
    """
    return swept(fk, grid, reference, shape, Sweep(*_pair("at", at)), rule)[0]


def swept(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None,
    shape: tuple[int, int],
    at: Sweep,
    rule: Rule = USUAL,
) -> tuple[Trajectory, Particles]:
    """A sweep as `conditional_smc` makes it: the new path of each chain, and all particles that it was drawn from."""
    check_sampled(fk)
    chains, particles = _pair("shape", shape)
    shape, stream = check_chains((chains, particles)), at.stream
    grid = tuple(number("a time of the grid", t) for t in listed("the time grid", grid, "give times from 1 to 0"))
    sweep = whole_number("the number of the sweep", at.number, 0)
    if not isinstance(stream, Stream) or not isinstance(rule, Rule) or not isinstance(reference, Trajectory | None):
        raise InvalidInput(
            f"the stream is {shown(stream)}, the rule {shown(rule)}, the reference {shown(reference)}; give tt.Stream, "
            "tt.Rule, and tt.Trajectory or None"
        )
    if reference is not None:
        check_reference(fk, grid, reference, shape[0])
    history = list(generations(fk, grid, reference, shape, Sweep(stream, sweep), rule))
    log_w = history[-1].particles.log_w
    dead = int((log_mean_exp(log_w) == NEG_INF).sum())
    if dead and reference is None:
        raise DegenerateWeights(
            f"{dead} of {shape[0]} chains ended with no path of positive weight; start with more than {shape[1]} "
            "particles a chain, or give a reference"
        )
    u = stream.uniforms(sweep * len(grid), OUTPUT, shape[0], 1)
    return trace_back(history, multinomial(log_w, u).ancestors[:, :1]), history[-1].particles


def _pair(name: str, value: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InvalidInput(f"{name} is {shown(value)}; give two values: (chains, particles), (stream, sweep)")
    return value


def generations(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None,
    shape: tuple[int, int],
    at: Sweep,
    rule: Rule = USUAL,
) -> Iterator[Generation]:
    """The population after the first draw and after every step; its slot 0 is the reference."""
    stream, sweep = at.stream, at.number
    places = [
        Place(stream, sweep * len(grid) + k, f"sweep {sweep}, step {k} (to t = {t:.6g})") for k, t in enumerate(grid)
    ]
    log_w = torch.zeros(shape, dtype=torch.float64, device=stream.device)
    kept = None if reference is None else reference.states[0]
    no_choices = log_w.new_zeros(*shape, 0)
    now = advance_with_reference(fk.start(shape, grid[0]), log_w, no_choices, kept, NO_RESAMPLING, places[0])
    yield now
    for k, (t, s) in enumerate(pairwise(grid), start=1):
        u = places[k].uniforms(CHOOSE, shape, fk.choices(t, s))
        if reference is not None:
            kept, u = reference.states[k], hold(u, reference.choices[k - 1])
        now = advance_with_reference(fk.move(now.particles, t, s, u), now.particles.log_w, u, kept, rule, places[k])
        yield now


def advance_with_reference(
    move: Move, log_w: LogWeights, choices: Tensor, kept: State | None, rule: Rule, place: Place
) -> Generation:
    """Carry out a move as the sampler does; slot 0 gets the reference's next state in place of its draw, if there is a
    reference.
    """
    log_w = log_w + move.log_before
    check_weights(log_w, place.words)
    ancestors, log_w = resample(move, log_w, kept, rule, place)
    move = move.take(ancestors)
    y = move.law.sample(place.uniforms(DRAW, log_w.shape, move.uniforms))
    if kept is not None:
        y = hold(y, kept)
        check_possible(move.law.log_prob(y)[:, 0], place.words)
    log_after, aux = move.after(y)
    log_w = log_w + log_after
    check_weights(log_w, place.words)
    return Generation(Particles(y, log_w, aux), ancestors, take(choices, ancestors))


def resample(move: Move, log_w: LogWeights, kept: State | None, rule: Rule, place: Place) -> Resampled:
    """Multinomial resampling of the chains whose effective sample size is low; the rule's lineage gives the reference's
    ancestor there.
    """
    u = place.uniforms(RESAMPLE, log_w.shape, 1).squeeze(-1)
    drawn = adaptive(multinomial, rule.threshold)(log_w, u)
    low = (effective_sample_size(log_w) < rule.threshold * log_w.shape[-1])[:, None]
    if kept is None or not low.any():
        return drawn
    first = torch.where(low, rule.lineage(move, log_w, kept, u[:, :1]), 0)
    return Resampled(torch.cat([first, drawn.ancestors[:, 1:]], 1), drawn.log_w)


def hold(values: Tensor, kept: Tensor) -> Tensor:
    """The values of every slot [chains, N, ...] with slot 0 replaced by the reference's [chains, ...]."""
    return torch.cat([kept.unsqueeze(1), values[:, 1:]], 1)


def check_chains(shape: tuple[int, int]) -> tuple[int, int]:
    """Chains and particles as plain whole numbers; at least 2 particles, because a reference alone cannot move."""
    shape = whole_number("the number of chains", shape[0], 0), whole_number("the number of particles", shape[1], 0)
    if shape[0] < 1 or shape[1] < 2:
        raise InvalidInput(
            f"{shape[0]} chains of {shape[1]} particles; need at least 1 chain, and at least 2 particles in it: "
            "the reference and one that may replace it"
        )
    return shape


def check_possible(log_q: Tensor, where: str) -> None:
    """Refuse a reference that takes a step the model cannot draw: its weight would be meaningless."""
    impossible = int((~(log_q > NEG_INF)).sum())
    if impossible:
        raise InvalidInput(
            f"{where}: the reference of {impossible} of {log_q.numel()} chains makes a step the model cannot draw; "
            + REMEDY
        )
