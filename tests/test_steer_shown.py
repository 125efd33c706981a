"""What is shown of a steered run: the reward before and after, its figure, its progress; nothing is called for it."""

from __future__ import annotations

import io
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import truetilt as tt
from truetilt.commands.steer import _notes, pictured
from truetilt.commands.steer_figure import draw_steered
from truetilt.commands.steerable import Steerable
from truetilt.core.errors import InvalidInput
from truetilt.smc.genealogy import LINES, shown_lines
from truetilt.steering.progress import stages
from truetilt.viz.reward_gain import binned, gain_words

LENGTH = 12


def dna():
    steps = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])
    law = tt.ChainLaw(torch.ones(4), steps, torch.zeros(LENGTH, 4))
    tilt = tt.ChainLaw(law.initial, law.transitions, 2.0 * torch.tensor([0.0, 1, 1, 0]).expand(LENGTH, 4))
    return tt.Model(tt.Masking(4), LENGTH, tt.ChainScore(tt.Masking(4), law)), law, tilt


class Counted:
    """G and C in a state, and how many states were asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, x):
        self.asked += len(x)
        return ((x == 1) | (x == 2)).sum(-1)


@pytest.fixture(scope="module")
def run():
    model, law, tilt = dna()
    counted, heard = Counted(), []
    reward = tt.Reward(counted, vocabulary=4)
    result = tt.steer(model, reward, 2.0, calls=400, progress=lambda *told: heard.append(told))
    return result, reward, counted, heard, (law, tilt)


def test_the_reward_before_and_after_is_kept_and_no_call_is_made_for_it(run):
    result, reward, counted, _, laws = run
    assert counted.asked == reward.distinct == result.spent.distinct <= 400
    assert reward.calls == result.spent.calls
    kept = result.settings["steer"]["rewards"]
    for side, law in zip(("before", "after"), laws, strict=True):
        truth = float(law.marginals()[:, [1, 2]].sum())
        wide = kept[side]["high"] - kept[side]["low"]
        assert kept[side]["low"] - wide < truth < kept[side]["high"] + wide
        assert np.mean(kept[side]["values"]) == pytest.approx(kept[side]["mean"], abs=0.5)
    assert kept["before"]["mean"] + 2 < kept["after"]["mean"]
    states = torch.tensor(kept["before"]["states"])
    assert Counted()(states).tolist() == kept["before"]["rewards"]


def test_the_mean_after_is_that_of_the_weighted_answer(run):
    result = run[0]
    found = result.settings["steer"]["rewards"]["after"]
    assert found["mean"] == pytest.approx(float(result.expectation(lambda x: Counted()(x).double())))


def test_a_saved_answer_shows_its_rewards(run, tmp_path):
    again = tt.Result.load(run[0].save(tmp_path / "run"))
    assert again.settings["steer"]["rewards"] == run[0].settings["steer"]["rewards"]
    page = again.report(tmp_path / "run.html", tt.SequenceLogo("ACGT")).read_text(encoding="utf-8")
    found = gain_words(again.settings)
    assert f"mean reward <b>{found.before.mean:.4g}</b>" in page
    assert f"mean reward <b>{found.after.mean:.4g}</b>" in page
    assert page.count('<svg class="rewards"') == 2
    particles = page.partition('id="particles"')[2]
    assert particles.count('class="worth">r = ') == particles.count('title="population') > 0
    assert '"states"' not in page  # 16 sequences of tokens are no setting to read


def test_the_rewards_beside_particles_are_theirs(run):
    result = run[0]
    for (population, particle), value in gain_words(result.settings).lines.items():
        assert Counted()(result.particles[population, particle][None]).item() == value


@pytest.mark.parametrize("options", [{"cached": False}, {"noisy": True}])
def test_a_reward_that_keeps_nothing_has_no_record(options):
    model, counted = dna()[0], Counted()
    result = tt.steer(model, tt.Reward(counted, vocabulary=4, **options), 0.5, calls=64, evaluations=4000)
    assert "rewards" not in result.settings["steer"]
    assert counted.asked == result.spent.distinct
    draw_steered(result)


def test_the_headline_of_calls_is_what_the_limit_counts(tmp_path):
    model = dna()[0]
    result = tt.steer(model, tt.Reward(Counted(), vocabulary=4), 0.2, calls=100, evaluations=60_000)
    page = result.report(tmp_path / "run.html").read_text(encoding="utf-8")
    head = page.partition("<dt>reward calls</dt>")[2][:200]
    assert f">{result.spent.distinct:,}</button>" in head


def test_forbidden_draws_are_left_out_of_the_mean_and_said():
    model = dna()[0]
    reward = tt.Reward(lambda x: torch.where(x[:, 0] == 0, -torch.inf, 1.0 * (x == 2).sum(-1)), vocabulary=4)
    result = tt.steer(model, reward, 1.0, calls=300)
    json.dumps(result.settings, allow_nan=False)
    before = result.settings["steer"]["rewards"]["before"]
    assert before["forbidden"] == pytest.approx(0.25, abs=0.15)
    assert "forbidden" in gain_words(result.settings).before.interval
    draw_steered(result)


def test_fewer_lines_are_some_of_the_most(run):
    ancestors = run[0].ancestors
    most = set(shown_lines(ancestors, LINES).tolist())
    assert len(most) == min(LINES, run[0].log_weights.numel())
    for count in (1, 2, 8, 24):
        some = shown_lines(ancestors, count).tolist()
        assert len(some) == count
        assert set(some) <= most


def test_whole_rewards_have_a_bar_each():
    share, edges, whole = binned(np.array([0.0, 1, 1, 3]), np.ones(4), (0.0, 3.0))
    assert (share.tolist(), edges.tolist(), whole) == ([0.25, 0.5, 0, 0.25], [-0.5, 0.5, 1.5, 2.5, 3.5], True)
    assert not binned(np.array([0.0, 0.5]), np.ones(2), (0.0, 3.0))[2]
    assert not binned(np.array([1.0, 2.0]), np.ones(2), (0.5, 3.0))[2]


def test_its_figure_cuts_no_label_and_has_no_offset(run):
    figure = draw_steered(run[0])
    figure.draw_without_rendering()
    first, middle, last = figure.axes
    told = [label.get_text().replace("\n", " ") for label in last.get_yticklabels()]
    assert any(label.endswith("whether the model's conditionals agree") for label in told)
    assert all(ax.xaxis.get_offset_text().get_text() == "" for ax in figure.axes)
    assert "before: mean" in first.get_legend().get_texts()[0].get_text()
    assert "less" in middle.get_xlabel()


def test_images_are_drawn_and_not_listed_as_numbers():
    p0 = torch.rand((2,) * 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = tt.Table(tt.Masking(2), p0 / p0.sum(), torch.ones_like(p0)).model()
    reward = tt.Reward(lambda x: x.sum(-1), vocabulary=2)
    result = tt.steer(model, reward, 1.0, evaluations=4000)
    made = Steerable(model, None, tt.Images(2, 2))
    assert pictured(made)
    assert not pictured(made._replace(view=None))
    shown = [ax for ax in draw_steered(result, made.view).findobj() if getattr(ax, "images", None)]
    assert len(shown) == 2


def test_many_sites_in_a_step_are_another_p0_and_it_is_said():
    model = dna()[0]
    some = {"calls": 64, "evaluations": 4000}
    assert _notes(tt.steer(model, Counted(), 0.1, **some)) == []
    (note,) = _notes(tt.steer(model, Counted(), 0.1, num_inference_steps=3, **some))
    assert note.startswith("12 sites in 3 steps: the 4 that are drawn in one step are drawn independently")


def test_progress_tells_stages_steps_and_rounds_as_they_happen(run):
    result, *_, heard, _ = run
    told = [what for what, _ in heard]
    assert told[0].startswith("importance: 16 populations")
    assert any(what.endswith(f" · step {LENGTH} of {LENGTH}") for what in told)
    assert any(what.endswith(" · round 1 of 4, draws") for what in told)
    assert any(what.endswith(" of 4, fits") for what in told)
    shares = [share for _, share in heard]
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    assert {what.partition(" · ")[0] for what in told} == {
        stage["what"].partition(" (")[0] for stage in result.settings["steer"]["stages"]
    }


def test_a_terminal_gets_a_line_for_each_stage_and_a_file_none(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for place, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", place)
        with stages() as told:
            told("looking", 0.0)
            told("looking · step 1 of 2", 0.0)
            told.calls(3, 64)
            told("learning", 0.25)
        lines = place.getvalue().split("\n")
        assert [line.rpartition("\x1b[K")[2] for line in lines[:-1]] == (
            ["  0% spent  looking", " 25% spent  learning"] if seen else []
        )
        assert ("step 1 of 2" in place.getvalue()) == seen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_steer_shows_its_progress_on_a_terminal_and_in_a_notebook(monkeypatch):
    """By default; not in a file, not if it is told not to, and not beside a function of the user's."""
    model = dna()[0]

    def shown(place, **options):
        monkeypatch.setattr(sys, "stderr", place)
        tt.steer(model, Counted(), evaluations=2_000, **options)
        return place.getvalue()

    told = shown(Terminal())
    assert re.search(r"0% spent  importance: 16 populations", told)
    assert told.endswith("\r\x1b[K")  # the line of a step does not stay
    assert shown(io.StringIO()) == shown(Terminal(), progress=False) == ""
    assert shown(Terminal(), progress=lambda what, share: None) == ""
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    lines = shown(io.StringIO()).splitlines()
    assert lines[0].strip().startswith("0% spent  importance")
    assert not any("step" in line or "\x1b" in line for line in lines)


def test_a_model_and_a_reward_that_are_swapped_are_recognised():
    model = dna()[0]
    with pytest.raises(InvalidInput, match="did you swap the two"):
        tt.steer(Counted(), model)
    with pytest.raises(InvalidInput, match="wrap it"):
        tt.steer(Counted(), Counted())
