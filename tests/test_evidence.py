"""What all draws say of an answer of `steer`: mass missed, tails, what nothing excludes; and that it goes on."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from truetilt.core.budget import Budget
from truetilt.steering.account import Account
from truetilt.steering.evidence import Evidence, law_of, spread_out, tail_shape
from truetilt.steering.findings import HEAVY, MISSED, MOSTLY, findings
from truetilt.steering.join_runs import with_draws_beside
from truetilt.steering.problem import SteerProblem
from truetilt.steering.routes import importance
from truetilt.steering.stages import Work
from truetilt.steering.trials import Tried
from truetilt.twists.layout import TableLayout
from truetilt.twists.pool import Sample, pooled, read_sample, sample_of
from truetilt.twists.recorded_draws import steps_of, weighed_draws
from truetilt.twists.tables import TableTwist

STEPS = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])


def dna(length):
    law = tt.ChainLaw(torch.ones(4), STEPS, torch.zeros(length, 4))
    return tt.Model(tt.Masking(4), length, tt.ChainScore(tt.Masking(4), law))


def target(length, sites):
    """The chain with the likelihood exp(sites)."""
    return tt.ChainLaw(torch.ones(4), STEPS, sites)


def gc(x):
    return ((x == 1) | (x == 2)).sum(-1).double()


def linear(seed, length):
    layout = TableLayout(length, 5, 0)
    entries = torch.randn(layout.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    entries[-1] = 0.0
    return TableTwist(layout, entries)


# all draws as one sample


def samples_of(length, count, seed=0):
    """Draws of p0 and of two twisted laws, with the number of G and C as their value."""
    found = []
    for number, twist in enumerate([None, linear(1, length), linear(2, length)]):
        drawn = weighed_draws(dna(length), count, twist, tuple(range(length)), seed, number)
        found.append(sample_of(drawn, gc(drawn.x), twist))
    return found


def test_all_draws_together_estimate_z():
    """12 seeds, z-scores of their mean: bounded weights, false alarms 1e-5 (4.4 standard errors)."""
    length = 6
    sites = torch.zeros(length, 4)
    sites[:, 1:3] = 1.0
    exact = float(target(length, sites).log_z)
    ratios = torch.tensor([math.exp(pooled(samples_of(length, 400, seed)).log_z - exact) for seed in range(12)])
    assert abs(float(ratios.mean()) - 1) < 4.4 * float(ratios.std()) / math.sqrt(12) + 1e-3


def test_draws_weighed_as_if_all_were_of_p0_are_noticed():
    """A wrong variant: without the mixture's density the twisted draws are taken for draws of p0."""
    length = 6
    sites = torch.zeros(length, 4)
    sites[:, 1:3] = 1.0
    exact = float(target(length, sites).log_z)
    wrong = torch.tensor(
        [
            math.exp(pooled([replace_twist(one) for one in samples_of(length, 400, seed)]).log_z - exact)
            for seed in range(12)
        ]
    )
    assert abs(float(wrong.mean()) - 1) > 4.4 * float(wrong.std()) / math.sqrt(12) + 1e-3


def beside(seed, length=6, count=160):
    """Draws of p0 in eight populations, and two twisted samples beside them."""
    goal = tt.Composed(dna(length), reward=gc, order=range(length))
    result = tt.run(goal, particles=count // 8, populations=8, resample=tt.never, seed=seed)
    return result, samples_of(length, count + 3, seed)[1:]


def test_an_answer_with_draws_of_other_laws_beside_it():
    """24 seeds: log Z unbiased (4.4 standard errors, false alarms 1e-5), populations as spread as they say, and more
    effective draws; with weights that forget the mixture it is noticed."""
    length = 6
    sites = torch.zeros(length, 4)
    sites[:, 1:3] = 1.0
    exact, right, wrong, scores, gained = float(target(length, sites).log_z), [], [], [], []
    for seed in range(24):
        result, others = beside(seed)
        every = with_draws_beside(result, others)
        assert every.log_weights.shape == (8, 3 * result.log_weights.shape[1])
        assert torch.equal(every.particles[:, : result.log_weights.shape[1]], result.particles)
        assert float(every.log_z_path[-1].logsumexp(0)) - math.log(8) == pytest.approx(every.log_z)
        right.append(math.exp(every.log_z - exact))
        wrong.append(math.exp(with_draws_beside(result, [replace_twist(one) for one in others]).log_z - exact))
        scores.append((right[-1] - 1) / every.log_z_stderr)
        gained.append(float(every.weights.square().sum().reciprocal() / result.weights.square().sum().reciprocal()))
    right, wrong = torch.tensor(right), torch.tensor(wrong)
    assert abs(float(right.mean()) - 1) < 4.4 * float(right.std()) / math.sqrt(24)
    assert abs(float(wrong.mean()) - 1) > 4.4 * float(wrong.std()) / math.sqrt(24)
    assert 0.5 < float(torch.tensor(scores).square().mean()) < 2  # chi2 of 24, 8 populations each: false alarms 1e-3
    assert min(gained) > 1


def test_draws_that_taught_nothing_count_in_the_answer():
    """A parity teaches no twist: the draws of its lessons are draws of p0 nearly, and the answer has them."""

    def parity(x):
        return 4.0 * (x.sum(-1) % 4 == 0)

    result = tt.steer(dna(12), parity, calls=1000, route=None)
    assert result.settings["steer"]["route"] == "importance"
    drawn = sum(stage["spent"]["calls"] for stage in result.settings["steer"]["stages"] if "check" not in stage["what"])
    assert result.log_weights.numel() > 0.95 * drawn
    if any("learned" in line for line in result.story):
        assert any("draws of other laws beside them" in line for line in result.story)


def replace_twist(sample):
    return sample._replace(twist=None, log_z=0.0)


def test_no_weight_exceeds_what_draws_of_p0_allow():
    """w <= exp(value) / n_0: a mode that p0 met cannot be forgotten."""
    found = samples_of(6, 100)
    every = pooled(found)
    own = torch.cat([one.log_own for one in found])
    assert bool((every.log_w <= own + every.value - math.log(100) + 1e-9).all())


def test_a_sample_is_read_as_it_was_saved(tmp_path):
    for one in samples_of(5, 50):
        one.save(tmp_path / "one.safetensors")
        again = read_sample(tmp_path / "one.safetensors", "cpu")
        assert torch.equal(again.x, one.x)
        assert torch.equal(pooled([again]).log_w, pooled([one]).log_w)


@pytest.mark.parametrize("order", [tuple(range(5)), (3, 0, 4, 1, 2), None])
def test_steps_of_given_states_are_those_that_draw_them(order):
    """The chain rule: the log-probabilities along a state's steps add up to its own, in any order."""
    x = torch.randint(0, 4, (40, 5), generator=torch.Generator().manual_seed(0))
    steps, spent = steps_of(dna(5), x, order, 0)
    assert spent.evaluations == 40 * 5
    assert torch.equal(torch.bincount(steps.draw), torch.full((40,), 5))
    token = x[steps.draw].gather(1, steps.site[:, None])
    picked = steps.log_p.gather(1, token).squeeze(1)
    total = torch.zeros(40, dtype=torch.float64).index_add(0, steps.draw, picked)
    start, step = torch.ones(4).double().log_softmax(0), (STEPS / STEPS.sum(-1, keepdim=True)).double().log()
    exact = start[x[:, 0]] + step[x[:, :-1], x[:, 1:]].sum(-1)
    assert torch.allclose(total, exact, atol=1e-6)


# the tail of weights


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.2])
def test_the_shape_of_a_tail_is_found(shape):
    """Of 4,000 draws of a Pareto law, 189 in the tail: within 4 standard errors (1 + k) / sqrt(189), 10 seeds."""
    for seed in range(10):
        u = torch.rand(4000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert abs(tail_shape(-shape * torch.log1p(-u)) - shape) < 4 * (1 + shape) / math.sqrt(189)


def test_a_tail_of_few_values_or_of_no_mass_has_no_shape():
    two = torch.where(torch.arange(1000) % 100 == 0, 8.0, 0.0).double()
    assert tail_shape(two) is None
    assert tail_shape(torch.randn(100).double()) is None
    assert tail_shape(torch.full((1000,), -torch.inf).double()) is None


def test_a_reward_that_counts_in_steps_has_a_tail_too():
    """Geometric steps of log-weight .7 with ratio e^-.9 fall off as a Pareto law of shape .7 / .9."""
    u = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps = (-torch.log(u) / 0.9).floor()
    assert abs(tail_shape(0.7 * steps) - 0.7 / 0.9) < 0.25
    spread = spread_out((0.7 * steps).sort().values)
    assert bool((spread.diff() >= 0).all())
    assert abs(float((spread - (0.7 * steps).sort().values).abs().max()) - 0.7) < 0.71


# mass that an answer missed


def bimodal(s):
    """G and C count; a motif that holds half of the target is worth ten more (exact log Z 15.153)."""
    return s.count("G") + s.count("C") + 8.67 * ("TATAA" in s)


def test_a_mode_that_was_met_is_not_forgotten():
    """Where the draws of p0 met the motif, the answer that misses half of the target is not trusted."""
    for seed in (1, 2):
        reward = tt.Reward(bimodal, tokenizer="ACGT", one_at_a_time=True)
        result = tt.steer(dna(24), reward, calls=2000, seed=seed)
        states, _ = reward.known()
        met = sum("TATAA" in text for text in reward.spell(states))
        if met and abs(result.log_z - 15.15) > 0.1:
            evidence = result.settings["steer"]["evidence"]
            assert evidence["missed"] > MISSED
            assert result.trust().verdict != tt.Verdict.trust
            assert any("misses mass that was met" in reason for reason in result.trust().reasons)


@pytest.mark.parametrize(
    ("log_z", "believed"), [(-math.inf, True), (2.0, True), (2.39, True), (2.41, False), (9.0, False)]
)
def test_an_answer_with_less_than_all_draws_together_is_not_believed(log_z, believed):
    """A twist that knows of a mode which no draw of the answer reached: its residual there is low, and its Z too."""
    found = Evidence(log_z, 0.0, 0, None, None, 400, 0.02, 9.0, 0.3, 0.1)
    told = [words for verdict, words in findings_of(found, log_z=2.0) if verdict == tt.Verdict.doubt.value]
    assert [words.startswith("All draws together have") for words in told] == [True] * (not believed)


def findings_of(evidence, log_z):
    """Findings on an answer with this log Z."""
    model, weights = dna(2), torch.full((4, 8), log_z, dtype=torch.float64)
    times, paths = torch.zeros(1), torch.zeros(1, 4)
    result = tt.Result(torch.zeros(4, 8, 2, dtype=torch.int64), weights, times, paths, paths, torch.zeros(1, 4, 8))
    problem = SteerProblem(model, tt.Reward(gc), 1.0, (0, 1), 2)
    work = Work(problem, Account(Budget(100, 10), math.inf), None, 0)
    return findings(Tried(importance(problem), result, 1.0), evidence, work)


def test_a_right_answer_is_left_alone():
    for seed in range(2):
        reward = tt.Reward(lambda s: s.count("G") + s.count("C"), tokenizer="ACGT", one_at_a_time=True)
        result = tt.steer(dna(24), reward, 3.0, calls=2000, seed=seed)
        assert abs(result.log_z - 56.4251) < 0.01
        assert result.trust().verdict == tt.Verdict.trust
        assert result.settings["steer"]["evidence"]["missed"] < MISSED < MOSTLY


def test_where_several_sites_are_revealed_a_step_only_draws_of_one_law_are_joined():
    """Sites of one step are drawn apart, which is another p0 than that of a round of learning. 1,000 draws at once of a
    strong chain: log Z of all samples is that of the answer, off the chain's own by a nat (5 standard errors: .4)."""
    strong = torch.eye(4) * 20 + 1
    law = tt.ChainLaw(torch.ones(4), strong, torch.zeros(12, 4))
    model = tt.Model(tt.Masking(4), 12, tt.ChainScore(tt.Masking(4), law))
    result = tt.steer(model, gc, 1.0, calls=4000, num_inference_steps=2)
    assert any("learned" in line for line in result.story)
    assert result.settings["steer"]["evidence"]["log_z"] == pytest.approx(result.log_z, abs=0.4)
    assert abs(float(twisted_chain(strong, 12).log_z) - result.log_z) > 1
    assert result.settings["steer"]["evidence"]["missed"] < MISSED


def twisted_chain(steps, length):
    sites = torch.zeros(length, 4)
    sites[:, 1:3] = 1.0
    return tt.ChainLaw(torch.ones(4), steps, sites)


def test_the_law_of_a_chain_leads_to_where_it_stayed():
    chain = torch.tensor([[0, 1, 2, last] for last in (3, 0, 1, 2, 3, 0, 1, 2)])
    base = weighed_draws(dna(4), 400, None, tuple(range(4)), 0, 0)
    law = law_of(chain, Sample(base.x, gc(base.x), torch.zeros(400).double()), 4)
    drawn = weighed_draws(dna(4), 400, law, tuple(range(4)), 0, 1)
    shares = [float((drawn.x[:, site] == chain[0, site]).double().mean()) for site in range(3)]
    assert min(shares) > 0.7
    assert float((drawn.x[:, 3] == 3).double().mean()) < 0.6


def test_what_nothing_excludes_is_told_with_numbers():
    reward = tt.Reward(lambda s: s.count("G") + s.count("C"), tokenizer="ACGT", one_at_a_time=True, highest=24)
    result = tt.steer(dna(24), reward, 3.0, calls=2000)
    evidence = result.settings["steer"]["evidence"]
    share, least = evidence["unmet_share"], evidence["unmet_reward"]
    moved = math.log1p(share * math.exp(3.0 * least - result.log_z))
    assert moved == pytest.approx(0.05)
    assert share == pytest.approx(7 / evidence["draws"])
    (told,) = [reason for reason in result.trust().reasons if reason.startswith("Not excluded")]
    assert f"{least:.4g} or more" in told
    assert "highest=24 allows" in told
    assert result.trust().verdict == tt.Verdict.trust  # the bound alone is no reason to refuse a right answer
    bounded = tt.Reward(lambda s: min(s.count("G"), 3), tokenizer="ACGT", one_at_a_time=True, highest=3)
    told = " ".join(tt.steer(dna(24), bounded, calls=2000).trust().reasons)
    assert "highest rules out" in told


def test_slow_tails_are_told():
    """Longest runs of a token on a chain of 64 sites: the mean of weights hangs on runs that few draws have."""

    def longest(x):
        best = now = torch.zeros(len(x))
        for token in x.T:
            now = torch.where(token == 0, now + 1, 0.0)
            best = torch.maximum(best, now)
        return best

    weights = [tt.run(tt.Composed(dna(64), reward=longest, strength=0.8, order=range(64)), particles=2000,
                      resample=tt.never, seed=seed).log_weights.reshape(-1) for seed in range(3)]  # fmt: skip
    assert max(tail_shape(one) for one in weights) > 0.7 > HEAVY


# it goes on


def each_twice(x):
    fits = torch.stack([(x == token).sum(-1) == 2 for token in range(4)]).all(0)
    return torch.where(fits, (x == 2).sum(-1).double(), -torch.inf)


def test_rewards_that_forbid_nearly_everything_end_in_an_answer():
    result = tt.steer(dna(8), each_twice, calls=1500)
    assert abs(result.log_z - -1.9416) < 5 * result.log_z_stderr
    assert result.spent.distinct > 1300


@pytest.mark.parametrize("route", [None, "importance"])
def test_where_nothing_is_allowed_the_answer_says_so(route, tmp_path):
    result = tt.steer(dna(8), lambda x: torch.full((len(x),), -torch.inf), calls=400, route=route)
    assert result.log_z == -math.inf
    assert result.trust().verdict == tt.Verdict.doubt
    assert "no allowed state was met" in result.trust().reasons[0]
    assert "leave room for unmet states" in " ".join(result.trust().reasons)
    assert result.story
    again = tt.Result.load(result.save(tmp_path))
    assert str(again.trust()) == str(result.trust())
    with pytest.raises(tt.DegenerateWeights):
        result.draw(1)


def test_a_negative_strength_forbids_too():
    result = tt.steer(dna(8), each_twice, -1.0, calls=600)
    assert result.log_z == pytest.approx(-1.9416 - 4.0, abs=1.0)  # each token twice: the reward is 2 throughout


@pytest.mark.parametrize("populations", [5, 16])
@pytest.mark.parametrize("route", [None, "twisted", "annealed"])
def test_an_answer_has_as_many_populations_as_were_asked(populations, route):
    reward = tt.Reward(lambda s: s.count("G") + s.count("C"), tokenizer="ACGT", one_at_a_time=True)
    result = tt.steer(dna(8), reward, 2.0, calls=4000, route=route, populations=populations)
    assert result.log_weights.shape[0] == populations


def test_a_reward_that_writes_into_its_input_changes_nothing():
    def writes(x):
        value = gc(x)
        x.fill_(0)
        return value

    for build in (
        lambda f: tt.Composed(dna(6), reward=f, strength=1.0),
        lambda f: tt.Annealed(tt.Composed(dna(6), reward=f), 4),
        lambda f: tt.Steered(dna(6), lambda x, t: f(x)),
    ):
        grid = tt.uniform_grid(8) if isinstance(build(gc), tt.Steered) else None
        one, other = (tt.run(build(f), grid, particles=32) for f in (gc, writes))
        assert torch.equal(one.particles, other.particles)
        assert torch.equal(one.log_weights, other.log_weights)


def test_a_network_that_writes_into_its_input_is_refused():
    model = dna(6)

    def base(x, t):
        x.fill_(4)
        return model.base(x, t)

    with pytest.raises(tt.InvalidInput, match="base score writes to the states"):
        tt.run(tt.Composed(replace(model, base=base), reward=gc), particles=8)


def uneven(length):
    """Conditionals that agree with no joint law: the chain's, sharper the more sites are masked."""
    model = dna(length)

    def base(x, t):
        masked = (x == 4).sum(-1)[:, None, None].double() / length
        return tt.SiteLogits.of((1 + masked) * model.base(x, t).dense())

    return replace(model, base=base)


def test_where_the_order_matters_it_is_told():
    result = tt.steer(uneven(10), gc, 1.0, calls=2000)
    assert any("differ by" in line for line in result.story)
    (line,) = [line for line in result.story if "in the reverse order" in line]
    assert "log Z would change by" in line
    other = tt.steer(uneven(10), gc, 1.0, calls=2000, order=range(9, -1, -1))
    change = float(line.split("change by ")[1].split(" ")[0])
    assert result.log_z + change == pytest.approx(other.log_z, abs=0.1)
    told = any("another law in another order" in reason for reason in result.trust().reasons)
    assert told == (abs(change) > 0.05)
    agreeing = tt.steer(dna(10), gc, 1.0, calls=500)
    assert any("agree" in line and "they do" in line for line in agreeing.story)


OWN = 0.5 * torch.randn((4,) * 5, generator=torch.Generator().manual_seed(0))


def nearly_gc(x):
    """Twice the number of G and C, and a value of each state's own."""
    return 2.0 * gc(x) + OWN[tuple(x.T)]


CALLED: list[int] = []


def noted(function):
    def call(x):
        CALLED.append(1)
        return function(x)

    return call


def spelled(function):
    return tt.Reward(function, tokenizer="ACGT", one_at_a_time=True)


RESUMED = {
    "chains and laws led by them": (
        dna(24), spelled, bimodal, 2000, {"run", "agree", "twist", "check", "chains", "sample"}
    ),
    "another order": (uneven(10), tt.Reward, gc, 1000, {"run", "agree", "twist", "check", "order"}),
    "rounds that count new states": (dna(5), tt.Reward, nearly_gc, 300, {"run", "agree", "twist"}),
}  # fmt: skip  # fmt: skip


@pytest.mark.parametrize("name", RESUMED)
def test_stages_are_read_or_done_again_to_the_same_bits(name, tmp_path):
    """Without the last k stages, for every second k: the same answer at the same cost, and no state is called twice."""
    model, make, function, calls, kinds = RESUMED[name]
    result = tt.steer(model, make(noted(function)), calls=calls, seed=1, checkpoint=tmp_path / "whole")
    stages = sorted((tmp_path / "whole").glob("*-*"), key=lambda path: int(path.name.partition("-")[0]))
    assert {path.name.partition("-")[2] for path in stages} == kinds

    CALLED.clear()
    for kept in range(len(stages), -1, -2):
        folder = tmp_path / str(kept)
        shutil.copytree(tmp_path / "whole", folder)
        for path in stages[kept:]:
            shutil.rmtree(folder / path.name)
        found = tt.steer(model, make(noted(function)), calls=calls, seed=1, checkpoint=folder)
        assert torch.equal(found.particles, result.particles)
        assert torch.equal(found.log_weights, result.log_weights)
        assert (found.spent, found.story) == (result.spent, result.story)
    assert not CALLED
