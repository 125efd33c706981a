"""SVDD, soft value-based decoding (Li et al. 2024): at each step draw M candidates of a state, keep one by its value.

No state is compared with another's candidates and nothing is weighed, so there is no target: the law is
p0(x) exp(strength r(x)) only for the exact soft value and M without end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.budget import Budget
from ..core.logits import draw_from
from ..core.meter import Meter
from ..core.spent import Spent
from ..core.types import Model, Particles, Potential, Tokens, batch_of, check_model, function, take, whole
from ..smc.sampler import Draws, Source, first_draw, steps_of
from ..smc.stream import CHOOSE, RESAMPLE, Stream
from ..twists.calls import Rewarding, check_reward_of
from ..twists.lookahead import Lookahead
from ..twists.revealing import draws as recorded_draws
from .record import Baseline, CountedReward
from .walks import WalkMaker, remembering, site_by_site


@torch.no_grad()
def svdd(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    value: Potential,
    budget: Budget,
    particles: int = 64,
    candidates: int = 20,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """States that each went, at every step, to one of M candidates, chosen by exp(strength * value). No target.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is asked.
        reward: Function of clean states [B, D]; it chooses among the candidates of the last step.
        strength: One over the paper's temperature; 1 by default.
        value: What a masked state is worth, a function (x, t): `tt.Lookahead` on this model with `tt.plain_mean` for
            SVDD-PM, `regressed_value` for SVDD-MC. What it cost to learn (its `spent`) is counted.
        budget: Evaluations and calls that may be spent.
        particles: States returned, 64 by default.
        candidates: M at most, 20 by default (the paper's); as many as the budget affords. With sites revealed one by
            one they share the site.
        walk: How states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    strength, particles = check_reward_of(reward, strength), whole("particles", particles, 1)
    function("value", value, "(x, t)")
    meter = Meter()
    own = remembering(model, meter)
    way, counted = walk(own), CountedReward(reward, meter)
    before = getattr(value, "spent", Spent())
    looks = isinstance(value, Lookahead)
    fixed = 0 if looks else particles * way.steps  # one pass a step draws all candidates; a look at each is one more
    each = particles * way.steps if looks else 0
    calls = particles * (way.steps - 1) * value.completions if isinstance(value, Lookahead) else 0
    left = _less(budget, before, fixed)
    count = left.most(each, calls + particles, "candidates a step", whole("candidates", candidates, 1))
    if isinstance(value, Lookahead):
        value = replace(value, model=own, reward=counted)
    fk, source = way.fk, Source(Stream(seed, device=model.device))
    state, _ = first_draw(fk, way.grid[0], (1, particles), source)
    everyone = torch.arange(particles, device=state.x.device).repeat_interleave(count)[None]
    for here in steps_of(way.grid):
        u = source.uniforms(here.number, CHOOSE, state.x, fk.choices(here.t, here.s))
        move = fk.move(state, here.t, here.s, u).take(everyone)
        y, _, aux = Draws(source, here.number)(move)
        worth = (counted if here.s == 0 else value)(batch_of(y), here.s).reshape(particles, count)
        spin = source.stream.uniforms(here.number, RESAMPLE, 1, (0, particles)).reshape(particles, 1)
        chosen = draw_from((strength * worth).softmax(-1).cumsum(-1), spin).squeeze(-1)
        kept = (torch.arange(particles, device=chosen.device) * count + chosen)[None]
        state = Particles(take(y, kept), state.log_w, {name: take(part, kept) for name, part in aux.items()})
    return Baseline(state.x[0], None, None, meter.spent.plus(before))


def _less(budget: Budget, spent: Spent, evaluations: int) -> Budget:
    """What is left of a budget."""
    left = budget.evaluations if budget.evaluations is None else budget.evaluations - spent.evaluations - evaluations
    calls = budget.calls if budget.calls is None else budget.calls - spent.calls
    return Budget(None if left is None else max(left, 0), None if calls is None else max(calls, 0))


@dataclass(frozen=True, eq=False)
class Regressed:
    """A number for each token at each site, the mask one of them: the mean reward of the states that come of it."""

    table: Tensor  # [D, S + 1]
    level: float
    spent: Spent

    def __call__(self, x: Tokens, t: float) -> Tensor:
        sites = torch.arange(x.shape[-1], device=x.device)
        return self.level + self.table.to(x.device)[sites, x].sum(-1)


@torch.no_grad()
def regressed_value(
    model: Model, reward: Rewarding, *, draws: int = 500, order: tuple[int, ...] | None = None, seed: int = 0
) -> Regressed:
    """The Monte-Carlo value of SVDD-MC: rewards of base draws regressed on the masked states that led to them."""
    check_model(model)
    check_reward_of(reward, 1.0)
    x, steps, spent = recorded_draws(model, whole("draws", draws, 1), None, order, seed, 0)
    meter = Meter()
    value = CountedReward(reward, meter)(x).cpu()
    states = model.process.states
    rows = torch.cat([steps.x, x.cpu()])
    goal = torch.cat([value[steps.draw], value])
    level = float(goal[goal.isfinite()].mean())
    goal = torch.where(goal.isfinite(), goal - level, goal[goal.isfinite()].min() - level)
    hot = torch.nn.functional.one_hot(rows, states).flatten(1).double()
    gram = hot.T @ hot
    table = torch.linalg.solve(gram + 1e-3 * len(rows) / rows.shape[1] * torch.eye(len(gram)), hot.T @ goal)
    return Regressed(table.reshape(-1, states), level, spent.plus(meter.spent))
