"""`truetilt infill`: fill the gaps of a text with the networks of a bundle, or with a public network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..models.gaps import parts_with_gaps
from ..models.hub import load
from ..models.sequences import Sequences
from ..models.text_bundle import Reviews
from .request import SampleRequest
from .sample_strings import sample_strings
from .sample_text import Gaps, fill_gaps


def infill(name: str, asked: Gaps, folder: Path) -> dict[str, Any]:
    """Fill the gaps of a text, one token per step; save the particles and return the summary."""
    nets = load(name, asked.device, trust_remote_code=asked.trust_remote_code)
    if isinstance(nets, Sequences):
        return _by_public_network(name, nets, asked, folder)
    if not isinstance(nets, Reviews):
        raise InvalidInput(f"{name} holds {type(nets).__name__}, and gaps are filled by text nets; name tiny-reviews")
    return fill_gaps(name, nets, asked, folder)


def _by_public_network(name: str, nets: Sequences, asked: Gaps, folder: Path) -> dict[str, Any]:
    """Fill the gaps with a public network; the condition is the text around them."""
    if asked.condition is not None:
        raise InvalidInput(f"{name} has no classes; the text around the gaps is its condition: leave out --condition")
    steps = sum(part for part in parts_with_gaps(asked.text, nets.length) if isinstance(part, int))
    request = SampleRequest(
        None, asked.alpha, asked.beta, asked.particles, asked.populations, steps, asked.seed, asked.device,
        asked.text, None, asked.trust_remote_code,
    )  # fmt: skip
    return sample_strings(["infill", asked.text, "--model", name], nets, request, folder, {})
