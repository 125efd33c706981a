"""Muon (Jordan et al. 2024): the steps of matrices made orthogonal; all other parameters by AdamW.

A matrix moves by its Nesterov momentum with all singular values set to about 1, so that directions that gradients
seldom show are learned as fast as the others. The step is scaled to the size of AdamW's (root mean square .2 times the
learning rate, Liu et al. 2025), so that one learning rate and one weight decay serve both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)  # its iterates take (0, 1] to about 1: .7 to 1.2 after five
_ROUNDS, _MOMENTUM, _SIZE = 5, 0.95, 0.2


class Muon(torch.optim.AdamW):
    """AdamW, but for the given matrices."""

    def __init__(self, matrices: Iterable[Tensor], others: Iterable[Tensor], **options: Any) -> None:
        of_matrices = {"params": list(matrices), "moments": ("exp_avg",)}
        super().__init__([{"params": list(others)}, of_matrices], **options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of both; afterwards the matrices have no gradient, which is how AdamW passes them by."""
        group, alike = self.param_groups[1], defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                alike[parameter.shape].append(parameter)
        for shape, parameters in alike.items():
            moved = orthogonal(torch.stack(self._momentum(parameters)))
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            scale = -group["lr"] * _SIZE * max(shape) ** 0.5
            torch._foreach_add_(parameters, list(moved.to(parameters[0].dtype).unbind()), alpha=scale)
            for parameter in parameters:
                parameter.grad = None
        return super().step(closure)

    def _momentum(self, parameters: list[Tensor]) -> list[Tensor]:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]  # all have one
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter)}
        running = [self.state[parameter]["exp_avg"] for parameter in parameters]
        torch._foreach_lerp_(running, gradients, 1 - _MOMENTUM)
        return list(torch._foreach_lerp(gradients, running, _MOMENTUM))


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, a, b] with their singular values moved to about 1, bfloat16: Newton-Schulz with a quintic."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def matrices_of(net: nn.Module) -> list[Tensor]:
    """The matrices inside the blocks of a transformer, but for the narrow ones that read noise and label."""
    named = [pair for pair in net.named_parameters() if pair[0].startswith("blocks.") and "adaLN" not in pair[0]]
    return [parameter for _, parameter in named if parameter.dim() == 2 and parameter.requires_grad]
