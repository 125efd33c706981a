"""Which residues are open, which share one letter, in which order they are decoded, and which letters they may have.

Requests use the notation of biologists: "39-41,54", "A10-20,B7", "A" for a whole chain; "A=B" ties two chains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import listed, shown
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS
from .structure import UNKNOWN, Structure

_PART = re.compile(r"([A-Za-z_]*):?(-?\d+)([A-Za-z]?)(?:-(?:([A-Za-z_]+):?)?(-?\d+)([A-Za-z]?))?")
_DASHES = str.maketrans("‐‑–—−", "-----")  # hyphens as word processors write them
_SITES = 'give numbers of the file such as "39-41,54", with the chain before them where there are several: "A39-41,B54"'


@dataclass(frozen=True)
class OpenSites:
    """The sites of a state: each is one residue, or several tied ones; `order` is the decoding order.

    Residues in no site keep the letter of the file and are decoded first, in the order of the file.
    """

    sites: tuple[tuple[int, ...], ...]  # residues, by index in the structure
    order: tuple[int, ...]  # a permutation of the sites
    allowed: tuple[tuple[bool, ...], ...]  # for every site, the letters it may have

    def __len__(self) -> int:
        return len(self.sites)

    @property
    def open(self) -> tuple[int, ...]:
        """Every open residue."""
        return tuple(place for site in self.sites for place in site)

    def ranks(self, residues: int) -> Tensor:
        """The turn at which each residue is decoded, int64 [L]: fixed ones first; tied ones together."""
        fixed = [place for place in range(residues) if place not in set(self.open)]
        rank = torch.zeros(residues, dtype=torch.int64)
        rank[fixed] = torch.arange(len(fixed))
        for turn, site in enumerate(self.order):
            rank[list(self.sites[site])] = len(fixed) + turn
        return rank

    def named(self, structure: Structure) -> tuple[str, ...]:
        """The names of the sites, in the notation of requests."""
        return tuple("=".join(structure.residues[place].name for place in site) for site in self.sites)


def choose(
    structure: Structure,
    open: str | None = None,
    *,
    chains: str | Sequence[str] | None = None,
    fixed: str | None = None,
    forbid: str = "",
    tied: str | None = None,
    order: Sequence[int] | None = None,
) -> OpenSites:
    """The sites of a request; see `tt.load("proteinmpnn", ...)`."""
    designed = _chains(structure, chains)
    every = [k for k, residue in enumerate(structure.residues) if residue.chain in designed]
    wanted = set(every) if open is None else _places(structure, "open", open)
    astray = [structure.residues[k].name for k in sorted(wanted - set(every))]
    if astray:
        raise InvalidInput(f"open names residue {astray[0]}, and chains={','.join(designed)} keeps its chain as it is")
    kept = set() if fixed is None else _places(structure, "fixed", fixed)
    if open is not None and wanted & kept:
        raise InvalidInput(
            f"residue {structure.residues[min(wanted & kept)].name} is both open and fixed; name it once"
        )
    wanted -= kept
    if not wanted:
        raise InvalidInput("no residue is open; name some with open, or fix fewer")
    unknown = [r for k, r in enumerate(structure.residues) if k not in wanted and r.letter == UNKNOWN]
    if unknown:
        raise InvalidInput(
            f"residue {unknown[0].name} is no amino acid that is known and has to keep its letter; open it, rename it "
            "to what it stands for, or remove it from the file"
        )
    sites = _tied(structure, sorted(wanted), tied)
    return OpenSites(sites, _order(order, len(sites)), _allowed(structure, sites, forbid))


def _chains(structure: Structure, chains: object) -> tuple[str, ...]:
    if chains is None:
        return structure.chains
    names = re.split(r"[,\s]+", chains.strip()) if isinstance(chains, str) else listed("chains", chains, _SITES)
    for name in names:
        if name not in structure.chains:
            raise InvalidInput(f"there is no chain {shown(name)}; the structure has {', '.join(structure.chains)}")
    return tuple(names)


def _places(structure: Structure, what: str, request: object) -> set[int]:
    """The residues that a request names; raises if one does not exist."""
    if not isinstance(request, str) or not request.strip():
        raise InvalidInput(f"{what} is {shown(request)}; {_SITES}")
    return {place for part in _split(request) for place in _part(structure, what, part)}


def _split(request: str) -> list[str]:
    """The parts of a request, without blanks around hyphens and equals signs, and between a chain and a number."""
    plain = re.sub(r"\s*([-:=])\s*(?=\S)", r"\1", request.translate(_DASHES))
    plain = re.sub(r"(?<![^\s,=])([A-Za-z_]+)\s+(?=-?\d)", r"\1", plain)
    return [part for part in re.split(r"[,\s]+", plain) if part]


def _part(structure: Structure, what: str, part: str) -> list[int]:
    if part in structure.chains:
        return [k for k, residue in enumerate(structure.residues) if residue.chain == part]
    found = _PART.fullmatch(part)
    if found is None:
        raise InvalidInput(f"{what} has {shown(part)}; {_SITES}")
    chain, first, code, end, last, last_code = found.groups()
    if end and end != chain:
        raise InvalidInput(f"{what} has {part}, from one chain to another; name the residues of each chain")
    if not chain and len(structure.chains) > 1:
        raise InvalidInput(
            f"{what} has {part}, and the structure has chains {', '.join(structure.chains)}; put the chain before it, "
            f"{structure.chains[0]}{part}"
        )
    chain = chain or structure.chains[0]
    here = {(r.number, r.code): k for k, r in enumerate(structure.residues) if r.chain == chain}
    if not here:
        raise InvalidInput(f"{what} has {part}, and there is no chain {chain}; there are {', '.join(structure.chains)}")
    low, high = (int(first), code), (int(last), last_code) if last is not None else (int(first), code)
    missing = [key for key in (low, high) if key not in here]
    if missing or low > high:
        numbers = sorted(here)
        ends = f"{numbers[0][0]}{numbers[0][1]} to {numbers[-1][0]}{numbers[-1][1]}"
        why = f"there is no residue {chain}{missing[0][0]}{missing[0][1]}" if missing else "it ends before it begins"
        raise InvalidInput(f"{what} has {part}: {why}; chain {chain} has {ends}")
    return [place for key, place in here.items() if low <= key <= high]


def _tied(structure: Structure, wanted: list[int], tied: object) -> tuple[tuple[int, ...], ...]:
    """Open residues grouped into sites of tied ones, in the order of the file."""
    groups = [] if tied is None else [group for part in _parts_of(tied) for group in _group(structure, part)]
    leader: dict[int, int] = {}
    for group in groups:
        inside = [place in wanted for place in group]
        if any(inside) and not all(inside):
            names = [structure.residues[place].name for place in group]
            raise InvalidInput(f"{'='.join(names)} are tied and only some of them open; open all or none")
        for place in group:
            if leader.setdefault(place, min(group)) != min(group):
                raise InvalidInput(f"residue {structure.residues[place].name} is tied twice; name it in one group")
    sites: dict[int, list[int]] = {}
    for place in wanted:
        sites.setdefault(leader.get(place, place), []).append(place)
    return tuple(tuple(site) for site in sites.values())


def _parts_of(tied: object) -> list[str]:
    need = 'give chains, "A=B", or residues, "A10=B10" or "A10-20=B10-20"'
    parts = _split(tied) if isinstance(tied, str) else []
    if not parts or not all("=" in part for part in parts):
        raise InvalidInput(f"tied is {shown(tied)}; {need}")
    return parts


def _group(structure: Structure, part: str) -> list[tuple[int, ...]]:
    """The tied residues of "A=B" (equal numbers), of "A10=B10", or of "A10-20=B10-20" (one by one)."""
    names = part.split("=")
    astray = [name for name in names if name.isalpha() and name not in structure.chains]
    if astray:
        raise InvalidInput(
            f"tied has {part}, and there is no chain {astray[0]}; there are {', '.join(structure.chains)}"
        )
    members = [_part(structure, "tied", name) for name in names]
    if all(name in structure.chains for name in names):
        return _equal_numbers(structure, part, names, members)
    sizes = [len(places) for places in members]
    if len(set(sizes)) > 1:
        raise InvalidInput(f"tied has {part}, which are {', '.join(map(str, sizes))} residues; tie equally many")
    return list(zip(*members, strict=True))


def _equal_numbers(
    structure: Structure, part: str, names: Sequence[str], members: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    """The residues of chains that have the same numbers, for all numbers."""
    keys = [{structure.residues[k][1:3]: k for k in places} for places in members]
    shared = [key for key in keys[0] if all(key in own for own in keys)]
    odd = [key for own in keys for key in own if key not in shared]
    if odd:
        number, code = odd[0]
        spans = [f"{a[0]}{a[1]}-{b[0]}{b[1]}" for a, b in _stretches(list(keys[0]), shared)]
        ties = ",".join("=".join(f"{name}{span}" for name in names) for span in spans)
        remedy = f"tie what they share: {ties}" if spans else "tie residues one by one"
        raise InvalidInput(f"tied has {part}, and only some of these chains have a residue {number}{code}; {remedy}")
    return [tuple(own[key] for own in keys) for key in shared]


def _stretches(every: Sequence[tuple], shared: Sequence[tuple]) -> list[tuple[tuple, tuple]]:
    """The first and last of every run of shared numbers in a chain."""
    kept, out = set(shared), []
    for before, key in zip((None, *every), every, strict=False):
        if key in kept and before in kept:
            out[-1] = (out[-1][0], key)
        elif key in kept:
            out.append((key, key))
    return out


def _order(order: object, sites: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(sites))
    found = tuple(listed("order", order, "give a permutation of the sites, counting from 0"))
    if sorted(found, key=str) != sorted(range(sites), key=str):
        raise InvalidInput(f"order is {shown(order)}; give each of 0 to {sites - 1} once")
    return found


def _allowed(structure: Structure, sites: Sequence[tuple[int, ...]], forbid: object) -> tuple[tuple[bool, ...], ...]:
    """The letters that each site may have: a forbidden letter only where the file has it."""
    letters = re.sub(r"[,\s]", "", forbid) if isinstance(forbid, str) else None
    if letters is None or set(letters) - set(AMINO_ACIDS):  # "Cys" is not C, Y and S
        raise InvalidInput(
            f'forbid is {shown(forbid)}; give capital letters of amino acids, such as "C" for no new cysteines'
        )
    if set(letters) == set(AMINO_ACIDS):
        raise InvalidInput("forbid names all twenty amino acids; leave some")
    own = [{structure.residues[place].letter for place in site} for site in sites]
    return tuple(tuple(letter not in letters or letter in mine for letter in AMINO_ACIDS) for mine in own)
