"""Moves between two steps of a run: a Markov kernel with how often it is applied, and what its moves did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..core.arguments import LONGEST, called, set_fields, whole_number
from ..core.bases import FeynmanKac, MakeMoves, MoveKernel, check_kernel_of_moves
from ..core.errors import InvalidInput
from ..core.target import NO_WEIGHTS, Target
from ..core.types import Particles, Step, StepInfo
from .resampling import check_accepted, never
from .sampler import CHOOSE, Source, advance

_NEED = "give moves, such as tt.Gibbs, or with options partial(tt.Gibbs, scan=tt.systematic_scan)"


@dataclass(frozen=True)
class Rejuvenation:
    """A Markov kernel and how often it moves: after each step, more after a step that resampled, more at the end.

    Moves after resampling depend on the weights: the answer stays consistent, but Z-hat is no longer unbiased at few
    particles. Use `each_step` or `at_end` where that matters.

    Args:
        kernel: What makes the moves from the value that is run, such as `tt.Gibbs`, or with options
            `partial(tt.Block, size=2)`: they leave the run's target alone. Or moves made from another value of the same
            target, such as `tt.Gibbs(other)`.
        each_step: Moves after every step, 0 to 1,000,000; 0 by default.
        after_resampling: Further moves after a step in which particles were resampled, 0 to 1,000,000; 0 by default.
        at_end: Further moves after the last step, 0 to 1,000,000; 0 by default.
    """

    kernel: MakeMoves | MoveKernel
    each_step: int = 0
    after_resampling: int = 0
    at_end: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.kernel, MoveKernel):
            whole_number("the number of choices of the kernel", self.kernel.choices, 0)
        elif not callable(self.kernel):
            check_kernel_of_moves(self.kernel, _NEED)
        given = {"each_step": self.each_step, "after_resampling": self.after_resampling, "at_end": self.at_end}
        for name, count in given.items():
            set_fields(self, **{name: whole_number(f"a number of moves, {name},", count, 0, LONGEST)})
        if not self.each_step + self.after_resampling + self.at_end:
            raise InvalidInput(
                "Rejuvenation makes no moves: each_step, after_resampling and at_end are all 0; say how often it "
                "moves, tt.Rejuvenation(kernel, at_end=3), or leave moves out"
            )

    def made_from(self, fk: FeynmanKac) -> Rejuvenation:
        """The same with its kernel made from the value that is run, unless that has been made already."""
        if isinstance(self.kernel, MoveKernel):
            return self
        return replace(self, kernel=check_kernel_of_moves(called("kernel", self.kernel, fk), _NEED, "what kernel made"))

    @property
    def by(self) -> MoveKernel:
        """The kernel itself, once it is made."""
        return cast("MoveKernel", self.kernel)

    def differences(self, target: Target | None) -> list[str]:
        """How the target of a run and that of the kernel differ: in the final law; with moves before the end, in
        intermediate laws too.
        """
        mine, theirs = target or NO_WEIGHTS, self.by.spec or NO_WEIGHTS
        return mine.differences(theirs, on_the_way=self.each_step + self.after_resampling > 0)

    def counts(self, resampled: Tensor, last: bool) -> Tensor:
        """How many moves each population makes now [populations]."""
        return self.each_step + self.after_resampling * resampled.long() + self.at_end * last

    def after_step(
        self, particles: Particles, info: StepInfo, here: Step, source: Source, last: bool
    ) -> tuple[Particles, StepInfo]:
        """The particles after the moves that are due after this step, and the step's record with what the moves did."""
        own = torch.arange(info.ancestors.shape[-1], device=info.ancestors.device)
        counts = self.counts((info.ancestors != own).any(-1), last)
        particles, moved = rejuvenate(self, particles, counts, here, source)
        return particles, info._replace(moved=moved.share, accepted=moved.accepted)

    def before(self, number: int) -> int:
        """The number of this step's first move, counted over the whole run, so that a systematic scan goes on where the
        step before stopped.
        """
        return (number - 1) * (self.each_step + self.after_resampling)


class Moved(NamedTuple):
    """What moves did to each population: the share of particles a move changed, and how likely it was accepted."""

    share: Tensor  # [populations]
    accepted: Tensor


def rejuvenate(
    moves: Rejuvenation, particles: Particles, counts: Tensor, here: Step, source: Source
) -> tuple[Particles, Moved]:
    """Move every particle of population k counts[k] times at the end of a step; weights stay."""
    kernel, first, still = moves.by, moves.before(here.number), here._replace(t=here.s)
    share = accepted = torch.zeros(particles.log_w.shape[:-1], dtype=torch.float64, device=particles.log_w.device)
    each = 1 / counts.clamp(min=1)
    log = source.log
    for k in range(int(counts.max())):
        own, going = replace(source, lap=k + 1), k < counts
        u = own.uniforms(here.number, CHOOSE, particles.x, kernel.choices)
        move = kernel.move(particles, here.s, first + k, u)
        check_accepted(move.log_accept, f"{type(kernel).__name__}, a move at t = {here.s:.6g}", log)
        after, _ = advance(move, particles.log_w, still, never, own)
        changed = source.shard.everyone((after.x != particles.x).any(-1).double()).mean(-1)
        share = share + torch.where(going, changed * each, 0.0)
        accepting = source.shard.everyone(move.log_accept).exp().mean(-1)
        accepted = accepted + torch.where(going, accepting * each, 0.0)
        particles = after if bool(going.all()) else _mixed(going, after, particles)
    return particles, Moved(share, accepted)


def _mixed(chosen: Tensor, new: Particles, old: Particles) -> Particles:
    """Chosen populations [populations] from `new`, the others from `old`; weights are the same in both."""

    def mix(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(chosen.reshape(-1, *[1] * (a.dim() - 1)), a, b)

    aux = {key: mix(value, old.aux.get(key, value)) for key, value in new.aux.items()}
    return Particles(mix(new.x, old.x), old.log_w, aux)
