"""Decisions of the checks: z-scores of replicates against an exact mean, their critical value, and rejections."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core.errors import DegenerateWeights, InvalidInput, InvalidWeights, TruetiltError
from ..core.errors import Rejected as Rejected

FALSE_ALARM = 1e-8  # probability that a check rejects a correct part, if scores are normal
STILL = 1e-12  # rounding error allowed for a number that does not vary
_LONGEST = 300  # characters of an error that are quoted


def require(holds: object, words: str) -> None:
    """Raise `Rejected` with this message unless the condition holds."""
    if not bool(holds):
        raise Rejected(words)


class RejectedInput(Rejected, InvalidInput):
    """A part is rejected that has the wrong form: also caught as the `InvalidInput` that it raised."""


class RejectedWeights(Rejected, InvalidWeights):
    """A part is rejected whose weights are NaN or +inf: also caught as the `InvalidWeights` that it raised."""


class RejectedDegenerate(Rejected, DegenerateWeights):
    """A part is rejected that kills every particle: also caught as the `DegenerateWeights` that it raised."""


_ALSO = {InvalidInput: RejectedInput, InvalidWeights: RejectedWeights, DegenerateWeights: RejectedDegenerate}


def rejection(error: TruetiltError) -> Rejected:
    """An error that a part raised, as a rejection with the same words that is of its kind, too."""
    kind = next((also for one, also in _ALSO.items() if isinstance(error, one)), Rejected)
    return kind(str(error))


@contextmanager
def used(what: str) -> Generator[None]:
    """Context manager that rejects a part that raises an error: of this library in its words, any other with `what`."""
    try:
        yield
    except Rejected:
        raise
    except TruetiltError as error:
        raise rejection(error) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:_LONGEST]
        raise Rejected(f"{what} raised {type(error).__name__}{reason and ': ' + reason}") from error


def z_limit(comparisons: int, rate: float = FALSE_ALARM) -> float:
    """The |z| that `comparisons` normal scores all stay under with probability 1 - rate (Bonferroni, two-sided)."""
    tail = rate / comparisons
    return -float(torch.special.ndtri(torch.tensor(tail / 2, dtype=torch.float64)))


def z_scores(found: Tensor, exact: Tensor) -> Tensor:
    """How many standard errors the mean of independent replicates [R, k] lies from the exact mean [k].

    A number that does not vary scores 0 if it equals the exact mean, else infinity.
    """
    gap, error = found.mean(0) - exact, found.std(0) / len(found) ** 0.5
    scale = found.abs().mean(0) + exact.abs()
    right = gap.abs() <= STILL * scale.clamp(min=1.0)
    return torch.where(error <= STILL * scale, torch.where(right, 0.0, torch.inf * gap.sign()), gap / error)


def common(found: Tensor, exact: Tensor, share: float = 0.01) -> tuple[Tensor, Tensor]:
    """Columns with at least this share of the total, the rest as one column if it has that much, and the total: [R, m],
    [m].

    Counts of rare columns are not normal, so the z-test uses only frequent ones.
    """
    often = exact >= share * exact.sum()
    rest = exact[~often].sum() >= share * exact.sum()
    columns = [found[:, often], *([found[:, ~often].sum(1, keepdim=True)] if rest else []), found.sum(1, keepdim=True)]
    means = [exact[often], *([exact[~often].sum()[None]] if rest else []), exact.sum()[None]]
    return torch.cat(columns, 1), torch.cat(means)
