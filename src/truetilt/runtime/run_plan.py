"""A run, checked: what it refuses is refused here, before a network is asked, and its settings are read here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..core.arguments import function, has, path_of, shown, whole_number
from ..core.bases import FeynmanKac
from ..core.binding import check_parts, rewards_of, spent_before, uncounted
from ..core.errors import InvalidInput
from ..core.eval_mode import hidden_in_training
from ..core.evaluation import RunLog
from ..core.fingerprints import fingerprint
from ..core.target import Target
from ..core.types import Particles, Resampler, StepInfo
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import adaptive, never, systematic
from ..smc.sampler import WHOLE, Begun, Coupling, Source, Stream, check_seed, check_shape, independent, run_steps
from ..smc.shards import Shard
from .checkpoints import EVERY, Checkpoints
from .memory import check_room, fitting_chunk
from .settings import settings_of, versions_of
from .snapshots import Record, chosen_steps

Callback = Callable[[int, int, StepInfo], None]  # (steps done, steps in all, what happened)
Watch = Callable[[int, Particles, StepInfo], None]  # (steps done, the particles, what happened)
_OF_A_SHARD = ("first", "complete", "share", "everyone", "mine", "draw", "summed", "agreed", "compare")


@dataclass(frozen=True)
class Options:
    """The options of `tt.run`, which says what each means; of the right kind, or refused."""

    particles: int = 64
    populations: int = 1
    seed: int = 0
    resample: Resampler | None = None
    couple: Coupling = independent
    moves: Rejuvenation | None = None
    chunk: int | Literal["auto"] | None = None
    first_population: int = 0
    snapshots: int | Sequence[int] | None = None
    callback_on_step_end: Callback | None = None
    watch: Watch | None = None
    checkpoint: str | Path | None = None
    checkpoint_every: int = EVERY
    shard: Shard = WHOLE

    def __post_init__(self) -> None:
        if self.resample is not None:
            need = "a resampler such as tt.systematic or tt.adaptive(...)"
            function("resample", self.resample, "(log_w, u)", need)
        function("couple", self.couple, "(u, labels, spare)", "such as tt.independent or tt.systematic_draws")
        if isinstance(self.chunk, str) and self.chunk != "auto":
            need = 'give how many particles draw at a time, "auto", or None for all'
            raise InvalidInput(f"chunk is {shown(self.chunk)}; {need}")
        if self.chunk is not None and not isinstance(self.chunk, str):
            whole_number("chunk", self.chunk, 1)
        has("shard", self.shard, _OF_A_SHARD, "leave it out, or give tt.distributed.particle_shard(particles)")
        if self.callback_on_step_end is not None:
            function("callback_on_step_end", self.callback_on_step_end, "(done, steps, info)")
        if self.watch is not None:
            function("watch", self.watch, "(done, particles, info)")


@dataclass(frozen=True)
class RunPlan:
    """A run whose arguments have been checked; its settings are those of the value before it is bound to a log."""

    fk: FeynmanKac
    moves: Rejuvenation | None
    grid: Sequence[float]
    shape: tuple[int, int]  # populations and particles
    resample: Resampler
    source: Source
    kept: tuple[int, ...]  # the steps whose particles are kept
    settings: dict[str, Any]
    saved: Checkpoints | None
    options: Options

    @staticmethod
    def checked(fk: FeynmanKac, grid: Sequence[float], options: Options, version: str) -> RunPlan:
        """The plan of a run over a grid that is checked already; `version` is that of the library."""
        check_model_functions(fk)
        moves = moves_of(fk, options.moves, options.resample)
        check_counted(fk, moves and moves.by)
        resample, steps = options.resample or adaptive(systematic, 0.5), len(grid) - 1
        shape = check_shape((options.populations, options.particles))
        kept = chosen_steps(options.snapshots, steps)
        check_parts((fk, moves), shape[0])
        first = whole_number("first_population", options.first_population, 0, 2**62)
        sizes = {"seed": check_seed(options.seed), "particles": shape[1], "populations": shape[0]}
        sizes |= {"first_population": first, "steps": steps}
        settings, told = settings_of(fk, resample, options.couple, moves, sizes), {"grid": grid, "snapshots": kept}
        options.shard.compare(settings | told)
        source = _source(fk, sizes, options)
        settings |= versions_of(source.stream.device, version) | {"spent before": spent_before((fk, moves))._asdict()}
        whole_number("checkpoint_every", options.checkpoint_every, 1)
        saved = _checkpoints((fk, resample, options.couple, moves), settings | told, source, options)
        return RunPlan(fk, moves, grid, shape, resample, source, kept, settings, saved, options)

    def run(self, fk: FeynmanKac, moves: Rejuvenation | None, log: RunLog) -> Record:
        """The record of the run, from its last checkpoint on, of what is sampled and its moves once they are bound to
        the log; every step is counted, shown to those who watch, and saved when that is due.
        """
        steps, watch, callback = len(self.grid) - 1, self.options.watch, self.options.callback_on_step_end
        with self.saved or nullcontext():
            record = Record() if self.saved is None else self.saved.load(self.source.stream.device)
            begun = None if record.step < 0 else Begun(record.step, record.particles)
            for state, info in run_steps(fk, self.grid, self.shape, self.resample, self.source, moves, begun):
                info = info._replace(spent=torch.tensor(log.lap()))
                record.particles, done = state, len(record.infos)
                record.infos.append(info._replace(ancestors=info.ancestors.int()))
                if done in self.kept:
                    record.kept.append((done, state._replace(aux={})))
                if watch:
                    watch(done, state, info)
                if callback:
                    callback(done, steps, info)
                if self.saved:
                    self.saved.after_step(record, steps)
        return record


def _source(fk: FeynmanKac, sizes: dict[str, int], options: Options) -> Source:
    """What this process's share of a run draws with, in chunks that fit; raises if it cannot fit into memory."""
    device, here = fk.device, (sizes["populations"], options.shard.share(sizes["particles"]))
    check_room(fk, here, sizes["steps"], device)
    chunk = fitting_chunk(fk, here, device) if options.chunk == "auto" else options.chunk
    return Source(Stream(sizes["seed"], sizes["first_population"], device), options.couple, chunk, shard=options.shard)


def _checkpoints(
    parts: tuple[Any, ...], settings: dict[str, Any], source: Source, options: Options
) -> Checkpoints | None:
    """The checkpoints of a run, with what must be equal for a run to resume from them: settings, kind of device and
    networks.
    """
    if options.checkpoint is None:
        return None
    identity = settings | {"device": torch.device(source.stream.device).type, "networks": fingerprint(parts)}
    folder = path_of("checkpoint", options.checkpoint)
    return Checkpoints(folder, options.checkpoint_every, identity, source.shard, rewards_of(parts))


def check_model_functions(fk: FeynmanKac) -> None:
    """Warn of networks in train mode inside the user's functions, which are not switched to eval mode for them."""
    if nets := hidden_in_training(fk):
        warnings.warn(
            f"a function of this model calls a {type(nets[0]).__name__} in train mode, where dropout makes answers "
            "random and batches of particles change one another; call its eval() first",
            stacklevel=5,
        )


def check_counted(*values: object) -> None:
    """Warn of values whose networks and rewards a run cannot count, because they are no dataclasses."""
    for value in values:
        if value is not None and (names := uncounted(value)):
            warnings.warn(
                f"what `{'` and `'.join(names)}` of this {type(value).__name__} asks is not counted in `result.spent`: "
                "only fields of dataclasses are looked through; make the class a @dataclass(frozen=True)",
                stacklevel=5,
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
                stacklevel=6,
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
