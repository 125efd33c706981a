"""What commands print and write, which `hashes.py` compares; their help, experiments, the studio."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch
from hashed_runs import Runs, seen_of
from hashes import as_lines

import truetilt as tt

MINE = """
import torch
import truetilt as tt

process = tt.Masking(4)
STEPS = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])


def model():
    law = tt.ChainLaw(torch.ones(4), STEPS, torch.zeros(6, 4))
    return tt.Model(process, 6, tt.ChainScore(process, law))


def tokens(x):
    return (x == 1).sum(-1).double()


def words(texts):
    return [float(text.count("W")) for text in texts]


def atoms(molecule):
    return float(molecule.GetNumAtoms())


letters = tt.Reward(lambda s: s.count("G") + s.count("C"), tokenizer="ACGT", one_at_a_time=True)
"""
SIZES = {"side": 4, "vocabulary": 4, "classes": 2, "channels": [8], "blocks": 1, "embedding": 4, "condition": 4}
PLAN = {"task": "unconditional", "steps": 3, "data": "idx", "net": SIZES, "batch": 2, "log_every": 1}
_LINES = 400  # of a file or an output that are kept as words; of a longer one the digest


def make_inputs(folder: Path) -> None:
    """Everything that the commands below read: a table, code, tiny networks in their real formats, data."""
    from fuzz_files import make_asked, make_corpus, make_digits, make_idx, make_reviews, make_table

    from public_nets import bert, bert_tokenizer, esm2, esm_tokenizer
    from tiny_molecules import write_tiny
    from tiny_protein import pdb, structure, write_weights

    torch.manual_seed(0)
    made = {"digits": make_digits, "reviews": make_reviews, "idx": make_idx, "corpus": make_corpus, "asked": make_asked}
    for name, make in made.items():
        (folder / name).mkdir()
        make(folder / name)
    images = folder / "idx" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:16] + bytes(k % 4 for k in range(48)))  # four grey levels, as in PLAN
    make_table(folder)
    (folder / "p0.json").write_text('{"p0": [[0.3, 0.2], [0.1, 0.4]]}')
    (folder / "broken.json").write_text('{"p0": [[0.3, 0.2], [0.1')
    (folder / "mine.py").write_text(MINE)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    (folder / "x.pdb").write_text(pdb(structure("MKTAYIAKQR")))
    (folder / "ab.fa").write_text(">one\nQVQLKWSGPE\n")
    write_weights(folder / "one.pt")
    write_weights(folder / "other.pt", seed=1)
    write_tiny(folder / "molecules")
    for name, net, words in (("protein", esm2(), esm_tokenizer(folder)), ("text", bert(), bert_tokenizer())):
        net.save_pretrained(folder / name)
        words.save_pretrained(folder / name)


FEW = ("--particles", "6", "--populations", "2")
PROTEIN = ("proteinmpnn", "--structure", "x.pdb", "--open", "3-5", "--weights", "one.pt")
COMMANDS: dict[str, Sequence[str]] = {
    "sample, a table": ("sample", "table.json", "--alpha", "3", "--steps", "20", "--particles", "50", "--out", "run"),
    "sample, a table, JSON": ("sample", "table.json", "--alpha", "2", "--beta", "1", "--steps", "9", *FEW, "--json"),
    "sample, uniform": ("sample", "table.json", "--alpha", "2", "--process", "uniform", "--steps", "9", *FEW),
    "sample, its report": ("report", "run", "--title", "A table"),
    "sample, checkpoints": ("sample", "table.json", "--steps", "9", *FEW, "--checkpoint-every", "3", "--out", "kept"),
    "resume": ("resume", "asked"),
    "resume, finished": ("resume", "kept"),
    "sample, digits": ("sample", "digits", "--condition", "1", "--alpha", "3", "--steps", "3", *FEW, "--out", "d"),
    "sample, digits, beta": ("sample", "digits", "--condition", "1", "--beta", "1", "--steps", "3", *FEW, "--json"),
    "sample, embedded digits": ("sample", "mnist", "--condition", "4", "--alpha", "3", "--steps", "2", *FEW),
    "report, digits": ("report", "d", "--out", "digits.html"),
    "sample, texts": ("sample", "reviews", "--condition", "good", "--alpha", "2", "--steps", "4", *FEW, "--out", "t"),
    "sample, sharper texts": ("sample", "reviews", "--condition", "good", "--sharpness", "1.3", "--steps", "4", *FEW),
    "sample, cooler texts": ("sample", "reviews", "--condition", "good", "--temperature", "0.8", "--steps", "4", *FEW),
    "report, texts": ("report", "t"),
    "infill": ("infill", "good [MASK:2] film", "--model", "reviews", "--condition", "good", "--alpha", "2", *FEW),
    "infill, a folder": ("infill", "the [MASK:2] was bad", "--model", "text", *FEW, "--out", "filled", "--json"),
    "sample, after a prompt": ("sample", "text", "--prompt", "the film", "--length", "4", *FEW, "--out", "prompted"),
    "sample, proteins": ("sample", "protein", "--length", "5", *FEW, "--json", "--out", "drawn"),
    "sample, a backbone": ("sample", *PROTEIN, *FEW, "--out", "backbone"),
    "sample, a backbone, leaning": ("sample", *PROTEIN, "--condition", "other.pt", "--alpha", "2", *FEW, "--json"),
    "sample, molecules": ("sample", "molecules", "--reward", "qed", "--strength", "2", *FEW, "--out", "mol"),
    "sample, a model of one's own": ("sample", "mine.py:model", "--steps", "6", *FEW),
    "steer, a table": ("steer", "p0.json", "--reward", "mine.py:tokens", "--evaluations", "2000", "--out", "s"),
    "steer, a condition": ("steer", "table.json", "--alpha", "3", "--evaluations", "3000", "--json"),
    "steer, letters": ("steer", "mine.py:model", "--reward", "mine.py:letters", "--strength", "2", "--calls", "300"),
    "steer, proteins": (
        *("steer", "protein", "--reward", "mine.py:words", "--prompt", "MK", "--length", "4", "--calls", "90"),
        *("--populations", "4", "--out", "sp"),
    ),
    "steer, a backbone": (
        *("steer", *PROTEIN, "--reward", "mine.py:words", "--calls", "60", "--populations", "4", "--json"),
    ),
    "steer, molecules": (
        *("steer", "molecules", "--reward", "mine.py:atoms", "--calls", "40", "--evaluations", "2000", "--json"),
    ),
    "report, steered": ("report", "s"),
    "compare": (
        *("compare", "mine.py:model", "--reward", "mine.py:letters", "--strength", "2", "--calls", "200"),
        *("--seeds", "2", "--methods", "best-of-n,importance,truetilt", "--out", "c", "--json"),
    ),
    "compare, a table": (
        *("compare", "p0.json", "--reward", "mine.py:tokens", "--calls", "40", "--evaluations", "900"),
        *("--seeds", "1", "--out", "ct"),
    ),
    "train": ("train", "unconditional", "--config", "plan.json", "--data", "idx", "--out", "trained", "--json"),
    "demo": ("demo", "--digits", "2", "--out", "demo"),
    "figure1": ("reproduce", "figure1", "--quick", "--out", "f1"),
    "figure2": ("reproduce", "figure2", "--quick", "--out", "f2", "--json"),
    "version": ("--version",),
}


def commands() -> Runs:
    """Every command once or a few times, in one folder, so that later ones read what earlier ones wrote."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_inputs(folder)
        for title, words in COMMANDS.items():
            yield f"truetilt {title}", called(words, folder)
        for title, words in {"table": ("table.json",), "digits": ("digits", "--condition", "1")}.items():
            out = folder / f"result of {title}"
            called(("sample", *words, "--steps", "3", *FEW, "--out", str(out)), folder)
            yield f"truetilt sample, {title}, its result", tt.Result.load(out)
        yield from _humanised(folder)


def called(words: Sequence[str], folder: Path) -> dict[str, str]:
    """What a command prints and writes in a folder, in a fork that does as `truetilt` does."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    with tempfile.TemporaryDirectory() as aside:
        streams = [Path(aside) / "stdout", Path(aside) / "stderr"]
        child = os.fork()
        if child == 0:
            os._exit(_in_child(words, folder, streams))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told = {"exit code": str(code)} | {path.name: settled(path.read_text(), folder) for path in streams}
    told["command"] = "truetilt " + " ".join(words)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and before.get(path) != path.stat().st_mtime_ns and "__pycache__" not in path.parts:
            told[f"file {path.relative_to(folder)}"] = written(path, folder)
    return told


def _in_child(words: Sequence[str], folder: Path, streams: Sequence[Path]) -> int:
    """The command's exit code; its streams are files, its folder is the working directory."""
    try:
        os.chdir(folder)
        for number, path in enumerate(streams, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
        sys.argv = ["truetilt", *words]
        from truetilt.cli.main import main

        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 99
    return 0


def written(path: Path, folder: Path) -> str:
    """A file as words if it has any and is short, else by its digest; of a page, what a reader sees."""
    content = path.read_bytes()
    if path.suffix == ".html":
        content = seen_of(content.decode()).encode()
    if path.suffix not in (".safetensors", ".npy", ".png", ".bin", ".pt"):
        with contextlib.suppress(UnicodeDecodeError):
            words = content.decode()
            with contextlib.suppress(ValueError):
                words = as_lines(json.loads(words))
            if words.count("\n") < _LINES:
                return settled(words, folder)
            content = settled(words, folder).encode()
    return hashlib.sha256(content).hexdigest()[:16]


_UNSETTLED = (  # what differs from run to run: times, and the folder
    (re.compile(r'("(?:\w* )?(?:seconds|wall|started|ended|time)\w*": )[0-9.e-]+'), r"\1SECONDS"),
    (re.compile(r"\b\d+(\.\d+)? (s|seconds)\b"), "SECONDS s"),
    (re.compile(r"\b\d+:\d\d\b"), "M:SS"),
)


def settled(words: str, folder: Path) -> str:
    """Words without what differs from run to run."""
    words = words.replace(folder.as_uri(), "file://HERE").replace(str(folder), "HERE")
    for pattern, instead in _UNSETTLED:
        words = pattern.sub(instead, words)
    return words


def _humanised(folder: Path) -> Runs:
    """`truetilt humanise` with a tiny network, and a numberer in place of the package's."""
    from antibody_nets import write_antiberty
    from truetilt.antibodies.numbering import HEAVY, VariableDomain
    from truetilt.commands import humanise as command

    positions = (*range(20, 40), *range(60, 66), *range(90, 105))
    domain = VariableDomain(HEAVY, "kabat", 0, positions)
    chain = ("QVQLKWSGPE" * 5)[: len(positions)]
    (folder / "in.fa").write_text(f">one VH\n{chain}\n>two\n{chain[::-1]}\n")
    command.number_domains = lambda named, scheme="kabat": {name: domain._replace(scheme=scheme) for name in named}
    asked = command.HumaniseRequest(
        str(folder / "in.fa"), designs=3, particles=4, populations=2, sweeps=1, steps=5, readings=2
    )
    net, told = write_antiberty(folder / "antiberty"), []
    found = command.humanise(asked, folder / "designs", lambda done, total: None, net, told.append)
    files = {f"file {p.name}": written(p, folder) for p in sorted((folder / "designs").rglob("*")) if p.is_file()}
    summary = settled(as_lines(found), folder)
    yield "truetilt humanise", {"summary": summary, "told": settled("\n".join(told), folder)} | files


def help() -> Runs:
    """The help of every command."""
    import typer

    from truetilt.cli.main import app

    with tempfile.TemporaryDirectory() as name:
        todo: list[tuple[list[str], object]] = [([], typer.main.get_command(app))]
        while todo:
            words, command = todo.pop(0)
            yield " ".join(["help of truetilt", *words]), called([*words, "--help"], Path(name))["stdout"]
            todo += [([*words, name], one) for name, one in getattr(command, "commands", {}).items()]


JOBS = {  # some jobs of each experiment that needs no data, as `reproduce NAME --quick` runs them
    "table1": ("uniform-2-100-0", "masking-2-3-2", "masking-2-10-28", "masking-2-100-26"),
    "chain": ("64-0-iid", "64-0-any-order-in-order", "64-0-smc-clock", "16-0-smc-clock"),
    "sde": ("limit-euler_maruyama-guidance at 1", "2-2-100-1000-0", "32-4-100-1000-0"),
    "rewards": ("32-0-0", "32-4-2", "32-4-7", "32-4-12"),
    "steer": ("chain-32-2000-tds-2", "table-2-annealed from base-0", "table-7-truetilt-0", "table-11-importance-0"),
    "figure3": ("guidance-1-4",),
    "molecules": ("draws-0", "truth-qed-truetilt-charged-0"),
}


def experiments() -> Runs:
    """Jobs of the experiments, and each sampler of the one on four sites of a protein, on a small table."""
    from truetilt.commands.job_runner import Settings
    from truetilt.paper import gb1_samplers
    from truetilt.paper.experiments import EXPERIMENTS
    from truetilt.paper.reward_tables import RewardTable
    from truetilt.paper.text_conditions import one_case
    from truetilt.paper.text_grid import TASKS, cases

    for name, chosen in JOBS.items():
        jobs = {job.name: job for job in EXPERIMENTS[name].jobs(Settings(quick=True))}
        yield f"reproduce {name} --quick, its jobs", "\n".join(jobs)
        for title in chosen:
            answer = jobs[title].work(*jobs[title].arguments)
            yield f"reproduce {name} --quick, {title}", settled(as_lines(answer), Path("/nowhere/at/all"))
    sentiment = {case.name: case for case in cases(TASKS["sentiment"], True)}
    yield "reproduce sentiment --quick, its jobs", "\n".join(sentiment)
    for title in ("smc-partial-positive-a2-b1-24", "tilted-positive-a4-24", "any-order-populations-positive-a4-24"):
        answer = one_case(TASKS["sentiment"], sentiment[title]._replace(shape=(2, 2)), Settings(quick=True))
        yield f"reproduce sentiment --quick, {title}, of four texts", settled(as_lines(answer), Path("/nowhere/at/all"))
    generator = torch.Generator().manual_seed(0)
    p0 = torch.rand(6, 6, 6, 6, generator=generator, dtype=torch.float64) ** 3
    values = torch.randn(6**4, generator=generator, dtype=torch.float64).clamp(max=3) - 3
    table = RewardTable(p0 / p0.sum(), values)
    for name, sampler in gb1_samplers.OURS.items():
        found = sampler(table, gb1_samplers.bounded_reward(table), 2.0, 800, 0)
        yield f"reproduce gb1, {name}", {"x": found.x, "weights": found.weights, "log z": repr(found.log_z)}


SMALL = {"particles": 4, "populations": 2, "pace": "fast", "seed": 3}  # of a run in the studio


def studio() -> Runs:
    """The studio's page, what it runs at first for each model and sampler, and what it then shows; runs that steer."""
    import gradio

    from truetilt.studio import form as forms
    from truetilt.studio import page, sessions
    from truetilt.studio.choices import MODELS, SAMPLERS

    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name).resolve()
        make_inputs(folder)
        parts = page.blocks(sessions.Studio(folder)).get_config_file()["components"]
        kept = ("label", "value", "choices", "minimum", "maximum", "info", "placeholder")
        told = [{"type": one["type"]} | {k: one["props"][k] for k in kept if one["props"].get(k)} for one in parts]
        yield f"studio, its page, gradio {gradio.__version__}", settled(as_lines(told), folder)
        own = {"own table": "table.json", "own nets": "digits", "own texts": "reviews", "own strings": "text"}
        for model in (*(known for known in MODELS if known not in ("own", "protein")), *own):
            first = forms.first_form("own" if model in own else model)
            first = first._replace(**SMALL, steps=min(first.steps, 3), path=own.get(model, ""))
            asked = {"own nets": 1, "own texts": "good", "own strings": ""}
            first = first._replace(condition=asked.get(model, first.condition))
            if model == "own strings":
                first = first._replace(prompt="the film was", sampler="any-order")
            for sampler in SAMPLERS:
                form = first._replace(sampler=sampler)
                if wrong := forms.faults(form._asdict()):
                    yield f"studio, {model}, {sampler}, refused", settled(as_lines(wrong), folder)
                elif sampler == first.sampler or model in ("nine", "six"):
                    yield from _shown_by_studio(f"studio, {model}, {sampler}", form, folder)
        wrong = {"alpha": -1.0, "beta": "2", "particles": 2.5, "steps": 0, "seed": -1, "sampler": "x", "model": "y"}
        for field, value in wrong.items():
            told = forms.faults(forms.first_form()._asdict() | {field: value})
            yield f"studio, {field} = {value!r}", as_lines(told)
        yield from _steered_by_studio(folder)


def _shown_by_studio(name: str, form: object, folder: Path) -> Runs:
    """A run of a form: its result, and everything that the page says of it."""
    from truetilt.studio import pictures
    from truetilt.studio.jobs import StudioRun

    job = StudioRun(form, folder)
    job.run()
    told = {"python": job.python, "command": job.command, "note": job.note, "message": job.message}
    told |= {"stage": pictures.stage(job), "status": pictures.status(job, 0)}
    report = folder / f"{job.token}.html"
    told["report"] = seen_of(report.read_text(encoding="utf-8")) if report.is_file() else ""
    yield f"{name}, shown", {key: _without_pictures(words, folder) for key, words in told.items()}
    for lane, ran in job.lanes.items():
        if ran.result is not None:
            yield f"{name}, {lane}", ran.result


def _steered_by_studio(folder: Path) -> Runs:
    from truetilt.studio import steer_pictures
    from truetilt.studio.steer_choices import EXAMPLES
    from truetilt.studio.steer_form import first_steer_form, steer_faults
    from truetilt.studio.steer_jobs import SteerRun

    for model in ("letters", "mnist"):
        few = {"evaluations": 1500 if model == "letters" else 300, "calls": 300, "compare": model == "letters"}
        form = first_steer_form(EXAMPLES, model)._replace(**few)
        job = SteerRun(form, folder, EXAMPLES)
        job.run()
        told = {"python": job.python, "command": job.command, "message": job.message}
        told |= {"stage": steer_pictures.steer_stage(job), "status": steer_pictures.steer_status(job, 0)}
        yield f"studio, steer {model}, shown", {key: _without_pictures(words, folder) for key, words in told.items()}
        if job.result is not None:
            yield f"studio, steer {model}", job.result
    for field, value in {"strength": 0, "evaluations": 95, "calls": 0.5, "reward": "x", "steps": 7}.items():
        told = steer_faults(first_steer_form(EXAMPLES)._asdict() | {field: value}, EXAMPLES)
        yield f"studio, steer, {field} = {value!r}", as_lines(told)


def _without_pictures(words: str, folder: Path) -> str:
    """What a page shows with a line for each tag; pictures by digest, nothing that a clock or a process says."""
    words = re.sub(r"data:[^\"')]{100,}", lambda found: hashlib.sha256(found[0].encode()).hexdigest()[:16], words)
    return settled(re.sub(r'data-run="\d+"', "", words), folder).replace("><", ">\n<")
