"""Molecules in the studio: plain draws, or draws towards a reward by name; the same target as Python."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..commands.sample_molecules import molecule_target
from ..core.chemistry import has_rdkit
from ..core.errors import InvalidInput
from ..models.hub import load
from ..molecules.bundle import NAME, Molecules
from ..molecules.reward_names import named_score
from ..molecules.twist import CANDIDATES


class MoleculeTargets(NamedTuple):
    """The networks and a reward by its name; called with a strength, the target and its Python."""

    nets: Molecules
    score: Any  # None: all that are molecules count alike

    def __call__(self, strength: float | None) -> tuple[Any, str]:
        """The target of this strength (None: without the reward), and its Python."""
        nets, score = self.nets, None if strength is None else self.score
        fk = molecule_target(nets, nets.reward(score), 1.0 if score is None else float(strength or 0.0))
        told = f"model, reward=reward, strength={fk.strength!r}, order=tuple(range(nets.length))"
        led = f", twist=nets.twist(score, {fk.strength!r}, reward), candidates={min(CANDIDATES, nets.vocabulary)}"
        return fk, f"tt.Composed({told}{'' if fk.twist is None else led})"


def molecule_targets(name: str | None, device: str) -> tuple[MoleculeTargets, str]:
    """The embedded network of molecules under a reward by its name, and the Python that loads them."""
    targets = MoleculeTargets(load(NAME, device), None if name is None else named_score(name))
    place = "" if device == "cpu" else f", {device!r}"
    lines = ["import truetilt as tt", "", f"nets = tt.load({NAME!r}{place})", "model = nets.model()"]
    if name is None:
        return targets, "\n".join([*lines, "reward = nets.reward()  # forbids what is no molecule"])
    lines.insert(1, "from truetilt.molecules.reward_names import named_score")
    return targets, "\n".join([*lines, f"score = named_score({name!r})", "reward = nets.reward(score)"])


def molecule_faults(given: str, sampler: str) -> dict[str, str]:
    """Errors of the form by field: RDKit is needed, pieces are drawn in one order, and the reward must be known."""
    if not has_rdkit():
        return {"model": "Molecules need RDKit: pip install 'truetilt[chem]'."}
    if sampler != "in-order":
        return {"sampler": "Molecules are drawn from left to right; choose the network’s order."}
    try:
        _ = named_score(given) if given else None
    except InvalidInput as error:
        return {"condition": f"{error}."}
    return {}
