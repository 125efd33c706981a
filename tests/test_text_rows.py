"""Claims about texts: differences and ratios with intervals that cover, known answers, and wrong variants."""

import math
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from truetilt.paper import text_rows
from truetilt.paper.text_conditions import all_claims
from truetilt.paper.text_rows import ScoredText, claims, difference, distinct_2, mean_interval, perplexity_of, ratio


def lines_of(right, row="r", nats=None, texts=None):
    """One text a population."""
    n = len(right)
    texts = texts or [f"word{k} other{k} end" for k in range(n)]
    costs = [None] * n if nats is None else nats
    return [ScoredText(row, k, texts[k], bool(right[k]), -0.5, costs[k], 3) for k in range(n)]


def test_the_difference_has_the_textbook_interval():
    """Welch by hand: 60 and 50 right of 100."""
    ours, theirs = (lines_of([k < m for k in range(100)]) for m in (60, 50))
    found = difference(ours, theirs, lambda line: float(line.right))
    stderr = math.sqrt(0.6 * 0.4 / 99 + 0.5 * 0.5 / 99)
    assert found["value"] == pytest.approx(0.1)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.972 * stderr, rel=2e-3)


def test_copies_within_a_population_do_not_narrow_the_interval():
    """Ten copies of each text in its population say no more than one; counted as independent they would."""
    once, other = lines_of([k < 12 for k in range(20)]), lines_of([k < 8 for k in range(20)])
    copies = [line for line in once for _ in range(10)]
    assert difference(copies, other, lambda x: float(x.right)) == difference(once, other, lambda x: float(x.right))
    alone = [ScoredText("r", k, "a b", line.right, 0.0) for k, line in enumerate(copies)]  # wrong
    wide, narrow = (difference(a, other, lambda x: float(x.right)) for a in (copies, alone))
    assert narrow["high"] - narrow["low"] < 0.85 * (wide["high"] - wide["low"])


def test_intervals_cover_as_often_as_they_say():
    """400 trials at 95 %: 380 +- 4.4 expected; 5 standard errors either way."""
    generator = torch.Generator().manual_seed(0)
    hits = {"difference": 0, "perplexity": 0, "mean": 0}
    for _ in range(400):
        right = torch.rand(2, 60, generator=generator) < torch.tensor([[0.7], [0.6]])
        nats = (6.0 + torch.randn(2, 60, generator=generator)).tolist()
        ours, theirs = (lines_of(right[k].tolist(), nats=nats[k]) for k in range(2))
        found = difference(ours, theirs, lambda line: float(line.right))
        hits["difference"] += found["low"] <= 0.1 <= found["high"]
        cost = ratio(ours, theirs, perplexity_of)
        hits["perplexity"] += cost["low"] <= 1.0 <= cost["high"]
        own = mean_interval(torch.randn(5, 50, generator=generator).tolist())
        hits["mean"] += own["low"] <= 0.0 <= own["high"]
    for count in hits.values():
        assert 358 <= count <= 400


def test_populations_that_gave_more_draws_count_for_more():
    found = mean_interval([[1.0] * 9, [0.0]])
    assert found["value"] == pytest.approx(0.9)
    even = mean_interval([[0.0, 1.0], [1.0, 1.0], [0.5, 0.0]])  # of equal ones, Student's own
    means = torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)
    assert even["high"] - even["value"] == pytest.approx(4.30265 * float(means.std()) / 3**0.5, rel=1e-4)


def test_the_interval_of_diversity_is_as_wide_as_its_spread():
    """distinct-2 of 200 texts of four words out of forty: the jackknife's width against 25 repeats."""
    generator = torch.Generator().manual_seed(1)

    def sample():
        words = torch.randint(0, 40, (200, 4), generator=generator)
        return lines_of([True] * 200, texts=[" ".join(f"w{v}" for v in row) for row in words.tolist()])

    other = sample()
    logs, widths = [], []
    for _ in range(25):
        ours = sample()
        logs.append(math.log(distinct_2(ours)))
        widths.append(text_rows._jackknife(ours, distinct_2))
    spread = torch.tensor(logs).std().item()
    assert 0.5 * spread < math.sqrt(sum(widths) / 25) < 2 * spread
    found = ratio(other, other, distinct_2)
    assert found["value"] == 1.0
    assert found["low"] < 1 < found["high"]


def test_claims_hold_where_they_should_and_only_there():
    guidance = lines_of([k % 10 < 7 for k in range(1000)], nats=[6.0] * 1000)
    better = lines_of([k % 10 < 8 for k in range(1000)], nats=[6.1] * 1000)
    found = claims(better, guidance)
    assert found["accuracy_difference"]["value"] == pytest.approx(0.1)
    assert found["perplexity_ratio"]["value"] == pytest.approx(math.exp(0.1 / 3))
    assert (found["more_accurate"], found["as_fluent"], found["as_varied"]) == (True, True, True)
    collapsed = lines_of([True] * 1000, nats=[7.0] * 1000, texts=["the same text again"] * 1000)
    found = claims(collapsed, guidance)
    assert (found["more_accurate"], found["as_fluent"], found["as_varied"]) == (True, False, False)
    found = claims(guidance, lines_of([k % 10 < 7 for k in range(1000)]))
    assert (found["more_accurate"], found["as_fluent"]) == (False, None)
    with pytest.raises(tt.InvalidInput, match="two populations"):
        claims(guidance[:1], guidance)


def test_claims_over_all_conditions_count_every_population_once():
    """Half of the gain in one class and none in the other; populations of two classes that share a number stay two."""
    rows, lines = [], []
    for method, shares in (("guidance-posterior", (5, 5)), ("tilted-populations", (9, 5))):
        for condition, share in zip(("low", "high"), shares, strict=True):
            name = f"{method}-{condition}"
            rows.append({"name": name, "method": method, "condition": condition, "claim": True})
            lines += [replace(line, row=name) for line in lines_of([k % 10 < share for k in range(500)])]
    found = all_claims(rows, lines)
    assert list(found) == [f"tilted-populations, {which}" for which in ("low", "high", "all")]
    values = [found[f"tilted-populations, {which}"]["accuracy_difference"] for which in ("low", "high", "all")]
    assert [value["value"] for value in values] == pytest.approx([0.4, 0.0, 0.2])
    assert found["tilted-populations, all"]["draws"] == [1000, 1000]
    each = [value["high"] - value["low"] for value in values]
    assert each[2] == pytest.approx((each[0] ** 2 + each[1] ** 2) ** 0.5 / 2, rel=0.1)  # as many draws as both together
    alone = [row for row in rows if row["condition"] == "low"]
    assert list(all_claims(alone, lines)) == ["tilted-populations, low"]
