"""The story of a `tt.steer`, from what its result keeps: as lines of text, and as a report shows it.

Both tell the stages with their reasons and costs, the two budgets, and what twice the budget would buy; the report also
the check by moves and the call that gives the answer again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ..core.spent import Spent

BUDGETS = {"evaluations": ("evaluations", "network evaluations"), "calls": ("distinct", "calls of the reward")}
_LIMIT = 4.0  # standard errors of the mean change beyond which the check by moves rejects an answer


class BudgetRow(NamedTuple):
    """One of the two budgets: its name, what was spent, the limit (None: there was none), and the share spent."""

    name: str
    spent: int
    limit: int | None
    share: float | None


class StageRow(NamedTuple):
    """One stage: what was done, why, its evaluations and distinct calls, each also as a share of the dearest stage."""

    what: str
    why: str
    found: str
    evaluations: int
    calls: int
    evaluations_share: float
    calls_share: float


class SteerWords(NamedTuple):
    """All that a report says of how a run was steered."""

    asked: str  # the budget
    route: str
    budgets: list[BudgetRow]
    stages: list[StageRow]
    check: str
    outlook: str
    call: str


def steer_words(settings: Mapping[str, Any]) -> SteerWords | None:
    """The story that a result's settings keep; None for a run that `tt.steer` did not make."""
    story = settings.get("steer")
    if not isinstance(story, Mapping) or not {"asked", "stages", "route", "spent", "outlook"} <= story.keys():
        return None
    asked = story["asked"]
    budgets = [_budget(story, key) for key in BUDGETS]
    return SteerWords(
        " and ".join(f"{row.limit:,} {row.name}" for row in budgets if row.limit is not None),
        str(story["route"]), budgets, _stages(story["stages"]), _check(story.get("check")),
        str(story["outlook"]), _call(asked),
    )  # fmt: skip


def _budget(story: Mapping[str, Any], key: str) -> BudgetRow:
    field, name = BUDGETS[key]
    spent, limit = int(story["spent"][field]), story["asked"].get(key)
    return BudgetRow(name, spent, limit, None if not limit else min(spent / limit, 1.0))


def _stages(stages: list[Mapping[str, Any]]) -> list[StageRow]:
    """Stages in turn, with bars against the dearest."""
    rows: list[StageRow] = []
    costs = [(int(stage["spent"]["evaluations"]), int(stage["spent"]["distinct"])) for stage in stages]
    most = [max([cost[k] for cost in costs] or [0]) or 1 for k in range(2)]
    for stage, (evaluations, calls) in zip(stages, costs, strict=True):
        what = str(stage["what"])
        shares = evaluations / most[0], calls / most[1]
        told = str(stage["why"]), str(stage.get("found", ""))
        rows.append(StageRow(what[:1].upper() + what[1:], *told, evaluations, calls, *shares))
    return rows


def _check(check: Mapping[str, Any] | None) -> str:
    """The outcome of the check by moves, in a sentence."""
    if check is None:
        return "Not checked by moves: this model does not allow them, or the budget did not buy any."
    mean, stderr = float(check["mean"]), float(check["stderr"])
    if not check.get("moved", 1.0):
        return "Checked by moves, of which none was accepted: that says little of the answer."
    change = f"{mean:+.2g} ± {stderr:.2g} nats of strength × reward".replace("-", "−")
    if abs(mean) > _LIMIT * stderr:
        return f"Checked by moves, and contradicted: draws of the answer drifted by {change}."
    return f"Checked by moves: draws of the answer stayed where they were ({change}, within chance)."


def _call(asked: Mapping[str, Any]) -> str:
    """The Python that gives the same answer; model and reward are the reader's."""
    names = ("evaluations", "calls", "order", "num_inference_steps", "route", "populations", "seed")
    told = {name: repr(asked[name]) for name in names if isinstance(asked.get(name), int | str | list)}
    lines = "".join(f"    {name}={value},\n" for name, value in told.items())
    alpha = asked.get("alpha")
    by = f"reward,\n    {float(asked.get('strength') or 1.0)!r}" if alpha is None else f"alpha={float(alpha)!r}"
    of = "model and reward: those that were steered" if alpha is None else "model: the one that was steered"
    return f"import truetilt as tt\n\n# {of}\nresult = tt.steer(\n    model,\n    {by},\n{lines})\n"


def story_lines(story: dict[str, Any]) -> list[str]:
    """The story in lines: every stage with its reason and cost, the spending, the outlook; one line for each reason."""
    groups = [list(group) for _, group in groupby(story["stages"], key=lambda stage: stage["why"])]
    out = [f"{number}. {_told(group)}" for number, group in enumerate(groups, start=1)]
    return [*out, *_left_out(story), f"Spent: {_cost(Spent(**story['spent']), story['asked'])}.", story["outlook"]]


def _left_out(story: dict[str, Any]) -> list[str]:
    """The routes that were not tried, and how to force one."""
    reasons = story.get("left out", {})
    lines = []
    for why in dict.fromkeys(reasons.values()):
        names = [name for name in reasons if reasons[name] == why]
        lines.append(f"Not tried: {', '.join(names)}, because {why}.")
    return lines


def _told(stages: list[dict[str, Any]]) -> str:
    """Stages with one reason as one line: the first of them, how many followed, and the cost of all."""
    first, more = stages[0], len(stages) - 1
    again = "" if more == 0 else f", then {more} more run{'s' * (more > 1)} with what was left"
    spent = Spent(*map(sum, zip(*(Spent(**stage["spent"]) for stage in stages), strict=True)))
    what, found = str(first["what"]), stages[-1].get("found", "")
    told = f"{what[:1].upper()}{what[1:]}{again}, because {first['why']} ({_cost(spent)})"
    return f"{told}: {found}." if found else f"{told}."


def _cost(spent: Spent, asked: dict[str, Any] | None = None) -> str:
    limits = {name: (asked or {}).get(name) for name in ("evaluations", "calls")}
    of = {name: "" if limit is None else f" of {limit:,}" for name, limit in limits.items()}
    return f"{spent.evaluations:,}{of['evaluations']} evaluations, {spent.distinct:,}{of['calls']} distinct calls"
