"""Baselines of the humanise experiment: other ways to steer the same network to the same target, at ours' evaluations.

All draw from AntiBERTy in the order that defines p0, and know the rest of the target as a reward:

    alpha log p(human|x) - pull * changes + (sharpness - 1) log p0(x).

A baseline may draw with as many passes as ours spent in all, and may ask the reward for as many again; it ends with the
first of the two. A call takes a pass a reading of p(human|x). log p0 of a chain that was just drawn is known from the
passes that drew it; methods that ask about chains they did not draw (completions of a masked one, mutants) pay a pass a
step for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from ..antibodies.redesign import Antibodies
from ..antibodies.redesign_target import PulledTarget
from ..baselines.adalead import adalead
from ..baselines.base_draws import site_by_site
from ..baselines.budget_search import afresh, largest
from ..baselines.fk_particle_gibbs import PARTICLES
from ..baselines.fk_steering import looks_of
from ..baselines.independent_draws import best_of_n
from ..baselines.methods import ADALEAD, CANDIDATES, COMPLETIONS, TITLES, Contest, run_method
from ..baselines.record import Baseline
from ..commands.antibody_designs import designs_of
from ..core.budget import Budget, BudgetTooSmall
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.logits import SiteLogits
from ..core.types import Model, Score, Tokens
from ..diffusion.processes import Masking
from ..models.deduplication import WrappingScore
from ..rewards.reward import Reward
from .humanise_designs import KEPT, DesignSetting, ParentChain, RunSize, line_of, target_of

BEST_OF_N = "best-of-n"
BASELINES = tuple(TITLES)
DRAWING = (BEST_OF_N, "importance", "svdd-mc", "tds")  # ask the reward about chains that they drew site by site
_FIRST = 4  # AdaLead begins with one in so many of its calls as base draws


@dataclass(frozen=True)
class InOrder(WrappingScore):
    """A base whose site k is the k-th site of an order."""

    score: Score
    order: tuple[int, ...]

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        answer = ask(self.score, Batch(in_chain(batch.x, self.order), batch.log), t)
        return SiteLogits(answer.store, answer.index[:, list(self.order)])


def in_chain(x: Tokens, order: tuple[int, ...]) -> Tokens:
    """States whose sites are in an order [..., D] as states of the chain."""
    return x[..., torch.tensor(order, device=x.device).argsort()]


def contest(target: PulledTarget, budget: Budget, steps: int | None, seed: int) -> Contest:
    """What a baseline is run on: p0 with its sites in the target's order, and all else of the target as the reward."""
    order = target.order
    if order is None:
        raise InvalidInput("a baseline draws in the order of the target, and it has none; take redesign.target(...)")
    model: Model = replace(target.model, base=InOrder(target.model.base, order), potential=None)

    def worth(x: Tokens) -> Tensor:
        more = target.sharpness - 1
        found = target.reward_of(in_chain(x, order))
        return found + more * log_prob_in_steps(model, x, steps) if more else found

    return Contest(model, Reward(worth, vocabulary=model.process.vocabulary), 1.0, budget, seed, steps)


@torch.no_grad()
def log_prob_in_steps(model: Model, x: Tokens, steps: int | None) -> Tensor:
    """log p0 of finished states [B, D] as left-to-right draws in so many steps have it: sites of a step independent."""
    process, length = cast("Masking", model.process), model.length
    grid = site_by_site(model, range(length), steps).grid
    ends = [length - process.count_masked(length, t) for t in grid]
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for t, first, last in zip(grid, ends, ends[1:], strict=False):
        seen = torch.cat([x[:, :first], torch.full_like(x[:, first:], process.mask)], -1)
        law = process.posterior(ask(model.base, Batch(seen), t), seen, t).dense().double()
        total += law[:, first:last].gather(-1, x[:, first:last, None]).sum((-1, -2))
    return total


def passes_of_call(method: str, readings: int, steps: int) -> int:
    """What a call of the reward costs: the readings, and log p0 where the method did not draw the chain itself."""
    return max(readings, 1) + (0 if method in DRAWING else steps)


def one_baseline(
    chain: ParentChain, cell: DesignSetting, size: RunSize, seed: int, nets: Antibodies, evaluations: int
) -> dict[str, Any]:
    """The designs of one chain by the cell's baseline, at the evaluations that ours spent on it.

    Where a budget does not pay for the smallest run of a method, that is what the answer says, and it has no designs.
    """
    redesign = nets.redesign(chain.parent, unseen_cdrs=cell.unseen, domain=chain.domain)
    each = passes_of_call(cell.method, cell.readings, size.steps or len(redesign.open_sites))
    budget, begun = Budget(evaluations, max(evaluations // each, 1)), time.perf_counter()
    on = contest(target_of(cell, redesign), budget, size.steps, seed)
    try:
        _check_pays(cell.method, on)
        found = _ALONE[cell.method](on) if cell.method in _ALONE else run_method(cell.method, on)
    except BudgetTooSmall as error:
        return {"chain": chain.name, "cell": cell.name, "designs": [], "reason": str(error), "budget": list(budget)}
    x, seconds = in_chain(found.states, redesign.order()), time.perf_counter() - begun
    designs = designs_of(redesign, x, found.weights, KEPT, on.reward(found.states))
    spent = found.spent
    return line_of(chain, cell, size, redesign, designs) | {
        "distinct": len({tuple(row) for row in x.tolist()}),
        "log_z": found.log_z,
        "p_human": float((found.weights.to(x.device) * redesign.log_species()(x, 0.0).exp()).sum()),
        "network_evaluations": spent.evaluations + each * spent.distinct,
        "reward_calls": spent.calls,
        "distinct_calls": spent.distinct,
        "budget": list(budget),
        "seconds": seconds,
    }


def fewest_calls(method: str, on: Contest) -> int:
    """Calls of a method's smallest run if none is repeated: looks at completions on the way, and the end."""
    looked = looks_of(on.walk(on.model), on.every) * COMPLETIONS + 1
    if method == "particle-gibbs":
        return 2 * PARTICLES * looked  # a first path, and a sweep
    if method == "svdd-pm":
        return CANDIDATES * on.walk(on.model).steps
    return looked if method.startswith("fk-") else 1


def _check_pays(method: str, on: Contest) -> None:
    """Refuse what the calls do not pay for before anything is spent: the search for a size would try it."""
    need, calls = fewest_calls(method, on), on.budget.calls or 0
    if need > calls:
        raise BudgetTooSmall(f"{calls:,} reward calls can be spent, and its smallest run takes {need:,} of them")


def _best_of_n(on: Contest) -> Baseline:
    def sized(limits: Budget, size: int | None) -> Baseline:
        return best_of_n(on.model, afresh(on.reward), budget=limits, particles=KEPT, each=size, **on.options)

    return largest(sized, on.budget)


def _adalead(on: Contest) -> Baseline:
    batch = min(max((on.budget.calls or 0) // _FIRST, 2), 100)
    return adalead(on.model, afresh(on.reward), budget=on.budget, particles=KEPT, batch=batch, **on.options)


_ALONE: dict[str, Any] = {BEST_OF_N: _best_of_n, ADALEAD: _adalead}
