"""A twist that was learned: its values, how good it is on draws it was not fitted to, what it cost, and its file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..core.spent import Spent
from ..core.storage import check_plain, parse_json, write_with
from ..core.types import InvalidInput, Potential, Tokens, path_of
from .lessons import Lessons
from .network import NetworkTwist
from .revealing import token_values
from .tables import TableLayout, TableTwist

_FORMAT, _VERSION = "truetilt-twist", 1
_MOST = 1 << 24  # entries of a twist that is read


class HeldOut(NamedTuple):
    """How good a family's twist is on draws that it was not fitted to; all figures in nats of the log-weight.

    `closing` is the standard deviation of strength * (reward - twist) on clean states, `constant` that of strength *
    reward, which a constant twist would leave. `steps[m - 1]` is that of the sampler's log-weight at the step that
    reveals one of m masked sites. 0 is perfect.
    """

    family: str
    closing: float
    constant: float
    steps: tuple[float, ...]

    @property
    def r_squared(self) -> float:
        """The share of the reward's variance on clean states that the twist explains."""
        return 1 - (self.closing / self.constant) ** 2 if self.constant > 0 else 1.0

    @property
    def spread(self) -> float:
        """Standard deviation of the whole log-weight of a particle that is never resampled: below 1 is good."""
        return math.hypot(self.closing, *self.steps)


@dataclass(frozen=True, eq=False)
class LearnedTwist:
    """What a state, clean or partly masked, is worth in units of the reward: log E[exp(strength r) | x] / strength.

    Made by `tt.learn_twist`; give it to a sampler as its `twist`. It is finite on every state and holds no randomness.
    """

    twist: Potential  # in nats
    vocabulary: int
    strength: float
    held_out: HeldOut  # of the family that was chosen
    tried: tuple[HeldOut, ...]  # of every family, the best first
    order: tuple[int, ...] | None  # in which sites were revealed when it was learned; None: at random
    spent: Spent

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.twist(x, t).double() / self.strength

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The value of x [B, D] with a site [B] set to every token, float64 [B, S]."""
        return token_values(self.twist, x, site, t, self.vocabulary) / self.strength

    def save(self, path: str | Path) -> None:
        """Write it to one safetensors file, with what is known of it in the header; only for the library's families."""
        if not isinstance(self.twist, TableTwist | NetworkTwist):
            raise InvalidInput(f"a {type(self.twist).__name__} is of a family of your own; save it as you made it")
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": type(self.twist).__name__,
            "layout": list(self.twist.layout),
            "strength": self.strength,
            "held_out": list(self.held_out),
            "tried": [list(one) for one in self.tried],
            "order": self.order,
            "spent": list(self.spent),
        }
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.twist.tensors.items()}
        header = {"truetilt": json.dumps(facts, allow_nan=False)}
        write_with(path_of("path", path), lambda file: save_file(tensors, file, metadata=header))

    @staticmethod
    def load(path: str | Path, device: torch.device | str = "cpu") -> LearnedTwist:
        """Read a twist that `save` wrote."""
        path = path_of("path", path)
        try:
            with safe_open(check_plain(path), "pt") as file:
                facts = parse_json((file.metadata() or {}).get("truetilt", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return _read(facts, tensors, device)
        except FileNotFoundError as error:
            raise InvalidInput(f"there is no file {path}; give one that LearnedTwist.save wrote") from error
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path} is no saved twist ({error}); give one that LearnedTwist.save wrote") from error


def _read(facts: Any, tensors: dict[str, Tensor], device: torch.device | str) -> LearnedTwist:
    if facts.get("format") != _FORMAT or facts.get("version") != _VERSION:
        raise ValueError("its header is another's")
    kinds: dict[str, type[TableTwist | NetworkTwist]] = {"TableTwist": TableTwist, "NetworkTwist": NetworkTwist}
    layout = TableLayout(*(_count(size) for size in facts["layout"]))
    if not 0 <= layout.reach < layout.length or layout.states < 2 or layout.size > _MOST:
        raise ValueError("its layout is impossible")
    if not all(tensor.dtype == torch.float64 and bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise ValueError("its numbers are not finite float64")
    twist = kinds[facts["kind"]].of(layout, tensors).to(device)
    tried = tuple(_held_out(one) for one in facts["tried"])
    order = None if facts["order"] is None else tuple(_count(site) for site in facts["order"])
    spent = Spent(*(_count(one) for one in facts["spent"]))
    strength = float(facts["strength"])
    if strength == 0 or not math.isfinite(strength):
        raise ValueError("its strength is 0 or not finite")
    return LearnedTwist(twist, layout.states - 1, strength, _held_out(facts["held_out"]), tried, order, spent)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _held_out(found: Any) -> HeldOut:
    family, closing, constant, steps = found
    return HeldOut(str(family), float(closing), float(constant), tuple(float(step) for step in steps))


def judge(family: str, twist: Potential, lessons: Lessons) -> HeldOut:
    """The figures of a twist on lessons that it was not fitted to."""
    steps, mask = lessons.steps, lessons.mask
    closing = float((lessons.value - twist(lessons.x, 0.0)).std())
    masked = (steps.x == mask).sum(-1)
    gain = token_values(twist, steps.x, steps.site, 0.0, mask) - twist(steps.x, 0.0)[:, None]
    log_w = (steps.log_p + gain.gather(1, steps.tokens)).logsumexp(-1)
    spreads = [float(log_w[masked == m].std()) for m in range(1, lessons.x.shape[1] + 1)]
    found = HeldOut(family, closing, float(lessons.value.std()), tuple(spreads))
    if not math.isfinite(found.spread):
        raise InvalidInput(f"the twist of the family {family!r} is NaN or infinite on some state; it must be finite")
    return found
