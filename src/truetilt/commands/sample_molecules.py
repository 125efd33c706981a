"""Sampling molecules: unconditionally, around a fixed fragment, or towards a reward."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..api import run
from ..core.chemistry import PROPERTIES
from ..core.errors import InvalidInput
from ..core.storage import write_text
from ..models.hub import load
from ..molecules.bundle import NAME, Molecules
from ..molecules.reward_names import named_score
from ..molecules.rewards import MoleculeFunction
from ..molecules.twist import CANDIDATES
from ..result import Result
from ..rewards.reward import Reward
from ..runtime.memory import RunSizes, check_run
from ..targets.composed import Composed
from ..viz.molecules import SHEET, MoleculeView, sheet_svg
from .outputs import SNAPSHOTS, command, noted, rows_of, summary_of, write_outputs
from .python_file import is_named, load_named
from .request import SampleRequest, TableNoise

PARTICLES, POPULATIONS = 16, 4  # defaults
CSV, SMILES, SHEET_FILE = "molecules.csv", "samples.smi", "sheet.svg"
A_FUNCTION = "a reward: a function of one RDKit molecule, or a tt.Reward"


class MoleculeRequest(NamedTuple):
    """The options of molecules: a reward by name, its strength, and a fragment to keep."""

    reward: str | None = None
    strength: float | None = None
    fix: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def check_not_molecules(name: str | Path, asked: MoleculeRequest) -> None:
    """Raise if options of molecules were given for another model."""
    if asked.given and str(name) != NAME:
        told = next(iter(asked.given))
        hint = "; truetilt steer takes rewards of any model" if told != "fix" else ""
        raise InvalidInput(f"--{told} is an option of {NAME} here; leave it out for {name}{hint}")


def load_fixed(fragment: str | None, device: str) -> Molecules:
    """The networks of molecules, with the fragment fixed if one is given."""
    nets = load(NAME, device)
    return nets if fragment is None else nets.fix(fragment)


def score_of(name: str) -> Any:
    """A reward by its name, or the function (or `tt.Reward`) of `file.py:name`."""
    return load_named(name, A_FUNCTION) if is_named(name) or name.endswith(".py") else named_score(name)


def molecule_reward(nets: Molecules, score: Any) -> Reward:
    """The reward: a `tt.Reward` as it is, a function of molecules wrapped in one; None: it only forbids invalid
    ones."""
    return score if isinstance(score, Reward) else nets.reward(score)


def molecule_twist(nets: Molecules, reward: Reward, strength: float) -> Any:
    """The potential as twist for a reward that `Molecules.reward` made; None if it predicts no part of it."""
    score = reward.function.score if isinstance(reward.function, MoleculeFunction) else None
    return None if score is None else nets.twist(score, strength, reward)


def molecule_target(nets: Molecules, reward: Reward, strength: float) -> Composed:
    """p0 times exp(strength reward) from left to right, led by the potential where it predicts the reward."""
    twist = molecule_twist(nets, reward, strength)
    return Composed(
        nets.model(), reward=reward, strength=strength, twist=twist, order=tuple(range(nets.length)),
        candidates=None if twist is None else min(CANDIDATES, nets.vocabulary),
    )  # fmt: skip


def sample_molecules(
    asked: MoleculeRequest, noise: TableNoise, request: SampleRequest, folder: Path, tick: Callable[..., Any]
) -> dict[str, Any]:
    """Weighted molecules; writes the particles, molecules.csv, samples.smi, sheet.svg, result.json and figure.png."""
    if noise != TableNoise() or request.steps is not None or request.condition is not None or request.beta is not None:
        raise InvalidInput(f"{NAME} reveals one piece a step and has no classes; give --reward, --strength and --fix")
    score = None if asked.reward is None else score_of(asked.reward)
    if score is None and asked.strength is not None:
        raise InvalidInput("--strength is of a reward, and none is given; add --reward")
    nets, strength = load_fixed(asked.fix, request.device), 1.0 if asked.strength is None else asked.strength
    particles = PARTICLES if request.particles is None else request.particles
    populations = request.populations or POPULATIONS
    check_run(RunSizes(particles, populations, nets.length), nets.length, SNAPSHOTS, request.device)
    reward = molecule_reward(nets, score)
    fk = molecule_target(nets, reward, strength)
    result = run(
        fk,
        particles=particles,
        populations=populations,
        seed=request.seed,
        snapshots=SNAPSHOTS,
        callback_on_step_end=tick,
    )
    options = asked.given | {"particles": particles, "populations": populations, "seed": request.seed}
    result = noted(result, bundle=NAME, command=command(["sample", NAME], options))
    return _written(nets, result, None if score is None else reward, folder)


def table_text(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ["smiles", "weight", "count", "valid", "reward", *PROPERTIES], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def caption(row: dict[str, Any]) -> str:
    """The caption of a molecule: its reward, QED and logP, and its number of particles."""
    parts = [] if row["reward"] is None else [f"r = {row['reward']:.4g}"]
    parts += [f"QED {row['qed']:.3f}", f"logP {row['logp']:.2f}"]
    return "  ".join([*parts, *([f"{row['count']} times"] if row["count"] > 1 else [])])


def _written(nets: Molecules, result: Result, reward: Reward | None, folder: Path) -> dict[str, Any]:
    rows = nets.table(result, reward)
    kept = [row for row in rows if row["valid"] and row["weight"] > 0]
    alive = [row["count"] for row in rows if row["valid"]]
    figures: dict[str, Any] = {"molecules among the particles": sum(alive), "distinct molecules": len(kept)}
    if reward is not None:
        figures["mean reward"] = sum(row["weight"] * row["reward"] for row in kept)
    drawn = nets.decode(result.draw(result.log_weights.numel(), result.settings["seed"]))
    view = with_rewards(nets.view, kept)
    result.save(folder, view)
    write_text(folder / SMILES, nets.written(drawn)[1])
    write_tables(rows, folder)
    summary = summary_of(result, figures | rows_of(result)) | {"molecules": kept, "table": CSV, "sheet": SHEET_FILE}
    write_outputs(folder, summary, _drawn(view, result))
    return summary


def write_tables(rows: list[dict[str, Any]], folder: Path) -> None:
    """The table of `Molecules.table` as molecules.csv, and its heaviest molecules drawn as sheet.svg."""
    kept = [row for row in rows if row["valid"] and row["weight"] > 0]
    write_text(folder / CSV, table_text(rows))
    write_text(folder / SHEET_FILE, sheet_svg([(row["smiles"], caption(row)) for row in kept[:SHEET]]))


def with_rewards(view: MoleculeView, rows: list[dict[str, Any]]) -> MoleculeView:
    """The view with the rewards of the heaviest molecules, which it shows under them."""
    shown = [(row["smiles"], row["reward"]) for row in rows[:SHEET] if row["valid"] and row["reward"] is not None]
    return replace(view, rewards=tuple(shown))


def _drawn(view: MoleculeView, result: Result) -> Any:
    """The heaviest molecules in one figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.6), layout="constrained")
    x, weights = result.particles.flatten(0, 1).cpu().numpy(), result.weights.reshape(-1).cpu().numpy()
    view.draw(figure.subplots(), x, weights)
    return figure
