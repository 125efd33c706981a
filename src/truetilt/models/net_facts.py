"""What a network says of itself in its `config`: how many tokens, sites and classes it knows.

A network may be anybody's, and may be compiled, so nothing is asked of it: each part may be left out, and is then not
checked. Networks of a `TextScore` must say their sizes, see `TokenNet`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from ..core.arguments import has, shown
from ..core.errors import InvalidInput
from ..core.logits import SiteLogits
from ..core.types import Process, Tokens

_HIDDEN = 1024  # features of a site where a net does not say
_SIZES = ("vocabulary", "masked", "length")  # of `NetSizes`


class NetFacts(NamedTuple):
    """The attributes of a network's `config` that are read; None where it does not say."""

    vocabulary: int | None = None  # tokens, the mask not counted: must be those of the process
    length: int | None = None  # the most sites it reads
    classes: int | None = None  # its labels are 0 to classes - 1
    groups: tuple[int, ...] | None = None  # of a classifier: sizes of its groups of classes, normalised one by one


def facts_of(net: object) -> NetFacts:
    """What a network says of itself."""
    config = getattr(net, "config", None)
    return NetFacts(*(getattr(config, name, None) for name in NetFacts._fields))


def check_nets(nets: object, sizes: tuple[str, ...], first: str) -> None:
    """The networks of a bundle by name, the first of them there, each with these sizes in its config."""
    need = f"give them by name, {{{first!r}: net, ...}}"
    if not isinstance(nets, Mapping):
        raise InvalidInput(f"nets is {shown(nets)}; {need}")
    if first not in nets:
        raise InvalidInput(f"the nets are {sorted(map(str, nets))}; a bundle needs one called {first!r}")
    for name, net in nets.items():
        config = getattr(net, "config", None)
        has(f"the net {name!r}", config, sizes, f"a net of this bundle has {', '.join(sizes)} in its config")


def groups_of(net: object, classes: int) -> tuple[int, ...]:
    """Sizes of the groups of a classifier's classes; one group of all where it does not say."""
    groups = facts_of(net).groups
    return (classes,) if groups is None else groups


class NetSizes(Protocol):
    """The sizes that a network in a `TextScore` must state; `classes` and `hidden` may be left out."""

    @property
    def vocabulary(self) -> int: ...  # tokens, the mask not counted
    @property
    def masked(self) -> bool: ...  # whether there is a mask, as one more token
    @property
    def length(self) -> int: ...  # the most sites it reads


@runtime_checkable
class Wide(Protocol):
    """Sizes that say how many features the trunk makes of a site; `_HIDDEN` are assumed of a net that does not say."""

    @property
    def hidden(self) -> int: ...


class TokenNet(Protocol):
    """The interface of a network in a `TextScore`, which is a torch module; `sigma` is the total noise."""

    @property
    def config(self) -> NetSizes: ...
    @property
    def training(self) -> bool: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Features of each site [B, D, C]."""
        ...

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        """Outputs for every token [..., at least S] from features [..., C], float32; sigma has their shape, or [1]."""
        ...

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """The Score of the head's outputs."""
        ...


def check_token_net(net: Any) -> None:
    """A network with all that a `TokenNet` must have."""
    missing = [name for name in ("trunk", "head", "log_score") if not callable(getattr(net, name, None))]
    if not missing:
        missing = [f"config.{name}" for name in _SIZES if not hasattr(net, "config") or not hasattr(net.config, name)]
    if missing:
        raise InvalidInput(
            f"{type(net).__name__} has no {' and no '.join(missing)}; wrap it in tt.MaskedLM or tt.Denoiser"
        )


def features_of(net: TokenNet) -> int:
    """How many features the trunk makes of a site."""
    return net.config.hidden if isinstance(net.config, Wide) else _HIDDEN
