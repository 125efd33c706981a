"""The CDRs of an antibody: residues are numbered by `anarcii`, and cut at the limits of a scheme."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

from ..core.arguments import shown
from ..core.errors import InvalidInput

HEAVY, LIGHT = "heavy", "light"
_LIMITS = {  # first and last position of CDR 1, 2 and 3
    "kabat": {HEAVY: ((31, 35), (50, 65), (95, 102)), LIGHT: ((24, 34), (50, 56), (89, 97))},
    "imgt": {HEAVY: ((27, 38), (56, 65), (105, 117)), LIGHT: ((27, 38), (56, 65), (105, 117))},
}
_CONSERVED = {  # shared by all variable domains: the cysteines of the disulfide bond, the tryptophan between, ...
    "kabat": {HEAVY: (22, 36, 86, 90, 92, 103, 104, 106), LIGHT: (23, 35, 82, 86, 88, 98, 99, 101)},
    "imgt": {HEAVY: (23, 41, 98, 102, 104, 118, 119, 121), LIGHT: (23, 41, 98, 102, 104, 118, 119, 121)},
}
SCHEMES = tuple(_LIMITS)
_CHAINS = {"H": HEAVY, "K": LIGHT, "L": LIGHT}
LONGEST = 500  # residues of a sequence to be numbered, at most
_SHORTEST = 70  # residues of a variable domain, at least


class VariableDomain(NamedTuple):
    """The numbered part of a chain: its first residue `start`, and the position number of each of its residues."""

    chain: str  # heavy or light
    scheme: str
    start: int
    positions: tuple[int, ...]

    @property
    def end(self) -> int:
        """One past its last residue."""
        return self.start + len(self.positions)

    @property
    def span(self) -> tuple[int, int]:
        """Its first residue, and one past its last."""
        return self.start, self.end

    @property
    def cdrs(self) -> tuple[tuple[int, ...], ...]:
        """The residues of CDR 1, 2 and 3, counted from 0 in the whole sequence."""
        limits = _LIMITS[self.scheme][self.chain]
        return tuple(
            tuple(self.start + k for k, position in enumerate(self.positions) if first <= position <= last)
            for first, last in limits
        )

    @property
    def framework(self) -> tuple[int, ...]:
        """The residues between and beside the CDRs, counted from 0 in the whole sequence."""
        loops = {site for loop in self.cdrs for site in loop}
        return tuple(site for site in range(self.start, self.end) if site not in loops)

    @property
    def open_framework(self) -> tuple[int, ...]:
        """The framework without the residues that all variable domains share, which stabilise the fold."""
        kept = _CONSERVED[self.scheme][self.chain]
        return tuple(site for site in self.framework if self.positions[site - self.start] not in kept)


def check_scheme(scheme: object) -> str:
    """A numbering scheme whose CDR limits are known; raises otherwise."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise InvalidInput(f"the scheme is {shown(scheme)}; CDRs are known by {' and '.join(SCHEMES)}")
    return scheme


def number_domains(sequences: Mapping[str, str], scheme: str = "kabat") -> dict[str, VariableDomain]:
    """The variable domain of each sequence, by name; raises for sequences that are no antibodies."""
    check_scheme(scheme)
    for name, letters in sequences.items():
        if not _SHORTEST <= len(letters) <= LONGEST:
            raise InvalidInput(
                f"{name} has {len(letters)} residues; an antibody's variable domain has about 110 to 130: give one "
                f"chain of {_SHORTEST} to {LONGEST}"
            )
    try:
        from anarcii import Anarcii
    except ImportError as error:
        raise InvalidInput(f"numbering antibodies needs anarcii ({error}); pip install 'truetilt[antibody]'") from error
    numberer = Anarcii(seq_type="antibody", mode="accuracy", batch_size=8, cpu=True, ncpu=1, verbose=False)
    found = numberer.number(dict(sequences))
    refused = [name for name in sequences if found[name]["error"] or found[name]["chain_type"] not in _CHAINS]
    if refused:
        reason = found[refused[0]]["error"] or f"chain type {found[refused[0]]['chain_type']}"
        raise InvalidInput(
            f"{refused[0]} is not numbered as an antibody ({str(reason).rstrip('.')}); give the variable domain of a "
            "heavy or light chain"
        )
    if scheme != "imgt":
        with redirect_stdout(StringIO()):  # it prints there
            found = numberer.to_scheme(scheme)
    return {name: domain_of(found[name], name, letters, scheme) for name, letters in sequences.items()}


def domain_of(answer: Mapping[str, Any], name: str, letters: str, scheme: str) -> VariableDomain:
    """The domain in anarcii's answer for one sequence: a contiguous stretch with three CDRs."""
    kept = [(position[0], letter) for position, letter in answer["numbering"] if letter != "-"]
    start = letters.find("".join(letter for _, letter in kept))
    if not kept or start < 0:
        raise InvalidInput(f"{name}: its numbered residues are not a stretch of the sequence; give one domain alone")
    domain = VariableDomain(_CHAINS[answer["chain_type"]], scheme, start, tuple(position for position, _ in kept))
    empty = [number for number, loop in enumerate(domain.cdrs, start=1) if not loop]
    if empty:
        raise InvalidInput(f"{name} has no CDR {empty[0]} in {scheme} numbering: it is cut short; give a whole domain")
    return domain
