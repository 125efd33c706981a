"""Sampling texts: of a class, from a bundle of text networks, or with gaps to be filled in.

A gap is written [MASK] or [MASK:n], n tokens. Without a class the condition is the text around the gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..api import run
from ..core.errors import InvalidInput
from ..core.types import Model
from ..diffusion.kernels import tweedie
from ..models.gaps import parts_with_gaps
from ..models.infilling import Infill, given_text
from ..models.text_bundle import Reviews
from ..result import Result
from ..runtime.memory import RunSizes, check_run
from ..targets.any_order import AnyOrder
from ..targets.on_clock import Tilted
from ..training.text_data import normalise
from ..viz.settings_in_words import is_veiled
from .outputs import SNAPSHOTS, command, noted, rows_of, sample_model, summary_of, write_outputs
from .request import SampleRequest
from .samplers import reveal_grid
from .sharper_text import facts_of, notes_of, sample_sharper

PARTICLES, STEPS = 16, 64  # defaults for texts
SHOWN = 24  # texts in the figure

Given = tuple[int | None, ...]


class Gaps(NamedTuple):
    """A request to fill the gaps of a text: the class of the whole (None: any), the target and the sizes of the run."""

    text: str
    condition: str | None = None
    alpha: float = 1.0
    beta: float | None = None
    particles: int = PARTICLES
    populations: int = 1
    seed: int = 0
    device: str = "cpu"
    trust_remote_code: bool = False


def sample_text(
    name: str, nets: Reviews, request: SampleRequest, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Sample texts of a class, save and judge them; figure.png shows draws."""
    condition = nets.classes[nets.facts.number("" if request.condition is None else request.condition)]
    model = nets.model(condition, "potential" if request.beta is None else "cfg")
    plain = request.sharpness is None and request.temperature is None
    end = nets.tokenizer.end
    result = sample_model(model, request, options) if plain else sample_sharper(model, request, options, end)
    told = command(["sample", name], request._asdict())
    result = noted(result, bundle=name, condition=condition, command=told, **facts_of(request, condition))
    return _written(nets, condition, result, None, folder, notes_of(request))


def fill_gaps(name: str, nets: Reviews, asked: Gaps, folder: Path) -> dict[str, Any]:
    """Fill the gaps of a text, one token per step; save the particles and return the summary."""
    given = row_with_gaps(nets, asked.text)
    fk, inside = _filling(nets, given, asked)
    sizes = RunSizes(asked.particles, asked.populations, inside.length)
    check_run(sizes, nets.length, SNAPSHOTS, asked.device)
    result = run(
        fk, reveal_grid(fk.model), particles=asked.particles, populations=asked.populations, seed=asked.seed,
        snapshots=SNAPSHOTS,
    )  # fmt: skip
    told = command(["infill", asked.text], {"model": name} | asked._asdict() | {"text": None})
    result = noted(result, bundle=name, condition=asked.condition, text=asked.text, command=told)
    result = replace(result, particles=inside.whole(result.particles))
    if len(result.snapshot_steps):
        result = replace(result, snapshot_particles=inside.whole(result.snapshot_particles))
    return _written(nets, asked.condition, result, given, folder)


def _filling(nets: Reviews, given: Given, asked: Gaps) -> tuple[AnyOrder | Tilted, Infill]:
    """The Feynman-Kac model of the gaps, and the Score that inserts a state into the whole text."""
    if asked.condition is None:
        plain = Model(nets.process, nets.length, nets.base(), None, None, nets.device)
        model = given_text(plain, nets.checked(given))
        fk: AnyOrder | Tilted = AnyOrder(model, asked.alpha, asked.beta)
    elif asked.beta is None:
        model = nets.model(asked.condition, "potential", given)
        fk = Tilted(model, asked.alpha, kernel=tweedie)
    else:
        model = nets.model(asked.condition, "cfg", given)
        fk = AnyOrder(model, asked.alpha, asked.beta)
    inside = model.conditional
    if not isinstance(inside, Infill):
        raise InvalidInput("a text with gaps needs a Score of its gaps")
    return fk, inside


def row_with_gaps(nets: Reviews, text: str) -> Given:
    """The tokens of a text with None at its gaps, then end tokens up to the length of the networks."""
    row: list[int | None] = []
    for number, part in enumerate(parts_with_gaps(normalise(text), nets.length)):
        if isinstance(part, int):
            row += [None] * part
        elif part.strip():
            row += _joined(nets, part) if number and not part.startswith(" ") else nets.encode(part)
    if len(row) > nets.length:
        raise InvalidInput(f"the text has {len(row)} tokens with its gaps and the nets read {nets.length}; shorten it")
    return (*row, *[nets.tokenizer.end] * (nets.length - len(row)))


def _joined(nets: Reviews, part: str) -> list[int]:
    """Tokens of a part that follows a gap without a space, such as a full stop: encoded after a word, then cut off."""
    word = nets.tokenizer.encode("a")
    found = nets.tokenizer.encode(f"a{part}")
    return found[len(word) :] if found[: len(word)] == word and len(found) > len(word) else nets.tokenizer.encode(part)


def words_of(nets: Reviews, x: Tensor, given: Given | None) -> list[str]:
    """The texts of rows [n, D], up to the first end token; the whole row for a text with gaps."""
    if given is None:
        return nets.decode(x)
    end = nets.tokenizer.end
    return [nets.tokenizer.decode([token for token in row if token != end]) for row in x.tolist()]


def _written(
    nets: Reviews, condition: str | None, result: Result, given: Given | None, folder: Path, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the particles, result.json and figure.png; return the summary."""
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    texts, drawn = words_of(nets, x, given), result.draw(len(x), result.settings["seed"])
    rows, scores = rows_of(result), {}
    if condition in nets.facts.judged and "judge" in nets.nets:
        log_p, right = nets.verdicts(texts, condition)
        scores, share = dict(zip(texts, log_p.exp().tolist(), strict=True)), weights.cpu()
        rows = {
            f"mean of the judge's p({condition} | text)": float((share * log_p.exp()).sum()),
            "taken for the class by the judge": float((share * right).sum()),
        } | rows
    result.save(folder, nets.view)
    summary = summary_of(result, rows) | {
        "particles": _told(nets, texts, weights.tolist()),
        "texts": [_scored(text, scores) for text in words_of(nets, drawn, given)],
        "veiled": is_veiled(condition),
        **({"notes": list(notes)} if notes else {}),
    }
    write_outputs(folder, summary, drawn_texts(summary))
    return summary


def _scored(text: str, scores: dict[str, float]) -> dict[str, Any]:
    """A draw with the judge's probability of the class, if it is one that the judge knows."""
    return {"text": text, "score": scores[text]} if text in scores else {"text": text}


def _told(nets: Reviews, texts: list[str], weights: list[float]) -> list[dict[str, Any]]:
    """Each particle's text with its weight and the judge's probabilities."""
    out: list[dict[str, Any]] = [{"text": text, "weight": w} for text, w in zip(texts, weights, strict=True)]
    if "judge" in nets.nets:
        for entry, log_p in zip(out, nets.judge(texts).exp().tolist(), strict=True):
            entry["judge"] = dict(zip(nets.facts.judged, log_p, strict=True))
    return out


def drawn_texts(summary: dict[str, Any]) -> Any:
    """The first draws, a line or two each."""
    import textwrap

    from matplotlib.figure import Figure

    texts = [entry["text"] for entry in summary["texts"][:SHOWN]]
    lines = [textwrap.fill(text, 110, max_lines=3, placeholder=" …") or "(empty)" for text in texts]
    height = sum(line.count("\n") + 1.6 for line in lines)
    figure = Figure(figsize=(9, 0.17 * height + 0.4), layout="constrained")
    ax, place = figure.subplots(), 0.0
    for line in lines:
        ax.text(0.0, -place, _printable(line).replace("$", r"\$"), fontsize=8, va="top")
        place += line.count("\n") + 1.6
    ax.set(xlim=(0, 1), ylim=(-place, 0.5))
    ax.axis("off")
    condition, alpha = summary["settings"]["condition"], summary["settings"]["model"].get("alpha", 1.0)
    ax.set_title(f"{condition or 'given the text'}, α = {alpha:g}: {len(lines)} draws", fontsize=9, loc="left")
    return figure


def _printable(line: str) -> str:
    """The line with ▢ for characters that the figure's font lacks (result.json holds them all)."""
    return "".join(c if c in "\n…" or (c.isprintable() and ord(c) < 0x530) else "▢" for c in line)
