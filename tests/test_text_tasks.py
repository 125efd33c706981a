"""The text tasks: samplers against each other and the truth, claims with known answers, rows, the second stage."""

import json
import math
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from sayings import LENGTH
from truetilt.cli import app
from truetilt.experiments import controlled, infill, sentiment, text_rows, toxicity
from truetilt.experiments.controlled import Task
from truetilt.experiments.jobs import Settings, carry_out, command
from truetilt.experiments.text_rows import Line, claims, difference, distinct_2, mean_interval, perplexity_of, ratio
from truetilt.experiments.text_samplers import SAMPLERS, Case, draws_of_each, in_lots, sample_texts
from truetilt.metrics.perplexity import CausalLM
from truetilt.result import Result

MOOD = Task("sentiment", "moods", ("low", "high"), {"low": "x", "high": "y"})
TONE = Task("toxicity", "tones", ("rude", "calm"), {"rude": "n", "calm": "n"}, chance_of="rude", shown=False)
HIGH = {"x high", "y high", "x high .", "y high ."}


@pytest.fixture(scope="module")
def nets(bundle_folder):
    return tt.load(bundle_folder)


def lines_of(right, row="r", nats=None, texts=None):
    """One text a population."""
    n = len(right)
    texts = texts or [f"word{k} other{k} end" for k in range(n)]
    costs = [None] * n if nats is None else nats
    return [Line(row, k, texts[k], bool(right[k]), -0.5, costs[k], 3) for k in range(n)]


@pytest.mark.parametrize("method", SAMPLERS)
def test_every_sampler_draws_the_class(nets, method):
    """At alpha = beta = 1 all but the prompt draw the conditional law itself: four sayings, each alike."""
    shape = (64 // SAMPLERS[method].particles or 1, SAMPLERS[method].particles)
    drawn = sample_texts(nets, Case(method, "high", 1.0, 1.0, 16, shape), 0, prompt="y")
    said = [text for texts in drawn.texts for text in texts]
    assert len(said) == shape[0] * shape[1]
    assert drawn.cost.networks > 0
    if method == "prompting":
        assert sum(text.split()[0] in {"low", "high"} for text in said if text) > 0.7 * len(said)
    else:
        assert sum(text in HIGH for text in said) >= 0.85 * len(said)


def test_network_evaluations_are_counted(nets):
    cost = {m: sample_texts(nets, Case(m, "high", 2.0, 1.0, 8, (1, 4)), 0).cost for m in SAMPLERS if m != "prompting"}
    assert cost["guidance-posterior"].networks == 8  # at strength 1 one net a step
    assert cost["smc-partial"].networks == cost["smc-deft"].networks == 16
    assert (cost["tilted"].networks, cost["tilted"].potentials) == (8, 8)  # at t = 1 the exponent is 0: nobody asks
    assert cost["any-order"].networks == 2 * LENGTH
    assert cost["guidance-gibbs"].networks > 128


def test_a_larger_alpha_makes_the_judge_surer(nets):
    """From the base towards the class: beta = 0 leaves it to the weights alone."""
    scores = []
    for alpha in (0.0, 1.0, 4.0):
        drawn = sample_texts(nets, Case("smc", "high", alpha, 0.0, 16, (2, 50)), 0)
        scores.append(float(nets.verdicts([t for own in drawn.texts for t in own], "high")[1].double().mean()))
    assert abs(scores[0] - 0.5) < 0.25
    assert scores[1] > 0.8
    assert scores[2] >= scores[1] - 0.05


def test_lots_change_nothing(nets, monkeypatch):
    from truetilt.experiments import text_samplers

    fk = SAMPLERS["smc-populations"].build(nets.model("high", "cfg"), 2.0, 1.0)
    options = {"resample": SAMPLERS["smc-populations"].resample}
    grid = tuple(tt.uniform_grid(6))
    whole = in_lots(fk, (6, 4), grid, 0, options)
    monkeypatch.setitem(text_samplers.AT_ONCE, "cpu", 8)
    parts = in_lots(fk, (6, 4), grid, 0, options)
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


def test_the_difference_has_the_textbook_interval():
    """Welch by hand: 60 and 50 right of 100."""
    ours, theirs = (lines_of([k < m for k in range(100)]) for m in (60, 50))
    found = difference(ours, theirs, lambda line: float(line.right))
    stderr = math.sqrt(0.6 * 0.4 / 99 + 0.5 * 0.5 / 99)
    assert found["value"] == pytest.approx(0.1)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.972 * stderr, rel=2e-3)


def test_copies_within_a_population_do_not_narrow_the_interval():
    """Ten copies of each text in its population say no more than one; counted as independent they would."""
    once, other = lines_of([k < 12 for k in range(20)]), lines_of([k < 8 for k in range(20)])
    copies = [line for line in once for _ in range(10)]
    assert difference(copies, other, lambda x: float(x.right)) == difference(once, other, lambda x: float(x.right))
    alone = [Line("r", k, "a b", line.right, 0.0) for k, line in enumerate(copies)]  # wrong
    wide, narrow = (difference(a, other, lambda x: float(x.right)) for a in (copies, alone))
    assert narrow["high"] - narrow["low"] < 0.85 * (wide["high"] - wide["low"])


def test_intervals_cover_as_often_as_they_say():
    """400 trials at 95 %: 380 +- 4.4 expected; 5 standard errors either way."""
    generator = torch.Generator().manual_seed(0)
    hits = {"difference": 0, "perplexity": 0, "mean": 0}
    for _ in range(400):
        right = torch.rand(2, 60, generator=generator) < torch.tensor([[0.7], [0.6]])
        nats = (6.0 + torch.randn(2, 60, generator=generator)).tolist()
        ours, theirs = (lines_of(right[k].tolist(), nats=nats[k]) for k in range(2))
        found = difference(ours, theirs, lambda line: float(line.right))
        hits["difference"] += found["low"] <= 0.1 <= found["high"]
        cost = ratio(ours, theirs, perplexity_of)
        hits["perplexity"] += cost["low"] <= 1.0 <= cost["high"]
        own = mean_interval(torch.randn(5, 50, generator=generator).tolist())
        hits["mean"] += own["low"] <= 0.0 <= own["high"]
    for count in hits.values():
        assert 358 <= count <= 400


def test_the_interval_of_diversity_is_as_wide_as_its_spread():
    """distinct-2 of 200 texts of four words out of forty: the jackknife's width against 60 repeats."""
    generator = torch.Generator().manual_seed(1)

    def sample():
        words = torch.randint(0, 40, (200, 4), generator=generator)
        return lines_of([True] * 200, texts=[" ".join(f"w{v}" for v in row) for row in words.tolist()])

    other = sample()
    logs, widths = [], []
    for _ in range(60):
        ours = sample()
        logs.append(math.log(distinct_2(ours)))
        widths.append(text_rows._jackknife(ours, distinct_2))
    spread = torch.tensor(logs).std().item()
    assert 0.5 * spread < math.sqrt(sum(widths) / 60) < 2 * spread
    found = ratio(other, other, distinct_2)
    assert found["value"] == 1.0
    assert found["low"] < 1 < found["high"]


def test_claims_hold_where_they_should_and_only_there():
    guidance = lines_of([k % 10 < 7 for k in range(1000)], nats=[6.0] * 1000)
    better = lines_of([k % 10 < 8 for k in range(1000)], nats=[6.1] * 1000)
    found = claims(better, guidance)
    assert found["accuracy_difference"]["value"] == pytest.approx(0.1)
    assert found["perplexity_ratio"]["value"] == pytest.approx(math.exp(0.1 / 3))
    assert (found["more_accurate"], found["as_fluent"], found["as_varied"]) == (True, True, True)
    collapsed = lines_of([True] * 1000, nats=[7.0] * 1000, texts=["the same text again"] * 1000)
    found = claims(collapsed, guidance)
    assert (found["more_accurate"], found["as_fluent"], found["as_varied"]) == (True, False, False)
    found = claims(guidance, lines_of([k % 10 < 7 for k in range(1000)]))
    assert (found["more_accurate"], found["as_fluent"]) == (False, None)
    with pytest.raises(tt.InvalidInput, match="two populations"):
        claims(guidance[:1], guidance)


def test_the_protocol_is_the_papers():
    every = controlled.cases(sentiment.TASK, quick=False)
    assert len({case.name for case in every}) == len(every)
    curve = [c for c in every if c.method == "smc-partial" and c.condition == "positive" and c.steps == 100]
    assert sorted({c.beta for c in curve}) == [0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    assert sorted({c.alpha for c in curve}) == [1, 2, 4, 8]
    assert {c.shape for c in curve} == {(5, 50)}
    guidance = [c for c in every if c.method.startswith("guidance") and not c.claim]
    assert {c.shape[0] * c.shape[1] for c in guidance} == {250}
    assert {c.steps for c in every} == {100, 1000}
    claim = [c for c in every if c.claim]
    assert {c.shape[0] for c in claim} == {1024}
    assert {(c.alpha, c.beta) for c in claim} <= {(None, 1.0), (2.0, 1.0), (2.0, None)}


def small(task, folder, bundle_folder, monkeypatch, quick=True):
    monkeypatch.setattr(controlled, "QUICK_STEPS", 6)
    settings = Settings(quick, 0, "cpu", None, (("model", str(bundle_folder)), ("reference", "none")))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # in this process, which knows the smaller numbers
    return carry_out(controlled.experiment(task, folder), settings, folder, lambda: None), settings


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
    assert command(controlled.experiment(MOOD, tmp_path), settings).count(str(bundle_folder)) == 1
    monkeypatch.setattr(controlled, "reference", lambda name: chain_lm())
    again = controlled.score_folder(tmp_path, "toy", controlled.draw_curves)
    assert all(row["perplexity"] > 1 for row in again["rows"])
    line = next(line for line in text_rows.read_lines(tmp_path) if line.nats is not None)
    mine = chain_lm()
    assert line.tokens == len(mine.encode(line.text))
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_claims_come_with_the_full_protocol(bundle_folder, tmp_path, monkeypatch):
    for name, value in {"ALPHAS": (1.0, 2.0), "BETAS": (1.0,), "STEPS": (6,), "RUNS": 1, "DRAWS": 24}.items():
        monkeypatch.setattr(controlled, name, value)
    monkeypatch.setattr(controlled, "OURS", ("tilted",))
    monkeypatch.setattr(controlled, "CLAIMANTS", ("smc-populations", "tilted-populations"))
    result, _ = small(replace(MOOD, conditions=("high",)), tmp_path, bundle_folder, monkeypatch, quick=False)
    assert "smc-populations, high" in result["claims"]
    found = result["claims"]["tilted-populations, high"]
    assert found["draws"] == [24, 24]
    assert found["perplexity_ratio"] is None
    assert found["accuracy_difference"]["low"] <= found["accuracy_difference"]["value"]


def test_toxicity_goes_both_ways_and_shows_no_text(bundle_folder, tmp_path, monkeypatch):
    assert toxicity.TASK.conditions == ("toxic", "non-toxic")
    assert not toxicity.TASK.shown
    score = controlled.score_of(TONE, "rude"), controlled.score_of(TONE, "calm")
    line = Line("r", 0, "n x rude", True, math.log(0.8))
    assert [f(line) for f in score] == pytest.approx([0.8, 0.2])
    result, _ = small(TONE, tmp_path, bundle_folder, monkeypatch)
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


GIVEN = (1, None, 8, 0, 0)  # x ? .


def test_reconstruction_keeps_the_known_and_sees_it_late(nets):
    """At given sites the one token, at the net's own rate; elsewhere what the net says of what is there."""
    score, x = infill.Overwritten(nets.base(), GIVEN), torch.full((1, LENGTH), 9)
    plain, rows = nets.base()(x, 0.5).dense(), score(x, 0.5).dense()
    assert torch.equal(rows[0, 1], plain[0, 1])
    assert rows[0, 0].argmax() == 1
    assert float(rows[0, 0].logsumexp(-1)) == pytest.approx(float(plain[0, 0].logsumexp(-1)))
    x, meter, steps = infill.filled_in(nets, GIVEN, (infill.BASELINE, None, 0.0), ((1, 16), 12, 0))
    assert x[:, [0, 2, 3, 4]].unique(dim=0).tolist() == [[1, 8, 0, 0]]
    assert (steps, meter.states) == (12, {"base": 16 * 12})


@pytest.mark.parametrize("run", infill.RUNS, ids=lambda run: infill._name(*run))
def test_every_filler_keeps_the_given_and_fills_in_a_mood(nets, run):
    x, meter, _ = infill.filled_in(nets, GIVEN, run, ((2, 8), 8, 0))
    assert x[:, [0, 2, 3, 4]].unique(dim=0).tolist() == [[1, 8, 0, 0]]
    assert int(((x[:, 1] == 3) | (x[:, 1] == 4)).sum()) >= 13
    assert sum(meter.states.values()) > 0


def test_what_is_kept_unclamped_is_the_chance_of_the_given(nets):
    """x or y is a coin; so is the dot or an end: about a half each, and less where the fill is nonsense."""
    good, bad = torch.tensor([[1, 4, 8, 0, 0]]), torch.tensor([[1, 1, 8, 0, 0]])
    assert float(infill.kept_unclamped(nets, good, GIVEN)) == pytest.approx(0.5, abs=0.15)
    with pytest.raises(tt.InvalidInput, match="none to keep"):
        infill.kept_unclamped(nets, bad, (None, None, None, 0, 0))


def test_gains_are_paired_by_sentence():
    """Sentences differ far more than samplers: paired by sentence the gain is sure, unpaired it would drown."""
    theirs = [0.1, 0.5, 0.9, 0.3, 0.7, 0.2]
    ours = [value + gain for value, gain in zip(theirs, (0.04, 0.05, 0.06, 0.05, 0.04, 0.06), strict=True)]
    found = infill.paired(ours, theirs)
    assert found["value"] == pytest.approx(0.05)
    assert found["low"] > 0.03
    assert mean_interval([[v] for v in ours])["low"] < mean_interval([[v] for v in theirs])["high"]


def test_infill_reads_a_corpus_and_writes_its_gains(bundle_folder, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(infill, "QUICK_STEPS", 5)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    out = tmp_path / "o"
    arguments = ["reproduce", "infill", "--quick", "--model", str(bundle_folder), "--data", str(corpus), "--json"]
    run = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert {row["method"] for row in result["rows"]} >= {infill.BASELINE, "any-order", "smc-partial"}
    assert all(row["kept"] == 1 and 0 < row["score"] <= 1 for row in result["rows"])
    assert "any-order-1" in result["gleu_over_reconstruction"]
    assert (out / "figure.png").is_file()
    assert len(text_rows.read_lines(out)) == 5 * 8 * 8
