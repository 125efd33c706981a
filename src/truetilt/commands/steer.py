"""`truetilt steer`: steer a named model by a reward from a file, or by its condition, and write the outputs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ..core.arguments import set_fields
from ..core.errors import FolderTaken, InvalidInput
from ..core.storage import check_folder, owned, remove_folder, write_text
from ..core.types import Tokens
from ..exact.tables import Table
from ..molecules.bundle import Molecules
from ..result import Result
from ..rewards.resumed_answers import Ledger
from ..rewards.reward import Reward
from ..runtime.stopping import Stoppable
from ..steering.stages import BudgetProgress
from ..steering.steer import steer
from ..viz.logo import SequenceLogo
from ..viz.molecules import MoleculeView
from ..viz.reward_gain import gain_words, without_states
from ..viz.views import View
from .outputs import (
    DRAWS,
    DrawnSequence,
    as_tokens,
    command,
    merged_draws,
    noted,
    rows_of,
    summary_of,
    write_draws,
    write_outputs,
)
from .python_file import is_named
from .request import Backbone
from .sample_molecules import CSV, SHEET_FILE, molecule_twist, with_rewards, write_tables
from .sample_protein import NAME, check_other, steered_protein
from .steer_figure import draw_steered
from .steerable import Steerable, StringsAsked, named_reward, steerable

STAGES = "stages"  # subfolder for the stages of an unfinished run
DEFAULT = Path("runs/steer")  # used if no folder is given
SHOWN = 16  # draws, if no number is asked for
Calls = Callable[[int, int], object]  # (states done, states in all)
MANY = 2  # sites per step, on average, from which a note explains the effect on p0


class SteerRequest(NamedTuple):
    """The request: a model and a reward by name, or a condition and alpha; the budget and the options."""

    model: str
    reward: str | None = None
    strength: float = 1.0
    condition: str | None = None
    alpha: float | None = None
    evaluations: int | None = None
    calls: int | None = None
    route: str | None = None
    order: str = "left to right"
    steps: int | None = None
    populations: int = 16
    seed: int = 0
    device: str = "cpu"
    prompt: str | None = None
    length: int | None = None
    trust_remote_code: bool = False
    backbone: Backbone = Backbone()  # for proteinmpnn
    fix: str | None = None
    draws: int = SHOWN


def steer_by_default(
    asked: SteerRequest, progress: BudgetProgress, calls: Calls | None, say: Callable[[str], object]
) -> tuple[dict[str, Any], Path]:
    """Steer into runs/steer, or the first of runs/steer-2, ... that has no other run, unfinished or under way."""
    folder, number = DEFAULT, 1
    while True:
        try:
            return steer_named(asked, folder, progress, calls), folder
        except FolderTaken as taken:
            number += 1
            folder = DEFAULT.with_name(f"{DEFAULT.name}-{number}")
            say(f"note: {taken}. Without --out this run goes to {folder}")


def steer_named(
    asked: SteerRequest, folder: Path, progress: BudgetProgress, calls: Calls | None = None
) -> dict[str, Any]:
    """Steer, save the particles and the summary; an unfinished run is resumed from the stages in the folder.

    `calls` gets the progress within a batch of states, for a reward without a `progress` of its own.
    """
    _check(asked)
    check_folder(folder)
    stopped = "stopped; what is done is kept, and the same command goes on from there"
    with owned(folder), Stoppable(lambda: stopped):
        around = StringsAsked(asked.prompt, asked.length, asked.trust_remote_code, asked.fix)
        made = (
            steered_protein(asked.backbone, asked.device, asked.condition)
            if asked.model == NAME
            else steerable(asked.model, asked.device, asked.condition, around, asked.alpha is not None)
        )
        reward = None if asked.reward is None else named_reward(asked.reward, made.model, made.tokenizer)
        if reward is not None and reward.progress is None:
            set_fields(reward, progress=calls)
        result = steer(
            made.model, reward, asked.strength, alpha=asked.alpha, evaluations=asked.evaluations, calls=asked.calls,
            order=asked.order, num_inference_steps=asked.steps, route=asked.route, twist=_twist(made, reward, asked),
            populations=asked.populations, seed=asked.seed, progress=progress, checkpoint=folder / STAGES,
        )  # fmt: skip
        given = asked._asdict() | {"model": None, "strength": None if asked.reward is None else asked.strength}
        given |= {"backbone": None, "draws": None if asked.draws == SHOWN else asked.draws} | asked.backbone.given
        result = noted(result, bundle=asked.model, command=command(["steer", asked.model], given))
        keeps = reward is not None and reward.keeps
        with Ledger(reward, folder / STAGES) if reward is not None and keeps else contextlib.nullcontext():
            draws = _draws(result, made, reward, asked.draws)
            summary, view = _summary(result, made, reward, draws), _view(made, reward)
        if isinstance(made.tokenizer, Molecules) and isinstance(view, MoleculeView):
            rows = made.tokenizer.table(result, reward)
            view = with_rewards(view, rows)
            write_tables(rows, folder)
            summary |= {"table": CSV, "sheet": SHEET_FILE}
        result.save(folder, view)
        write_draws(folder, draws)
        if made.written is not None and made.spell is not None:
            ending, text = made.written(made.spell(result.draw(result.log_weights.numel(), asked.seed)))
            write_text(folder / f"{made.name}.{ending}", text)
            summary["files"] = [DRAWS, f"{made.name}.{ending}"]
        write_outputs(folder, summary, draw_steered(result, view))
        remove_folder(folder / STAGES)
        return summary


def _twist(made: Steerable, reward: Reward | None, asked: SteerRequest) -> Any:
    """The potential of molecules as twist, if it predicts a part of the reward; elsewhere twists are learned."""
    nets = made.tokenizer
    return molecule_twist(nets, reward, asked.strength) if isinstance(nets, Molecules) and reward is not None else None


def _check(asked: SteerRequest) -> None:
    """Raise for contradictory options, before anything is loaded."""
    check_other(asked.model, asked.backbone)
    if asked.model == NAME and (asked.prompt is not None or asked.length is not None):
        raise InvalidInput(f"{NAME} takes no prompt and no length; --structure and --open say what is designed")
    if asked.model == NAME and asked.order != SteerRequest._field_defaults["order"]:
        raise InvalidInput(f"{NAME} decodes its sites in the order of the file; leave out --order")
    if (asked.reward is None) == (asked.alpha is None):
        raise InvalidInput("give --reward file.py:name, or --alpha (with --condition, for nets): one of the two")
    if asked.condition is not None and asked.alpha is None:
        raise InvalidInput("--condition goes with --alpha; a reward steers the model of all classes")
    own = asked.model.endswith(".json") or is_named(asked.model) or asked.prompt is not None  # has a condition
    if asked.alpha is not None and own == (asked.condition is not None):
        words = (
            "has a condition of its own; leave out --condition"
            if own
            else "leans to other weights; give --condition soluble (of soluble weights: vanilla)"
            if asked.model == NAME
            else "has several classes; give --condition (or --prompt)"
        )
        raise InvalidInput(f"{asked.model} {words}")


def _summary(result: Result, made: Steerable, reward: Reward | None, draws: list[DrawnSequence]) -> dict[str, Any]:
    """The contents of result.json, also shown on screen: figures, draws with their rewards, the story."""
    rows = rows_of(result) | {"distinct calls": result.spent.distinct, "route": result.settings["steer"]["route"]}
    if made.table is not None and reward is not None:
        rows["log Z, exact"] = _exact_log_z(made, reward, result.settings["steer"]["asked"]["strength"])
    rows |= _means(result)
    told = summary_of(result, rows) | {"settings": without_states(result.settings)}
    listed = [{"text": None if pictured(made) else one.sequence} | one._asdict() for one in draws]
    return told | {"draws": listed, "story": result.story, "notes": _notes(result), "files": [DRAWS]}


def _means(result: Result) -> dict[str, Any]:
    """The mean reward before and after, if it was recorded."""
    gained = gain_words(result.settings)
    return {} if gained is None else {"mean reward before": gained.before.mean, "mean reward": gained.after.mean}


def _notes(result: Result) -> list[str]:
    """A note on what p0 means if several sites are drawn in a step."""
    steps, sites = result.settings["steer"]["asked"]["num_inference_steps"], result.particles.shape[-1]
    if sites < MANY * steps:
        return []
    return [
        f"{sites} sites in {steps} steps: the {math.ceil(sites / steps)} that are drawn in one step are drawn "
        "independently of one another, which is another p0 than one site at a time; more --steps come nearer to that"
    ]


def _exact_log_z(made: Steerable, reward: Reward, strength: float) -> float:
    p0 = cast("Table", made.table).p0
    every = torch.cartesian_prod(*[torch.arange(p0.shape[0])] * p0.dim()).reshape(-1, p0.dim())
    afresh = Reward(reward.__call__, vocabulary=reward.vocabulary)  # with a cache and counters of its own
    return float((p0.reshape(-1).log() + strength * afresh(every)).logsumexp(0))


def pictured(made: Steerable) -> bool:
    """Whether states are images: the figure shows them, and no text of them is printed."""
    return made.view is not None and made.view.shape == "picture"


def _draws(result: Result, made: Steerable, reward: Reward | None, count: int) -> list[DrawnSequence]:
    """Unweighted draws, duplicates merged, as strings of the reward's or the model's tokenizer, the best first."""
    x, draws = merged_draws(result, result.draw(count), partial(_spelled, made=made, reward=reward))
    values = [None] * len(x) if reward is None else reward(x).tolist()
    found = [one._replace(reward=value) for one, value in zip(draws, values, strict=True)]
    return sorted(found, key=lambda one: (-(one.reward or 0.0), -one.weight))


def _spelled(x: Tokens, made: Steerable, reward: Reward | None) -> list[str]:
    if made.spell is not None:
        return [*made.spell(x)]
    if reward is not None and reward.tokenizer is not None:
        return [*reward.spell(x)]
    return as_tokens(x)


def _view(made: Steerable, reward: Reward | None) -> View | None:
    letters = None if reward is None else reward.tokenizer
    return SequenceLogo(letters) if made.view is None and isinstance(letters, str) else made.view
