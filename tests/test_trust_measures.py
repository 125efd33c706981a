"""What a run finds out about itself and its judge reads: conditionals, ratios of networks, moves, what nobody met.

Each is shown to fire where it must and to be silent on exact tables, and to survive files, unions and checkpoints.
"""

import json
import math
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import truetilt as tt
from problems import table
from test_consistency import LENGTH, ONE_SIDED, ones
from truetilt.smc.model_findings import ALLOWED, AMISS, APART, MADE_UP, MODEL_CHECKS, UNMET

sys.path.insert(0, str(Path(__file__).parents[1] / "proofs"))

SIZES = {"particles": 32, "populations": 16}
EXACT = table(tt.Masking, 3, 3).model()


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the conditionals of this model disagree")
        yield


# Conditionals that disagree.

FIXED = tuple(range(LENGTH))
GOAL = tt.Composed(ONE_SIDED, reward=ones, strength=0.5, order=FIXED)


@pytest.mark.parametrize("kernel", [tt.Gibbs, tt.Metropolis, tt.Pair, partial(tt.Block, size=2)])
def test_moves_by_conditionals_that_disagree_are_not_trusted(kernel):
    moved = tt.run(GOAL, moves=tt.Rejuvenation(kernel(GOAL), at_end=2), **SIZES).trust()
    annealed = tt.run(tt.Annealed(GOAL, 4, kernel=kernel), **SIZES).trust()
    for trust in (moved, annealed):
        assert trust.verdict == "do not trust"
        assert trust.figures.measured.disagreement > APART
        assert any("tt.WholeSequence" in reason and "tt.Composed" in reason for reason in trust.reasons)
    assert tt.run(GOAL, **SIZES).trust().verdict == "trust"  # without moves: the law of that order, sampled right


def test_rejuvenation_by_conditionals_that_disagree_is_warned_of():
    with pytest.warns(UserWarning, match="the conditionals of this model disagree"):
        tt.run(GOAL, moves=tt.Rejuvenation(tt.Gibbs(GOAL), at_end=1), particles=20)


def test_a_small_disagreement_calls_for_care():
    trust = tt.run(GOAL, moves=tt.Rejuvenation(tt.Gibbs(GOAL), at_end=2), **SIZES).trust()
    figures = trust.figures
    for nats, verdict in ((ALLOWED * 0.9, "trust"), (ALLOWED * 1.1, "use with care"), (APART * 1.1, "do not trust")):
        measured = figures.measured._replace(disagreement=nats)
        assert judged(replace(figures, measured=measured)) == verdict


def judged(figures):
    from truetilt.smc.trust import judge

    return judge(figures).verdict


def test_moves_that_read_no_conditionals_are_not_asked_about():
    whole = tt.WholeSequence(GOAL, log_prob=lambda x: torch.zeros(len(x)))
    result = tt.run(GOAL, moves=tt.Rejuvenation(whole, at_end=1), **SIZES)
    assert result.trust().figures.measured.disagreement is None
    assert result.spent.rounds == LENGTH


def test_the_measure_survives_files_unions_and_checkpoints(tmp_path):
    fk, moves = GOAL, tt.Rejuvenation(tt.Gibbs(GOAL), at_end=1)
    one, two = (tt.run(fk, moves=moves, particles=30, seed=seed) for seed in (0, 1))
    found = [run.settings["measured"]["disagreement"] for run in (one, two)]
    assert tt.Result.load(one.save(tmp_path / "saved")).settings["measured"] == one.settings["measured"]
    united = tt.Result.union([one, two])
    assert united.trust().figures.measured.disagreement == max(found)

    def stop(done, particles, info):
        if done == 2:
            raise KeyboardInterrupt

    options = {"moves": moves, "particles": 30, "seed": 0, "checkpoint": tmp_path / "on", "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        tt.run(fk, watch=stop, **options)
    resumed = tt.run(fk, **options)
    assert resumed.settings["measured"] == one.settings["measured"]
    assert resumed.spent == one.spent
    assert tt.run(fk, **options).spent == one.spent  # a finished one is looked at again


def test_a_file_without_measures_still_loads_and_one_with_others_does_not(tmp_path):
    tt.run(GOAL, particles=8).save(tmp_path)
    header = json.loads((tmp_path / "particles.json").read_text())
    for change, fits in ((None, True), ({"disagreement": "x"}, False), ({"other": 1.0}, False), (3, False)):
        settings = {k: v for k, v in header["settings"].items() if k != "measured"}
        settings |= {} if change is None else {"measured": change}
        settings["remedies"] = {"lower": "", "weigh": "", "move": ""}  # as written before 0.2
        (tmp_path / "particles.json").write_text(json.dumps(header | {"settings": settings}))
        if fits:
            assert tt.Result.load(tmp_path).trust()
        else:
            with pytest.raises(tt.InvalidInput, match="measured is "):
                tt.Result.load(tmp_path)


# Ratios of two networks.

SITES, TOKENS = 16, 5


def chain():
    """A chain with a condition of which only the last two sites tell: p(zeta) is about a half."""
    generator = torch.Generator().manual_seed(0)
    first, steps, factors = (
        torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((5,), (5, 5), (2, 5))
    )
    told = torch.cat([torch.ones(SITES - 2, TOKENS, dtype=torch.float64), 0.3 + 0.7 * factors])
    return tt.Chain(tt.Masking(TOKENS), first, steps**2, told).model()


def perturbed(score, sigma, seed):
    """A score whose logits have noise, a fixed random function of the state."""
    process, generator = tt.Masking(TOKENS), torch.Generator().manual_seed(seed)
    into = torch.randn((TOKENS + 1) * SITES, 64, generator=generator, dtype=torch.float64)
    out = torch.randn(64, SITES * TOKENS, generator=generator, dtype=torch.float64) * 2**0.5 / 8

    def posterior(x, t):
        states = torch.nn.functional.one_hot(x, TOKENS + 1).double().flatten(1)
        noise = (torch.sin(3 * states @ into) @ out).reshape(len(x), SITES, TOKENS)
        return process.posterior(score(x, t), x, t).dense() + sigma * noise

    return tt.PosteriorScore(process, posterior)


CONSISTENT = chain()
PAIR = replace(
    CONSISTENT, base=perturbed(CONSISTENT.base, 0.2, 1), conditional=perturbed(CONSISTENT.conditional, 0.2, 2)
)
FORGOTTEN = replace(PAIR, log_p_condition=None)
MADE = {
    "any order": lambda model, alpha: tt.AnyOrder(model, alpha),
    "in order": lambda model, alpha: tt.AnyOrder(model, alpha, order=tuple(range(SITES))),
    "composed": lambda model, alpha: tt.Composed(model, conditions=[(model.conditional, alpha)]),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("model", [PAIR, FORGOTTEN], ids=["bound", "no bound"])
def test_a_ratio_of_perturbed_networks_is_found_out(name, model):
    trust = tt.run(MADE[name](model, 8.0), **SIZES).trust()
    assert trust.verdict == "do not trust"
    assert any("errors of the two networks" in reason and "tt.Tilted" in reason for reason in trust.reasons)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("alpha", [1.5, 4.0, 8.0])
@pytest.mark.parametrize("bound", [True, False])
def test_consistent_networks_never_make_up_a_ratio(name, alpha, bound):
    model = CONSISTENT if bound else replace(CONSISTENT, log_p_condition=None)
    found = tt.run(MADE[name](model, alpha), **SIZES).trust()
    m = found.figures.measured
    assert (m.beyond if bound else m.retold or 0.0) == pytest.approx(0.0, abs=1e-9)
    assert not any("errors of the two networks" in reason for reason in found.reasons)


@pytest.mark.parametrize("seed", range(6))
def test_exact_tables_never_make_up_a_ratio(seed):
    model = table(tt.Masking, 4, 3, seed=seed).model()
    for known in (model, replace(model, log_p_condition=None)):
        for fk in (
            tt.AnyOrder(known, 30.0),
            tt.Annealed(tt.Composed(known, conditions=[(known.conditional, 30.0)]), 6),
        ):
            assert not any("errors of the two" in reason for reason in tt.run(fk, **SIZES).trust().reasons)


def test_annealing_to_a_ratio_of_perturbed_networks_is_found_out():
    goal = tt.Composed(PAIR, conditions=[(PAIR.conditional, 8.0)])
    whole = tt.run(tt.Annealed(goal, 2 * SITES), **SIZES).trust()
    assert whole.verdict == "do not trust"
    assert whole.figures.measured.log_ratio > whole.figures.measured.bound + 1


def test_summing_a_ratio_again_costs_a_round_a_site():
    plain = tt.run(tt.AnyOrder(PAIR, 8.0), particles=20).spent
    again = tt.run(tt.AnyOrder(FORGOTTEN, 8.0), particles=20).spent
    assert (again.rounds - plain.rounds, again.evaluations - plain.evaluations) == (2 * SITES, 2 * SITES * 16)


def test_how_much_of_the_weight_is_made_up_decides():
    figures = tt.run(tt.AnyOrder(CONSISTENT, 3.0), **SIZES).trust().figures
    for nats, verdict in ((AMISS * 0.9, "trust"), (AMISS * 1.1, "use with care"), (MADE_UP * 1.1, "do not trust")):
        measured = figures.measured._replace(beyond=nats / 2.0)  # the exponent less 1 is 2
        assert judged(replace(figures, measured=measured)) == verdict


@pytest.mark.parametrize("value", [1.0, math.nan, -math.inf, "x"])
def test_no_log_of_a_probability_is_refused(value):
    with pytest.raises(tt.InvalidInput, match="log_p_condition"):
        replace(CONSISTENT, log_p_condition=value)


def test_bundles_and_oracles_know_their_conditions():
    likely = table(tt.Masking, 3, 2)
    assert likely.model().log_p_condition == pytest.approx(float(likely.evidence.log()))
    assert tt.load("mnist").model(3).log_p_condition == pytest.approx(-math.log(10))
    assert tt.load("tiny-reviews").model("positive", "cfg").log_p_condition == pytest.approx(-math.log(6))


# How far it went.


def test_a_rewards_distance_from_the_base_is_a_remark_and_no_fault():
    process, length = tt.Masking(4), 24
    flat = tt.Model(process, length, tt.PosteriorScore(process, lambda x, t: torch.zeros(*x.shape, 4)))
    twist = lambda x, t: (x == 1).sum(-1) + (x == 4).sum(-1) * (math.log(0.75 + 0.25 * math.exp(4)) / 4)  # noqa: E731
    result = tt.run(tt.Composed(flat, reward=ones, strength=4.0, twist=twist), **SIZES)
    trust, p = result.trust(), math.exp(4) / (3 + math.exp(4))
    exact = length * (p * math.log(4 * p) + (1 - p) * math.log(4 * (1 - p) / 3))
    assert trust.verdict == "trust"
    assert trust.figures.measured.divergence == pytest.approx(exact, abs=0.5)
    assert any(f"lies {trust.figures.measured.divergence:.3g} nats from p0" in reason for reason in trust.reasons)


# Moves that do nothing.


def test_annealings_own_moves_are_noted():
    result = tt.run(tt.Annealed(tt.Composed(EXACT, reward=ones, strength=2.0), 5), **SIZES)
    assert (result.accepted[:4] == 0).all()  # the first draw and three reveals
    assert (result.accepted[4:] == 1).all()
    assert (result.moved[4:] > 0.05).all()
    metropolis = tt.Annealed(tt.Composed(EXACT, reward=ones, strength=2.0), 5, kernel=tt.Metropolis)
    assert (tt.run(metropolis, **SIZES).accepted[4:] < 1).all()


def test_moves_that_are_never_accepted_are_not_trusted():
    goal = tt.Composed(EXACT, reward=ones, strength=0.2)
    never = partial(tt.WholeSequence, log_prob=lambda x: -1e6 * torch.arange(len(x)))
    figures = tt.run(tt.Annealed(goal, 3), **SIZES).trust().figures
    assert judged(replace(figures, accepted=0.0)) == "use with care"
    assert judged(replace(figures, accepted=0.005, lines=20.0, moved=False)) == "use with care"
    stuck = replace(goal, reward=lambda x: torch.where((x == x[:, :1]).all(-1), 0.0, -math.inf))
    trust = tt.run(tt.Annealed(stuck, 3, kernel=never), **SIZES).trust()
    assert trust.verdict != "trust"


def test_moves_after_resampling_that_were_not_needed_are_no_fault():
    fk = tt.AnyOrder(EXACT, 1.0)
    result = tt.run(fk, moves=tt.Rejuvenation(tt.Gibbs(fk), after_resampling=2), **SIZES)
    assert (result.accepted == 0).all()
    assert result.trust().verdict == "trust"


def test_rewards_that_forbid_most_draws_are_not_trusted():
    goal = tt.Composed(EXACT, reward=lambda x: torch.where(x[:, 0] == 0, 0.0, -math.inf))
    trust = tt.run(goal, resample=tt.never, **SIZES | {"particles": 200}).trust()
    assert trust.figures.weightless > 0.5
    assert trust.verdict == "use with care"
    assert any("weight zero" in reason and "falls gently" in reason for reason in trust.reasons)


# States that no particle met.


def hidden_treasure(highest):
    """A reward that is flat but for one state in ten thousand, which holds nearly all of the target."""
    p0 = torch.full((3, 3), 0.9999 / 8)
    p0[2, 2] = 0.0001
    model = tt.Table(tt.Masking(3), p0, torch.ones(3, 3)).model()
    reward = tt.Reward(lambda x: 12.0 * (x == 2).all(-1), highest=highest)
    return tt.Composed(replace(model, conditional=None, potential=None), reward=reward)


def test_what_no_particle_met_is_noticed_where_the_most_is_known():
    blind, told = (tt.run(hidden_treasure(most), resample=tt.never, **SIZES).trust() for most in (None, 12.0))
    assert blind.figures.log_z < 1  # the truth is 2.8
    assert blind.verdict == "use with care"  # nobody could know what the reward is elsewhere; it says so
    assert "the same for all 512 particles" in blind.reasons[0]
    assert "states that no particle met" in str(blind)
    assert told.verdict == "use with care"
    assert told.figures.headroom == pytest.approx(12.0, abs=0.01)
    assert any("none of the 512 particles met" in reason for reason in told.reasons)


def test_generations_reach_further_than_draws():
    figures = tt.run(hidden_treasure(12.0), resample=tt.never, **SIZES).trust().figures
    figures = replace(figures, measured=figures.measured._replace(flat=False))
    assert judged(replace(figures, generations=3.0)) == "trust"  # 12 nats: 512 / 30 x 32 x 32 x 32
    near = math.log(16 * 32 / 3 * UNMET)
    for change, verdict in ((-0.01, "trust"), (0.01, "use with care")):
        measured = figures.measured._replace(most=near + change + figures.log_z)
        assert judged(replace(figures, measured=measured)) == verdict


@pytest.mark.parametrize(
    "fk", [tt.Tilted(EXACT, 3.0), tt.Tempered(EXACT, 3.0), tt.Steered(EXACT, EXACT.potential, 3.0)]
)
def test_log_probabilities_bound_what_a_state_can_weigh(fk):
    found = tt.run(fk, tt.uniform_grid(8), **SIZES).trust().figures
    assert found.headroom >= 0
    assert found.generations >= 0


def test_a_reward_above_its_most_is_refused():
    with pytest.raises(tt.InvalidInput, match="more than highest=1"):
        tt.Reward(ones, highest=1.0)(torch.ones(2, 3, dtype=torch.int64))


# Intervals of rare events.


def test_an_event_met_once_has_an_interval_that_reaches_as_far_as_one_hit_may():
    """256 even draws, one of them with the event: 1/256, and up to 6.7/256 at 97.5 %."""
    x, log_w = torch.zeros(16, 16, 1, dtype=torch.int64), torch.zeros(16, 16, dtype=torch.float64)
    x[3, 3] = 1
    own = torch.arange(16, dtype=torch.int32).expand(1, 16, 16)
    run = tt.Result(x, log_w, torch.zeros(1), torch.full((1, 16), 16.0), torch.zeros(1, 16), own)
    bar = run.expectation_interval(lambda x: (x[:, 0] == 1).double())
    other = run.expectation_interval(lambda x: (x[:, 0] == 0).double())
    assert bar.high == pytest.approx((1 + 2 + 3.7) / 256)
    assert other.low == pytest.approx(1 - bar.high)
    x[:8] = 1
    often = run.expectation_interval(lambda x: (x[:, 0] == 1).double())
    assert often.high - often.estimate == pytest.approx(2.1314 * often.stderr, rel=1e-3)


# All together.


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_every_doubt_is_silent_where_nothing_was_measured(check):
    assert check(tt.run(tt.Tilted(EXACT, 2.0), tt.uniform_grid(8), **SIZES).trust().figures) is None


def test_no_run_that_is_trusted_is_wrong():
    """The proof in short: every sampler on nine tables; proofs/trust.py has sixty and more runs."""
    from trust import trust

    found = trust("cpu", tables=3, repeats=2)
    assert found["passed"]
    assert found["trust"] > 100
