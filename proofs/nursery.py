"""Where mutants are tried: temporary copies of the source and the tests, and processes forked off one that is ready.

Importing torch and collecting the tests take far longer than the tests that notice a fault. So one process collects
them once, and each mutant gets a fork of it, in which the functions it changes are given their new code. A mutant that
changes what runs on import is written to its file and tried alone.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import _lru_cache_wrapper, partial
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from mutations import Mutant, Task, mutant_tree, mutated

HERE = Path(__file__).parent
SOURCE, TESTS = HERE.parent / "src/truetilt", HERE.parent / "tests"
NOTES = HERE.parent / ".cache/mutants"
PATIENCE, SLOWER = 15.0, 2.0  # a mutant hangs if it needs so many seconds more than so many times the usual
READING = 60.0  # seconds more, where tests have to be collected first
UNBORN, BROKEN = 77, 99  # exit codes: a mutant that lives in no function; a fault of this file
FILE_LIMIT = 400.0  # seconds for the tests of a file; later ones are left out


class Cover:
    """A pytest plugin that notes for each test that passes its seconds and the lines of the targets it runs."""

    def __init__(self, house: Path, modules: Sequence[str], out: Path) -> None:
        self.names = {str(house / "src/truetilt" / name): name for name in modules}
        self.out, self.bad, self.tests = out, set(), {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines = set()
        begin = time.process_time()
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            if item.nodeid not in self.bad and self.lines:
                seconds = round(time.process_time() - begin, 3)
                self.tests[item.nodeid] = {"seconds": seconds, "lines": sorted(self.lines)}
                self.out.write_text(json.dumps(self.tests))

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.bad.add(report.nodeid)

    def _enter(self, frame, event, arg):
        name = self.names.get(frame.f_code.co_filename)
        in_function = frame.f_code.co_flags & CO_OPTIMIZED  # who imports a module first has not tested it
        return partial(self._line, name) if name and in_function else None

    def _line(self, name, frame, event, arg):
        self.lines.add(f"{name}:{frame.f_lineno}")
        return partial(self._line, name)


class Nursery:
    """A pytest plugin that collects once, then puts each mutant to its tests in a process forked off."""

    def __init__(self, house: Path, tasks: Sequence[Task], notes: Path) -> None:
        self.house, self.tasks, self.notes = house, tasks, notes

    def pytest_runtestloop(self, session):
        items = {item.nodeid: item for item in session.items}
        for module in sorted({task.mutant.module for task in self.tasks}):
            import_module("truetilt." + module.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        self.born = [thing for thing in gc.get_objects() if type(thing) in (FunctionType, _lru_cache_wrapper)]
        for task in self.tasks:
            chosen = [items[test] for test in task.tests if test in items]
            note(self.notes, task.mutant, self.outcome(session, task, chosen))
        return True

    def outcome(self, session, task: Task, chosen: Sequence[pytest.Item]) -> str:
        def in_child() -> int:
            if not transplant(self.born, self.house / "src/truetilt" / task.mutant.module, task.mutant.number):
                return UNBORN
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    return 1
            return 0

        code = in_a_fork(in_child, PATIENCE + SLOWER * task.seconds)
        return {0: "survived", UNBORN: "unborn", BROKEN: "unborn", None: "hung"}.get(code, "noticed")


def transplant(born: Sequence, path: Path, number: int) -> bool:
    """Give those functions that are of a module the code of its mutant; False if it changes what runs on import."""
    new = {}
    stack = [compile(mutant_tree(path.read_text(), number), str(path), "exec")]
    while stack:
        code = stack.pop()
        new[code.co_qualname, code.co_firstlineno] = code
        stack += [const for const in code.co_consts if isinstance(const, CodeType)]
    own = [f for f in born if isinstance(f, FunctionType) and f.__code__.co_filename == str(path)]
    if not own:
        raise LookupError(f"no function of {path} is loaded")
    changed = False
    for function in own:
        code = new[function.__code__.co_qualname, function.__code__.co_firstlineno]
        changed = changed or code != function.__code__
        function.__code__ = code
    for cached in born:
        if isinstance(cached, _lru_cache_wrapper):
            cached.cache_clear()
    return changed


class Chosen:
    """A pytest plugin that keeps these tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {test: k for k, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])


def make_house(house: Path) -> None:
    """A copy of what the tests need; what is no code is linked."""
    for source in (SOURCE, TESTS):
        shutil.copytree(
            source,
            house / source.relative_to(HERE.parent),
            copy_function=lambda a, b: shutil.copy(a, b) if a.endswith(".py") else os.symlink(a, b),
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(HERE.parent / "pyproject.toml", house)


def in_a_fork(action: Callable[[], int], limit: float) -> int | None:
    """What an action returns in a process of its own; None if it outran its limit in seconds."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            os.setsid()
            code = action()
        finally:
            os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run_tests(house: Path, files: Sequence[str], plugin: object, limit: float) -> int | None:
    """pytest's exit code in a fork, which has torch already; None if it outran its limit."""

    def in_child() -> int:
        os.chdir(house)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.environ |= {"PYTHONPATH": str(house / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        sys.path[:] = [str(house / "src"), *(p for p in sys.path if Path(p).resolve() not in (HERE, SOURCE.parent))]
        sys.dont_write_bytecode = True
        stop = ["-x"] if isinstance(plugin, Chosen) else []
        plain = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--tb=no"]
        return int(pytest.main([*plain, *stop, *(f"tests/{f}" for f in files)], plugins=[plugin]))

    return in_a_fork(in_child, limit)


def cover(house: Path, file: str, modules: Sequence[str]) -> dict:
    """Each test of a file with its seconds and lines; remembered until the file or a target changes."""
    text = "".join((house / "src/truetilt" / m).read_text() for m in modules) + (house / "tests" / file).read_text()
    kept = NOTES / f"{file}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "tests.json"
            run_tests(house, [file], Cover(house, modules, out), FILE_LIMIT)
            kept.write_text(out.read_text() if out.exists() else "{}")
    return json.loads(kept.read_text())


def try_alone(house: Path, task: Task, notes: Path) -> None:
    """A mutant that changes what runs on import: in a fresh interpreter's place, from the changed file."""
    path = house / "src/truetilt" / task.mutant.module
    original = path.read_text()
    try:
        path.write_text(mutated(original, task.mutant.number))
        files = sorted({t.split("::")[0].removeprefix("tests/") for t in task.tests})
        code = run_tests(house, files, Chosen(task.tests), READING + PATIENCE + SLOWER * task.seconds) if files else 0
    finally:
        path.write_text(original)
    note(notes, task.mutant, {0: "survived", None: "hung"}.get(code, "noticed"))


def try_all(house: Path, tasks: Sequence[Task], notes: Path) -> None:
    """Put mutants to their tests: together where only functions change, else one by one."""
    files = sorted({t.split("::")[0].removeprefix("tests/") for task in tasks for t in task.tests})
    if files:
        run_tests(house, files, Nursery(house, tasks, notes), math.inf)
    unborn = {name for name, outcome in read(notes).items() if outcome == "unborn"}
    for task in tasks:
        if task.mutant.name in unborn:
            try_alone(house, task, notes)


def note(path: Path, mutant: Mutant, outcome: str) -> None:
    with path.open("a") as file:
        file.write(json.dumps([mutant.name, outcome]) + "\n")


def read(path: Path) -> dict[str, str]:
    """What became of each mutant, the last word on it."""
    return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


def work(street: str, task: str, argument: tuple) -> object:
    """A worker's job, in the house that belongs to its process."""
    house = Path(street) / str(os.getpid())
    if not house.exists():
        make_house(house)
    return {"cover": cover, "try": try_all}[task](house, *argument)
