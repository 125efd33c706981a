"""Checks of a kernel (one reverse step): proper laws, draws that follow them, the base's support, the right limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import function, listed, shown
from ..core.errors import InvalidInput
from ..core.types import Process, Score, SitewiseLaw
from ..diffusion.guidance import Guided
from ..diffusion.kernels import Kernel
from ..exact.tables import Table
from ..targets.on_clock import Unweighted
from .forms import check_law_form, check_odds_form
from .tables import MASKING, TOP, UNIFORM, check_time_error, hard_table, small_table, uniforms
from .verdicts import require, used, z_limit

INTERVALS = (
    *((1.0, 0.99), (1.0, 0.0), (0.6, 0.3), (0.5, 0.4), (0.5, 0.0)),
    *((1e-3, 0.0), (1e-6, 5e-7), (1e-9, 0.0), (1e-12, 0.0)),
)
LEANING = ((1.0, 0.9), (0.5, 0.4), (0.5, 0.2), (0.2, 0.05), (0.5, 0.0))
DRAWS = 10_000  # draws of each state
OFTEN = 1000  # visits, and non-visits, for a count to be nearly normal
STRONG = 8.0  # strength of guidance


def check_kernel(kernel: Kernel, processes: Sequence[Process] = (MASKING, UNIFORM)) -> None:
    """Reject a kernel whose laws are not those of a reverse step $t -> s$, on small tables of each process.

    Each law is proper: the probabilities of a site sum to 1 (1e-12), also with zeros in the table and under strong
    guidance, and `log_prob` is their product over sites. `sample` draws with these probabilities: never anything of
    probability 0, and the rest by a z-test of 10,000 draws of each state, with one false alarm in $10^8$ checks. A
    revealed site stays, and a step into $s = 0$ leaves no mask. The support of the base is kept: by rate-level guidance
    of strength 8 on the masking process, by a conditional score on the uniform one. The error of base steps halves as
    their number doubles.

    Parameters:
        kernel: maps (process, log_score, x, t, s) to a law, such as `SiteLaw`.
        processes: the processes to check it on; both by default.
    """
    function("kernel", kernel, "(process, log_score, x, t, s)", "such as tt.euler")
    for process in listed("processes", processes, "give a list, such as [tt.Masking(3)]"):
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
    check_time_error(Unweighted(problem.model(), problem.model().base, kernel=kernel), problem.p0, problem)


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
        raise InvalidInput(f"the kernel returned {shown(law)}; it must return the law of a step, as tt.euler does")
    check_odds_form("the kernel's law", law, (len(x), x.shape[-1]), problem.process)
    return law


def _check_law(law: SitewiseLaw, problem: Table, interval: tuple[float, float]) -> None:
    where = f"{problem.process}, step {interval[0]:g} -> {interval[1]:g}"
    site, x, size = site_probabilities(law, problem), problem.states, problem.process.vocabulary
    require(not site.isnan().any(), f"{where}: a probability is NaN")
    off = (site.sum(-1) - 1).abs().max()
    require(off <= 1e-12, f"{where}: the probabilities of a site are off 1 by {float(off):.1e} in sum")
    off = (_log_probs(law, x).exp() - _product(site, x)).abs().max()
    require(off <= 1e-12, f"{where}: log_prob is off the product over sites by {float(off):.1e} in probability")
    stays = site.gather(-1, x[..., None]).squeeze(-1)
    if problem.process.states > size:
        require((stays[x < size] == 1).all(), f"{where}: a site that is revealed may change")
        left = site[..., size:].max()
        require(interval[1] > 0 or left == 0, f"{where}: a mask is left with probability {float(left):.1e}")
    for u in (0.0, 0.5, TOP):
        y = law.sample(torch.full(x.shape, u, dtype=torch.float64))
        chance = site.gather(-1, y[..., None])
        require((chance > 0).all(), f"{where}: the uniform {u:g} draws a state of probability zero")


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
