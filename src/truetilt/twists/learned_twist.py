"""A learned twist: its values, how good it is on held-out draws, what it cost, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..core.arguments import (
    device_here,
    function,
    listed,
    path_of,
    reals,
    set_fields,
    shown,
    token_rows,
    whole_number,
)
from ..core.errors import InvalidInput
from ..core.evaluation import is_on_host
from ..core.spent import Spent
from ..core.storage import check_plain, parse_json, write_with
from ..core.types import Potential, Tokens
from ..rewards.calls import check_strength_of
from .kriging import TabulatedTwist
from .layout import TableLayout
from .lessons import Lessons, effective
from .network import NetworkTwist
from .recorded_draws import token_values
from .tables import TableTwist

_FORMAT, _VERSION = "truetilt-twist", 1
_MOST = 1 << 24  # entries of a twist that is read from a file, at most
_FEWEST = 5  # held-out draws with all their steps that are needed to estimate the ESS from whole log-weights
_FIGURES = "give its figures as tt.learn_twist does, tt.HeldOut each, and what it cost as a tt.Spent"
_ORDER = "give every site once, in the order of revealing, or None"
_EFFECTIVE = 5  # effective held-out draws that tempering of their weights must leave


@runtime_checkable
class LaidOut(Protocol):
    """A twist that says how its entries are laid out, and so for which states: those of the library's families."""

    @property
    def layout(self) -> TableLayout: ...


class HeldOut(NamedTuple):
    """How good a family's twist is on held-out draws, to which it was not fitted.

    The figures but `ess` are standard deviations in nats over draws of equal weight, and 0 is perfect.

    Args:
        family: Name of the family.
        closing: That of $strength * (reward - twist)$ on clean states of the last round.
        constant: That of $strength * reward$, which a constant twist would leave.
        steps: `steps[m - 1]` is that of the sampler's log-weight at the step that reveals one of m masked sites.
        ess: Estimated effective share of particles drawn with the twist and never resampled: 1 is perfect. It alone
            weighs draws by their share in the target.
    """

    family: str
    closing: float
    constant: float
    steps: tuple[float, ...]
    ess: float

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
    """A learned value of a state, clean or partly masked, in units of the reward: $log E[exp(strength r) | x] /
    strength$.

    Made by `tt.learn_twist`; give it to a sampler as its `twist`. It is finite on every state and deterministic.

    Args:
        twist: Function (x, t) that returns the value in nats, $strength$ times what this returns.
        vocabulary: Number of tokens S, without the mask.
        strength: Factor of the reward that it was learned for.
        held_out: Figures of the chosen family on held-out draws.
        tried: Figures of every family, the best first.
        order: The order in which sites were revealed when it was learned; None: random.
        spent: What learning it cost.
    """

    twist: Potential  # in nats
    vocabulary: int
    strength: float
    held_out: HeldOut  # figures of the chosen family
    tried: tuple[HeldOut, ...]  # figures of every family, the best first
    order: tuple[int, ...] | None  # the order in which sites were revealed when it was learned; None: random
    spent: Spent

    def __post_init__(self) -> None:
        function("twist", self.twist, "(x, t)")
        set_fields(self, vocabulary=whole_number("vocabulary", self.vocabulary, 1))
        set_fields(self, strength=check_strength_of(self.strength))
        tried = listed("tried", self.tried, _FIGURES)
        if not all(isinstance(one, HeldOut) for one in (self.held_out, *tried)) or not isinstance(self.spent, Spent):
            raise InvalidInput(f"held_out and tried are {shown(self.held_out)} and {shown(self.tried)}; {_FIGURES}")
        set_fields(self, tried=tuple(tried))
        if self.order is not None:
            sites = [whole_number("a site of order", site, 0) for site in listed("order", self.order, _ORDER)]
            if sorted(sites) != list(range(len(sites))):
                raise InvalidInput(f"order is {shown(self.order)}; {_ORDER}")
            set_fields(self, order=tuple(sites))

    @property
    def length(self) -> int | None:
        """The number of sites it was learned for; None for a user's family without a `layout`."""
        known = isinstance(self.twist, LaidOut) and isinstance(self.twist.layout, TableLayout)
        return self.twist.layout.length if known else None

    def __call__(self, x: Tokens, t: float) -> Tensor:
        x = self._states(x)
        return reals("what the twist returned", self.twist(x, t), "return one number a state") / self.strength

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The value of x [B, D] with a site [B] set to every token, float64 [B, S]."""
        x, site = self._states(x), token_rows("site", site, "give a site for each state, int64 [B]")
        if x.dim() != 2 or site.shape != x.shape[:1] or _outside(site, x.shape[1]):
            raise InvalidInput(f"site is {shown(site)} for states {tuple(x.shape)}; give one of their sites for each")
        return token_values(self.twist, x, site, t, self.vocabulary) / self.strength

    def _states(self, x: object) -> Tokens:
        """States of the tokens and the length that it was learned for."""
        found, length = token_rows("a state", x), self.length
        if (length is not None and found.shape[-1] != length) or _outside(found, self.vocabulary + 1):
            raise InvalidInput(
                f"states are {shown(x)}; the twist was learned for tokens 0 to {self.vocabulary}, the mask last, at "
                f"{'its' if length is None else length} sites"
            )
        return found

    def save(self, path: str | Path) -> None:
        """Write the twist and its figures to one safetensors file; only for the library's own families."""
        if not isinstance(self.twist, TableTwist | NetworkTwist | TabulatedTwist):
            raise InvalidInput(f"a {type(self.twist).__name__} is of a family of your own; save it as you made it")
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            **form_of(self.twist),
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
        device_here(device)
        try:
            with safe_open(check_plain(path), "pt") as file:
                facts = parse_json((file.metadata() or {}).get("truetilt", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return _read(facts, tensors, device)
        except FileNotFoundError as error:
            raise InvalidInput(f"there is no file {path}; give one that LearnedTwist.save wrote") from error
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path} is no saved twist ({error}); give one that LearnedTwist.save wrote") from error


def _outside(tokens: Tensor, most: int) -> bool:
    """Whether numbers lie outside 0 to most - 1; not looked at where that would stop the device."""
    return is_on_host(tokens) and bool(((tokens < 0) | (tokens >= most)).any())


def _read(facts: Any, tensors: dict[str, Tensor], device: torch.device | str) -> LearnedTwist:
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT or facts.get("version") != _VERSION:
        raise ValueError("its header is another's")
    twist = of_form(facts, tensors, device)
    tried = tuple(_held_out(one) for one in facts["tried"])
    spent = Spent(*(_count(one) for one in facts["spent"]))
    held_out, size = _held_out(facts["held_out"]), twist.layout.states - 1
    return LearnedTwist(twist, size, facts["strength"], held_out, tried, facts["order"], spent)


OwnForm = TableTwist | NetworkTwist | TabulatedTwist  # the forms of the library's own families, which files hold


def form_of(twist: OwnForm) -> dict[str, Any]:
    """What a file says of a twist of the library's own families, beside its tensors."""
    return {"kind": type(twist).__name__, "layout": list(twist.layout)}


def of_form(facts: Any, tensors: dict[str, Tensor], device: torch.device | str) -> OwnForm:
    """The twist of a file, from what it says and its tensors; raises KeyError or ValueError if they make none."""
    kinds: dict[str, type[OwnForm]] = {one.__name__: one for one in (TableTwist, NetworkTwist, TabulatedTwist)}
    layout = TableLayout(*(_count(size) for size in facts["layout"]))
    if not 0 <= layout.reach < layout.length or layout.states < 2 or layout.size > _MOST:
        raise ValueError("its layout is impossible")
    if not all(tensor.dtype == torch.float64 and bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise ValueError("its numbers are not finite float64")
    return kinds[facts["kind"]].of(layout, tensors).to(device)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _held_out(found: Any) -> HeldOut:
    family, closing, constant, steps, *rest = found
    spread = math.hypot(closing, *steps)
    (ess,) = rest or (math.exp(-(spread**2)),)
    figures = float(closing), float(constant), tuple(float(step) for step in steps)
    return HeldOut(str(family), *figures, float(ess))


class Judged(NamedTuple):
    """The errors of a twist on held-out lessons."""

    left: Tensor  # value minus twist, on draws of the last round
    step: Tensor  # log-weights of the steps of these draws
    masked: Tensor  # number of masked sites at each of these steps
    total: Tensor  # [n], the whole log-weight of each draw; NaN if not all its steps are recorded


def leavings(twist: Potential, lessons: Lessons) -> Judged:
    """The errors and log-weights of a twist on held-out lessons."""
    steps, mask, (n, length) = lessons.steps, lessons.mask, lessons.x.shape
    left = lessons.value - twist(lessons.x, 0.0)
    gain = token_values(twist, steps.x, steps.site, 0.0, mask) - twist(steps.x, 0.0)[:, None]
    log_w = (steps.log_p + gain.gather(1, steps.tokens)).logsumexp(-1)
    whole = torch.bincount(steps.draw, minlength=n) == length
    start = twist(torch.full((1, length), mask), 0.0)
    total = torch.where(whole, start + left.index_add(0, steps.draw, log_w), torch.nan)
    latest, own = lessons.latest, lessons.latest[steps.draw]
    return Judged(left[latest], log_w[own], (steps.x[own] == mask).sum(-1), total)


def judge(
    family: str,
    twists: Sequence[Potential],
    held: Sequence[Lessons],
    fitted: Sequence[Lessons] = (),
    known: float = 0.0,
) -> HeldOut:
    """The figures of a family, from its twists and the lessons held out from each of them.

    A run meets states that were fitted too, with this `known` share of the target: the effective share counts lessons
    that each twist was `fitted` to as much.
    """
    parts = [leavings(twist, lessons) for twist, lessons in zip(twists, held, strict=True)]
    left, log_w, masked, total = (torch.cat(column) for column in zip(*parts, strict=True))
    value, weight = torch.cat([one.value[one.latest] for one in held]), torch.cat([one.log_weight for one in held])
    spreads = tuple(_std(log_w[masked == m]) for m in range(1, held[0].x.shape[1] + 1))
    found = HeldOut(family, _std(left), _std(value), spreads, 0.0)
    if not math.isfinite(found.spread):
        raise InvalidInput(f"the twist of the family {family!r} is NaN or infinite on some state; it must be finite")
    whole = ~total.isnan()
    if int(whole.sum()) < _FEWEST:
        return found._replace(ess=math.exp(-(found.spread**2)))
    total, share = total[whole], tempered(weight[whole])
    again = [leavings(twist, lessons).total for twist, lessons in zip(twists, fitted, strict=False)]
    if again:
        others, weight = torch.cat(again), torch.cat([one.log_weight for one in fitted])
        whole = ~others.isnan()
        total = torch.cat([total, others[whole]])
        share = torch.cat([share + math.log1p(-known), tempered(weight[whole]) + math.log(known)])
    return found._replace(ess=effective_share(total, share))


def _std(values: Tensor) -> float:
    return float(values.std()) if len(values) > 1 else 0.0


def tempered(log_weight: Tensor) -> Tensor:
    """Normalised log-weights: the weights raised to the largest power, at most 1, that leaves `_EFFECTIVE` draws
    effective."""
    powers = torch.cat([torch.ones(1), torch.linspace(1, 0, 100) ** 2])
    shares = (powers[:, None].double() * log_weight).log_softmax(-1)
    return next(share for share in shares if effective(share) >= min(_EFFECTIVE, len(share) - 1e-6))


def effective_share(log_w: Tensor, share: Tensor) -> float:
    """Effective share of particles drawn with the twist: 1 / (E w E 1/w) over draws of the target."""
    return min(math.exp(-float((share + log_w).logsumexp(0) + (share - log_w).logsumexp(0))), 1.0)
