"""Statistics of sampled texts: means with intervals, and comparisons of two samples (accuracy, perplexity, diversity).

Texts are stored as JSON lines; perplexity is computed in a second stage, perhaps on another machine. Populations are
independent, particles within one are not, so all intervals are across populations.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..commands.job_runner import Answer
from ..core.errors import InvalidInput
from ..core.storage import parse_json, read_text, write_text
from ..metrics.text import distinct
from ..smc.uncertainty import student_quantile

TEXTS = "texts.jsonl"
LEVEL = 0.95
GROUPS = 20  # groups of populations in the jackknife
MOST_PERPLEXITY, LEAST_DISTINCT = 1.05, 0.95  # limits relative to guidance


@dataclass(frozen=True)
class ScoredText:
    """A text with its row, its population and its measurements."""

    row: str
    population: int
    text: str
    right: bool
    log_p: float
    nats: float | None = None  # under the reference model, over `tokens` tokens
    tokens: int = 0
    right_own: bool | None = None  # by the bundle's own judge, if a second judge decides `right`
    log_p_own: float | None = None

    @property
    def words(self) -> list[str]:
        return self.text.split()


def mean_interval(values: Sequence[Sequence[float]]) -> Answer:
    """The mean over all, with its Student interval across populations; no interval for a single population.

    Populations that gave more draws count for more (a ratio estimate), as draws by mass require.
    """
    sizes, means = [len(own) for own in values], [statistics.fmean(own) for own in values]
    value, number = statistics.fmean(means, sizes), len(means)
    if number < 2:
        return {"value": value, "low": None, "high": None}
    spread = sum((size * (mean - value)) ** 2 for size, mean in zip(sizes, means, strict=True))
    reach = student_quantile(LEVEL, number - 1) * math.sqrt(number / (number - 1) * spread) / sum(sizes)
    return {"value": value, "low": value - reach, "high": value + reach}


def by_population(lines: Sequence[ScoredText], measure: Callable[[ScoredText], float]) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for line in lines:
        found.setdefault(line.population, []).append(measure(line))
    return list(found.values())


def distinct_2(lines: Sequence[ScoredText]) -> float | None:
    """distinct-2 of the words of all non-empty texts; None if no text has two words."""
    texts = [line.words for line in lines if line.words]
    return distinct(texts, 2) if any(len(words) > 1 for words in texts) else None


def perplexity_of(lines: Sequence[ScoredText]) -> float | None:
    """Perplexity over all tokens of the scored texts."""
    asked = [line for line in lines if line.nats is not None]
    if not asked:
        return None
    return math.exp(sum(line.nats or 0.0 for line in asked) / sum(line.tokens for line in asked))


def difference(
    ours: Sequence[ScoredText], theirs: Sequence[ScoredText], measure: Callable[[ScoredText], float]
) -> Answer:
    """Difference of means across populations with Welch's interval."""
    means = [[statistics.fmean(own) for own in by_population(lines, measure)] for lines in (ours, theirs)]
    if min(map(len, means)) < 2:
        raise InvalidInput("a difference needs at least two populations on each side; draw more")
    parts = [statistics.variance(own) / len(own) for own in means]
    value, total = statistics.fmean(means[0]) - statistics.fmean(means[1]), sum(parts)
    if total == 0:
        return {"value": value, "low": value, "high": value}
    freedom = total**2 / sum(part**2 / (len(own) - 1) for part, own in zip(parts, means, strict=True))
    reach = student_quantile(LEVEL, max(1, math.floor(freedom))) * math.sqrt(total)
    return {"value": value, "low": value - reach, "high": value + reach}


def ratio(
    ours: Sequence[ScoredText], theirs: Sequence[ScoredText], of: Callable[[Sequence[ScoredText]], float | None]
) -> Answer | None:
    """of(ours) / of(theirs) with a jackknife interval over groups of populations; None if either is unknown.

    Samples are cut to the same number of texts, since distinct-n falls with it.
    """
    size = min(len(ours), len(theirs))
    both = list(ours)[:size], list(theirs)[:size]
    values = [of(lines) for lines in both]
    if None in values:
        return None
    spreads = [_jackknife(lines, of) for lines in both]
    log_ratio = math.log(values[0] or 0.0) - math.log(values[1] or 0.0)
    reach = student_quantile(LEVEL, GROUPS - 1) * math.sqrt(sum(spreads))
    low, high = (math.exp(log_ratio + side * reach) for side in (-1, 1))
    return {"value": math.exp(log_ratio), "low": low, "high": high}


def _jackknife(lines: Sequence[ScoredText], of: Callable[[Sequence[ScoredText]], float | None]) -> float:
    """The variance of log of(lines), leaving out groups of populations in turn; an overestimate for distinct-n."""
    order = {population: place for place, population in enumerate(dict.fromkeys(line.population for line in lines))}
    groups = min(GROUPS, len(order))
    if groups < 2:
        raise InvalidInput("a ratio's interval needs at least two populations on each side; draw more")
    logs = []
    for left_out in range(groups):
        value = of([line for line in lines if order[line.population] % groups != left_out])
        if not value:
            raise InvalidInput("without some of its populations a sample has nothing to measure; draw more")
        logs.append(math.log(value))
    return (groups - 1) * statistics.pvariance(logs)


def claims(ours: Sequence[ScoredText], theirs: Sequence[ScoredText]) -> Answer:
    """Whether one sample beats another in accuracy without a loss in perplexity or diversity."""
    accuracy = difference(ours, theirs, lambda line: float(line.right))
    cost, variety = ratio(ours, theirs, perplexity_of), ratio(ours, theirs, distinct_2)
    return {
        "draws": [len(ours), len(theirs)],
        "accuracy_difference": accuracy,
        "log_p_difference": difference(ours, theirs, lambda line: math.exp(line.log_p)),
        "perplexity_ratio": cost,
        "distinct_2_ratio": variety,
        "more_accurate": accuracy["low"] > 0,
        "as_fluent": None if cost is None else cost["value"] <= MOST_PERPLEXITY,
        "as_varied": None if variety is None else variety["value"] >= LEAST_DISTINCT,
    }


def write_lines(folder: Path, lines: Sequence[ScoredText]) -> None:
    write_text(folder / TEXTS, "".join(json.dumps(line.__dict__, allow_nan=False) + "\n" for line in lines))


def read_lines(folder: Path) -> list[ScoredText]:
    """The texts that a run stored."""
    path = folder / TEXTS
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {TEXTS}; give the folder that a text task wrote")
    try:
        return [ScoredText(**parse_json(line)) for line in read_text(path).splitlines()]
    except (OSError, ValueError, TypeError) as e:
        raise InvalidInput(f"{path} is damaged ({e}); run the task again") from e
