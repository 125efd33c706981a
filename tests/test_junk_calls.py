"""Junk arguments of the public API: refused by name and remedy where they are given, or taken for what they mean."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch
from torch import nn

import truetilt as tt
from problems import table
from truetilt import continuous as c

PROOFS = Path(__file__).parents[1] / "proofs"
sys.path.append(str(PROOFS))
PROBLEM = table(tt.Masking, 3, 2)
MODEL = PROBLEM.model()
GRID = tt.uniform_grid(3)
TILTED = tt.Tilted(MODEL, 2.0)
RESULT = tt.run(TILTED, GRID, particles=8, populations=3)
MIXTURE = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
REAL = c.Observed(c.VP(), MIXTURE, c.Observation([0.8], (0,), 1.0)).model()


def sampled(**options):
    return tt.sample(MODEL, **{"alpha": 2.0, "particles": 8, "num_inference_steps": 3} | options)


def revealed(choose):
    fk = tt.AnyOrder(MODEL, 2.0, choose=choose)
    return tt.run(fk, tt.masked_fraction_grid(tt.LogLinear(), 2), particles=4)


def refused(words, call):
    with pytest.raises(tt.InvalidInput, match=words):
        call()


@pytest.mark.parametrize(
    "alpha", ["4", None, True, 1j, 1e308, 10**400, [2.0], torch.ones(2), np.array([1, 2]), "x" * 999]
)
def test_an_exponent_that_is_no_number_in_reach(alpha):
    refused("alpha is", lambda: sampled(alpha=alpha))
    refused("alpha is", lambda: PROBLEM.target(alpha))
    refused("alpha is", lambda: c.Tilted(REAL, alpha))
    refused("alpha is", lambda: tt.FirstHitting(MODEL, alpha))


@pytest.mark.parametrize("seed", [None, -1, 1.5, 2.0, True, "0", 2**63, 10**30, math.nan])
def test_seeds(seed):
    refused("seed is", lambda: sampled(seed=seed))
    refused("seed is", lambda: RESULT.draw(3, seed=seed))
    refused("seed is", lambda: tt.pilot(TILTED, GRID, particles=4, seed=seed))


@pytest.mark.parametrize("two", [2, np.float32(2), np.int64(2), np.array(2.0), torch.tensor(2.0), torch.tensor([2])])
def test_numbers_of_numpy_and_torch_are_numbers(two):
    """The same bits as those of a Python number, and settings fit for JSON."""
    given = sampled(alpha=two, seed=np.int64(3), particles=torch.tensor(8), populations=np.int8(2))
    plain = sampled(alpha=2.0, seed=3, particles=8, populations=2)
    assert torch.equal(given.particles, plain.particles)
    assert torch.equal(given.log_weights, plain.log_weights)
    assert given.settings["seed"] == 3
    assert type(given.settings["seed"]) is int
    assert given.settings["model"]["alpha"] == 2
    assert type(given.settings["model"]["alpha"]) in (int, float)


@pytest.mark.parametrize("grid", [50, 50.0, np.int64(50), torch.tensor(50)])
def test_a_number_is_no_grid(grid):
    for call in (tt.run, tt.pilot, tt.particle_gibbs):
        refused(r"give times that fall from 1 to 0, tt\.uniform_grid\(50\)", lambda call=call: call(TILTED, grid))


@pytest.mark.parametrize(
    "grid",
    ["abc", None, (), (1.0,), (1.0, math.nan, 0.0), (1.0, "x", 0.0), (0.0, 1.0), {1.0: 2}, object(), torch.ones(3, 3)],
)
def test_grids_that_are_none(grid):
    refused("grid", lambda: tt.run(TILTED, grid))


def test_an_endless_grid_is_not_read_to_its_end():
    refused("more than 1,000,000 entries", lambda: tt.run(TILTED, itertools.count()))
    refused("steps is", lambda: tt.uniform_grid(10**12))
    refused("steps is", lambda: tt.masked_fraction_grid(tt.LogLinear(), 2**63))


def test_grids_of_arrays_and_generators_are_grids():
    plain = tt.run(TILTED, (1.0, 0.5, 0.0), particles=8)
    for grid in (np.array([1.0, 0.5, 0.0]), torch.tensor([1.0, 0.5, 0.0]), (t for t in (1, 0.5, 0))):
        assert torch.equal(tt.run(TILTED, grid, particles=8).log_weights, plain.log_weights)


@pytest.mark.parametrize("options", [{"particles": 2**63 - 1}, {"particles": 10**12}, {"populations": 10**400}])
def test_more_particles_than_memory_holds_are_refused_by_number(options):
    refused(rf"{next(iter(options.values())):,} .* would take .* are free", lambda: sampled(**options))
    refused("are free; take fewer", lambda: RESULT.draw(10**12))
    large = tt.Unweighted(tt.Model(tt.Masking(10**6), 10, MODEL.base), MODEL.base)
    refused("are free; take fewer", lambda: tt.flow(large, GRID, 10**6 + 1, 10))
    refused("the model has 2 of 4", lambda: tt.flow(TILTED, GRID, 3, 2))


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "nowhere", 3.5, None, "meta"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_here(device):
    refused("device is", lambda: tt.load("mnist", device))
    refused("device is", lambda: tt.Model(MODEL.process, 2, MODEL.base, device=device))
    refused("device is", lambda: c.Diffusion(c.VP(), 1, REAL.base, device=device))


@pytest.mark.parametrize("reward", [lambda x: 0, torch.sin, nn.Linear(2, 2)])
def test_a_reward_of_tokens_may_be_a_function_of_x_alone(reward):
    for fk in (tt.Steered(MODEL, reward), tt.Composed(MODEL, reward=reward)):
        assert fk.reward.function is reward


@pytest.mark.parametrize("reward", [lambda x, t, s: 0, "reward", None, int])
def test_a_reward_is_a_function(reward):
    refused(r"the reward .*give a function of \(x\)", lambda: tt.Steered(MODEL, reward))
    refused(r"the twist .*give a function of \(x\)", lambda: tt.Steered(MODEL, torch.sin, twist=reward or 1))
    refused(r"the reward .*give a function of \(x\)", lambda: tt.Composed(MODEL, reward=reward or 1))


@pytest.mark.parametrize("reward", [lambda x: 0, lambda x, t, s: 0, "reward", None, int, torch.sin, nn.Linear(2, 2)])
def test_a_potential_is_a_function_of_x_and_t(reward):
    refused(r"the reward .*give a function of \(x, t\)", lambda: c.Steered(REAL, reward))
    refused(r"\(x, t\)", lambda: tt.Model(MODEL.process, 2, MODEL.base, reward or 1))


@pytest.mark.parametrize(
    "kind", [torch.Tensor.int, torch.Tensor.bool, torch.Tensor.float, torch.Tensor.numpy, torch.Tensor.tolist]
)
def test_rewards_of_any_real_kind_are_numbers(kind):
    def counted(x):
        return (x == 1).sum(-1).double().clamp(max=1.0)

    as_it_is = tt.run(tt.Steered(MODEL, lambda x, t: counted(x)), GRID, particles=8)
    of_a_kind = tt.run(tt.Steered(MODEL, lambda x, t: kind(counted(x))), GRID, particles=8)
    of_grad = tt.run(tt.Steered(MODEL, lambda x, t: counted(x).requires_grad_()), GRID, particles=8)
    assert torch.equal(as_it_is.log_weights, of_a_kind.log_weights)
    assert torch.equal(as_it_is.log_weights, of_grad.log_weights)
    assert not of_grad.log_weights.requires_grad


@pytest.mark.parametrize("value", [None, "junk", {}, object(), torch.ones(8, dtype=torch.complex64), [[1, 2], [3]]])
def test_a_reward_that_returns_no_numbers(value):
    refused("what the potential returned", lambda: tt.run(tt.Steered(MODEL, lambda x, t: value), GRID, particles=8))


def test_an_error_of_the_callers_own_comes_through():
    class Mine(Exception):
        pass

    def reward(x, t):
        raise Mine

    with pytest.raises(Mine):
        tt.run(tt.Steered(MODEL, reward), GRID, particles=8)


def test_tables_and_chains_of_lists():
    p0, likelihood = [[0.1, 0.2], [0.3, 0.4]], np.array([[0.9, 0.1], [0.5, 0.5]])
    made = tt.Table(tt.Masking(2), p0, likelihood)
    assert torch.equal(made.p0, torch.tensor(p0, dtype=torch.float64) / torch.tensor(p0, dtype=torch.float64).sum())
    assert tt.Chain(tt.Masking(2), [0.3, 0.7], p0, p0).length == 2
    for junk in ("x", None, [[1, 2], [3]], {1: 2}, range(10**9), torch.ones(2, 2, dtype=torch.complex64)):
        refused("p0 is", lambda junk=junk: tt.Table(tt.Masking(2), junk, likelihood))
        refused("initial is", lambda junk=junk: tt.Chain(tt.Masking(2), junk, p0, p0))
    refused("process is", lambda: tt.Table("masking", p0, likelihood))
    refused("process is", lambda: tt.Table(tt.Masking, p0, likelihood))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"steps": 10}, "num_inference_steps"),
        ({"num_steps": 10}, "num_inference_steps"),
        ({"n_particles": 10}, "particles"),
        ({"n": 10}, "particles"),
        ({"random_state": 1}, "seed"),
        ({"partciles": 3}, "particles"),
        ({"resampler": tt.systematic}, "resample"),
    ],
)
def test_a_near_miss_of_a_parameter_says_which_is_meant(wrong, meant):
    with pytest.raises(TypeError, match=rf"has no parameter '{next(iter(wrong))}'; it means {meant}$"):
        tt.sample(MODEL, 2.0, **wrong)


def test_parameters_of_other_entry_points():
    with pytest.raises(TypeError, match=r"run\(\) has no parameter 'steps'; it means grid"):
        tt.run(TILTED, GRID, steps=3)
    with pytest.raises(TypeError, match=r"reveal\(\) has no parameter 'steps'; it means sites_per_step"):
        tt.reveal(MODEL, 2.0, steps=3)
    with pytest.raises(TypeError, match=r"particle_gibbs\(\) has no parameter 'n_chains'; it means chains"):
        tt.particle_gibbs(TILTED, GRID, n_chains=3)
    with pytest.raises(TypeError, match=r"pilot\(\) has no parameter 'zzz'; it takes fk, grid, fall"):
        tt.pilot(TILTED, GRID, zzz=3)


@pytest.mark.parametrize("name", ["tiny-review", "tiny_reviews", "MNIST", "mnsit"])
def test_a_near_miss_of_an_embedded_name(name):
    refused("Embedded are mnist and tiny-reviews", lambda: tt.load(name))


@pytest.mark.parametrize("name", [None, 3, "", b"mnist", [], MODEL])
def test_what_is_no_name_of_a_net(name):
    refused("give mnist or tiny-reviews", lambda: tt.load(name))
    refused("give a folder", lambda: tt.from_pretrained(name))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta": "1"}, "beta is '1'"),
        ({"beta": True}, "beta is True"),
        ({"beta": -1.0}, "beta is -1"),
        ({"beta": len}, "beta cannot be called with 1.0"),
        ({"beta": lambda: 1.0}, r"give a function of \(t\)"),
        ({"beta": lambda t: "x"}, "beta is 'x'"),
        ({"kernel": lambda x: x}, "kernel is called with"),
        ({"kernel": lambda *_: None}, "the kernel returned None"),
        ({"particles": True}, "True particles"),
        ({"particles": "8"}, "'8' particles"),
        ({"particles": 8.0}, "8.0 particles"),
        ({"populations": None}, "None populations"),
        ({"num_inference_steps": "3"}, "steps is '3'"),
        ({"chunk": 0}, "chunk is 0"),
        ({"chunk": "all"}, "chunk is 'all'"),
        ({"chunk": True}, "chunk is True"),
        ({"couple": "systematic"}, "couple is"),
        ({"couple": lambda u, labels, spare: None}, "couple returned None"),
        ({"resample": lambda u: u}, "resample is called with"),
        ({"resample": lambda log_w, u: None}, "the resampler returned None"),
        ({"resample": lambda log_w, u: (u, log_w)}, "ancestors torch.float64"),
        ({"resample": lambda log_w, u: (u.long() - 1, log_w)}, "ancestors outside 0 to 7"),
        ({"resample": tt.adaptive(lambda log_w, u: 3, 1.0)}, "the resampler returned 3"),
        ({"moves": "gibbs"}, "moves is a str"),
        ({"snapshots": "all"}, "snapshots is 'all'"),
        ({"snapshots": [0.5]}, "snapshots names step 0.5"),
        ({"snapshots": itertools.count()}, "snapshots has more than"),
        ({"callback_on_step_end": 3}, "callback_on_step_end is 3"),
        ({"watch": lambda: 0}, "watch is called with"),
        ({"shard": 3}, "shard is 3"),
        ({"first_population": 1.5}, "first_population is 1.5"),
    ],
)
def test_options_of_a_run(options, words):
    refused(words, lambda: sampled(**options))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("fk is", lambda: tt.run(MODEL, GRID)),
        ("fk is", lambda: tt.flow("x", GRID, 4, 2)),
        ("model is a str", lambda: tt.AnyOrder("model", 2.0)),
        ("model is a str", lambda: tt.FirstHitting("model", 2.0)),
        ("order", lambda: tt.AnyOrder(MODEL, 2.0, order=("a", "b"))),
        ("order", lambda: tt.AnyOrder(MODEL, 2.0, order=3)),
        ("choose returned", lambda: revealed(lambda masked, log_mass: 0.0)),
        ("no law of the masked", lambda: revealed(lambda masked, log_mass: masked.double())),
        ("ramp is", lambda: tt.Tilted(MODEL, 2.0, "square")),
        ("must return numbers", lambda: tt.Tilted(MODEL, 2.0, lambda u: "x")),
        ("guide is", lambda: tt.Tempered(MODEL, 2.0, guide="rate")),
        ("the guide returned", lambda: tt.run(tt.Tempered(MODEL, 2.0, 2.0, lambda *_: 3), GRID)),
        ("score is", lambda: tt.Unweighted(MODEL, "score")),
        ("vocabulary is", lambda: tt.Masking("3")),
        ("schedule is", lambda: tt.Uniform(3, "cosine")),
        ("eps is", lambda: tt.Cosine("x")),
        ("power", lambda: tt.Power("2")),
        ("of a ramp", lambda: tt.Frozen("ab", "cd")),
        ("the scheme is", lambda: tt.adaptive("systematic")),
        ("threshold is", lambda: tt.adaptive(tt.systematic, "half")),
        ("size of partial", lambda: tt.partial(tt.systematic, None)),
        ("log-weights are", lambda: tt.systematic([0.0], [0.5])),
        ("number of moves", lambda: tt.Rejuvenation(tt.Gibbs(tt.AnyOrder(MODEL, 2.0)), at_end=2**63)),
        ("kernel is", lambda: tt.Rejuvenation("gibbs")),
        ("kernel is AnyOrder.*give moves, such as tt.Gibbs", lambda: tt.Rejuvenation(tt.AnyOrder(MODEL, 2.0))),
        ("scan is", lambda: tt.Gibbs(tt.AnyOrder(MODEL, 2.0), "random")),
        ("a block of 2.5", lambda: tt.Block(tt.AnyOrder(MODEL, 2.0), 2.5)),
        ("lineage is", lambda: tt.Rule(0.5, "keep")),
        ("reference is", lambda: tt.particle_gibbs(TILTED, GRID, "path")),
        ("sweeps is", lambda: tt.particle_gibbs(TILTED, GRID, sweeps=0.5)),
        ("shape is", lambda: tt.conditional_smc(TILTED, GRID, None, 3, (tt.Stream(0), 0))),
        ("start", lambda: tt.forward_equation(MODEL.process, MODEL.base, "x", GRID)),
        ("the score returned", lambda: tt.forward_equation(MODEL.process, lambda x, t: x, torch.eye(16)[15], GRID)),
        ("candidate times", lambda: tt.poisson_times(tt.Uniform(3), 1e12, 0)),
        ("candidates is", lambda: tt.Uniformised(table(tt.Uniform, 3, 2).model(), 1.0, "x")),
        ("the score is", lambda: tt.LazyScore(MODEL.base)),
        ("given is", lambda: tt.Infill(MODEL.base, "a text")),
        ("the net is", lambda: tt.MaskedLM("net", 1)),
        ("mask_token is", lambda: tt.MaskedLM(nn.Linear(2, 2), "1", vocabulary=3)),
        ("length is", lambda: tt.Denoiser(nn.Linear(2, 2), 3, "4")),
        ("config is", lambda: tt.SEDD("small")),
        ("values", lambda: tt.SiteLogits.of("x")),
        ("rows are", lambda: tt.SiteLogits([1], [2])),
        ("start", lambda: tt.forward_equation(MODEL.process, MODEL.base, [2.0], GRID)),
        ("log-weights are", lambda: tt.stratified(torch.ones(3, 3).to_sparse(), torch.ones(3, 3))),
        ("the base knows", lambda: tt.Predictor(tt.Masking(5), MODEL.base, MODEL.potential)),
        ("axes", lambda: tt.Points("xy")),
        ("alphabet", lambda: tt.SequenceLogo(4)),
        ("beta_min is", lambda: c.VP("x")),
        ("its mean must not exceed", lambda: c.VP(0.1, 1e308)),
        ("sigma runs", lambda: c.VE(0.01, 1e308)),
        ("weights is", lambda: c.GaussianMixture("x", [[0.0]], 1.0)),
        ("a coordinate is", lambda: c.Observation([0.8], (0.5,), 1.0)),
        ("p0 is", lambda: c.Observed(c.VP(), "mixture", None)),
        ("process is", lambda: c.Diffusion(tt.Masking(3), 1, REAL.base)),
        ("dimension is", lambda: c.Diffusion(c.VP(), 1.5, REAL.base)),
        ("points is", lambda: c.line_flow(c.Tilted(REAL, 2.0), GRID, "x")),
        ("rank is", lambda: tt.distributed.World(3, 2)),
        ("patience", lambda: tt.distributed.world("long")),
    ],
)
def test_constructors_and_functions(words, call):
    refused(words, call)


HELD_OUT = tt.HeldOut("linear", 0.1, 1.0, (0.1, 0.1), 0.9)
COMPOSED = tt.Composed(MODEL, reward=lambda x: x.sum(-1).double())


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("evaluations is 1000.* at most 9,223,372,036,854,775,807", lambda: steered(evaluations=10**400)),
        ("calls is 1000.* at most", lambda: steered(calls=10**400)),
        ("num_inference_steps is", lambda: steered(num_inference_steps=10**400)),
        ("populations is", lambda: steered(populations=10**400)),
        ("what the potential returned is 'junk'", lambda: steered(twist=lambda x, t: "junk")),
        ("returned shape", lambda: steered(twist=lambda x, t: torch.zeros(7))),
        ("sharpness is '1.2'", lambda: tt.sharpened(MODEL, 1, "1.2")),
        ("sharpness is None", lambda: tt.sharpened(MODEL, 1, None)),
        ("sharpness is -1", lambda: tt.sharpened(MODEL, 1, -1)),
        ("floor is 1e", lambda: tt.Annealed(COMPOSED, 4, floor=1e16)),
        ("floor is -1e", lambda: tt.Annealed(COMPOSED, 4, floor=-1e16)),
        ("floor is nan", lambda: tt.Annealed(COMPOSED, 4, floor=math.nan)),
        ("steps is 'nonsense'", lambda: tt.Ladder((0.5, 1.0), "nonsense")),
        ("shares is 'nonsense'", lambda: tt.Ladder("nonsense", 3)),
        ("do not rise to 1", lambda: tt.Ladder((1.0, 0.5), 3)),
        ("spent is 'x'", lambda: tt.Ladder((0.5, 1.0), 3, "x")),
        (r"are free; take fewer", lambda: tt.pilot(TILTED, GRID, particles=10**12)),
        (r"are free; take fewer", lambda: tt.pilot(tt.Annealed(COMPOSED, 4), particles=10**12)),
        ("timeout is 1000000000000.*at most 1,000,000", lambda: tt.Reward(len, timeout=1e12)),
        ("timeout is 0", lambda: tt.Reward(len, timeout=0)),
        ("highest is nan", lambda: tt.Reward(len, highest=math.nan)),
        ("highest is inf", lambda: tt.Reward(len, highest=math.inf)),
        *((f"width is {width!r}", lambda width=width: tt.SmallNetwork(width)) for width in (0, -1, 2.5, "x", 10**12)),
        ("seed is -1", lambda: tt.SmallNetwork(4, -1)),
        ("twist is 5", lambda: learned(twist=5)),
        ("vocabulary is '3'", lambda: learned(vocabulary="3")),
        ("strength is 0", lambda: learned(strength=0)),
        ("held_out and tried are 3", lambda: learned(held_out=3)),
        ("tried is 3", lambda: learned(tried=3)),
        ("order is", lambda: learned(order=(0, 2))),
        ("held_out and tried", lambda: learned(spent="x")),
        ("strength is 'x'", lambda: tt.soft_mean(torch.ones(2, 3), "x")),
        ("strength is 0", lambda: tt.soft_mean(torch.ones(2, 3), 0)),
        ("rewards is 'x'", lambda: tt.soft_mean("x", 1.0)),
        ("rewards is", lambda: tt.plain_mean(torch.ones(2, 0), 1.0)),
        ("names is 5", lambda: tt.SequenceLogo("ACGT", 5)),
        ("names is", lambda: tt.SequenceLogo("ACGT", (1, 2))),
        ("temperature is 1e-320", lambda: tt.LocalTemperature(MODEL.process, MODEL.base, 1e-320)),
        ("temperature is True", lambda: tt.LocalTemperature(MODEL.process, MODEL.base, True)),
    ],
)
def test_numbers_and_parts_that_nobody_can_mean(words, call):
    refused(words, call)


DIGITS, REVIEWS = tt.load("mnist"), tt.load("tiny-reviews")
TABLES = tt.learn_twist(MODEL, lambda x: (x == 1).sum(-1).double(), calls=60, draws=30, refits=0)
STATE, SITE = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
GAPS = torch.full((1, 4), REVIEWS.process.states - 1)
META = torch.ones(1, 2, device="meta")


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("a state is", lambda: TABLES(0.5, 0.0)),
        ("a state is", lambda: TABLES(torch.ones(1, 2), 0.0)),
        ("states are", lambda: TABLES(torch.zeros(1, 3, dtype=torch.int64), 0.0)),
        ("states are", lambda: TABLES(torch.full((1, 2), 7), 0.0)),
        ("site is", lambda: TABLES.site_values(STATE, 0.5, 0.0)),
        ("site is", lambda: TABLES.site_values(STATE, torch.full((1,), 9), 0.0)),
        ("site is", lambda: TABLES.site_values(STATE, torch.zeros(4, dtype=torch.int64), 0.0)),
        ("what the twist returned is 'x'", lambda: learned(twist=lambda x, t: "x")(STATE, 0.0)),
        ("device is 'x'", lambda: tt.LearnedTwist.load("nothing", "x")),
        ("completions is", lambda: tt.Lookahead(MODEL, lambda x: x.sum(-1), completions=2**62)),
        ("the given score returned a Tensor", lambda: tt.run(tt.Unweighted(MODEL, BAD), GRID, particles=4)),
        ("nets is 3", lambda: tt.Digits(3, tt.Masking(4))),
        ("the net 'unet' is", lambda: tt.Digits({"unet": nn.Linear(2, 2)}, tt.Masking(4))),
        ("the net 'unet' is", lambda: tt.Digits({"unet": REVIEWS.nets["sedd"]}, tt.Masking(4))),
        ("batch is 'x'", lambda: tt.Digits(DIGITS.nets, DIGITS.process, "x")),
        ("dtype is 3", lambda: tt.Digits(DIGITS.nets, DIGITS.process, 4, 3)),
        ("form is", lambda: DIGITS.model(4, [])),
        ("nets is", lambda: tt.Reviews(torch.tensor(2), REVIEWS.tokenizer, REVIEWS.facts)),
        ("tokenizer is", lambda: tt.Reviews(REVIEWS.nets, len, REVIEWS.facts)),
        ("facts is", lambda: tt.Reviews(REVIEWS.nets, REVIEWS.tokenizer, 3)),
        ("given is", lambda: REVIEWS.model("positive", given=len)),
        ("x is", lambda: REVIEWS.decode(torch.ones(2, 2, dtype=torch.complex64))),
        ("public is 3", lambda: tt.Sequences(3, tt.Masking(3))),
        ("points of shape", lambda: c.line_flow(c.Tilted(REAL, 2.0), GRID, 2)),
        ("log-weights are", lambda: tt.residual(torch.zeros(2, 3), torch.ones(2, 3, device="meta"))),
        ("log-weights are", lambda: tt.residual(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.complex64))),
        ("spent is", lambda: tt.Annealed(COMPOSED, 2, spent=np.array([object()]))),
        ("what the twist returned", lambda: learned(twist=lambda x, t: ["x"]).site_values(STATE, SITE, 0.0)),
        ("ramp is", lambda: tt.Steered(MODEL, lambda x: x.sum(-1), ramp=np.ones((3, 3)))),
        ("blocks is a Unshown", lambda: tt.SEDDConfig(11, 6, 16, Unshown(), 2, 16)),
        ("kernel cannot be called with", lambda: tt.Annealed(COMPOSED, 2, kernel=lambda x, t: x)),
        ("the condition is", lambda: REVIEWS.model(np.ones((3, 3)))),
        ("length is", lambda: tt.testing.check_potential(MODEL.potential, tt.Masking(3), 10**12)),
        *(
            (r"it is called with \(x, t\)", call)  # a score is no other function of two things
            for call in (
                lambda: tt.partial(MODEL.base, 2),
                lambda: tt.adaptive(MODEL.base),
                lambda: sampled(resample=MODEL.base),
                lambda: RESULT.log_z_interval(by=MODEL.base),
                lambda: steered(progress=MODEL.base),
                lambda: tt.Taylor(MODEL.process, MODEL.base, MODEL.base),
            )
        ),
        *(
            (r"the reward .*give a function of \(x\)", lambda reward=reward: tt.Lookahead(MODEL, reward))
            for reward in (tt.Model, lambda x, t, s: 0, lambda: 0)
        ),
        ("log-weights are", lambda: tt.systematic(torch.ones(3), torch.zeros(0))),
        ("log-weights are", lambda: tt.multinomial(torch.ones(3), torch.zeros(2))),
        ("net is called with", lambda: c.NetScore(c.VP(), lambda x, t: x, condition={"label": 3})),
        ("net is called with", lambda: c.NetScore(c.VP(), lambda x, t, **told: x, condition={3: 3})),
        (
            "a result holds",
            lambda: tt.Result(META[..., None], META, *[RESULT.times] * 4),
        ),
        ("cannot draw a Unshown", lambda: RESULT.draw(Unshown())),
        ("chunk is a Unshown", lambda: sampled(chunk=Unshown())),
        ("snapshots names step a Unshown", lambda: sampled(snapshots=[Unshown()])),
        ("texts is", lambda: tt.train_tokenizer(torch.tensor(2.0), 300)),
        ("texts is", lambda: tt.train_tokenizer(np.array(2.0), 300)),
        ("rows are", lambda: tt.SiteLogits(torch.zeros(2, 3), torch.tensor(2))),
        (
            "what kernel returned is Annealed.*give what makes a Markov kernel",
            lambda: tt.Annealed(COMPOSED, 2, kernel=lambda fk: fk),
        ),
        ("the base is for", lambda: tt.Taylor(tt.Uniform(3), MODEL.base, lambda onehot, t: onehot.sum((1, 2)))),
        ("a score returned 4 values", lambda: tt.Guided(MODEL.process, WIDE, MODEL.conditional, 1.5)(STATE, 0.5)),
        (
            "seen cannot be called",
            lambda: tt.LazyScore(REVIEWS.model("positive").base, (), torch.sin)(GAPS, 0.5).dense(),
        ),
        ("the potential is a Unshown", lambda: tt.testing.check_potential(Unshown(), tt.Masking(3), 2)),
        ("what reads returned", lambda: c.NetScore(c.VP(), lambda x, t: x, lambda *_: (1, 2))(torch.zeros(1, 1), 0.5)),
    ],
)
def test_parts_and_their_methods(words, call):
    refused(words, call)


def test_a_gradient_at_float32_states_is_that_at_float64():
    x = torch.tensor([[0.5], [-1.0]])
    assert torch.equal(c.gradient(REAL.potential, x, 0.5), c.gradient(REAL.potential, x.double(), 0.5))


def test_a_process_that_draws_other_tokens_than_a_public_net():
    public = tt.from_transformers(Alone(4), "ACGT", mask=3, draw=[0, 1, 2], length=6, vocabulary=4).public
    refused("they must agree", lambda: tt.Sequences(public, tt.Masking(5)))


class Unshown:
    def __repr__(self):
        raise RuntimeError("no repr")


class Alone(nn.Module):
    """A network of posteriors that knows nothing."""

    def __init__(self, tokens):
        super().__init__()
        self.table = nn.Embedding(tokens + 1, tokens)

    def forward(self, x, *_):
        return self.table(x)


def WIDE(x, t):
    return tt.SiteLogits.of(torch.zeros(*x.shape, 4))


def BAD(x, t):
    return tt.LocalTemperature(MODEL.process, lambda x, t: x, 0.9)(x, t)


def steered(**options):
    return tt.steer(MODEL, lambda x: x.sum(-1).double(), **{"evaluations": 2000} | options)


def learned(**wrong):
    good = {"twist": lambda x, t: x.sum(-1).double(), "vocabulary": 3, "strength": 1.0, "held_out": HELD_OUT}
    return tt.LearnedTwist(**good | {"tried": (HELD_OUT,), "order": (1, 0), "spent": tt.Spent()} | wrong)


def test_a_network_of_x_alone_is_a_reward():
    net = nn.Sequential(nn.Embedding(4, 1), nn.Flatten(), nn.Linear(2, 1), nn.Flatten(0)).eval()
    state = torch.tensor([[1, 2]])
    assert tt.Lookahead(MODEL, net)(state, 0.0) == net(state).item()


def test_what_is_refused_above_is_taken_where_it_is_meant():
    assert learned(order=None)(torch.zeros(1, 2, dtype=torch.int64), 0.0) == 0
    assert tt.soft_mean([[0.0, 0.0]], 2).tolist() == [0.0]
    assert tt.SequenceLogo("ACGT", ["first", "second"]).names == ("first", "second")
    assert tt.Ladder([0.5, 1], 3).shares == (0.5, 1)
    assert tt.Annealed(COMPOSED, 4, floor=-5).floor == -5


def test_a_twist_file_with_another_header_is_refused(tmp_path):
    from safetensors.torch import save_file

    for header in ("[]", "3", "null", "{}", "x", '{"format": "truetilt-twist", "version": 1}'):
        save_file({"a": torch.ones(1)}, tmp_path / "twist", metadata={"truetilt": header})
        refused("is no saved twist", lambda: tt.LearnedTwist.load(tmp_path / "twist"))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("cannot draw -1 samples", lambda: RESULT.draw(-1)),
        ("cannot draw '3' samples", lambda: RESULT.draw("3")),
        ("h is 3", lambda: RESULT.expectation(3)),
        ("what h returned", lambda: RESULT.expectation(lambda x: "x")),
        ("h returned shape", lambda: RESULT.expectation(lambda x: 1.0)),
        ("level of an interval", lambda: RESULT.expectation_interval(lambda x: x, 2)),
        ("level of an interval", lambda: RESULT.log_z_interval("high")),
        ("by is", lambda: RESULT.log_z_interval(by="populations")),
        ("`by` returned", lambda: RESULT.log_z_interval(by=lambda estimate, history: 3)),
        ("results to unite", lambda: tt.Result.union(3)),
        ("results to unite is 'a'", lambda: tt.Result.union(["a", RESULT])),
        ("particles of", lambda: tt.Result.union([RESULT, tt.run(c.Tilted(REAL, 2), GRID, particles=8)])),
        ("folder is", lambda: RESULT.save(3)),
        ("folder is", lambda: tt.Result.load(None)),
        ("is a file", lambda: RESULT.save(Path(__file__))),
        ("view is", lambda: RESULT.save("nowhere", view="images")),
        ("path is", lambda: RESULT.report(3)),
        ("view is", lambda: RESULT.report("run.html", view=3)),
        ("ax is", lambda: RESULT.plot.ess("axes")),
        ("population is", lambda: RESULT.plot.genealogy(population="first")),
        ("view is", lambda: RESULT.plot.samples(view=3)),
        ("a result holds", lambda: tt.Result("x", "y", *[RESULT.times] * 4)),
    ],
)
def test_methods_of_a_result(words, call):
    refused(words, call)


def test_settings_in_numbers_of_numpy_can_be_saved(tmp_path):
    result = sampled(particles=np.int64(4), seed=np.int32(2), first_population=np.int64(1))
    assert tt.Result.load(result.save(tmp_path / "run")).settings["first_population"] == 1


def test_whole_numbers_beyond_torch_are_numbers():
    assert c.Observed(c.VP(), MIXTURE, c.Observation([0.8], (0,), 10**12)).log_evidence < 0


def test_lists_of_python_numbers_keep_their_digits():
    """A list goes to float64, not through torch's float32."""
    assert float(c.GaussianMixture([0.3, 0.7], [[0.1]] * 2, 0.2).std[0, 0]) == 0.2


def test_every_public_name_is_called_by_the_fuzzer():
    """A name that is neither called by `proofs/fuzz_calls` nor named there as a record or a part is not swept."""
    assert run_path(str(PROOFS / "fuzz_cases.py"))["uncalled"]() == []
