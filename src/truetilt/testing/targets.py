"""Checks of a target: the limit of its moves, the mean of its weights, reproducible bits, and NaN detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from ..core.arguments import shown, whole
from ..core.errors import InvalidWeights
from ..core.logits import SiteLogits
from ..core.target import Target, contract_of
from ..core.types import FeynmanKac, ListedFeynmanKac, Model, Particles, Process, Resampler, Tokens
from ..diffusion.grids import uniform_grid
from ..exact.flow import flow
from ..exact.tables import Table, flat_index
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import Source, Stream, last_of, trace
from .forms import check_move_form, check_tensor
from .tables import MASKING, ExactLaw, built, check_time_error, law_of, small_table, uniforms
from .verdicts import common, require, used, z_limit, z_scores

MakeTarget = Callable[[Model], FeynmanKac]
POPULATIONS, PARTICLES, STEPS = 20_000, 4, 6
OFTEN: Resampler = adaptive(systematic, 0.9)


def check_target(make: MakeTarget, exact: ExactLaw, process: Process = MASKING) -> None:
    """Reject a Feynman-Kac model whose weighted particles do not have a given law as limit, on a small table of two
    sites.

    The error of its exact limit (`tt.flow`) halves as steps double, or is zero at any number of steps; an error below
    about 1e-3 in total variation is not noticed. The sampler's mean mass at each state is the flow's, by a z-test of
    20,000 populations of 4 particles, with one false alarm in $10^8$ checks. Neither chunks nor other populations
    change a bit. A score or potential of the model that returns NaN raises `InvalidWeights`. `target` names the target.

    Parameters:
        make: builds the Feynman-Kac model on a `tt.Model`.
        exact: the law on clean states, from the `tt.Table` behind the model: `lambda table: table.target(2.0)`.
        process: the noising process of the table.
    """
    problem = small_table(process)
    fk = built("make", make, problem.model(), ("start", "choices", "move", "branches"), "a Feynman-Kac value")
    with used("what the value says of itself"):
        target = contract_of(fk).target
    require(
        isinstance(target, Target),
        f"`target` of {type(fk).__name__} is {target!r}; return a tt.Target of named parts, so that moves for another "
        "target can be refused",
    )
    law = law_of(exact, problem)
    _check_form(fk, problem)
    with used("the value that make built"):
        check_time_error(fk, law, problem)
        _check_mass(fk, problem)
        _check_bits(fk)
        _check_nan(make, problem)


def _check_form(fk: FeynmanKac, problem: Table) -> None:
    """The first move, a later one and the listed choices have the parts of a `Move`, of the right shape and dtype."""
    shape = (5, problem.length)
    with used("`start`"):
        first = fk.start(shape[:1], 1.0)
    x, aux = check_move_form("the move that `start` returned", first, shape, problem.process)
    particles = Particles(x, torch.zeros(5, dtype=torch.float64), aux)
    with used("`choices`"):
        count = whole("what choices returned", fk.choices(1.0, 0.5), 0)
    with used("`move`"):
        move = fk.move(particles, 1.0, 0.5, uniforms(6, 5, count or 1)[:, :count])
    check_move_form("the move that `move` returned", move, shape, problem.process)
    with used("`branches`"):
        branches = list(cast("ListedFeynmanKac", fk).branches(particles, 1.0, 0.5))
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
    return last_of(trace(fk, uniform_grid(steps), shape, resample, source))


def masses(particles: Particles, size: int) -> Tensor:
    """The mean weight of each population at every state [populations, size^D]."""
    (populations, n), length = particles.log_w.shape, particles.x.shape[-1]
    mass = torch.zeros(populations, size**length, dtype=torch.float64)
    return mass.scatter_add(1, flat_index(particles.x, size), particles.log_w.exp() / n)


def _check_mass(fk: FeynmanKac, problem: Table) -> None:
    found = masses(ran(fk, (POPULATIONS, PARTICLES), STEPS, OFTEN), problem.process.states)
    exact = flow(fk, uniform_grid(STEPS), problem.process.states, problem.length).log_mass.exp()
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
    together = ran(fk, (2, 37), STEPS, OFTEN)
    for chunk in (1, 5):
        again = ran(fk, (2, 37), STEPS, OFTEN, chunk)
        same = torch.equal(together.x, again.x) and torch.equal(together.log_w, again.log_w)
        require(same, f"chunks of {chunk} change the result")
    alone = ran(fk, (1, 37), STEPS, OFTEN, first=1)
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
            ran(make(replace(model, **{name: part})), (1, 8), 4, OFTEN)
        except InvalidWeights:
            continue
        require(
            name not in asked,
            f"the model's {name} answered NaN and the run went on; check what a network answers (as `OnClock.law` "
            "does) and raise InvalidWeights",
        )
