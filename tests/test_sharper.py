"""A sharper base: the weighted target is p0^gamma p(zeta|x)^alpha to rounding, local temperature is another law."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from problems import table, tv
from rewarded import rewarded
from truetilt.cli.main import app
from truetilt.viz.settings_in_words import run_settings

R = rewarded()
GAMMAS = (0.7, 1.25, 2.0)


@pytest.mark.parametrize("ramp", [tt.Power(0.0), tt.Power(2.0)])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_sharper_base_is_hit_exactly(gamma, alpha, ramp):
    """By edge ratios with Z; by a potential over the conditional model, whose Z has another factor."""
    target = R.log_target(gamma, (alpha,))
    assert R.gap(tt.sharpened(replace(R.model, potential=None), alpha, gamma, ramp), target) < 1e-12
    assert R.model.potential is not None
    found = R.flow(tt.sharpened(R.model, alpha, gamma, ramp))
    inside = (found.states < R.vocabulary).all(-1)
    assert tv(found.law[inside], target.softmax(0)) < 1e-12


def cooled(problem, gamma, score=None):
    """The limit of local temperature 1 / gamma, one site at a time in random order, without weights."""
    score = tt.LocalTemperature(problem.process, score or problem.model.base, 1 / gamma)
    model = tt.Model(problem.process, problem.length, score)
    found = problem.flow(tt.Composed(model))
    assert float(found.log_z) == pytest.approx(0, abs=1e-12)  # every site's law is normalised: nothing to weigh
    return found.law[(found.states < problem.vocabulary).all(-1)]


def one_or_many():
    """Two sites: one phrase of probability .4, and eight of .075 each, which share their first token."""
    p0 = torch.zeros(9, 9, dtype=torch.float64)
    p0[0, 0], p0[1, 1:] = 0.4, 0.6 / 8
    return replace(R, p0=p0, likelihoods=(torch.ones_like(p0),) * 2)


@pytest.mark.parametrize(("gamma", "miss"), [(0.5, 0.11), (1.1, 0.0252), (1.25, 0.0637), (1.5, 0.1269), (2.0, 0.2364)])
def test_wrong_local_temperature_is_another_law(gamma, miss):
    """The wrong variant: the law of a site sharpened by itself; right with one site only, and at gamma = 1."""
    phrases = one_or_many()
    assert tv(cooled(phrases, gamma), phrases.log_target(gamma).softmax(0)) == pytest.approx(miss, abs=5e-3)
    assert phrases.gap(tt.Composed(phrases.model, sharpness=gamma), phrases.log_target(gamma)) < 1e-12
    assert tv(cooled(R, gamma, R.model.conditional), R.log_target(gamma, (gamma,)).softmax(0)) > 0.001
    assert tv(cooled(R, 1.0), R.log_target(1.0).softmax(0)) < 1e-12
    one = table(tt.Masking, 5, 1)
    score = tt.LocalTemperature(one.process, one.model().base, 1 / gamma)
    law = tt.flow(tt.Composed(tt.Model(one.process, 1, score)), (1.0, 0.0), 6, 1).law[:5]
    assert tv(law, (one.p0**gamma / (one.p0**gamma).sum()).reshape(-1)) < 1e-12


def test_local_temperature_keeps_zeros_and_the_rate_of_revealing():
    process = tt.Masking(3)
    base = tt.PosteriorScore(process, lambda x, t: torch.tensor([0.0, 1.0, -torch.inf]).expand(*x.shape, 3))
    x = torch.full((2, 4), process.mask)
    found = process.posterior(tt.LocalTemperature(process, base, 0.5)(x, 0.4), x, 0.4).dense()[0, 0].exp()
    assert found.tolist() == pytest.approx([*torch.tensor([0.0, 2.0]).softmax(0).tolist(), 0.0])
    law = torch.tensor([0.5, 0.3, 0.2]).log()
    base = tt.PosteriorScore(process, lambda x, t: law.expand(*x.shape, 3))
    kept = process.posterior(tt.LocalTemperature(process, base, 0.5, keep=0)(x, 0.4), x, 0.4).dense()[0, 0].exp()
    assert kept.tolist() == pytest.approx([0.5, 0.5 * 0.09 / 0.13, 0.5 * 0.04 / 0.13])
    sure = tt.PosteriorScore(process, lambda x, t: torch.tensor([0.0, -torch.inf, -torch.inf]).expand(*x.shape, 3))
    alone = process.posterior(tt.LocalTemperature(process, sure, 0.5, keep=0)(x, 0.4), x, 0.4).dense()[0, 0].exp()
    assert alone.tolist() == [1.0, 0.0, 0.0]
    at_one = tt.LocalTemperature(process, base, 1.0, keep=1)(x, 0.4).dense()
    assert torch.allclose(at_one, base(x, 0.4).dense())


def called(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_has_both_and_says_which_is_which(bundle_folder, tmp_path):
    nets, common = tt.load(bundle_folder), ("--condition", "high", "--alpha", 2, "--particles", 8, "--populations", 2)
    for option, value in (("--sharpness", 1.5), ("--temperature", 0.7)):
        run = called("sample", bundle_folder, *common, option, value, "--steps", 5, "--out", tmp_path / "o")
        assert run.exit_code == 0, run.stderr
        told = json.loads((tmp_path / "o/result.json").read_text())
        assert f"{option} {value}" in told["settings"]["command"]
        assert ("no weights" in run.stderr) == (option == "--temperature")
        found = tt.Result.load(tmp_path / "o")
        even = bool((found.log_weights == found.log_weights[0, 0]).all())
        assert even == (option == "--temperature")
        assert called("report", tmp_path / "o").exit_code == 0
    again = tt.run(tt.sharpened(nets.model("high"), 2.0, 1.5), particles=8, populations=2, seed=0)
    called("sample", bundle_folder, *common, "--sharpness", 1.5, "--steps", 5, "--out", tmp_path / "o")
    found, space = tt.Result.load(tmp_path / "o"), {}
    assert torch.equal(found.log_weights, again.log_weights)
    told = run_settings(found.settings, found.times.tolist())
    assert told.target == "p0(x)^1.5 p(high|x)^2"
    exec(told.call, space)
    assert torch.equal(space["result"].log_weights, again.log_weights)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--sharpness", 1.2, "--temperature", 0.8], "give one of them"), (["--sharpness", 1.2, "--beta", 1], "leave one"),
     (["--sharpness", 0], "above 0"), (["--temperature", -1], "above 0")],
)  # fmt: skip
def test_the_command_refuses_what_makes_no_sense(bundle_folder, tmp_path, arguments, words):
    run = called("sample", bundle_folder, "--condition", "high", *arguments, "--out", tmp_path / "o")
    assert run.exit_code == 2
    assert words in run.stderr
    for other in ("mnist", "molecules", "proteinmpnn"):
        run = called("sample", other, "--condition", "4", "--sharpness", 1.2, "--out", tmp_path / "o")
        assert "is for bundles of texts" in run.stderr


def test_bad_input():
    for temperature in (0, -1.0, float("nan"), float("inf"), "cold"):
        with pytest.raises(tt.InvalidInput, match="temperature"):
            tt.LocalTemperature(R.process, R.model.base, temperature)
    with pytest.raises(tt.InvalidInput, match="above 0"):
        tt.sharpened(R.model, 1.0, 0.0)
    with pytest.raises(tt.InvalidInput, match="this model has none"):
        tt.sharpened(tt.Model(R.process, R.length, R.model.base), 1.0, 1.2)
