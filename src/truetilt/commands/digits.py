"""What the digit experiments share: the embedded nets, what a run cost, and the figures of each row.

What the real digits are like is shipped as numbers, made from the data by
`python -m truetilt.commands.digits reference --data DIR`; coverage needs the digits themselves.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..core.storage import write_json
from ..core.types import Batch, BatchScore, InvalidInput, Model, Potential, Process, Score, SiteLogits, Tokens, ask
from ..metrics.images import accuracy, coverage, diversity_ratio, mean_distance, surviving_roots
from ..models.hub import Digits, load
from ..models.score import FORMS
from ..result import Result
from ..smc.stream import OUTPUT, Stream
from .jobs import Answer, Settings

REFERENCE = "checkpoints/mnist/reference.json"
CLASSES = tuple(range(10))
QUICK_CLASSES = (4, 8, 9)  # those a judge confuses most
BATCH, QUICK_BATCH = 512, 16  # states a net is asked about at a time, on a GPU and on the CPU
SHOWN = 16  # draws of each class on a contact sheet
_LOT = 64  # real digits whose coverage of the test set is shipped beside the distances


class Bundle(Protocol):
    """Nets of one data set: a model for each condition, and a judge that no guidance saw."""

    @property
    def process(self) -> Process: ...
    @property
    def classes(self) -> int: ...
    def model(self, condition: int, form: str = "potential") -> Model: ...
    def judge(self, x: Tokens) -> Tensor: ...


@lru_cache(maxsize=1)
def bundle(device: str) -> Bundle:
    """The embedded networks, loaded once a process (cached).

    On a GPU they run in float16: bfloat16 has 8 bits, and rounding the logits of 784 sites by it would add about a nat
    to the spread of the log-ratio that the experiments measure.
    """
    if torch.device(device).type == "cpu":
        return in_full_precision(device, QUICK_BATCH)
    return warmed(load("mnist", device, batch=BATCH, dtype=torch.float16, compile=True))


def warmed(nets: Digits) -> Digits:
    """The same networks, each evaluated once in every way, so that compilation is not counted in a run's time."""
    for form in FORMS:
        model = nets.model(0, form)
        x = torch.full((1, model.length), model.process.states - 1, device=model.device)
        for net in (model.base, model.conditional, model.potential):
            _ = net and net(x, 1.0)
    nets.judge(torch.zeros_like(x))
    return nets


def in_full_precision(device: str, batch: int = BATCH) -> Bundle:
    """The embedded nets asked in float32, as they are."""
    return load("mnist", device, batch=batch)


@lru_cache(maxsize=1)
def reference() -> dict[int, dict[str, Any]]:
    """The shipped figures of the real digits, by class."""
    try:
        found = json.loads(resources.files("truetilt").joinpath(REFERENCE).read_text(encoding="utf-8"))
        return {entry["digit"]: entry for entry in found["classes"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InvalidInput(
            f"{REFERENCE} is missing or damaged ({e}); make it from the data: "
            "python -m truetilt.commands.digits reference --data DIR"
        ) from e


@dataclass
class StateCounter:
    """Counts the states that each network is evaluated on, a count that does not depend on the chunk size."""

    states: dict[str, int] = field(default_factory=dict)

    def watch(self, model: Model) -> Model:
        nets = {"base": model.base, "conditional": model.conditional, "potential": model.potential}
        return replace(model, **{name: self._count(name, net) for name, net in nets.items() if net is not None})

    def _count(self, name: str, net: Score | Potential) -> Any:
        return (CountedPotential if name == "potential" else CountedScore)(net, name, self)

    def add(self, name: str, states: int) -> None:
        self.states[name] = self.states.get(name, 0) + states


@dataclass(frozen=True)
class CountedScore(BatchScore):
    """A Score whose states are counted."""

    asks_others: ClassVar[bool] = True
    score: Any
    name: str
    meter: StateCounter

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        self.meter.add(self.name, len(batch.x))
        return ask(self.score, batch, t)


@dataclass(frozen=True)
class CountedPotential:
    """A Potential whose states are counted."""

    potential: Any
    name: str
    meter: StateCounter

    def __call__(self, x: Tokens, t: float) -> Tensor:
        self.meter.add(self.name, len(x))
        return self.potential(x, t)


class Cost(NamedTuple):
    """What a run cost: network evaluations of a particle, and seconds in all."""

    networks: float  # base and conditional together
    potentials: float
    seconds: float


def cost_of(meter: StateCounter, particles: int, seconds: float) -> Cost:
    seen = {name: count / particles for name, count in meter.states.items()}
    return Cost(seen.get("base", 0.0) + seen.get("conditional", 0.0), seen.get("potential", 0.0), seconds)


def part_of(result: Result, first: int, count: int) -> Result:
    """Some populations of a result, alone."""
    here = slice(first, first + count)
    others = {"particles", "log_weights", "times", "settings", "snapshot_steps"}
    paths = {f.name: getattr(result, f.name)[:, here] for f in fields(result) if f.name not in others}  # [steps, ...]
    return replace(result, particles=result.particles[here], log_weights=result.log_weights[here], **paths)


def counted_equally(result: Result) -> Result:
    """Every living population with the same mass: draws of several are independent, each biased by order 1/N."""
    log_z = result.population_log_z[:, None]
    return replace(result, log_weights=torch.where(log_z > -torch.inf, result.log_weights - log_z, -torch.inf))


def figures_of(nets: Bundle, condition: int, result: Result, real: Tokens | None, seed: int) -> Answer:
    """How good the samples of one condition are; populations count equally, particles by weight."""
    result = counted_equally(result)
    x, weights, levels = result.particles.flatten(0, 1), result.weights.reshape(-1), nets.process.vocabulary
    drawn = result.draw(len(x), seed)
    return {
        "condition": condition,
        "accuracy": accuracy(nets.judge(x), condition, weights),
        "diversity_ratio": diversity_ratio(x, reference()[condition]["test"]["distance"], weights, levels),
        "coverage": None if real is None else coverage(real.to(x.device), drawn, levels=levels),
        "roots": surviving_roots(result.ancestors),
        "ess": float((result.final_ess / result.particles.shape[1]).mean()),
        "ess_least": float((result.ess.amin(0) / result.particles.shape[1]).mean()),
    }


def covered_by(nets: Bundle, condition: int, result: Result, settings: Settings) -> float | None:
    """The share of the real digits of a class that the draws of all populations cover together."""
    real = real_digits(settings, condition)
    if real is None:
        return None
    drawn = counted_equally(result).draw(result.log_weights.numel(), settings.seed)
    return coverage(real.to(drawn.device), drawn, levels=nets.process.vocabulary)


def row(method: str, alpha: float, shape: tuple[int, int], figures: Answer, cost: Cost) -> Answer:
    """A row as every digit experiment writes it."""
    return {
        "method": method,
        "condition": figures["condition"],
        "alpha": alpha,
        "particles": shape[1],
        "populations": shape[0],
        "accuracy": figures["accuracy"],
        "accuracy_std": figures.get("accuracy_std"),
        **{name: figures[name] for name in ("diversity_ratio", "coverage", "roots", "ess", "ess_least")},
        "network_evaluations": cost.networks,
        "potential_evaluations": cost.potentials,
        "seconds": cost.seconds,
    }


def mean_row(rows: Sequence[Answer]) -> Answer:
    """The mean over the conditions of one method, with the spread of accuracy between them."""
    out = dict(rows[0]) | {"condition": "all"}
    for name in ("accuracy", "diversity_ratio", "coverage", "roots", "ess", "ess_least"):
        values = [r[name] for r in rows]
        out[name] = None if None in values else statistics.fmean(values)
    out["accuracy_std"] = statistics.stdev(r["accuracy"] for r in rows) if len(rows) > 1 else None
    return out | {"seconds": sum(r["seconds"] for r in rows)}


def picture(nets: Bundle, condition: int, result: Result, seed: int) -> Answer:
    """A few draws for a contact sheet, packed, and which of them the judge calls wrong."""
    x = counted_equally(result).draw(SHOWN, seed)
    wrong = (nets.judge(x).argmax(-1) != condition).tolist()
    return {"condition": condition, "levels": nets.process.vocabulary, "wrong": wrong, "images": packed(x)}


def packed(x: Tokens) -> str:
    """Tokens below 256 as text: zlib in base64."""
    return base64.b64encode(zlib.compress(x.to(torch.uint8).cpu().numpy().tobytes(), 9)).decode("ascii")


def unpacked(shown: Answer) -> np.ndarray:
    """Grey levels 0..1 [n, D] of a packed picture."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(shown["images"])), dtype=np.uint8)
    return flat.reshape(len(shown["wrong"]), -1) / (shown["levels"] - 1)


def conditions(settings: Settings) -> tuple[int, ...]:
    return QUICK_CLASSES if settings.quick else CLASSES


@lru_cache(maxsize=1)
def _test_set(folder: str) -> Any:
    from ..training.data import load_digits

    return load_digits(folder, "test")


def real_digits(settings: Settings, condition: int) -> Tokens | None:
    """The real test digits of a class, where the user named a folder."""
    if settings.data is None:
        return None
    digits = _test_set(settings.data)
    return digits.images[digits.labels == condition].long()


def check_data(settings: Settings) -> None:
    """A folder without digits is refused before any work."""
    real_digits(settings, 0)


def make_reference(folder: str, to: Path) -> None:
    """Write the figures of the real digits: how far apart two of a class are, and how well a lot covers the rest."""
    from ..training.data import load_digits

    train, test = load_digits(folder, "train"), load_digits(folder, "test")
    entries = []
    for digit in CLASSES:
        sets = {name: d.images[d.labels == digit].long() for name, d in (("train", train), ("test", test))}
        lot = sets["train"][Stream(digit).uniforms(0, OUTPUT, 1, (0, len(sets["train"])))[0].argsort()[:_LOT]]
        entry = {name: {"count": len(x), "distance": round(mean_distance(x), 5)} for name, x in sets.items()}
        entries.append({"digit": digit, **entry, "coverage_of_real": round(coverage(sets["test"], lot), 5)})
    about = {
        "source": "MNIST, the real digits; no image is held here",
        "distance": "mean Euclidean distance of two digits of the class, grey levels on 0..1, over all pairs",
        "coverage_of_real": f"share of the test digits covered by {_LOT} real training digits (5 nearest neighbours)",
        "command": "python -m truetilt.commands.digits reference --data DIR",
    }
    write_json(to, about | {"classes": entries})


def main(words: Sequence[str] | None = None) -> None:
    """`python -m truetilt.commands.digits reference --data DIR [--out FILE]`."""
    parser = argparse.ArgumentParser(prog="python -m truetilt.commands.digits")
    parser.add_argument("what", choices=["reference"])
    parser.add_argument("--data", required=True, help="folder with the four IDX files of MNIST")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / REFERENCE)
    given = parser.parse_args(words)
    make_reference(given.data, given.out)
    print(f"written: {given.out}")


if __name__ == "__main__":
    main()
