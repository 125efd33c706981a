"""The context around the open sites of a public network's row: its frame, a prompt, the text between gaps.

A context is a row of the network's own ids. It surrounds each state and is never noised. The frame is the special
tokens before and after a row.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.arguments import LONGEST, shown, whole_number
from ..core.errors import InvalidInput
from .gaps import has_gaps, parts_of
from .public_net import Public

OPEN = None  # an open site of a row


class Context(NamedTuple):
    """A row of the network's own ids with None (`OPEN`) at its open sites, and the network's class label, if any."""

    row: tuple[int | None, ...]
    label: int | None = None

    @property
    def sites(self) -> list[int]:
        return [site for site, own in enumerate(self.row) if own is OPEN]


def room(public: Public, prompt: str) -> int:
    """How many open sites fit after a prompt."""
    return max(1, public.inner - len(public.alphabet.encode(prompt)))


def context_of(public: Public, text: str, length: int | None, suffix: str) -> Context:
    """The row of a prompt, its open sites and a suffix, or of a text with gaps, inside the frame."""
    if not isinstance(suffix, str):
        raise InvalidInput(f"suffix is {shown(suffix)}; give a text")
    if has_gaps(text):
        if length is not None or suffix:
            raise InvalidInput("a text with gaps says how many tokens are open; leave out length and suffix")
        middle = _with_gaps(public, text)
    else:
        before, after = (public.alphabet.encode(part) for part in (text, suffix))
        if length is None and public.length > LONGEST:
            raise InvalidInput("the net does not say how many tokens it reads; give length=")
        size = max(1, room(public, text) - len(after)) if length is None else whole_number("length", length, 1, LONGEST)
        middle = [*before, *[OPEN] * size, *after]
    if public.mask is None and any(own is not OPEN for own in middle):
        raise InvalidInput(
            f"{public.family.name} has no mask: it cannot tell a clean token from noise, so it takes no prompt"
        )
    return Context((*public.before, *middle, *public.after), public.classes or None)


def masked(public: Public, context: Context) -> Context:
    """The same row with everything but its frame masked: the context of the base."""
    start, stop = len(public.before), len(context.row) - len(public.after)
    row = [own if own is OPEN or not start <= site < stop else public.mask for site, own in enumerate(context.row)]
    return context._replace(row=tuple(row))


def _with_gaps(public: Public, text: str) -> list[int | None]:
    """The ids of a text with gaps; a space before a gap belongs to the gap."""
    middle: list[int | None] = []
    for part in parts_of(text, public.inner):
        if isinstance(part, int):
            middle += [OPEN] * part
        else:
            middle += public.alphabet.encode(part if public.alphabet.spelled else part.rstrip())
    return middle
