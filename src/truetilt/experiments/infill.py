"""Infilling: half the tokens of held-out sentences are given, the rest is drawn; GLEU-4 against what stood there.

The condition is the text around the gaps, so alpha tempers p(text|gaps). Reconstruction, the baseline, samples whole
texts without a condition and overwrites known tokens with the noise of the moment; all others see them from the start.
Given tokens are then kept by construction. `kept_unclamped` is what is not: the share of them that the net would write
again, were they all masked and only the fill were there. Every sentence is one population.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..any_order import AnyOrder
from ..feynman_kac import Tempered, Unweighted
from ..guidance import Guided, posterior_level
from ..kernels import tweedie
from ..metrics.text import gleu
from ..models.infilling import Retimed, given_text, open_sites
from ..models.reviews import Reviews
from ..schedules import masked_fraction_grid, uniform_grid
from ..smc.resampling import adaptive, never, systematic
from ..smc.resampling import partial as part
from ..smc.stream import OUTPUT, Stream
from ..training.corpus import Corpus
from ..types import FeynmanKac, InvalidInput, Model, Score, SiteLogits, Tokens
from .controlled import COLUMNS as TASK_COLUMNS
from .controlled import MODEL, option
from .digits import Meter
from .jobs import Answer, Experiment, Job, Settings
from .own_text import Given, words_of
from .text_rows import Line, distinct_2, mean_interval, write_lines
from .text_samplers import bundle, draws_of_each, in_lots

SHARE_OPEN = 0.5
SENTENCES_FULL, SENTENCES_QUICK = 250, 8
FULL_STEPS, QUICK_STEPS = 100, 24
SHORTEST, LONGEST = 12, 48  # tokens of a sentence that is taken
BASELINE = "reconstruction"
RUNS = (
    (BASELINE, None, 0.0), ("guidance-posterior", None, 1.0), ("guidance-posterior", None, 1.5),
    ("guidance-posterior", None, 2.0), ("smc-partial", 2.0, 1.0), ("smc-partial", 4.0, 1.0), ("any-order", 1.0, None),
    ("any-order", 1.5, None), ("any-order", 2.0, None), ("any-order-populations", 2.0, None),
)  # fmt: skip
QUICK_RUNS = (RUNS[0], RUNS[1], RUNS[4], RUNS[6], RUNS[8])
SHAPES = {"smc-partial": (1, 50), "any-order": (1, 16), "any-order-populations": (4, 4)}  # of a sentence; else 4 draws
QUICK_SHAPE = (1, 8)
COLUMNS = (*(name for name in TASK_COLUMNS if name != "condition"), "kept", "kept_unclamped")
SENTENCES = (  # where no corpus is given: written for this file
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
    """A text and its row with gaps."""

    text: str
    given: Given


@dataclass(frozen=True)
class Overwritten:
    """The Score of whole texts whose known tokens are overwritten as they appear; the net sees them only then."""

    score: Score
    given: Given

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        rows = self.score(x, t).dense().clone()
        known = [(site, token) for site, token in enumerate(self.given) if token is not None]
        if known:
            sites, tokens = torch.tensor(known, device=x.device).T
            size = rows[..., sites, :].logsumexp(-1)
            rows[..., sites, :] = -torch.inf
            rows[..., sites, tokens] = size
        return SiteLogits.of(rows)


def sentences(nets: Reviews, settings: Settings) -> list[Sentence]:
    """Held-out sentences with a random half of their tokens open."""
    many = SENTENCES_QUICK if settings.quick else SENTENCES_FULL
    rows = [nets.encode(text) for text in SENTENCES] if settings.data is None else _held_out(nets, settings.data)
    found, end = [], nets.tokenizer.end
    for number, tokens in enumerate(rows[:many]):
        u = Stream(settings.seed, number).uniforms(0, OUTPUT, 1, (0, len(tokens)))[0]
        gaps = set(u.argsort()[: max(1, round(SHARE_OPEN * len(tokens)))].tolist())
        row = [None if site in gaps else token for site, token in enumerate(tokens)]
        found.append(Sentence(nets.tokenizer.decode(tokens), (*row, *[end] * (nets.length - len(tokens)))))
    return found


def _held_out(nets: Reviews, folder: str) -> list[list[int]]:
    """Test rows of a prepared corpus, evenly spaced, that are neither very short nor cut off."""
    corpus = Corpus.read(folder)
    corpus.tokenizer.check_fits(nets.tokenizer.vocabulary, nets.tokenizer.fingerprint(), folder)
    texts = corpus.texts(("test",), labelled=True)
    used = texts.used - 1
    longest = min(LONGEST, nets.length - 1)
    chosen = ((used >= min(SHORTEST, longest)) & (used <= longest)).nonzero().squeeze(-1)
    if not len(chosen):
        raise InvalidInput(f"{folder} holds no test sentence of {SHORTEST} to {longest} tokens; give another corpus")
    chosen = chosen[:: max(1, len(chosen) // SENTENCES_FULL)]
    return [texts.tokens[row, : int(used[row])].tolist() for row in chosen.tolist()]


def jobs(settings: Settings) -> list[Job]:
    nets = bundle(option(settings, MODEL, "tiny-reviews"), settings.device)
    sentences(nets, settings)  # a corpus that does not fit is named before anything runs
    return [Job(_name(*run), one_run, (run, settings)) for run in (QUICK_RUNS if settings.quick else RUNS)]


def _name(method: str, alpha: float | None, beta: float | None) -> str:
    return "-".join([method, *(f"{v:g}" for v in (alpha, beta) if v is not None)])


@torch.no_grad()
def one_run(run: tuple[str, float | None, float | None], settings: Settings) -> Answer:
    """One sampler on every sentence: a row, its texts, and the GLEU of each sentence."""
    nets = bundle(option(settings, MODEL, "tiny-reviews"), settings.device)
    steps = QUICK_STEPS if settings.quick else FULL_STEPS
    shape = QUICK_SHAPE if settings.quick else SHAPES.get(run[0], (1, 4))
    lines, each, again, asked, steps_taken = [], [], [], 0.0, []
    for number, sentence in enumerate(sentences(nets, settings)):
        x, meter, taken = filled_in(nets, sentence.given, run, (shape, steps, settings.seed + number))
        said = words_of(nets, x, sentence.given)
        reference = [sentence.text.split()] * len(said)
        each.append(float(gleu([text.split() for text in said], reference).each.mean()))
        again.append(float(kept_unclamped(nets, x, sentence.given).mean()))
        lines += [Line(_name(*run), number, text, True, 0.0).__dict__ for text in said]
        steps_taken.append(taken)
        asked += sum(meter.states.values()) / (shape[0] * shape[1])
    row = _row(run, each, {"kept_unclamped": statistics.fmean(again), "network_evaluations": asked / len(each)})
    return {
        "row": row | {"steps": round(statistics.fmean(steps_taken)), "particles": shape[1]},
        "lines": lines,
        "each": each,
    }


def filled_in(
    nets: Reviews, given: Given, run: tuple[str, float | None, float | None], how: tuple[tuple[int, int], int, int]
) -> tuple[Tokens, Meter, int]:
    """Whole texts [n, D] of one sampler, who was asked how often, and the steps it took."""
    (method, alpha, beta), (shape, steps, seed), meter = run, how, Meter()
    plain = Model(nets.process, nets.length, nets.base(), None, None, nets.device)
    grid, resample = tuple(uniform_grid(steps)), never
    if method == BASELINE:
        model = meter.watch(plain)
        fk: FeynmanKac = Unweighted(model, Overwritten(model.base, given), kernel=tweedie)
        return draws_of_each(in_lots(fk, shape, grid, seed, {"resample": never}), seed).flatten(0, 1), meter, steps
    inside = given_text(plain, given)
    whole: Any = inside.conditional
    model = meter.watch(inside)
    if model.conditional is None:
        raise InvalidInput("filling in needs a Score of the gaps")
    if method.startswith("any-order"):
        fk, resample = AnyOrder(model, alpha or 1.0), adaptive(systematic, 0.5)
        grid = tuple(masked_fraction_grid(nets.process.schedule, model.length))
    elif method == "smc-partial":
        fk = Tempered(model, alpha or 1.0, beta or 0.0, posterior_level, kernel=tweedie)
        resample = adaptive(part(systematic, 0.5), 0.5)
    else:
        guided = Guided(model.process, model.base, model.conditional, beta or 0.0, posterior_level)
        fk = Unweighted(model, model.conditional if beta == 1 else guided, kernel=tweedie)
    result = in_lots(fk, shape, grid, seed, {"resample": resample})
    return whole.whole(draws_of_each(result, seed)).flatten(0, 1), meter, len(grid) - 1


def kept_unclamped(nets: Reviews, x: Tokens, given: Given) -> Tensor:
    """The chance of each given token of the text where all are masked and the fill is there, averaged [n]."""
    sites, end = open_sites(given), nets.tokenizer.end
    text = [site for site, token in enumerate(given) if token not in (None, end)]
    if not text:
        raise InvalidInput("no token of the text is given; there is none to keep")
    blank = torch.full_like(x, nets.process.mask).index_copy(-1, sites.to(x.device), x[:, sites])
    log_p = Retimed(nets.base(), len(given), len(given) - len(sites))(blank, 1.0).dense().double().log_softmax(-1)
    return log_p.gather(-1, x[..., None])[..., 0][:, text].exp().mean(-1)


def _row(run: tuple[str, float | None, float | None], each: Sequence[float], more: Answer) -> Answer:
    found = mean_interval([[value] for value in each])
    row = {"task": "infill", "name": _name(*run), "method": run[0], "alpha": run[1], "beta": run[2]}
    row |= {"score": found["value"], "score_low": found["low"], "score_high": found["high"], "perplexity": None}
    return row | {"kept": 1.0, "runs": len(each), "claim": False} | more


def collect(folder: Path, settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Rows, and each sampler's GLEU less the baseline's, sentence by sentence, with its interval."""
    names = [_name(*run) for run in (QUICK_RUNS if settings.quick else RUNS)]
    lines = [Line(**line) for name in names for line in answers[name]["lines"]]
    write_lines(folder, lines)
    rows = []
    for name in names:
        own = [line for line in lines if line.row == name]
        rows.append(answers[name]["row"] | {"distinct_2": distinct_2(own)})
    against = answers[_name(*RUNS[0])]["each"]
    gains = {name: paired(answers[name]["each"], against) for name in names if name != _name(*RUNS[0])}
    notes = ["kept is 1 by construction; kept_unclamped is the share that the net would write again"]
    return {"experiment": "infill", "score": "GLEU-4", "rows": rows, "gleu_over_reconstruction": gains, "notes": notes}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Answer:
    """The mean difference over the same sentences, with its Student interval."""
    return mean_interval([[a - b] for a, b in zip(ours, theirs, strict=True)])


def draw(result: Answer) -> Any:
    """A bar a sampler: GLEU with its interval, perplexity where known, what is kept unclamped."""
    from matplotlib.figure import Figure

    rows = result["rows"]
    names = {
        "score": "GLEU-4",
        "perplexity": "perplexity",
        "kept_unclamped": "kept, unclamped",
        "distinct_2": "distinct-2",
    }
    figure = Figure(figsize=(11, 0.32 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots(1, len(names))
    for ax, (name, words) in zip(axes, names.items(), strict=True):
        values = [math.nan if row[name] is None else row[name] for row in rows]
        colours = ["#e07b5a" if row["method"] == BASELINE else "#2e8b57" for row in rows]
        ax.barh(range(len(rows)), values, 0.7, color=colours)
        if name == "score" and all(row["score_low"] is not None for row in rows):
            reach = [row["score_high"] - row["score"] for row in rows]
            ax.errorbar(values, range(len(rows)), xerr=reach, fmt="none", color="black", lw=0.8, capsize=2)
        ax.set_title(words, fontsize=9)
        ax.set_yticks([])
        ax.invert_yaxis()
        ax.tick_params(axis="x", labelsize=7)
    axes[0].set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=7)
    return figure


def experiment(folder: Path) -> Experiment:
    """The task as an experiment that keeps its texts in a folder."""
    return Experiment("infill", "Gaps of held-out sentences", jobs, partial(collect, folder), draw, COLUMNS)
