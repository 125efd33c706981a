"""`truetilt reproduce molecules`: guidance by a gradient, base draws as reference, budgets, claims and the figure."""

import math
from importlib.util import find_spec

import pytest
import torch

import truetilt as tt
from tiny_molecules import LENGTH, V, keeping, tiny_molecules
from truetilt.commands.job_runner import Settings
from truetilt.core.budget import Budget
from truetilt.molecules.rewards import qed, together
from truetilt.paper import molecule_claims, molecule_samplers, molecule_tasks, molecule_truth, molecules
from truetilt.paper.molecule_samplers import NAMES, OURS, MoleculeDraws, MoleculeProblem, guided_model, within_budget
from truetilt.paper.molecule_scores import Moments, by_weight, distance, diversity, novelty, read_training_set
from truetilt.paper.molecule_values import RelaxedPotential, whole_rows

pytest.importorskip("tokenizers")
needs_rdkit = pytest.mark.skipif(find_spec("rdkit") is None, reason="needs truetilt[chem]")
END, C = 0, 1


@pytest.fixture(scope="module")
def nets():
    return tiny_molecules()


def problem(nets, task=None):
    task = task or molecule_tasks.Task("qed", "QED", together((qed, 3.0)), lambda mol: qed(mol) >= 0.35)
    return MoleculeProblem(task, nets, nets.reward(task.score), Budget(1500, 120), 0)


def every_row(sites=LENGTH):
    return torch.cartesian_prod(*[torch.arange(V)] * sites).reshape(-1, sites)


# ------------------------------------------------------------------------------------------------ guidance


@needs_rdkit
def test_guidance_by_a_gradient_is_exact_where_the_value_is_linear(nets):
    """Draws of the guided model are p(token | row) exp(slope), normalised site by site: the unweighted limit."""
    slope = torch.randn(LENGTH, V + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slope[:, -1] = 0.0
    model = guided_model(problem(nets), lambda onehot, t: (onehot * slope).sum((-1, -2)), torch.float64)
    states, by_hand = every_row(), torch.zeros(V**LENGTH, dtype=torch.float64)
    for site in range(LENGTH):
        x = states.clone()
        x[:, site:] = V
        tilted = (nets._log_posterior(x)[:, site] + slope[site, :V]).log_softmax(-1)
        by_hand += tilted.gather(-1, states[:, site : site + 1])[:, 0]
    x = tt.run(tt.Composed(model, order=range(LENGTH)), particles=40_000, resample=tt.never).particles[0]
    found = torch.bincount((x * V ** torch.arange(LENGTH).flip(0)).sum(-1), minlength=V**LENGTH) / len(x)
    error = (by_hand.exp() * (1 - by_hand.exp()) / len(x)).sqrt()
    assert ((found - by_hand.exp()).abs() < 5 * error + 1e-9).all()
    assert (found - by_hand.exp()).abs().sum() < 0.05
    plain = tt.run(tt.Composed(nets.model(), order=range(LENGTH)), particles=40_000, resample=tt.never).particles[0]
    wrong = torch.bincount((plain * V ** torch.arange(LENGTH).flip(0)).sum(-1), minlength=V**LENGTH) / len(plain)
    assert (wrong - by_hand.exp()).abs().sum() > 0.2  # without the slope the test would fail


@pytest.mark.parametrize("given", [(None,) * LENGTH, (None, C, None)])
def test_the_relaxed_potential_is_the_twist_on_one_hot_rows(nets, given):
    mine = nets if given[1] is None else keeping(nets, given)
    x = torch.tensor([[C, V, V], [V, V, END], [C, 2, END]])[:, : mine.length]
    twist = mine.twist(together((qed, 3.0)), 2.0)
    hot = torch.nn.functional.one_hot(x, V + 1).float()
    found = RelaxedPotential.of(twist, 2.0)(hot, 0.5)
    assert torch.allclose(found, 2.0 * twist(x, 0.5), atol=1e-5)
    if given[1] is not None:
        assert (whole_rows(mine.model().base, hot).argmax(-1)[:, 1] == C).all()
    with pytest.raises(tt.InvalidInput, match="no twist of the potential for this strength"):
        RelaxedPotential.of(twist, 1.0)


# ------------------------------------------------------------------------------------------------ budgets


@needs_rdkit
@pytest.mark.parametrize("name", NAMES)
def test_no_method_exceeds_its_budget(nets, name):
    on = problem(nets)
    found = molecule_samplers.drawn(name, on)
    charged = found.potential if name == molecule_samplers.CHARGED else 0
    assert found.spent.evaluations + charged <= on.budget.evaluations
    assert found.spent.distinct <= on.budget.calls
    assert float(found.weights.sum()) == pytest.approx(1)
    assert (found.potential > 0) == (name in (*molecule_samplers.BY_POTENTIAL, "taylor"))
    assert found.spent.evaluations > 0


def test_sizes_are_tried_until_one_fits_and_none_is_an_error():
    def draw(size):
        spent = molecule_samplers.Spent(1, 10 * size, 3 * size, 3 * size)
        return MoleculeDraws(torch.zeros(size, 1), torch.ones(size) / size, spent, 90 * size)

    assert len(within_budget(draw, 640, Budget(10_000, 900)).x) in range(256, 301)
    assert len(within_budget(draw, 64, Budget(10_000, 900)).x) in range(256, 301)
    assert len(within_budget(draw, 640, Budget(10_000, 9_000), charged=True).x) in range(80, 101)
    with pytest.raises(tt.InvalidInput, match="costs more than 10 network evaluations"):
        within_budget(draw, 64, Budget(10, 900))


# ------------------------------------------------------------------------------------------------ truth


def test_the_reference_loop_draws_what_the_network_says(nets):
    x = molecule_truth.left_to_right(nets, 20_000, 0)
    states = every_row()
    ended = torch.where((states == END).cumsum(-1) > 0, END, states)
    log_p = torch.zeros(len(states), dtype=torch.float64)
    for site in range(LENGTH):
        masked = states.clone()
        masked[:, site:] = V
        log_p += nets._log_posterior(masked)[:, site].gather(-1, states[:, site : site + 1])[:, 0]
    place = V ** torch.arange(LENGTH).flip(0)
    law = torch.zeros(V**LENGTH, dtype=torch.float64).index_add_(0, (ended * place).sum(-1), log_p.exp())
    found = torch.bincount((x * place).sum(-1), minlength=V**LENGTH) / len(x)
    assert ((found - law).abs() < 5 * (law * (1 - law) / len(x)).sqrt() + 1e-9).all()


def block(hits, logp, draws=1000):
    sums = {"logP": [logp * hits, logp**2 * hits], "weight": [300.0 * hits, 0.0], "rings": [2.0 * hits, 0.0]}
    cost = {"draws": draws, "network_evaluations": 19 * draws}
    return cost | {"valid": 800, "hits": {"qed": {"count": hits, **sums}, "logp": {"count": 0, **sums}}}


def test_rows_cost_an_evaluation_for_each_site_up_to_their_end():
    """As every sampler is charged: what lies behind an end is not asked."""
    x = torch.tensor([[5, 0, 0, 0], [0, 0, 0, 0], [5, 6, 7, 5]])
    assert molecule_truth.asked_sites(x, 0) == 2 + 1 + 4


def test_the_reference_is_the_table_of_its_blocks():
    """Hits over draws, means over hits, and the binomial error of rejection at another cost."""
    noise = torch.Generator().manual_seed(0)
    counts = torch.binomial(torch.full((400,), 1000.0), torch.full((400,), 0.02), generator=noise).int().tolist()
    answers = [block(hits, 2.0 + (k % 2)) for k, hits in enumerate(counts)]
    found = molecule_truth.reference_of(answers, "qed")
    assert found.draws == 400_000
    assert found.hits == sum(counts)
    assert float(found.estimates[0]) == pytest.approx(sum(counts) / 400_000)
    by_hand = sum(hits * (2.0 + (k % 2)) for k, hits in enumerate(counts)) / sum(counts)
    assert float(found.estimates[1]) == pytest.approx(by_hand)
    assert float(found.spread(4000)[0]) == pytest.approx(math.sqrt(0.98 / 0.02 / 4000), rel=0.1)
    assert float(found.errors[0]) == pytest.approx(math.sqrt(0.98 / 0.02 / 400_000), rel=0.1)
    assert float(found.spread(4000)[2]) == pytest.approx(0)  # a constant has no error
    assert molecule_truth.reference_of([block(0, 1.0)] * 3, "qed") is None
    assert molecule_truth.reference_of([block(9, 1.0)], "qed") is None


def runs(spread, shift=0.0, seeds=20, z=0.02):
    noise = torch.randn(seeds, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).tolist()
    names = tuple(molecule_truth.FUNCTIONS)
    return [
        {
            "part": "truth",
            "task": "qed",
            "key": "truetilt",
            "log_z": math.log(z) + math.log(1 + shift + spread * one[0]),
        }
        | {
            name: centre + spread * one[k + 1]
            for k, (name, centre) in enumerate(zip(names, (2.5, 300, 2), strict=True))
        }
        for one in noise
    ]


def test_agreement_and_errors_can_fail():
    """Runs around the right answer agree and have a small error; shifted ones do not agree."""
    noise = torch.Generator().manual_seed(0)
    counts = torch.binomial(torch.full((400,), 1000.0), torch.full((400,), 0.02), generator=noise).int().tolist()
    base = [block(hits, 2.0 + (k % 2)) for k, hits in enumerate(counts)]
    reference = molecule_truth.reference_of(base, "qed")
    right = molecule_truth.ours_of(runs(0.02, z=float(reference.estimates[0])), reference)
    wrong = molecule_truth.ours_of(runs(0.02, 0.3), reference)
    assert molecule_truth.agreement(right, reference, 16)[0]["holds"]
    assert not molecule_truth.agreement(wrong, reference, 16)[0]["holds"]
    ratio = molecule_truth.error_ratios(right, reference, 10_000, 200)[0]
    assert ratio["low"] < ratio["ratio"] < ratio["high"] < 0.5
    assert ratio["ratio"] == pytest.approx(float(right.ratios.std()) / math.sqrt(0.98 / 0.02 / 10_000), rel=0.1)
    none = [row | {"task": "logp"} for row in runs(0.02)]  # a task of which the base draws had no hit
    found = molecule_claims.truth_of(runs(0.02) + none, base, 200_000)
    told = molecule_claims.claims({"truth": found, "rows": []}, (1, 1))
    assert not told["logP from 4.75 to 5.25, truetilt: measured"]["holds"]
    assert any("QED ≥ .94, truetilt: Z, relative agrees" in name for name in told)


# ------------------------------------------------------------------------------------------------ scores and claims


@needs_rdkit
def test_scores_of_known_molecules(tmp_path):
    from rdkit import Chem

    same, apart = ["CCO", "CCO"], ["CCO", "c1ccccc1N"]
    assert diversity(same) == 0
    assert diversity(apart) > 0.8
    assert diversity(["CCO"]) is None
    mols = [Chem.MolFromSmiles(one) for one in ("CCO", "c1ccccc1N", "CCCCC", "CC(=O)O", "c1ccncc1")]
    base = Moments.of(mols)
    assert distance(base, base) == pytest.approx(0, abs=1e-6)
    assert distance(Moments.read(Moments.of(mols[:2]).told()), base) > 0.1
    assert Moments.total([Moments.of(mols[:2]), Moments.of(mols[2:])]).second.allclose(base.second)
    assert distance(Moments.of(mols[:1]), base) is None
    assert novelty(["A", "B"], frozenset("A")) == 0.5
    assert novelty(["A"], None) is None
    with pytest.raises(tt.InvalidInput, match=r"has no train\.csv\.gz"):
        read_training_set(str(tmp_path))


def test_draws_by_weight_are_evenly_spaced():
    x = torch.arange(4)[:, None]
    assert by_weight(x, torch.full((4,), 0.25), 4).tolist() == x.tolist()
    few = by_weight(x, torch.tensor([0.5, 0.0, 0.25, 0.25]).double(), 8)
    assert few[:, 0].tolist() == [0, 0, 0, 0, 2, 2, 3, 3]


def use_row(key, reward, diverse, seed, **more):
    costs = {"network_evaluations": 10, "potential_evaluations": 0, "reward_calls": 5, "returned": 64}
    figures = {"reward": reward, "diversity": diverse, "distance": 3 - 2 * diverse, "above": 0.5, "valid": 1.0}
    head = {"part": "use", "task": "qed", "key": key, "method": NAMES[key], "seed": seed, "has_target": True}
    return head | costs | figures | {"novelty": None, "distinct": 9, "log_z": 1.0, "verdict": None} | more


def rows_that_pass():
    return [
        use_row(key, level + 0.01 * seed, diverse - 0.001 * seed, seed)
        for key, level, diverse in (
            *((ours, 2.0, 0.8) for ours in OURS),
            ("best-of-n", 1.0, 0.7),
            ("adalead", 3.0, 0.3),
        )
        for seed in range(5)
    ]


@pytest.mark.parametrize(
    ("wrong", "failing"),
    [
        ([use_row("tds", 2.5 + 0.01 * k, 0.85, k) for k in range(5)], "no baseline has more reward"),
        ([use_row("tds", 1.0, 0.1, 0, reward_calls=51)], "no method exceeds its budget"),
        ([use_row("truetilt-charged", 2.0, 0.8, 9, potential_evaluations=100)], "no method exceeds its budget"),
    ],
)
def test_claims_can_fail(wrong, failing):
    right = molecule_claims.claims({"truth": [], "rows": rows_that_pass()}, (100, 50))
    assert all(claim["holds"] for claim in right.values())
    found = molecule_claims.claims({"truth": [], "rows": rows_that_pass() + wrong}, (100, 50))
    assert any(failing in name and not claim["holds"] for name, claim in found.items())


def test_a_method_within_chance_does_not_dominate():
    close = [use_row("tds", 2.0 + 0.011 * k, 0.8001 - 0.001 * k, k) for k in range(5)]
    found = molecule_claims.claims({"truth": [], "rows": rows_that_pass() + close}, (100, 50))
    assert all(claim["holds"] for claim in found.values())


# ------------------------------------------------------------------------------------------------ the experiment


def test_jobs_come_in_rounds_and_the_number_of_draws_is_a_setting():
    full = molecules.jobs(Settings())
    assert len(full) == 200 + 20 * 6 + 10 * (4 * len(NAMES) - 1)
    assert len({job.name for job in full}) == len(full)
    assert sum(job.name.startswith("draws-") for job in full[: len(full) // 10]) >= 10
    assert len(molecules.jobs(Settings(more=(("draws", "20000"),)))) == len(full) - 196
    with pytest.raises(tt.InvalidInput, match="give a whole number, at least 5,000"):
        molecules.jobs(Settings(more=(("draws", "7"),)))
    with pytest.raises(tt.InvalidInput, match="known are qed, logp, celecoxib, scaffold"):
        molecule_tasks.task_of("nothing")


@needs_rdkit
def test_the_experiment_runs_and_draws_on_a_tiny_network(monkeypatch):
    """All parts on a network of six sites; a method that cannot run and jobs that are missing are told."""
    nets = tiny_molecules(6)
    for module in (molecule_tasks, molecule_samplers, molecule_truth):
        monkeypatch.setattr(module, "networks", lambda device, fix=None: nets)
    monkeypatch.setattr(
        molecules, "QUICK", molecules.MoleculeSizes(1200, 60, 1, 1200, 2, 60, 20, ("qed", "logp"), ("qed",))
    )
    molecule_samplers.shared_reward.cache_clear()
    settings = Settings(quick=True)
    answers = {job.name: job.work(*job.arguments) for job in molecules.jobs(settings)}
    answers["use-qed-tds-0"] = {"failed": "its value is undefined"}
    answers.pop("use-logp-base-0")
    found = molecules.collect(settings, answers)
    molecule_samplers.shared_reward.cache_clear()
    assert "qed, TDS: its value is undefined" in found["notes"]
    assert any("1 of" in note and "not run" in note for note in found["notes"])
    assert {row["part"] for row in found["rows"]} == {"truth", "use"}
    kept = [row for row in found["rows"] if row["part"] == "use" and "failed" not in row]
    assert all("smiles" not in row and row["reward_calls"] <= 60 for row in kept)
    assert found["claims"]["no method exceeds its budget"]["holds"]
    figure = molecules.EXPERIMENT.draw(found)
    assert len(figure.axes) == 4
    assert isinstance(molecules.passed(found), bool)
