"""Moves for rewards, potentials and composed targets: exact transition matrices leave every allowed target alone.

Each kernel says all that it may do (`branches`); the mass of all states is pushed through it and must come out as it
was, and a move must remember of the state it ends in what a run would. That `move` draws by the same law is a z-test.
"""

from dataclasses import dataclass
from functools import partial

import pytest
import torch

import truetilt as tt
from problems import table, tv
from rewarded import NEG_INF, hard, rewarded
from truetilt.core.types import Particles
from truetilt.exact.flow import push_branches, support
from truetilt.exact.tables import flat_index
from truetilt.targets.block_moves import Block
from truetilt.targets.moves import Metropolis
from truetilt.targets.stage import minus

R, H = rewarded(), hard()
WIDE = (1.4, (2.0, -0.7), 1.5)
HARD = (1.4, (2.0, 0.5), 1.5)
SCANS = [tt.random_scan, tt.systematic_scan, tt.backward_scan]


def partly(problem, joint):
    """log of the sum over completions of a law of clean states, for every state with masks."""
    x = problem.tables[0].states
    fits = ((x[:, None] == problem.states) | (x[:, None] == problem.vocabulary)).all(-1).double()
    return (fits @ joint.reshape(-1)).log()


def memory(problem, conditions, values):
    """What a run remembers of every state: log p(x_U), log p(zeta_k|x_U)/p(zeta_k), values."""
    log_p = partly(problem, problem.tables[0].p0)
    given = [partly(problem, t.p0 * t.likelihood / t.evidence) for t in problem.tables[:conditions]]
    ratios = [torch.where(log_p > NEG_INF, g - log_p, NEG_INF) for g in given]
    none = log_p.new_zeros(*log_p.shape, 0)
    return {"log_p": log_p, "log_ratios": torch.stack(ratios, -1) if ratios else none, "values": values}


def at_level(problem, parts, factors, values, masked):
    """The law prod of powers over states with so many masks, normalised, and the memory of all states."""
    gamma, alphas = parts
    aux = memory(problem, len(alphas), values)
    total = gamma * aux["log_p"]
    for part, alpha in zip(aux["log_ratios"].unbind(-1), alphas, strict=True):
        total = total if alpha == 0 else total + torch.where(part == NEG_INF, NEG_INF, alpha * part)
    for value, factor in zip(values.unbind(-1), factors, strict=True):
        total = total if factor == 0 else total + torch.where(value == NEG_INF, NEG_INF, factor * value)
    there = (problem.tables[0].states == problem.vocabulary).sum(-1) == masked
    there &= aux["log_p"] > NEG_INF
    return torch.where(there, total, NEG_INF).log_softmax(0), aux


def rewards_of(problem):
    """The reward of clean states, 0 of others."""
    x = problem.tables[0].states
    clean = (x < problem.vocabulary).all(-1)
    return torch.where(clean, problem.rewards.reshape(-1)[flat_index(x.clamp(max=2), 3)], 0.0)


def assert_still(problem, kernel, t, log_law, aux):
    """A move leaves the law alone, and remembers what is so of where it ends; each of three that come in turn."""
    numbers = range(1) if getattr(kernel, "scan", tt.random_scan) is tt.random_scan else range(3)
    states, size = problem.tables[0].states, problem.vocabulary + 1
    alive = (log_law > NEG_INF).nonzero().squeeze(-1)
    at = Particles(states[alive], log_law[alive], {k: v[alive] for k, v in aux.items()})
    for number in numbers:
        branches = kernel.branches(at, t, number)
        out, _ = push_branches(branches, at.log_w, states, size)
        assert (out.exp() - log_law.exp()).abs().max() < 1e-12, number
        for log_p, move in branches:
            assert_remembered(log_p, move, at, aux, size)


def assert_remembered(log_p, move, at, aux, size):
    going = (log_p > NEG_INF).nonzero().squeeze(-1)
    if len(going) == 0:
        return
    taken = move.take(going)
    assert (taken.log_before == 0).all()
    y, log_q = support(taken.law, at.x, len(going))
    parent = torch.arange(len(going)).repeat_interleave(log_q.shape[1])
    log_after, found = taken.take(parent).after(y.flatten(0, 1))
    possible = (log_q > NEG_INF).reshape(-1)
    assert (log_after[possible] == 0).all()
    place = flat_index(y.flatten(0, 1), size)[possible]
    for key, value in aux.items():
        assert torch.allclose(found[key][possible], value[place], rtol=0, atol=1e-12), key


KERNELS = {
    **{f"gibbs {scan.__name__}": partial(tt.Gibbs, scan=scan) for scan in SCANS},
    "metropolis": tt.Metropolis,
    "surrogate": lambda fk: tt.Metropolis(fk, surrogate=R.twist),
    "surrogate, in turn": lambda fk: tt.Metropolis(fk, tt.systematic_scan, R.twist),
    "block of 1": partial(tt.Block, size=1),
    "block of 2": partial(tt.Block, size=2),
    "block of 3": partial(tt.Block, size=3),
    "block, surrogate": lambda fk: tt.Block(fk, 2, R.twist),
}
CLEAN = {
    "pair": tt.Pair,
    "pair, in turn": lambda fk: tt.Pair(fk, tt.systematic_scan),
    "pair, apart": lambda fk: tt.Pair(fk, tt.backward_scan, apart=2),
}
WHOLE = {
    "whole": lambda fk, p: tt.WholeSequence(fk, p.log_p0),
    "whole, in turn": lambda fk, p: tt.WholeSequence(fk, p.log_p0, tt.systematic_scan),
    "whole, proposed": lambda fk, p: tt.WholeSequence(fk, p.log_p0, proposal=p.model.base),
    "whole, proposed otherwise": lambda fk, p: tt.WholeSequence(fk, p.log_p0, proposal=p.model.conditional),
}


@pytest.mark.parametrize("name", KERNELS | CLEAN)
@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
def test_composed_at_the_end(problem, name):
    parts = WIDE if problem is R else HARD
    fk, values = problem.composed(*parts, twist=problem.twist), rewards_of(problem)[:, None]
    log_law, aux = at_level(problem, parts[:2], parts[2:], values, 0)
    assert_still(problem, (KERNELS | CLEAN)[name](fk), 0.0, log_law, aux)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("masked", [1, 2])
@pytest.mark.parametrize("ramp", [tt.Power(0.0), tt.Power(1.0)])
def test_composed_on_the_way(masked, name, ramp):
    t = R.grid[3 - masked]
    share = ramp(1 - t)
    parts = 1 + share * 0.4, (1 + share, -share * 0.7)
    log_law, aux = at_level(R, parts, (share * 1.5,), R.twists[:, None], masked)
    assert_still(R, KERNELS[name](R.composed(*WIDE, twist=R.twist, ramp=ramp)), t, log_law, aux)


@pytest.mark.parametrize("name", ["gibbs random_scan", "metropolis", "surrogate", "block of 2"])
def test_composed_without_a_twist_on_the_way(name):
    log_law, aux = at_level(R, (1.4, (2.0, -0.7)), (0.0,), torch.zeros(64, 1).double(), 1)
    assert_still(R, KERNELS[name](R.composed(*WIDE)), R.grid[2], log_law, aux)


@pytest.mark.parametrize("name", KERNELS | CLEAN)
@pytest.mark.parametrize("ramp", [tt.Power(0.0), tt.Power(1.0)])
def test_any_order(name, ramp):
    fk = tt.AnyOrder(R.model, 3.0, ramp=ramp)
    for masked in (0, 1, 2) if name in KERNELS else (0,):
        t = R.grid[3 - masked]
        parts = 1.0, (1 + 2 * ramp(1 - t),)
        log_law, aux = at_level(R, parts, (0.0,), torch.zeros(64, 1).double(), masked)
        assert_still(R, (KERNELS | CLEAN)[name](fk), t, log_law, aux)


@pytest.mark.parametrize("name", [name for name in KERNELS | CLEAN if name not in ("block of 1", "block of 3")])
@pytest.mark.parametrize("twisted", [True, False])
def test_annealed(name, twisted):
    """Between the shares on clean states; and while it reveals, for moves that may move there."""
    fk = tt.Annealed(R.composed(*WIDE, twist=R.twist if twisted else None), [0.3, 0.3, 1.0], floor=-1.0)
    kernel = (KERNELS | CLEAN)[name](fk)
    both = torch.stack([R.twists if twisted else torch.zeros(64).double(), rewards_of(R)], -1)
    for t, share in zip(fk.grid[4:], (0.3, 0.3, 1.0), strict=True):
        floored = both.clamp(min=-1.0) if share < 1 else both
        parts = 1 + share * 0.4, (1 + share, -share * 0.7)
        log_law, _ = at_level(R, parts, ((1 - share) * 1.5 * twisted, share * 1.5), floored, 0)
        aux = memory(R, 2, both if share < 1 else both * torch.tensor([0.0, 1.0]))  # what counts for nothing is 0
        assert_still(R, kernel, t, log_law, aux)
    if name in KERNELS:
        log_law, aux = at_level(R, (1.0, (1.0, 0.0)), (1.5 * twisted,), both[:, :1] * twisted, 1)
        assert_still(R, kernel, fk.grid[2], log_law, aux)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
def test_whole_sequences(problem, name):
    values = rewards_of(problem)[:, None]
    log_law, aux = at_level(problem, (1.4, ()), (1.5,), values, 0)
    assert_still(problem, WHOLE[name](problem.composed(1.4, (), 1.5, twist=problem.twist), problem), 0.0, log_law, aux)
    fk = tt.Annealed(problem.composed(1.4, (), 1.5, twist=problem.twist), [0.25, 1.0])
    both = torch.cat([problem.twists[:, None], values], -1)
    log_law, aux = at_level(problem, (1.1, ()), (0.75 * 1.5, 0.25 * 1.5), both, 0)
    assert_still(problem, WHOLE[name](fk, problem), fk.grid[4], log_law, aux)


def in_clock_time(fk, problem, t):
    """The law of a clock-time value with exact scores, and the tilt that its run remembers."""
    base = problem.tables[0].conditional_marginal(t) if isinstance(fk, tt.Tilted) else problem.tables[0].marginal(t)
    log_base, tilt = base.log().reshape(-1), fk.tilt(problem.tables[0].states, t)
    alive = log_base > NEG_INF
    tilt = torch.where(alive, tilt, 0.0)
    return torch.where(alive, log_base + tilt, NEG_INF).log_softmax(0), {"log_tilt": tilt}


def clock_values(problem, ramp):
    """Tilted by its potential, and steered by a function of masked states whose values at t = 0 are the reward."""
    return {
        "tilted": tt.Tilted(problem.model, 4.0, ramp),
        "steered": tt.Steered(problem.model, problem.twist, 1.5, ramp),
        "steered by the potential": tt.Steered(problem.model, problem.model.potential, 2.0, ramp),
    }


@pytest.mark.parametrize("t", [0.0, 0.35])
@pytest.mark.parametrize("value", clock_values(R, tt.Power(1.0)))
@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
def test_tilted_and_steered(problem, value, t):
    fk = clock_values(problem, tt.Power(1.0))[value]
    log_law, aux = in_clock_time(fk, problem, t)
    on_the_way = {name: make for name, make in KERNELS.items() if not name.startswith("block")}
    for make in (KERNELS | CLEAN if t == 0 else on_the_way).values():
        assert_still(problem, make(fk), t, log_law, aux)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_sequences_of_a_steered_value(name):
    fk = tt.Steered(R.model, R.twist, 1.5)
    log_law, aux = in_clock_time(fk, R, 0.0)
    assert_still(R, WHOLE[name](fk, R), 0.0, log_law, aux)


def test_whole_sequences_of_a_tilted_value_are_those_of_its_conditional_base():
    fk, given = tt.Tilted(R.model, 3.0), R.tables[0]
    log_law, aux = in_clock_time(fk, R, 0.0)
    law = (given.p0 * given.likelihood / given.evidence).log().reshape(-1)
    kernel = tt.WholeSequence(fk, lambda x: law[flat_index(x, 3)])
    assert_still(R, kernel, 0.0, log_law, aux)
    with pytest.raises(AssertionError):
        assert_still(R, tt.WholeSequence(fk, R.log_p0), 0.0, log_law, aux)


def test_a_surrogate_that_forbids_states_keeps_the_target():
    """-inf for some tokens, and for all tokens of a site in some states: then nothing is proposed that is accepted."""

    def harsh(x, t):
        return torch.where((x[:, 0] == 0) | (x[:, 2] == 1), NEG_INF, R.twist(x, t))

    fk, values = R.composed(*WIDE), rewards_of(R)[:, None]
    log_law, aux = at_level(R, WIDE[:2], WIDE[2:], values, 0)
    for kernel in (tt.Metropolis(fk, surrogate=harsh), tt.Block(fk, 2, harsh), tt.Block(fk, 3, harsh)):
        assert_still(R, kernel, 0.0, log_law, aux)


# that `move` does what `branches` says, with draws: false alarms as tt.testing says


@pytest.mark.parametrize(
    "name", ["gibbs random_scan", "metropolis", "surrogate", "block of 2", "block, surrogate", "pair"]
)
def test_moves_are_drawn_as_they_say(name):
    """On another table: the twist is that of the three tokens there."""

    def value(model):
        return tt.Composed(model, reward=model.potential, twist=model.potential, strength=2.0)

    def kernel(model):
        h = model.potential
        made = {
            "surrogate": lambda fk: tt.Metropolis(fk, surrogate=lambda x, t: 0.5 * h(x, t)),
            "block, surrogate": lambda fk: tt.Block(fk, 2, surrogate=lambda x, t: 0.5 * h(x, t)),
        }
        return (KERNELS | CLEAN | made)[name](value(model))

    tt.testing.check_move(kernel, lambda p: p.target(2.0), along=None if name == "pair" else value)


def test_whole_sequences_are_drawn_as_they_say():
    problem = {}

    def kernel(model):
        return tt.WholeSequence(
            tt.Composed(model, reward=model.potential, strength=2.0),
            lambda x: problem["log_p0"](x),
            proposal=model.base,
        )

    def law(p):
        return p.target(2.0)

    def log_p0(x):
        p0 = tt.testing.tables.small_table(tt.Masking(3), 3).p0.log()
        return p0.reshape(-1)[flat_index(x, p0.shape[0])]

    problem["log_p0"] = log_p0
    tt.testing.check_move(kernel, law)


# where moves are refused


def test_moves_that_are_right_on_clean_states_only_are_refused_earlier():
    fk = R.composed(strength=1.0, twist=R.twist)
    for kernel in (tt.Pair(fk), tt.WholeSequence(fk, R.log_p0)):
        with pytest.raises(tt.InvalidInput, match="move at_end only"):
            tt.run(fk, R.grid, particles=4, moves=tt.Rejuvenation(kernel, each_step=1))
        tt.run(fk, R.grid, particles=4, moves=tt.Rejuvenation(kernel, at_end=1))
    tilted = tt.Tilted(R.model, 3.0)
    with pytest.raises(tt.InvalidInput, match="move at_end only"):
        tt.run(tilted, tt.uniform_grid(5), particles=4, moves=tt.Rejuvenation(tt.Block(tilted, 2), each_step=1))


def test_bad_input():
    fk = R.composed(*WIDE)
    for apart in (0, 3, 1.5, True):
        with pytest.raises(tt.InvalidInput, match="apart"):
            tt.Pair(fk, apart=apart)
    with pytest.raises(tt.InvalidInput, match="and not log p"):
        tt.WholeSequence(fk, R.log_p0)
    with pytest.raises(tt.InvalidInput, match="log_prob"):
        tt.WholeSequence(R.composed(strength=1.0), 3.0)
    for make in (partial(tt.Metropolis, surrogate=3.0), partial(tt.Block, size=2, surrogate=3.0)):
        with pytest.raises(tt.InvalidInput, match="the surrogate"):
            make(fk)
    broken = tt.Rejuvenation(tt.Metropolis(fk, surrogate=lambda x, t: R.twist(x, t) * torch.nan), at_end=1)
    with pytest.raises(tt.InvalidWeights, match="NaN"):
        tt.run(fk, R.grid, particles=4, moves=broken)
    with pytest.raises(tt.InvalidInput, match="has no mask"):
        tt.Gibbs(tt.Steered(table(tt.Uniform, 3, 2).model(), lambda x, t: x.sum(-1).double()))


@pytest.mark.parametrize("kernel", [tt.Metropolis, tt.Gibbs])
def test_a_noisy_reward_is_moved_by_the_number_that_was_kept_or_not_at_all(kernel):
    """One site, each number one of two at random: the limit is p0 E[e^r], and 20,000 particles must show it.

    A proposal of the token that a state has may not bring a fresh number: that missed by .046. The standard deviation
    of each of the four frequencies is below .006 (an effective sample of 7,000 or more), so that TV stays below .02.
    """
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)

    def noise(x):
        sign = 2.0 * torch.randint(0, 2, (len(x),), generator=generator) - 1
        return sign * spread[x[:, 0]]

    problem = tt.Table(tt.Masking(4), torch.tensor([0.4, 0.3, 0.2, 0.1]), torch.ones(4))
    reward = tt.Reward(noise, vocabulary=4, noisy=True)
    fk = tt.Composed(problem.model(), reward=reward)
    exact = (problem.p0 * spread.cosh()).reshape(-1)
    moves = tt.Rejuvenation(kernel(fk), at_end=20)
    result = tt.run(fk, tt.masked_fraction_grid(problem.process.schedule, 1), particles=20_000, moves=moves)
    law = torch.zeros(4, dtype=torch.float64).index_add(0, result.particles[0, :, 0], result.weights[0])
    assert tv(law, exact / exact.sum()) < 0.02
    assert tv(problem.p0.reshape(-1), exact / exact.sum()) > 0.1
    steered = tt.Steered(problem.model(), reward)
    with pytest.raises(tt.InvalidInput, match="asks a noisy reward again"):
        kernel(steered)
    tt.Annealed(fk, 4, kernel=kernel)


# wrong variants


class BlockWithoutMasses(Block):
    """Accepts by the values alone, as if the block had been drawn at once."""

    def _walk(self, x, t, sites, draw, first):
        walk = super()._walk(x, t, sites, draw, first)
        return walk._replace(log_mass=torch.zeros_like(walk.log_mass))


@dataclass(frozen=True)
class SurrogateNotCorrected(Metropolis):
    """The twist proposes and the reward accepts, as if the base had proposed."""

    def at(self, particles, t, site, draw):
        move = super().at(particles, t, site, draw)
        stage = self.fk.stage(t)
        log_x, log_y = stage.total(self.fk.values(particles, t)), stage.total(stage.values(move.y))
        return type(move)(move.x, move.y, minus(log_y, log_x).clamp(max=0.0), move.aux_x, move.aux_y)


def missed(kernel, parts):
    """TV between a composed target and what a move makes of it."""
    values = rewards_of(R)[:, None]
    log_law, aux = at_level(R, parts[:2], parts[2:], values, 0)
    states = R.tables[0].states
    alive = (log_law > NEG_INF).nonzero().squeeze(-1)
    at = Particles(states[alive], log_law[alive], {k: v[alive] for k, v in aux.items()})
    return tv(push_branches(kernel.branches(at, 0.0, 0), at.log_w, states, 4)[0].exp(), log_law.exp())


def test_wrong_block_without_its_masses():
    parts = (1.0, (4.0,), 1.0)
    fk = R.composed(*parts)
    assert missed(tt.Block(fk, 2), parts) < 1e-12
    assert missed(BlockWithoutMasses(fk, 2), parts) > 0.01


def test_wrong_surrogate_without_its_correction():
    fk = R.composed(*WIDE)
    assert missed(tt.Metropolis(fk, surrogate=R.twist), WIDE) < 1e-12
    assert missed(SurrogateNotCorrected(fk, surrogate=R.twist), WIDE) > 0.03
