"""The choices in the form: models, samplers, resampling schemes, and their labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..commands import samplers
from ..commands.samplers import HALF, MULTINOMIAL, PARTIAL
from ..core.types import Resampler
from ..smc.resampling import never, systematic


class Start(NamedTuple):
    """The numbers that the form shows after a model is chosen."""

    alpha: float = 4.0
    particles: int = 500
    populations: int = 4
    steps: int = 50


class Choice(NamedTuple):
    """A model that can be chosen: its label, the name of its condition, and suitable settings."""

    label: str
    words: str
    condition: str | None = None
    start: Start = Start()
    asked: str | None = None  # the initial condition
    offered: tuple[str, ...] = ()  # conditions to choose from
    sampler: str = "tilted"  # the initial sampler


MODELS: Mapping[str, Choice] = {
    "nine": Choice(
        "Nine states, two masked sites",
        "The paper’s figure 2. Small enough to know the answer: the exact target stands beside both samplers.",
    ),
    "six": Choice(
        "Six states, one site",
        "The paper’s figure 1: one site whose token is replaced at random. The answer is known exactly.",
    ),
    "mnist": Choice(
        "Digits",
        "Embedded networks of 28 × 28 pixels, masked. Some seconds a step on a CPU.",
        "Condition: the digit, 0 to 9",
        Start(3.0, 16, 4, 30),
        "4",
        tuple("0123456789"),
    ),
    "tiny-reviews": Choice(
        "Short reviews and comments",
        "Embedded text networks of 64 tokens, masked, small and trained for minutes. A second or two a step on a CPU.",
        "Condition: the class of the text",
        Start(4.0, 4, 4, 32),
        "positive",
        ("negative", "positive", "non-toxic", "toxic"),
    ),
    "plane": Choice(
        "Points in the plane",
        "A mixture of Gaussians: x₁ was seen with an error of 1.",
        "Condition: where x₁ was seen",
        Start(4.0, 250, 4, 80),
        "0.2",
    ),
    "protein": Choice(
        "A protein’s backbone",
        "ProteinMPNN proposes residues for a structure, PDB or mmCIF. Seconds for a few residues, half a minute for a "
        "small chain.",
        "Lean to other weights: soluble, or empty",
        Start(1.5, 8, 16, 1),
        "soluble",
        ("soluble", "vanilla"),
        "in-order",
    ),
    "molecules": Choice(
        "Molecules",
        "An embedded network of drug-like molecules, drawn piece by piece. Half a minute on a CPU.",
        "Reward: qed, logp=3, sa, …; several joined by “and”; empty: none",
        Start(1.0, 16, 4, 1),
        "qed",
        ("qed", "logp=4", "qed and lacks=C#N", "sa", "contains=c1ccncc1"),
        "in-order",
    ),
    "own": Choice(
        "My own table or networks",
        "A JSON table with p0 and likelihood, or a folder: networks as `truetilt train` writes them, one text net, or "
        "a public network of transformers.",
        "Condition: the class, for networks only",
    ),
}
SAMPLERS: Mapping[str, tuple[str, str]] = {  # a label, and what the sampler does
    name: (label, samplers.SAMPLERS[name].words)
    for name, label in {
        "tilted": "Tilted (recommended)",
        "tempered": "Tempered (the paper’s)",
        "any-order": "Any order",
        "in-order": "In the network’s order",
        "guidance": "Guidance only",
    }.items()
}
ORDERED = ("in-order", "guidance")  # samplers for a network that decodes in one order
WEIGHTS: Mapping[str, str] = {"vanilla": "Vanilla", "soluble": "Soluble"}
PACES: Mapping[str, str] = {"watch": "To be watched: 4 seconds at least", "fast": "As fast as it goes"}
PROCESSES: Mapping[str, str] = {"masking": "Masking", "uniform": "Uniform"}


class Scheme(NamedTuple):
    """A resampling scheme: in words, in Python, and the function itself."""

    words: str
    python: str
    made: Resampler


RESAMPLING: Mapping[str, Scheme] = {
    "half": Scheme("When ESS falls below half", "tt.adaptive(tt.systematic, 0.5)", HALF),
    "multinomial": Scheme("The same, multinomial", "tt.adaptive(tt.multinomial, 0.5)", MULTINOMIAL),
    "partial": Scheme("The same, half of the particles", "tt.adaptive(tt.partial(tt.systematic, 0.5), 0.5)", PARTIAL),
    "always": Scheme("At every step", "tt.systematic", systematic),
    "never": Scheme("Never", "tt.never", never),
}
