"""Asking scores about states: one batch for all scores of a step, with the shape of each answer checked."""

from __future__ import annotations

from torch import Tensor

from ..core.types import Batch, InvalidInput, Model, Score, SiteLogits, Tokens, ask, batch_of


def evaluate(model: Model, name: str, score: Score | None, x: Tokens, t: float) -> SiteLogits:
    """A score's answer about states [..., D], asked as one batch, with its shape checked against the process."""
    return evaluate_all(model, x, t, **{name: score})[0]


def evaluate_all(model: Model, x: Tokens, t: float, **scores: Score | None) -> list[SiteLogits]:
    """What each score says of x: one batch is made and shown to all, and answers that share an index still do."""
    batch, indices = Batch(batch_of(x)), dict[int, Tensor]()
    answers = [_asked(model, name, score, batch, t) for name, score in scores.items()]
    for answer in answers:
        if id(answer.index) not in indices:
            indices[id(answer.index)] = answer.index.reshape(x.shape)
    return [SiteLogits(answer.store, indices[id(answer.index)]) for answer in answers]


def _asked(model: Model, name: str, score: Score | None, batch: Batch, t: float) -> SiteLogits:
    if score is None:
        raise InvalidInput(f"this sampler needs a {name} score and the model has none")
    logits, size, x = ask(score, batch, t), model.process.vocabulary, batch.x
    if not isinstance(logits, SiteLogits):
        raise InvalidInput(
            f"the {name} score returned a {type(logits).__name__}; return tt.SiteLogits.of(log_scores), or give a "
            "network of posteriors as tt.PosteriorScore(process, net)"
        )
    if logits.vocabulary != size or logits.index.shape != x.shape:
        raise InvalidInput(
            f"the {name} score returned {logits.vocabulary} values at sites {tuple(logits.index.shape)} for a batch of "
            f"states {tuple(x.shape)}; the process has {size} tokens (the mask is not one): return "
            f"[{len(x)}, {x.shape[-1]}, {size}]"
        )
    return logits
