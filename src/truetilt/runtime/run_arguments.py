"""Checks of a run's arguments before it starts: options, callbacks, and moves that must have the run's own target."""

from __future__ import annotations

import warnings
from dataclasses import replace

from ..core.arguments import function, has, shown, whole_number
from ..core.bases import FeynmanKac
from ..core.binding import uncounted
from ..core.errors import InvalidInput
from ..core.eval_mode import hidden_in_training
from ..core.target import Target
from ..core.types import Resampler
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import never


def check_model_functions(fk: FeynmanKac) -> None:
    """Warn of networks in train mode inside the user's functions, which are not switched to eval mode for them."""
    if nets := hidden_in_training(fk):
        warnings.warn(
            f"a function of this model calls a {type(nets[0]).__name__} in train mode, where dropout makes answers "
            "random and batches of particles change one another; call its eval() first",
            stacklevel=4,
        )


def check_counted(*values: object) -> None:
    """Warn of values whose networks and rewards a run cannot count, because they are no dataclasses."""
    for value in values:
        if value is not None and (names := uncounted(value)):
            warnings.warn(
                f"what `{'` and `'.join(names)}` of this {type(value).__name__} asks is not counted in `result.spent`: "
                "only fields of dataclasses are looked through; make the class a @dataclass(frozen=True)",
                stacklevel=4,
            )


def moves_of(fk: FeynmanKac, moves: Rejuvenation | None, resample: Resampler | None) -> Rejuvenation | None:
    """The moves of a run, made from its value if they are not made yet. Moves with another target than the run's are
    refused: the final law and, with moves before the end, the intermediate laws.
    """
    if moves is None:
        return None
    if not isinstance(moves, Rejuvenation):
        raise InvalidInput(
            f"moves is a {type(moves).__name__}; say how often it moves, tt.Rejuvenation(kernel, at_end=3)"
        )
    made = moves.made_from(fk)
    for side in () if made is not moves else (fk, made.by):  # what is made from the run's value has its target
        if side.spec is None:
            warnings.warn(
                f"{type(side).__name__} does not say what its target is, so nobody checks that the moves leave the "
                "run's alone; give it a property `target` that returns a tt.Target",
                stacklevel=5,
            )
    if resample is not never:  # particles that are never resampled may start on their way to any target
        check_same_target(fk.spec, made)
    return made


def check_same_target(target: Target | None, moves: Rejuvenation) -> None:
    """Refuse moves for another target than this one, in words that name the parts that differ."""
    found = moves.differences(target)
    ends_differ = replace(moves, each_step=0, after_resampling=0, at_end=1).differences(target)
    theirs = moves.by.spec
    if found and not ends_differ and theirs is not None and theirs.ends_only:
        raise InvalidInput(
            f"{type(moves.by).__name__} moves finished states only in such a run, and is to move between its steps "
            "too; move at_end only, tt.Rejuvenation(kernel, at_end=...)"
        )
    if found:
        what = "aim at different targets" if ends_differ else "reach their target by different ways (move at_end only)"
        raise InvalidInput(
            f"the run and its moves {what}: they differ in {', '.join(found)}; build the moves from the run's own "
            "model, exponent and ramp"
        )


def check_options(couple: object, resample: object, chunk: object, shard: object) -> None:
    """Refuse options of `run` that are of the wrong kind."""
    if resample is not None:
        function("resample", resample, "(log_w, u)", "a resampler such as tt.systematic or tt.adaptive(...)")
    function("couple", couple, "(u, labels, spare)", "such as tt.independent or tt.systematic_draws")
    if isinstance(chunk, str) and chunk != "auto":
        raise InvalidInput(f'chunk is {shown(chunk)}; give how many particles draw at a time, "auto", or None for all')
    if chunk is not None and not isinstance(chunk, str):
        whole_number("chunk", chunk, 1)
    members = ("first", "complete", "share", "everyone", "mine", "draw", "summed", "agreed", "compare")  # of a `Shard`
    has("shard", shard, members, "leave it out, or give tt.distributed.particle_shard(particles)")


def check_observers(callback: object, watch: object) -> None:
    """Refuse callbacks that cannot be called with what a step passes to them."""
    if callback is not None:
        function("callback_on_step_end", callback, "(done, steps, info)")
    if watch is not None:
        function("watch", watch, "(done, particles, info)")
