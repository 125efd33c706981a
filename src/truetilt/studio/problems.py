"""Problems to sample: a model under its condition, its view, and the Python and the command that make it.

A problem is a table of figures 1 and 2, a user's table, points in the plane, or networks.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import continuous
from ..commands.steerable import open_length
from ..commands.table_files import read_table
from ..core.errors import InvalidInput
from ..diffusion.processes import Masking, Uniform
from ..exact.tables import Table
from ..models.hub import load
from ..models.sequences import Sequences
from ..models.text_bundle import Reviews
from ..models.text_score import Text
from ..paper.figures import LIKELIHOOD_6, LIKELIHOOD_9, P0_6, P0_9
from ..proteins.bundle import NAME, load_protein
from ..viz.clouds import LARGEST_TABLE, Disks, Points
from ..viz.molecules import MoleculeView
from ..viz.settings_in_words import is_veiled
from ..viz.views import View
from .folders import MOLECULES
from .form import RunForm
from .molecules import molecule_targets
from .residues import WholeChain

NINE = {"p0": P0_9, "likelihood": LIKELIHOOD_9}
SIX = {"p0": P0_6, "likelihood": LIKELIHOOD_6}
MIXTURE = ([0.3, 0.7], [[-1.0, 2.0], [1.0, -1.0]], 0.5)
_TORCH = ("import torch", "import truetilt as tt")
SIGMA_EPS = 1e-3  # sigma_eps of a table's process, as on the command line
_PROCESSES: Mapping[str, type[Masking | Uniform]] = {"masking": Masking, "uniform": Uniform}


class SampleCall(NamedTuple):
    """The arguments of `truetilt sample` for a problem: the model's name and the options."""

    model: str
    options: Mapping[str, Any]


class Problem(NamedTuple):
    """A model under its condition."""

    name: str
    model: Any  # Model, or Diffusion for real vectors
    view: View | None
    python: str  # lines that define `model`
    exact: Table | continuous.Observed | None = None
    command: SampleCall | None = None
    prepare: str = ""  # a shell line to run before the command
    look: str = ""  # the view, as Python
    chunk: int | None = None
    condition: str | int | None = None
    net: str | None = None  # the kind of a single network, for the record
    length: int | None = None  # number of open sites, if no text determines it
    order: tuple[int, ...] | None = None  # decoding order, if the network has one
    spell: Callable[[np.ndarray], str] | None = None  # a state as HTML, if the view shows less
    backbone: Mapping[str, str] | None = None  # of a protein, as requested
    target: Callable[[float | None], tuple[Any, str]] | None = None  # of a reward: of its strength, with its Python
    score: Callable[[Any], float] | None = None  # the reward of one RDKit molecule, shown under it
    lacks: str = ""  # what `truetilt sample` does not support, if there is no command
    judge: Callable[[torch.Tensor], np.ndarray] | None = None  # p(condition | state) of states [n, D], by a judge

    @property
    def reals(self) -> bool:
        return isinstance(self.exact, continuous.Observed)

    @property
    def veiled(self) -> bool:
        """Whether its texts may be offensive, and are hidden until the reader asks for them."""
        return self.view is not None and self.view.shape == "text" and is_veiled(self.condition)

    def freed(self) -> Problem:
        """The parts that the page still shows, without networks and off the device; nothing is judged any more."""
        exact = self.exact
        if isinstance(exact, Table):
            exact = Table(exact.process, exact.p0.cpu(), exact.likelihood.cpu())
        elif exact is not None:
            exact = exact.to("cpu")
        return self._replace(model=None, target=None, exact=exact, judge=None)

    def looked_at(self, x: np.ndarray, weights: np.ndarray) -> View | None:
        """The view of these states; of molecules with their rewards."""
        view = self.view
        return view.rated(x, weights, self.score) if isinstance(view, MoleculeView) and self.score else view


def problem_of(form: RunForm) -> Problem:
    """The problem that a form describes; networks are loaded here."""
    return _PROBLEMS[form.model](form)


def _listed(name: str, process: str, numbers: Mapping[str, Any], form: RunForm) -> Problem:
    """A table given as numbers, as in its file."""
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


def _protein(form: RunForm) -> Problem:
    """Open residues of a backbone, tempered towards other weights or not."""
    told: dict[str, Any] = {"structure": form.path}
    told |= {"open": form.open} if form.open else {}
    told |= {"weights": form.weights} if form.weights != "vanilla" else {}
    protein = load_protein(**told, device=form.device)
    place = "" if form.device == "cpu" else f", device={form.device!r}"
    words = "".join(f", {name}={value!r}" for name, value in told.items())
    condition = None if form.condition is None else str(form.condition)
    made = "protein.model()" if condition is None else f"protein.model({condition!r})"
    python = f"import truetilt as tt\n\nprotein = tt.load({NAME!r}{words}{place})\nmodel = {made}"
    return Problem(
        NAME, protein.model(condition), protein.view, python,
        command=SampleCall(NAME, told | {"condition": condition}), look="protein.view", condition=condition,
        order=protein.order, spell=WholeChain.of(protein), backbone=told,
    )  # fmt: skip


def _molecules(form: RunForm) -> Problem:
    """Molecules under a reward by its name, or without one."""
    name = None if form.condition is None else str(form.condition)
    targets, python = molecule_targets(name, form.device)
    nets, told = targets.nets, {"reward": name, "strength": None if name is None else form.alpha}
    return Problem(
        MOLECULES, nets.model(), nets.view, python, command=SampleCall(MOLECULES, told), look="nets.view",
        condition=name, order=tuple(range(nets.length)), target=targets, score=targets.score,
    )  # fmt: skip


_PROBLEMS: Mapping[str, Callable[[RunForm], Problem]] = {
    "nine": lambda form: _listed("nine states", "masking", NINE, form),
    "six": lambda form: _listed("six states", "uniform", SIX, form),
    "mnist": lambda form: nets_problem("mnist", form),
    "tiny-reviews": lambda form: nets_problem("tiny-reviews", form),
    "plane": _plane,
    "protein": _protein,
    "molecules": _molecules,
    "own": _own,
}


def nets_problem(name: str, form: RunForm) -> Problem:
    """The problem of a network or bundle, which is loaded here."""
    nets = load(name, form.device)
    if isinstance(nets, Sequences):
        return _strings(name, nets, form)
    return _text(name, nets, form) if isinstance(nets, Text) else _bundle(name, nets, form)


def _loaded(what: str, name: str, form: RunForm, model: str) -> str:
    place = "" if form.device == "cpu" else f", {form.device!r}"
    return "\n".join(["import truetilt as tt", "", f"{what} = tt.load({name!r}{place})", f"model = {model}"])


def _bundle(name: str, nets: Any, form: RunForm) -> Problem:
    """A class of a bundle: of digits by its number, of texts by its name."""
    if isinstance(nets, Reviews):
        condition = nets.classes[nets.facts.number("" if form.condition is None else form.condition)]
    else:
        condition = int(float(form.condition or 0))
    kind = "potential" if form.sampler == "tilted" else "cfg"
    python = _loaded("nets", name, form, f"nets.model({condition!r}, {kind!r})")
    return Problem(
        name, nets.model(condition, kind), nets.view, python,
        command=SampleCall(name, {"condition": condition}), look="nets.view", chunk=nets.batch, condition=condition,
        judge=_judge_of(nets, condition),
    )  # fmt: skip


def _judge_of(nets: Any, condition: str | int) -> Callable[[torch.Tensor], np.ndarray] | None:
    """The judge's probability of the class for each text, if these are texts and the judge knows the class."""
    if not isinstance(nets, Reviews) or "judge" not in nets.nets or condition not in nets.facts.judged:
        return None
    return lambda x: nets.verdicts(nets.decode(x), condition)[0].exp().numpy()


def _text(name: str, text: Text, form: RunForm) -> Problem:
    """One text net under a class, or after a prompt in words."""
    condition: Any
    if form.prompt:
        if text.tokenizer is None:
            raise InvalidInput(
                f"a prompt is words, and {name} has no tokenizer.json to read them by (or the package tokenizers is "
                "missing: install truetilt[hf]); copy it beside the net, or give a class"
            )
        condition, written = text.tokenizer.encode(form.prompt), f"text.tokenizer.encode({form.prompt!r})"
    else:
        condition = int(float(form.condition or 0))
        written = repr(condition)
    return Problem(
        name, text.model(condition), text.view, _loaded("text", name, form, f"text.model({written})"),
        look="text.view", chunk=text.batch, condition=form.prompt or condition,
        lacks="single text nets", net="text",
    )  # fmt: skip


def _strings(name: str, nets: Sequences, form: RunForm) -> Problem:
    """A public network after a prompt, in the gaps of a text, or under a class by its number."""
    if form.prompt:
        length = open_length(nets, form.prompt, None)
        model, told = nets.model(form.prompt, length=length), repr(form.prompt)
    else:
        length, label = open_length(nets, None, None), int(float(form.condition or 0))
        model, told = nets.model(length=length, condition=label), f"condition={label}"
    size = "" if length is None else f", length={length}"
    return Problem(
        name, model, nets.view, _loaded("nets", name, form, f"nets.model({told}{size})"),
        look="nets.view", chunk=nets.batch, condition=form.prompt or int(float(form.condition or 0)),
        lacks="such steps for a public network", net="strings", length=length,
    )  # fmt: skip
