"""The text tasks: samplers against each other and the truth, claims with known answers, rows, the second stage."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from sayings import LENGTH
from truetilt.cli.main import app
from truetilt.commands.job_runner import Settings, command, run_experiment
from truetilt.metrics.perplexity import CausalLM
from truetilt.models.transformer import SEDD
from truetilt.paper import text_conditions, text_grid, text_plots, text_rows, text_scoring
from truetilt.paper.populations import draws_by_mass, draws_of_each
from truetilt.paper.text_grid import TextTask
from truetilt.paper.text_rows import ScoredText
from truetilt.paper.text_samplers import (
    TEXT_SAMPLERS,
    Case,
    Lots,
    asked_at_once,
    in_lots,
    sample_texts,
    sample_together,
    together,
)
from truetilt.result import Result

MOOD = TextTask("sentiment", "moods", ("low", "high"), {"low": "x", "high": "y"})
TONE = TextTask("toxicity", "tones", ("rude", "calm"), {"rude": "n", "calm": "n"}, chance_of="rude")
HIGH = {"x high", "y high", "x high .", "y high ."}


@pytest.fixture(scope="module")
def nets(bundle_folder):
    return tt.load(bundle_folder)


@pytest.mark.parametrize("method", TEXT_SAMPLERS)
def test_every_sampler_draws_the_class(nets, method):
    """At alpha = beta = 1 all but the prompt draw the conditional law itself: four sayings, each alike."""
    shape = (64 // TEXT_SAMPLERS[method].particles or 1, TEXT_SAMPLERS[method].particles)
    drawn = sample_texts(nets, Case(method, ("high",), 1.0, 1.0, 10, shape), 0, prompt="y")[0]
    said = [text for texts in drawn.texts for text in texts]
    assert len(said) == shape[0] * shape[1]
    assert drawn.cost.networks > 2 * TEXT_SAMPLERS[method].moves
    if method == "prompting":
        assert sum(text.split()[0] in {"low", "high"} for text in said if text) > 0.7 * len(said)
    else:
        assert sum(text in HIGH for text in said) >= 0.85 * len(said)


def untimed(nets):
    """Nets with random weights that are not told the time."""
    made = {}
    for seed, name in enumerate(("sedd", "deft")):
        made[name] = SEDD(replace(nets.nets[name].config, timeless=True), seed).eval()
        with torch.no_grad():
            made[name].output_layer.linear.weight.normal_(std=0.4, generator=torch.Generator().manual_seed(seed))
    return replace(nets, nets=made)


@pytest.mark.parametrize("method", [name for name, sampler in TEXT_SAMPLERS.items() if sampler.joint])
def test_cases_that_share_a_run_draw_what_each_draws_alone(nets, method):
    blind, shape = untimed(nets), (3, TEXT_SAMPLERS[method].particles if "4" in method else 8)
    strengths = [(1.0, 1.0), (2.0, 1.2), (4.0, 0.6), (8.0, 0.0)]
    weighted = method.startswith("smc")
    cases = [Case(method, ("low", "high"), a if weighted else None, b, 12, shape) for a, b in strengths]
    assert together(blind, cases) == [cases]
    assert together(nets, cases) == [[case] for case in cases]  # these nets are told the time
    for case, own in zip(cases, sample_together(blind, cases, 3), strict=True):
        for alone, joint in zip(sample_texts(blind, case, 3), own, strict=True):
            assert torch.equal(alone.result.particles, joint.result.particles)
            assert torch.equal(alone.result.ancestors, joint.result.ancestors)
            for name in ("log_weights", "ess", "log_z_path"):
                assert torch.allclose(getattr(alone.result, name), getattr(joint.result, name), atol=1e-4), name
            assert alone.texts == joint.texts
            assert joint.cost.networks <= 2 * LENGTH + 2


def test_network_evaluations_are_counted(nets):
    methods = ("smc-partial", "smc-deft", "guidance-posterior", "tilted", "any-order")
    cases = {m: Case(m, ("high",), 2.0, 1.0, 8, (1, 4)) for m in methods}
    cost = {method: sample_texts(nets, case, 0)[0].cost for method, case in cases.items()}
    assert cost["smc-partial"].networks == cost["smc-deft"].networks == 16
    assert cost["guidance-posterior"].networks <= min(8, LENGTH)  # at strength 1 one net, where something is revealed
    assert cost["tilted"].networks <= min(8, LENGTH)
    assert cost["tilted"].potentials == 8  # at t = 1 the exponent is 0: nobody asks
    assert cost["any-order"].networks == 2 * LENGTH


def test_a_larger_alpha_makes_the_judge_surer(nets):
    """From the base towards the class: beta = 0 leaves it to the weights alone."""
    scores = []
    for alpha in (0.0, 1.0, 4.0):
        drawn = sample_texts(nets, Case("smc", ("high",), alpha, 0.0, 8, (2, 50)), 0)[0]
        scores.append(float(nets.verdicts([t for own in drawn.texts for t in own], "high")[1].double().mean()))
    assert abs(scores[0] - 0.5) < 0.25
    assert scores[1] > 0.8
    assert scores[2] >= scores[1] - 0.05


def test_lots_change_nothing(nets, monkeypatch):
    from truetilt.paper import text_samplers

    fk = TEXT_SAMPLERS["smc-populations"].sampler.build(nets.model("high", "cfg"), 2.0, 1.0)
    options = {"resample": TEXT_SAMPLERS["smc-populations"].sampler.resample}
    grid = tuple(tt.uniform_grid(6))
    (whole,) = in_lots(fk, grid, Lots((6, 4), 0), options)
    monkeypatch.setitem(text_samplers.AT_ONCE, "cpu", 8)
    (parts,) = in_lots(fk, grid, Lots((6, 4), 0), options)
    assert torch.equal(whole.particles, parts.particles)
    assert torch.equal(whole.log_weights, parts.log_weights)


def test_draws_of_a_population_follow_its_weights():
    """Systematic: within one of N times the weight; a dead population gives nothing."""
    log_w = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64).log()
    particles = torch.arange(8).reshape(2, 4, 1)
    empty = torch.zeros(1, 2, dtype=torch.float64)
    result = Result(particles, log_w, torch.zeros(1), empty, empty, torch.zeros(1, 2, 4))
    drawn = draws_of_each(result, 3)
    assert drawn.shape == (1, 4, 1)
    assert torch.bincount(drawn.flatten(), minlength=4).tolist() == [2, 1, 1, 0]
    with pytest.raises(tt.InvalidInput, match="died"):
        draws_of_each(Result(particles, log_w * 0 - torch.inf, torch.zeros(1), empty, empty, torch.zeros(1, 2, 4)), 0)


def test_draws_by_mass_are_the_results_own_draws():
    """The same states as `result.draw`, population by population; one without mass gives none."""
    log_w = torch.tensor(
        [[0.4, 0.2, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0], [0.05, 0.05, 0.1, 0.0]], dtype=torch.float64
    ).log()
    empty = torch.zeros(1, 3, dtype=torch.float64)
    result = Result(torch.arange(12).reshape(3, 4, 1), log_w, torch.zeros(1), empty, empty, torch.zeros(1, 3, 4))
    found = draws_by_mass(result, 3, 20)
    assert [len(own) for own in found] == [16, 4]
    assert torch.cat(found).flatten().tolist() == sorted(result.draw(20, 3).flatten().tolist())


def test_weighted_rows_tell_log_z_and_the_verdict(bundle_folder, nets):
    case = Case("annealed", ("high",), 2.0, None, 10, (4, 16))
    settings = Settings(True, 0, "cpu", None, (("model", str(bundle_folder)), ("reference", "none")))
    answer = text_conditions.one_case(MOOD, case, settings)
    (row,) = answer["rows"]
    assert row["log_z_low"] < row["log_z"] < row["log_z_high"]
    assert row["log_z"] <= 0  # p(zeta|x) is at most 1
    assert row["trust"] in {"trust", "use with care", "do not trust"}
    assert 1 <= row["populations_by_mass"] <= 4
    assert len(answer["lines"]) == 64
    plain = text_conditions.one_case(MOOD, Case("smc", ("high",), 2.0, 1.0, 4, (1, 4)), settings)
    assert "log_z" not in plain["rows"][0]


def test_the_protocol_is_the_papers():
    every = text_grid.cases(text_grid.TASKS["sentiment"], quick=False)
    assert len({case.name for case in every}) == len(every)
    curve = [c for c in every if c.method == "smc-partial" and c.steps == 100]
    assert {c.conditions for c in curve} == {("negative", "positive")}
    assert sorted({c.beta for c in curve}) == [0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    assert sorted({c.alpha for c in curve}) == [1, 2, 4, 8]
    assert {c.shape for c in curve} == {(5, 50)}
    guidance = [c for c in every if c.method.startswith("guidance") and not c.claim]
    assert {c.shape[0] * c.shape[1] for c in guidance} == {250}
    assert {c.steps for c in every} == {100, 1000}
    claim = [c for c in every if c.claim]
    assert {c.method: c.shape[1] for c in claim}["smc-paper-16"] == 16
    assert {c.shape[0] for c in claim} == {1024}
    assert {(c.alpha, c.beta) for c in claim} <= {(None, 1.0), (2.0, 1.0), (2.0, None)}


def small(task, folder, bundle_folder, monkeypatch, quick=True, only=None):
    monkeypatch.setattr(text_grid, "QUICK_STEPS", 6)
    monkeypatch.setattr(text_grid, "QUICK_ALPHAS", (4.0,))
    monkeypatch.setattr(text_grid, "QUICK_BETAS", (0.0, 1.0))
    settings = Settings(quick, 0, "cpu", None, (("model", str(bundle_folder)), ("reference", "none")))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # in this process, which knows the smaller numbers
    return run_experiment(text_conditions.experiment(task, folder, only), settings, folder, lambda: None), settings


def chain_lm():
    """Every word costs log 2 nats but `low`, which costs log 8."""
    words = ["", "x", "y", "low", "high", "."]
    logits = torch.tensor([-math.inf, math.log(0.5), -math.inf, -math.log(8), math.log(0.375), -math.inf])

    def encode(text):
        return [words.index(w) if w in words else 1 for w in text.split()]

    return CausalLM(lambda x: logits.expand(*x.shape, 6).nan_to_num(neginf=-9.0), 6, 16, bos=0, encode=encode)


def test_a_task_writes_rows_texts_and_a_figure_then_perplexity(bundle_folder, tmp_path, monkeypatch):
    result, settings = small(MOOD, tmp_path, bundle_folder, monkeypatch)
    wanted = {"task", "method", "alpha", "beta", "steps", "score", "perplexity", "distinct_2", "network_evaluations"}
    assert all(wanted <= row.keys() for row in result["rows"])
    assert {row["method"] for row in result["rows"]} >= {"smc-partial", "guidance-posterior", "prompting", "tilted"}
    by_name = {row["name"]: row for row in result["rows"]}
    assert by_name["guidance-posterior-high-b0-6"]["score"] < by_name["guidance-posterior-high-b1-6"]["score"]
    assert by_name["smc-partial-high-a4-b1-6"]["score"] > 0.7
    kept = text_rows.read_lines(tmp_path)
    assert len(kept) == sum(row["runs"] * row["particles"] for row in result["rows"])
    assert command(text_conditions.experiment(MOOD, tmp_path), settings).count(str(bundle_folder)) == 1
    monkeypatch.setattr(text_scoring, "reference", lambda *_: chain_lm())
    again = text_scoring.score_folder(tmp_path, MOOD, text_scoring.Scoring("toy"), text_conditions.draw_curves)
    assert all(row["perplexity"] > 1 for row in again["rows"])
    line = next(line for line in text_rows.read_lines(tmp_path) if line.nats is not None)
    mine = chain_lm()
    assert line.tokens == len(mine.encode(line.text))
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("only", ["claim", pytest.param(None, marks=pytest.mark.prove)])  # the whole grid: 90 s
def test_claims_come_with_the_full_protocol(only, bundle_folder, tmp_path, monkeypatch):
    for name, value in {"ALPHAS": (1.0, 2.0), "BETAS": (1.0,), "STEPS": (6,), "RUNS": 1, "DRAWS": 24}.items():
        monkeypatch.setattr(text_grid, name, value)
    monkeypatch.setattr(text_grid, "OURS", ("tilted",))
    monkeypatch.setattr(text_grid, "CLAIMANTS", ("smc-populations", "tilted-populations"))
    how = {"quick": False, "only": only}
    result, _ = small(replace(MOOD, conditions=("high",)), tmp_path, bundle_folder, monkeypatch, **how)
    assert "smc-populations, high" in result["claims"]
    found = result["claims"]["tilted-populations, high"]
    assert found["draws"] == [24, 24]
    assert found["perplexity_ratio"] is None
    assert found["accuracy_difference"]["low"] <= found["accuracy_difference"]["value"]
    alone = result | {"rows": [row for row in result["rows"] if row["claim"]]}
    assert len(text_conditions.draw_curves(alone).axes) == 2  # no perplexity, no panel


def test_a_mean_that_says_nothing_is_not_drawn():
    """The chance of one class goes up or down as it is asked for: each class has a panel of its own."""
    point = {"method": "smc-partial", "alpha": 2.0, "steps": 6, "perplexity": 9.0, "distinct_2": None, "claim": False}
    high = {"rude": 0.9, "calm": 0.1}
    rows = [point | {"condition": c, "beta": b, "score": high[c]} for c in high for b in (0.0, 1.0, 2.0)]
    for apart, drawn in ((["rude", "calm"], [0.9, 0.1, 9.0]), ([], [0.5, 9.0])):
        axes = text_plots.draw_curves({"score": "chance of rude", "apart": apart, "rows": rows}).axes
        assert [ax.lines[0].get_ydata().tolist() for ax in axes] == [pytest.approx([v, v, v]) for v in drawn]


@pytest.mark.parametrize("task", text_grid.TASKS.values(), ids=lambda task: task.name)
def test_the_stored_grid_has_every_cell_of_the_papers_table(task):
    """Eleven columns of 1,000 steps by the label and by DEFT, the figure by the label, and the claims."""
    rows = json.loads((Path(__file__).parents[1] / "proofs" / f"{task.name}.json").read_text(encoding="utf-8"))["rows"]
    there = {(r["method"], r["alpha"], r["beta"], r["steps"], r["condition"], r["claim"]): r for r in rows}
    for guidance, smc in (("guidance-rate", "smc-partial"), ("guidance-deft", "smc-deft-partial")):
        table = [("prompting", None, None), *((guidance, None, b) for b in (1.0, 1.2))]
        table += [(smc, a, b) for a in text_grid.ALPHAS for b in (1.0, 1.2)]
        assert len(table) == 11
        figure = [] if "deft" in smc else [(guidance, None, b) for b in text_grid.BETAS]  # DEFT's was not run
        figure += [] if "deft" in smc else [(smc, a, b) for a in text_grid.ALPHAS for b in text_grid.BETAS]
        for steps, cells in ((1000, table), (100, figure)):
            for cell in cells:
                for condition in task.conditions:
                    row = there[*cell, steps, condition, False]
                    assert (row["runs"], row["particles"]) == (5, 50)
                    assert None not in (row["perplexity"], row["score"], row["score_own"], row["distinct_2"])
    claims = [r for r in rows if r["claim"]]
    assert {(r["method"], r["condition"]) for r in claims} == {
        (method, condition) for method in (text_grid.BASELINE, *text_grid.CLAIMANTS) for condition in task.conditions
    }
    assert {(r["alpha"], r["runs"]) for r in claims} == {(None, 1024), (2.0, 1024)}


def test_toxicity_goes_both_ways_and_shows_no_text(bundle_folder, tmp_path, monkeypatch):
    assert text_grid.TASKS["toxicity"].conditions == ("toxic", "non-toxic")
    score = text_conditions.score_of(TONE, "rude"), text_conditions.score_of(TONE, "calm")
    line = ScoredText("r", 0, "n x rude", True, math.log(0.8))
    assert [f(line) for f in score] == pytest.approx([0.8, 0.2])
    result, _ = small(TONE, tmp_path, bundle_folder, monkeypatch, only="guidance")
    by_name = {row["name"]: row["score"] for row in result["rows"]}
    assert by_name["guidance-posterior-calm-b1-6"] < by_name["guidance-posterior-calm-b0-6"]  # asked not to be rude
    assert "n x" not in json.dumps(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["sentiment"], "negative"), (["sentiment", "--model", "nowhere"], "nowhere"),
     (["toxicity", "--score", "EMPTY", "--reference", "none"], "result.json"),
     (["sentiment", "--reference", "gpt5"], "gpt5")],
)  # fmt: skip
def test_commands_say_what_is_missing(bundle_folder, tmp_path, arguments, words):
    arguments = [str(tmp_path) if a == "EMPTY" else a for a in arguments]
    model = [] if "--model" in arguments or "--score" in arguments else ["--model", str(bundle_folder)]
    run = CliRunner().invoke(app, ["reproduce", *arguments, *model, "--quick", "--out", str(tmp_path / "o")])
    assert run.exit_code == 2
    assert words in run.stderr


def test_nets_are_asked_about_particles_that_reveal_and_say_the_same(nets):
    """Bit for bit the run with every answer, at the price of the sites."""
    from truetilt.commands.costs import StateCounter
    from truetilt.models.conditions import per_condition
    from truetilt.paper.text_samplers import watched

    model, meters = per_condition([nets.model(c, "cfg") for c in ("low", "high")]), (StateCounter(), StateCounter())
    build, grid = TEXT_SAMPLERS["smc-populations"].sampler.build, tt.uniform_grid(60)
    dense, spared = (
        tt.run(build(watched(model, m, every), 2.0, 1.5), grid, particles=4, populations=4, seed=1)
        for m, every in zip(meters, (True, False), strict=True)
    )
    assert torch.equal(dense.particles, spared.particles)
    assert torch.equal(dense.log_weights, spared.log_weights)
    assert meters[0].states == {"base": 16 * 60, "conditional": 16 * 60}
    assert all(count <= 16 * LENGTH for count in meters[1].states.values())


def test_few_states_are_asked_in_small_batches(nets, monkeypatch):
    """Of many steps each asks about a state or two: a batch of sixteen would be filled with copies."""
    rows, trunk = [], tt.SEDD.trunk
    monkeypatch.setattr(tt.SEDD, "trunk", lambda net, x, *more: (rows.append(len(x)), trunk(net, x, *more))[1])
    case = Case("smc-posterior", ("low", "high"), 2.0, 1.5, 100, (4, 4))
    drawn = sample_texts(nets, case, 0)[0]
    assert nets.batch == 16
    assert asked_at_once(nets, case) == pytest.approx(32 * (1 - 0.99**LENGTH))
    assert max(rows) == 2
    asked = drawn.cost.networks * 32
    assert asked <= sum(rows) <= 2 * asked
    wide = case._replace(method="any-order", beta=None, shape=(20, 16))
    assert asked_at_once(nets, wide) == 512  # as many as find room together


def test_conditions_share_a_run_and_stay_apart(nets):
    low, high = sample_texts(nets, Case("smc-populations", ("low", "high"), 1.0, 1.0, 12, (8, 4)), 0)
    for drawn, own in ((low, "low"), (high, "high")):
        said = [text for texts in drawn.texts for text in texts]
        assert len(said) == 32
        assert sum(own in text for text in said) >= 26
