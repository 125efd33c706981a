"""The request of a sampling command: the target, the sizes of the run, a table's noise, a protein's backbone."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..runtime.memory import RunSizes


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
    prompt: str | None = None  # prompt of a public network, or a text with gaps
    length: int | None = None  # open sites after the prompt
    trust_remote_code: bool = False  # whether code shipped with the weights may run
    sharpness: float | None = None  # exponent of the base, for texts: weighted
    temperature: float | None = None  # of each site by itself, for texts: without weights

    @property
    def sizes(self) -> RunSizes:
        """The sizes once defaults are filled in; 0, which every run refuses, for those that are not."""
        return RunSizes(self.particles or 0, self.populations or 0, self.steps or 0)


class Backbone(NamedTuple):
    """A protein design task: a structure, its open residues and their allowed letters; None stands for a default."""

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
        """The options that name an existing file, with its absolute path."""
        named = {name: self.given[name] for name in ("structure", "weights") if name in self.given}
        paths = {name: path for name, path in named.items() if path not in ("vanilla", "soluble")}
        return {name: os.path.realpath(path) for name, path in paths.items() if os.path.isfile(path)}


class TableNoise(NamedTuple):
    """The forward process of a table and the share of data it keeps at t = 1; networks bring their own."""

    process: str = "masking"
    sigma_eps: float = 1e-3
