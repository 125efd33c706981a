"""Problems without networks: the tables of figures 1 and 2, tables of the user's own, and points in the plane."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from .. import continuous
from ..diffusion.processes import Masking, Uniform
from ..exact.files import read_table
from ..exact.tables import Table
from ..paper.figures import LIKELIHOOD_6, LIKELIHOOD_9, P0_6, P0_9
from ..viz.clouds import LARGEST_TABLE, Disks, Points
from .form import RunForm
from .nets import nets_problem
from .problem import Problem, SampleCall

NINE = {"p0": P0_9, "likelihood": LIKELIHOOD_9}
SIX = {"p0": P0_6, "likelihood": LIKELIHOOD_6}
MIXTURE = ([0.3, 0.7], [[-1.0, 2.0], [1.0, -1.0]], 0.5)
_TORCH = ("import torch", "import truetilt as tt")
SIGMA_EPS = 1e-3  # of the process of a table, as on the command line
_PROCESSES: Mapping[str, type[Masking | Uniform]] = {"masking": Masking, "uniform": Uniform}


def problem_of(form: RunForm) -> Problem:
    """The problem that a form poses; networks are loaded here."""
    return _PROBLEMS[form.model](form)


def _listed(name: str, process: str, numbers: Mapping[str, Any], form: RunForm) -> Problem:
    """A table that is written out, as its file has it."""
    p0, likelihood = (torch.tensor(part, dtype=torch.float64, device=form.device) for part in numbers.values())
    kind = _PROCESSES[process]
    place = "" if form.device == "cpu" else f", device={form.device!r}"
    made = [f"{key} = torch.tensor({part}, dtype=torch.float64{place})" for key, part in numbers.items()]
    python = "\n".join([*_TORCH, "", *made, f"model = tt.Table(tt.{kind.__name__}({len(p0)}), p0, likelihood).model()"])
    file = shlex.quote(json.dumps(numbers))
    return _of_table(
        name, Table(kind(len(p0)), p0, likelihood), python,
        SampleCall("table.json", {"process": process}), f"echo {file} > table.json\n",
    )  # fmt: skip


def _of_table(name: str, table: Table, python: str, command: SampleCall, prepare: str = "") -> Problem:
    size = table.process.vocabulary
    shown = table.length <= 2 and 2 <= size <= LARGEST_TABLE
    view, look = (Disks(size), f"tt.Disks({size})") if shown else (None, "")
    return Problem(name, table.model(), view, python, table, command, prepare, look)


def _own(form: RunForm) -> Problem:
    path = Path(form.path)
    if path.is_dir():
        return nets_problem(form.path, form)
    table = read_table(path, form.process, SIGMA_EPS, form.device)
    place = "" if form.device == "cpu" else f", device={form.device!r}"
    python = "\n".join(
        ["import json", "from pathlib import Path", "", *_TORCH, ""]
        + [f'found = json.loads(Path({form.path!r}).read_text(encoding="utf-8"))']
        + [f"{key} = torch.tensor(found[{key!r}], dtype=torch.float64{place})" for key in ("p0", "likelihood")]
        + [f"model = tt.Table(tt.{type(table.process).__name__}(len(p0)), p0, likelihood).model()"]
    )
    return _of_table(path.name, table, python, SampleCall(form.path, {"process": form.process}))


def _plane(form: RunForm) -> Problem:
    weights, means, std = MIXTURE
    seen = float(form.condition or 0.0)
    problem = continuous.Observed(
        continuous.VP(),
        continuous.GaussianMixture(*(torch.tensor(part, dtype=torch.float64) for part in (weights, means)), std),
        continuous.Observation(torch.tensor([seen], dtype=torch.float64), (0,), 1.0),
    ).to(form.device)
    place = "" if form.device == "cpu" else f".to({form.device!r})"
    python = (
        f"import truetilt as tt\n\nc = tt.continuous\np0 = c.GaussianMixture({weights}, {means}, {std})\n"
        f"seen = c.Observation([{seen}], (0,), 1.0)\nmodel = c.Observed(c.VP(), p0, seen){place}.model()"
    )
    name, lacks = "mixture in the plane", "points in the plane"
    return Problem(name, problem.model(), Points(), python, problem, look="tt.Points()", lacks=lacks)


_PROBLEMS: Mapping[str, Callable[[RunForm], Problem]] = {
    "nine": lambda form: _listed("nine states", "masking", NINE, form),
    "six": lambda form: _listed("six states", "uniform", SIX, form),
    "mnist": lambda form: nets_problem("mnist", form),
    "tiny-reviews": lambda form: nets_problem("tiny-reviews", form),
    "plane": _plane,
    "own": _own,
}
