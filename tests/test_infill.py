"""Infilling: many texts in one run, baselines that draw what is given, what is kept, gains sentence by sentence."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from sayings import LENGTH
from truetilt.cli.main import app
from truetilt.paper import gap_fillers as fillings
from truetilt.paper import infill, text_rows, text_samplers
from truetilt.paper.gap_fillers import FillRun, Way, fill
from truetilt.paper.text_rows import mean_interval


@pytest.fixture(scope="module")
def nets(bundle_folder):
    return tt.load(bundle_folder)


GIVEN = (1, None, 8, 0, 0)  # x ? .


def test_reconstruction_keeps_the_known_and_sees_it_late(nets):
    """At given sites the one token, at the net's own rate; elsewhere what the net says of what is there."""
    known, noted = torch.tensor([[1, -1, 8, 0, 0]]), fillings.Noted()
    x = torch.full((1, 1, LENGTH), 9)
    score = fillings.Overwritten(nets.base(), known, 9, noted)
    plain, rows = nets.base()(x, 0.5).dense(), score(x, 0.5).dense()
    assert torch.equal(rows[0, 0, 1], plain[0, 0, 1])
    assert rows[0, 0, 0].argmax() == 1
    assert float(rows[0, 0, 0].logsumexp(-1)) == pytest.approx(float(plain[0, 0, 0].logsumexp(-1)))
    assert float(noted.chance[0, 0]) == pytest.approx(float(plain[0, 0, 0].softmax(-1)[1]))
    filled = fill(nets, [GIVEN], Way(fillings.RECONSTRUCTION), FillRun((1, 16), 16, 12, 0))
    assert filled.x[0][:, [0, 2, 3, 4]].unique(dim=0).tolist() == [[1, 8, 0, 0]]
    assert (filled.steps, filled.evaluations) == (12, 12)
    assert 0.3 < float(filled.kept.mean()) < 0.8  # x or y is a coin, and so is the dot


def test_a_chance_is_that_of_the_moment_before_a_site_is_overwritten():
    noted = fillings.Noted()
    noted.note(torch.tensor([0.1, 0.2]), torch.tensor([True, True]))
    noted.note(torch.tensor([0.3, 0.4]), torch.tensor([True, False]))
    noted.note(torch.tensor([0.5, 0.6]), torch.tensor([False, False]))
    assert noted.chance.tolist() == pytest.approx([0.3, 0.2])


WAYS = [Way("guidance-posterior", None, 0.5), Way("guidance-posterior", None, 1.0), Way("guidance-rate", None, 1.5),
        Way("smc-posterior", 2.0, 1.0), Way("any-order", 1.5), Way("any-order-populations", 2.0),
        Way("guidance-gibbs", 1.5)]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_filler_keeps_the_given_and_fills_in_a_mood(nets, way):
    """Two texts at once, the gap elsewhere in each; a third has two gaps, and a run of its own."""
    texts = [GIVEN, (None, 4, 8, 0, 0), (2, None, None, 0, 0)]
    filled = fill(nets, texts, way, FillRun((2, 8), 16, 8, 0))
    first, second, third = filled.x
    assert first[:, [0, 2, 3, 4]].unique(dim=0).tolist() == [[1, 8, 0, 0]]
    assert second[:, 1:].unique(dim=0).tolist() == [[4, 8, 0, 0]]
    assert third[:, [0, 3, 4]].unique(dim=0).tolist() == [[2, 0, 0]]
    assert int(((first[:, 1] == 3) | (first[:, 1] == 4)).sum()) >= 12
    assert int(((second[:, 0] == 1) | (second[:, 0] == 2)).sum()) >= 12
    assert filled.evaluations > 0


def test_euler_steps_of_normalised_posteriors_are_tweedies(nets):
    """So at beta = 1 the infilling of `smc-posterior` is that of Euler steps at the level of rates."""
    rows = torch.tensor([[1, -1, -1, 0, 0], [-1, 4, -1, 0, 0]])
    model, x = fillings.gap_model(nets, rows), torch.tensor([[[9, 9]], [[1, 9]]])
    for t, s in ((0.9, 0.8), (0.3, 0.0)):
        exact, euler = (kernel(model.process, model.conditional(x, t), x, t, s) for kernel in (tt.tweedie, tt.euler))
        assert torch.allclose(exact.odds.log_hold.exp(), euler.odds.log_hold.exp(), atol=1e-6)
        y = torch.tensor([[[3, 8]], [[1, 8]]])
        assert torch.allclose(exact.log_prob(y), euler.log_prob(y), atol=1e-5)


def test_the_stored_rows_have_every_cell_of_the_papers_table():
    found = json.loads((Path(__file__).parents[1] / "proofs/infill.json").read_text(encoding="utf-8"))
    there = {row["name"]: row for row in found["rows"]}
    table = [way.name for way in infill.WAYS if way.steps and way.method != fillings.PROMPTING]
    assert len(table) == 6  # reconstruction, guidance, four alphas
    for name in table:
        assert (there[name]["steps"], there[name]["runs"], there[name]["perplexity"] is None) == (1000, 250, False)
    assert set(table) - {"reconstruction-1000"} <= set(found["gleu_over_reconstruction"])


def test_a_text_is_filled_alike_whoever_shares_its_run(nets, monkeypatch):
    texts, way = [GIVEN, (None, 4, 8, 0, 0), (2, None, 8, 0, 0)], Way("smc-posterior", 2.0, 1.0)
    together = fill(nets, texts, way, FillRun((1, 4), 4, 6, 0))
    monkeypatch.setitem(text_samplers.ROOM, "cpu", 4)
    assert torch.equal(together.x, fill(nets, texts, way, FillRun((1, 4), 4, 6, 0)).x)


def test_many_gaps_are_the_gaps_of_one(nets):
    """The Score of a text among others is that of the text alone."""
    from truetilt.models.infilling import given_text

    rows = torch.tensor([[1, -1, 8, 0, 0], [-1, 4, 8, 0, 0]])
    model, x = fillings.gap_model(nets, rows), torch.full((2, 3, 1), nets.process.mask)
    plain = tt.Model(nets.process, nets.length, nets.base())
    for number, given in enumerate([GIVEN, (None, 4, 8, 0, 0)]):
        alone = given_text(plain, given)
        for name in ("base", "conditional"):
            ours, theirs = (getattr(m, name)(x, 0.7).dense()[number] for m in (model, alone))
            torch.testing.assert_close(ours, theirs)


def test_prompting_writes_the_text_again_behind_its_gaps(nets):
    given = (1, None, 0, 0, 0)
    assert fillings.prompt_fits(nets, given) == (len(fillings.prompt_of(nets, given)) + 2 <= LENGTH)
    assert not fillings.prompt_fits(nets, (1, None, 8, 8, 8))
    with pytest.raises(tt.InvalidInput, match="does not fit"):
        fill(nets, [(1, None, 8, 8, 8)], Way(fillings.PROMPTING), FillRun((1, 2), 2, 4, 0))
    assert fillings.kept_share(torch.tensor([[1, 4, 8, 0, 0], [2, 4, 8, 0, 0]]), GIVEN, 0).tolist() == [1.0, 0.5]


def test_what_is_kept_unclamped_is_the_chance_of_the_given(nets):
    """x or y is a coin; so is the dot or an end: about a half each. Two texts at once are as each alone, by hand."""
    texts, x = [GIVEN, (None, None, 8, 0, 0)], torch.tensor([[[1, 4, 8, 0, 0]] * 2, [[2, 3, 8, 0, 0], [1, 4, 8, 0, 0]]])
    both = infill.kept_unclamped(nets, x, texts)
    assert float(both[0]) == pytest.approx(0.5, abs=0.15)
    mask = nets.process.mask
    seen = torch.tensor([[2, 3, *[mask] * 3], [1, 4, *[mask] * 3]])
    t = nets.process.time_masked(LENGTH, 3)
    chance = nets.process.posterior(nets.base()(seen, t), seen, t).dense().exp()[:, 2, 8]
    assert float(both[1]) == pytest.approx(float(chance.mean()), rel=1e-5)
    with pytest.raises(tt.InvalidInput, match="none to keep"):
        infill.kept_unclamped(nets, x[:1], [(None, None, None, 0, 0)])


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
    monkeypatch.setattr(fillings, "MARK", "x")  # these nets have no room for more
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    out = tmp_path / "o"
    arguments = ["reproduce", "infill", "--quick", "--model", str(bundle_folder), "--data", str(corpus), "--json"]
    first = CliRunner().invoke(app, [*arguments, "--out", str(out), "--only", "reconstruction|any"])
    assert first.exit_code == 0, first.stderr
    assert "8 rows of the grid are not here" in first.stderr
    run = CliRunner().invoke(app, [*arguments, "--out", str(out), "--only", "guidance-posterior|smc"])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert {row["method"] for row in result["rows"]} == {
        *("reconstruction", "any-order", "smc-posterior", "guidance-posterior"),
    }
    assert all(row["kept"] == 1 and 0 < row["score"] <= 1 for row in result["rows"])
    assert result["rows"][0]["kept_drawn"] > 0
    assert "any-order-a1.5" in result["gleu_over_reconstruction"]
    assert (out / "figure.png").is_file()
    assert len(text_rows.read_lines(out)) == 8 * 8 * 4
    other = CliRunner().invoke(app, [*arguments, "--out", str(out), "--only", "smc", "--seed", "1"])
    assert other.exit_code == 2
    assert "(seed 0 there, 1 here); they do not join" in " ".join(other.stderr.split())
    none = CliRunner().invoke(app, [*arguments, "--out", str(out), "--only", "nothing"])
    assert none.exit_code == 2
    assert "fits none" in none.stderr
