"""Conditional SMC and particle Gibbs against exact path laws on enumerable spaces; and wrong variants that must fail.

Starting paths are drawn from the proposal and carry their weight w, so that E[w phi(path)] / Z is the path law exactly,
and a sweep that leaves the path law invariant leaves these means where they are: the joint law of (middle state, final
state) must be what enumeration says, for every model and any N >= 2. False alarms: each test compares at most 400
z-scores and fails by chance with probability 5e-7 (problems.z_limit).
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import pytest
import torch

import truetilt as tt
from problems import hard_table, table, z_limit
from truetilt.core.bases import FeynmanKac
from truetilt.core.logits import take
from truetilt.core.types import Particles, Resampled
from truetilt.exact.flow import push, push_branches
from truetilt.exact.joint import JointTempered
from truetilt.exact.tables import enumerate_states, flat_index
from truetilt.smc import conditional
from truetilt.smc.conditional import NO_RESAMPLING, Rule, Sweep, generations, resample
from truetilt.smc.paths import trace_back
from truetilt.smc.sampler import OUTPUT, Stream

CHAINS, STEPS, RARE = 20_000, 5, 20  # cells that expect fewer contributions than RARE are pooled
LIMIT = z_limit(400)
PROBLEMS = {
    "masking": table(tt.Masking, 3, 2, seed=6),
    "uniform": table(tt.Uniform, 3, 2, seed=6),
    "three": table(tt.Masking, 2, 3, seed=6),
}


def misleading(x, t):
    """A potential that is right only at the end, and before that the wrong way up (less 9, to stay below 0)."""
    return PROBLEMS["masking"].potential(x, t) if t == 0 else -PROBLEMS["masking"].potential(x, t) - 9.0


MODELS = {  # the problem, the model, the steps
    "tempered": ("masking", lambda m: tt.Tempered(m, 2.0), STEPS),
    "tempered, guided": ("masking", lambda m: tt.Tempered(m, 2.0, 1.7), STEPS),
    "tilted": ("masking", lambda m: tt.Tilted(m, 4.0, tt.Power(0.0)), STEPS),
    "tilted, misled": ("masking", lambda m: tt.Tilted(replace(m, potential=misleading), 3.0, tt.Power(1.0)), STEPS),
    "tilted, uniform": ("uniform", lambda m: tt.Tilted(m, 4.0, tt.Power(1.0)), STEPS),
    "joint": ("masking", lambda m: JointTempered(PROBLEMS["masking"], 2.0), 3),
    "any order": ("masking", lambda m: tt.AnyOrder(m, 3.0), 2),
    "any order, guided": ("masking", lambda m: tt.AnyOrder(m, 3.0, 1.0, ramp=tt.Power(1.0)), 2),
    "any order, given": ("masking", lambda m: tt.AnyOrder(m, 3.0, order=(1, 0)), 2),
    "any order, one then two": ("three", lambda m: tt.AnyOrder(m, 3.0, ramp=tt.Power(1.0)), 2),
}
EVERY_STEP = Rule(1.0)
WAYS = {
    "adaptive": Rule(0.7),
    "never": NO_RESAMPLING,
    "ancestors, every step": Rule(1.0, tt.ancestor_sampling),
    "ancestors, adaptive": Rule(0.7, tt.ancestor_sampling),
}


@cache
def setting(name):
    """The Feynman-Kac value, its grid, and the states of a site and the sites of its problem."""
    problem, make, steps = MODELS[name]
    problem = PROBLEMS[problem]
    return make(problem.model()), tt.uniform_grid(steps), problem.process.states, problem.length


@cache
def joint_mass(name):
    """The exact mass of (state at the middle, final state) on path space [K, K], by enumeration; it sums to Z."""
    fk, grid, size, length = setting(name)
    states, middle = enumerate_states(size, length), len(grid) // 2
    mass, aux = push(fk.start((1,), grid[0]), torch.zeros(1, dtype=torch.float64), states, size)
    mass, aux = onward(fk, grid[: middle + 1], states, (mass, aux))
    joint = torch.zeros(len(states), len(states), dtype=torch.float64)
    for i in (mass > -math.inf).nonzero().squeeze(-1):
        alone = torch.full_like(mass, -math.inf).index_fill(0, i, float(mass[i]))
        joint[i] = onward(fk, grid[middle:], states, (alone, aux))[0].exp()
    assert torch.allclose(joint.sum(0), tt.flow(fk, grid, size, length).log_mass.exp(), atol=1e-12)
    return joint


def onward(fk, grid, states, weighed):
    """Push mass through the moves of a part of the grid."""
    mass, aux = weighed
    for t, s in pairwise(grid):
        alive = mass > -math.inf
        particles = Particles(states[alive], mass[alive], {key: value[alive] for key, value in aux.items()})
        mass, aux = push_branches(fk.branches(particles, t, s), particles.log_w, states, int(states.max()) + 1)
    return mass, aux


@cache
def weighted_paths(name, seed=0):
    """Independent paths of the proposal, and their weights."""
    fk, grid, *_ = setting(name)
    history = list(generations(fk, grid, None, (CHAINS, 1), Sweep(Stream(seed), 0), NO_RESAMPLING))
    return trace_back(history, torch.zeros(CHAINS, 1, dtype=torch.int64)), history[-1].particles.log_w[:, 0].exp()


def cells(name, path):
    """(middle, final) as one number."""
    _, grid, size, length = setting(name)
    return flat_index(path.states[len(grid) // 2], size) * size**length + flat_index(path.end, size)


def worst(name, path, w=None):
    """The largest |z| of the weight at (middle, final) and at the final state alone, against enumeration."""
    exact = joint_mass(name) if w is not None else joint_mass(name) / joint_mass(name).sum()
    w = torch.ones(path.states.shape[1], dtype=torch.float64) if w is None else w
    cell = cells(name, path)
    pairs, ends = largest_z(cell, exact.reshape(-1), w), largest_z(cell % len(exact), exact.sum(0), w)
    return max(pairs, ends)


def largest_z(cell, exact, w):
    """Of the mean weight in each cell, the rare ones pooled; infinite when a path is where none can be."""
    if (exact[cell] == 0).any():
        return math.inf
    chains = len(cell)
    common = chains * exact / w.max() >= RARE
    pooled = torch.where(common, torch.arange(len(exact)), len(exact))  # the rare ones together
    exact = torch.zeros(len(exact) + 1, dtype=w.dtype).index_add(0, pooled, exact)
    sums, squares = (torch.zeros_like(exact).index_add(0, pooled[cell], w**k) for k in (1, 2))
    mean, error = sums / chains, ((squares / chains - (sums / chains) ** 2).clamp(min=0) / chains).sqrt()
    seen = (chains * exact / w.max() >= RARE) & (error > 1e-9)
    return float(((mean - exact) / error)[seen].abs().max())


def sweep(name, n, rule=EVERY_STEP):
    """One sweep from the weighted paths."""
    fk, grid, *_ = setting(name)
    return tt.conditional_smc(fk, grid, weighted_paths(name)[0], (CHAINS, n), (Stream(1), 1), rule)


@pytest.mark.parametrize("name", MODELS)
def test_a_sweep_leaves_the_path_law_as_it_is(name):
    before, w = weighted_paths(name)
    assert worst(name, before, w) < LIMIT
    for n in (2, 3):
        after = sweep(name, n)
        assert worst(name, after, w) < LIMIT
        assert (after.end != before.end).any(-1).double().mean() > 0.1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["tempered", "tilted, misled", "tilted, uniform", "any order, one then two"])
def test_so_it_does_however_it_resamples_and_whomever_the_reference_descends_from(name, way):
    assert worst(name, sweep(name, 3, WAYS[way]), weighted_paths(name)[1]) < LIMIT


@pytest.mark.parametrize("name", ["tempered", "tilted, uniform", "any order"])
def test_chains_started_anywhere_reach_the_path_law(name):
    """All start from one path, which ends in the rarest state: not there after one sweep, there after twelve."""
    fk, grid, size, _ = setting(name)
    paths, _ = weighted_paths(name)
    law = joint_mass(name).sum(0)
    one = law[flat_index(paths.end, size)].argmin().expand(CHAINS)
    start = tt.Trajectory(paths.states[:, one], tuple(u[one] for u in paths.choices))
    early = tt.particle_gibbs(fk, grid, start, particles=5, sweeps=1, seed=3)
    late = tt.particle_gibbs(fk, grid, early.last, particles=5, sweeps=11, seed=3, first_sweep=1)
    assert worst(name, early.last) > 2 * LIMIT
    assert worst(name, late.last) < LIMIT


def test_a_plain_draw_of_few_particles_is_biased_and_sweeps_mend_it():
    fk, grid, *_ = setting("tilted")
    plain = tt.conditional_smc(fk, grid, None, (CHAINS, 3), (Stream(5), 0))
    mended = tt.particle_gibbs(fk, grid, particles=3, chains=CHAINS, sweeps=12, seed=5).last
    assert worst("tilted", plain) > 2 * LIMIT
    assert worst("tilted", mended) < LIMIT


def unprotected(move, log_w, y, u):
    """The ancestor of the reference's slot drawn as any other's."""
    return tt.multinomial(log_w, u).ancestors[:, :1]


@pytest.mark.parametrize("name", ["tilted", "tilted, uniform"])
def test_wrong_lineage_of_the_reference_not_protected(name, monkeypatch):
    """Its next state is then put after a stranger, and nothing weighs how likely that is."""
    w = weighted_paths(name)[1]
    assert worst(name, sweep(name, 3), w) < LIMIT
    monkeypatch.setattr(conditional, "check_possible", lambda log_q, where: None)
    assert worst(name, sweep(name, 3, Rule(1.0, unprotected)), w) > 2 * LIMIT


@pytest.mark.parametrize("name", ["tempered", "tilted", "any order, guided"])
def test_wrong_new_path_chosen_uniformly(name):
    fk, grid, *_ = setting(name)
    path, w = weighted_paths(name)
    history = list(generations(fk, grid, path, (CHAINS, 3), Sweep(Stream(1), 1), NO_RESAMPLING))
    u = Stream(1).uniforms(0, OUTPUT, CHAINS, 1)
    by_weight = tt.multinomial(history[-1].particles.log_w, u).ancestors[:, :1]
    assert worst(name, trace_back(history, by_weight), w) < LIMIT
    assert worst(name, trace_back(history, (3 * u).long()), w) > 2 * LIMIT


@dataclass(frozen=True)
class Coin:
    """A fair coin for each particle; its memory is how many ones its path has shown, each worth log_worth now."""

    ones: torch.Tensor
    log_worth: tuple[float, float]  # before the toss and after it
    uniforms: int = 1

    @property
    def law(self):
        return self

    @property
    def log_before(self):
        return torch.zeros_like(self.ones)

    def sample(self, u):
        return (u < 0.5).long()

    def log_prob(self, y):
        return torch.full_like(self.ones, math.log(0.5))

    def after(self, y):
        ones = self.ones + y[..., 0]
        return self.log_worth[1] * ones - self.log_worth[0] * self.ones, {"ones": ones}

    def take(self, ancestors):
        return replace(self, ones=take(self.ones, ancestors))


class Coins(FeynmanKac):
    """Tosses whose path weighs 3^ones: under the path law each shows a one with chance 3/4, independently."""

    def start(self, shape, t):
        return Coin(torch.zeros(shape, dtype=torch.float64), (0.0, self.log_worth(t)))

    def log_worth(self, t):
        return math.log(3.0) if t == 0 else t - 0.5

    def move(self, particles, t, s, u):
        return Coin(particles.aux["ones"], (self.log_worth(t), self.log_worth(s)))


def test_wrong_ancestors_drawn_without_regard_to_memory(monkeypatch):
    """Later weights read the memory of the whole path: a stranger's past changes them."""
    grid, rule = tt.uniform_grid(3), Rule(1.0, tt.ancestor_sampling)
    tosses = (Stream(7).uniforms(0, OUTPUT, CHAINS, 4) < 0.75).long().T[..., None]
    start = tt.Trajectory(tosses, (torch.empty(CHAINS, 0, dtype=torch.float64),) * 3)
    ones = enumerate_states(2, 4).sum(-1)
    exact = 0.75 ** ones.double() * 0.25 ** (4 - ones.double())

    def worst_path(rule):
        path = tt.conditional_smc(Coins(), grid, start, (CHAINS, 4), (Stream(1), 1), rule)
        return largest_z(flat_index(path.states[..., 0].T, 2), exact, torch.ones(CHAINS, dtype=torch.float64))

    assert worst_path(EVERY_STEP) < LIMIT
    assert worst_path(rule) < LIMIT
    monkeypatch.setattr(conditional, "_ROUNDING", 1e9)
    assert worst_path(rule) > 2 * LIMIT


@dataclass(frozen=True)
class Hop:
    """Stay at 0 or 1 or hop to the other, and weigh a one by log_gain; there is nothing to remember."""

    x: torch.Tensor
    stay: float
    log_gain: float
    uniforms: int = 1

    @property
    def law(self):
        return self

    @property
    def log_before(self):
        return torch.zeros(self.x.shape[:-1], dtype=torch.float64)

    def sample(self, u):
        return torch.where(u < self.stay, self.x, 1 - self.x)

    def log_prob(self, y):
        return torch.where(y == self.x, math.log(self.stay), math.log(1 - self.stay)).double().sum(-1)

    def after(self, y):
        return self.log_gain * y[..., 0].double(), {}

    def take(self, ancestors):
        return replace(self, x=take(self.x, ancestors))


class Hops(FeynmanKac):
    """A hidden Markov chain whose gains pull back and forth, more than its steps can follow."""

    def start(self, shape, t):
        return Hop(torch.zeros(*shape, 1, dtype=torch.int64), 0.5, self.log_gain(t))

    def move(self, particles, t, s, u):
        return Hop(particles.x, 0.8, self.log_gain(s))

    def log_gain(self, t):
        return 2.0 if round(4 * t) % 2 else -2.0


def regardless(move, log_w, kept, rule, place):
    """The reference's ancestor drawn anew also in chains that did not resample."""
    ancestors, new = resample(move, log_w, kept, replace(rule, lineage=tt.keep_lineage), place)
    first = rule.lineage(move, log_w, kept, place.uniforms(OUTPUT, log_w.shape, 1)[:, :1, 0])
    return Resampled(torch.cat([first, ancestors[:, 1:]], 1), new)


def test_wrong_ancestors_drawn_where_nothing_was_resampled(monkeypatch):
    """A stranger's past then comes with the reference's own weight."""
    grid = tt.uniform_grid(4)
    every = enumerate_states(2, 5)
    hops = (every[:, 1:] != every[:, :-1]).sum(-1)
    gains = every.double() @ torch.tensor([Hops().log_gain(t) for t in grid], dtype=torch.float64)
    exact = (gains + hops * math.log(0.2) + (4 - hops) * math.log(0.8)).softmax(0)
    drawn = torch.searchsorted(exact.cumsum(0), Stream(7).uniforms(0, OUTPUT, 1, CHAINS)[0])
    start = tt.Trajectory(every[drawn].T[..., None], (torch.empty(CHAINS, 0, dtype=torch.float64),) * 4)

    def worst_path(threshold):
        rule = Rule(threshold, tt.ancestor_sampling)
        path = tt.conditional_smc(Hops(), grid, start, (CHAINS, 4), (Stream(1), 1), rule)
        return largest_z(flat_index(path.states[..., 0].T, 2), exact, torch.ones(CHAINS, dtype=torch.float64))

    assert max(worst_path(threshold) for threshold in (0.0, 0.5, 1.0)) < LIMIT
    monkeypatch.setattr(conditional, "resample", regardless)
    assert worst_path(0.0) > 2 * LIMIT


def test_ancestor_sampling_moves_the_early_part_of_a_path():
    fk, grid, *_ = setting("tilted, uniform")
    kept, drawn = (
        tt.particle_gibbs(fk, grid, particles=2, chains=2000, sweeps=5, threshold=1.0, lineage=lineage).movement
        for lineage in (tt.keep_lineage, tt.ancestor_sampling)
    )
    assert drawn[:, 0].mean() > 1.2 * kept[:, 0].mean()


def test_a_path_that_is_kept_is_kept_whole_and_any_path_can_be_followed_again():
    """Where the reference won, states and choices are its own, bit for bit; memory is what the model would compute."""
    fk, grid, *_ = setting("any order")
    before = tt.particle_gibbs(fk, grid, particles=2, chains=500, sweeps=1).last
    after = tt.particle_gibbs(fk, grid, before, particles=2, sweeps=1, first_sweep=1).last
    same = (after.states == before.states).all(-1).all(0)
    kept = torch.stack([(a == b).all(-1) for a, b in zip(after.choices, before.choices, strict=True)]).all(0)
    assert 50 < kept.sum() < 450
    assert same[kept].all()
    assert torch.equal(after.aux["log_ratios"][:, kept], before.aux["log_ratios"][:, kept])
    tilted, times, *_ = setting("tilted")
    path = tt.particle_gibbs(tilted, times, particles=3, chains=50, sweeps=2).last
    for x, t, log_tilt in zip(path.states, times, path.aux["log_tilt"], strict=True):
        assert torch.equal(log_tilt, tilted.tilt(x, t))


def test_movement_is_the_share_of_chains_that_changed():
    fk, grid, *_ = setting("tilted, uniform")
    run = tt.particle_gibbs(fk, grid, particles=4, chains=300, sweeps=4, seed=2)
    assert run.states.shape == (4, 300, 2)
    assert run.movement.shape == (4, len(grid))
    changed = (run.states[1:] != run.states[:-1]).any(-1).double().mean(-1)
    assert torch.equal(run.movement[1:, -1], changed)
    assert torch.equal(run.last.end, run.states[-1])


@pytest.mark.parametrize("name", ["tempered", "any order, one then two"])
@pytest.mark.parametrize("lineage", [tt.keep_lineage, tt.ancestor_sampling])
def test_chains_replay_go_on_and_stand_alone_bit_for_bit(name, lineage):
    fk, grid, *_ = setting(name)
    options = {"particles": 4, "seed": 9, "lineage": lineage}
    whole = tt.particle_gibbs(fk, grid, chains=7, sweeps=5, **options)
    again = tt.particle_gibbs(fk, grid, chains=7, sweeps=5, **options)
    other = tt.particle_gibbs(fk, grid, chains=7, sweeps=5, **(options | {"seed": 10}))
    assert torch.equal(whole.states, again.states)
    assert not torch.equal(whole.states, other.states)
    part = tt.particle_gibbs(fk, grid, chains=7, sweeps=2, **options)
    rest = tt.particle_gibbs(fk, grid, part.last, sweeps=3, first_sweep=2, **options)
    assert torch.equal(whole.states, torch.cat([part.states, rest.states]))
    alone = tt.particle_gibbs(fk, grid, chains=2, sweeps=5, first_chain=3, **options)
    assert torch.equal(whole.states[:, 3:5], alone.states)
    for a, b in zip(whole.last.choices, alone.last.choices, strict=True):
        assert torch.equal(a[3:5], b)


def test_hard_constraints_keep_every_chain_where_the_likelihood_allows():
    problem = hard_table(tt.Masking)
    fk = tt.Tilted(problem.model(), 3.0, tt.Power(0.0))
    run = tt.particle_gibbs(fk, tt.uniform_grid(4), particles=8, chains=200, sweeps=3)
    assert (problem.likelihood[run.states[..., 0], run.states[..., 1]] > 0).all()


FK, GRID, *_ = setting("tilted")
GOOD = tt.particle_gibbs(FK, GRID, particles=2, chains=3, sweeps=1).last


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"particles": 1}, r"3 chains of 1 particles; need .* at least 2 particles"),
        ({"particles": 0}, "at least 2 particles"),
        ({"chains": 0}, "0 chains"),
        ({"chains": 4}, r"\(6, 3, 2\), and the run has 6 times of 4 chains; give a path"),
        ({"sweeps": 0}, "sweeps is 0; give a whole number, at least 1"),
        ({"first_sweep": -1}, "first_sweep is -1"),
        ({"threshold": 1.5}, r"threshold is 1\.5"),
        ({"seed": -1}, "seed is -1"),
        ({"reference": replace(GOOD, states=GOOD.states[1:])}, r"\(5, 3, 2\), and the run has 6 times"),
        (
            {"reference": replace(GOOD, states=GOOD.states[:, 0, 0]), "chains": 3},
            r"shape \(6,\), and the run has 6 times",
        ),
        ({"reference": replace(GOOD, states=GOOD.states[..., :1])}, r"int64 \(1,\), and the model's .* \(2,\)"),
        ({"reference": replace(GOOD, states=GOOD.states.double())}, r"float64 \(2,\), and the model's torch\.int64"),
        ({"reference": replace(GOOD, states=GOOD.states - 4)}, "negative tokens"),
        ({"reference": replace(GOOD, choices=GOOD.choices[1:])}, "choices have shapes .* and the model takes"),
        ({"reference": replace(GOOD, states=GOOD.states.flip(0))}, r"sweep 1, step 0 .*3 of 3 chains .* cannot draw"),
    ],
)
def test_bad_input_is_named_with_its_remedy(options, words):
    with pytest.raises(tt.InvalidInput, match=words):
        tt.particle_gibbs(FK, GRID, **({"reference": GOOD, "particles": 2, "sweeps": 1} | options))


def test_a_reference_must_bring_its_own_choices():
    fk, grid, *_ = setting("any order")
    path = tt.particle_gibbs(fk, grid, particles=2, chains=20, sweeps=1).last
    strange = replace(path, choices=tuple(1 - 2**-53 - u for u in path.choices))
    with pytest.raises(tt.InvalidInput, match=r"step 1 .*20 of 20 chains makes a step the model cannot draw"):
        tt.particle_gibbs(fk, grid, strange, particles=2, sweeps=1)
    beyond = replace(path, choices=tuple(u + 1 for u in path.choices))
    with pytest.raises(tt.InvalidInput, match=r"choices outside \[0, 1\)"):
        tt.particle_gibbs(fk, grid, beyond, particles=2, sweeps=1)


def test_a_chain_that_cannot_start_says_so():
    problem = hard_table(tt.Masking)
    fk = tt.Steered(problem.model(), problem.potential, 1.0, tt.at_end)
    with pytest.raises(tt.DegenerateWeights, match=r"of 500 chains ended with no path .* more than 2 particles"):
        tt.particle_gibbs(fk, tt.uniform_grid(3), particles=2, chains=500)
