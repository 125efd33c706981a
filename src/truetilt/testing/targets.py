"""Checks of a target: the limit of its moves, the mean of its weights, reproducible bits, and NaN detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import function, number, shown, whole_number
from ..core.bases import FeynmanKac
from ..core.errors import InvalidWeights
from ..core.logits import SiteLogits
from ..core.target import Target
from ..core.types import Model, Particles, Process, Resampler, Tokens
from ..diffusion.grids import uniform_grid
from ..exact.flow import Limit, flow
from ..exact.tables import Table, flat_index
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import Source, Stream, last_of, run_steps
from .forms import check_move_form, check_tensor
from .tables import (
    LEAST_FALL,
    MASKING,
    STEPS,
    ExactLaw,
    built,
    check_halving,
    check_time_error,
    law_of,
    limits,
    problems,
    uniforms,
)
from .verdicts import common, require, used, z_limit, z_scores

MakeTarget = Callable[[Model], FeynmanKac]
POPULATIONS, PARTICLES, FEW = 20_000, 4, 6
SAME_LOG_Z = 1e-3  # of a change of log Z by moves that is not noticed
OFTEN: Resampler = adaptive(systematic, 0.9)


def check_target(
    make: MakeTarget,
    exact: ExactLaw,
    process: Process = MASKING,
    *,
    table: Table | None = None,
    log_z: Callable[[Table], object] | None = None,
    moves: Rejuvenation | None = None,
) -> None:
    """Reject a Feynman-Kac model whose weighted particles do not have a given law as limit, on small tables of two
    sites: one without zeros, and one whose p0 has zeros.

    The error of its exact limit (`tt.flow`) halves as steps double, or is zero at any number of steps; an error below
    about 1e-3 in total variation is not noticed. The sampler's mean mass at each state is the flow's, by a z-test of
    20,000 populations of 4 particles, with one false alarm in $10^8$ checks. Neither chunks nor other populations
    change a bit. A score or potential of the model that returns NaN raises `InvalidWeights`: for this `make` is called
    again, on models whose scores and potential are plain functions. `target` names the target.

    Parameters:
        make: builds the Feynman-Kac model on a `tt.Model`.
        exact: the law on clean states, from the `tt.Table` behind the model, up to a constant: `lambda table:
            table.target(2.0)`.
        process: the noising process of the tables.
        table: a small problem of one's own, checked in place of the two; its process counts.
        log_z: the log of the normalising constant that the model estimates, from the table: `lambda table:
            table.log_z_tilted(2.0)`. Without it log Z is not checked, and a constant in a potential not noticed.
        moves: moves between the steps, `tt.Rejuvenation(kernel, each_step=1)`, whose kernel has `branches`: the limit
            with them must approach the same law, and the same log Z.
    """
    for place, problem in enumerate(problems(process, 2, table)):
        fk = built("make", make, problem.model(), FeynmanKac, "a Feynman-Kac value")
        law = law_of(exact, problem)
        if place == 0:
            _check_named(fk)
            _check_form(fk, problem)
        with used("the value that make built"):
            plain = limits(fk, problem)
            check_time_error(plain, law, problem)
            _check_log_z(plain, problem, log_z)
            _check_mass(fk, problem)
        if moves is not None:
            _check_moves(fk, moves, plain, law, problem)
        if place == 0:
            with used("the value that make built"):
                _check_bits(fk)
                _check_nan(make, problem)


def _check_named(fk: FeynmanKac) -> None:
    with used("what the value says of itself"):
        target = fk.spec
    require(
        isinstance(target, Target),
        f"`target` of {type(fk).__name__} is {target!r}; return a tt.Target of named parts, so that moves for another "
        "target can be refused",
    )


def _check_log_z(found: list[Limit], problem: Table, log_z: Callable[[Table], object] | None, what: str = "") -> None:
    """Check that log Z of the limits approaches the known one."""
    if log_z is None:
        return
    function("log_z", log_z, "(table)", "that returns the log of the normalising constant")
    with used("log_z"):
        known = number("what log_z returned", log_z(problem), "return one number")
    errors = [abs(float(limit.log_z) - known) for limit in found]
    check_halving(errors, f"log Z{what} is off log_z, {known:.6g}, by {{}} at {{}} steps", "exact")


def _check_moves(fk: FeynmanKac, moves: Rejuvenation, plain: list[Limit], law: Tensor, problem: Table) -> None:
    """Check that moves between the steps change neither the law nor log Z in the limit of small steps."""
    with used("moves, or what they do,"):
        moved = limits(fk, problem, moves)
    check_time_error(moved, law, problem, "the limit with moves")
    gaps = [abs(float(one.log_z - other.log_z)) for one, other in zip(moved, plain, strict=True)]
    require(
        gaps[-1] <= LEAST_FALL * gaps[0] or max(gaps) < SAME_LOG_Z,
        f"moves change log Z by {', '.join(f'{gap:.1e}' for gap in gaps)} at {', '.join(map(str, STEPS))} steps, which "
        "must vanish: they leave another law alone than that of their time, what they return for the particles "
        "(log_tilt) is not that of the state, or the probabilities of `branches` do not sum to 1",
    )


def _check_form(fk: FeynmanKac, problem: Table) -> None:
    """The first move, a later one and the listed choices have the parts of a `Move`, of the right shape and dtype."""
    shape = (5, problem.length)
    with used("`start`"):
        first = fk.start(shape[:1], 1.0)
    x, aux = check_move_form("the move that `start` returned", first, shape, problem.process)
    particles = Particles(x, torch.zeros(5, dtype=torch.float64), aux)
    with used("`choices`"):
        count = whole_number("what choices returned", fk.choices(1.0, 0.5), 0)
    with used("`move`"):
        move = fk.move(particles, 1.0, 0.5, uniforms(6, 5, count or 1)[:, :count])
    check_move_form("the move that `move` returned", move, shape, problem.process)
    with used("`branches`"):
        branches = list(fk.branches(particles, 1.0, 0.5))
    pairs = bool(branches) and all(isinstance(one, tuple) and len(one) == 2 for one in branches)
    require(pairs, f"`branches` returned {shown(branches)}; it must return pairs of log-probabilities and a move")
    for log_p, branch in branches:
        check_tensor("the log-probabilities of a branch", log_p, shape[:1])
        check_move_form("the move of a branch", branch, shape, problem.process)


def ran(
    fk: FeynmanKac, shape: tuple[int, int], steps: int, resample: Resampler, chunk: int | None = None, first: int = 0
) -> Particles:
    """The particles at the end of a run over a uniform grid; `first` is the number of its first population."""
    source = Source(Stream(1, first), chunk=chunk)
    return last_of(run_steps(fk, uniform_grid(steps), shape, resample, source))


def masses(particles: Particles, size: int) -> Tensor:
    """The mean weight of each population at every state [populations, size^D]."""
    (populations, n), length = particles.log_w.shape, particles.x.shape[-1]
    mass = torch.zeros(populations, size**length, dtype=torch.float64)
    return mass.scatter_add(1, flat_index(particles.x, size), particles.log_w.exp() / n)


def _check_mass(fk: FeynmanKac, problem: Table) -> None:
    found = masses(ran(fk, (POPULATIONS, PARTICLES), FEW, OFTEN), problem.process.states)
    exact = flow(fk, uniform_grid(FEW), problem.process.states, problem.length).log_mass.exp()
    stray = int((found[:, exact == 0] > 0).any(0).sum())
    require(stray == 0, f"the sampler reaches {stray} states that have no mass in the limit of its moves")
    z = z_scores(*common(found, exact))
    limit = z_limit(len(z))
    require(
        z.abs().max() < limit,
        f"the sampler's mean mass at a state is {float(z.abs().max()):.1f} standard errors from that of the flow "
        f"({limit:.1f} are allowed): what a move draws or weighs is not what its law and `after` say of every state",
    )


def _check_bits(fk: FeynmanKac) -> None:
    """Check that chunks and other populations change no bit; 37 particles fill no vector register."""
    together = ran(fk, (2, 37), FEW, OFTEN)
    for chunk in (1, 5):
        again = ran(fk, (2, 37), FEW, OFTEN, chunk)
        same = torch.equal(together.x, again.x) and torch.equal(together.log_w, again.log_w)
        require(same, f"chunks of {chunk} change the result")
    alone = ran(fk, (1, 37), FEW, OFTEN, first=1)
    same = torch.equal(together.x[1:], alone.x) and torch.equal(together.log_w[1:], alone.log_w)
    require(same, "a population comes out otherwise beside another than alone")


def _check_nan(make: MakeTarget, problem: Table) -> None:
    """Check that NaN from a network of the model raises InvalidWeights."""
    model, asked = problem.model(), list[str]()

    def broken_score(name: str) -> Callable[[Tokens, float], SiteLogits]:
        def score(x: Tokens, t: float) -> SiteLogits:
            asked.append(name)
            return SiteLogits.of(torch.full((*x.shape, model.process.vocabulary), torch.nan, dtype=torch.float64))

        return score

    def broken_potential(x: Tokens, t: float) -> Tensor:
        asked.append("potential")
        return torch.full(x.shape[:-1], torch.nan, dtype=torch.float64)

    broken: dict[str, Any] = {name: broken_score(name) for name in ("base", "conditional")}
    for name, part in (broken | {"potential": broken_potential}).items():
        try:
            with used(f"make, on a model whose {name} is a plain function that returns NaN,"):
                fk = make(replace(model, **{name: part}))
            ran(fk, (1, 8), 4, OFTEN)
        except InvalidWeights:
            continue
        require(
            name not in asked,
            f"the model's {name} answered NaN and the run went on; check what a network answers (as `OnClock.law` "
            "does) and raise InvalidWeights",
        )
