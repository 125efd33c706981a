"""The request of a sampling command: the target, the sizes of the run, and the noise of a table."""

from __future__ import annotations

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


class TableNoise(NamedTuple):
    """The forward process of a table and what it keeps of the data at t = 1; nets know theirs."""

    process: str = "masking"
    sigma_eps: float = 1e-3
