"""Everything drawn on the way to a target, as one sample of it.

A pilot draws from p0, a round of learning from p0 exp(h) with the twist h it had. Each is a weighted sample of a law
p0 exp(h) / Z whose density relative to p0 is known on every clean state. Together they are a sample of the mixture of
these laws, and importance weights against the mixture (the balance heuristic of Veach & Guibas 1995) make them one
sample of p0 exp(value). The draws of p0 make it defensive: no weight exceeds exp(value) n / n_0, so that a mode which
they met cannot be forgotten by what was drawn later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..core.storage import check_plain, parse_json, write_with
from ..core.types import NEG_INF, Potential, Tokens
from .learned_twist import SavedTwist, form_of, of_form
from .recorded_draws import RevealedDraws


class Sample(NamedTuple):
    """Weighted draws of the law p0 exp(twist) / Z, with their values.

    Args:
        x: Clean states, int64 [n, D], on the CPU.
        value: What each is worth in nats, strength times reward, float64 [n]; -inf where forbidden.
        log_own: Log-weight of each as a draw of the law, [n], with weights of mean 1.
        twist: The twist h, a function (x, t) in nats; None: p0 itself.
        log_z: Log of the law's normaliser.
        device: Where the twist is asked.
        independent: Whether no draw is a copy of another, as resampling makes them.
    """

    x: Tokens
    value: Tensor
    log_own: Tensor
    twist: Potential | None = None
    log_z: float = 0.0
    device: torch.device | str = "cpu"
    independent: bool = True

    def first(self, count: int) -> Sample:
        """The first draws alone."""
        return self._replace(x=self.x[:count], value=self.value[:count], log_own=self.log_own[:count])

    def log_density(self, x: Tokens) -> Tensor:
        """Log of the expected number of its draws at each state [n], relative to p0."""
        value = 0.0 if self.twist is None else self.twist(x.to(self.device), 0.0).double().cpu()
        return torch.full((len(x),), math.log(len(self.x)) - self.log_z, dtype=torch.float64) + value

    def save(self, path: Path) -> None:
        """Write the draws with their law to one safetensors file; the twist is of the library's own families."""
        tensors = {"x": self.x, "value": self.value, "log_own": self.log_own}
        facts: dict[str, Any] = {"log_z": self.log_z, "independent": self.independent}
        if self.twist is not None:
            twist = cast("SavedTwist", self.twist)
            tensors |= {f"twist.{name}": tensor.cpu() for name, tensor in twist.tensors.items()}
            facts |= form_of(twist)
        metadata = {"truetilt": json.dumps(facts)}
        parts = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_with(path, lambda file: save_file(parts, file, metadata=metadata))


def read_sample(path: Path, device: torch.device | str) -> Sample:
    """Read what `Sample.save` wrote."""
    with safe_open(check_plain(path), "pt") as file:
        facts = parse_json((file.metadata() or {})["truetilt"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    own = {name.removeprefix("twist."): tensors[name] for name in tensors if name.startswith("twist.")}
    twist = of_form(facts, own, device) if own else None
    drawn = tensors["x"], tensors["value"], tensors["log_own"]
    return Sample(*drawn, twist, float(facts["log_z"]), device, facts["independent"])


def sample_of(drawn: RevealedDraws, value: Tensor, twist: Potential | None) -> Sample:
    """Draws led by a twist with their values: the mean of their weights is the normaliser of their law."""
    log_z = float(drawn.log_w.logsumexp(0)) - math.log(len(drawn.x))
    own = drawn.log_w.cpu() - log_z
    return Sample(drawn.x.cpu(), value.cpu().double(), own, twist, log_z, drawn.x.device, drawn.independent)


def log_drawn(samples: Sequence[Sample], x: Tokens) -> Tensor:
    """Log of the expected number of draws of all samples at each state [n], relative to p0."""
    return torch.stack([one.log_density(x) for one in samples]).logsumexp(0)


class Pooled(NamedTuple):
    """All samples as one: states [n, D], their values, and log-weights [n] whose sum estimates Z."""

    x: Tokens
    value: Tensor
    log_w: Tensor

    @property
    def log_z(self) -> float:
        return float(self.log_w.logsumexp(0))

    @property
    def heaviest(self) -> float:
        """The largest share of a state in all weights; 0 if none has weight."""
        if self.log_z == NEG_INF:
            return 0.0
        _, number = torch.unique(self.x, dim=0, return_inverse=True)
        share = torch.zeros(int(number.max()) + 1, dtype=torch.float64)
        return float(share.index_add(0, number, self.log_w.softmax(0)).max())


def pooled(samples: Sequence[Sample]) -> Pooled:
    """Samples as one, by importance weights against the mixture of their laws."""
    x, value, own = (torch.cat([getattr(one, name) for one in samples]) for name in ("x", "value", "log_own"))
    return Pooled(x, value, own + value - log_drawn(samples, x))
