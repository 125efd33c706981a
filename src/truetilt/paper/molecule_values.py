"""The potential of molecules as a differentiable function of one-hot rows, for guidance by a gradient (`tt.Taylor`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..core.errors import InvalidInput
from ..models.infilling import Around, Infill, open_sites
from ..models.net_score import normalised
from ..molecules.twist import EndedExactly, PropertyTwist, SumOfTwists


@dataclass(frozen=True, eq=False)
class RelaxedPotential:
    """strength * h of one-hot open sites [B, D, S + 1], the mask last: log E[exp(strength f) | x_t] by the potential.

    h is the value of `PropertyTwist`, without its bound from below, which has no gradient.
    """

    parts: tuple[PropertyTwist, ...]
    infill: Infill | None = None

    @staticmethod
    def of(twist: Any, strength: float) -> RelaxedPotential:
        """The relaxed form of a twist of `Molecules.twist`, made for this strength."""
        infill = None
        if isinstance(twist, Around):
            twist, infill = twist.potential, twist.infill
        twist = twist.twist if isinstance(twist, EndedExactly) else twist
        parts = twist.parts if isinstance(twist, SumOfTwists) else (twist,)
        if not all(isinstance(part, PropertyTwist) and part.strength == strength for part in parts):
            raise InvalidInput("this is no twist of the potential for this strength; give one of Molecules.twist")
        return RelaxedPotential(tuple(parts), infill)

    def __call__(self, onehot: Tensor, t: float) -> Tensor:
        rows = onehot if self.infill is None else whole_rows(self.infill, onehot)
        found = []
        for part in self.parts:
            with torch.autocast(rows.device.type, part.dtype, enabled=part.dtype is not None):
                log_odds = relaxed_logits(part.net, rows, t)
            log_p = normalised(log_odds.double(), part.net)
            mine = log_p[..., part.first : part.first + len(part.values)]
            found.append((mine + part.values.to(rows.device)).logsumexp(-1))
        return torch.stack(found).sum(0)


def whole_rows(infill: Infill, onehot: Tensor) -> Tensor:
    """One-hot rows with the fixed tokens inserted [B, L, S + 1], from those of the open sites."""
    given = torch.tensor([0 if token is None else token for token in infill.given], device=onehot.device)
    fixed = functional.one_hot(given, onehot.shape[-1]).to(onehot).expand(len(onehot), -1, -1)
    return fixed.index_copy(1, open_sites(infill.given).to(onehot.device), onehot)


def relaxed_logits(net: Any, onehot: Tensor, t: float) -> Tensor:
    """The log-odds of a `TextClassifier` [B, classes], for one-hot rows in place of tokens."""
    condition = functional.silu(net.moment(torch.full((len(onehot),), float(t), device=onehot.device)))
    h, turn = onehot @ net.vocab_embed.embedding, net.rotary_emb(onehot.shape[1], onehot.device)
    for block in net.blocks:
        h = block(h, turn, condition)
    h = net.norm_final(h)
    pooled = (net.notice(h).float().softmax(-2) * h).sum(-2)
    return net.head(pooled).float()
