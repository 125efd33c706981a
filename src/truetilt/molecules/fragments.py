"""The placement of a fragment in a row: its pieces are given, the sites around them are open.

A star marks an open end, as in `*c1ccc(*)cc1`; without stars both ends are open. The number of sites in each gap is not
known beforehand. The likeliest placement under the network is chosen: log p(the pieces there | nothing else), one pass
for each piece. From then on every gap before a kept piece has that fixed number of pieces; only the tail is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import shown
from ..core.chemistry import rdkit
from ..core.errors import InvalidInput
from .tokenizer import plain_smiles

_MOST = 512  # placements that are compared, at most

GivenRow = tuple[int | None, ...]  # tokens of a row, None at open sites


class Fragment(NamedTuple):
    """A fragment to keep: the parts of its SMILES between open ends, and the SMARTS that matches it."""

    parts: tuple[str, ...]  # the first and the last are empty if that end is open
    smarts: str


def read_fragment(text: str) -> Fragment:
    """The fragment of a SMILES, with its atoms in the order they are written."""
    need = "give the SMILES of a fragment, such as c1ccncc1 or *c1ccc(*)cc1"
    found = rdkit().MolFromSmiles(text) if isinstance(text, str) and text else None
    if found is None or not any(atom.GetAtomicNum() for atom in found.GetAtoms()):
        raise InvalidInput(f"the fragment is {shown(text)}, which is no molecule to RDKit; {need}")
    written = rdkit().MolToSmiles(found, canonical=False)
    if "." in written:
        raise InvalidInput(f"the fragment {text!r} has several parts; {need}")
    parts = written.split("*") if "*" in written else ["", written, ""]
    odd = [part for part in parts if part and not plain_smiles(part)]
    if odd:
        raise InvalidInput(
            f"the fragment {text!r} has {odd[0]!r} in it; the network knows C, N, O, S, F, Cl, Br and [nH], without "
            "charges, isotopes or stereo marks"
        )
    return Fragment(tuple(parts), rdkit().MolToSmarts(found).replace("[#0]", "*"))


def places(parts: Sequence[Sequence[int]], length: int, end: int) -> Iterator[GivenRow]:
    """Every row with these parts of tokens in this order and an open gap of at least one site between two of them.

    An empty first part leaves the beginning open, an empty last part the end; otherwise the row ends there.
    """
    gaps, kept = len(parts) - 1, sum(map(len, parts))
    tail = 0 if not parts[-1] else 1  # an end token after the last part
    free = length - kept - tail
    last_open = not parts[-1]
    for sizes in product(range(1, free + 1), repeat=gaps - last_open):
        rest = free - sum(sizes)
        if rest < (1 if last_open else 0):
            continue
        row: list[int | None] = [*parts[0]]
        for size, part in zip((*sizes, *([rest] if last_open else [])), parts[1:], strict=True):
            row += [None] * size + list(part)
        yield (*row, *[end] * (length - len(row)))


def placed_rows(parts: Sequence[Sequence[int]], length: int, end: int, text: str) -> list[GivenRow]:
    """These rows, evenly thinned to at most `_MOST`; raises if there are none."""
    found = list(places(parts, length, end))
    if not found:
        kept = sum(map(len, parts))
        raise InvalidInput(
            f"the fragment {text!r} has {kept} pieces and the network {length} sites, which leaves too few open; "
            "give a smaller one"
        )
    return found[:: -(-len(found) // _MOST)]


def likeliest(rows: Sequence[GivenRow], log_posterior: Callable[[Tensor], Tensor], mask: int, end: int) -> GivenRow:
    """The row whose given pieces are likeliest with nothing else known; of the end tokens after them only the first
    counts.

    `log_posterior` gives log p(token | the row) of rows with masks, [B, D, S].
    """
    given = [[(site, token) for site, token in enumerate(row) if token is not None] for row in rows]
    told = [[one for k, one in enumerate(here) if one[1] != end or here[k - 1][1] != end] for here in given]
    total = torch.zeros(len(rows), dtype=torch.float64)
    x = torch.full((len(rows), len(rows[0])), mask)
    for number in range(max(map(len, told))):
        log_p = log_posterior(x)
        for row, here in enumerate(told):
            if number < len(here):
                site, token = here[number]
                total[row] += float(log_p[row, site, token])
                x[row, site] = token
    return rows[int(total.argmax())]
