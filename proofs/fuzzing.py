"""What the fuzzers have in common: hostile values, cases in processes of their own, and what became of them.

A case is a function that returns (nothing: done), raises, or hangs. It is called in a forked process with a limit of
time and of memory, so that a hang is seen and ends nothing else. A TruetiltError is a refusal; any other exception is a
traceback, unless the case says otherwise; `Wrong` is an answer that is not right.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

DONE, REFUSED, TRACEBACK, HANG, WRONG = "done", "refused", "traceback", "hang", "wrong answer"
MEMORY = 6 << 30  # bytes that a case may add to what is there already
HUGE = (10**9, 2**31, 2**63 - 1, 2**63, 10**20, 10**400, -1, -(2**63), 0, 1e308, 5e-324, -0.0)
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "²",
    "\ud800",
    "a\0b",
    "../..",
    "x" * 10_000,
    [],
    {},
    [[]],
    {"a": {}},
    "nan",
)


class Wrong(Exception):
    """An answer that is not right."""


class Case(NamedTuple):
    """What is done to what, and how."""

    kind: str
    name: str
    run: Callable[[], Any]


class Found(NamedTuple):
    """What became of a case."""

    case: Case
    outcome: str
    words: str
    seconds: float


def hostile(chance: random.Random) -> Any:
    """A value that nobody expects."""
    many = chance.randrange(4)
    if many == 0:
        return chance.choice(HUGE)
    if many == 1:
        return chance.choice(ODD)
    if many == 2:
        return float(chance.choice(("nan", "inf", "-inf"))) if chance.random() < 0.5 else chance.uniform(-1e6, 1e6)
    return (
        nested(chance.choice((10, 150, 900))) if chance.random() < 0.5 else [chance.choice(HUGE)] * chance.randrange(9)
    )


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def changed(value: Any, chance: random.Random) -> Any:
    """JSON values with one of them replaced, dropped, doubled or added."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(sorted(value))
        what = chance.randrange(8)
        if what == 0:
            return {name: inner for name, inner in value.items() if name != key}
        if what == 1:
            return value | {chance.choice(("", "²", "extra", "\ud800", key + "x")): hostile(chance)}
        return value | {key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        place = chance.randrange(len(value))
        what = chance.randrange(6)
        if what == 0:
            return value[:place] + value[place + 1 :]
        if what == 1:
            return [*value, hostile(chance)]
        return [*value[:place], changed(value[place], chance), *value[place + 1 :]]
    return hostile(chance)


def carried_out(cases: list[Case], seconds: float, workers: int = 2) -> Iterator[Found]:
    """Every case in a process of its own, so many at a time, each for so many seconds at most."""
    waiting, running = list(reversed(cases)), {}
    while waiting or running:
        while waiting and len(running) < workers:
            case = waiting.pop()
            reader, child = _forked(case)
            running[reader] = (case, child, time.monotonic(), bytearray())
        ready, _, _ = select.select(list(running), [], [], 0.5)
        for reader in list(running):
            case, child, began, told = running[reader]
            over = time.monotonic() - began > seconds
            block = os.read(reader, 65536) if reader in ready else None
            if block:
                told += block
            elif block is not None or over:
                if block is None:
                    os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(reader)
                del running[reader]
                outcome, words = (HANG, "") if block is None else _read(bytes(told))
                yield Found(case, outcome, words, time.monotonic() - began)


def _forked(case: Case) -> tuple[int, int]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writer)
        return reader, child
    try:  # the child: nothing of it goes on after this
        os.setpgid(0, 0)
        os.close(reader)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
        os.write(writer, json.dumps(_outcome(case)).encode())
    finally:
        os._exit(0)


def _outcome(case: Case) -> tuple[str, str]:
    from truetilt import TruetiltError

    try:
        case.run()
        return DONE, ""
    except TruetiltError as error:
        return REFUSED, " ".join(str(error).split())[:300]
    except Wrong as error:
        return WRONG, str(error)[:2000]
    except BaseException:
        return TRACEBACK, traceback.format_exc()[-3000:]


def _read(told: bytes) -> tuple[str, str]:
    try:
        outcome, words = json.loads(told)
        return outcome, words
    except ValueError:
        return TRACEBACK, "the process died without a word"


def report(path: Path, command: str, seed: int, found: list[Found]) -> int:
    """Write the counts as JSON, print what is not as it should be; the exit code."""
    from truetilt.core.storage import write_json

    names = (DONE, REFUSED, TRACEBACK, HANG, WRONG)
    total = Counter(one.outcome for one in found)
    kinds: dict[str, Counter[str]] = {}
    for one in found:
        kinds.setdefault(one.case.kind, Counter())[one.outcome] += 1
    bad = [one for one in found if one.outcome not in (DONE, REFUSED)]
    if os.environ.get("FUZZ_TOLD"):
        for one in found:
            print(f"{one.case.kind}, {one.case.name}: {one.outcome} {one.words[-200:]!r}")
    slow = sorted(found, key=lambda one: -one.seconds)
    for one in bad:
        print(f"--- {one.outcome}: {one.case.kind}, {one.case.name}\n{one.words}".encode("utf-8", "replace").decode())
    told = {
        "command": command,
        "seed": seed,
        "cases": len(found),
        "counts": {name: total[name] for name in names},
        "by kind": {kind: {name: counts[name] for name in names} for kind, counts in sorted(kinds.items())},
        "slowest": [[f"{one.case.kind}, {one.case.name}", round(one.seconds, 1)] for one in slow[:5]],
        "faults": [{"case": f"{one.case.kind}, {one.case.name}", "outcome": one.outcome} for one in bad],
    }
    write_json(path, told)
    print(json.dumps(told["counts"]), f"of {len(found)} cases, seed {seed}: {path}")
    return 1 if bad else 0
