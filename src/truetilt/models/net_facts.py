"""What a network says of itself in its `config`: how many tokens, sites and classes it knows.

A network may be anybody's, and may be compiled, so nothing is asked of it: each part may be left out, and is then not
checked. Networks of a `TextScore` must say their sizes, see `TokenNet`.
"""

from __future__ import annotations

from typing import NamedTuple


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


def groups_of(net: object, classes: int) -> tuple[int, ...]:
    """Sizes of the groups of a classifier's classes; one group of all where it does not say."""
    groups = facts_of(net).groups
    return (classes,) if groups is None else groups
