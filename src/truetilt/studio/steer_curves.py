"""Charts of steering: errors against the budget, one line a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from .steer_baselines import NAMES, SHARES, Point
from .steer_form import SteerForm

_WIDE, _HIGH, _LEFT, _RIGHT, _FOOT = 640, 260, 54, 130, 40  # units
_MARKS = {"truetilt": "circle", "importance": "square", "fk-difference": "triangle"}


def error_chart(curve: Mapping[str, Sequence[Point]], form: SteerForm) -> str:
    """The errors so far, as an SVG; empty before the first."""
    found = {name: list(points) for name, points in curve.items() if points}
    if not found:
        return ""
    values = [error for points in found.values() for point in points for error in (point.mean, *point.errors)]
    low, high = _decades([max(value, 1e-6) for value in values])
    total, unit = (form.evaluations, "evaluations") if form.calls is None else (form.calls, "calls")

    def at(share: float, error: float) -> tuple[float, float]:
        x = _LEFT + (_WIDE - _LEFT - _RIGHT) * math.log(share / SHARES[0]) / math.log(SHARES[-1] / SHARES[0])
        y = (_HIGH - _FOOT) * (high - math.log10(max(error, 1e-6))) / (high - low) + 8
        return round(x, 1), round(y, 1)

    ends = _apart({name: at(1.0, points[-1].mean)[1] for name, points in found.items()})
    lines = "".join(_line(name, points, at, ends[name]) for name, points in found.items())
    ticks = "".join(_tick(at(share, 10**low)[0], f"{share * total:,.0f}") for share in SHARES)
    rules = "".join(_rule(at(1.0, value)[1], value) for value in _rungs(low, high))
    words = ", ".join(f"{NAMES[name]} {points[-1].mean:.2g}" for name, points in found.items())
    seeds = max(len(point.errors) for points in found.values() for point in points)
    said = f"of the marginals, by total variation; the mean of {seeds} seeds, each a dot"
    middle = (_LEFT + _WIDE - _RIGHT) / 2
    return (
        f'<figure class="errors"><figcaption><b>Error against {unit}</b>: {said}</figcaption>'
        f'<svg viewBox="0 0 {_WIDE} {_HIGH + 14}" role="img" aria-label="{escape(words)}">{rules}{ticks}{lines}'
        f'<text x="{middle}" y="{_HIGH + 10}" text-anchor="middle">{unit} that may be spent</text>'
        "</svg></figure>"
    )


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """The range of the axis, as powers of ten with a margin."""
    low, high = math.log10(min(values)) - 0.06, math.log10(max(values)) + 0.06
    return (low, high) if high - low > 0.5 else (low - 0.25, high + 0.25)


def _rungs(low: float, high: float) -> list[float]:
    """Round values within a range of powers of ten: 1, 2, 5 of each."""
    steps = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 2, 5)]
    return [value for value in steps if low <= math.log10(value) <= high]


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Heights of the labels, moved apart so that none covers another."""
    out: dict[str, float] = {}
    last = -math.inf
    for name, y in sorted(heights.items(), key=lambda item: item[1]):
        last = max(y, last + 15)
        out[name] = last
    return out


def _line(name: str, points: Sequence[Point], at: Callable[[float, float], tuple[float, float]], label: float) -> str:
    path = " ".join("{},{}".format(*at(point.share, point.mean)) for point in points)
    dots = "".join(
        '<circle class="seed" cx="{}" cy="{}" r="2"/>'.format(*at(point.share, error))
        for point in points
        for error in point.errors
    )
    marks = "".join(_mark(_MARKS.get(name, "circle"), *at(point.share, point.mean)) for point in points)
    x = at(points[-1].share, 1.0)[0]
    return (
        f'<g class="m-{name}">{dots}<polyline points="{path}"/>{marks}'
        f'<text x="{x + 10}" y="{label + 4}">{escape(NAMES[name])}</text></g>'
    )


def _mark(kind: str, x: float, y: float) -> str:
    if kind == "square":
        return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
    if kind == "triangle":
        return f'<path d="M{x} {y - 5}l5 9h-10z"/>'
    return f'<circle cx="{x}" cy="{y}" r="4.5"/>'


def _tick(x: float, words: str) -> str:
    return (
        f'<path class="frame" d="M{x} {_HIGH - _FOOT + 8}v5"/><text x="{x}" y="{_HIGH - _FOOT + 27}" '
        f'text-anchor="middle">{words}</text>'
    )


def _rule(y: float, value: float) -> str:
    return (
        f'<path class="frame" d="M{_LEFT} {y}H{_WIDE - _RIGHT}"/><text x="{_LEFT - 8}" y="{y + 4}" '
        f'text-anchor="end">{value:g}</text>'
    )
