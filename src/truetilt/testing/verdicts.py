"""How a check decides: z-scores of replicates against an exact mean, how large one may be by chance, and rejections."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core.errors import Rejected as Rejected
from ..core.errors import TruetiltError

FALSE_ALARM = 1e-8  # the chance that a check rejects a part that is right, where normal scores are compared
STILL = 1e-12  # rounding error of a number that does not vary
_LONGEST = 300  # characters of an error that are quoted


def require(holds: object, words: str) -> None:
    """Raise `Rejected` with these words unless the condition holds."""
    if not bool(holds):
        raise Rejected(words)


@contextmanager
def used(what: str) -> Generator[None]:
    """Reject a part that raises an error of Python's or torch's; errors of this library pass, they name the fault."""
    try:
        yield
    except TruetiltError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:_LONGEST]
        raise Rejected(f"{what} raised {type(error).__name__}{reason and ': ' + reason}") from error


def z_limit(comparisons: int, rate: float = FALSE_ALARM) -> float:
    """The |z| that `comparisons` normal scores all stay under with probability 1 - rate (Bonferroni, two-sided)."""
    tail = rate / comparisons
    return -float(torch.special.ndtri(torch.tensor(tail / 2, dtype=torch.float64)))


def z_scores(found: Tensor, exact: Tensor) -> Tensor:
    """How many standard errors the mean of independent replicates [R, k] lies from the exact mean [k].

    What does not vary scores 0 if it is the exact mean, and infinity if it is not.
    """
    gap, error = found.mean(0) - exact, found.std(0) / len(found) ** 0.5
    scale = found.abs().mean(0) + exact.abs()
    right = gap.abs() <= STILL * scale.clamp(min=1.0)
    return torch.where(error <= STILL * scale, torch.where(right, 0.0, torch.inf * gap.sign()), gap / error)


def common(found: Tensor, exact: Tensor, share: float = 0.01) -> tuple[Tensor, Tensor]:
    """Columns that hold at least this share of the whole, the rest as one if it does, and the whole: [R, m], [m].

    Few visits are not normal; a z-test is of what is visited often.
    """
    often = exact >= share * exact.sum()
    rest = exact[~often].sum() >= share * exact.sum()
    columns = [found[:, often], *([found[:, ~often].sum(1, keepdim=True)] if rest else []), found.sum(1, keepdim=True)]
    means = [exact[often], *([exact[~often].sum()[None]] if rest else []), exact.sum()[None]]
    return torch.cat(columns, 1), torch.cat(means)
