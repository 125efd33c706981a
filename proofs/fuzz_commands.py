"""600 commands with hostile options, and 60 environments: each is carried out or refused in one line, with an exit
code of 0, 1 or 2.

Commands run in forked processes as `truetilt` runs them, every twentieth as a process of its own; each has a limit of
time. A run on a table that succeeds must agree with the exact answer as far as it trusts itself. Environments:
variables of ranks, terminals, encodings and caches that nobody means, closed and full streams, folders that are gone or
cannot be written, few files and little memory, around commands that are valid.

python proofs/fuzz_commands.py [--cases 600] [--environments 60] [--seed 0]
writes proofs/fuzz_commands.json; exit code 1 if one fails
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from fuzz_files import make_asked, make_config, make_digits, make_idx, make_result, make_reviews, make_table, spoil
from fuzzing import Case, Wrong, carried_out, report

import truetilt as tt
from truetilt.core.storage import read_json

SECONDS = 120
NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "²",
    "",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "-0.0",
    "0x10",
    "1_000",
    "٣",
    "1e400",
)
WHOLE = (
    "9223372036854775807",
    "9223372036854775808",
    "100000000000000000000",
    "9" * 400,
    "9" * 5000,
    "1.5",
    "1000000000000",
)
WORDS = (
    "",
    " ",
    "²",
    "4",
    "-4",
    "99",
    "good",
    "GOOD",
    "a" * 5000,
    "\udcff",
    "\udc80x",
    "é",
    "\n",
    "--seed",
    "*",
    "None",
)
TEXTS = (
    *("the [MASK] film", "the [MASK:3] film [MASK]", "[MASK:99999999999999]", "[MASK:" + "9" * 5000 + "]", "[MASK:0]"),
    *(
        "[MASK:-1]",
        "[MASK:²]",
        "no gap",
        "",
        "   ",
        "\udcff [MASK]",
        "[MASK]" * 100,
        "a " * 5000 + "[MASK]",
        "[mask:2]",
    ),
)
DEVICES = (*["cpu"] * 30, "cuda:99", "cuda:99999999999999999999", "meta", "", "²", "tpu", "cpu:-1", "\udcff")
OUTS = (
    *["out"] * 30,
    "new/deep/er",
    "plain/below",
    "plain",
    "/dev/null",
    "/dev/null/x",
    "pipe",
    "loop",
    "/proc/x",
    "\udcff",
    "n" * 300,
)
MODELS = (
    *["table.json"] * 9,
    "spoiled.json",
    "spoiled.json",
    "digits",
    "reviews",
    "digits",
    "reviews",
    "reviews",
    "nothing",
    "/dev/zero",
    "pipe",
    "loop",
)

PLANS = ("config/config.json", "config/config.json", "config/config.yaml", "config/config.yaml", "many.yaml")
PLANS += ("deep.yaml", "spoiled.json", "pipe", "/dev/zero", "nothing")


def number(chance: random.Random) -> str:
    return chance.choice(NUMBERS + WHOLE)


def small(chance: random.Random, *good: str) -> str:
    """Mostly a good one, for commands that get somewhere."""
    return chance.choice(good) if chance.random() < 0.93 else number(chance)


def option(chance: random.Random, name: str, value: str, often: float = 0.5) -> list[str]:
    return [f"--{name}={value}"] if chance.random() < often else []


def sample(chance: random.Random) -> list[str]:
    model = chance.choice(MODELS)
    words = [
        "sample",
        model,
        f"--particles={small(chance, '1', '5', '40')}",
        f"--steps={small(chance, '1', '3', '10')}",
    ]
    condition = {"digits": "1", "reviews": "good"}.get(model)
    if condition and chance.random() < 0.7:
        words.append(f"--condition={condition}")
    else:
        words += option(chance, "condition", chance.choice(WORDS), 0.3 if condition else 0.04)
    words += option(chance, "alpha", small(chance, "1", "2.5", "0", "4")) + option(
        chance, "beta", small(chance, "0", "1", "3"), 0.3
    )
    words += option(chance, "populations", small(chance, "1", "2", "16"), 0.4) + option(
        chance, "seed", small(chance, "3"), 0.4
    )
    words += option(chance, "process", chance.choice((*["uniform"] * 9, "²", "")), 0 if condition else 0.2)
    words += option(chance, "sigma-eps", small(chance, "0.001", "0.5"), 0.02 if condition else 0.2) + option(
        chance, "device", chance.choice(DEVICES), 0.3
    )
    words += option(chance, "checkpoint-every", small(chance, "1", "2"), 0.2) + chance.choice(([], ["--json"]))
    return [*words, f"--out={chance.choice(OUTS)}"]


def infill(chance: random.Random) -> list[str]:
    words = [
        "infill",
        f"--model={chance.choice(('reviews', 'reviews', 'reviews', 'digits', 'nothing', 'table.json', 'pipe'))}",
    ]
    words += option(chance, "condition", chance.choice(("good", "bad", *WORDS)), 0.5) + option(
        chance, "alpha", small(chance, "1", "3")
    )
    words += [*option(chance, "beta", small(chance, "0", "1"), 0.3), f"--particles={small(chance, '1', '4')}"]
    words += option(chance, "populations", small(chance, "1", "2"), 0.3) + option(
        chance, "seed", small(chance, "3"), 0.3
    )
    words += option(chance, "device", chance.choice(DEVICES), 0.2) + chance.choice(([], ["--json"]))
    return [*words, f"--out={chance.choice(OUTS)}", "--", chance.choice(TEXTS)]


def shown(chance: random.Random) -> list[str]:
    out = option(chance, "out", chance.choice((*OUTS, "/dev/stdout", "/dev/full", "r.html", "result")), 0.6)
    title = option(chance, "title", chance.choice((*WORDS, "<script>alert(1)</script>", "{{ 7 * 7 }}")), 0.4)
    folder = chance.choice(
        ("result", "result", "result", "spoiled-result", "asked", "nothing", "table.json", "pipe", "loop", "/dev")
    )
    return ["report", folder, *out, *title]


def resumed(chance: random.Random) -> list[str]:
    return [
        "resume",
        chance.choice(("asked", "spoiled-asked", "spoiled-asked", "result", "nothing", "pipe", "/dev/zero", "\udcff")),
    ]


def train(chance: random.Random) -> list[str]:
    words = ["train", chance.choice(("unconditional", "unconditional", "conditional", "deft", "potential", "²"))]
    words += [f"--config={chance.choice(PLANS)}"]
    words += option(chance, "data", chance.choice(("idx", "idx", "nothing", "pipe", "plain", "\udcff")), 0.8)
    words += option(chance, "base", chance.choice(("digits/unet", "nothing", "pipe", "reviews")), 0.2)
    words += [f"--steps={small(chance, '1', '2')}", *option(chance, "device", chance.choice(DEVICES), 0.2)]
    return [*words, f"--out={chance.choice(OUTS)}", *chance.choice(([], ["--resume"], ["--json"]))]


def reproduced(chance: random.Random) -> list[str]:
    """Mostly refused: those that are not take a minute each."""
    name = chance.choice(
        (
            "figure1",
            "figure2",
            "table1",
            "figure3",
            "figure4",
            "chain",
            "sde",
            "tfbind8",
            "rewards",
            "sentiment",
            "toxicity",
            "infill",
            "²",
        )
    )
    bad = [
        [f"--seed={chance.choice(('-1', 'x', '²', '9' * 400, ''))}"],
        [f"--device={chance.choice(DEVICES[30:])}"],
        [f"--out={chance.choice(('plain', 'plain/below', '/dev/null', 'pipe', 'loop', 'n' * 300))}"],
        [f"--data={chance.choice(('nothing', 'pipe', '/dev/zero', 'plain'))}", "--out=plain"],
        ["--model=nothing", "--only=["],
        ["--only=[", "--model=reviews"],
        ["--score=nothing"],
        ["--score=result"],
        ["--reference=nothing", "--judge=nothing", "--model=reviews"],
    ]
    data = ["--data=result"] if name == "tfbind8" else []
    return ["reproduce", name, "--quick", *data, *chance.choice(bad)]


MINE = """
import torch, truetilt as tt
table = tt.Table(tt.Masking(3), torch.ones(3, 3) + torch.eye(3), torch.eye(3) + 0.1)
def model(): return table.model()
def reward(x): return (x == 1).sum(-1).double()
def two(x, y): return x
def fails(x): raise KeyError("x" * 100_000)
def leaves(x): raise SystemExit(3)
def text(x): return "x"
def nan(x): return x[:, 0] * float("nan")
letters = tt.Reward(lambda s: s.count("A"), tokenizer="AC", one_at_a_time=True)
number = 3
"""
NAMED = (*["reward"] * 9, "two", "fails", "leaves", "text", "nan", "letters", "number", "model", "nothing", "", "²")
FILES = (*["mine.py"] * 12, "nothing.py", "plain", "pipe", "table.json", "/dev/zero", "n" * 300 + ".py", "\udcff.py")


def _mine(chance: random.Random, *names: str) -> str:
    name = chance.choice(names)
    return f"{chance.choice(FILES)}{chance.choice((':', ':', ':', ':', ':', ':', ':', '', '::'))}{name}"


def _steered(chance: random.Random) -> list[str]:
    model = chance.choice((*["table.json"] * 4, _mine(chance, "model"), _mine(chance, *NAMED), *MODELS[9:]))
    words = [model, f"--reward={_mine(chance, *NAMED)}"]
    words += option(chance, "strength", small(chance, "1", "3", "-2"), 0.5) + option(
        chance, "seed", small(chance, "3"), 0.3
    )
    words += [f"--calls={small(chance, '60', '200')}", *option(chance, "evaluations", small(chance, "300"), 0.5)]
    return words + option(chance, "device", chance.choice(DEVICES), 0.2) + chance.choice(([], ["--json"]))


def steer(chance: random.Random) -> list[str]:
    words = ["steer", *_steered(chance)]
    words += option(chance, "populations", small(chance, "2", "4"), 0.3) + option(chance, "prompt", "a", 0.05)
    words += option(chance, "condition", chance.choice(WORDS), 0.1) + option(chance, "alpha", small(chance, "2"), 0.1)
    words += option(chance, "open", "39-41,54", 0.05) + option(chance, "structure", chance.choice(OUTS), 0.05)
    return [*words, f"--out={chance.choice(OUTS)}"]


def compared(chance: random.Random) -> list[str]:
    methods = chance.choice(("importance", "importance,best-of-n", "tds", "truetilt", "²", "", ",", "a" * 5000))
    words = ["compare", *_steered(chance), f"--methods={methods}", f"--seeds={chance.choice(('1', '1', '0', 'x'))}"]
    return [*words, f"--out={chance.choice(OUTS)}"]


def humanised(chance: random.Random) -> list[str]:
    return ["humanise", chance.choice(("plain", "nothing", "pipe", "/dev/zero", "n" * 300, "chains.fa"))]


def others(chance: random.Random) -> list[str]:
    return chance.choice(
        (
            ["demo", "--seed=-1"],
            ["demo", "--device=tpu"],
            ["demo", "--out=plain"],
            ["demo", "--out=/dev/null"],
            ["studio", "--port=0"],
            ["studio", "--port=99999999999999999999"],
            ["studio", "--host=²", "--no-browser"],
            ["--version"],
            ["--help"],
            ["nothing"],
            ["sample"],
            ["sample", "--help"],
            ["\udcff"],
            [],
        )
    )


MADE = ((sample, 50), (infill, 14), (shown, 12), (resumed, 7), (train, 10), (reproduced, 8), (others, 4))
MADE += ((steer, 16), (compared, 8), (humanised, 2))

ENVIRONMENTS: tuple[tuple[str, dict[str, str | None], str], ...] = (  # a name, variables, and a line of the shell
    *((f"{name}={value!r}", {name: value}, "") for name, value in (
        ("HOME", None), ("HOME", "/dev/null/home"), ("HOME", "plain"), ("LANG", "C"), ("LC_ALL", "POSIX"),
        ("LC_ALL", "²"),
        ("PYTHONIOENCODING", "ascii"), ("PYTHONUTF8", "0"), ("TERM", "²"), ("TERM", None), ("COLUMNS", "0"),
        ("COLUMNS", "-1"), ("COLUMNS", "x"), ("COLUMNS", "1"), ("LINES", "0"), ("FORCE_COLOR", "1"), ("NO_COLOR", "1"),
        ("TMPDIR", "/nowhere"), ("TMPDIR", "plain"), ("MPLBACKEND", "²"), ("MPLCONFIGDIR", "/dev/null"),
        ("OMP_NUM_THREADS", "x"), ("OMP_NUM_THREADS", "0"), ("CUDA_VISIBLE_DEVICES", "²"), ("HF_HOME", "/dev/null"),
        ("HF_HUB_OFFLINE", "x"), ("XDG_CACHE_HOME", "/dev/null"), ("PYTHONHASHSEED", "1"), ("PYTHONOPTIMIZE", "2"),
        ("PYTHONDEVMODE", "1"), ("PYTHONUNBUFFERED", "1"), ("PATH", ""), ("TZ", "²"), ("SHELL", "²"),
        ("LOCAL_RANK", "x"),
    )),
    *(("ranks " + " ".join(f"{name}={value}" for name, value in told.items()), told, "") for told in (
        {"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "0"}, {"WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "5", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29555"},
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "x"},
        {"RANK": "0", "WORLD_SIZE": "-1", "MASTER_ADDR": "²", "MASTER_PORT": "29556"},
    )),
    *((line, {}, line) for line in (
        "exec \"$@\" >&-", "exec \"$@\" <&-", "exec \"$@\" >&- <&-", "exec \"$@\" >/dev/full", "\"$@\" | true",
        "exec \"$@\" 2>&-", "exec \"$@\" 2>/dev/full", "ulimit -n 40; exec \"$@\"", "ulimit -f 1; exec \"$@\"",
        "ulimit -f 0; exec \"$@\"", "ulimit -v 4000000; exec \"$@\"", "umask 777; exec \"$@\"",
        "umask 000; exec \"$@\"",
        "cd /; exec \"$@\"", "trap '' INT TERM HUP PIPE; exec \"$@\"",
        "ulimit -s 512; exec \"$@\"",
        "ulimit -t 300; exec \"$@\"", "exec nice -n 19 \"$@\"",
    )),
)  # fmt: skip
VALID = (
    ["sample", "table.json", "--particles=40", "--steps=3", "--out=out"],
    ["steer", "mine.py:model", "--reward=mine.py:reward", "--calls=100", "--out=out"],
    ["report", "result"],
    ["--version"],
)


def prepared(place: Path) -> None:
    """The folder in which every command runs."""
    make_table(place)
    for name, make in {
        "result": make_result,
        "asked": make_asked,
        "digits": make_digits,
        "reviews": make_reviews,
        "idx": make_idx,
    }.items():
        (place / name).mkdir()
        make(place / name)
    (place / "config").mkdir()
    while len(list((place / "config").iterdir())) < 2:
        make_config(place / "config")
    shutil.copy(place / "idx" / "train-images-idx3-ubyte", place / "idx" / "t10k-images-idx3-ubyte")
    shutil.copy(place / "idx" / "train-labels-idx1-ubyte", place / "idx" / "t10k-labels-idx1-ubyte")
    plan = json.loads((place / "config" / "config.json").read_text())
    (place / "many.yaml").write_text(json.dumps(plan | {"net": plan["net"] | {"blocks": 10**7}}))
    (place / "deep.yaml").write_text("[" * 5000)
    (place / "mine.py").write_text(MINE)
    (place / "chains.fa").write_text(">a chain\nACDEFGHIK\n")
    (place / "plain").write_text("a plain file")
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to("loop")


def surrounded(number: int, valid: Path) -> None:
    """A valid command in a hostile environment."""
    name, variables, line = ENVIRONMENTS[number % len(ENVIRONMENTS)]
    words = VALID[(number // len(ENVIRONMENTS) + number) % len(VALID)]
    told = {key: value for key, value in {**os.environ, **variables}.items() if value is not None}
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cp", "-a", f"{valid}/.", place], check=True)
        command = [sys.executable, "-m", "truetilt", *words]
        command = ["/bin/bash", "-c", line, "bash", *command] if line else command
        done = subprocess.run(
            command, env=told, cwd=place, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=SECONDS
        )
    said = done.stderr.decode("utf-8", "replace")
    _judge(done.returncode, said, f"{name}, truetilt {' '.join(words)}: exit code {done.returncode}\n{said[-1500:]}")


def carried(words: list[str], valid: Path, seed: str, apart: bool) -> None:
    """One command in a copy of the folder."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        subprocess.run(["cp", "-a", f"{valid}/.", place], check=True)
        for name in ("table.json", "result", "asked"):
            copy = f"spoiled-{name}" if name != "table.json" else "spoiled.json"
            subprocess.run(["cp", "-a", name, copy], check=True)
            files = sorted(path for path in (Path(copy), *Path(copy).rglob("*")) if path.is_file())
            spoil(chance.choice(files), chance)
        for name in ("asked", "spoiled-asked"):
            _here(Path(name))
        code, said = _apart(words) if apart else _within(words)
        told = f"truetilt {' '.join(word[:60] for word in words)}: exit code {code}\n{said[-1500:]}"
        if not code and words[:1] == ["sample"] and "--help" not in words:
            out = next(word.removeprefix("--out=") for word in words if word.startswith("--out="))
            _check(Path(out), told)
        _judge(code, said, told)


def _judge(code: int, said: str, told: str) -> None:
    """Raise for a traceback, another exit code, or an error that is no line; a refusal is `InvalidInput`."""
    last = (said.strip().splitlines() or ["error: "])[-1]  # nothing at all: its stderr was closed
    if "Traceback (most recent" in said or code not in (0, 1, 2) or (code == 1 and not last.startswith("error: ")):
        raise RuntimeError(told)
    if code:
        raise tt.InvalidInput(said[-300:])


def _here(folder: Path) -> None:
    try:
        told = read_json(folder / "asked.json")
        told["model"] = told["found"] = str(Path("table.json").resolve())
        (folder / "asked.json").write_text(json.dumps(told))
    except (OSError, ValueError, TypeError):
        return


def _apart(words: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "truetilt", *(word.encode("utf-8", "surrogateescape") for word in words)]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=SECONDS)
    return done.returncode, done.stderr.decode("utf-8", "replace")


def _within(words: list[str]) -> tuple[int, str]:
    """As the entry point does it, with stdout and stderr in files."""
    from truetilt.cli.main import app

    said = os.open("said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(said, 2)
    code = 0
    try:
        app(words, prog_name="truetilt")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code, Path("said").read_text(encoding="utf-8", errors="replace")


def _check(folder: Path, told: str) -> None:
    """What was written agrees with itself and, for a table, with the exact answer."""
    found = tt.Result.load(folder)
    rows = {row["quantity"]: row["value"] for row in json.loads((folder / "result.json").read_text())["rows"]}
    if not math.isfinite(rows["log Z"]) or abs(rows["log Z"] - found.log_z) > 1e-9:
        raise Wrong(f"{told}: log Z is {rows['log Z']} and {found.log_z}")
    if "log Z, exact" in rows and found.trust().verdict == tt.Verdict.trust and found.times.numel() > 5:
        error = found.log_z_stderr
        if error is not None and abs(rows["log Z"] - rows["log Z, exact"]) > 8 * error + 0.2:
            raise Wrong(f"{told}: log Z is {rows['log Z']} +- {error}, exactly {rows['log Z, exact']}")


def main() -> int:
    """The cases, counted."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--cases", type=int, default=600)
    words.add_argument("--environments", type=int, default=60)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", type=int, help="this case alone, in this process")
    told = words.parse_args()
    torch.set_num_threads(1)
    random.seed(told.seed)

    with tempfile.TemporaryDirectory() as place:
        prepared(Path(place))
        cases = []
        for case in range(told.cases):
            chance = random.Random(f"{told.seed}-{case}")
            make = chance.choices([make for make, _ in MADE], [often for _, often in MADE])[0]
            command = make(chance)
            run = partial(carried, command, Path(place), f"{told.seed}-{case} spoil", case % 20 == 0)
            cases.append(Case(command[0] if command and command[0].isascii() else "truetilt", f"case {case}", run))
        around = [(number, ENVIRONMENTS[number % len(ENVIRONMENTS)][0]) for number in range(told.environments)]
        cases += [Case("environment", name, partial(surrounded, number, Path(place))) for number, name in around]
        if told.only is not None:
            faulthandler.dump_traceback_later(SECONDS / 2, exit=True)
            cases[told.only].run()
            return 0
        found = list(carried_out(cases, SECONDS))
    return report(Path(__file__).with_suffix(".json"), "python proofs/fuzz_commands.py", told.seed, found)


if __name__ == "__main__":
    raise SystemExit(main())
