"""Training in the order that is drawn: suffixes masked, and a loss whose minimum is the true law of the next token.

The law of a tiny language is enumerated, so expectations are sums over every text and every number of seen sites.
"""

import math

import pytest
import torch

import truetilt as tt
from sayings import LENGTH, V, settings, texts
from truetilt.core.errors import InvalidInput
from truetilt.training import loop
from truetilt.training.batches import SUFFIXES, Batches
from truetilt.training.left_to_right import next_token_nats, suffixes
from truetilt.training.losses import score_entropy
from truetilt.training.runs import TrainingRun
from truetilt.training.text_tasks import load_texts

PROCESS = tt.Masking(3)  # an end and two letters
ROWS = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 2, 0], [2, 1, 1], [2, 0, 0], [1, 1, 2]])
USED = torch.tensor([1, 2, 3, 3, 2, 3])
P = torch.tensor([0.3, 0.1, 0.2, 0.15, 0.05, 0.2], dtype=torch.float64)
ENTROPY = -float((P * P.log()).sum())


def every():
    """Every row with every number of seen sites, its probability p(x) / used, and the law of the next token."""
    pairs = [(row, seen) for row in range(len(ROWS)) for seen in range(int(USED[row]))]
    rows, seen = (torch.tensor(values) for values in zip(*pairs, strict=True))
    noised = suffixes(PROCESS, ROWS[rows], USED[rows], (seen + 0.5) / USED[rows])
    truth = torch.zeros(len(rows), 3, 3, dtype=torch.float64)
    for place, (row, at) in enumerate(pairs):
        alike = (ROWS[:, :at] == ROWS[row, :at]).all(-1).double() * P
        truth[place] = torch.stack([(alike[:, None] * (token == ROWS)).sum(0) for token in range(3)], -1) / alike.sum()
    return noised, P[rows] / USED[rows], truth.clamp(min=1e-300).log(), seen


def slope(weighted):
    """The largest gradient, at the truth, of the expected loss in the answers at one beginning of a text."""
    noised, chance, log_p, _ = every()
    log_odds = (noised.noise.keep / noised.noise.lost).log()[:, None, None]
    answers = (log_p + log_odds).requires_grad_()
    loss = (chance * score_entropy(PROCESS, answers, weighted(noised))).sum()
    (gradient,) = torch.autograd.grad(loss, answers)
    _, group = noised.x.unique(dim=0, return_inverse=True)  # all rows with the same beginning share one answer
    total = torch.zeros(int(group.max()) + 1, 3, 3, dtype=torch.float64).index_add_(0, group, gradient)
    return float(total.abs().max()), float(loss.detach())


def test_a_suffix_is_masked_and_the_next_site_counts():
    noised, _, _, seen = every()
    site = torch.arange(3)
    assert noised.x.equal(torch.where(site < seen[:, None], noised.x0, PROCESS.mask))
    assert (noised.weight > 0).equal(site == seen[:, None])
    assert noised.noise.t.tolist() == pytest.approx(((3 - seen) / 3).tolist())
    ends = suffixes(PROCESS, ROWS[:1], USED[:1], torch.tensor([0.9999999999999999]))
    assert ends.x.tolist() == [[3, 3, 3]]


def test_the_minimum_is_the_true_law_of_the_next_token_and_its_value_the_entropy():
    gradient, loss = slope(lambda noised: noised)
    assert gradient < 1e-12
    assert loss == pytest.approx(ENTROPY, rel=1e-12)
    noised, chance, log_p, _ = every()
    assert float((chance * next_token_nats(noised, log_p)).sum()) == pytest.approx(ENTROPY, rel=1e-12)


def test_wrong_when_the_mask_depends_on_the_text_and_the_weight_does_not():
    """Seen sites are drawn among a text's own: without the factor `used`, short texts would count more."""
    rows = [row for row in range(len(ROWS)) for _ in range(int(USED[row]))]
    gradient, _ = slope(lambda noised: noised._replace(weight=noised.weight / USED[rows][:, None]))
    assert gradient > 0.01


def test_wrong_on_seen_sites_the_law_of_the_next_is_not_learned():
    """At seen sites the score entropy is 0 whatever the answers: nothing would be learned."""
    noised, chance, log_p, seen = every()
    before = noised._replace(weight=(torch.arange(3) < seen[:, None]).double())
    assert float((chance * score_entropy(PROCESS, log_p - 1, before)).sum()) == 0


def batches(corpus, **changes):
    run = TrainingRun.prepare(settings(corpus, task="unconditional", batch=64, **changes), corpus)
    return run.batches()


def test_a_share_of_the_rows_has_suffixes_and_the_others_are_as_before(corpus):
    some, none, all_rows = (batches(corpus, suffix_share=share).at(3).noised for share in (0.5, 0.0, 1.0))
    ordered = (some.weight != 1).any(-1)
    assert 16 <= int(ordered.sum()) <= 48
    assert none.weight is None
    assert some.x[~ordered].equal(none.x[~ordered])
    assert some.x[ordered].equal(all_rows.x[ordered])
    masked = all_rows.x == V
    assert (masked[:, 1:] >= masked[:, :-1]).all()  # nothing is seen behind a mask
    assert not ((all_rows.x == 0) & (all_rows.x0 == 0)).any()  # and no end
    assert batches(corpus, suffix_share=0.5).at(3).noised.x.equal(some.x)


def test_no_uniform_is_used_twice():
    assert SUFFIXES not in range(SUFFIXES)
    assert Batches.__dataclass_fields__["suffix_share"].default == 0


def test_a_net_learns_the_law_it_is_drawn_by(corpus, tmp_path):
    """Sixteen texts, equally often: 4 coins. Half the rows in order; held-out likelihood and draws agree with it."""
    learn = {"steps": 300, "batch": 64, "ema": 0.97, "checkpoint_every": 300, "evaluation_passes": 16}
    config = settings(corpus, task="unconditional", suffix_share=0.5, **learn)
    found = loop.train(config, tmp_path)["metrics"]
    coins = 4 * math.log(2) / LENGTH
    assert coins - 5 * found["in_order_stderr"] < found["in_order"] < 1.03 * coins
    assert found["bound"] < 1.06 * coins
    assert found["in_order_per_token"] == pytest.approx(found["in_order"] * LENGTH / 4)
    text = tt.load(tmp_path / "model")
    fk = tt.Composed(text.model(length=LENGTH), order=tuple(range(LENGTH)))
    drawn = tt.run(fk, particles=256, seed=0)
    said = {tuple(words) for words, _ in texts()}
    decoded = [tuple(text.tokenizer.decode(row).split()) for row in drawn.particles.reshape(-1, LENGTH).tolist()]
    assert sum(one in said for one in decoded) >= 250
    assert len(set(decoded) & said) == 16


def test_only_a_net_trained_in_order_is_measured_in_order(corpus, tmp_path):
    assert "in_order" not in loop.train(settings(corpus, task="unconditional"), tmp_path / "a")["metrics"]
    card = loop.train(settings(corpus, suffix_share=1.0), tmp_path / "b")
    assert {"in_order", "conditional_in_order", "conditional_in_order_per_token"} <= card["metrics"].keys()


def test_resuming_and_fingerprints(corpus, tmp_path):
    config = settings(corpus, task="unconditional", suffix_share=0.5)
    plain = settings(corpus, task="unconditional")
    assert config.fingerprint() != plain.fingerprint()
    assert plain.fingerprint() == settings(corpus, task="unconditional", suffix_share=0.0).fingerprint()
    whole = loop.train(config, tmp_path / "whole")
    loop.train(settings(corpus, task="unconditional", suffix_share=0.5, max_seconds=1e-9), tmp_path / "parts")
    again = loop.train(config, tmp_path / "parts", resume=True)
    assert again["metrics"] == whole["metrics"]
    with pytest.raises(InvalidInput, match="another"):
        loop.train(plain, tmp_path / "parts", resume=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"suffix_share": 1.5}, "from 0 to 1"),
        ({"suffix_share": 0.5, "task": "potential"}, "unconditional and conditional"),
        ({"suffix_share": 0.5, "process": "uniform", "net": {"masked": False}}, "masking"),
        ({"suffix_share": 0.5, "modality": "digits"}, "on text"),
    ],
)
def test_what_cannot_be_trained_in_order_is_refused(corpus, changes, words):
    with pytest.raises(InvalidInput, match=words):
        settings(corpus, **{"task": "unconditional", **changes})


def test_packed_rows_are_used_to_their_end(corpus):
    config = settings(corpus, task="unconditional", suffix_share=1.0, rows="packed")
    run = TrainingRun.prepare(config, corpus)
    assert load_texts(config, run.task)[0].used.unique().tolist() == [LENGTH]
    assert run.batches().at(0).noised.x.shape[1] == LENGTH
