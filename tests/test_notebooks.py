"""The notebooks run from top to bottom, without jupyter, and store no outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUICKER = {"digits": ("steps = 10", "steps = 2")}  # networks: fewer steps take the same way


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["digits", "reward", "tables"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"notebook_{path.stem}"}
    slow, quick = QUICKER.get(path.stem, ("", ""))
    assert slow in "\n".join(sources(path))
    try:
        for number, source in enumerate(sources(path)):
            exec(compile(source.replace(slow, quick) if slow else source, f"{path.name}[{number}]", "exec"), namespace)
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_stored(path: Path) -> None:
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells(path))


def test_a_stored_output_is_noticed(tmp_path: Path) -> None:
    """A wrong variant: a notebook saved after a run."""
    bad = {"cells": [{"cell_type": "code", "source": [], "outputs": [{"data": {"text/plain": "1"}}]}]}
    (tmp_path / "bad.ipynb").write_text(json.dumps(bad), encoding="utf-8")
    with pytest.raises(AssertionError):
        test_nothing_is_stored(tmp_path / "bad.ipynb")
