"""The runner of experiments: independent jobs, a function that combines their answers, and a figure."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..core.storage import check_folder, owned, read_json, remove_written, write_json
from .outputs import write_outputs

Answer = dict[str, Any]
RANK, RANKS = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
PROCESSES = int(os.environ.get("TRUETILT_PROCESSES", "1"))  # jobs at a time on a GPU, each in a process of its own
_PAUSE = 0.2  # seconds between polls for answers of other ranks


@dataclass(frozen=True)
class Settings:
    """The options that every experiment takes."""

    quick: bool = False
    seed: int = 0
    device: str = "cpu"
    data: str | None = None  # the user's data folder, for experiments that read one
    more: tuple[tuple[str, str], ...] = ()  # further options of the command, by name


class Job(NamedTuple):
    """A call that can run in a process of its own, and the name under which its answer is cached."""

    name: str
    work: Callable[..., Answer]
    arguments: tuple[Any, ...]


class Experiment(NamedTuple):
    """An experiment: its jobs, how their answers become a result, and how the result is drawn."""

    name: str
    title: str
    jobs: Callable[[Settings], list[Job]]
    collect: Callable[[Settings, dict[str, Answer]], Answer]
    draw: Callable[[Answer], Any]  # a matplotlib figure
    columns: tuple[str, ...]  # of the table in the terminal


def run_experiment(experiment: Experiment, settings: Settings, folder: Path, advance: Callable[[], Any]) -> Answer:
    """Run the jobs, write result.json and figure.png (first rank only), then remove the cached jobs."""
    check_folder(folder)
    with owned_by_first(folder):
        found = {}
        for name, answer in answers(experiment, settings, folder):
            found[name] = answer
            advance()
        if RANK > 0:
            return {}
        result = {"version": __version__, "command": command(experiment, settings), "seed": settings.seed}
        result |= {"device": device_name(settings.device)} | experiment.collect(settings, found)
        write_outputs(folder, result, experiment.draw(result))
        forget(folder, found)
        return result


def owned_by_first(folder: Path) -> AbstractContextManager[None]:
    """The folder of a command, which belongs to one run at a time: the first rank locks it for all."""
    return owned(folder) if RANK == 0 else nullcontext()


def command(experiment: Experiment, settings: Settings) -> str:
    """The command line that reproduces this result."""
    words = ["truetilt", "demo"] if experiment.name == "demo" else ["truetilt", "reproduce", experiment.name]
    if settings.quick and experiment.name != "demo":
        words.append("--quick")
    if settings.data is not None:
        words.append(f"--data {shlex.quote(settings.data)}")
    words += [f"--{name} {shlex.quote(value)}" for name, value in settings.more]
    return " ".join([*words, f"--seed {settings.seed}", f"--device {settings.device}"])


def device_name(device: str) -> str:
    """The name of the CPU or GPU that computed the result."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"cpu ({platform.machine()})"


def _unheard(name: str) -> None:
    """The default `begun` callback: does nothing."""


def answers(
    experiment: Experiment, settings: Settings, folder: Path, begun: Callable[[str], object] = _unheard
) -> Iterator[tuple[str, Answer]]:
    """Every job's name and answer as it finishes; one job per core or rank at a time, on a GPU `PROCESSES` of them.

    `begun` is called with the name of each job that this process computes, as it begins.
    """
    if RANKS > 1:
        from ..distributed.world import world

        world()  # a rank that was started alone does not wait for the others for ever
    kept = folder / "jobs"
    text = json.dumps([experiment.name, asdict(settings), __version__, _package()], sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    jobs = experiment.jobs(settings)
    waiting = []
    for job in jobs[RANK::RANKS]:
        found = _kept(kept / f"{job.name}.json", mark)
        if found is None:
            waiting.append(job)
        else:
            yield job.name, found
    for job, answer in _run(waiting, settings, begun):
        write_json(kept / f"{job.name}.json", {"fingerprint": mark, "answer": answer})
        yield job.name, answer
    for job in (job for number, job in enumerate(jobs) if RANK == 0 and number % RANKS):
        while (found := _kept(kept / f"{job.name}.json", mark)) is None:
            time.sleep(_PAUSE)  # if that rank dies, the launcher ends this one too
        yield job.name, found


def forget(folder: Path, names: Iterable[str]) -> None:
    """Delete the cached answers of these jobs once the result is written."""
    remove_written(folder / "jobs", [f"{name}.json" for name in names])


def _run(jobs: list[Job], settings: Settings, begun: Callable[[str], object]) -> Iterator[tuple[Job, Answer]]:
    most = (os.cpu_count() or 1) if settings.device == "cpu" else PROCESSES
    workers = min(len(jobs), most) if RANKS == 1 else 1
    if workers < 2 or len(jobs) < 4:
        for job in jobs:
            begun(job.name)
            yield job, job.work(*job.arguments)
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        futures = {pool.submit(job.work, *job.arguments): job for job in jobs}
        later = iter(jobs)  # an iterator, so that jobs start in turn
        for job in islice(later, workers):
            begun(job.name)
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                for job in islice(later, 1):
                    begun(job.name)
        except BaseException:  # the answers of running jobs are not awaited
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def _package() -> str:
    """A hash of the code and the embedded networks: cached jobs of another version are not reused."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*")):
        if path.suffix in (".py", ".json", ".safetensors"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _kept(path: Path, mark: str) -> Answer | None:
    """The cached answer of a job; None if there is none, or if it was computed by other code or settings."""
    try:
        found = read_json(path)
        return found["answer"] if found["fingerprint"] == mark else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
