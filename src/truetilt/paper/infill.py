"""Infilling: a range of tokens of held-out sentences is open, the rest given; GLEU-4 against the original.

The condition is the text around the gap, so alpha tempers p(text|gap). Reconstruction, the baseline, samples whole
texts without a condition and overwrites known tokens with their noised version; prompting writes the text with its gap
in front of a whole one; all others see the given tokens from the start and keep them by construction. Two columns
measure what is not kept by construction: `kept_unclamped` is the probability of the given tokens if they are masked and
only the fill is visible; `kept_drawn` is the share that a baseline drew as given, before overwriting. A sentence is a
population.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..commands.sample_text import Given, words_of
from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..metrics.text import gleu
from ..models.infilling import Retimed
from ..models.text_bundle import Reviews
from ..smc.sampler import OUTPUT, Stream
from ..training.corpus import Corpus
from .chosen_jobs import Part, chosen, identity, in_order, joined, nets_of
from .gap_fillers import PROMPTING, RECONSTRUCTION, Filled, FillRun, Way, fill, prompt_fits
from .text_conditions import COLUMNS as TASK_COLUMNS
from .text_grid import ALPHAS, BETAS
from .text_plots import draw_curves
from .text_rows import ScoredText, distinct_2, mean_interval, write_lines

LEAST, MOST = 23, 25  # tokens of a sentence: the gap, half of them, is then always twelve, so that all share a run
SENTENCES_FULL, SENTENCES_QUICK = 250, 8
FULL_STEPS, MANY_STEPS, QUICK_STEPS = 100, 1000, 24
DRAWS = 4  # texts kept per sentence
WAYS = (
    Way(RECONSTRUCTION),
    Way(PROMPTING),
    *(Way(method, None, beta) for method in ("guidance-posterior", "guidance-rate") for beta in BETAS),
    *(Way("smc-posterior", alpha, beta) for alpha in ALPHAS for beta in BETAS),
    *(Way("any-order", alpha) for alpha in (1.0, 1.5, 2.0, 4.0)),
    *(Way("any-order-populations", alpha) for alpha in (1.5, 2.0, 4.0)),
    *(Way("guidance-gibbs", alpha) for alpha in (1.0, 1.5, 2.0)),
    *(Way(method, None, None, MANY_STEPS) for method in (RECONSTRUCTION, PROMPTING)),  # the paper's Table 4
    Way("guidance-posterior", None, 1.0, MANY_STEPS),
    *(Way("smc-posterior", alpha, 1.0, MANY_STEPS) for alpha in ALPHAS),
)
QUICK_WAYS = (
    Way(RECONSTRUCTION),
    Way(PROMPTING),
    *(Way("guidance-posterior", None, beta) for beta in (0.0, 1.0, 2.0)),
    *(Way("smc-posterior", 2.0, beta) for beta in (0.0, 1.0, 2.0)),
    Way("any-order", 1.5),
    Way("guidance-gibbs", 1.5),
)
SHAPES = {
    "smc-posterior": (1, 50),
    "any-order": (1, 16),
    "any-order-populations": (4, 4),
}  # of a sentence; else 4 draws
QUICK_SHAPE = (1, 8)
COLUMNS = (*(name for name in TASK_COLUMNS if name != "condition"), "kept_unclamped", "kept_drawn", "bertscore")
SENTENCES = (  # used if no corpus is given: written for this file
    "the story begins slowly, but by the second half i could not look away.",
    "every scene feels twice as long as it should, and the jokes never land.",
    "she carries the whole picture with a quiet, honest performance.",
    "i wanted to like this film, but there is nothing in it to hold on to.",
    "a small and lovely drama about two brothers who have stopped talking.",
    "the music is loud, the plot is thin, and the ending makes no sense.",
    "it is the kind of comedy that makes you smile long after it is over.",
    "despite a good cast, the movie is a dull and lifeless piece of work.",
)


class Sentence(NamedTuple):
    """A text and its row with a gap."""

    text: str
    given: Given


def sentences(nets: Reviews, settings: Settings) -> list[Sentence]:
    """Held-out sentences with a gap of half their tokens at a random place."""
    many = SENTENCES_QUICK if settings.quick else SENTENCES_FULL
    rows = [nets.encode(text) for text in SENTENCES] if settings.data is None else _held_out(nets, settings.data)
    found, end = [], nets.tokenizer.end
    for number, tokens in enumerate(rows[:many]):
        size = max(1, round(len(tokens) / 2))
        u = float(Stream(settings.seed, number).uniforms(0, OUTPUT, 1, 1))
        first = int(u * (len(tokens) - size + 1))
        row = [None if first <= site < first + size else token for site, token in enumerate(tokens)]
        found.append(Sentence(nets.tokenizer.decode(tokens), (*row, *[end] * (nets.length - len(tokens)))))
    return found


def _held_out(nets: Reviews, folder: str) -> list[list[int]]:
    """Evenly spaced test rows of a prepared corpus, of lengths that all give the same gap."""
    corpus = Corpus.read(folder)
    corpus.tokenizer.check_fits(nets.tokenizer.vocabulary, nets.tokenizer.fingerprint(), folder)
    texts = corpus.texts(("test",), labelled=True)
    used, longest = texts.used - 1, nets.length - 1
    least, most = (LEAST, MOST) if longest >= MOST else (2, longest)
    found = ((used >= least) & (used <= most)).nonzero().squeeze(-1)
    if not len(found):
        raise InvalidInput(f"{folder} holds no test sentence of {least} to {most} tokens; give another corpus")
    found = found[:: max(1, len(found) // SENTENCES_FULL)]
    return [texts.tokens[row, : int(used[row])].tolist() for row in found.tolist()]


def jobs(part: Part, settings: Settings) -> list[Job]:
    sentences(nets_of(settings), settings)  # raises for a corpus that does not fit, before any job starts
    ways = QUICK_WAYS if settings.quick else WAYS
    return chosen(part, [Job(way.name, one_way, (way, settings)) for way in ways], settings)


def one_way(way: Way, settings: Settings) -> Answer:
    """One sampler on every sentence that fits: a row with the GLEU of each sentence, and its texts."""
    nets = nets_of(settings)
    every = list(enumerate(sentences(nets, settings)))
    own = [(n, s) for n, s in every if way.method != PROMPTING or prompt_fits(nets, s.given)]
    if not own:
        raise InvalidInput("no sentence fits behind a prompt that holds it; give shorter ones, or leave prompting out")
    shape = SHAPES.get(way.method, (1, DRAWS))
    steps = QUICK_STEPS if settings.quick else way.steps or FULL_STEPS
    shape = QUICK_SHAPE if settings.quick and shape[1] > QUICK_SHAPE[1] else shape
    filled = fill(nets, [s.given for _, s in own], way, FillRun(shape, DRAWS, steps, settings.seed))
    each, lines = {}, []
    for (number, sentence), x in zip(own, filled.x, strict=True):
        said = words_of(nets, x, sentence.given)
        each[str(number)] = statistics.fmean(_gleu(text, sentence.text) for text in said)
        lines += [ScoredText(way.name, number, text, True, 0.0).__dict__ for text in said]
    unclamped = kept_unclamped(nets, filled.x, [s.given for _, s in own])
    row = _row(way, each, filled) | {"kept_unclamped": float(unclamped.mean())}
    row |= {"particles": shape[1], "skipped": len(every) - len(own)}
    return {"row": row, "lines": lines}


def _gleu(text: str, reference: str) -> float:
    """GLEU-4 of one text; an empty one shares nothing."""
    return gleu([text.split()], [reference.split()]).corpus if text.split() else 0.0


def kept_unclamped(nets: Reviews, x: Tokens, texts: Sequence[Given]) -> Tensor:
    """The probability of each given token if all are masked and only the fill is visible, averaged over each text
    [texts].

    x is whole texts [texts, draws, D].
    """
    rows = torch.tensor([[-1 if token is None else token for token in given] for given in texts], device=x.device)
    own, open_ = (rows >= 0) & (rows != nets.tokenizer.end), rows < 0
    if not bool(own.any(-1).all()):
        raise InvalidInput("no token of the text is given; there is none to keep")
    out = torch.zeros(len(texts), dtype=torch.float64, device=x.device)
    for gaps in open_.sum(-1).unique().tolist():
        here = (open_.sum(-1) == gaps).nonzero().squeeze(-1)
        blank = torch.where(open_[here, None], x[here], nets.process.mask)
        answer = Retimed(nets.base(), nets.length, nets.length - gaps)(blank, 1.0)
        where = own[here, None].expand_as(blank).nonzero(as_tuple=True)
        tokens = rows[here, None].expand_as(blank)[where]
        chance = nets.process.posterior(answer, blank, 1.0).among(where).pick(tokens).exp()
        total = torch.zeros(len(here), dtype=torch.float64, device=x.device).index_add(0, where[0], chance)
        out[here] = total / (own[here].sum(-1) * x.shape[1])
    return out


def _row(way: Way, each: dict[str, float], filled: Filled) -> Answer:
    found = mean_interval([[value] for value in each.values()])
    row = {"task": "infill", "name": way.name, "method": way.method, "alpha": way.alpha, "beta": way.beta}
    row |= {"steps": filled.steps, "score": found["value"], "score_low": found["low"], "score_high": found["high"]}
    drawn = None if filled.kept is None else float(filled.kept.mean())
    row |= {"perplexity": None, "bertscore": None, "network_evaluations": filled.evaluations, "runs": len(each)}
    return row | {"kept": drawn if way.method == PROMPTING else 1.0, "kept_drawn": drawn, "claim": False, "each": each}


def collect(part: Part, settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Rows, and each sampler's GLEU minus the baseline's, sentence by sentence, with its interval."""
    names = [way.name for way in (QUICK_WAYS if settings.quick else WAYS)]
    found = [answers[name] for name in names if name in answers]
    new = [ScoredText(**line) for answer in found for line in answer["lines"]]
    rows, lines = joined(part, settings, [answer["row"] for answer in found], new)
    write_lines(part.folder, lines)
    own: dict[str, list[ScoredText]] = {row["name"]: [] for row in rows}
    for line in lines:
        own[line.row].append(line)
    rows = in_order(names, [row | {"distinct_2": distinct_2(own[row["name"]])} for row in rows])
    notes = ["given tokens are kept by construction but by prompting; see kept_unclamped and kept_drawn"]
    skipped = next((row["skipped"] for row in rows if row["method"] == PROMPTING), 0)
    if skipped:
        notes.append(f"prompting leaves out {skipped} sentences that do not fit behind their prompt")
    if len(rows) < len(names):
        notes.append(f"{len(names) - len(rows)} rows of the grid are not here (--only)")
    texts = [sentence.text for sentence in sentences(nets_of(settings), settings)]
    out = {"experiment": "infill", "score": "GLEU-4", "identity": identity(settings), "rows": rows}
    return out | {"gleu_over_reconstruction": gains(rows), "notes": notes, "sentences": texts}


def gains(rows: Sequence[Answer]) -> dict[str, Answer]:
    """GLEU of each sampler minus the baseline's, over the sentences that both filled; the baseline of as many steps."""
    each = {row["steps"]: row["each"] for row in rows if row["method"] == RECONSTRUCTION}
    if not each:
        return {}
    found = {}
    for row in rows:
        baseline = each.get(row["steps"], each[min(each)])
        both = [number for number in row["each"] if number in baseline]
        if row["method"] != RECONSTRUCTION and both:
            found[row["name"]] = paired([row["each"][n] for n in both], [baseline[n] for n in both])
    return found


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Answer:
    """The mean difference over the same sentences, with its Student interval."""
    return mean_interval([[a - b] for a, b in zip(ours, theirs, strict=True)])


def draw(result: Answer) -> Any:
    """The curves, without prompting, whose GLEU is so low that no other difference would be visible."""
    return draw_curves(result | {"rows": [row for row in result["rows"] if row["method"] != PROMPTING]})


def experiment(folder: Path, only: str | None = None) -> Experiment:
    """The task as an experiment that stores its texts in a folder."""
    part = Part(folder, only)
    title = "A gap in held-out sentences"
    return Experiment("infill", title, partial(jobs, part), partial(collect, part), draw, COLUMNS)
