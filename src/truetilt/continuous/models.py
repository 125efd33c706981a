"""A diffusion model under one condition, and scores made of others: guided, or with the gradient of a potential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import device_here, function, number, reals, set_fields, shown, whole_number
from ..core.errors import InvalidInput, InvalidWeights
from ..core.logits import batch_of
from ..core.types import Potential, Schedule, State
from ..diffusion.guidance import check_strength, strength
from .kernels import Score
from .processes import Process, check_noise


@dataclass(frozen=True)
class Diffusion:
    """A diffusion model of real vectors: a process with its scores, and a potential, under one condition.

    A score maps a batch of float64 states [B, D] and a time to $grad log p_t(x)$ of the same shape; a potential to [B].

    Args:
        process: How data are noised: `tt.continuous.VP()`, `VE()` or `SubVP()`.
        dimension: Number of coordinates D, 1 or more.
        base: Score of the unconditional model.
        conditional: Score of the conditional model. None (the default): there is none.
        potential: Function (x, t) that returns $log p_t(zeta|x)$, up to a constant. None (the default): there is none.
        device: Device of the states; "cpu" by default.
    """

    counted: ClassVar[tuple[str, ...]] = ("base", "conditional", "potential")
    process: Process
    dimension: int
    base: Score
    conditional: Score | None = None
    potential: Potential | None = None
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        check_noise(self.process)
        set_fields(self, dimension=whole_number("dimension", self.dimension, 1))
        for name in ("base", "conditional", "potential"):
            if getattr(self, name) is not None:
                function(f"the model's {name}", getattr(self, name), "(x, t)")
        device_here(self.device)


@dataclass(frozen=True)
class Guided:
    """Classifier-free guidance: $base + beta (conditional - base)$.

    Args:
        base: Score of the unconditional model.
        conditional: Score of the conditional model.
        beta: Strength, 0 to 1e9, a number or a function of time: 0 is the base, 1 the conditional, more leans further.
    """

    base: Score
    conditional: Score
    beta: float | Schedule

    def __post_init__(self) -> None:
        set_fields(self, beta=check_strength(self.beta))
        for name in ("base", "conditional"):
            function(name, getattr(self, name), "(x, t)")

    def __call__(self, x: State, t: float) -> Tensor:
        base, conditional = _answer(self.base, x, t), _answer(self.conditional, x, t)
        return base + strength(self.beta, t) * (conditional - base)


@dataclass(frozen=True)
class Predictor:
    """$base + beta grad potential(x, t)$: classifier guidance, or a proposal that climbs a reward.

    With $beta = 1$ and the potential $log p_t(zeta|x)$ it is the conditional score.

    Args:
        base: Score of the unconditional model.
        potential: Function (x, t) of states [B, D] and a time that returns values [B] with a gradient in x.
        beta: Strength, 0 to 1e9, a number or a function of time; 1 by default.
    """

    base: Score
    potential: Potential
    beta: float | Schedule = 1.0

    def __post_init__(self) -> None:
        set_fields(self, beta=check_strength(self.beta))
        for name in ("base", "potential"):
            function(name, getattr(self, name), "(x, t)")

    def __call__(self, x: State, t: float) -> Tensor:
        beta = strength(self.beta, t)
        return _answer(self.base, x, t) + (beta * gradient(self.potential, x, t) if beta else 0.0)


def _answer(score: Score, x: State, t: float) -> Tensor:
    """The score of states, checked to have their shape."""
    found = score(x, t)
    if not isinstance(found, Tensor) or found.shape != x.shape:
        raise InvalidInput(
            f"a score returned {shown(found)} for states {tuple(x.shape)}; return grad log p_t(x), alike"
        )
    return found


def gradient(potential: Potential, x: State, t: float) -> Tensor:
    """$grad potential(x, t)$ in x by automatic differentiation, even under `torch.no_grad`.

    Args:
        potential: Function (x, t) of states [..., D] and a time that returns one number a state [...].
        x: States, float64 [..., D].
        t: The time, from 1 (noise) to 0 (data).
    """
    function("potential", potential, "(x, t)")
    x, t = reals("x", x, "give states, float64 [..., D]"), number("t", t)
    if x.dim() < 1:
        raise InvalidInput(f"x is {shown(x)}; give states, float64 [..., D]")
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        value = potential(leaf, t)
        if not isinstance(value, Tensor) or value.shape != x.shape[:-1]:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InvalidInput(
                f"the potential returned {found} for states {tuple(x.shape)}; it must return one number a state, "
                f"{tuple(x.shape[:-1])}"
            )
        slope = torch.autograd.grad(value.sum(), leaf, allow_unused=True)[0] if value.requires_grad else None
        if slope is None:
            raise InvalidInput(
                "the potential has no gradient in x; compute it without torch.no_grad or detach, from the x it is given"
            )
        return slope


def checked(name: str, score: Score | None, start: float, end: float) -> Score:
    """The score, with its shape and values checked where they appear; an error names the step start -> end."""
    if score is None:
        raise InvalidInput(f"this sampler needs a {name} score and the model has none")

    def ask(x: State, t: float) -> Tensor:
        where, shape, x = f"step t = {start:.6g} -> {end:.6g}", x.shape, batch_of(x)
        try:
            value = score(x, t)
        except (RuntimeError, InvalidInput) as error:  # torch's own message does not name the step
            raise InvalidInput(
                f"{where}: the {name} score failed on states {tuple(x.shape)} ({error}); does its dimension fit the "
                "model's?"
            ) from error
        if not isinstance(value, Tensor) or value.shape != x.shape:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InvalidInput(
                f"{where}: the {name} score returned {found} for states {tuple(x.shape)}; it must return grad log "
                "p_t(x) of the states' own shape (a network of images goes into NetScore, with shape=)"
            )
        value = value.to(x.dtype)
        bad = ~value.isfinite().all(-1)
        if bad.any():
            raise InvalidWeights(
                f"{where}: the {name} score returned NaN or infinite values for {int(bad.sum())} of {bad.numel()} "
                "particles; check the network's output there (overflow in half precision? a time where the noise is 0?)"
            )
        return value.reshape(shape)

    return ask
