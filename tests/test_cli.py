"""The command line: what it prints where, its exit codes, and that bad input never shows a traceback."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from truetilt.cli.main import app

TABLE = {"p0": [[2, 3, 4], [3, 1, 1], [1, 1, 1]], "likelihood": [[0.1, 0.5, 0.9], [0.4, 0.1, 0.3], [0.2, 0, 0.7]]}


def truetilt(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "truetilt", *map(str, arguments)], capture_output=True, text=True, cwd=cwd
    )


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    return path


def test_help_answers_without_torch():
    code = (
        "import sys; from truetilt.cli.main import app; from typer.testing import CliRunner; "
        "r = CliRunner().invoke(app, ['reproduce', '--help']); "
        "print(r.exit_code, 'table1' in r.output, 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.split() == ["0", "True", "False"]


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "-h"], ["sample", "--help"], ["--version"]])
def test_help_and_version_exit_zero(arguments):
    assert truetilt(*arguments).returncode == 0


def test_demo_writes_a_figure_and_prints_a_table(tmp_path):
    run = truetilt("demo", "--digits", 2, "--out", tmp_path / "out")
    assert run.returncode == 0, run.stderr
    assert "guidance" in run.stdout
    assert "note: tv compares" in run.stderr
    assert run.stderr.splitlines()[-1] == f"open in a browser: {(tmp_path / 'out/index.html').as_uri()}"
    page = (tmp_path / "out/index.html").read_text()
    assert all((tmp_path / "out" / there).is_file() for there in re.findall('href="([^"]+)"', page))
    asked = {r["method"]: r for r in json.loads((tmp_path / "out/digits/result.json").read_text())["rows"]}
    assert asked["guidance"]["network_evaluations"] == asked["truetilt"]["network_evaluations"] == 32
    rows = json.loads((tmp_path / "out/result.json").read_text())["rows"]
    miss = {(r["figure"], r["alpha"], r["method"]): r["tv"] for r in rows}
    for figure, alpha in (("figure1", 4.0), ("figure2", 2.0), ("figure2", 4.0)):
        assert miss[figure, alpha, "truetilt"] < 0.03 < 0.05 < miss[figure, alpha, "guidance"]
    assert (tmp_path / "out/figure.png").read_bytes()[:4] == b"\x89PNG"
    kept = ["particles.json", "particles.safetensors", "report.html", "result.json", "view.json"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["digits", "figure.png", "index.html", *kept]
    assert sorted(p.name for p in (tmp_path / "out/digits").iterdir()) == ["figure.png", *kept]


def test_json_is_all_that_stdout_holds_and_the_seed_decides(tmp_path):
    shown, written = [], []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):  # nothing is left for the next to go on from
        (tmp_path / name).mkdir()
        run = truetilt("reproduce", "figure1", "--quick", "--json", "--seed", seed, "--out", "o", cwd=tmp_path / name)
        shown.append(json.loads(run.stdout))
        written.append(json.loads((tmp_path / name / "o/result.json").read_text()))
    assert shown == written
    assert shown[0] == shown[1]
    assert shown[0]["rows"] != shown[2]["rows"]
    assert (shown[0]["seed"], shown[2]["seed"]) == (1, 2)


def test_a_run_ends_with_its_verdict_and_without_an_old_report(table_file, tmp_path):
    out = tmp_path / "run"
    words = ["sample", str(table_file), "--alpha", "3", "--out", str(out), "--steps", "5"]
    good = CliRunner().invoke(app, [*words, "--particles", "500", "--populations", "16"])
    assert "Trust: nothing speaks against this answer." in good.stderr
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    assert (out / "report.html").is_file()
    bad = CliRunner().invoke(app, [*words, "--particles", "2", "--alpha", "40"])
    assert "Do not trust this answer." in bad.stderr
    assert "\n- " in bad.stderr  # why
    assert not (out / "report.html").exists()  # it was of the run before


def test_sample_compares_with_the_exact_answer(table_file, tmp_path):
    run = truetilt("sample", table_file, "--alpha", 3, "--out", tmp_path / "o", "--json", "--populations", 4)
    assert run.returncode == 0, run.stderr
    rows = {r["quantity"]: r["value"] for r in json.loads(run.stdout)["rows"]}
    assert rows["total variation to the exact target"] < 0.05
    assert abs(rows["log Z"] - rows["log Z, exact"]) < 0.1
    import truetilt as tt

    assert tt.Result.load(tmp_path / "o").particles.shape == (4, 1000, 2)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, ["--alpha", "-1"], "alpha is -1"),
        ({}, ["--alpha", "nan"], "alpha is nan"),
        ({}, ["--beta", "-2"], "beta is -2"),
        ({}, ["--sigma-eps", "2"], "eps is 2"),
        ({}, ["--particles", "0"], "0 particles"),
        ({}, ["--steps", "0"], "steps is 0"),
        ({}, ["--seed", "-1"], "--seed"),
        ({}, ["--process", "cosine"], "--process"),
        ({"p0": [[1, -1, 1]] * 3}, [], "negative"),
        ({"p0": [[1, float("nan"), 1]] * 3}, [], "NaN"),
        ({"p0": [[0] * 3] * 3}, [], "zero everywhere"),
        ({"likelihood": [[0] * 3] * 3}, [], "zero everywhere"),
        ({"likelihood": [0.5, 0.5]}, [], "they must agree"),
        ({"likelihood": "much"}, [], "nested lists"),
        ({"p0": [[1, 2], [3]]}, [], "nested lists"),
        ({"p0": None}, [], "nested lists"),
        ({"p0": 3}, [], "vocabulary"),
    ],
)
def test_bad_input_exits_two_without_a_traceback(table_file, tmp_path, change, options, words):
    table_file.write_text(json.dumps(TABLE | change))
    run = CliRunner().invoke(app, ["sample", str(table_file), *options, "--out", str(tmp_path / "o")])
    assert run.exit_code == 2
    assert words in run.stderr
    assert run.exception is None or isinstance(run.exception, SystemExit)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "nowhere.json"], "no file"),
        (["reproduce", "figure9"], "figure9"),
        (["reproduce", "figure1", "--device", "cuda:99"], "--device cpu"),
        (["reproduce", "figure1", "--device", "abacus"], "--device cpu"),
        (["demo", "--seed", "-3"], "--seed"),
        (["sample", "broken.json"], "JSON"),
    ],
)
def test_usage_errors(arguments, words, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    run = truetilt(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    run = truetilt("demo", "--out", tmp_path / "file" / "x")
    assert run.returncode == 2
    assert str(tmp_path / "file") in run.stderr
    assert "Traceback" not in run.stderr


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from truetilt.commands import job_runner

    done = []

    def work(name):
        done.append(name)
        if len(done) == 2:
            raise KeyboardInterrupt
        return {"name": name}

    experiment = job_runner.Experiment(
        "x", "x", lambda s: [job_runner.Job(n, work, (n,)) for n in "abc"], lambda s, a: a, lambda r: None, ()
    )
    with pytest.raises(KeyboardInterrupt):
        list(job_runner.answers(experiment, job_runner.Settings(), tmp_path))
    found = dict(job_runner.answers(experiment, job_runner.Settings(), tmp_path))
    assert found == {n: {"name": n} for n in "abc"}
    assert done == ["a", "b", "b", "c"]
    other = job_runner.Settings(seed=1)
    assert len(dict(job_runner.answers(experiment, other, tmp_path))) == 3
    assert len(done) == 7  # other settings, other jobs: nothing is taken over
    (tmp_path / "jobs" / "mine.json").write_text("{}")
    job_runner.forget(tmp_path, found)
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["mine.json"]  # of others nothing is removed
    (tmp_path / "jobs" / "mine.json").unlink()
    job_runner.forget(tmp_path, found)
    assert not Path(tmp_path / "jobs").exists()


@pytest.mark.parametrize("words", [("--help",), ("studio", "--help")])
def test_help_names_the_extra_that_the_studio_needs(words):
    """Square brackets are markup to the help's renderer, which swallows them unless they are escaped."""
    shown = " ".join(truetilt(*words).stdout.replace("│", " ").split())
    assert "pip install 'truetilt[ui]'" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is 'not set'"),
        ({"RANK": "0"}, "WORLD_SIZE is 'not set'"),
        ({"WORLD_SIZE": "2"}, "RANK is 'not set'"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "RANK is 2 and WORLD_SIZE 2"),
    ],
)
@pytest.mark.parametrize("command", ["sample", "steer"])
def test_ranks_that_no_launcher_started_are_one_line(command, words, told, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, [command, "t.json"])
    assert done.exit_code == 2
    assert told in done.stderr
    assert "start ranks by torchrun" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_command_of_one_process_is_refused_under_torchrun(rank, monkeypatch):
    for name, value in {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["steer", "t.json", "--reward", "mine.py:f"])
    assert done.exit_code == 2
    assert done.stderr == (
        "error: steer runs in one process, and 2 ranks were started; start it without torchrun\n" if rank == "0" else ""
    )


MODEL = """
import torch
import truetilt as tt

law = torch.tensor([[0.3, 0.2], [0.1, 0.4]], dtype=torch.float64)
leaning = torch.tensor([[0.9, 0.1], [0.2, 0.5]], dtype=torch.float64)
table = tt.Table(tt.Masking(2), law, leaning)

def model():
    return table.model()

def base():
    return tt.Model(tt.Masking(2), 2, table.model().base)
"""


def test_a_model_of_a_python_file_is_sampled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(MODEL)
    words = ["--particles", "200", "--steps", "50", "--json"]
    done = CliRunner().invoke(app, ["sample", "own_model.py:model", "--alpha", "3", "--out", "a", *words])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    share = {draw["sequence"]: draw["weight"] for draw in found["draws"]}
    target = {"0 0": 0.3 * 0.9**3, "0 1": 0.2 * 0.1**3, "1 0": 0.1 * 0.2**3, "1 1": 0.4 * 0.5**3}
    total = sum(target.values())
    assert all(abs(share.get(text, 0.0) - mass / total) < 0.02 for text, mass in target.items())
    lines = (tmp_path / "a" / "draws.csv").read_text().splitlines()
    assert lines[0] == "sequence,weight,reward,count"
    assert lines[1].startswith("0 0,")
    assert CliRunner().invoke(app, ["report", "a"]).exit_code == 0
    done = CliRunner().invoke(app, ["sample", "own_model.py:base", "--out", "b", *words])
    share = {draw["sequence"]: draw["weight"] for draw in json.loads(done.stdout)["draws"]}
    law = {"0 0": 0.3, "0 1": 0.2, "1 0": 0.1, "1 1": 0.4}
    assert all(abs(share[text] - mass) < 0.05 for text, mass in law.items())
    for more, told in ((["--alpha", "2"], "has none"), (["--condition", "1"], "inside"), (["--prompt", "a"], "prompt")):
        refused = CliRunner().invoke(app, ["sample", "own_model.py:base", "--out", "c", *more])
        assert refused.exit_code == 2
        assert told in refused.stderr
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("closed", "code"), [(">&-", 1), ("2>&-", 0), (">&- 2>&- <&-", 1)])
def test_a_closed_stdout_is_one_line(table_file, closed, code):
    """Nor is the next file that is opened taken for it."""
    for words in ("--version", "sample table.json --steps 2 --particles 4 --out run"):
        line = f"{shlex.quote(sys.executable)} -m truetilt {words} {closed}"
        done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=table_file.parent)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert closed != ">&-" or done.stderr.splitlines()[-1].endswith("Bad file descriptor")
    assert json.loads((table_file.parent / "run" / "result.json").read_text())["rows"]
    assert json.loads(table_file.read_text()) == TABLE


def test_a_comparison_without_end_is_refused_before_it_begins(table_file, tmp_path):
    (tmp_path / "mine.py").write_text("def ones(x):\n    return x.sum(-1)\n")
    for option in ("--seeds", "--judged"):
        words = [str(table_file), "--reward", f"{tmp_path}/mine.py:ones", option, "1000000000"]
        done = CliRunner().invoke(app, ["compare", *words])
        assert done.exit_code == 2
        assert "is 1000000000; give a whole number, at least 1 and at most 10,000" in done.stderr
