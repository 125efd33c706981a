"""The trust report: good runs pass, runs built to degenerate are found out, and each finding says what to do.

False alarms of the checks themselves are measured: of 200 healthy runs none may be doubted.
"""

import math
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt.smc.diagnostics import Figures
from truetilt.smc.trust import judge
from truetilt.smc.weight_findings import ALONE, FEW, HARDLY_ANY, SCATTER, THIN, TORN, UNSURE, VARIED, WEIGHT_CHECKS

SMALL = table(tt.Masking, 3, 2, seed=6)
LARGE = table(tt.Masking, 50, 2, seed=1)
GRID = tt.uniform_grid(20)
GOOD = {
    "tempered": tt.Tempered(SMALL.model(), 2.0),
    "tilted": tt.Tilted(SMALL.model(), 4.0),
    "steered": tt.Steered(SMALL.model(), SMALL.model().potential, 2.0),
    "unweighted": tt.Unweighted(SMALL.model(), SMALL.model().conditional),
}


def trust_of(fk, particles, populations=1, **options):
    return tt.run(fk, GRID, particles=particles, populations=populations, **{"seed": 3} | options).trust()


# Good runs.


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(("particles", "populations"), [(500, 1), (100, 16)])
def test_a_good_run_is_trusted(name, particles, populations):
    trust = trust_of(GOOD[name], particles, populations)
    assert trust.verdict == "trust"
    assert str(trust).startswith("Trust: nothing speaks against this answer.")
    assert len(trust.reasons) == (populations == 1)  # the remark that one population cannot disagree with itself


def test_a_healthy_run_is_never_doubted():
    """200 runs of 16 populations of 50: no verdict of "do not trust", and hardly any of care."""
    whole = tt.run(GOOD["tilted"], GRID, particles=50, populations=3200, seed=7)
    verdicts = [part_of(whole, slice(k, k + 16)).trust().verdict for k in range(0, 3200, 16)]
    assert tt.Verdict.doubt not in verdicts
    assert verdicts.count(tt.Verdict.care) <= 4


def part_of(whole, part):
    """Some populations of a run, as a run."""
    by_step = {name: getattr(whole, name)[:, part] for name in ("ess", "log_z_path", "ancestors", "moved")}
    return replace(whole, particles=whole.particles[part], log_weights=whole.log_weights[part], **by_step)


# Runs built to degenerate.


def peaked(x, t):
    return -(x - 7).abs().sum(-1).double()


BAD = {
    "edge ratios of alpha 30 from the base": tt.Tempered(LARGE.model(), 30.0, 0.0),
    "a peaked reward at the end": tt.Steered(LARGE.model(), peaked, 20.0, tt.at_end),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize(("particles", "populations"), [(16, 1), (64, 1), (1000, 1), (4, 16), (64, 16)])
@pytest.mark.parametrize("seed", range(5))
def test_a_degenerate_run_is_not_trusted(name, particles, populations, seed):
    trust = trust_of(BAD[name], particles, populations, seed=seed)
    assert trust.verdict == "do not trust"
    assert str(trust).startswith("Do not trust this answer.\n- ")
    assert BAD[name].remedies.lower in trust.reasons[0]


def test_one_root_is_not_trusted_however_even_the_weights():
    """Multinomial resampling at each of 100 steps leaves 20 particles of a good model one ancestor."""
    result = tt.run(GOOD["tempered"], tt.uniform_grid(100), particles=20, resample=tt.multinomial, seed=3)
    trust = result.trust()
    assert result.roots.tolist() == [1]
    assert trust.verdict == "do not trust"
    assert "resample only when needed" in trust.reasons[0]


def test_one_heavy_population_is_not_trusted():
    result = tt.run(GOOD["tilted"], GRID, particles=50, populations=8, seed=3)
    log_w = result.log_weights.clone()
    log_w[5] += 6.0
    trust = replace(result, log_weights=log_w).trust()
    assert trust.verdict == "do not trust"
    assert trust.figures.heaviest > 0.95
    assert any("the heaviest of 8 holds 98% of the mass" in reason for reason in trust.reasons)


def test_dead_populations_call_for_care():
    result = tt.run(GOOD["tilted"], GRID, particles=200, populations=32, seed=3)
    log_w = result.log_weights.clone()
    log_w[:2] = -math.inf
    trust = replace(result, log_weights=log_w).trust()
    assert trust.verdict == "use with care"
    assert trust.figures.dead == 2
    assert any(reason.startswith("2 of 32 populations died") for reason in trust.reasons)
    assert "32 populations of 200 particles, 2 dead" in str(trust)


def test_populations_that_sit_in_different_modes_are_found_out():
    """Every population looks perfect by its weights, and each holds another state."""
    result = tt.run(GOOD["unweighted"], GRID, particles=100, populations=16, seed=3)
    apart = (torch.arange(16) % 3)[:, None, None].expand(16, 100, 2)
    trust = replace(result, particles=apart.clone()).trust()
    assert trust.verdict == "use with care"
    assert trust.figures.draws == pytest.approx(16, rel=0.1)
    assert any("the whole is worth 1" in reason for reason in trust.reasons)


def test_copies_of_one_run_are_not_trusted():
    result = tt.run(GOOD["tilted"], GRID, particles=100, populations=16, seed=3)
    twice = tt.Result.union([result, result]).trust()
    assert twice.verdict == "do not trust"
    assert "copies, not further evidence" in twice.reasons[0]


def test_moves_speak_for_relatives_only_where_populations_can_tell():
    """A single line of ancestors, moved: care with one population; with sixteen their agreement decides."""
    problem = table(tt.Masking, 3, 4, seed=4)
    fk = tt.AnyOrder(problem.model(), 4.0)
    grid, moves = tt.masked_fraction_grid(problem.process.schedule, 4), tt.Rejuvenation(tt.Gibbs(fk), at_end=30)
    collapsed = {"particles": 60, "seed": 3, "resample": lone_survivor}
    assert tt.run(fk, grid, **collapsed).trust().verdict == "do not trust"
    alone = tt.run(fk, grid, moves=moves, **collapsed).trust()
    assert (alone.verdict, alone.figures.lines) == ("use with care", pytest.approx(1.0))
    many = tt.run(fk, grid, moves=moves, populations=16, **collapsed).trust()
    assert many.figures.draws > 10 * many.figures.lines
    assert not any("first draws" in reason for reason in many.reasons)


def lone_survivor(log_w, u):
    """One particle, drawn by weight, becomes all."""
    drawn = tt.multinomial(log_w, u)
    return drawn._replace(ancestors=drawn.ancestors[..., :1].expand(log_w.shape))


def test_a_result_without_weight_is_not_trusted():
    result = tt.run(GOOD["tilted"], GRID, particles=4, seed=3)
    trust = replace(result, log_weights=torch.full_like(result.log_weights, -math.inf)).trust()
    assert trust.verdict == "do not trust"
    assert "no allowed state was met" in trust.reasons[0]
    assert "log Z: -inf, no interval" in str(trust)


# The figures, by hand.


def test_figures_by_hand():
    """Two populations of two: masses 2 and 1, the second one a single family."""
    log_w = torch.tensor([[1.0, 3.0], [1.0, 1.0]], dtype=torch.float64).log()
    ancestors = torch.tensor([[[0, 1], [0, 1]], [[0, 1], [1, 1]]], dtype=torch.int32)
    ess = torch.tensor([[2.0, 2.0], [1.5, 1.0]], dtype=torch.float64)
    x = torch.tensor([[[0], [4]], [[1], [3]]])
    figures = tt.Result(x, log_w, torch.tensor([1.0, 0.0]), ess, ess, ancestors).trust().figures
    assert (figures.populations, figures.particles, figures.dead, figures.roots_fewest) == (2, 2, 0, 1)
    assert figures.ess_end == pytest.approx((16 / 10 + 2) / 2 / 2)
    assert (figures.ess_lowest, figures.ess_lowest_step) == (pytest.approx(1.25 / 2), 1)
    assert figures.union_ess == pytest.approx(36 / 12)
    assert figures.roots == 1.5
    assert figures.lines == pytest.approx(36 / (1 + 9 + 4))
    assert (figures.heaviest, figures.effective_populations) == (pytest.approx(2 / 3), pytest.approx(9 / 5))
    assert figures.log_z == pytest.approx(math.log(1.5))
    assert figures.log_z_spread == pytest.approx(math.log(2) / 2**0.5)
    assert figures.z_variation == pytest.approx(0.5**0.5 / 1.5)
    assert figures.log_z_interval.stderr == pytest.approx(figures.z_variation / 2**0.5)
    within, between = (3 + 1) / 2, 0.5  # means 3 and 2, variances 3 and 1
    assert figures.draws == pytest.approx(9 / 5 * (within + between) / between)
    assert not figures.moved
    assert not figures.repeated


def test_one_population_has_figures_it_cannot_give():
    figures = trust_of(GOOD["tilted"], 200).figures
    assert (figures.log_z_interval, figures.log_z_spread, figures.z_variation, figures.draws) == (None,) * 4
    genealogical = trust_of(GOOD["tilted"], 200, resample=tt.adaptive(tt.multinomial)).figures.log_z_interval
    assert genealogical.method == "genealogy"


def test_states_all_alike_are_no_disagreement():
    result = tt.run(GOOD["unweighted"], GRID, particles=50, populations=4, seed=3)
    trust = replace(result, particles=torch.zeros_like(result.particles)).trust()
    assert (trust.figures.draws, trust.verdict) == (None, "trust")


def test_populations_that_collapse_at_different_steps_are_not_trusted():
    """Each keeps one or two of its 64 particles at some step; log Z comes out as 10.96, its interval far from 14.80."""
    p0, likelihood = torch.tensor([0.8282, 0.0072, 0.1646]).double(), torch.tensor([0.0, 0.602, 0.0]).double()
    problem = tt.Table(tt.Masking(3), p0, likelihood)
    for seed in range(3):
        fk = tt.Tempered(problem.model(), 4.0)
        result = tt.run(fk, tt.uniform_grid(100), particles=64, populations=16, seed=seed)
        assert result.log_z_interval().high < 12 < float(problem.log_z_tempered(4.0))
        assert result.trust().verdict == "do not trust"
        assert result.trust().figures.ess_lowest < 0.05


# The verdict, from figures alone.

HEALTHY = Figures(
    populations=16,
    particles=100,
    dead=0,
    ess_end=0.7,
    ess_lowest=0.5,
    ess_lowest_step=12,
    union_ess=1000.0,
    roots=60.0,
    roots_fewest=40,
    lines=500.0,
    heaviest=0.07,
    effective_populations=15.8,
    log_z=-1.0,
    log_z_interval=tt.Interval(-1.0, 0.02, -1.04, -0.96, 0.95, "Student t across 16 populations"),
    log_z_spread=0.08,
    z_variation=0.08,
    draws=700.0,
    draws_unlucky=400.0,
    moved=False,
    repeated=False,
    remedies=tt.Tempered(SMALL.model(), 2.0).remedies,
)
FAULTS = {
    "few lines": (
        {"lines": FEW - 1.0},
        "use with care",
        "Use more particles in each population, more populations, a smaller alpha",
    ),
    "hardly any line": (
        {"lines": HARDLY_ANY - 0.1},
        "do not trust",
        "the model's potential (tt.Tilted) instead of edge ratios",
    ),
    "hardly any weight": ({"union_ess": HARDLY_ANY - 0.1}, "do not trust", "a smaller alpha"),
    "thin in the middle": (
        {"ess_lowest": THIN / 2},
        "use with care",
        "(step 12 in the worst of 16) a population keeps 5 effective particles of 100",
    ),
    "collapsed in the middle": ({"ess_lowest": HARDLY_ANY / 1601}, "do not trust", "the proposal misses the target"),
    "alone in the middle": ({"ess_lowest": (ALONE - 0.1) / 100}, "do not trust", "2.9 effective particles of 100"),
    "astray": ({"strayed": True}, "do not trust", "another target than the weights are of"),
    "thin at the end": ({"ess_lowest": 0.05, "ess_end": 0.05}, "use with care", "At the end"),
    "varied masses": ({"z_variation": VARIED * 1.1}, "use with care", "Use more particles in each"),
    "one mass": ({"z_variation": UNSURE * 4.1}, "do not trust", "smaller alpha"),
    "torn": ({"z_variation": 0.9, "log_z_spread": TORN * 1.1}, "do not trust", "The truth may lie with one not seen"),
    "few draws": ({"draws": FEW - 1.0}, "use with care", "more populations"),
    "hardly any draw": ({"draws": HARDLY_ANY - 0.1}, "do not trust", "more populations"),
    "scattered": ({"draws": 400 / SCATTER / 1.1}, "use with care", "more than chance explains"),
    "deaths": ({"dead": 1}, "use with care", "Use more particles in each"),
    "copies": ({"repeated": True}, "do not trust", "different seeds"),
}


def test_healthy_figures_find_nothing():
    trust = judge(HEALTHY)
    assert (trust.verdict, trust.reasons) == ("trust", ())


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_with_its_remedy(name):
    change, verdict, words = FAULTS[name]
    trust = judge(replace(HEALTHY, **change))
    assert trust.verdict == verdict
    assert len(trust.reasons) == 1
    assert words in trust.reasons[0]


def test_the_worst_finding_is_the_verdict_and_comes_first():
    trust = judge(replace(HEALTHY, dead=1, lines=1.0, populations=8))
    assert trust.verdict == "do not trust"
    assert [r.split()[0] for r in trust.reasons] == ["The", "1", "Error"]  # lines, deaths, and a remark


@pytest.mark.parametrize("check", WEIGHT_CHECKS, ids=lambda check: check.__name__)
def test_every_check_finds_one_of_the_faults_and_nothing_in_health(check):
    changes = [change for change, _, _ in FAULTS.values()] + [{"populations": 8}]
    assert check(HEALTHY) is None
    assert any(check(replace(HEALTHY, **change)) for change in changes)


def test_the_report_is_plain_words():
    text = str(judge(HEALTHY))
    assert text.splitlines() == [
        "Trust: nothing speaks against this answer.",
        "16 populations of 100 particles",
        "log Z: -1 ± 0.02 (95 % interval -1.04 to -0.96, Student t across 16 populations)",
        "effective sample size: 70.0% at the end, 50.0% at the lowest",
        "surviving first draws: 60 a population (40 or more), 500 by mass in all",
        "populations by mass: 15.8, heaviest 7.0%; log Z varies by 0.08 between them",
        "independent draws, by disagreement: 700; by weights: 1e+03",
        "Not seen here: the error of the time grid, of networks that agree, and states that no particle met.",
    ]


def test_too_few_particles_are_called_too_few():
    """Even weights and no common ancestor: alpha and the sampler are not to blame."""
    trust = trust_of(GOOD["unweighted"], 4)
    assert trust.verdict == "do not trust"
    words = str(trust)
    assert "4 particles are too few" in words
    assert "misses the target" not in words
    assert "smaller alpha" not in words
