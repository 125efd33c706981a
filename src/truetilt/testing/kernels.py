"""Checks of a kernel (one reverse step): proper laws, draws that follow them, the base's support, the right limit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import function, listed, shown
from ..core.types import Particles, Process, Score, SitewiseLaw
from ..diffusion.guidance import Guided
from ..diffusion.kernels import Kernel
from ..diffusion.processes import Masking, Uniform
from ..exact.flow import push
from ..exact.tables import Table
from ..targets.on_clock import Unweighted
from .forms import check_law_form, check_odds_form
from .tables import (
    LEAST_FALL,
    MASKING,
    STEPS,
    TOP,
    UNIFORM,
    check_time_error,
    hard_table,
    limits,
    small_table,
    tv,
    uniforms,
)
from .verdicts import RejectedInput, require, used, z_limit

INTERVALS = (
    *((1.0, 0.99), (1.0, 0.0), (0.6, 0.3), (0.5, 0.4), (0.5, 0.0)),
    *((1e-3, 0.0), (1e-6, 5e-7), (1e-9, 0.0), (1e-12, 0.0)),
)
LEANING = ((1.0, 0.9), (0.5, 0.4), (0.5, 0.2), (0.2, 0.05), (0.5, 0.0))
DRAWS = 10_000  # draws of each state
ROUNDING, SINGLE = 1e-12, 1e-5  # of a probability: what is allowed, and what float32 does
OFTEN = 1000  # visits, and non-visits, for a count to be nearly normal
HALFWAY = (0.8, 0.4)  # times between which the clock of a kernel is checked
SAME = 1e-6  # of a total variation that is not noticed
COARSE = (0.9, 0.05)  # a step over which a site of the uniform process would jump more than once
STRONG = 8.0  # strength of guidance


def check_kernel(kernel: Kernel, processes: Process | Sequence[Process] = (MASKING, UNIFORM)) -> None:
    """Reject a kernel whose laws are not those of a reverse step $t -> s$, on small tables of each process.

    Each law is proper: the probabilities of a site sum to 1 (1e-12), also with zeros in the table and under strong
    guidance, and `log_prob` is their product over sites. `sample` draws with these probabilities: never anything of
    probability 0, and the rest by a z-test of 10,000 draws of each state, with one false alarm in $10^8$ checks. A
    revealed site stays, and a step into $s = 0$ leaves no mask. The support of the base is kept: by rate-level guidance
    of strength 8 on the masking process, by a conditional score on the uniform one, where every token stays possible
    in every site before $t = 0$, also in a step over which much more than one jump is due. The error of base steps
    halves as their number doubles, at $t = 0$, and vanishes on the way there: rates that are off by half a percent are
    noticed.

    Parameters:
        kernel: maps (process, log_score, x, t, s) to a law, such as `SiteLaw`.
        processes: the process, or processes, to check it on; masking and uniform by default.
    """
    function("kernel", kernel, "(process, log_score, x, t, s)", "such as tt.euler")
    some = [processes] if isinstance(processes, Masking | Uniform) else processes
    for process in listed("processes", some, "give tt.Masking(3), or a list of processes"):
        problem = small_table(process)
        shape = (len(problem.states), problem.length)
        law = _step(kernel, problem, problem.model().base, INTERVALS[2])
        check_law_form("the kernel's law", law, shape, process, problem.length)
        with used("the kernel or its law"):
            _check_process(kernel, process)


def _check_process(kernel: Kernel, process: Process) -> None:
    for problem in (small_table(process), hard_table(process)):
        for score in _scores(problem):
            for interval in INTERVALS:
                _check_law(_step(kernel, problem, score, interval), problem, interval)
    problem = small_table(process)
    _check_support(kernel, problem)
    _check_draws(kernel, problem)
    fk = Unweighted(problem.model(), problem.model().base, kernel=kernel)
    check_time_error(limits(fk, problem), problem.p0, problem)
    _check_halfway(kernel, problem)


def _check_halfway(kernel: Kernel, problem: Table) -> None:
    """Base steps from the exact law at t = 0.8 have that at t = 0.4 as their limit: a clock of another speed has not.

    The time error of first order is extrapolated away, so that small faults of the rates are not hidden by it.
    """
    exact, laws = problem.marginal(HALFWAY[1]).reshape(-1), [_between(kernel, problem, count) for count in STEPS]
    errors = [tv(2 * fine - rough, exact) for rough, fine in pairwise(laws)]
    require(
        errors[1] <= LEAST_FALL * errors[0] or errors[1] < SAME,
        f"steps of the base from t = {HALFWAY[0]:g} to {HALFWAY[1]:g} on {problem.process} miss the noised law "
        f"there by {errors[0]:.1e}, {errors[1]:.1e} (TV, extrapolated) at {STEPS[1]}, {STEPS[2]} steps, which must "
        "vanish: the rates are not those of the process",
    )


def _between(kernel: Kernel, problem: Table, count: int) -> Tensor:
    """The law after so many base steps from the exact law at one time to another."""
    fk, (first, last) = Unweighted(problem.model(), problem.model().base, kernel=kernel), HALFWAY
    times = [first + (last - first) * i / count for i in range(count + 1)]
    log_mass = problem.marginal(first).reshape(-1).log()
    for t, s in pairwise(times):
        here = Particles(problem.states, log_mass, {"log_tilt": torch.zeros_like(log_mass)})
        log_mass, _ = push(fk.move(here, t, s), log_mass, problem.states, problem.process.states)
    return log_mass.exp()


def _scores(problem: Table) -> tuple[Score, Score, Score]:
    """The base score, the conditional one, and strong guidance."""
    model = problem.model()
    base, conditional = model.base, cast("Score", model.conditional)
    return base, conditional, Guided(problem.process, base, conditional, STRONG)


def site_probabilities(law: SitewiseLaw, problem: Table) -> Tensor:
    """P(site d becomes v) for every state of a site [K, D, states], from the odds of a law of all states."""
    jump = (law.odds.log_move[..., None] + law.odds.logits.dense()).exp().double()
    jump = torch.nn.functional.pad(jump, (0, problem.process.states - jump.shape[-1]))
    return jump.scatter(-1, law.x[..., None], law.odds.log_hold.exp()[..., None].double())


def _step(kernel: Kernel, problem: Table, score: Score, interval: tuple[float, float]) -> SitewiseLaw:
    x = problem.states
    log_score = score(x, interval[0])
    with used("the kernel"):
        law = kernel(problem.process, log_score, x, *interval)
    if not hasattr(law, "odds"):
        raise RejectedInput(f"the kernel returned {shown(law)}; it must return the law of a step, as tt.euler does")
    check_odds_form("the kernel's law", law, (len(x), x.shape[-1]), problem.process)
    return law


def _check_law(law: SitewiseLaw, problem: Table, interval: tuple[float, float]) -> None:
    where = f"{problem.process}, step {interval[0]:g} -> {interval[1]:g}"
    site, x, size = site_probabilities(law, problem), problem.states, problem.process.vocabulary
    require(not site.isnan().any(), f"{where}: a probability is NaN")
    off = (site.sum(-1) - 1).abs().max()
    require(off <= ROUNDING, f"{where}: the probabilities of a site are off 1 by {float(off):.1e} in sum{_single(off)}")
    off = (_log_probs(law, x).exp() - _product(site, x)).abs().max()
    require(
        off <= ROUNDING,
        f"{where}: log_prob is off the product over sites by {float(off):.1e} in probability{_single(off)}",
    )
    stays = site.gather(-1, x[..., None]).squeeze(-1)
    if problem.process.states > size:
        require((stays[x < size] == 1).all(), f"{where}: a site that is revealed may change")
        left = site[..., size:].max()
        require(interval[1] > 0 or left == 0, f"{where}: a mask is left with probability {float(left):.1e}")
    for u in (0.0, 0.5, TOP):
        y = law.sample(torch.full(x.shape, u, dtype=torch.float64))
        chance = site.gather(-1, y[..., None])
        require((chance > 0).all(), f"{where}: the uniform {u:g} draws a state of probability zero")


def _single(off: Tensor) -> str:
    """What an error of this size may come from."""
    return f" ({ROUNDING:.0e} is allowed); it looks like float32: compute laws in float64" if off < SINGLE else ""


def _log_probs(law: SitewiseLaw, states: Tensor) -> Tensor:
    """log P(x -> y) of every pair of states [K, K]."""
    count = len(states)
    return law.take(torch.arange(count).repeat_interleave(count)).log_prob(states.repeat(count, 1)).reshape(count, -1)


def _product(site: Tensor, states: Tensor) -> Tensor:
    """The same as a product over sites."""
    chosen = [site[:, d, states[:, d]] for d in range(states.shape[-1])]
    return torch.stack(chosen).prod(0)


def _check_support(kernel: Kernel, problem: Table) -> None:
    """Every change that the base can make stays possible under guidance: weights cannot repair lost support."""
    base, conditional, strong = _scores(problem)
    leaning = strong if problem.process.states > problem.process.vocabulary else conditional
    for t, s in LEANING:
        can, may = (site_probabilities(_step(kernel, problem, score, (t, s)), problem) for score in (base, leaning))
        lost = int(((can > 0) & (may == 0)).sum())
        require(
            lost == 0,
            f"{problem.process}, step {t:g} -> {s:g}: {lost} things that a site can do under the base are impossible "
            "under guidance, and no weight can repair it; hold with exp(-integrated rate), never clamp a probability",
        )
    if problem.process.states == problem.process.vocabulary:
        lost = int((site_probabilities(_step(kernel, problem, base, COARSE), problem) == 0).sum())
        require(
            lost == 0,
            f"{problem.process}, step {COARSE[0]:g} -> {COARSE[1]:g}: {lost} things that a site can do are impossible; "
            "on this process all are possible before t = 0: hold with exp(-integrated rate), never clamp a probability",
        )


def _check_draws(kernel: Kernel, problem: Table) -> None:
    """Check by a z-test that states are drawn with the probabilities of `log_prob`."""
    x, model = problem.states, problem.model()
    for t, s in ((0.6, 0.3), (0.5, 0.0)):
        law = _step(kernel, problem, model.base, (t, s))
        every = torch.arange(len(x)).repeat_interleave(DRAWS)
        y = law.take(every).sample(uniforms(5, len(every), x.shape[-1]))
        place = (y[:, None] == x).all(-1).long().argmax(-1)
        p = _log_probs(law, x).exp()
        count = torch.zeros_like(p).index_put((every, place), torch.ones_like(every).double(), accumulate=True)
        require((count[p == 0] == 0).all(), f"{problem.process}, step {t:g} -> {s:g}: drawn, of probability zero")
        often = (DRAWS * p > OFTEN) & (DRAWS * (1 - p) > OFTEN)
        z = ((count - DRAWS * p) / (DRAWS * p * (1 - p)).sqrt())[often]
        limit = z_limit(max(1, 4 * z.numel()))
        require(
            not z.numel() or z.abs().max() < limit,
            f"{problem.process}, step {t:g} -> {s:g}: a state is drawn {float(z.abs().max()):.1f} standard errors more "
            f"or less often than log_prob says ({limit:.1f} are allowed)",
        )
