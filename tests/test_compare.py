"""`truetilt compare`: files that are named, judges, cells that are kept, and what is told."""

import json
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import time

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from truetilt.baselines.record import Baseline
from truetilt.cli.main import app
from truetilt.commands import compare as module
from truetilt.commands.compare import NAMES, WITH_TARGET, Comparison, checked, compare, exact_law, judged, summary
from truetilt.commands.compare_figure import draw_comparison
from truetilt.commands.job_runner import Job, Settings, _run
from truetilt.commands.python_file import load_named
from truetilt.commands.steerable import Steerable, named_reward, steerable
from truetilt.metrics.states import evenly_drawn, log_p0, mean_difference

FILE = """
import torch
import truetilt as tt

MODEL = tt.Model(tt.Masking(4), 6, tt.PosteriorScore(tt.Masking(4), lambda x, t: torch.zeros(*x.shape, 4)))
NUMBER = 3


def model():
    return MODEL


def many(x):
    return (x == 1).sum(-1)


def count(text):
    return text.count("C")


letters = tt.Reward(count, tokenizer="ACGT", one_at_a_time=True)
few = tt.Reward(count, tokenizer="AC", one_at_a_time=True)


def faulty(x):
    raise RuntimeError("no")
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    return str(tmp_path / "mine.py")


@pytest.fixture
def table(tmp_path):
    generator = torch.Generator().manual_seed(0)
    p0 = torch.rand((3,) * 3, generator=generator, dtype=torch.float64) ** 2
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"p0": p0.tolist(), "likelihood": torch.ones_like(p0).tolist()}))
    return str(path)


def test_what_a_file_names_is_loaded(file):
    assert load_named(f"{file}:many")(torch.tensor([[1, 1, 0]])).tolist() == [2]


def test_a_file_is_run_afresh_and_may_import_its_neighbours(tmp_path):
    (tmp_path / "beside_it.py").write_text("FACTOR = 2\n")
    path = tmp_path / "with_neighbour.py"
    path.write_text("from beside_it import FACTOR\ndef f(x): return FACTOR * x\n")
    assert load_named(f"{path}:f")(3) == 6
    path.write_text("def f(x): return -x\ndef much_longer_than_before(): pass\n")
    assert load_named(f"{path}:f")(3) == -3


def test_a_file_called_like_a_module_takes_nobodys_place(tmp_path):
    path = tmp_path / "json.py"
    path.write_text("def f(x): return 5\n")
    assert load_named(f"{path}:f")(0) == 5
    import json as real

    assert real.loads("1") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.py:f", "there is no file nowhere.py"),
        ("mine.py", "write file.py:name"),
        ("mine.txt:f", "write file.py:name"),
        (":f", "write file.py:name"),
        ("{file}:", "write file.py:name"),
        ("{file}:mani", "did you mean many"),
        ("{file}:zzz", "it has model, many"),
        ("{file}:NUMBER", "is a int, which cannot be called"),
    ],
)
def test_what_a_file_does_not_name_is_said(file, name, words):
    with pytest.raises(tt.InvalidInput, match=words):
        load_named(name.format(file=file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "SyntaxError"),
        ("x = 1\nraise KeyError('gone')\n", r"KeyError: 'gone' \(broken_file.py, line 2\)"),
        ("import no_such_module_at_all\n", "ModuleNotFoundError.*line 1"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
def test_a_file_that_cannot_be_run_is_told_in_one_line(tmp_path, text, words):
    path = tmp_path / "broken_file.py"
    path.write_text(text)
    with pytest.raises(tt.InvalidInput, match=words):
        load_named(f"{path}:f")


def test_models_by_their_names(file, table, tmp_path):
    assert steerable(f"{file}:model").model.length == 6
    assert steerable(f"{file}:MODEL").model.length == 6
    assert steerable(table).table.p0.shape == (3, 3, 3)
    digits = steerable("mnist").model
    assert digits.conditional is None
    assert digits.length == 784
    with pytest.raises(tt.InvalidInput, match="gives a int; write a function"):
        steerable(f"{file}:NUMBER")
    with pytest.raises(tt.InvalidInput, match="there is no model"):
        steerable(str(tmp_path / "nothing"))
    path = tmp_path / "uniform.py"
    path.write_text(
        "import truetilt as tt, torch\nmodel = tt.Table(tt.Uniform(2), torch.ones(2), torch.ones(2)).model\n"
    )
    with pytest.raises(tt.InvalidInput, match="a model on Uniform"):
        steerable(f"{path}:model")


def test_rewards_by_their_names(file):
    model = steerable(f"{file}:model").model
    x = torch.tensor([[1, 1, 0, 2, 3, 1]])
    assert named_reward(f"{file}:many", model)(x).tolist() == [3]
    assert named_reward(f"{file}:letters", model)(x).tolist() == [3]
    with pytest.raises(tt.InvalidInput, match="knows 2 tokens and the model 4"):
        named_reward(f"{file}:few", model)


def test_log_p0_is_that_of_a_table_and_of_a_draw_in_fewer_steps():
    p0 = torch.rand((3,) * 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = tt.Table(tt.Masking(3), p0, torch.ones_like(p0))
    states = torch.cartesian_prod(*[torch.arange(3)] * 3)
    law = made.p0.reshape(-1)
    assert torch.allclose(log_p0(made.model(), states).exp(), law)
    assert torch.allclose(log_p0(made.model(), states, (2, 0, 1)).exp(), law)
    at_once = log_p0(made.model(), states, steps=1).exp()
    sites = [made.p0.sum(tuple(other for other in range(3) if other != site)) for site in range(3)]
    assert torch.allclose(at_once, math.prod(sites[d][states[:, d]] for d in range(3)))
    with pytest.raises(tt.InvalidInput, match="no mask"):
        log_p0(tt.Table(tt.Uniform(3), p0, p0).model(), states)


def test_diversity_is_what_two_draws_differ_by():
    x = torch.tensor([[0, 0], [0, 1], [2, 1]])
    weights = torch.tensor([0.5, 0.25, 0.25]).double()
    pairs = (x[:, None] != x).double().mean(-1)
    assert mean_difference(x, weights, 3) == pytest.approx(float(weights @ pairs @ weights))
    assert mean_difference(x[:1], torch.ones(1), 3) == 0
    assert evenly_drawn(x, weights, 4).tolist() == [[0, 0], [0, 0], [0, 1], [2, 1]]


def test_the_exact_draws_are_judged_as_the_exact_target(table):
    """Every state with its exact weight: no error, and the figures of the exact answer."""
    made = steerable(table)
    reward = tt.Reward(lambda x: torch.where(x[:, 0] == 2, -torch.inf, 1.0 * x.sum(-1)), vocabulary=3)
    states, law, log_z = exact_law(made.table, reward, 1.5)
    asked = Comparison("", "", 1.5, judged=2000)
    row = judged(made, reward, asked, Baseline(states, law.log(), log_z, tt.Spent()))
    assert row["error"] == pytest.approx(0, abs=1e-12)
    assert row["forbidden"] == pytest.approx(0, abs=1e-12)
    allowed = law > 0
    assert row["reward"] == pytest.approx(float((law * reward(states))[allowed].sum()))
    assert row["naturalness"] == pytest.approx(
        float((law[allowed] * made.table.p0.reshape(-1)[allowed].log()).sum()) / 3, abs=0.01
    )
    assert row["distinct"] <= int(allowed.sum())
    alone = judged(made, reward, asked, Baseline(states, None, None, tt.Spent()))
    assert alone["error"] is None
    assert alone["forbidden"] == pytest.approx(1 / 3)


def test_an_impossible_state_has_a_naturalness_that_json_can_hold():
    p0 = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    made = tt.Table(tt.Masking(2), p0, torch.ones(2, 2))
    found = Baseline(torch.tensor([[1, 0]]), None, None, tt.Spent())
    reward = tt.Reward(lambda x: 1.0 * x.sum(-1), vocabulary=2)
    assert judged(Steerable(made.model()), reward, Comparison("", ""), found)["naturalness"] == -30


def test_a_summary_has_student_intervals():
    row = {"method": "tds", "title": "TDS", "has_target": True, "naturalness": -1.0, "diversity": 0.5, "distinct": 3}
    row |= {"log_z": None, "error": None, "evaluations": 10, "calls": 5, "distinct_calls": 4}
    line = summary([row | {"reward": 1.0}, row | {"reward": 3.0}, row | {"failed": "too small"}])
    assert line["seeds"] == 2
    assert line["reward"] == 2.0
    assert line["reward_half"] == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2), rel=1e-3)
    assert line["log_z"] is None
    assert summary([row | {"reward": 1.0}])["reward_half"] is None


class Heard:
    def __init__(self):
        self.begun_titles, self.ended_titles = [], []

    def begun(self, title):
        self.begun_titles.append(title)

    def ended(self, title, why):
        self.ended_titles.append(title)


def small(file, table, **changes):
    return Comparison(table, f"{file}:many", 1.0, 200, 2000, 2, **changes)


@pytest.mark.parametrize("method", NAMES)
def test_a_cell_keeps_within_both_budgets_and_says_what_it_spent(file, table, method):
    asked = checked(small(file, table))
    row = module.one_cell(asked, method, 0)
    assert "failed" not in row
    assert row["evaluations"] <= 2000
    assert row["distinct_calls"] <= 200
    assert (row["log_z"] is not None) == (method in WITH_TARGET - {"particle-gibbs"})
    assert (row["error"] is not None) == (method in WITH_TARGET)
    assert row["error"] is None or row["error"] < 0.3
    assert module.one_cell(asked, method, 0) == row
    json.dumps(row, allow_nan=False)


def test_a_comparison_is_written_and_goes_on_where_it_stopped(file, table, tmp_path, monkeypatch):
    folder, ran = tmp_path / "out", []
    asked = small(file, table, methods=("importance", "base"))
    whole = module.one_cell

    def stops(given, method, seed):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append((method, seed))
        return whole(given, method, seed)

    monkeypatch.setattr(module, "one_cell", stops)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        compare(asked, folder)
    assert not (folder / "compare.json").exists()
    monkeypatch.setattr(module, "one_cell", lambda *cell: ran.append(cell[1:]) or whole(*cell))
    heard = Heard()
    result = compare(asked, folder, heard)
    assert len(heard.ended_titles) == 4
    assert heard.begun_titles == heard.ended_titles[2:]
    assert len(ran) == len(set(ran)) == 4
    assert json.loads((folder / "compare.json").read_text()) == json.loads(json.dumps(result))
    assert (folder / "compare.png").stat().st_size > 10_000
    assert not list(folder.glob("jobs/*"))
    assert result["exact"]["log_z"] == pytest.approx(result["summary"][0]["log_z"], abs=0.2)


def test_cells_of_another_file_are_not_used_again(file, table):
    before = module._settings(checked(small(file, table)))
    assert module._settings(checked(small(file, table, methods=("tds",)))) == before
    with open(file, "a") as text:
        text.write("# changed\n")
    assert module._settings(checked(small(file, table))) != before


def test_a_budget_that_buys_nothing_is_a_note_and_not_the_end(file, table, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    asked = Comparison(table, f"{file}:many", 1.0, 20, 60, 1, ("particle-gibbs", "importance"))
    result = compare(asked, tmp_path / "out")
    assert result["notes"][0].startswith("particle Gibbs: a budget of 20 calls and 60 network evaluations is too small")
    gibbs, importance = result["summary"]
    assert gibbs["reward"] is None
    assert importance["reward"] is not None
    draw_comparison(result)


def test_what_may_not_be_bought_is_known_before_anything_is_run(file, table):
    asked = checked(Comparison(table, f"{file}:many", 1.0, 20, 60, 1, ("truetilt", "particle-gibbs", "importance")))
    assert list(module.beyond(asked)) == ["particle-gibbs"]


@pytest.mark.parametrize("methods", [None, ("truetilt", "importance"), ("particle-gibbs", "svdd-pm")])
def test_a_budget_that_is_of_no_use_is_refused(file, methods):
    asked = Comparison(f"{file}:model", f"{file}:many", 1.0, 3, None, 1, methods)
    with pytest.raises(tt.InvalidInput, match=r"^3 calls are too few"):
        checked(asked)


def test_the_figure_keeps_far_methods_at_the_edge_and_says_when_there_are_no_bars():
    line = {"has_target": True, "reward_half": None, "naturalness_half": None}
    lines = [("truetilt", 2.0, -2.0), ("importance", 1.5, -1.8), ("base", 1.0, -1.5), ("adalead", 3.0, -30.0)]
    rows = [line | {"method": m, "title": m, "reward": r, "naturalness": n} for m, r, n in lines]
    rows[-1]["has_target"] = False
    asked = {"calls": 10, "evaluations": None, "seeds": 1, "strength": 1.0}
    figure = draw_comparison({"summary": rows, "exact": {"reward": 2.0, "naturalness": -2.0}, "asked": asked})
    (ax,) = figure.axes
    assert ax.get_xlim()[0] > -3
    assert "adalead: −30, reward 3" in [text.get_text() for text in ax.texts]
    assert ax.get_title(loc="left").endswith("one seed")
    marks = {mark.get_label(): mark.get_xydata().tolist() for mark in ax.lines}
    assert marks["truetilt"] == [[-2.0, 2.0]]
    asked["seeds"] = 2
    assert "95 %" in draw_comparison({"summary": rows, "exact": None, "asked": asked}).axes[0].get_title(loc="left")


def test_the_command(file, table, tmp_path):
    words = ["compare", table, "--reward", f"{file}:many", "--calls", "60", "--evaluations", "900", "--seeds", "1"]
    words += ["--methods", "tds, base", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "TDS" in shown.output
    assert "exact target" in shown.output
    assert "naturalness" in shown.output
    assert "one seed: no intervals" in shown.output
    told = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(told.stdout.splitlines()[0])
    assert {row["method"] for row in found["rows"]} == {"tds", "base"}
    assert found["command"].startswith(f"truetilt compare {table} --reward {file}:many")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--methods", "magic"], "there is no method 'magic'"),
        (["--methods", ","], "known are"),
        (["--strength", "0"], "must be finite and not 0"),
        (["--steps", "9"], "steps"),
        (["--reward", "nowhere.py:f"], "there is no file"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(file, table, tmp_path, more, words):
    given = ["compare", table, "--reward", f"{file}:many", "--out", str(tmp_path / "out"), *more]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "out").exists()


def test_a_reward_that_fails_ends_the_comparison_and_names_itself(file, table, tmp_path):
    given = ["compare", table, "--reward", f"{file}:faulty", "--methods", "importance", "--seeds", "1"]
    done = CliRunner().invoke(app, [*given, "--calls", "20", "--evaluations", "90", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert done.output.count("the reward has no value for") == 1
    assert " ".join(done.output.split()).count("called again, it goes on from there") == 1
    assert "RuntimeError: no" in done.output


def test_sigterm_ends_it_with_143_and_finished_cells_are_kept(table, file, tmp_path, monkeypatch):
    words = [
        "compare",
        table,
        "--reward",
        f"{file}:many",
        "--calls",
        "40",
        "--seeds",
        "1",
        "--methods",
        "base,importance",
    ]
    ran = []

    def one_cell(asked, method, seed):
        if ran == ["base"]:
            ran.append("signal")
            os.kill(os.getpid(), signal.SIGTERM)
        ran.append(method)
        return whole(asked, method, seed)

    whole = module.one_cell
    monkeypatch.setattr(module, "one_cell", one_cell)
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 143, done.output
    assert "1 finished cells are kept" in " ".join(done.stderr.split())
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert ran == ["base", "signal", "importance"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="jobs run in one process")
def test_nobody_waits_for_running_jobs_at_an_interruption():
    """The interpreter would, at its end."""
    others = multiprocessing.active_children()
    jobs = [Job(str(seconds), time.sleep, (seconds,)) for seconds in (0, 120, 121, 122)]
    running = _run(jobs, Settings(), lambda name: None)
    assert next(running)[0].name == "0"
    mine = [child for child in multiprocessing.active_children() if child not in others]
    running.close()
    assert mine
    for child in mine:  # by their sentinels: the pool's thread also reaps them, and is_alive() is wrong in that moment
        assert multiprocessing.connection.wait([child.sentinel], 30)
