"""Whether a change of the code changed an answer: every run, command and refusal, compared with a fixed commit.

python proofs/hashes.py [SUITE ...]          compare with the base of proofs/hashes.json; exit code 1 if they differ
python proofs/hashes.py --quick              the share of it that takes under three minutes (make proof-quick)
python proofs/hashes.py --against REVISION   compare with another commit that has this script
python proofs/hashes.py --show NAME          what is recorded of the runs whose names hold NAME

The base is checked out beside this tree and runs the script that it has itself, so that what is renamed here need not
be known there. Floats differ between machines: what the base answers is computed once a machine, and kept in
.cache/hashes of the main checkout under the processor and the installed packages. Tensors are compared by a digest of
their bits, words as words. proofs/hashes.json says which commit is the base, what was renamed since (regular
expressions, applied to the words and the names of the base), and which runs, or parts of runs, changed on purpose, each
with its reason.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).parent
NOTES = HERE / "hashes.json"
Parts = dict[str, str]  # of a run: a digest or words by name
MODULES = {  # the suites of each module beside this one
    "hashed_runs": ("tables", "chain", "digits", "text", "bundles", "vectors", "results", "ranks"),
    "hashed_rewards": ("steer", "composed", "twists", "jumps", "baselines", "public"),
    "hashed_commands": ("help", "commands", "experiments", "studio"),
    "hashed_refusals": ("calls", "lines"),
}
SUITES = {suite: module for module, suites in MODULES.items() for suite in suites}
SLOW = ("commands", "experiments", "text", "lines", "studio")  # not among the quick ones
_LINES = 12  # lines of a difference that are shown


def recorded(value: object) -> Parts:
    """What is compared of a value: tensors by digest, all else as words."""
    import torch

    import truetilt as tt

    if isinstance(value, tt.Result):
        return _of_result(value)
    if isinstance(value, torch.Tensor):
        return {"values": digest(value)}
    if isinstance(value, str):
        return {"words": value}
    if isinstance(value, Mapping):
        named = {str(name): part for name, part in value.items()}
    elif hasattr(value, "_asdict"):
        named = value._asdict()
    elif is_dataclass(value):
        named = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        return {"words": plain(value)}
    return {name: part if isinstance(part, str) else plain(part) for name, part in named.items()}


def _of_result(result: object) -> Parts:
    """Every field of a result; its settings, story, verdict and words."""
    import torch

    tensors = {f.name: getattr(result, f.name) for f in fields(result)}
    found = {name: digest(part) for name, part in tensors.items() if isinstance(part, torch.Tensor)}
    settings = {name: part for name, part in result.settings.items() if name not in ("version", "versions")}
    words = {"settings": as_lines(settings), "spent": plain(result.spent)}
    words |= {"log Z": f"{result.log_z!r}: {result.log_z_words}", "trust": str(result.trust()), "shown": repr(result)}
    return found | words | ({"story": "\n".join(result.story)} if result.story else {})


def as_lines(value: object) -> str:
    """A value of JSON with a line for each entry, lists of numbers on one; in the order of names."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=plain)
    return re.sub(r"\[[-+0-9.e,\s]+\]", lambda found: re.sub(r"\s+", " ", found[0]), text)


def digest(tensor: object) -> str:
    """16 hexadecimal digits of a tensor's kind, shape and bits."""
    import torch

    kept = tensor.detach().cpu().to_dense().contiguous()
    found = hashlib.sha256(f"{kept.dtype} {tuple(kept.shape)}".encode())
    found.update(kept.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def plain(value: object) -> str:
    """A value in words, without the addresses that differ between processes; nothing within is cut."""
    import torch

    if isinstance(value, torch.Tensor):
        return digest(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {plain(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}(" + ", ".join(map(plain, value)) + ")"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def records(suite: str) -> dict[str, Parts]:
    """Every run of a suite by name, with the truetilt that is imported; the warnings it gave are among its parts."""
    import torch

    torch.set_num_threads(1)
    runs: Iterator[tuple[str, object]] = getattr(import_module(SUITES[suite]), suite)()
    found: dict[str, Parts] = {}
    while True:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            name, value = next(runs, (None, None))
        if name is None:
            return found
        if name in found:
            raise ValueError(f"two runs of {suite} are named {name!r}")
        said = [str(one.message) for one in given if issubclass(one.category, UserWarning)]
        found[name] = recorded(value) | ({"warnings": "\n".join(said)} if said else {})


def in_a_process(suite: str, script: Path = HERE / "hashes.py") -> dict[str, Parts]:
    """The records of a suite by the script and the source of a tree."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "records.json"
        own = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[1] / "src")}
        own |= {"PYTHONHASHSEED": "0", "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "TRUETILT_PROCESSES": "1"}
        command = [sys.executable, script, "--into", out, suite]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise SystemExit(f"{suite} failed in {script.parents[1]}\n{done.stdout}{done.stderr}")
        return json.loads(out.read_text())


def machine() -> str:
    """What floats depend on besides the code: the processor, Python and the packages, as 12 hexadecimal digits."""
    cpu = Path("/proc/cpuinfo")
    kind = re.findall(r"^(?:model name|flags)\s*: (.*)$", cpu.read_text(), re.MULTILINE)[:2] if cpu.exists() else []
    packages = sorted({f"{d.name}=={d.version}" for d in distributions() if d.name != "truetilt"})
    told = [platform.machine(), platform.processor(), *kind, platform.python_version(), *packages]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def of_commit(revision: str, suites: list[str], jobs: int) -> dict[str, dict[str, Parts]]:
    """The records of these suites by a commit's own script and source, computed once a machine."""
    git = ["git", "-C", str(HERE)]
    asked = subprocess.run([*git, "rev-parse", "--verify", f"{revision}^{{commit}}"], capture_output=True, text=True)
    if asked.returncode:
        raise SystemExit(f"there is no commit {revision} here; a shallow clone needs `git fetch --unshallow`")
    commit = asked.stdout.strip()
    shared = subprocess.check_output([*git, "rev-parse", "--path-format=absolute", "--git-common-dir"], text=True)
    kept = Path(shared.strip()).parent / ".cache/hashes" / f"{commit[:12]}-{machine()}"
    lacking = [suite for suite in suites if not (kept / f"{suite}.json").exists()]
    if lacking:
        print(f"first, once on this machine: {', '.join(lacking)} by {commit[:12]}", flush=True)
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "truetilt"
            subprocess.run([*git, "worktree", "add", "--detach", "-q", tree, commit], check=True)
            try:
                for suite, found in every(lacking, jobs, tree / "proofs/hashes.py"):
                    partial = kept / f"{suite}.{os.getpid()}"
                    partial.write_text(json.dumps(found, indent=1))
                    partial.replace(kept / f"{suite}.json")
            finally:
                subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)
    return {suite: json.loads((kept / f"{suite}.json").read_text()) for suite in suites}


def every(suites: list[str], jobs: int, script: Path) -> Iterator[tuple[str, dict[str, Parts]]]:
    """The records of each suite, `jobs` of them at a time in processes of their own."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(suites, pool.map(lambda suite: in_a_process(suite, script), suites), strict=True)


def compared(before: dict[str, Parts], now: dict[str, Parts], notes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What differs and is not listed, in words: a line for a run and its digests, more for a difference of words."""
    renamed = _renaming(notes["renamed"])
    before = {renamed(name): {part: renamed(words) for part, words in run.items()} for name, run in before.items()}
    told = []
    for name, old in before.items():
        if name in notes["changed on purpose"]:
            continue
        if name not in now:
            told.append(f"{name}: is gone")
            continue
        new = now[name]
        parts = [part for part in {**old, **new} if old.get(part) != new.get(part)]
        parts = [part for part in parts if f"{name}: {part}" not in notes["changed on purpose"]]
        told += [f"{name}: {part}{_difference(old.get(part), new.get(part))}" for part in parts]
    return told


def _renaming(table: Mapping[str, str]) -> Callable[[str], str]:
    patterns = [(re.compile(old, re.MULTILINE), new) for old, new in table.items()]

    def renamed(words: str) -> str:
        for old, new in patterns:
            words = old.sub(new, words)
        return words

    return renamed


def _difference(old: str | None, new: str | None) -> str:
    """The lines that differ, some of them; of digests, and of what only one of the two has, that it is so."""
    if old is None or new is None:
        return " is new" if old is None else " is gone"
    if re.fullmatch(r"[0-9a-f]{16}", old) and re.fullmatch(r"[0-9a-f]{16}", new):
        return f" was {old}, is {new}"
    lines = [
        line[:240]
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    more = [f"... and {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
    return "".join(f"\n    {line}" for line in lines[:_LINES] + more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help=f"which suites: {', '.join(SUITES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="only suites that are quick")
    parser.add_argument("--against", metavar="REVISION", help="instead of the base of proofs/hashes.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="suites at a time (default: the cores)")
    parser.add_argument("--show", metavar="NAME", help="print what is recorded of runs, and compare nothing")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # the records of one suite, for `in_a_process`
    given = parser.parse_args()
    suites = given.suites or [suite for suite in SUITES if not given.quick or suite not in SLOW]
    if unknown := set(suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    if given.into:
        return given.into.write_text(json.dumps(records(suites[0])))
    if given.show is not None:
        for _, found in every(suites, given.jobs, HERE / "hashes.py"):
            for name in found:
                if given.show in name:
                    print(name, *(f"  {part}: {words}" for part, words in found[name].items()), sep="\n")
        return None
    notes = json.loads(NOTES.read_text())
    before = of_commit(given.against or notes["base"], suites, given.jobs)
    runs = differ = 0
    for suite, now in every(suites, given.jobs, HERE / "hashes.py"):
        told = compared(before[suite], now, notes)
        print(f"{suite}: {len(now)} runs, {len(told)} differences", *told, sep="\n  ", flush=True)
        runs, differ = runs + len(now), differ + len(told)
    print(f"{runs} runs, {differ} differences that are not listed")
    sys.exit(int(differ > 0))


if __name__ == "__main__":
    main()
