"""TF Bind 8: every sampler on a measured landscape, all 65,536 DNA 8-mers with how strongly a protein binds them.

The scores come from a folder of the user's: Design-Bench arrays, or a table of text with one 8-mer a row. Nothing is
downloaded. zeta is "it binds", p(zeta|x) = sigmoid((score - threshold) / temperature), with the 90th percentile of the
scores as threshold and a quarter of their standard deviation as temperature. p0 is uniform, or a Markov model of the
strong binders (those that reach the threshold). So the exact target is a sum over all 8-mers.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
import statistics
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ..any_order import AnyOrder
from ..api import run
from ..exact.tables import Table, flat_index, line_index
from ..processes import Masking
from ..rejuvenation import Gibbs, systematic_scan
from ..result import Result
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import Rejuvenation
from ..types import InvalidInput, Model, Score, SiteLogits, Tokens
from . import toys
from .jobs import Answer, Experiment, Job, Settings
from .table1 import hash_words

LETTERS, LENGTH = "ACGT", 8
COUNT = len(LETTERS) ** LENGTH
SHAPE = (len(LETTERS),) * LENGTH
PRIORS = {"uniform": 0, "markov1": 1, "markov2": 2}  # and the order of each
QUICK_PRIORS = ("uniform", "markov1")
ALPHAS = (2.0, 4.0)
PARTICLES, SWEEPS = 1000, 3
SEEDS, QUICK_SEEDS = 4, 1
REPLICATES = 10  # of the i.i.d. floor
SOME_TIME = 0.5  # of a masked state, posteriors and p(zeta|x) are the same at every time
STRONG = 0.9  # the quantile from which an 8-mer is a strong binder
METHODS = ("guidance-rate", "guidance-posterior", "smc-tilted", "any-order", "any-order-systematic", "any-order-moves")
SEQUENCE_NAMES = ("sequence", "seq", "8mer", "kmer", "dna", "x")
SCORE_NAMES = ("escore", "score", "bindingscore", "binding", "y", "value", "zscore")
FORMATS = (
    "arrays as Design-Bench has them (*x*.npy [n, 8] and *y*.npy [n]), or one .csv, .tsv or .txt (.gz too) whose "
    "header names a sequence and a score column"
)
TINT = {"iid": "#000000", "guidance": "#D55E00", "smc": "#0072B2", "any": "#009E73"}  # Okabe and Ito's
FIGURES = ("tv_mean", "pair_tv", "score_error", "distinct", "mean_score")


class Landscape(NamedTuple):
    """A score for every 8-mer, in the order of AAAAAAAA to TTTTTTTT, and where they come from."""

    scores: Tensor  # [65536], float64
    files: tuple[str, ...]
    rows: int  # read
    filled: int  # 8-mers that got the score of their reverse complement

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.scores.numpy().tobytes()).hexdigest()[:16]

    @property
    def threshold(self) -> float:
        return float(self.scores.quantile(STRONG))

    @property
    def temperature(self) -> float:
        return float(self.scores.std(correction=0)) / 4


def read_landscape(folder: Path) -> Landscape:
    """The scores in a folder; every fault is named."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}; --data must name one that holds {FORMATS}")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    pairs, texts = _pairs(files), [path for path in files if _is_table(path)]
    if len(texts) + bool(pairs) > 1:
        names = ", ".join(path.name for path in [*(pair[0] for pair in pairs), *texts])
        raise InvalidInput(f"{folder} holds several landscapes ({names}); leave only one there")
    if not pairs and not texts:
        raise InvalidInput(f"{folder} holds no landscape; it must hold {FORMATS}")
    used = [path for pair in pairs for path in pair] or texts
    parts = [_read_arrays(*pair) for pair in pairs] or [_read_text(texts[0])]
    index, scores = (np.concatenate(each) for each in zip(*parts, strict=True))
    table, filled = _whole(index, scores, folder)
    found = Landscape(torch.from_numpy(table), tuple(path.name for path in used), len(index), filled)
    if not found.temperature > 0:
        raise InvalidInput(f"{folder}: every 8-mer has the same score; a landscape must tell them apart")
    return found


def _pairs(files: list[Path]) -> list[tuple[Path, Path]]:
    """Arrays of sequences, each with its scores; several are shards."""
    arrays = [path for path in files if path.suffix == ".npy"]
    xs, ys = ([path for path in arrays if _names(path.stem, letter)] for letter in "xy")
    if len(xs) != len(ys):
        names = ", ".join(path.name for path in arrays)
        raise InvalidInput(f"{len(xs)} arrays of sequences (*x*.npy) and {len(ys)} of scores (*y*.npy) in {names}")
    return list(zip(xs, ys, strict=True))


def _names(stem: str, letter: str) -> bool:
    """Whether a file is named for x or y: as a word of its own, else by a letter that the other has not."""
    words = set(re.split(r"[^a-z]+", stem.lower()))
    if words & {"x", "y"}:
        return letter in words
    return letter in stem.lower() and ("y" if letter == "x" else "x") not in stem.lower()


def _read_arrays(x_path: Path, y_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The index of each sequence and its score."""
    x, y = _load(x_path), _load(y_path)
    if x.ndim != 2 or x.shape[1] != LENGTH:
        raise InvalidInput(f"{x_path} has shape {x.shape}; it must be [n, {LENGTH}], one 8-mer a row")
    if not ((x >= 0) & (x < len(LETTERS)) & (x == np.round(x))).all():
        raise InvalidInput(f"{x_path} has letters other than 0, 1, 2, 3 (A, C, G, T)")
    if y.shape not in ((len(x),), (len(x), 1)):
        raise InvalidInput(f"{y_path} has shape {y.shape}; {x_path.name} has {len(x)} rows, so it must be [{len(x)}]")
    scores = y.reshape(-1).astype(np.float64)
    bad = ~np.isfinite(scores)
    if bad.any():
        raise InvalidInput(f"{y_path}, row {int(bad.argmax())}: a score is NaN or infinite")
    return x.astype(np.int64) @ (len(LETTERS) ** np.arange(LENGTH)[::-1]), scores


def _load(path: Path) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise InvalidInput(f"{path} cannot be read as an array of numbers; it may be cut short ({e})") from e
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
        raise InvalidInput(f"{path} is not an array of numbers")
    return found


def _is_table(path: Path) -> bool:
    """A .csv or .tsv is meant as one; a .txt is if its header says so."""
    ends = [end for end in path.suffixes if end != ".gz"][-1:]
    if ends == [".txt"]:
        lines = _text(path).splitlines()
        return None not in _columns(lines[0] if lines else "")[1:]
    return ends in ([".csv"], [".tsv"])


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as e:
        raise InvalidInput(f"{path} cannot be read as text; it may be cut short ({e})") from e


def _columns(header: str) -> tuple[str, int | None, int | None]:
    """The separator, and which columns are the sequence and the score."""
    mark = next((mark for mark in "\t,;" if mark in header), ",")
    names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header.split(mark)]
    places = ([names.index(n) for n in known if n in names] for known in (SEQUENCE_NAMES, SCORE_NAMES))
    sequence, score = (next(iter(place), None) for place in places)
    return mark, sequence, score


def _read_text(path: Path) -> tuple[np.ndarray, np.ndarray]:
    text = _text(path)
    header = text.split("\n", 1)[0].strip()
    mark, sequence, score = _columns(header)
    if sequence is None or score is None:
        raise InvalidInput(
            f"{path}: the header is {header[:80]!r}; it must name a sequence column (such as sequence or 8-mer) and a "
            "score column (such as score or E-score)"
        )
    index, scores, reader = [], [], csv.reader(io.StringIO(text), delimiter=mark)
    try:
        next(reader)
        for row in filter(None, reader):
            index.append(_place(row[sequence].strip().upper()))
            scores.append(_finite(row[score]))
    except (ValueError, IndexError, csv.Error) as e:
        why = "a column is missing" if isinstance(e, IndexError) else e
        raise InvalidInput(f"{path}, line {reader.line_num}: {why}") from e
    return np.array(index, dtype=np.int64), np.array(scores)


def _place(sequence: str) -> int:
    if len(sequence) != LENGTH or not set(sequence) <= set(LETTERS):
        raise ValueError(f"{sequence[:40]!r} is not {LENGTH} letters of {LETTERS}")
    return int(sequence.translate(str.maketrans(LETTERS, "0123")), len(LETTERS))


def _finite(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"the score {word!r} is not a finite number")
    return value


def _whole(index: np.ndarray, scores: np.ndarray, folder: Path) -> tuple[np.ndarray, int]:
    """A score for every 8-mer; where one strand of a pair is listed, the other has its score."""
    table = np.full(COUNT, math.nan)
    table[index] = scores
    strays = ~np.isclose(table[index], scores, rtol=1e-6, atol=0)
    if strays.any():
        raise InvalidInput(f"{folder}: {_word(int(index[strays.argmax()]))} is listed twice with different scores")
    missing = np.isnan(table)
    table[missing] = table[_other_strand(np.flatnonzero(missing))]
    lost = np.flatnonzero(np.isnan(table))
    if len(lost):
        raise InvalidInput(
            f"{folder} has no score for {len(lost):,} of the {COUNT:,} 8-mers on either strand, {_word(int(lost[0]))} "
            "the first; all are needed"
        )
    return table, int(missing.sum())


def _word(index: int) -> str:
    return "".join(LETTERS[index // len(LETTERS) ** k % len(LETTERS)] for k in reversed(range(LENGTH)))


def _other_strand(index: np.ndarray) -> np.ndarray:
    """The reverse complement: A with T, C with G, read backwards."""
    digits = index[:, None] // len(LETTERS) ** np.arange(LENGTH) % len(LETTERS)  # backwards as it is
    return (len(LETTERS) - 1 - digits) @ len(LETTERS) ** np.arange(LENGTH)[::-1]


def prior_law(found: Landscape, order: int) -> Tensor:
    """Uniform (order 0), or a homogeneous Markov model of the strong binders, every count one more than seen."""
    if order == 0:
        return torch.full(SHAPE, 1 / COUNT, dtype=torch.float64)
    strong = torch.where(found.scores >= found.threshold, 1.0, 0.0).double().reshape(SHAPE)
    law = _window(strong, 0, order) + 1
    law = (law / law.sum()).reshape(*law.shape, *[1] * (LENGTH - order))
    step = 1 + torch.stack([_window(strong, first, order + 1) for first in range(LENGTH - order)]).sum(0)
    step = step / step.sum(-1, keepdim=True)
    for first in range(LENGTH - order):
        law = law * step.reshape(*[1] * first, *step.shape, *[1] * (LENGTH - order - first - 1))
    return law


def _window(law: Tensor, first: int, width: int) -> Tensor:
    """The marginal of neighbouring sites."""
    others = [d for d in range(LENGTH) if not first <= d < first + width]
    return law.sum(others)


def problem(found: Landscape, prior: str, device: str = "cpu") -> Table:
    """p0 and p(zeta|x) as tables."""
    binds = ((found.scores - found.threshold) / found.temperature).sigmoid().reshape(SHAPE)
    return Table(Masking(len(LETTERS)), prior_law(found, PRIORS[prior]).to(device), binds.to(device))


def lean_model(table: Table) -> Model:
    """`table.model()`, but only the lines that particles read are touched: there are 625,000."""
    process, model, expected = cast("Masking", table.process), table.model(), table.expected(1.0, SOME_TIME)
    some = torch.zeros(1, LENGTH, dtype=torch.int64, device=table.p0.device)

    def lean(score: Score) -> Score:
        rows = score(some, SOME_TIME).rows - process.log_odds_kept(SOME_TIME)
        return lambda x, t: SiteLogits.of(rows[line_index(x, process.states)] + process.log_odds_kept(t))

    def potential(x: Tokens, t: float) -> Tensor:
        return table.lookup(expected, x)

    conditional = None if model.conditional is None else lean(model.conditional)
    return replace(model, base=lean(model.base), conditional=conditional, potential=potential)


def jobs(settings: Settings) -> list[Job]:
    """One job for each prior, alpha and seed. The landscape is in their names, so that another is not taken for it."""
    found = read_landscape(Path(settings.data or ""))
    priors, seeds = _sizes(settings)
    return [
        Job(f"{found.digest}-{prior}-{alpha:g}-{number}", one_cell, (prior, alpha, number, settings))
        for prior in priors
        for alpha in ALPHAS
        for number in range(seeds)
    ]


def _sizes(settings: Settings) -> tuple[tuple[str, ...], int]:
    return (QUICK_PRIORS, QUICK_SEEDS) if settings.quick else (tuple(PRIORS), SEEDS)


def one_cell(prior: str, alpha: float, number: int, settings: Settings) -> Answer:
    """Every method on one target with one seed."""
    found = read_landscape(Path(settings.data or ""))
    table = problem(found, prior, settings.device)
    scores, target = found.scores.to(settings.device), table.target(alpha)
    seed, model = hash_words(settings.seed, number), lean_model(table)
    exact = float(target.reshape(-1) @ scores)
    measure = _Measure(target, scores)
    out = {"iid": measure.floor(seed) | {"log_z_error": None, "evaluations": 0}}
    for name in METHODS:
        meter = toys.Meter()
        result = sample(meter.watch(model), alpha, name, seed)
        error = None if name.startswith("guidance") else abs(result.log_z - _log_z(table, alpha, name))
        weights = result.weights.reshape(-1)
        out[name] = measure.of(result.particles.flatten(0, 1), weights / weights.sum())
        out[name] |= {"log_z_error": error, "evaluations": meter.rounds}
    return {"prior": prior, "alpha": alpha, "exact_score": exact, "methods": out}


def sample(model: Model, alpha: float, name: str, seed: int) -> Result:
    """Run a method."""
    if name == "any-order-moves":
        fk = AnyOrder(model, alpha, order=tuple(range(LENGTH)))
        moves = Rejuvenation(Gibbs(fk, systematic_scan), at_end=SWEEPS * LENGTH)
        half, grid = adaptive(systematic, 0.5), toys.one_site_a_step(model)
        return run(fk, grid, particles=PARTICLES, seed=seed, resample=half, moves=moves)
    method = toys.METHODS[name]
    fk, grid = method.build(model, alpha), method.grid(model)
    return run(fk, grid, particles=PARTICLES, seed=seed, resample=method.resample, couple=method.couple)


def _log_z(table: Table, alpha: float, name: str) -> float:
    return float(table.log_z_tilted(alpha) if "tilted" in name else table.log_z_tempered(alpha))


class _Measure(NamedTuple):
    """What is known of the target, against weighted 8-mers."""

    target: Tensor
    scores: Tensor

    def of(self, x: Tokens, weights: Tensor) -> Answer:
        place = flat_index(x, len(LETTERS))
        seen = torch.zeros_like(self.scores).scatter_add(0, place, weights).reshape(SHAPE)
        mean = float(seen.reshape(-1) @ self.scores)
        return {
            "tv_mean": self._miss(seen, 1),
            "pair_tv": self._miss(seen, 2),
            "mean_score": mean,
            "score_error": abs(mean - float(self.target.reshape(-1) @ self.scores)),
            "distinct": len(place[weights > 0].unique()) / len(place),
        }

    def _miss(self, seen: Tensor, width: int) -> float:
        """Mean TV of the marginals of neighbouring sites."""
        firsts = range(LENGTH - width + 1)
        gaps = (_window(seen, first, width) - _window(self.target, first, width) for first in firsts)
        return statistics.fmean(float(0.5 * gap.abs().sum()) for gap in gaps)

    def floor(self, seed: int) -> Answer:
        """As many independent draws, several times."""
        p = self.target.reshape(-1).cpu().numpy()
        counts = np.random.default_rng(seed).multinomial(PARTICLES, p / p.sum(), REPLICATES)
        states = torch.cartesian_prod(*[torch.arange(len(LETTERS))] * LENGTH)
        equal = torch.full((PARTICLES,), 1 / PARTICLES, dtype=torch.float64)
        each = [
            self.of(states[np.repeat(np.arange(COUNT), row)].to(self.scores.device), equal.to(self.scores.device))
            for row in counts
        ]
        return {key: statistics.fmean(one[key] for one in each) for key in FIGURES}


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the seeds."""
    found = read_landscape(Path(settings.data or ""))
    priors, seeds = _sizes(settings)
    rows = []
    for prior in priors:
        for alpha in ALPHAS:
            cells = [a for _, a in sorted(answers.items()) if (a["prior"], a["alpha"]) == (prior, alpha)]
            rows += [_row(cells, name) for name in ("iid", *METHODS)]
    source = {"files": found.files, "rows": found.rows, "filled": found.filled, "digest": found.digest}
    notes = [f"{found.filled:,} 8-mers have the score of their reverse complement, the strand that is listed"]
    return {
        "experiment": "tfbind8",
        "seeds": seeds,
        "particles": PARTICLES,
        "landscape": source | {"threshold": found.threshold, "temperature": found.temperature},
        "notes": notes if found.filled else [],
        "rows": rows,
    }


def _row(cells: list[Answer], name: str) -> Answer:
    each = [cell["methods"][name] for cell in cells]
    errors = [one["log_z_error"] for one in each]
    means = {key: statistics.fmean(one[key] for one in each) for key in FIGURES}
    return {
        "prior": cells[0]["prior"],
        "alpha": cells[0]["alpha"],
        "method": name,
        **means,
        "exact_score": cells[0]["exact_score"],
        "log_z_error": None if None in errors else statistics.fmean(errors),
        "network_evaluations": each[0]["evaluations"],
    }


def draw(result: Answer) -> Any:
    """For each prior and alpha: marginal TV as bars, and beside them the mean score against the exact one."""
    from matplotlib.figure import Figure

    priors, alphas = (list(dict.fromkeys(r[key] for r in result["rows"])) for key in ("prior", "alpha"))
    figure = Figure(figsize=(6.6 * len(alphas), 2.7 * len(priors) + 0.4), layout="constrained")
    seeds = f"mean of {result['seeds']} seeds" if result["seeds"] > 1 else "one seed"
    figure.suptitle(f"TF Bind 8: {result['particles']:,} particles, {seeds}; dotted: independent draws", fontsize=11)
    panels = figure.subfigures(len(priors), len(alphas), squeeze=False)
    limit = 1.25 * max(r["tv_mean"] for r in result["rows"])
    for i, prior in enumerate(priors):
        for j, alpha in enumerate(alphas):
            rows = [r for r in result["rows"] if (r["prior"], r["alpha"]) == (prior, alpha)]
            panels[i, j].suptitle(f"p₀ {prior}, α = {alpha:g}", fontsize=10)
            bars, dots = panels[i, j].subplots(1, 2, sharey=True)
            _bars(bars, rows, limit)
            _dots(dots, rows)
    return figure


def _tint(row: Answer) -> str:
    return TINT[row["method"].split("-")[0]]


def _bars(ax: Any, rows: list[Answer], limit: float) -> None:
    names = ["independent draws" if r["method"] == "iid" else r["method"] for r in rows]
    bars = ax.barh(names, [r["tv_mean"] for r in rows], color=[_tint(r) for r in rows], height=0.65)
    ax.bar_label(bars, [f"{r['tv_mean']:.3f}" for r in rows], fontsize=7, padding=2)
    ax.axvline(rows[0]["tv_mean"], color="black", ls=":", lw=0.8)
    ax.invert_yaxis()
    ax.set_xlim(0, limit)
    ax.set_xlabel("mean marginal TV", fontsize=8)
    ax.tick_params(labelsize=8)


def _dots(ax: Any, rows: list[Answer]) -> None:
    exact = rows[0]["exact_score"]
    for place, r in enumerate(rows):
        ax.plot([exact, r["mean_score"]], [place, place], color=_tint(r), lw=1.2)
        ax.plot(r["mean_score"], place, "o", color=_tint(r), ms=6)
    ax.axvline(exact, color="black", ls="--", lw=0.9)
    reach = 1.2 * max(abs(r["mean_score"] - exact) for r in rows)
    ax.set_xlim(exact - reach, exact + reach)
    ax.locator_params(axis="x", nbins=4)
    ax.set_xlabel("mean score (dashed: exact)", fontsize=8)
    ax.tick_params(labelsize=8)
    ax.grid(axis="y", color="#e5e5e5", lw=0.5)


EXPERIMENT = Experiment(
    "tfbind8",
    "TF Bind 8: every sampler on a measured landscape",
    jobs,
    collect,
    draw,
    ("prior", "alpha", "method", "tv_mean", "pair_tv", "score_error", "log_z_error", "distinct"),
)
