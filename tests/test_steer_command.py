"""The command `truetilt steer`: from a table and a file to draws, figures and a verdict."""

from __future__ import annotations

import json
import os
import signal

import pytest
from typer.testing import CliRunner

import truetilt as tt
from truetilt.cli.main import app
from truetilt.commands import steer as commands
from truetilt.core.storage import owned

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


FAULTY = """
import sys
import truetilt as tt

def two(x, y, z):
    return x.sum(-1)

def raises(x):
    raise KeyError("b" * 100_000)

def exits(x):
    sys.exit("nothing")

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError

def odd(x):
    raise Unprintable

def needs(a):
    return a

def model_that_raises():
    raise RuntimeError("m" * 100_000)

def model_that_exits():
    sys.exit(3)

def model_whose_score_raises():
    def score(x, t):
        raise ValueError("no score")
    return tt.Model(tt.Masking(2), 2, score)

ones = tt.Reward(lambda x: x.sum(-1), vocabulary=2)
"""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["t.json", "--reward", "faulty.py:two"], 2, "missing a required argument: 'y'"),
        (["t.json", "--reward", "faulty.py:raises"], 1, "raised KeyError: 'bbb"),
        (["t.json", "--reward", "faulty.py:exits"], 1, "raised SystemExit: nothing"),
        (["t.json", "--reward", "faulty.py:odd"], 1, "raised Unprintable:"),
        (["t.json", "--reward", "faulty.py"], 2, "write file.py:name, such as faulty.py:score"),
        (["faulty.py:needs", "--reward", "faulty.py:ones"], 2, "missing 1 required positional argument: 'a'"),
        (["faulty.py:model_that_raises", "--reward", "faulty.py:ones"], 2, "(faulty.py, line 25)"),
        (["faulty.py:model_that_exits", "--reward", "faulty.py:ones"], 2, "SystemExit: 3 (faulty.py, line 28)"),
        (["faulty.py:model_whose_score_raises", "--reward", "faulty.py:ones"], 1, "ValueError: no score (faulty.py,"),
        (["a" * 5000, "--reward", "faulty.py:ones"], 2, "File name too long"),
        (["t.json", "--reward", "a" * 5000 + ".py:ones"], 2, "File name too long"),
        (["t.json", "--reward", "faulty.py:ones", "--out", "a" * 5000], 2, "File name too long"),
        (["gone.json", "--reward", "faulty.py:ones"], 2, "gone.json"),
        (["t.json", "--reward", "faulty.py:ones", "--draws", "0"], 2, "--draws"),
    ],
)
def test_what_users_bring_fails_in_one_short_line(here, words, code, told):
    (here / "faulty.py").write_text(FAULTY)
    done = steered(*words, *(["--evaluations", "400"] if "faulty.py:two" not in words else []))
    assert (done.exit_code, done.exception.__class__) == (code, SystemExit), done.output
    assert told in " ".join(done.stderr.split())
    assert len(done.stderr) < 2000


def test_draws_are_merged_and_written(here):
    """A line for each different sequence: its share of the weight, its reward, how often it was drawn."""
    words = ["t.json", "--reward", "mine.py:ones", "--evaluations", "2000", "--out", "run", "--draws", "300", "--json"]
    found = json.loads(steered(*words).stdout)
    lines = (here / "run" / "draws.csv").read_text().splitlines()
    assert lines[0] == "sequence,weight,reward,count"
    rows = [line.split(",") for line in lines[1:]]
    assert sorted(row[0] for row in rows) == ["0 0", "0 1", "1 0", "1 1"]
    assert sum(int(row[3]) for row in rows) == 300
    assert sum(float(row[1]) for row in rows) == pytest.approx(1)
    assert all(abs(int(row[3]) / 300 - float(row[1])) < 0.02 for row in rows)
    assert [float(row[2]) for row in rows] == [2.0, 1.0, 1.0, 0.0]
    assert [draw["count"] for draw in found["draws"]] == [int(row[3]) for row in rows]
    assert "--draws 300" in tt.Result.load(here / "run").settings["command"]
    told = steered("t.json", "--reward", "mine.py:letters", "--evaluations", "2000")
    assert "draws.csv" in told.stderr
    assert (here / "runs/steer/draws.csv").read_text().splitlines()[1].startswith("BB,")
    assert any(line.startswith("BB  (2)  ×") for line in told.stdout.splitlines())


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


SLOW = """
import os

def ones(x):
    for row in x.tolist():
        with open("asked", "a") as file:
            file.write("".join(map(str, row)) + "\\n")
    if os.path.exists("signal"):
        number = int(open("signal").read())
        os.remove("signal")
        os.kill(os.getpid(), number)
    return (x == 1).sum(-1)
"""


@pytest.mark.interrupt
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_it_says_so_and_goes_on(here, number, code):
    (here / "slow.py").write_text(SLOW)
    words = ["t.json", "--reward", "slow.py:ones", "--evaluations", "2000", "--out", "run"]
    (here / "signal").write_text(str(int(number)))
    done = steered(*words)
    assert done.exit_code == code, done.output
    assert "goes on from there" in " ".join(done.stderr.split())
    assert "truetilt resume" not in done.stderr
    assert not (here / "run" / "result.json").exists()
    done = steered(*words)
    assert done.exit_code == 0, done.output


def test_a_mended_reward_is_not_locked_out(here):
    """Nothing had finished: the folder is taken over, and only the mended function is heard."""
    words = ["t.json", "--reward", "mine.py:ones", "--evaluations", "2000"]
    (here / "mine.py").write_text("def ones(x):\n    return 1 / 0\n")
    done = steered(*words)
    assert done.exit_code == 1  # the run failed
    assert "ZeroDivisionError" in done.stderr
    (here / "mine.py").write_text(MINE)
    done = steered(*words)
    assert done.exit_code == 0, done.output
    assert "going on" not in done.stderr
    assert not (here / "runs/steer/stages").exists()


def test_an_unfinished_run_does_not_lock_the_default_folder(here, monkeypatch):
    """Another command goes beside it, and the first goes on afterwards; with --out it is told what to delete."""
    words = ["t.json", "--reward", "mine.py:ones", "--evaluations", "2000"]
    monkeypatch.setattr(commands, "_summary", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert steered(*words).exit_code == 143
    monkeypatch.undo()
    monkeypatch.chdir(here)
    done = steered(*words, "--strength", "2", "--out", "runs/steer")
    told = " ".join(done.stderr.split())
    assert done.exit_code == 2
    assert "with another strength; delete the folder runs/steer/stages to begin anew" in told
    done = steered(*words, "--strength", "2")
    assert done.exit_code == 0, done.output
    assert "this run goes to runs/steer-2" in " ".join(done.stderr.split())
    assert (here / "runs/steer-2/result.json").exists()
    done = steered(*words)
    assert done.exit_code == 0, done.output
    assert "going on after stage" in done.stderr
    assert (here / "runs/steer/result.json").exists()
    assert not (here / "runs/steer/stages").exists()


def test_two_runs_do_not_share_a_folder(here):
    """One that is in use is refused in a line that names its process; without --out the next number is taken."""
    words = ["t.json", "--reward", "mine.py:ones", "--evaluations", "2000"]
    with owned(here / "runs/steer"), owned(here / "runs/steer-2"):
        done = steered(*words, "--out", "runs/steer")
        assert done.exit_code == 2
        assert f"runs/steer is in use by process {os.getpid()} on" in " ".join(done.stderr.split())
        done = steered(*words)
        assert done.exit_code == 0, done.output
        assert "this run goes to runs/steer-3" in " ".join(done.stderr.split())
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["steer-3"]


def test_killed_after_its_result_was_written_it_pays_nothing_again(here, monkeypatch):
    """Neither the run nor the exact log Z of a table, which asks about every state."""
    (here / "slow.py").write_text(SLOW)
    words = ["t.json", "--reward", "slow.py:ones", "--evaluations", "40", "--populations", "2"]

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(commands, "remove_folder", killed)
        assert steered(*words).exit_code == 130
    assert (here / "runs/steer/result.json").exists()
    before = (here / "asked").read_text().splitlines()
    done = steered(*words)
    assert done.exit_code == 0, done.output
    assert (here / "asked").read_text().splitlines() == before
    assert not (here / "runs/steer/stages").exists()
