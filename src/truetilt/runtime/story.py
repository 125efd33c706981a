"""The story of a `steer` in lines, from what its result keeps: its stages with their reasons and costs, its outlook."""

from __future__ import annotations

from typing import Any

from ..core.spent import Spent


def story_lines(story: dict[str, Any]) -> list[str]:
    """The story in lines: every stage with its reason and cost, the spending, the outlook."""
    out = [f"{number}. {_told(stage)}" for number, stage in enumerate(story["stages"], start=1)]
    return [*out, f"Spent: {_cost(Spent(**story['spent']), story['asked'])}.", story["outlook"]]


def _told(stage: dict[str, Any]) -> str:
    return f"{stage['what'].capitalize()}, because {stage['why']} ({_cost(Spent(**stage['spent']))})."


def _cost(spent: Spent, asked: dict[str, Any] | None = None) -> str:
    limits = {name: (asked or {}).get(name) for name in ("evaluations", "calls")}
    of = {name: "" if limit is None else f" of {limit:,}" for name, limit in limits.items()}
    return f"{spent.evaluations:,}{of['evaluations']} evaluations, {spent.distinct:,}{of['calls']} distinct calls"
