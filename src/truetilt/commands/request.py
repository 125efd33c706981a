"""The request of a sampling command: the target, the sizes of the run, a table's noise, a protein's backbone."""

from __future__ import annotations

import os
from typing import NamedTuple


class RunSizes(NamedTuple):
    """How large a run is."""

    particles: int
    populations: int
    steps: int


class SampleRequest(NamedTuple):
    """The options of a sampling command; None stands for a default that depends on the model (`with_defaults`)."""

    condition: str | int | None
    alpha: float
    beta: float | None = None
    particles: int | None = None
    populations: int | None = None
    steps: int | None = None
    seed: int = 0
    device: str = "cpu"
    prompt: str | None = None  # of a public network, or a text with gaps
    length: int | None = None  # open sites after it
    trust_remote_code: bool = False  # whether code beside its weights may run

    @property
    def sizes(self) -> RunSizes:
        """The sizes once defaults are filled in; 0, which every run refuses, where they are not."""
        return RunSizes(self.particles or 0, self.populations or 0, self.steps or 0)


class Backbone(NamedTuple):
    """What proteinmpnn designs: a structure, its open residues and what they may be; None stands for a default."""

    structure: str | None = None
    open: str | None = None
    weights: str | None = None
    chains: str | None = None
    fixed: str | None = None
    forbid: str | None = None
    tied: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The options that were given."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def files(self) -> dict[str, str]:
        """Those that name a file that is here, with the place where it lies."""
        named = {name: self.given[name] for name in ("structure", "weights") if name in self.given}
        return {name: os.path.realpath(path) for name, path in named.items() if os.path.exists(path)}


class TableNoise(NamedTuple):
    """The forward process of a table and what it keeps of the data at t = 1; nets know theirs."""

    process: str = "masking"
    sigma_eps: float = 1e-3
