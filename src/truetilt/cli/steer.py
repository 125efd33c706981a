"""The command `steer`: weighted samples by a reward or a condition within a budget. Torch is imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..steering.progress import stages
from .terminal import (
    BackboneFile,
    BackboneWeights,
    DesignedChains,
    Device,
    Fix,
    FixedResidues,
    ForbiddenLetters,
    Json,
    Length,
    OneLineErrors,
    OpenResidues,
    Prompt,
    Seed,
    TiedResidues,
    Trusted,
    show,
)
from .terminal import device as found_device


class RouteName(StrEnum):
    importance = "importance"
    twisted = "twisted"
    adapted = "adapted"
    annealed = "annealed"
    from_base = "annealed from base"


class OrderName(StrEnum):
    in_order = "left to right"
    at_random = "random"


def register(app: typer.Typer) -> None:
    """Add the command to those of the command line."""
    app.command("steer")(steer)


def steer(
    model: Annotated[
        str,
        typer.Argument(
            help="A table (JSON), mnist, tiny-reviews, molecules, a folder, proteinmpnn, or file.py:function of a "
            "tt.Model."
        ),
    ],
    reward: Annotated[
        str | None,
        typer.Option(
            help="file.py:name of a function of tokens [B, D] (of a list of strings, for transformers and "
            "proteinmpnn; of an RDKit molecule), or of a tt.Reward. molecules: also qed, logp=3, similar=SMILES, ..."
        ),
    ] = None,
    strength: Annotated[float, typer.Option(help="Factor of the reward in the target p0(x) exp(strength r(x)).")] = 1.0,
    condition: Annotated[str | None, typer.Option(help="The class, where a condition steers; for nets.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Exponent of the condition, in place of a reward.")] = None,
    prompt: Prompt = None,
    length: Length = None,
    structure: BackboneFile = None,
    open_: OpenResidues = None,
    weights: BackboneWeights = None,
    chains: DesignedChains = None,
    fixed: FixedResidues = None,
    forbid: ForbiddenLetters = None,
    tied: TiedResidues = None,
    evaluations: Annotated[
        int | None,
        typer.Option(help="Network evaluations that may be spent; those of 4,000 draws, or of 20 a call.", min=1),
    ] = None,
    calls: Annotated[int | None, typer.Option(help="Calls of the reward's function; any number.", min=1)] = None,
    route: Annotated[RouteName | None, typer.Option(help="The way to go, if you know better.")] = None,
    order: Annotated[OrderName, typer.Option(help="The order in which sites are revealed.")] = OrderName.in_order,
    steps: Annotated[int | None, typer.Option(help="Steps that reveal a draw; one site each, 128 if long.")] = None,
    populations: Annotated[int, typer.Option(help="Independent populations, for error bars.", min=2)] = 16,
    seed: Seed = 0,
    device: Device = "cpu",
    trust_remote_code: Trusted = False,
    fix: Fix = None,
    draws: Annotated[
        int, typer.Option(help="Draws that are printed, and written as draws.csv.", min=1, max=1_000_000)
    ] = 16,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/steer if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Sample p0(x) exp(strength r(x)) within a budget: look, learn, choose a way, check it, say how far to trust it.

    Interrupted, the same command goes on where it stopped, and asks the reward nothing twice. Python files that are
    named here are run: name those you trust.
    """
    with OneLineErrors("stopped; the same command goes on from there"):
        from ..commands.request import Backbone
        from ..commands.steer import SteerRequest, steer_by_default, steer_named

        named = None if route is None else route.value
        asked = SteerRequest(
            model, reward, strength, condition, alpha, evaluations, calls, named, order.value, steps, populations, seed,
            found_device(device), prompt, length, trust_remote_code,
            Backbone(structure, open_, weights, chains, fixed, forbid, tied), fix, draws,
        )  # fmt: skip
        with stages() as told:
            told.line("reading the model and the reward")
            heard = partial(_heard, told)
            if out is None:
                summary, folder = steer_by_default(asked, heard, told.calls, told.say)
            else:
                summary, folder = steer_named(asked, out, heard, told.calls), out
        (folder / "report.html").unlink(missing_ok=True)  # left by an earlier run
        for line in () if as_json else [_told(one) for one in summary["draws"] if one["text"] is not None]:
            typer.echo(line)
        show(summary, ("quantity", "value"), folder, as_json)
        for line in () if as_json else summary["story"]:
            typer.echo(line, err=True)


def _heard(told: stages, what: str, share: float) -> None:
    """Show the current stage; that an interrupted call is resumed is printed even without a terminal."""
    from ..steering.stage_folder import GOING_ON

    if what.startswith(GOING_ON):
        told.say(what)
    else:
        told(what, share)


def _told(draw: dict[str, Any]) -> str:
    """A draw with its reward, as one line."""
    several = f"  ×{draw['count']}" if draw["count"] > 1 else ""
    return str(draw["text"]) + ("" if draw["reward"] is None else f"  ({draw['reward']:.4g})") + several
