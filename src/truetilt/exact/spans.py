"""A chain given its unmasked sites, by lookup: the log-mass of every path between any two sites, tabulated once.

Given some revealed sites, a masked site depends only on its nearest revealed neighbours, so a score is two rows of a
table and a potential a sum of entries. Everything is a sum of logs of absolute masses: nothing can underflow. The table
has D^2 V^2 entries, twice; longer chains pass messages instead.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.types import NEG_INF, Tokens


class Spans(NamedTuple):
    """Rows of log-masses over the tokens of a site d, for each nearest neighbour on one side; the last rows are for
    none.

    Row ((gap - 1) D + end) V + token of `left` sums the paths from that token at site `end` to each token at d; of
    `right`, the paths from each token at d = end to that token. Factors are included strictly between the two sites.
    """

    left: Tensor  # [(D - 1) D V + D, V]
    right: Tensor
    log_factors: Tensor  # [D, V]

    @staticmethod
    def of(log_initial: Tensor, log_steps: Tensor, log_factors: Tensor) -> Spans:
        """Tabulate a chain: initial law [V], a matrix a step [D-1, V, V], a factor a site [D, V], all as logs."""
        length, size = log_factors.shape
        left = log_initial.new_full((max(length - 1, 0), length, size, size), NEG_INF)
        right, reach = left.clone(), log_steps
        for gap in range(1, length):
            left[gap - 1, : length - gap], right[gap - 1, : length - gap] = reach, reach.transpose(-1, -2)
            if gap < length - 1:
                reach = _extend(reach[:-1] + log_factors[gap:-1, None], log_steps[gap:])
        before, after = [log_initial], [torch.zeros_like(log_initial)]
        for d in range(length - 1):
            before.append(_extend((before[-1] + log_factors[d])[None], log_steps[d])[0])
            onward = log_steps[length - 2 - d] + (after[-1] + log_factors[length - 1 - d])
            after.append(onward.logsumexp(-1))
        return Spans(
            torch.cat([left.reshape(-1, size), torch.stack(before)]),
            torch.cat([right.reshape(-1, size), torch.stack(after[::-1])]),
            log_factors,
        )

    def log_alone(self, x: Tokens) -> Tensor:
        """log of the law of x^d given the other revealed sites [B, D, V]; all -inf only if that is impossible."""
        before, after, broken, following = self._read(x)
        logits = before + self.log_factors + after
        elsewhere = broken.sum(-1, keepdim=True) - broken - following
        scale = logits.logsumexp(-1, keepdim=True)
        alone = logits - torch.where(scale > NEG_INF, scale, 0.0)
        return alone.masked_fill((elsewhere > 0)[..., None], NEG_INF)

    def log_total(self, x: Tokens) -> Tensor:
        """log of the mass of all sequences that agree with the revealed sites of x [B]."""
        before, after, _, _ = self._read(x)
        seen, last = self._seen(x)
        arrive = _pick(before + self.log_factors, x)
        leave = _pick(after, x)
        every = (self.left[-len(self.log_factors) :] + self.log_factors + self.right[-len(self.log_factors) :])[0]
        paths = torch.where(seen, arrive, 0.0).sum(-1) + torch.where(last, leave, 0.0).sum(-1)
        return torch.where(seen.any(-1), paths, every.logsumexp(-1))

    def _seen(self, x: Tokens) -> tuple[Tensor, Tensor]:
        """The mask of revealed sites, and the index of the last one."""
        seen = x < self.log_factors.shape[-1]
        return seen, seen & (seen.flip(-1).cumsum(-1).flip(-1) == 1)

    def _read(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both rows of every site [B, D, V], and how many contradictions there are at it and at the next revealed site.

        A revealed site can contradict the one before it or its own factor, and the last one also what follows.
        """
        length, size = self.log_factors.shape
        seen, last = self._seen(x)
        site = torch.arange(length, device=x.device)
        previous = torch.where(seen, site, -1).cummax(-1).values.roll(1, -1)
        previous[..., 0] = -1
        coming = torch.where(seen, site, length).flip(-1).cummin(-1).values.flip(-1).roll(-1, -1)
        coming[..., -1] = length
        edge = (length - 1) * length * size + site
        token = torch.cat([x, x.new_zeros(len(x), 1)], -1)
        from_left = ((site - previous - 1) * length + previous) * size + token.gather(-1, previous.clamp(min=0))
        from_right = ((coming - site - 1) * length + site) * size + token.gather(-1, coming)
        before = self.left[torch.where(previous < 0, edge, from_left)]
        after = self.right[torch.where(coming == length, edge, from_right)]
        stuck = (seen & (_pick(before, x) == NEG_INF)).long()
        barred = seen & (_pick(self.log_factors.expand_as(before), x) == NEG_INF)
        ending = last & (_pick(after, x) == NEG_INF)
        following = torch.cat([stuck, stuck.new_zeros(len(x), 1)], -1).gather(-1, coming)
        return before, after, stuck + barred.long() + ending.long(), torch.where(seen, following, 0)


def _extend(paths: Tensor, log_step: Tensor) -> Tensor:
    """Paths [..., V] extended by one step: summed over their last token."""
    return (paths[..., :, None] + (log_step[:, None] if log_step.dim() == 3 else log_step)).logsumexp(-2)


def _pick(rows: Tensor, x: Tokens) -> Tensor:
    """The entry of each site's own token; an arbitrary entry for a mask."""
    return rows.gather(-1, x.clamp(max=rows.shape[-1] - 1)[..., None]).squeeze(-1)
