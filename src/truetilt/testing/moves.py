"""Checks of a Markov kernel: its law is invariant, by propagating the mass of every state exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from ..core.arguments import whole
from ..core.target import Target, contract_of
from ..core.types import NEG_INF, Aux, FeynmanKac, ListedFeynmanKac, Model, MoveKernel, Particles, Process
from ..diffusion.grids import masked_fraction_grid
from ..exact.flow import push, push_branches, support
from ..exact.tables import Table, flat_index
from .forms import check_move_form, check_tensor
from .tables import MASKING, ExactLaw, built, law_of, small_table, uniforms
from .verdicts import common, require, used, z_limit, z_scores

REPLICATES = 5000
LENGTH = 3  # sites


def check_move(
    make: Callable[[Model], MoveKernel],
    exact: ExactLaw,
    along: Callable[[Model], FeynmanKac] | None = None,
    process: Process = MASKING,
) -> None:
    """Reject a Markov kernel that does not leave a law of clean states invariant, on a small table of three sites.

    The mass of all states is propagated by the exact law of each move, for 5,000 draws of the kernel's random choices
    and for as many moves in a row as there are sites. A kernel without random choices (a systematic scan) must
    reproduce the law to 1e-12; any other on average, by a z-test of the states that hold at least 1 % of the mass, with
    one false alarm in $10^8$ checks. A move has no weight, has an acceptance probability, and has a `target`.

    Parameters:
        make: builds the kernel on a `tt.Model`.
        exact: the law on clean states, from the `tt.Table` behind the model: `lambda table: table.target(2.0)`.
        along: builds a Feynman-Kac model whose flow has no time error (any-order): moves must leave each of its
            intermediate laws invariant too, and return its auxiliary values for a state.
        process: the noising process of the table.
    """
    problem = small_table(process, LENGTH)
    kernel = built("make", make, problem.model(), ("move", "choices"), "moves, such as tt.Gibbs")
    whole("the number of choices of the kernel", kernel.choices, 0)
    with used("what the kernel says of itself"):
        target = contract_of(kernel).target
    require(isinstance(target, Target), f"`target` of {type(kernel).__name__} is {target!r}; return that of its fk")
    with used("what along returned"):
        on_the_way = [] if along is None else list(_flowing(along, problem))
    law = torch.zeros((problem.process.states,) * LENGTH, dtype=torch.float64)
    law[(slice(0, problem.process.vocabulary),) * LENGTH] = law_of(exact, problem)
    _check_form(kernel, problem)
    for t, log_law, aux in [(0.0, law.reshape(-1).log(), Aux()), *on_the_way]:
        for number in range(LENGTH):
            with used("the kernel or its move"):
                found = moved(kernel, problem, (t, number), log_law, aux)
            z = _scores(found, log_law.exp())
            limit = z_limit(LENGTH * (1 + len(on_the_way)) * len(log_law))
            gap = float((found.mean(0) - log_law.exp()).abs().max())
            require(
                z.abs().max() < limit,
                f"move {number} at t = {t:g} does not leave its law alone: the mass of a state is off by {gap:.1e}, "
                f"{float(z.abs().max()):.1f} standard errors ({limit:.1f} are allowed)",
            )


def _check_form(kernel: MoveKernel, problem: Table) -> None:
    """A move of a few clean states has the parts of a `Redraw`, each of the right shape and dtype."""
    x = problem.states[(problem.states < problem.process.vocabulary).all(-1)][:5]
    u = uniforms(6, len(x), kernel.choices or 1)[:, : kernel.choices]
    with used("`move` of the kernel"):
        move = kernel.move(Particles(x, torch.zeros(len(x), dtype=torch.float64), Aux()), 0.0, 0, u)
        accept = getattr(move, "log_accept", None)
    check_move_form("the kernel's move", move, (len(x), LENGTH), problem.process)
    check_tensor("`log_accept` of the kernel's move", accept, (len(x),))


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
    require((move.log_accept <= 0).all(), "log_accept is above 0: no probability has such a log")
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


def _flowing(along: object, problem: Table) -> Iterator[tuple[float, Tensor, Aux]]:
    """For each time of a grid that reveals one site per step: the law of the model, and its auxiliary values."""
    fk: ListedFeynmanKac = built(
        "along", along, problem.model(), ("start", "branches"), "a value, such as tt.AnyOrder(model, alpha)"
    )
    grid, size = masked_fraction_grid(problem.process.schedule, LENGTH), problem.process.states
    first = fk.start((1,), grid[0])
    log_mass, aux = push(first, torch.zeros(1, dtype=torch.float64), problem.states, size)
    for t, s in pairwise(grid):
        alive = (log_mass > NEG_INF).nonzero().squeeze(-1)
        here = Particles(problem.states[alive], log_mass[alive], {k: v[alive] for k, v in aux.items()})
        log_mass, aux = push_branches(fk.branches(here, t, s), here.log_w, problem.states, size)
        yield s, log_mass.log_softmax(0), aux
