"""The benchmarks run: a figure that cannot be measured again is no figure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(
    ("words", "figure"),
    [
        (["text_step.py", "--rounds", "1"], ("ratios", "step over two trunks")),
        (["llada.py", "--rounds", "1", "--device", "cpu"], ("ratios", "step over trunk passes")),
        (["h200.py", "--tiny", "--device", "cpu", "--rounds", "1"], ("text step", "step over two trunks")),
    ],
    ids=["text_step", "llada", "h200"],
)
def test_a_tiny_benchmark_writes_its_figures(words, figure, tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / words[0]), *words[1:], "--out", str(out)]
    run = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    group, name = figure
    assert json.loads(out.read_text(encoding="utf-8"))[group][name] > 0  # how much is for a quiet machine to say


def test_the_quality_of_texts_is_measured(bundle_folder, corpus, tmp_path):
    """The tiny language has no invented words, in real texts or drawn ones, beyond what its net gets wrong."""
    out = tmp_path / "found.json"
    words = [str(bundle_folder), "--corpus", str(corpus), "--texts", "32", "--out", str(out)]
    script = str(BENCHMARKS / "text_quality.py")
    run = subprocess.run([sys.executable, script, *words], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert rows["real"]["invented_words"] == rows["local temperature 0.8"]["invented_words"] == 0
    assert 0 < rows["sharpness 1.25"]["roots"] <= rows["sharpness 1.25"]["particles"] == 32


@pytest.fixture(scope="module")
def traced():
    """The figures of one step of each case, by its name."""
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "step_trace.py")], capture_output=True, text=True, check=True, timeout=300
    )
    assert not run.stderr  # no case was left out
    return json.loads(run.stdout)


def test_a_step_crosses_few_files(traced):
    """What a debugger meets: files entered and switches between files in one step, as counted on any machine."""
    most = {
        "tilted, table": (8, 41),
        "any order, table": (8, 41),
        "tempered, text": (10, 83),
        "any order, text": (9, 61),
    }
    found = {case: (traced[case]["files"], traced[case]["switches"]) for case in most}
    assert {case: tuple(map(min, found[case], most[case])) for case in most} == found


def test_a_step_calls_no_lambda_and_no_getattr(traced):
    """A stack trace names every function, and a reader finds every attribute: with moves, rewards and wrappers too."""
    found = {case: (figures["lambdas"], figures["getattr"]) for case, figures in traced.items()}
    assert found == dict.fromkeys(traced, (0, 0))
    assert len(found) == 15


def test_the_operations_of_a_step_are_recorded():
    """A step of a text net holds the products of its two trunk passes, one of a table none with a bias."""
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "step_ops.py"), "--json"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = {
        case: sum(line.startswith("aten.addmm") for line in lines) for case, lines in json.loads(run.stdout).items()
    }
    assert found == {"tilted, table": 0, "any order, table": 0, "tempered, text": 36, "any order, text": 36}


def test_the_source_of_a_step_keeps_its_figures():
    """Nothing at module level can change, and what runs a step packs and looks up no more than it did."""
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "step_source.py")], capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(run.stdout)
    most = {"files": 13, "lines of code": 2800, "getattr": 2, "lambdas": 0, "packed tuples": 1}
    assert found["module state, whole package"] == 0
    assert {name: min(found[name], limit) for name, limit in most.items()} == {name: found[name] for name in most}
