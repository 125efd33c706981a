"""Fits of table twists: entries of clean tokens to rewards, entries with a mask to log-weights of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import TableLayout
from .least_squares import Accuracy, Equations, solve, times
from .lessons import Lessons, Steps

_ENTRIES = 1 << 20  # table entries in one block of equations; beyond this, steps are thinned out
_ROUNDS, _HALVINGS, _ENOUGH = 8, 5, 1e-3
_EXACT, _ROUGH = Accuracy(300, 1e-10), Accuracy(60, 1e-4)
_CUTS = 6  # refits in which the goals of values below `low` are adjusted


def _fit_values(
    layout: TableLayout, lessons: Lessons, ridge: Tensor, free: Tensor, accuracy: Accuracy = _EXACT
) -> Tensor:
    """Entries of clean tokens, by least squares on values of draws and on differences of mutants from draws."""
    every = layout.everywhere(lessons.x)
    blocks = [Equations(every, torch.ones(every.shape, dtype=torch.float64), lessons.value)]
    mutants = lessons.mutants
    if len(mutants.draw):
        x = lessons.x[mutants.draw]
        old = x.gather(1, mutants.site[:, None])
        index = torch.cat([layout.around(x, mutants.site, v).squeeze(-1) for v in (mutants.token[:, None], old)], -1)
        factor = torch.ones(index.shape, dtype=torch.float64)
        factor[:, index.shape[1] // 2 :] = -1
        blocks.append(Equations(index, factor, mutants.value - lessons.value[mutants.draw]))
    return solve(blocks, ridge, free.double(), accuracy)


def fit_clean(layout: TableLayout, lessons: Lessons, ridge: Tensor, free: Tensor, low: float) -> Tensor:
    """Entries of clean tokens; a value below `low` has no error as long as the twist there is between it and `low`."""
    x, value = lessons.clean()
    goal = value.clamp(min=low)
    every = layout.everywhere(x) if bool((value < low).any()) else None
    for _ in range(_CUTS if every is not None else 0):
        entries = _fit_values(layout, lessons.valued(goal), ridge, free, _ROUGH)
        goal = torch.where(value < low, entries[every].sum(-1).clamp(max=low).maximum(value), value)
    return _fit_values(layout, lessons.valued(goal), ridge, free)


def fit_masked(layout: TableLayout, lessons: Lessons, entries: Tensor, ridge: Tensor) -> Tensor:
    """Entries with a mask, by Gauss-Newton on the log-weights of steps, started at the mean over tokens."""
    steps = _thinned(lessons.steps, layout)
    index, log_p = _step_index(layout, steps), steps.log_p
    free = layout.masked.double()
    sites = torch.arange(layout.length) * layout.states
    entries = entries.clone()
    entries[sites + layout.states - 1] = entries[sites + lessons.x].mean(0)
    weight, share = _log_weights(entries, index, log_p)
    for _ in range(_ROUNDS):
        factor = torch.cat([share, -torch.ones_like(share[:, :1])], -1)
        factor = factor[:, None].expand(index.shape).flatten(1)
        rows = Equations(index.flatten(1), factor, times(index.flatten(1), factor, entries * free) - weight)
        change = torch.where(layout.masked, solve([rows], ridge, free, _ROUGH) - entries, 0.0)
        before, stride = float((weight**2).mean()), 1.0
        for _ in range(_HALVINGS):
            trial = entries + stride * change
            weight, share = _log_weights(trial, index, log_p)
            if float((weight**2).mean()) < before:
                break
            stride /= 2
        else:
            return entries
        entries = trial
        if float((weight**2).mean()) > (1 - _ENOUGH) * before:
            break
    return entries


def _thinned(steps: Steps, layout: TableLayout) -> Steps:
    """Every k-th step, so that the equations stay small."""
    return steps.thinned(_ENTRIES // ((1 + 2 * layout.reach) * (steps.tokens.shape[1] + 1)) or 1)


def _step_index(layout: TableLayout, steps: Steps) -> Tensor:
    """Entries around the site of each step with each of its tokens, and last with the mask: [R, 1 + 2 reach, K + 1]."""
    mask = torch.full_like(steps.site, layout.states - 1)[:, None]
    return layout.around(steps.x, steps.site, torch.cat([steps.tokens, mask], -1))


def _log_weights(entries: Tensor, index: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """The sampler's log-weight at each step [R], and the share of each token in it [R, K]."""
    value = entries[index].sum(1)
    logits = log_p + value[:, :-1] - value[:, -1:]
    return logits.logsumexp(-1), logits.softmax(-1)
