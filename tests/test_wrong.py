"""Wrong variants that must fail: the faults of public codes and the paper's misprints, each caught by an exact answer.

Every test runs the right sampler beside the wrong one on the same problem, and asks the first to pass what the second
fails. (Partial resampling as printed is in test_resampling.py as well, for every scheme.)
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

import truetilt as tt
from problems import clean, flow, guided, hard_table, miss, table, tv, z_limit
from test_unbiased import z_scores
from truetilt.core.types import Particles, Resampled, SiteOdds
from truetilt.diffusion.kernels import SiteLaw
from truetilt.exact.ctmc import jump_generator
from truetilt.exact.tables import flat_index
from truetilt.metrics.divergences import histogram
from truetilt.smc.resampling import effective_sample_size, never
from truetilt.smc.sampler import Source, Stream, first_draw, run_steps, step, steps_of
from truetilt.targets.on_clock import OnClock, Proposal, powers

ALPHA = 4.0


def toy(seed=6):
    return table(tt.Masking, 3, 2, seed=seed)


def test_wrong_final_weights_dropped():
    """What resampling has not yet absorbed is in the final weights; counting the particles equally loses it."""
    problem = toy()
    fk, size = tt.Tempered(problem.model(), 2.0), problem.process.states
    exact = flow(fk, problem, 5).law
    result = tt.run(fk, tt.uniform_grid(5), particles=100_000, seed=0)
    right, wrong = (
        tv(histogram(flat_index(result.particles, size), weights, size**2), exact)
        for weights in (result.weights, torch.ones_like(result.weights))
    )
    assert right < 0.01
    assert wrong > 0.1


def forgets_mass(log_w, u):
    """Resample, then start again from log-weight 0: the usual reset."""
    return Resampled(tt.systematic(log_w, u).ancestors, torch.zeros_like(log_w))


def test_wrong_weights_reset_without_mass():
    """The estimate of Z is lost, and populations can no longer be weighed against each other."""
    problem = toy()
    fk = tt.Tempered(problem.model(), 2.0)
    assert z_scores(fk, problem, tt.adaptive(tt.systematic, 0.9)).abs().max() < z_limit(400)
    assert z_scores(fk, problem, tt.adaptive(forgets_mass, 0.9)).abs().max() > 5 * z_limit(400)


def partial_as_printed(log_w, u):
    """Algorithm 4 as printed: the subset I is redrawn from all particles, at the mean weight of I."""
    n, m = log_w.shape[-1], log_w.shape[-1] // 2
    order = log_w.argsort(dim=-1)
    chosen = torch.cat([order[..., : m - m // 2], order[..., n - m // 2 :]], -1)
    from_all = tt.multinomial(log_w, u).ancestors[..., :m]
    mean = log_w.gather(-1, chosen).logsumexp(-1, keepdim=True) - torch.tensor(float(m)).log()
    ancestors = never(log_w, u).ancestors.scatter(-1, chosen, from_all)
    return Resampled(ancestors, log_w.scatter(-1, chosen, mean.expand(chosen.shape)))


def test_wrong_partial_resampling_as_printed():
    problem = toy()
    fk = tt.Tempered(problem.model(), 2.0)
    assert z_scores(fk, problem, tt.partial(tt.multinomial, 0.5)).abs().max() < z_limit(400)
    assert z_scores(fk, problem, partial_as_printed).abs().max() > 2 * z_limit(400)


@dataclass(frozen=True)
class AlphaInProposal(tt.Tempered):
    """Guides with alpha and weighs by p_zeta/p at power alpha, as if p had proposed: p/q is missing."""

    def propose(self, x, t, s):
        right = tt.Tempered(self.model, self.alpha, self.alpha).propose(x, t, s)
        return Proposal(right.law, tuple((c if c == self.alpha else -self.alpha, law) for c, law in right.ratios[:2]))


def test_wrong_alpha_in_the_proposal_instead_of_the_weight():
    problem = toy()
    assert miss(tt.Tempered(problem.model(), ALPHA, ALPHA), problem, ALPHA, 200) < 0.01
    assert miss(AlphaInProposal(problem.model(), ALPHA), problem, ALPHA, 200) > 0.1
    assert miss(guided(problem, ALPHA), problem, ALPHA, 200) > 0.02  # plain guidance: alpha in the proposal, no weight


def test_wrong_nan_to_num():
    """A reward that is NaN where it should be -inf: mended by nan_to_num it lets forbidden states through."""
    problem = toy()
    forbidden = problem.likelihood < 0.4

    def log_reward(x, t):
        return problem.lookup(torch.nn.functional.pad(problem.likelihood - 0.4, (0, 1, 0, 1), value=0.5), x).log()

    def proper(x, t):
        return torch.where(log_reward(x, t).isnan(), -torch.inf, log_reward(x, t))

    def mended(x, t):
        return torch.nan_to_num(log_reward(x, t))

    right, wrong = (clean(flow(tt.Steered(problem.model(), r), problem, 50).law, problem) for r in (proper, mended))
    assert float(right[forbidden].sum()) == 0
    assert float(wrong[forbidden].sum()) > 0.3
    with pytest.raises(tt.InvalidWeights, match="returned NaN"):
        tt.run(tt.Steered(problem.model(), log_reward), tt.uniform_grid(10), particles=50)


def clamped_euler(process, log_score, x, t, s):
    """delta + R dt, clamped so that it stays a law: P(stay) = max(0, 1 - R dt)."""
    rates = process.rates(log_score, x, t)
    here = torch.arange(process.vocabulary) == x[..., None]  # a "jump" to x is none
    leave = (rates.dense().masked_fill(here, -torch.inf).exp() * (t - s)).double().sum(-1)
    hold = (1 - leave).clamp(min=0.0)
    hold = torch.where(torch.tensor(s == 0) & (x == 3), torch.where(leave > 0, 0.0, 1.0), hold)
    total = rates.dense().masked_fill(here, -torch.inf).double().logsumexp(-1)
    log_move = torch.where(leave > 0, torch.log1p(-hold) - total, -torch.inf)
    return SiteLaw(x, SiteOdds(rates, hold.log(), log_move))


def test_wrong_clamped_euler_depends_on_beta():
    """Where the guided exit rate times dt exceeds 1 the proposal cannot stay, though the base can: support is lost."""
    problem = toy()
    grid, model = tt.uniform_grid(20), problem.model()

    def spread(kernel):
        laws = [
            clean(tt.flow(tt.Tempered(model, 2.0, beta, kernel=kernel), grid, 4, 2).law, problem)
            for beta in (0.0, 1.0, 4.0, 8.0)
        ]
        return max(tv(law, laws[0]) for law in laws)

    assert spread(tt.euler) < 1e-12
    assert spread(clamped_euler) > 0.05


@dataclass(frozen=True)
class NoBaseOverProposal(OnClock):
    """Weighs a guided proposal by the likelihood ratio alone, as several public codes do."""

    def propose(self, x, t, s):
        right = tt.Tempered(self.model, ALPHA, 2.0).propose(x, t, s)
        (_, p), (_, p_zeta), _ = right.ratios
        return Proposal(right.law, powers((1.0, p_zeta), (-1.0, p)))


def test_wrong_proposal_ratio_missing():
    problem = toy()
    assert miss(tt.Tempered(problem.model(), ALPHA, 2.0), problem, ALPHA, 200) < 0.01
    assert miss(NoBaseOverProposal(problem.model()), problem, ALPHA, 200) > 0.05


def continuous_limit(problem, alpha, beta, sign=1.0, jump_logs=True, steps=300):
    """The weighted law of Prop. 4.1 by its forward equation: jumps weighed, and the integral's sign as asked.

    Mass obeys dm/du = sum_x m(x) Q(x,y) w(x,y) - m(y) Q(y) + sign * m(y) V(y), V = Q - R + alpha (R - R1).
    """
    model, process = problem.model(), problem.process
    guide = tt.Guided(process, model.base, model.conditional, beta)
    mass = problem.marginal(1.0).reshape(-1) * problem.lookup(problem.expected(1.0, 1.0), problem.states).exp() ** alpha
    for t, s in pairwise(tt.uniform_grid(steps)):
        middle = 0.5 * (t + s)
        (r, clock), (r1, _), (q, _) = (
            jump_generator(process, score, middle, t, s, problem.length)
            for score in (model.base, model.conditional, guide)
        )
        r, r1, q = (clock * rates for rates in (r, r1, q))
        if jump_logs:
            jumps = torch.where(r > 0, r * (r1 / r.clamp(min=1e-300)) ** alpha, 0.0)  # Q * R/Q * g^alpha
        else:
            jumps = q * (r / (t - s)) * (r1 / (t - s)) ** alpha  # as printed: -ln Q and -ln R dropped from the sums
        out = {name: rates.sum(-1) for name, rates in (("q", q), ("r", r), ("r1", r1))}
        integral = out["q"] - out["r"] + alpha * (out["r"] - out["r1"])
        mass = mass @ torch.linalg.matrix_exp(jumps + torch.diag(sign * integral - out["q"]))
        mass = mass / mass.sum()
    return clean(mass, problem)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_wrong_proposition_4_1_as_printed(beta):
    """Its integral runs from 1 down to t, which flips its sign, and its jump sums lack -ln Q and -ln R."""
    problem = table(tt.Uniform, 3, 2, seed=6, schedule=tt.LogLinear(0.2))
    target = problem.target(2.0)
    assert tv(continuous_limit(problem, 2.0, beta), target) < 2e-3
    assert tv(continuous_limit(problem, 2.0, beta, sign=-1.0), target) > 0.02
    assert tv(continuous_limit(problem, 2.0, beta, jump_logs=False, steps=50), target) > 0.02


def test_wrong_dead_particles_revived():
    """-inf less -inf is NaN: increments mended by nan_to_num bring back particles that a hard constraint killed."""
    problem, grid = hard_table(tt.Masking), tt.uniform_grid(20)
    fk = tt.Steered(problem.model(), problem.potential, 1.0, tt.Power(0.0))
    run = [p for p, _ in run_steps(fk, grid, (1, 2000), never, Source(Stream(0)))]
    h = torch.stack([problem.potential(p.x, t) for p, t in zip(run, grid, strict=True)])
    mended = h[0] + torch.nan_to_num(h.diff(dim=0), nan=0.0, neginf=0.0).sum(0)
    states = flat_index(run[-1].x, 3)
    forbidden = (problem.p0 * problem.likelihood).reshape(-1)[states] == 0
    assert 500 < int(forbidden.sum()) < 1500  # many have died, some on the way
    assert ((h[1:-1] == -torch.inf) & forbidden).any()
    assert torch.equal(run[-1].log_w == -torch.inf, forbidden)
    right, wrong = (histogram(states, log_w.softmax(-1), 9) for log_w in (run[-1].log_w, mended))
    assert tv(right, problem.target(1.0).reshape(-1)) < 0.03
    assert tv(wrong, problem.target(1.0).reshape(-1)) > 0.1


def algorithm_two(threshold, printed, start=1.0, steps=40, n=20_000):
    """Algorithm 2 with systematic resampling: of what a step made or, as printed, of what was there before it."""
    fk, source, grid = tt.Tempered(toy().model(), ALPHA), Source(Stream(0)), tt.uniform_grid(steps)
    now = first_draw(fk, grid[0], (1, n), source)[0]
    now = now._replace(log_w=now.log_w + torch.tensor(start, dtype=torch.float64).log())
    for here in steps_of(grid):
        then = step(fk, now, here, never, source)[0]
        kept = now if printed else then
        if effective_sample_size(kept.log_w) <= threshold * n and (printed or here.number < steps):
            chosen = tt.systematic(kept.log_w, Stream(1).uniforms(here.number, 0, 1, n))
            x = kept.x.gather(1, chosen.ancestors[..., None].expand(kept.x.shape))
            then = Particles(x, chosen.log_w, {k: v.gather(1, chosen.ancestors) for k, v in kept.aux.items()})
        now = then
    return now


def test_wrong_order_of_events_of_algorithm_two_as_printed():
    """A step that resamples what was there before it is undone: resampled in every step, no particle leaves time 1."""
    problem = toy()
    mask, size = problem.process.mask, problem.process.states
    for threshold, undone in ((1.0, 1.0), (0.8, 0.1)):
        right, wrong = (algorithm_two(threshold, printed) for printed in (False, True))
        law = histogram(flat_index(right.x, size), right.log_w.softmax(-1), size**2)
        assert tv(clean(law, problem), problem.target(ALPHA)) < 0.08
        assert not (right.x == mask).any()
        assert float((wrong.x == mask).any(-1).double().mean()) >= undone


def test_wrong_start_of_algorithm_two_as_printed():
    """Weights that start at 0 stay there, whatever they are multiplied by."""
    assert algorithm_two(0.5, False).log_w.isfinite().all()
    with pytest.raises(tt.DegenerateWeights):
        algorithm_two(0.5, False, start=0.0)
