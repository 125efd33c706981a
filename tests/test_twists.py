"""Twists: learned ones fit what they can express exactly, on any state; looked-up ones converge; both are functions."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re

import pytest
import torch

import truetilt as tt
from truetilt.core.spent import Spent
from truetilt.twists.lessons import Lessons, Mutants, softened
from truetilt.twists.pool import Sample
from truetilt.twists.recorded_draws import draws, token_values, weighed_draws
from truetilt.twists.rounds import weighed
from truetilt.twists.tables import Flat

S, D = 4, 6
PROCESS = tt.Masking(S)
GENERATOR = torch.Generator().manual_seed(5)
INITIAL, STEPS = (torch.randn(n, S, generator=GENERATOR, dtype=torch.float64).softmax(-1) for n in (1, S))
SITES = 2 * torch.randn(D, S, generator=GENERATOR, dtype=torch.float64)
PAIRS = torch.randn(D - 1, S, S, generator=GENERATOR, dtype=torch.float64)
ALL = torch.tensor(list(itertools.product(range(S), repeat=D)))
MASKED = torch.tensor(list(itertools.product(range(S + 1), repeat=D)))


def chain(pairs=False):
    """The base as a model, the reward as a function, and the exact tilted law."""
    law = tt.ChainLaw(INITIAL[0], STEPS, torch.zeros(D, S))
    tilted = STEPS * (PAIRS.exp() if pairs else torch.ones(D - 1, 1, 1))
    rows = tilted.sum(-1, keepdim=True)
    factors = SITES.clone()
    factors[:-1] += rows.squeeze(-1).log()
    return tt.Model(PROCESS, D, tt.ChainScore(PROCESS, law)), tt.ChainLaw(INITIAL[0], tilted / rows, factors)


def additive(x):
    return SITES[torch.arange(D), x].sum(-1)


def paired(x):
    return additive(x) + PAIRS[torch.arange(D - 1), x[:, :-1], x[:, 1:]].sum(-1)


def learn(reward, **options):
    return tt.learn_twist(chain()[0], reward, **({"calls": 4000, "draws": 100, "order": range(D)} | options))


@pytest.fixture(scope="module")
def pairs_twist():
    return learn(paired)


def test_an_additive_reward_is_learned_exactly():
    twist = learn(additive)
    assert twist.held_out.closing < 1e-3 < 1 < twist.held_out.constant
    assert twist.held_out.r_squared > 1 - 1e-6
    assert (twist(ALL, 0.0) - additive(ALL)).abs().max() < 0.05


def test_pairs_of_neighbours_are_found_by_held_out_error(pairs_twist):
    linear = next(one for one in pairs_twist.tried if one.family == "linear")
    assert pairs_twist.held_out.family == "neighbours"
    assert pairs_twist.held_out.spread < 0.05 < 0.5 < linear.spread
    assert [one.ess for one in pairs_twist.tried] == sorted((one.ess for one in pairs_twist.tried), reverse=True)
    assert pairs_twist.held_out.ess > 0.99


def test_pairs_with_a_mask_need_no_calls():
    """One call a draw: an additive reward is linear, and what the chain makes of it is in the network's answers."""
    twist = learn(additive, calls=200, family=[tt.PairTables(0), tt.PairTables(1, clean_reach=0)])
    assert twist.held_out.family == "linear, masks by neighbours"
    assert twist.held_out.spread < 0.05 < 0.3 < twist.tried[1].spread
    lone = twist.twist.layout.within(0) | twist.twist.layout.masked
    assert not twist.twist.entries[~lone].any()


def test_in_the_order_of_a_chain_it_is_the_ideal_value(pairs_twist):
    """log E[exp r | first sites], at every prefix that p0 makes: what no sampler can better."""
    model, target = chain(pairs=True)
    shown = torch.arange(D) < torch.arange(D + 1)[:, None]
    seen = torch.where(shown[:, None], ALL, S).reshape(-1, D).unique(dim=0)
    p0 = tt.ChainLaw(INITIAL[0], STEPS, torch.zeros(D, S))
    exact = target.log_total_given(PROCESS, seen, 0.5) - p0.log_total_given(PROCESS, seen, 0.5)
    assert (pairs_twist(seen, 0.5) - exact).abs().max() < 0.2
    assert abs(float(pairs_twist(torch.full((1, D), S), 1.0)) - float(target.log_z)) < 0.01
    assert model.length == D


def test_a_run_with_it_weighs_all_particles_nearly_alike(pairs_twist):
    model, target = chain(pairs=True)
    fk = tt.Composed(model, reward=paired, twist=pairs_twist, order=range(D))
    log_w = tt.run(fk, particles=400, resample=tt.never, seed=3).log_weights
    assert float(log_w.std()) < 0.05
    assert abs(float(log_w.mean()) - float(target.log_z)) < 0.02


def test_strength_is_in_the_value_and_divides_out():
    twice = learn(additive, strength=2.0)
    assert (twice(ALL, 0.0) - additive(ALL)).abs().max() < 0.05
    _, target = chain()
    doubled = dataclasses.replace(target, log_factors=2 * target.log_factors)
    assert abs(2 * float(twice(torch.full((1, D), S), 1.0)) - float(doubled.log_z)) < 0.05


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(pairs_twist):
    again, other = learn(paired), learn(paired, seed=1)
    assert torch.equal(again.twist.entries, pairs_twist.twist.entries)
    assert again.held_out == pairs_twist.held_out
    assert not torch.equal(other.twist.entries, pairs_twist.twist.entries)


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    learn(paired, family=tt.SmallNetwork(width=4), calls=100, draws=50, refits=0)
    assert torch.equal(before, torch.get_rng_state())


def test_a_run_of_the_same_seed_draws_other_states():
    model = chain()[0]
    mine = draws(model, 50, None, None, 0, 0)[0]
    run = tt.run(tt.Composed(model), particles=50, resample=tt.never, seed=0)
    assert (mine != run.particles[0]).any(-1).double().mean() > 0.8


def test_draws_are_of_p0():
    """800 draws, in random order: each site's marginal within 4.5 standard errors (24 figures)."""
    x, steps, spent = draws(chain()[0], 800, None, None, 2, 0)
    exact = tt.ChainLaw(INITIAL[0], STEPS, torch.zeros(D, S)).marginals()
    seen = torch.nn.functional.one_hot(x, S).double().mean(0)
    assert ((seen - exact).abs() < 4.5 * (exact * (1 - exact) / 800).sqrt()).all()
    assert spent == Spent(rounds=D, evaluations=800 * D)
    assert (steps.x.gather(1, steps.site[:, None]) == S).all()


@pytest.mark.parametrize(
    "family",
    [
        tt.PairTables(0),
        tt.PairTables(1),
        tt.PairTables(1, clean_reach=0),
        tt.PairTables(D - 1, 1.0),
        tt.PairTables(1, 1.0, depth=1.0),
        tt.SmallNetwork(width=4),
        tt.Kriging(),
    ],
    ids=lambda f: f.name,
)
def test_every_family_is_finite_everywhere_and_answers_for_a_site_at_once(family, tmp_path):
    twist = learn(paired, family=family, calls=1000, refits=0, order=None)
    assert twist(MASKED, 0.3).isfinite().all()
    x, site = MASKED[::7], torch.arange(len(MASKED[::7])) % D
    one_by_one = token_values(lambda y, t: twist(y, t), x, site, 0.3, S)
    assert (twist.site_values(x, site, 0.3) - one_by_one).abs().max() < 1e-10
    twist.save(tmp_path / "twist.safetensors")
    again = tt.LearnedTwist.load(tmp_path / "twist.safetensors")
    assert torch.equal(again(MASKED, 0.3), twist(MASKED, 0.3))
    assert again.site_values(x, site, 0.3).equal(twist.site_values(x, site, 0.3))
    assert (again.held_out, again.tried, again.spent, again.order) == (
        twist.held_out, twist.tried, twist.spent, twist.order
    )  # fmt: skip


def test_a_network_explains_what_pairs_cannot():
    """A reward of three sites together."""

    def all_three(x):
        return 3.0 * ((x[:, 0] > 1) & (x[:, 2] > 1) & (x[:, 4] > 1))

    twist = learn(all_three, calls=8000, draws=400, family=[tt.PairTables(1), tt.SmallNetwork()])
    assert twist.held_out.family.startswith("network")
    assert twist.held_out.spread < 0.6 * twist.tried[1].spread


def test_what_it_spent_is_counted():
    seen = []

    def reward(x):
        seen.append(x.clone())
        return additive(x)

    twist = learn(reward, calls=999, draws=60, refits=2)
    called = torch.cat(seen)
    assert twist.spent == Spent(3 * D, 3 * 60 * D, len(called), len(called.unique(dim=0)))
    assert len(called) == 999
    assert Spent(1, 2, 3, 4).plus(Spent(10, 20, 30, 40)) == Spent(11, 22, 33, 44)


def test_a_reward_that_forbids_is_softened():
    def reward(x):
        return torch.where(x[:, 0] == 0, -torch.inf, additive(x))

    twist = learn(reward)
    assert twist(MASKED, 0.5).isfinite().all()
    assert twist.held_out.r_squared > 0.9
    assert softened(torch.tensor([0.0, -torch.inf, 4.0])).tolist() == [0.0, -2.0, 4.0]


def test_a_constant_reward_is_worth_the_same_everywhere():
    twist = learn(lambda x: torch.full((len(x),), 2.5), calls=200, draws=50)
    assert (twist(MASKED, 0.5) - 2.5).abs().max() < 1e-6
    assert twist.held_out.r_squared == 1.0


def test_a_single_site():
    p0 = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    model = tt.Table(tt.Masking(3), p0, torch.ones_like(p0)).model()
    twist = tt.learn_twist(model, lambda x: x[:, 0].double(), calls=200)
    exact = (p0.log() + torch.arange(3)).logsumexp(0)
    assert abs(float(twist(torch.tensor([[3]]), 1.0) - exact)) < 1e-3


def test_many_tokens_are_fitted_by_the_likeliest():
    """1,000 tokens, of which 256 are remembered a step; the sites are independent, and the last tokens rare."""
    size = 1000
    log_p = (-0.05 * torch.arange(size, dtype=torch.float64)).log_softmax(-1)
    model = tt.Model(tt.Masking(size), 3, lambda x, t: tt.SiteLogits.of(log_p.expand(*x.shape, size)))
    twist = tt.learn_twist(model, lambda x: (x < 5).sum(-1).double(), calls=2000)
    exact = 3 * (log_p + (torch.arange(size) < 5)).logsumexp(0)
    assert abs(float(twist(torch.full((1, 3), size), 1.0) - exact)) < 0.1
    assert twist.held_out.spread < 0.5


def low_tailed(x):
    """log of a probability: near 0 for a few states, and many nats below for most."""
    return torch.nn.functional.logsigmoid(4 * (additive(x) - 4))


def effective_share(twist, reward, **options):
    """Of 4,000 particles drawn with a twist and never resampled."""
    fk = tt.Composed(chain()[0], reward=reward, twist=twist, order=range(D), **options)
    w = tt.run(fk, particles=4000, resample=tt.never, seed=3).log_weights.reshape(-1).softmax(0)
    return 1 / float((w**2).sum()) / len(w)


@pytest.fixture(scope="module")
def low_twist():
    return learn(low_tailed, calls=1000, draws=200, family=[tt.PairTables(1), tt.PairTables(1, 1.0, depth=2.0)])


def test_a_low_tail_that_holds_no_mass_does_not_spoil_the_fit(low_twist):
    assert low_twist.held_out.family.endswith("2 nats deep")
    least_squares = low_twist.tried[1]
    assert least_squares.spread < low_twist.held_out.spread  # over all states it is the better fit
    everywhere = learn(low_tailed, calls=1000, draws=200, family=tt.PairTables(1))
    assert effective_share(low_twist, low_tailed) > 3 * effective_share(everywhere, low_tailed)


def test_the_effective_share_of_a_run_is_foretold(low_twist):
    assert abs(low_twist.held_out.ess / effective_share(low_twist, low_tailed) - 1) < 0.25
    nothing = learn(low_tailed, calls=1000, draws=200, family=[Flat()])
    assert abs(nothing.held_out.ess / effective_share(nothing, low_tailed) - 1) < 0.25


def test_a_depth_that_no_value_reaches_changes_nothing():
    plain, deep = (learn(paired, family=tt.PairTables(1, depth=depth), calls=400) for depth in (None, 1e3))
    assert torch.equal(plain.twist.entries, deep.twist.entries)


def test_weights_of_all_rounds_are_those_of_their_mixture():
    """Draws of p0 and of p0 exp(h): the mean of any function by them is that of p0 exp(r)."""
    model, target = chain()
    half = learn(lambda x: additive(x) / 2, calls=4000).twist
    rounds, samples = [], []
    for number, twist in enumerate([None, half]):
        found = weighed_draws(model, 3000, twist, tuple(range(D)), 1, number)
        log_z = float(found.log_w.logsumexp(0)) - math.log(3000)
        none = Mutants(*(torch.zeros(0, dtype=torch.int64) for _ in range(3)), torch.zeros(0))
        rounds.append(
            Lessons(found.x, additive(found.x), none, found.steps, S, found.log_w - log_z, torch.ones(3000).bool())
        )
        samples.append(Sample(found.x, additive(found.x), found.log_w - log_z, twist, log_z))
    every = weighed(rounds, samples)
    w = every.log_weight.softmax(0)
    seen = (w[:, None, None] * torch.nn.functional.one_hot(every.x, S)).sum(0)
    assert (seen - target.marginals()).abs().max() < 4.5 * 0.5 * float((w**2).sum()) ** 0.5
    alone = rounds[0].value.softmax(0)
    assert float((w**2).sum()) < 0.5 * float((alone**2).sum())
    low = every.low
    assert 0.04 < float(w[every.value < low].sum()) <= 0.05


def test_a_draw_keeps_the_steps_of_its_own_line():
    """A twist so uneven that the draws are resampled: every step of a draw shows the draw itself, partly masked."""
    found = weighed_draws(chain()[0], 100, lambda x, t: 4.0 * (x == 1).sum(-1), None, 0, 1)
    steps, final = found.steps, found.x[found.steps.draw]
    assert len(found.x.unique(dim=0)) < 90
    assert ((steps.x == S) | (steps.x == final)).all()
    assert torch.equal(torch.bincount(steps.draw), torch.full((100,), D))


def test_equal_draws_are_held_out_together():
    found = weighed_draws(chain()[0], 400, lambda x, t: 4.0 * (x == 1).sum(-1), None, 0, 1)
    none = Mutants(*(torch.zeros(0, dtype=torch.int64) for _ in range(3)), torch.zeros(0))
    lessons = Lessons(
        found.x, additive(found.x), none, found.steps, S, torch.zeros(400).double(), torch.ones(400).bool()
    )
    assert len(lessons.parts()) == 1
    uneven = lessons._replace(log_weight=-torch.arange(400).double()).parts()
    assert sum(len(held.x) for _, held in uneven) == 400
    for fit, held in [*lessons.parts(), *uneven]:
        assert len(fit.x) + len(held.x) == 400
        assert not {tuple(x.tolist()) for x in fit.x} & {tuple(x.tolist()) for x in held.x}


def test_files_without_an_effective_share_are_read(tmp_path, pairs_twist):
    from safetensors.torch import load_file, save_file

    pairs_twist.save(tmp_path / "new")
    facts = json.loads(_header(tmp_path / "new")["truetilt"])
    old = {"held_out": facts["held_out"][:4], "tried": [one[:4] for one in facts["tried"]]}
    save_file(load_file(tmp_path / "new"), tmp_path / "old", metadata=_header(tmp_path / "new", **old))
    again = tt.LearnedTwist.load(tmp_path / "old")
    assert again.held_out.spread == pairs_twist.held_out.spread
    assert abs(again.held_out.ess - math.exp(-(again.held_out.spread**2))) < 1e-12


def test_a_family_of_ones_own():
    class Counting:
        name = "counting"

        def fit(self, lessons):
            assert lessons.mask == S
            return lambda x, t: (x == S).sum(-1).double()

    twist = learn(additive, family=Counting(), strength=2.0, calls=200, draws=50)
    assert twist.held_out.family == "counting"
    assert twist(torch.full((1, D), S), 1.0).tolist() == [D / 2]
    assert twist.site_values(MASKED[-1:], torch.tensor([0]), 1.0).tolist() == [[(D - 1) / 2] * S]
    with pytest.raises(tt.InvalidInput, match="of your own"):
        twist.save("nowhere.safetensors")


class Endless:
    name = "endless"

    def fit(self, lessons):
        return lambda x, t: torch.full((len(x),), torch.inf)


def broken(x, t):
    return tt.SiteLogits.of(torch.full((*x.shape, S), torch.nan, dtype=torch.float64))


def spelled(sequence):
    return sequence.count("CG")


def matched(sequence):
    return len(re.findall("CG", sequence))


def contained(sequence):
    return 1.0 if "CG" in sequence else 0.0


LONGER = tt.Model(PROCESS, D + 1, tt.ChainScore(PROCESS, tt.ChainLaw(INITIAL[0], STEPS, torch.zeros(D + 1, S))))
WIDER = tt.Model(tt.Masking(S + 1), D, lambda x, t: tt.SiteLogits.of(torch.zeros(*x.shape, S + 1)))


@pytest.mark.parametrize("model", [LONGER, WIDER], ids=["longer", "wider"])
def test_a_twist_of_another_length_or_vocabulary_is_refused_before_work(model, pairs_twist):
    for make in (
        lambda: tt.Composed(model, reward=paired, twist=pairs_twist, order=range(model.length)),
        lambda: tt.Annealed(tt.Composed(model, reward=paired, twist=pairs_twist), 3),
        lambda: tt.Steered(model, paired, twist=pairs_twist),
    ):
        with pytest.raises(tt.InvalidInput, match=r"the twist was learned for a model of (length 6|vocabulary 4)"):
            make()


@pytest.mark.parametrize("function", [spelled, matched, contained])
def test_a_function_of_strings_is_told_of_the_tokenizer(function):
    model = chain()[0]
    for work in (
        lambda: learn(function),
        lambda: tt.run(tt.Composed(model, reward=function), particles=4),
        lambda: tt.run(tt.Steered(model, function), tt.uniform_grid(3), particles=4),
        lambda: tt.Lookahead(model, function)(MASKED[-1:], 1.0),
    ):
        with pytest.raises(tt.InvalidInput, match=r"takes states for strings.*tt\.Reward\(function, tokenizer="):
            work()
    with pytest.raises(tt.InvalidInput, match=r"given tokens.*tt\.Reward\(function, tokenizer="):
        tt.Reward(function)(ALL[:3])


def test_errors_of_the_function_itself_stay_what_they_are():
    def own(x):
        return x.no_such_thing

    with pytest.raises(AttributeError):
        learn(own)


def test_candidates_without_a_twist_are_refused():
    with pytest.raises(tt.InvalidInput, match="give the twist too"):
        tt.Composed(chain()[0], reward=paired, candidates=2)


BAD = {
    "(?i)model": lambda: tt.learn_twist(3, additive),
    "no mask": lambda: tt.learn_twist(tt.Model(tt.Uniform(S), D, chain()[0].base), additive),
    "the reward is 3": lambda: learn(3),
    "not 0": lambda: learn(additive, strength=0),
    "finite": lambda: learn(additive, strength=float("nan")),
    "calls": lambda: learn(additive, calls=0),
    "give at least 50 calls": lambda: learn(additive, calls=49),
    "name each of the 6 sites": lambda: learn(additive, order=[0, 0, 1, 2, 3, 4]),
    "one number a state": lambda: learn(lambda x: x.double()),
    r"NaN or \+inf for .* the first of them \[": lambda: learn(lambda x: additive(x) * torch.nan),
    "-inf on all": lambda: learn(lambda x: torch.full((len(x),), -torch.inf)),
    "family": lambda: learn(additive, family=3),
    "empty": lambda: learn(additive, family=[]),
    "is NaN or infinite on some state": lambda: learn(additive, family=Endless()),
    "the base score returned": lambda: tt.learn_twist(tt.Model(PROCESS, D, lambda x, t: x), additive),
    "only -inf": lambda: tt.learn_twist(tt.Model(PROCESS, D, broken), additive),
    "ridge": lambda: tt.PairTables(1, 0.0),
    "clean_reach": lambda: tt.PairTables(1, clean_reach=2),
    "reach": lambda: tt.PairTables(-1),
    "depth": lambda: tt.PairTables(1, depth=-1.0),
    "completions": lambda: tt.Lookahead(chain()[0], additive, completions=0),
    "average": lambda: tt.Lookahead(chain()[0], additive, average=3),
    "lowest": lambda: tt.Lookahead(chain()[0], additive, lowest=-torch.inf),
    "fill masked sites": lambda: tt.Lookahead(tt.Model(tt.Uniform(S), D, chain()[0].base), additive),
    "average returned": lambda: tt.Lookahead(chain()[0], additive, average=lambda r, s: r)(MASKED[-1:], 1.0),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_named(words):
    with pytest.raises((tt.InvalidInput, tt.InvalidWeights), match=words):
        BAD[words]()


def test_a_file_that_is_no_twist_is_refused(tmp_path, pairs_twist):
    from safetensors.torch import load_file, save_file

    with pytest.raises(tt.InvalidInput, match="there is no file"):
        tt.LearnedTwist.load(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    path = tmp_path / "twist"
    pairs_twist.save(path)
    tensors = load_file(path)
    save_file(tensors, tmp_path / "bare")
    save_file({"entries": tensors["entries"] * torch.nan}, tmp_path / "nan", metadata=_header(path))
    save_file({"entries": tensors["entries"][:-1]}, tmp_path / "short", metadata=_header(path))
    save_file(tensors, tmp_path / "vast", metadata=_header(path, layout=[6, 1 << 40, 5]))
    save_file(tensors, tmp_path / "kind", metadata=_header(path, kind="os.system"))
    for name in ("text", "bare", "nan", "short", "vast", "kind"):
        with pytest.raises(tt.InvalidInput, match="is no saved twist"):
            tt.LearnedTwist.load(tmp_path / name)


def _header(path, **changes):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {"truetilt": json.dumps(json.loads(file.metadata()["truetilt"]) | changes)}


def one_shot(x, reward, strength):
    """log E exp(strength r) / strength and E r over all independent completions, exactly, for one state [D]."""
    model = chain()[0]
    p = model.base(x[None], 0.5).normalised().dense()[0]
    fits = ((x == ALL) | (x == S)).all(-1)
    log_q = torch.where(x == S, p[torch.arange(D), ALL], 0.0).sum(-1)[fits]
    values = reward(ALL[fits])
    return (log_q + strength * values).logsumexp(0) / strength, (log_q.exp() * values).sum()


def test_completions_converge_to_the_exact_averages():
    """20,000 completions of 3 states; errors within 4.5 standard errors by the delta method (6 figures)."""
    k = 20_000
    x = torch.tensor([[S] * D, [0, S, S, 1, S, 2], [S, 3, 2, 1, 0, 0]])
    model = chain()[0]
    soft, plain = (tt.Lookahead(model, paired, 0.5, k, average=how) for how in (tt.soft_mean, tt.plain_mean))
    for state, a, b in zip(x, soft(x, 0.5), plain(x, 0.5), strict=True):
        values = paired(soft.complete(state[None], 0.5)[0])
        heavy = (0.5 * values).exp()
        exact_soft, exact_plain = one_shot(state, paired, 0.5)
        assert abs(float(a - exact_soft)) < 4.5 * float(heavy.std() / heavy.mean()) / 0.5 / k**0.5
        assert abs(float(b - exact_plain)) < 4.5 * float(values.std()) / k**0.5


def test_a_lookahead_is_a_function_of_the_state_and_its_seed():
    look = tt.Lookahead(chain()[0], paired, completions=3)
    x = MASKED[torch.arange(0, len(MASKED), 11)]
    first = look(x, 0.5)
    assert torch.equal(look(x.flip(0), 0.5).flip(0), first)
    alone = torch.cat([look.complete(row[None], 0.5) for row in x[:40]])
    assert torch.equal(alone, look.complete(x, 0.5)[:40])
    other = dataclasses.replace(look, seed=1)(x, 0.5)
    masked = (x == S).any(-1)
    assert (other != first)[masked].double().mean() > 0.5
    assert torch.equal(other[~masked], paired(x[~masked]))
    kept = look.complete(x, 0.5)
    assert ((kept == x[:, None]) | (x == S)[:, None]).all()
    assert (kept < S).all()


def test_forbidden_completions_make_a_state_poor_and_not_impossible():
    def never(x):
        return torch.full((len(x),), -torch.inf)

    x = torch.tensor([[S] * D, [0] * D])
    for how in (tt.soft_mean, tt.plain_mean):
        assert tt.Lookahead(chain()[0], never, 2.0, average=how, lowest=-30.0)(x, 0.5).tolist() == [-15.0, -torch.inf]


def test_a_reward_may_take_a_time_too():
    look = tt.Lookahead(chain()[0], lambda x, t: additive(x) + t)
    assert torch.equal(look(ALL[:5], 0.0), additive(ALL[:5]))
