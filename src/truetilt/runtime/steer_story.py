"""The story of a `steer` in lines, from what its result keeps: its stages with their reasons and costs, its outlook."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..core.spent import Spent


def story_lines(story: dict[str, Any]) -> list[str]:
    """The story in lines: every stage with its reason and cost, the spending, the outlook; one line for each reason."""
    groups = [list(group) for _, group in groupby(story["stages"], key=lambda stage: stage["why"])]
    out = [f"{number}. {_told(group)}" for number, group in enumerate(groups, start=1)]
    return [*out, *_left_out(story), f"Spent: {_cost(Spent(**story['spent']), story['asked'])}.", story["outlook"]]


def _left_out(story: dict[str, Any]) -> list[str]:
    """The routes that were not tried, and how to force one."""
    names = story.get("left out", [])
    if not names:
        return []
    told = f'For their cost they promise no more than what was tried; route="{names[0]}" takes one all the same.'
    return [f"Not tried: {', '.join(names)}. {told}"]


def _told(stages: list[dict[str, Any]]) -> str:
    """Stages with one reason as one line: the first of them, how many followed, and the cost of all."""
    first, more = stages[0], len(stages) - 1
    again = "" if more == 0 else f", then {more} more run{'s' * (more > 1)} with what was left"
    spent = Spent(*map(sum, zip(*(Spent(**stage["spent"]) for stage in stages), strict=True)))
    return f"{first['what'].capitalize()}{again}, because {first['why']} ({_cost(spent)})."


def _cost(spent: Spent, asked: dict[str, Any] | None = None) -> str:
    limits = {name: (asked or {}).get(name) for name in ("evaluations", "calls")}
    of = {name: "" if limit is None else f" of {limit:,}" for name, limit in limits.items()}
    return f"{spent.evaluations:,}{of['evaluations']} evaluations, {spent.distinct:,}{of['calls']} distinct calls"
