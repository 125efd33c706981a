"""What all draws that were paid for say of an answer: whether it misses mass, and what none of them can exclude.

The draws of p0 and of every round of learning are one sample of the target (`twists/pool`). Mass that the answer misses
shows there as states whose residual, strength * reward less the twist, lies above that of every particle of the answer.
Only their mass counts, not their number: a state far above the others may hold nothing of Z. States that were met
otherwise, as mutants or by moves, are draws of no known law: they nominate. Short chains of moves start at them, a law
is led to where the chains stay, and its fresh draws join the sample.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.twists import Learned
from ..core.types import NEG_INF, Potential, Tokens
from ..result import Result
from ..rewards.calls import scaled
from ..rewards.reward import Reward
from ..runtime.settings import known_of
from ..smc.resampling import effective_sample_size
from ..twists.layout import TableLayout
from ..twists.pool import Sample, pooled
from ..twists.tables import TableTwist
from .problem import SteerProblem
from .routes import ANNEALED, TWISTED, Route, move_cost
from .stages import ROUNDING, Work, several

UNMET = 7.0  # n draws miss what has probability 7 / n once in a thousand times
MOVED = 0.05  # nats of log Z: the smallest error that counts as one
CLEAR = 1.0  # nats by which a nominee's residual lies above all of the answer's
CHAINS, SWEEPS, PARTS = 6, 2, 4  # chains from nominees, moves per site, and how often a chain's states are noted
UNLIKE, PSEUDO = 8, 2.0  # nominees differ at one in this many sites; pseudo-count of a site's tokens in a chain
LED, FEWEST_LED = 96, 16  # draws led by a chain, most and fewest
SHARE = 0.05  # of the remaining budget for chains, and the same for the draws of their laws
ONE = 0.2  # of the remaining budget that the first chain may take
TAIL, ENOUGH, VALUES = 0.01, 400, 3  # a tail's least share of Z, of how many weights, with how many values, to count


class Evidence(NamedTuple):
    """What the draws say of an answer.

    Args:
        log_z: log Z by all samples together.
        missed: Mass of the states above everything in the answer, over the answer's Z.
        met: Number of such states among the samples.
        told_by: Effective number of draws that `missed` is told by; None unless chains stayed above the answer.
        tail: Pareto shape of the answer's largest weights: from .5 on they have no variance, from 1 on no mean; None
            where they hold next to nothing.
        draws: Number of draws of p0 that say what is not excluded.
        unmet_share: Share of p0 that states may have which none of them met.
        unmet_reward: Reward from which on such states would move log Z by .05 or more.
        heaviest: Largest share of one state in all samples' weights.
        unmet_at_most: What states that no sample met may add to Z, over Z, if none weighs more than the heaviest met.
    """

    log_z: float
    missed: float
    met: int
    told_by: float | None
    tail: float | None
    draws: int
    unmet_share: float
    unmet_reward: float
    heaviest: float
    unmet_at_most: float

    def as_settings(self) -> dict[str, Any]:
        """The figures as plain data, fit for JSON: None for what is not finite."""
        return {
            name: value if value is None or math.isfinite(value) else None for name, value in self._asdict().items()
        }


def evidence_of(work: Work, result: Result, twist: Potential | None) -> Evidence | None:
    """What all samples say of an answer that a twist led to; None without a reward."""
    if work.problem.reward is None or work.problem.strength == 0 or not work.samples:
        return None
    every = pooled(same_base(work))
    above = residual(work.problem, twist, every.x, every.value) > ceiling_of(result) + ROUNDING
    missed = every.log_w[above].logsumexp(0) if bool(above.any()) else torch.tensor(NEG_INF)
    told_by = float(effective_sample_size(every.log_w[above])) if work.led and bool(above.any()) else None
    missed = math.exp(min(float(missed) - result.log_z, 700.0)) if missed > NEG_INF else 0.0
    count = len(work.samples[0].x)
    share = min(UNMET / count, 1.0)
    needed = result.log_z + math.log(math.expm1(MOVED)) - math.log(share)
    tail = tail_shape(result.log_weights.reshape(-1))
    most = math.exp(min(float(every.log_w.max()) - result.log_z, 700.0)) if result.log_z > NEG_INF else math.inf
    return Evidence(
        every.log_z, missed, int(above.sum()), told_by, tail, count, share, needed / work.problem.strength,
        every.heaviest, UNMET * most,
    )  # fmt: skip


def same_base(work: Work) -> list[Sample]:
    """The samples whose laws have one p0: where a draw reveals several sites a step, those of twists, which are led
    one site a step, are of another."""
    return work.samples if work.problem.one_site_a_step else work.samples[:1]


def led_by(work: Work, route: Route) -> Potential | None:
    """The twist that a route is led by; None without one."""
    return work.twist if route.name in (TWISTED, ANNEALED) else None


def ceiling_of(result: Result) -> float:
    """The largest residual of a particle of an answer that has weight."""
    found = known_of(result.settings).measured.residual
    return NEG_INF if found is None else found


def residual(problem: SteerProblem, twist: Potential | None, x: Tokens, value: Tensor) -> Tensor:
    """strength * reward of clean states less what a learned twist says of them, in nats [n]."""
    if not isinstance(twist, Learned):
        return value
    said = twist(x.to(problem.model.device), 0.0).double().cpu()
    return value - problem.strength * said


def tail_shape(log_w: Tensor) -> float | None:
    """The shape k of a generalised Pareto law fitted to the largest weights (Zhang & Stephens 2009); None if they are
    few, take few values, or hold next to nothing."""
    found = spread_out(log_w[log_w > NEG_INF].double().cpu().sort().values)
    if found is None:
        return None
    log_w = found
    count = int(min(0.2 * len(log_w), 3 * math.sqrt(len(log_w))))
    w = (log_w - log_w[-1]).exp()
    over = w[-count:] - w[-count - 1]
    if float(over.sum() / w.sum()) < TAIL or float(over[0]) <= 0:
        return None
    grid = torch.arange(1, 30 + int(math.sqrt(count)) + 1, dtype=torch.float64)
    quarter = over[int(count / 4 + 0.5) - 1]
    theta = 1 / over[-1] + (1 - (len(grid) / (grid - 0.5)).sqrt()) / (3 * quarter)
    shape = torch.log1p(-theta[:, None] * over).mean(-1)
    likelihood = count * ((-theta / shape).log() - shape - 1)
    best = (theta * likelihood.softmax(0)).sum()
    fitted = float(torch.log1p(-best * over).mean())
    return (fitted * count + 5) / (count + 10)  # a weak prior, k = .5 by ten weights


def spread_out(log_w: Tensor) -> Tensor | None:
    """Sorted log-weights with equal ones spread evenly over the gap below them, so that a reward that counts in steps
    has a tail too; None if they are few or their upper part takes few values."""
    log_w = log_w.round(decimals=9)
    values, number, counts = torch.unique(log_w, return_inverse=True, return_counts=True)
    top = log_w[-max(int(3 * math.sqrt(len(log_w))), 1)] if len(log_w) >= ENOUGH else math.inf
    if int((values >= top).sum()) < VALUES:
        return None
    gap = torch.cat([torch.zeros(1, dtype=log_w.dtype), values.diff()])
    first = counts.cumsum(0) - counts
    rank = torch.arange(len(log_w)) - first[number]
    return log_w - gap[number] * (1 - (rank + 0.5) / counts[number]) * (counts[number] > 1)


def nominees(work: Work, result: Result, twist: Potential | None) -> Tokens:
    """Up to `CHAINS` states, unlike one another, whose reward was paid for and whose residual lies clear above all of
    the answer's: those with the highest rewards and those with the highest residuals in turn."""
    x, value = called(work)
    found = residual(work.problem, twist, x, value)
    above = (found > ceiling_of(result) + CLEAR).nonzero().squeeze(-1)
    ranks = torch.stack([above[score[above].argsort(descending=True)] for score in (value, found)], -1)
    chosen: list[int] = []
    for number in ranks.reshape(-1).tolist():
        near = [int((x[number] != x[other]).sum()) * UNLIKE <= x.shape[1] for other in chosen]
        if len(chosen) < CHAINS and not any(near):
            chosen.append(number)
    return x[chosen]


def called(work: Work) -> tuple[Tokens, Tensor]:
    """The states whose reward is known, and strength * reward: all that were called, or without a cache all samples."""
    reward, strength = work.problem.reward, work.problem.strength
    if isinstance(reward, Reward) and reward.keeps:
        x, found = reward.known()
        return x.cpu(), scaled(found.cpu(), strength)
    return torch.cat([one.x for one in work.samples]), torch.cat([one.value for one in work.samples])


def challenge(work: Work, result: Result, twist: Potential | None) -> None:
    """Chains of moves from nominees, and draws led to where they stay above all of an answer, added to the samples."""
    problem, account = work.problem, work.account
    if problem.reward is None or not (work.movable and problem.one_site_a_step) or result.log_z == NEG_INF:
        return
    x = nominees(work, result, twist)
    each, length = move_cost(problem, account), problem.length
    chain = each.times(SWEEPS * length)
    chains = min(len(x), max(account.buys(chain, SHARE), min(account.buys(chain, ONE), 1)))
    if chains < 1:
        return
    why = f"{several(len(x), 'state')} met by chance, mutants or moves lie above all of the answer"
    states, value = work.walk(x[:chains], SWEEPS * length // PARTS or 1, PARTS, why)
    stays = residual(problem, twist, states[-1], value[-1]) > ceiling_of(result)
    count = min(account.buys(problem.draw.times(max(int(stays.sum()), 1)), SHARE), LED)
    for chain in stays.nonzero().squeeze(-1).tolist() if count >= FEWEST_LED else ():
        found = states[:, chain]
        for _ in range(2):  # the draws of the first law above the answer say which sites are free there, and lead again
            law = law_of(found, work.samples[0], problem.vocabulary)
            work.led = True
            drawn = work.sample(law, count // 2, "moves from there stay where the answer has no mass")
            above = residual(problem, twist, drawn.x, drawn.value) > ceiling_of(result)
            found = torch.cat([found, torch.unique(drawn.x[above], dim=0)])


def law_of(chain: Tokens, base: Sample, vocabulary: int) -> TableTwist:
    """A twist that leads to where a chain stayed: at each site the log-ratio of its tokens there to those of p0."""
    length = chain.shape[1]
    layout = TableLayout(length, vocabulary + 1, 0)

    def shares(x: Tokens, spread: float) -> Tensor:
        seen = torch.nn.functional.one_hot(x.cpu(), vocabulary).double().mean(0)
        return (1 - spread) * seen + spread / vocabulary

    common = shares(base.x, 1e-3)
    ratio = ((len(chain) * shares(chain, 0.0) + PSEUDO * common) / (len(chain) + PSEUDO) / common).log()
    entries = torch.zeros(layout.size, dtype=torch.float64)
    masked = (common.log() + ratio).logsumexp(-1, keepdim=True)
    entries[: length * (vocabulary + 1)] = torch.cat([ratio, masked], -1).reshape(-1)
    return TableTwist(layout, entries)
