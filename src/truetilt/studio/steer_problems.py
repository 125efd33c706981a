"""A steering task: a model, a reward on it, its view and exact table, and the Python that does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..commands.steerable import open_length
from ..commands.table_files import read_law
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.logits import SiteLogits
from ..core.types import Model
from ..diffusion.processes import Masking
from ..exact.tables import Table
from ..models.deduplication import WrappingScore
from ..models.gaps import has_gaps
from ..models.hub import Digits, load
from ..models.sequences import Sequences
from ..models.text_bundle import Reviews
from ..rewards.reward import Reward
from ..viz.clouds import LARGEST_TABLE, Disks
from ..viz.logo import SequenceLogo
from ..viz.settings_in_words import is_veiled
from ..viz.views import View
from .plans import command_line
from .problems import NINE, SIGMA_EPS
from .steer_choices import RewardChoice
from .steer_form import SteerForm

LETTERS = "ACGT"
CHAIN = [[5.0, 1.0, 2.0, 2.0], [2.0, 3.0, 1.0, 4.0], [2.0, 2.0, 4.0, 2.0], [1.0, 2.0, 3.0, 4.0]]
_SIX_LETTERS = f"""\
steps = torch.tensor({CHAIN}, dtype=torch.float64) / 10  # from one of {LETTERS} to the next
p0 = torch.full((4,), 0.25, dtype=torch.float64)
for _ in range(5):
    p0 = p0[..., None] * steps"""


class SteerTask(NamedTuple):
    """A model and the reward that steers it."""

    name: str
    model: Any  # Model; None once freed
    reward: Reward
    view: View | None
    python: str  # lines that define `model` and `reward`, and call `tt.steer`
    look: str  # the view, as Python
    command: str  # the equivalent command, or why there is none
    table: Table | None = None
    steps: int | None = None  # steps of a draw; None: one per site, left to right
    condition: str | int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of how draws are revealed: site by site, or several at a time in random order."""
        return {} if self.steps is None else {"order": "random", "num_inference_steps": self.steps}

    @property
    def veiled(self) -> bool:
        """Whether its texts may be offensive: those of a harsh class, or of any."""
        texts = self.view is not None and self.view.shape == "text"
        return texts and (self.condition is None or is_veiled(self.condition))

    def freed(self) -> SteerTask:
        """The parts that the page still shows, without networks."""
        return self._replace(model=None)


class Made(NamedTuple):
    """A model with its view, and the Python lines that make it."""

    model: Model
    view: View | None
    look: str
    lines: tuple[str, ...]
    table: Table | None = None
    tokenizer: Any = None
    condition: str | int | None = None
    spelled: str = "nets.tokenizer"  # the tokenizer, as Python


@dataclass(frozen=True)
class Watched(WrappingScore):
    """A score that reports the number of states before each evaluation; an exception raised there ends the run."""

    look: Callable[[int], object]

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        self.look(len(batch.x))
        return ask(self.score, batch, t)


def steer_task(form: SteerForm, known: Mapping[str, RewardChoice], look: Callable[[int], object]) -> SteerTask:
    """The task that a form describes; networks are loaded here, `look` gets the number of states of each evaluation."""
    made, chosen = _made(form), known[form.reward]
    reward, written = _reward(chosen, made)
    steps = None if made.table is not None else form.steps
    if steps is not None and made.tokenizer is not None and made.spelled == "nets":
        steps = min(steps, made.model.length)  # its prompt determines the length
    lines = [*made.lines, f"reward = {written}"]
    heads = sorted({"import truetilt as tt", chosen.python[0], *(line for line in lines if line.startswith("import "))})
    body = "\n".join(line for line in lines if not line.startswith("import "))
    task = SteerTask(
        "six letters" if form.model == "letters" else form.path or form.model,
        replace(made.model, base=Watched(made.model.base, look)),
        reward, made.view, "", made.look, "", made.table, steps, made.condition,
    )  # fmt: skip
    python = "\n".join(heads) + f"\n\n{body}\n{_call(task, form)}"
    return task._replace(python=python, command=_command(task, form, chosen))


def _call(task: SteerTask, form: SteerForm) -> str:
    told = {"evaluations": form.evaluations, "calls": form.calls} | task.options | {"seed": form.seed}
    options = "".join(f"    {name}={value!r},\n" for name, value in told.items() if value is not None)
    view = f", view={task.look}" if task.look else ""
    return (
        f"result = tt.steer(\n    model,\n    reward,\n    {form.strength!r},\n{options})\n"
        f'print(*result.story, sep="\\n")\nprint(result.trust())\nresult.report("run.html"{view})\n'
    )


def _command(task: SteerTask, form: SteerForm, chosen: RewardChoice) -> str:
    """The `truetilt steer` command with the same bits, or why there is none: it takes rewards of files, and named
    models."""
    if not chosen.named:
        return "# `truetilt steer` takes a reward of a file: copy the example into one, and name it"
    strings = isinstance(task.reward.tokenizer, Sequences)
    if form.model in ("letters", "nine") or (task.condition is not None and not strings):
        what = "a class beside a reward" if task.condition is not None else "this table"
        return f"# `truetilt steer` does not take {what}; use the Python"
    told: dict[str, Any] = {"reward": chosen.named, "strength": form.strength, "evaluations": form.evaluations}
    told |= {"calls": form.calls, "order": task.options.get("order"), "steps": task.steps, "seed": form.seed}
    told |= {"prompt": task.condition, "length": task.model.length} if strings else {}
    told["device"] = None if form.device == "cpu" else form.device
    name = form.path if form.model == "own" else form.model
    return command_line("steer", name, told)


def _reward(chosen: RewardChoice, made: Made) -> tuple[Reward, str]:
    """The reward on this model, and its Python; a user's `tt.Reward` is used as it is."""
    vocabulary, name = made.model.process.vocabulary, chosen.python[1]
    if isinstance(chosen.function, Reward):
        return chosen.function, name
    if isinstance(made.tokenizer, Sequences) and not chosen.of_texts:  # as on the command line: a list of strings
        return Reward(chosen.function, tokenizer=made.tokenizer), f"tt.Reward({name}, tokenizer=nets)"
    if not chosen.of_texts:
        return Reward(chosen.function, vocabulary=vocabulary), f"tt.Reward({name}, vocabulary={vocabulary})"
    if made.tokenizer is None:
        raise InvalidInput("this reward reads texts, and the model has no tokenizer to spell them by")
    return (
        Reward(chosen.function, tokenizer=made.tokenizer, one_at_a_time=True),
        f"tt.Reward({name}, tokenizer={made.spelled}, one_at_a_time=True)",
    )


def _made(form: SteerForm) -> Made:
    if form.model == "letters":
        return _letters(form.device)
    if form.model == "nine":
        p0 = torch.tensor(NINE["p0"], dtype=torch.float64, device=form.device)
        return _of_table(p0, f"p0 = torch.tensor({NINE['p0']}, dtype=torch.float64{_place(form)})")
    if form.model == "own" and not Path(form.path).is_dir():
        p0 = read_law(Path(form.path), "masking", SIGMA_EPS, form.device).p0
        read = f'found = json.loads(Path({form.path!r}).read_text(encoding="utf-8"))'
        lines = f'{read}\np0 = torch.tensor(found["p0"], dtype=torch.float64{_place(form)})'
        return _of_table(p0, lines, "import json\nfrom pathlib import Path\n")
    return _nets(form.path if form.model == "own" else form.model, form)


def _place(form: SteerForm) -> str:
    return "" if form.device == "cpu" else f", device={form.device!r}"


def _letters(device: str) -> Made:
    steps = torch.tensor(CHAIN, dtype=torch.float64) / 10
    p0 = torch.full((4,), 0.25, dtype=torch.float64)
    for _ in range(5):
        p0 = p0[..., None] * steps
    made = _of_table(p0.to(device), _SIX_LETTERS + ("" if device == "cpu" else f"\np0 = p0.to({device!r})"))
    return made._replace(view=SequenceLogo(LETTERS), look=f"tt.SequenceLogo({LETTERS!r})")


def _of_table(p0: torch.Tensor, lines: str, heads: str = "") -> Made:
    """A table without a condition, steered by a reward only."""
    size = p0.shape[0]
    table = Table(Masking(size), p0, torch.ones_like(p0))
    shown = p0.dim() <= 2 and 2 <= size <= LARGEST_TABLE
    model = f"model = tt.Table(tt.Masking({size}), p0, torch.ones_like(p0)).model()"
    view, look = (Disks(size), f"tt.Disks({size})") if shown else (None, "")
    return Made(table.model(), view, look, (f"{heads}import torch", lines, model), table)


def _nets(name: str, form: SteerForm) -> Made:
    """A bundle of networks: its base, or its conditional model of a class."""
    nets = load(name, form.device)
    place = "" if form.device == "cpu" else f", {form.device!r}"
    loaded = f"nets = tt.load({name!r}{place})"
    if isinstance(nets, Sequences):
        return _strings(nets, form, loaded)
    if isinstance(nets, Digits):
        condition: Any = None if form.condition is None else int(form.condition)
        whole, tokenizer = nets.model(condition or 0, "cfg"), None
    elif isinstance(nets, Reviews):
        condition, tokenizer = form.condition, nets.tokenizer
        whole = nets.model(condition or nets.classes[0], "cfg")
    else:
        raise InvalidInput("one text net is not steered here; use tt.steer on its model")
    made = f"whole = nets.model({condition or (0 if isinstance(nets, Digits) else nets.classes[0])!r}, 'cfg')"
    if condition is None:
        base = nets.base() if isinstance(nets, Reviews) else whole.base
        part = "nets.base()" if isinstance(nets, Reviews) else "whole.base"
    else:
        base, part = whole.conditional, "whole.conditional"
    model = Model(whole.process, whole.length, base, None, None, whole.device)
    lines = f"model = tt.Model(whole.process, whole.length, {part}, device=whole.device)"
    return Made(model, nets.view, "nets.view", (loaded, made, lines), None, tokenizer, condition)


def _strings(nets: Sequences, form: SteerForm, loaded: str) -> Made:
    """A public network, given a prompt if there is one; rewards read its strings."""
    prompt = form.condition
    if prompt is not None and has_gaps(prompt):
        raise InvalidInput("a text with gaps is steered by `truetilt steer --prompt`; give a prompt without gaps here")
    length = open_length(nets, prompt, None)
    model = nets.model(length=length) if prompt is None else nets.given(prompt, length=length)
    told = f"nets.model(length={length})" if prompt is None else f"nets.given({prompt!r}, length={length})"
    return Made(model, nets.view, "nets.view", (loaded, f"model = {told}"), None, nets, prompt, "nets")
