"""What states are worth: values of potentials, twists and rewards, asked about a batch and checked.

A move that redraws a site asks what the state is worth with each token there. A potential that can answer that at once
(a linear one, say) has a method `site_values`; any other is asked about every such state.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core.types import NEG_INF, InvalidInput, InvalidWeights, Potential, Tokens, batch_of, check, tensor_of


@runtime_checkable
class SiteValued(Protocol):
    """A potential that also answers for all tokens of a site at once."""

    def __call__(self, x: Tokens, t: float) -> Tensor: ...
    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor: ...  # [B, D], [B] -> [B, S]


def value_of(potential: Potential, x: Tokens, t: float) -> Tensor:
    """The value of states [..., D], float64 [...]: asked as one batch, with its shape and NaN checked."""
    batch, need = batch_of(x), "return one number a state"
    value = tensor_of("what the potential returned", potential(batch, t), need, x.device)
    if value.shape != batch.shape[:1]:
        raise InvalidInput(
            f"the potential (reward) returned shape {tuple(value.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number a state, [{len(batch)}]"
        )
    return _checked(value, t).reshape(x.shape[:-1])


def scaled(value: Tensor, factor: float) -> Tensor:
    """factor * value; a value of -inf is impossible at any factor but 0, where it is not asked."""
    return torch.where(value == NEG_INF, NEG_INF, factor * value) if factor != 0 else torch.zeros_like(value)


def token_values(potential: Potential, x: Tokens, sites: Tensor, t: float, asked: Tensor) -> Tensor:
    """The value of x with each site [..., k] set to each token, float64 [..., k, S], where `asked`; 0 elsewhere."""
    if isinstance(potential, SiteValued):
        found = [_by_site(potential, x, site, t, asked.shape[-1]) for site in sites.unbind(-1)]
        return torch.where(asked, torch.stack(found, -2), 0.0)
    where = asked.nonzero(as_tuple=True)  # (*particle, site, token)
    *particle, k, token = where
    y = x[tuple(particle)]
    y = y.scatter(-1, sites[(*particle, k)][:, None], token[:, None])
    out = torch.zeros(asked.shape, dtype=torch.float64, device=x.device)
    if len(y):
        out[where] = value_of(potential, y, t)
    return out


def _by_site(potential: SiteValued, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    batch = batch_of(x)
    found = tensor_of("what site_values returned", potential.site_values(batch, site.reshape(-1), t), "", x.device)
    if tuple(found.shape) != (len(batch), size):
        raise InvalidInput(
            f"site_values of the {type(potential).__name__} returned shape {tuple(found.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number for each of {size} tokens, [{len(batch)}, {size}]"
        )
    return _checked(found, t).reshape(*x.shape[:-1], size)


def _checked(value: Tensor, t: float) -> Tensor:
    """In float64, with NaN caught."""
    check(
        value.isnan().any(),
        lambda: InvalidWeights(
            f"the potential (reward) returned NaN for {int(value.isnan().sum())} of {value.numel()} states at "
            f"t = {t:.6g}; return -inf for an impossible state, a finite number otherwise"
        ),
    )
    return value.double()
