"""SVDD, soft value-based decoding (Li et al. 2024): at each step draw M candidates of a state, keep one by its value.

Particles do not interact and carry no weights, so there is no target: the law is p0(x) exp(strength r(x)) only for the
exact soft value and in the limit of large M.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import function, whole_number
from ..core.binding import bind, cost_of
from ..core.budget import Budget, BudgetTooSmall
from ..core.errors import InvalidInput
from ..core.evaluation import CountedFunction, RunLog
from ..core.logits import batch_of, draw_from, take
from ..core.spent import Spent
from ..core.types import NEG_INF, Model, Particles, Potential, Tokens, check_model
from ..diffusion.processes import Masking
from ..rewards.calls import Rewarding, call_reward, check_reward_of, scaled
from ..smc.sampler import CHOOSE, RESAMPLE, Draws, Source, Stream, first_draw, steps_of
from ..twists.least_squares import Accuracy, Equations, solve
from ..twists.lookahead import Lookahead
from ..twists.recorded_draws import draws as recorded_draws
from .base_draws import WalkMaker, base_draws, remembering, site_by_site
from .record import Baseline

_NUMBERS = 1 << 27  # entries of a dense matrix, or of all rows, in the regression of values
_APART = 1 << 40  # a population number that no run uses
_SOLVING = Accuracy(100, 1e-6)  # of the matrix-free solve


@torch.no_grad()
def svdd(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    value: Potential,
    budget: Budget,
    particles: int | None = 64,
    candidates: int = 20,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """States that moved, at every step, to one of M candidates chosen by exp(strength * value). No target.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is evaluated.
        reward: Function of clean states [B, D]; it chooses among the candidates of the last step.
        strength: One over the paper's temperature; 1 by default.
        value: Value of a masked state, a function (x, t): `tt.Lookahead` on this model with `tt.plain_mean` for
            SVDD-PM, `regressed_value` for SVDD-MC. The cost of learning it (its `spent`) is counted.
        budget: Evaluations and calls that may be spent.
        particles: States returned, 64 by default; None: as many as the budget affords with M `candidates` each.
        candidates: Upper bound of M, 20 by default (the paper's for images; 10 for sequences); M is what the budget
            affords. With sites revealed one by one all candidates reveal the same site.
        walk: How states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    strength = check_reward_of(reward, strength)
    function("value", value, "(x, t)")
    log = RunLog()
    own = remembering(model, log)
    way, counted = walk(own), CountedFunction(reward, log)
    before = cost_of(value)
    particles, count = _sizes(
        way.steps, value, budget.less(before), particles, whole_number("candidates", candidates, 1)
    )
    if isinstance(value, Lookahead):
        value = replace(value, model=own, reward=counted)
    fk, source = way.fk, Source(Stream(seed, device=model.device))
    state, _ = first_draw(fk, way.grid[0], (1, particles), source)
    everyone = torch.arange(particles, device=state.x.device).repeat_interleave(count)[None]
    for here in steps_of(way.grid):
        u = source.uniforms(here.number, CHOOSE, state.x, fk.choices(here.t, here.s))
        move = fk.move(state, here.t, here.s, u).take(everyone)
        y, _, aux = Draws(source, here.number)(move)
        worth = call_reward(counted, batch_of(y)) if here.s == 0 else value(batch_of(y), here.s)
        log_odds = scaled(worth, strength).reshape(particles, count)
        log_odds = torch.where((log_odds > NEG_INF).any(-1, keepdim=True), log_odds, 0.0)  # all forbidden: uniform
        spin = source.stream.uniforms(here.number, RESAMPLE, 1, particles).reshape(particles, 1)
        chosen = draw_from(log_odds.softmax(-1).cumsum(-1), spin).squeeze(-1)
        kept = (torch.arange(particles, device=chosen.device) * count + chosen)[None]
        state = Particles(take(y, kept), state.log_w, {name: take(part, kept) for name, part in aux.items()})
    return Baseline(state.x[0], None, None, log.spent.plus(before), particles)


def _sizes(steps: int, value: Potential, left: Budget, particles: int | None, candidates: int) -> tuple[int, int]:
    """Particles and candidates that the rest of a budget affords.

    One pass per step draws all candidates of a particle, and valuing each is one more; in the last step the reward is
    called.
    """
    looks = value.completions if isinstance(value, Lookahead) else 0
    if particles is None:
        evaluations, calls = steps * candidates if looks else steps, ((steps - 1) * looks + 1) * candidates
        return left.most(evaluations, calls, f"particles of {candidates} candidates"), candidates
    particles = whole_number("particles", particles, 1)
    calls = particles * ((steps - 1) * looks + 1)
    if looks:
        return particles, left.most(particles * steps, calls, "candidates a step", candidates)
    if left.evaluations is not None and left.evaluations < particles * steps:
        raise BudgetTooSmall(
            f"{left.evaluations:,} network evaluations are left for {particles} particles of {steps:,} each; give "
            f"fewer particles, or {particles * steps - left.evaluations:,} evaluations more"
        )
    return particles, left.most(0, calls, "candidates a step", candidates)


@dataclass(frozen=True, eq=False)
class Regressed:
    """A number for each token at each site, the mask included: a linear estimate of the final reward."""

    table: Tensor  # [D, S + 1]
    level: float
    spent: Spent

    def __call__(self, x: Tokens, t: float) -> Tensor:
        sites = torch.arange(x.shape[-1], device=x.device)
        return self.level + self.table.to(x.device)[sites, x].sum(-1)

    def relaxed(self, onehot: Tensor, t: float) -> Tensor:
        """The same for one-hot states [B, D, S + 1], linear in them."""
        return self.level + (onehot * self.table.to(onehot)).sum((-1, -2))


@torch.no_grad()
def regressed_value(
    model: Model,
    reward: Rewarding,
    *,
    draws: int = 500,
    order: tuple[int, ...] | None = None,
    steps: int | None = None,
    seed: int = 0,
) -> Regressed:
    """The Monte-Carlo value of SVDD-MC: rewards of base draws regressed on the masked states that led to them.

    Sites are revealed in random order by default, one per step; in a given `order` also in fewer `steps`. The draws use
    a random stream that no run uses.
    """
    check_model(model)
    check_reward_of(reward, 1.0)
    draws = whole_number("draws", draws, 1)
    if order is None or steps is None or steps >= model.length:
        x, path, spent = recorded_draws(model, draws, None, order, seed, 0)
        masked, draw = path.x, path.draw
    else:
        x, masked, draw, spent = _draws_in_steps(model, draws, order, steps, seed)
    log = RunLog()
    value = call_reward(CountedFunction(reward, log), x).cpu()
    if not bool(value.isfinite().any()):
        raise InvalidInput(f"the reward forbids all {len(x)} draws that a value is to be learned from; give more draws")
    rows, goal = torch.cat([masked, x.cpu()]), torch.cat([value[draw], value])
    level = float(goal[goal.isfinite()].mean())
    goal = torch.where(goal.isfinite(), goal - level, goal[goal.isfinite()].min() - level)
    table = _least_squares(rows, goal, model.process.states)
    return Regressed(table, level, spent.plus(log.spent))


def _draws_in_steps(
    model: Model, count: int, order: tuple[int, ...], steps: int, seed: int
) -> tuple[Tokens, Tokens, Tensor, Spent]:
    """Base draws in `steps` steps, their intermediate masked states, the draw that each belongs to, and the cost.

    In a given order an intermediate state is the finished one with its later sites masked.
    """
    log = RunLog()
    way = site_by_site(bind(model, log), order, steps)
    x = base_draws(way, count, seed, _APART)
    process, length = cast("Masking", model.process), model.length
    times = way.grid[:-1][:: -(-count * way.steps * length // _NUMBERS)]
    late = torch.tensor([length - process.count_masked(length, t) for t in times])
    place = torch.tensor(order).argsort()
    rows = torch.where(place >= late[:, None, None], process.mask, x.cpu())  # [steps, draws, D]
    return x, rows.flatten(0, 1), torch.arange(count).repeat(len(late)), log.spent


def _least_squares(rows: Tokens, goal: Tensor, states: int) -> Tensor:
    """A number for each token at each site, [D, states], whose sum over a row approximates its goal.

    Solved with a dense matrix if it is small; else by conjugate gradients on a subset of the rows.
    """
    length = rows.shape[1]
    ridge = 1e-3 * len(rows) / length
    if max(len(rows), length * states) * length * states <= _NUMBERS:
        hot = torch.nn.functional.one_hot(rows, states).flatten(1).double()
        gram = hot.T @ hot
        return torch.linalg.solve(gram + ridge * torch.eye(len(gram)), hot.T @ goal).reshape(-1, states)
    every = -(-rows.numel() // _NUMBERS)
    index = rows[::every] + torch.arange(length) * states
    equations = Equations(index, torch.ones(index.shape, dtype=torch.float64), goal[::every])
    size = torch.ones(length * states, dtype=torch.float64)
    return solve([equations], size * ridge / every, size, _SOLVING).reshape(-1, states)
