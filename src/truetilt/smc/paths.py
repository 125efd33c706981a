"""Whole paths (trajectories) as values: what a path holds, how one is traced back, and the check of a reference path.

A choice (which site to reveal) is made before the weight of its step and does not depend on it, so a path stores the
uniforms that made it. The memory (aux) of a path follows from its states and choices; it is stored for inspection only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput
from ..core.logits import take
from ..core.types import Aux, Particles, State

REMEDY = "give a path made with this model and grid (reference=None makes one)"


@dataclass(frozen=True)
class Trajectory:
    """One path for each chain: its state at every time of the grid, and the uniforms that made each step's choice.

    Args:
        states: States [steps + 1, chains, ...].
        choices: For each step the uniforms of its choice, float64 [chains, width]; the width may differ from step to
            step.
        aux: What the model remembers of each state, tensors [steps + 1, chains, ...] by name; nothing by default.
    """

    states: State  # [steps + 1, chains, ...]
    choices: tuple[Tensor, ...]  # one a step, float64 [chains, width]; the width may differ from step to step
    aux: Aux = field(default_factory=dict)  # [steps + 1, chains, ...]

    @property
    def end(self) -> State:
        """The final state of each chain [chains, ...]."""
        return self.states[-1]


class Generation(NamedTuple):
    """The population after a step, with the ancestors and choices that are needed to trace a path back through it."""

    particles: Particles
    ancestors: Tensor  # int64 [chains, N]
    choices: Tensor  # float64 [chains, N, width]: the choices that each particle's ancestor made


def trace_back(history: Sequence[Generation], slot: Tensor) -> Trajectory:
    """The path of each chain that ends in this slot [chains, 1] of the last generation."""
    path = []
    for now in reversed(history):
        memory = {key: take(value, slot)[:, 0] for key, value in now.particles.aux.items()}
        path.append((take(now.particles.x, slot)[:, 0], take(now.choices, slot)[:, 0], memory))
        slot = now.ancestors.gather(1, slot)
    states, choices, memories = zip(*reversed(path), strict=True)
    aux = {key: torch.stack([memory[key] for memory in memories]) for key in memories[-1]}
    return Trajectory(torch.stack(states), choices[1:], aux)


def check_reference(fk: FeynmanKac, grid: Sequence[float], reference: Trajectory, chains: int) -> None:
    """The reference must fit the grid, the chains, the model's states and its choices."""
    states = reference.states
    if states.dim() < 2 or len(states) != len(grid) or states.shape[1] != chains:
        raise InvalidInput(
            f"the reference's states have shape {tuple(states.shape)}, and the run has {len(grid)} times of {chains} "
            f"chains; {REMEDY}"
        )
    expected = [(chains, fk.choices(t, s)) for t, s in pairwise(grid)]
    found = [tuple(u.shape) for u in reference.choices]
    if found != expected:
        raise InvalidInput(f"the reference's choices have shapes {found}, and the model takes {expected}; {REMEDY}")
    first = fk.start((1, 1), grid[0])
    like = first.law.sample(torch.zeros(1, 1, first.uniforms, dtype=torch.float64, device=states.device))
    if states.shape[2:] != like.shape[2:] or states.dtype != like.dtype:
        raise InvalidInput(
            f"the reference's states are {states.dtype} {tuple(states.shape[2:])}, and the model's {like.dtype} "
            f"{tuple(like.shape[2:])}; {REMEDY}"
        )
    u = torch.cat([choice.reshape(-1) for choice in reference.choices])
    if not ((u >= 0) & (u < 1)).all() or (not states.is_floating_point() and (states < 0).any()):
        raise InvalidInput(f"the reference holds choices outside [0, 1) or negative tokens; {REMEDY}")
