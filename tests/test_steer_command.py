"""The command `truetilt steer`: from a table and a file to draws, figures and a verdict."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import truetilt as tt
from truetilt.cli.main import app

TABLE = {"p0": [[0.3, 0.2], [0.1, 0.4]], "likelihood": [[0.9, 0.1], [0.2, 0.5]]}
MINE = """
import truetilt as tt

def ones(x):
    return (x == 1).sum(-1)

letters = tt.Reward(lambda s: s.count("B"), tokenizer="AB", one_at_a_time=True)
number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(json.dumps(TABLE))
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def steered(*words):
    return CliRunner().invoke(app, ["steer", *words])


def test_a_table_by_a_reward_of_a_file(here):
    done = steered("t.json", "--reward", "mine.py:ones", "--evaluations", "4000", "--out", "run", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    rows = {row["quantity"]: row["value"] for row in found["rows"]}
    assert rows["log Z"] == pytest.approx(rows["log Z, exact"], abs=0.1)
    assert rows["network evaluations"] <= 4000
    assert {draw["reward"] for draw in found["draws"]} <= {0.0, 1.0, 2.0}
    assert found["story"][0].startswith("1. Importance")
    result = tt.Result.load(here / "run")
    assert result.story == found["story"]
    assert "--reward mine.py:ones" in result.settings["command"]
    assert (here / "run" / "figure.png").stat().st_size > 0
    assert not (here / "run" / "stages").exists()


def test_a_table_that_a_reward_steers_needs_no_likelihood(here):
    (here / "p0.json").write_text(json.dumps({"p0": TABLE["p0"]}))
    done = steered("p0.json", "--reward", "mine.py:ones", "--evaluations", "2000", "--out", "run", "--json")
    assert done.exit_code == 0, done.output
    names = [row["quantity"] for row in json.loads(done.stdout)["rows"]]
    assert {"log Z, exact", "mean reward before", "mean reward"} <= set(names)
    refused = steered("p0.json", "--alpha", "2")
    assert refused.exit_code == 2
    assert "must hold p0 and likelihood" in refused.output
    (here / "none.json").write_text("{}")
    assert "must hold p0 as nested lists" in steered("none.json", "--reward", "mine.py:ones").output


def test_a_reward_of_strings_spells_its_draws(here):
    done = steered("t.json", "--reward", "mine.py:letters", "--evaluations", "2000")
    assert done.exit_code == 0, done.output
    assert any(line.startswith(("AB", "BB", "BA", "AA")) for line in done.stdout.splitlines())
    assert json.loads((here / "runs/steer/view.json").read_text())["kind"] == "logo"


def test_a_table_by_its_condition(here):
    done = steered("t.json", "--alpha", "3", "--evaluations", "4000", "--out", "run", "--json")
    assert done.exit_code == 0, done.output
    assert "p(zeta|x)^3" in json.loads(done.stdout)["log_z"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["t.json"], "one of the two"),
        (["t.json", "--reward", "mine.py:ones", "--alpha", "2"], "one of the two"),
        (["t.json", "--reward", "mine.py:one"], "did you mean ones"),
        (["t.json", "--reward", "mine.py:number"], "cannot be called"),
        (["t.json", "--reward", "yours.py:ones"], "there is no file"),
        (["t.json", "--reward", "mine.py:ones", "--condition", "1"], "goes with --alpha"),
        (["t.json", "--alpha", "2", "--condition", "1"], "leave out --condition"),
        (["mnist", "--alpha", "2"], "give --condition"),
        (["t.json", "--reward", "mine.py:ones", "--evaluations", "10"], "do not buy one draw"),
        (["nothing", "--reward", "mine.py:ones"], "there is no model"),
    ],
)
def test_errors_are_one_line(here, words, told):
    done = steered(*words)
    assert done.exit_code in (1, 2)
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
