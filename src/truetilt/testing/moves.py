"""Checks of a Markov kernel: its law is invariant, by propagating the mass of every state exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import whole_number
from ..core.bases import FeynmanKac, MoveKernel, lists_choices, made_from
from ..core.errors import InvalidInput
from ..core.target import NO_WEIGHTS, Target
from ..core.types import NEG_INF, Aux, Model, Particles, Process, Tokens
from ..diffusion.grids import masked_fraction_grid
from ..exact.flow import push, push_branches, support
from ..exact.tables import Table, flat_index
from ..targets.on_clock import Clockwork
from .forms import check_move_form, check_tensor
from .tables import MASKING, ExactLaw, built, clean, law_of, problems, tv, uniforms
from .verdicts import common, require, used, z_limit, z_scores

REPLICATES = 5000
SAME = 1e-9  # of numbers that are equal but for rounding
LENGTH = 3  # sites


def check_move(
    make: Callable[[Model], MoveKernel],
    exact: ExactLaw,
    along: Callable[[Model], FeynmanKac] | None = None,
    process: Process = MASKING,
    *,
    table: Table | None = None,
) -> None:
    """Reject a Markov kernel that does not leave a law of clean states invariant, on small tables of three sites: one
    without zeros, and one whose p0 has zeros.

    The mass of all states is propagated by the exact law of each move, for 5,000 draws of the kernel's random choices
    and for as many moves in a row as there are sites. A kernel without random choices (a systematic scan) must
    reproduce the law to 1e-12; any other on average, by a z-test of the states that hold at least 1 % of the mass, with
    one false alarm in $10^8$ checks. A move has no weight, has an acceptance probability, of states that p0 forbids too
    (several sites revealed in one step reach them), and has a `target`. Where the kernel is made from a value `fk` with
    a tilt, its moves return that tilt of a state as `log_tilt`. If it has `branches`, their probabilities sum to 1 and
    do what its moves do. Moves between the steps of a time grid: `check_target(make, exact, moves=...)`.

    Parameters:
        make: builds the kernel on a `tt.Model`.
        exact: the law on clean states, from the `tt.Table` behind the model: `lambda table: table.target(2.0)`.
        along: builds a Feynman-Kac model whose flow has no time error (any-order): moves must leave each of its
            intermediate laws invariant too, and return its auxiliary values for a state.
        process: the noising process of the tables.
        table: a small problem of one's own, checked in place of the two; its process counts.
    """
    for problem in problems(process, LENGTH, table):
        kernel = built("make", make, problem.model(), MoveKernel, "moves, such as tt.Gibbs")
        _check_said(kernel)
        law, size = law_of(exact, problem), problem.process.states
        with used("what along returned"):
            on_the_way = [] if along is None else list(_flowing(along, problem, law))
        noised = torch.zeros((size,) * problem.length, dtype=torch.float64)
        noised[(slice(0, problem.process.vocabulary),) * problem.length] = law
        _check_form(kernel, problem)
        laws = [(0.0, noised.reshape(-1).log(), Aux()), *on_the_way]
        limit = z_limit(problem.length * len(laws) * noised.numel())
        for t, log_law, aux in laws:
            for number in range(problem.length):
                _check_invariant(kernel, problem, (t, number), log_law, aux, limit)
        with used("`branches` of the kernel"):
            _check_branches(kernel, problem, noised.reshape(-1))


def _check_said(kernel: MoveKernel) -> None:
    """What a kernel says of itself: the number of its choices, and its target."""
    with used("`choices` of the kernel"):
        whole_number("the number of choices of the kernel", kernel.choices, 0)
    with used("what the kernel says of itself"):
        target = kernel.spec
    require(isinstance(target, Target), f"`target` of {type(kernel).__name__} is {target!r}; return that of its fk")


def _check_invariant(
    kernel: MoveKernel, problem: Table, at: tuple[float, int], log_law: Tensor, aux: Aux, limit: float
) -> None:
    """A move leaves a law alone, and returns what the run remembers of each state."""
    with used("the kernel or its move"):
        found = moved(kernel, problem, at, log_law, aux)
    z = _scores(found, log_law.exp())
    gap = float((found.mean(0) - log_law.exp()).abs().max())
    require(
        z.abs().max() < limit,
        f"move {at[1]} at t = {at[0]:g} does not leave its law alone: the mass of a state is off by {gap:.1e}, "
        f"{float(z.abs().max()):.1f} standard errors ({limit:.1f} are allowed)",
    )


def _check_form(kernel: MoveKernel, problem: Table) -> None:
    """A move of all clean states, those that p0 forbids too, has the parts of a `Redraw`, each of its right form."""
    x = problem.states[(problem.states < problem.process.vocabulary).all(-1)]
    u = uniforms(6, len(x), kernel.choices or 1)[:, : kernel.choices]
    for number in range(problem.length):
        with used("`move` of the kernel"):
            move = kernel.move(Particles(x, torch.zeros(len(x), dtype=torch.float64), Aux()), 0.0, number, u)
            accept = getattr(move, "log_accept", None)
        y, aux = check_move_form("the kernel's move", move, (len(x), problem.length), problem.process)
        check_tensor("`log_accept` of the kernel's move", accept, (len(x),))
        _check_accepted(cast("Tensor", accept))
        _check_tilt(kernel, y, aux)


def _check_accepted(log_accept: Tensor) -> None:
    """Acceptance probabilities are numbers, at most 1."""
    require(
        not log_accept.isnan().any(),
        f"log_accept is NaN for {int(log_accept.isnan().sum())} of {log_accept.numel()} states; where p0 forbids the "
        "particle itself, -inf + inf is NaN: return 0 there, and it is accepted",
    )
    require((log_accept <= 0).all(), "log_accept is above 0: no probability has such a log")


def _check_tilt(kernel: MoveKernel, y: Tokens, aux: Aux) -> None:
    """What a move on a time grid returns for a state is its tilt, which the weight of the particle holds."""
    fk = made_from(kernel)
    if not isinstance(fk, Clockwork) or fk.tilt is None:
        return
    if "log_tilt" not in aux:
        ends_only = (kernel.spec or NO_WEIGHTS).ends_only
        require(
            ends_only,
            f"the kernel's move returns {sorted(aux) or 'nothing'} for its particles and no log_tilt, without which no "
            "step can follow; give AcceptMove {'log_tilt': fk.tilt(x, t)} and {'log_tilt': fk.tilt(y, t)}, or let "
            "`target` return fk.target.at_end_only()",
        )
        return
    with used("`tilt` of the kernel's fk"):
        known = fk.tilt(y, 0.0)
    gap = torch.where(aux["log_tilt"] == known, 0.0, (aux["log_tilt"] - known).abs()).max()
    require(
        gap < SAME,
        f"the log_tilt that a move returns for a state is off fk.tilt(y, t) by {float(gap):.1e}: the state that it "
        "goes to has a tilt of its own, and its weight would be that of another",
    )


def _check_branches(kernel: MoveKernel, problem: Table, law: Tensor) -> None:
    """The listed choices of a kernel have probabilities that sum to 1, and do what its moves do to a law at hand."""
    if not lists_choices(kernel):
        return
    alive = law > 0  # any law on these states: this one leans towards the last of them
    log_law = torch.where(alive, 0.02 * torch.arange(len(law), dtype=torch.float64), NEG_INF).log_softmax(0)
    here = Particles(problem.states[alive], log_law[alive], Aux())
    for number in range(problem.length if kernel.choices == 0 else 1):
        branches = kernel.branches(here, 0.0, number)
        off = float((torch.stack([log_p for log_p, _ in branches]).logsumexp(0).exp() - 1).abs().max())
        require(off < SAME, f"the probabilities of `branches` are off 1 by {off:.1e} in sum")
        listed, _ = push_branches(branches, here.log_w, problem.states, problem.process.states)
        found = moved(kernel, problem, (0.0, number), log_law, Aux())
        z, limit = _scores(found, listed.exp()), z_limit(problem.length * len(law))
        gap = float((found.mean(0) - listed.exp()).abs().max())
        require(
            z.abs().max() < limit, f"`branches` do not do what `move` does: the mass of a state differs by {gap:.1e}"
        )


def _scores(found: Tensor, law: Tensor) -> Tensor:
    """z-scores of all states if the replicates are equal, else of the states that hold enough mass."""
    stray = int((found[:, law == 0] > 0).any(0).sum())
    require(stray == 0, f"a move reaches {stray} states that its law does not hold")
    still = (found - found[:1]).abs().max() <= 1e-14
    return z_scores(found, law) if still else z_scores(*common(found, law))


def moved(kernel: MoveKernel, problem: Table, at: tuple[float, int], log_law: Tensor, aux: Aux) -> Tensor:
    """Mass of every state [replicates, K] after a move of all states, each replicate with random choices of its own."""
    alive = (log_law > NEG_INF).nonzero().squeeze(-1)
    count = REPLICATES if kernel.choices else 1
    every = alive.repeat(count)
    particles = Particles(problem.states[every], log_law[every], {k: v[every] for k, v in aux.items()})
    move = kernel.move(particles, *at, uniforms(6 + at[1], len(every), kernel.choices or 1)[:, : kernel.choices])
    y, log_q = support(move.law, problem.states, len(every))
    m = log_q.shape[1]
    parent = torch.arange(len(every)).repeat_interleave(m)
    log_after, memory = move.take(parent).after(y.flatten(0, 1))
    possible, place = (log_q > NEG_INF).reshape(-1), flat_index(y, problem.process.states).reshape(-1)
    weightless = (move.log_before == 0).all() and (log_after[possible] == 0).all()
    require(weightless, "a move changes weights; a Markov kernel that leaves its law alone has none")
    _check_accepted(move.log_accept)
    for key, known in aux.items():
        gaps = (memory[key] - known[place])[possible].abs() if key in memory else torch.tensor([torch.inf])
        off = gaps.max() if gaps.numel() else 0.0  # without conditions there are no ratios to compare
        require(off < 1e-9, f"a move remembers another {key} of a state than the run does: off by {float(off):.1e}")
    mass = torch.zeros(count, len(log_law), dtype=torch.float64)
    share = torch.where(possible, (particles.log_w[parent] + log_q.reshape(-1)).exp(), 0.0)
    mass = mass.index_put((parent // len(alive), place), share, accumulate=True)
    off = (mass.sum(1) - 1).abs().max()
    require(off < 1e-9, f"the probabilities of where a move ends are off 1 by {float(off):.1e} in sum")
    return mass if count > 1 else _still(mass)


def _still(mass: Tensor) -> Tensor:
    """One replicate repeated, so that a standard deviation exists."""
    return mass.expand(2, -1)


def _flowing(along: object, problem: Table, exact: Tensor) -> Iterator[tuple[float, Tensor, Aux]]:
    """For each time of a grid that reveals one site per step: the law of the model, and its auxiliary values."""
    fk = built("along", along, problem.model(), FeynmanKac, "a value, such as tt.AnyOrder(model, alpha)")
    grid, size = masked_fraction_grid(problem.process.schedule, problem.length), problem.process.states
    first = fk.start((1,), grid[0])
    log_mass, aux = push(first, torch.zeros(1, dtype=torch.float64), problem.states, size)
    out = []
    for t, s in pairwise(grid):
        alive = (log_mass > NEG_INF).nonzero().squeeze(-1)
        here = Particles(problem.states[alive], log_mass[alive], {k: v[alive] for k, v in aux.items()})
        log_mass, aux = push_branches(fk.branches(here, t, s), here.log_w, problem.states, size)
        out.append((s, log_mass.log_softmax(0), aux))
    missed = tv(clean(out[-1][1].exp(), problem), exact)
    if missed > SAME:
        raise InvalidInput(
            f"along, a {type(fk).__name__}, ends {missed:.1e} (TV) from the exact law: it has time error, or another "
            "target, and laws on its way are none that a move could leave alone; give an any-order value of the same "
            "target. Moves between the steps of a time grid: check_target(make, exact, moves=...)"
        )
    yield from out
