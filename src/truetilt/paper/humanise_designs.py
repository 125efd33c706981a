"""Sampling for the humanise experiment: chains, the cells of its grid, and designs that were drawn elsewhere.

Chains are numbered once, so that sampling needs only the network: on a machine with an accelerator
`proofs/humanise_designs.py` draws the designs into a file, a line for each chain and cell, and the experiment reads
them from there.
"""

from __future__ import annotations

import json
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..antibodies.masked_readings import READINGS
from ..antibodies.numbering import VariableDomain, number_domains
from ..antibodies.redesign import Antibodies, Redesign, load_antiberty
from ..antibodies.redesign_target import PulledTarget
from ..api import run
from ..commands.antibody_designs import ALPHA_TO_PULL, STEPS, Design, DesignPlan, distinct_designs
from ..core.errors import InvalidInput
from ..core.fasta import read_fasta, tokens_of
from ..core.storage import read_text
from ..targets.consistency import disagreement
from ..targets.diagnose_model import log_prob_in_order

METHODS = ("humab", "sapiens1", "sapiens3", "vernier_grafts", "straight_grafts", "experimental")
PARENT, FOLDER = "parental", "humanisation"
OURS = "truetilt"
KEPT = 16  # designs kept per cell
_NAME = re.compile(
    r"unseen-(none|[123]+)-sharp-([\d.]+)-alpha-([\d.]+)-pull-([\d.]+)-sweeps-(\d+)(?:-readings-(\d+))?(?:-by-([a-z-]+))?"
)


class DesignSetting(NamedTuple):
    """One target for all chains: CDRs hidden from p0, exponents, pull, sweeps, readings of the head.

    `method` samples it: ours or one of `BASELINES`.
    """

    unseen: tuple[int, ...]
    sharpness: float
    alpha: float
    pull: float
    sweeps: int
    readings: int = 0
    method: str = OURS

    @property
    def name(self) -> str:
        loops = "".join(map(str, self.unseen)) or "none"
        law = f"unseen-{loops}-sharp-{self.sharpness:g}-alpha-{self.alpha:g}-pull-{self.pull:g}-sweeps-{self.sweeps}"
        law += f"-readings-{self.readings}" if self.readings else ""
        return law if self.method == OURS else f"{law}-by-{self.method}"


def cell_named(name: str) -> DesignSetting:
    """The cell of this name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidInput(f"{name!r} names no cell of the humanise experiment")
    loops, *numbers, sweeps, readings, method = found.groups()
    unseen = () if loops == "none" else tuple(map(int, loops))
    return DesignSetting(unseen, *map(float, numbers), int(sweeps), int(readings or 0), method or OURS)


class RunSize(NamedTuple):
    """The size of each run; `steps` None reveals one site per step."""

    populations: int
    particles: int
    steps: int | None


SIZE, QUICK_SIZE = RunSize(4, 32, STEPS), RunSize(4, 4, 12)
SHARPNESS, PULLS, SWEEPS = 3.0, (8.0, 16.0, 12.0), 1
CELLS = tuple(DesignSetting((1, 2), SHARPNESS, ALPHA_TO_PULL * pull, pull, SWEEPS, READINGS) for pull in PULLS)
QUICK_CELLS = (DesignSetting((1, 2), SHARPNESS, 4.0, 2.0, 0), DesignSetting((), SHARPNESS, 4.0, 2.0, 0))


class ParentChain(NamedTuple):
    """A parent's heavy chain, numbered."""

    name: str
    parent: str
    domain: VariableDomain


def heavy_chains(folder: Path, method: str) -> dict[str, str]:
    """The heavy chains of a file of the publication, by the antibody's name."""
    found = read_fasta(folder / f"{method}.fa")
    return {one.name.split()[0]: one.letters for one in found if one.name.split()[1:2] == ["VH"]}


@lru_cache(maxsize=1)
def parents(folder: Path) -> tuple[ParentChain, ...]:
    """The parents' heavy chains, numbered by Kabat."""
    letters = heavy_chains(folder, PARENT)
    if not letters:
        raise InvalidInput(f"{folder / PARENT}.fa has no sequence whose name ends in VH; give the publication's files")
    domains = number_domains(letters, "kabat")
    return tuple(ParentChain(name, parent, domains[name]) for name, parent in letters.items())


@lru_cache(maxsize=1)
def network(device: str, batch: int | None = None, folder: str | None = None) -> Antibodies:
    """AntiBERTy, in half precision on devices where that is fast."""
    return load_antiberty(device, batch, torch.bfloat16, None if folder is None else Path(folder))


def one_chain(chain: ParentChain, cell: DesignSetting, size: RunSize, seed: int, nets: Antibodies) -> dict[str, Any]:
    """The distinct designs of one chain in one cell by our sampler, with the diagnostics of the run."""
    redesign = nets.redesign(chain.parent, unseen_cdrs=cell.unseen, domain=chain.domain)
    fk, grid = DesignPlan(cell.alpha, cell.pull, cell.sharpness, cell.sweeps, size.steps, cell.readings).of(redesign)
    begun, asked = time.perf_counter(), nets.net.evaluated
    result = run(fk, grid, particles=size.particles, populations=size.populations, seed=seed)
    spent = {"network_evaluations": nets.net.evaluated - asked, "reward_calls": result.spent.calls}
    seconds, off = time.perf_counter() - begun, disagreement(fk, result.draw(16))
    human = redesign.log_species()(result.particles.flatten(0, 1), 0.0)
    designs = distinct_designs(redesign, result, KEPT)
    told = {
        "distinct": len({tuple(row) for row in result.particles.flatten(0, 1).tolist()}),
        "log_z": result.log_z,
        "log_z_stderr": result.log_z_stderr,
        "ess": float(result.final_ess.sum()),
        "roots": int(result.roots.sum()),
        "p_human": float((result.weights.reshape(-1) * human.exp()).sum()),
        "disagreement": float(off.mean()),
        "verdict": str(result.trust().verdict),
        "seconds": seconds,
    }
    return line_of(chain, cell, size, redesign, designs) | told | spent


def line_of(
    chain: ParentChain, cell: DesignSetting, size: RunSize, redesign: Redesign, designs: list[Design]
) -> dict[str, Any]:
    """What the file of designs says of any method: whose, which, and log pi of the heaviest in the order of p0."""
    target = target_of(cell, redesign)
    x = tokens_of(designs[0].sequence)[None, list(redesign.open_sites)].to(redesign.nets.device)
    log_pi = cell.sharpness * log_prob_in_order(target, x, redesign.order()) + target.reward_of(x)
    return {
        "chain": chain.name,
        "cell": cell.name,
        "designs": [one._asdict() for one in designs],
        "log_pi": float(log_pi),
        "open": len(redesign.open_sites),
        "size": list(size),
    }


def target_of(cell: DesignSetting, redesign: Redesign) -> PulledTarget:
    """The target of a cell for a chain."""
    return redesign.target(alpha=cell.alpha, pull=cell.pull, sharpness=cell.sharpness, readings=cell.readings)


def chains_to_json(chains: tuple[ParentChain, ...]) -> list[dict[str, Any]]:
    """Numbered chains as plain values, for a machine without the numbering program."""
    return [{"name": one.name, "parent": one.parent, "domain": one.domain._asdict()} for one in chains]


def chains_of_json(values: list[dict[str, Any]]) -> tuple[ParentChain, ...]:
    """The chains from such values."""
    out = []
    for one in values:
        domain = one["domain"] | {"positions": tuple(one["domain"]["positions"])}
        out.append(ParentChain(one["name"], one["parent"], VariableDomain(**domain)))
    return tuple(out)


@lru_cache(maxsize=1)
def ready_designs(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Designs that were drawn elsewhere, by chain and cell."""
    try:
        lines = [json.loads(line) for line in read_text(Path(path)).splitlines() if line.strip()]
        return {(one["chain"], one["cell"]): one for one in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} holds no designs ({error}); proofs/humanise_designs.py writes them") from error
