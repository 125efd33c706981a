"""Texts on the terminal: duplicates merged and counted, the judge's score beside each, harsh ones on request only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import show

ShowToxic = Annotated[
    bool, typer.Option("--show-toxic", help="Print texts of a class that may hurt; without it they are only saved.")
]


def show_texts(result: dict[str, Any], folder: Path, as_json: bool, show_toxic: bool) -> None:
    """Show a summary: its texts as `lines_of` writes them, or no word of them if they are veiled and not asked for."""
    if os.environ.get("RANK", "0") != "0":  # only the first rank prints
        return
    hidden = bool(result.get("veiled")) and not show_toxic
    shown = without_words(result) if hidden else result
    if not (hidden or as_json) and any("score" in entry for entry in result.get("texts", ())):
        typer.echo("before each text: the judge's probability of the class, how often it was drawn", err=True)
    if not as_json and "texts" in result:
        shown = shown | {"texts": [] if hidden else [{"text": line} for line in lines_of(result["texts"])]}
    show(shown, ("quantity", "value"), folder, as_json)
    if hidden:
        asked, kept = result["settings"].get("condition"), folder / "result.json"
        typer.echo(
            f"not printed: {len(result['texts'])} texts that were asked to be {asked!r}, and may hurt; --show-toxic "
            f"prints them, {kept} and figure.png have them",
            err=True,
        )


def lines_of(texts: list[dict[str, Any]]) -> list[str]:
    """A line for each different text, the most frequent first: the judge's score, the count if any is above 1."""
    count: dict[str, int] = {}
    for entry in texts:
        count[entry["text"]] = count.get(entry["text"], 0) + 1
    score = {entry["text"]: entry["score"] for entry in texts if "score" in entry}
    several = max(count.values(), default=1) > 1
    width = len(f"×{max(count.values(), default=1)}")
    lines = []
    for text in sorted(count, key=lambda text: -count[text]):
        many = f"×{count[text]}" if count[text] > 1 else ""
        parts = [f"{score[text]:.2f}"] if text in score else []
        parts += [many.ljust(width)] * several
        lines.append("  ".join([" ".join(parts), text]) if parts else text)
    return lines


def without_words(result: dict[str, Any]) -> dict[str, Any]:
    """The summary with null in place of every text."""
    blank = {name: [entry | {"text": None} for entry in result[name]] for name in ("particles", "texts")}
    return result | blank
