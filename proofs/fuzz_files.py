"""1,000 hostile files: whatever lies where a file is read, the library answers or refuses, and never hangs.

Valid tables, saved results, checkpoints, questions of stopped runs, configurations, nets, bundles, folders of
transformers, structures, FASTA, twists, answers of a reward and data are mutated: cut short, bits flipped, words and
values of other kinds, huge numbers, deep nesting, tensors of other names, shapes and kinds with a checksum that fits;
or a pipe, a device, a folder or a loop of links lies in their place. What is read must say what the file says.

python proofs/fuzz_files.py [--cases 1000] [--seed 0]      writes proofs/fuzz_files.json; exit code 1 if a case fails
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fuzzing import Case, Wrong, carried_out, changed, report
from safetensors.torch import load_file, save_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # tiny networks and backbones
import truetilt as tt
from public_nets import esm2, esm_tokenizer
from tiny_protein import pdb, structure
from truetilt.core.storage import read_json, sha256_of

SECONDS = 60
TABLE = {"p0": [[1, 2, 3], [2, 1, 1], [0, 1, 4]], "likelihood": [[0.9, 0.1, 0.4], [0.2, 0.5, 0.5], [0.7, 0.9, 0.1]]}


def the_run(checkpoint: Path | None = None, stop: int | None = None) -> tt.Result:
    """A small run on a table, perhaps stopped in the middle."""
    p0, likelihood = (torch.tensor(TABLE[key], dtype=torch.float64) for key in ("p0", "likelihood"))
    model = tt.Table(tt.Masking(3), p0, likelihood).model()

    def end(done: int, total: int, info: Any) -> None:
        if done == stop:
            raise KeyboardInterrupt

    options = {"checkpoint": checkpoint, "checkpoint_every": 2} if checkpoint else {}
    return tt.sample(
        model, 2.0, num_inference_steps=8, particles=20, populations=2, snapshots=3, callback_on_step_end=end, **options
    )


# what is read, and what is asked of it


def table(folder: Path, sealed: bool) -> None:
    """A run on a table that succeeds must agree with the exact answer as far as it trusts itself."""
    from truetilt.commands.table_files import read_table

    found = read_table(folder / "table.json", "masking", 1e-3)
    result = tt.sample(found.model(), 2.0, num_inference_steps=30, particles=64, populations=8)
    exact, trust = float(found.log_z_tilted(2.0)), result.trust()
    if not math.isfinite(result.log_z):
        raise Wrong(f"log Z is {result.log_z}, exactly {exact}")
    error = result.log_z_stderr or 0.0
    if trust.verdict == tt.Verdict.trust and abs(result.log_z - exact) > 8 * error + 0.1:
        raise Wrong(f"log Z is {result.log_z} +- {error}, exactly {exact}, and is to be trusted")


def result(folder: Path, sealed: bool) -> None:
    from truetilt.viz.view_choice import saved_view

    found = tt.Result.load(folder)
    weights = found.weights
    if not bool(weights.isfinite().all()) or abs(float(weights.sum()) - 1) > 1e-6:
        raise Wrong(f"the weights sum to {float(weights.sum())}")
    found.trust()
    found.draw(3)
    found.report(folder / "out" / "report.html", saved_view(folder))


def checkpoint(folder: Path, sealed: bool) -> None:
    """A checkpoint that is taken up leads to the bits of the whole run, unless it was forged with a checksum."""
    found, whole = the_run(folder), the_run()
    if not sealed and not torch.equal(found.log_weights, whole.log_weights):
        raise Wrong("a resumed run has other weights than the whole one")


def asked(folder: Path, sealed: bool) -> None:
    from truetilt.commands.resume import read_command, sample_or_resume

    sample_or_resume(read_command(folder), folder, lambda done: None)


def config(folder: Path, sealed: bool) -> None:
    from truetilt.training.config import read_config
    from truetilt.training.tasks import build_task

    for path in folder.glob("config.*"):
        build_task(read_config(path))


def net(folder: Path, sealed: bool) -> None:
    found = tt.load(folder)
    answer = found.net(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1))
    if not bool(answer.isfinite().all()):
        raise Wrong("a net answers with what is no number")


def digits(folder: Path, sealed: bool) -> None:
    tt.sample(tt.load(folder).model(1), 2.0, particles=2, num_inference_steps=2)


def reviews(folder: Path, sealed: bool) -> None:
    found = tt.load(folder)
    drawn = tt.sample(found.model("good"), 2.0, particles=2, num_inference_steps=2)
    found.decode(drawn.particles.flatten(0, 1))


def studio(folder: Path, sealed: bool) -> None:
    from truetilt.studio.folders import found_at
    from truetilt.studio.form import faults, first_form, form_of
    from truetilt.studio.problems import problem_of

    for path in (folder, *folder.iterdir()):
        found_at(path)
        values = first_form("own")._asdict() | {"path": str(path), "condition": "good"}
        if not faults(values):
            try:
                problem_of(form_of(values))
            except tt.TruetiltError:
                continue


def corpus(folder: Path, sealed: bool) -> None:
    from truetilt.training.corpus import Corpus

    found = Corpus.read(folder)
    found.texts(("guidance",), labelled=True)
    _ = found.tokenizer


def idx(folder: Path, sealed: bool) -> None:
    from truetilt.training.data import load_digits

    load_digits(folder, "train", 10)


def landscape(folder: Path, sealed: bool) -> None:
    from truetilt.paper.dna_landscape import read_landscape

    read_landscape(folder)


def strings(folder: Path, sealed: bool) -> None:
    """A folder of transformers that is read has the mask and the amino acids of the valid one, under their numbers."""
    found = tt.from_transformers(folder)
    named = dict(zip(found.pieces, found.public.alphabet.ids, strict=True))
    if found.public.mask != 32 or named != RESIDUES:
        raise Wrong(f"the mask is {found.public.mask} and tokens are {named}")
    drawn = tt.sample(found.model(length=3), 0, particles=2, num_inference_steps=2)
    found.decode(drawn.particles)


RESIDUES = dict(zip("LAGVSERTIDPKQNFYMHWC", range(4, 24), strict=True))  # of ESM2


def backbone(folder: Path, sealed: bool) -> None:
    """A structure that is read has the numbers that the columns of its file spell."""
    from truetilt.proteins.structure import read_structure

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gaps
        found = read_structure(folder / "x.pdb")
    lines = (folder / "x.pdb").read_bytes().decode("latin-1").splitlines()
    atoms = [line for line in lines if line[:6] in ("ATOM  ", "HETATM")]
    spelled = {tuple(f"{float(line[a : a + 8]):.3f}" for a in (30, 38, 46)) for line in atoms}
    read = {tuple(f"{number:.3f}" for number in place) for place in found.backbone.reshape(-1, 3).double().tolist()}
    if not {_rounded(place) for place in read} <= {_rounded(place) for place in spelled}:
        raise Wrong(f"places {sorted(read - spelled)[:3]} are nowhere in the file")


def _rounded(place: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(round(float(number), 1) + 0.0 for number in place)


def proteins(folder: Path, sealed: bool) -> None:
    from truetilt.core.fasta import read_fasta

    found = "".join(one.letters for one in read_fasta(folder / "x.fa"))
    letters = re.sub(r"^>.*$|[\s*]", "", (folder / "x.fa").read_text(), flags=re.MULTILINE).upper()
    if found != letters or not set(found) <= set("ACDEFGHIKLMNPQRSTVWY"):
        raise Wrong(f"{len(found)} letters are read and the file has {len(letters)}")


def twist(folder: Path, sealed: bool) -> None:
    found = tt.LearnedTwist.load(folder / "twist.safetensors")
    if not bool(found(torch.zeros(1, found.length or 2, dtype=torch.int64), 0.5).isfinite().all()):
        raise Wrong("a twist is not finite")


def answers(folder: Path, sealed: bool) -> None:
    """A cache that is read answers what the function answers."""
    reward = tt.Reward(first_token, vocabulary=3, cache_file=folder / "answers")
    values = reward(STATES)
    if not sealed and not torch.equal(values, first_token(STATES)):
        raise Wrong(f"the cache says {values.tolist()}")


STATES = torch.tensor([[0, 1], [1, 1], [2, 0]])


def first_token(x: torch.Tensor) -> torch.Tensor:
    return x[:, 0].double()


# valid ones


def make_table(folder: Path) -> None:
    (folder / "table.json").write_text(json.dumps(TABLE))


def make_result(folder: Path) -> None:
    the_run().save(folder, tt.Disks(3))


def make_checkpoint(folder: Path) -> None:
    with suppress(KeyboardInterrupt):
        the_run(folder, 5)


def make_asked(folder: Path) -> None:
    from truetilt.commands.request import SampleRequest, TableNoise
    from truetilt.commands.resume import SampleCommand, sample_or_resume

    make_table(folder)
    steps = 0

    def stop(done: int) -> None:
        nonlocal steps
        steps += done
        if steps == 5:
            raise KeyboardInterrupt

    request = SampleRequest(None, 2.0, None, 20, 2, 8, 0, "cpu")
    with suppress(KeyboardInterrupt):
        sample_or_resume(SampleCommand(str(folder / "table.json"), request, TableNoise(), 2), folder, stop)


def make_config(folder: Path) -> None:
    sizes = {"side": 4, "vocabulary": 4, "classes": 2, "channels": [8], "blocks": 1, "embedding": 4, "condition": 4}
    plan = {"task": "unconditional", "steps": 3, "data": "nowhere", "net": sizes}
    if random.random() < 0.5:
        (folder / "config.json").write_text(json.dumps(plan))
    else:
        import yaml

        (folder / "config.yaml").write_text(yaml.safe_dump(plan))


def words() -> tt.Tokenizer:
    return tt.train_tokenizer(["good film", "bad film", "a film of the best kind"], 270)


def make_net(folder: Path) -> None:
    tokenizer = words()
    sizes = {"vocabulary": tokenizer.vocabulary, "length": 8, "hidden": 8, "blocks": 1, "heads": 2, "condition": 4}
    tt.SEDD(tt.SEDDConfig(**sizes, classes=2)).save_pretrained(folder)
    tokenizer.save(folder)
    (folder / "card.json").write_text(json.dumps({"tokenizer": tokenizer.fingerprint()}))


def make_digits(folder: Path) -> None:
    from truetilt.models.classifier import Classifier, ClassifierConfig
    from truetilt.models.unet import UNet, UNetConfig

    sizes = {"side": 4, "vocabulary": 4, "classes": 2, "channels": (8,), "blocks": 1, "embedding": 4, "condition": 4}
    UNet(UNetConfig(**sizes)).save_pretrained(folder / "unet")
    (folder / "unet" / "card.json").write_text(json.dumps({"config": {"process": "masking"}}))
    for name in ("potential", "judge"):
        Classifier(ClassifierConfig(**sizes)).save_pretrained(folder / name)


def make_reviews(folder: Path) -> None:
    make_net(folder / "sedd")
    shutil.move(folder / "sedd" / "tokenizer.json", folder / "tokenizer.json")
    vocabulary = words().vocabulary
    sizes = tt.TextClassifierConfig(vocabulary, 8, (2,), hidden=8, blocks=1, heads=2, condition=4)
    for name in ("potential", "judge"):
        tt.TextClassifier(sizes).save_pretrained(folder / name)
    card = {"classes": ["bad", "good"], "groups": {"taste": ["bad", "good"]}, "withheld": [2, 2, 2]}
    (folder / "sedd" / "card.json").write_text(json.dumps(card))


def make_published(folder: Path) -> None:
    sizes = {"hidden_size": 8, "cond_dim": 4, "length": 8, "n_blocks": 1, "n_heads": 2, "scale_by_sigma": True}
    told = {"tokens": 11, "graph": {"type": "absorb"}, "noise": {"type": "loglinear"}, "model": sizes}
    made = tt.SEDD(tt.SEDDConfig(11, 8, 8, 1, 2, 4))
    (folder / "config.json").write_text(json.dumps(told))
    if random.random() < 0.5:
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
    else:
        save_file(made.state_dict(), folder / "model.safetensors")


def make_corpus(folder: Path) -> None:
    import numpy as np

    from truetilt.training.corpus import array_hash

    tokenizer = words()
    tokenizer.save(folder)
    tokens, rows = np.arange(12, dtype=np.uint16), np.array([[6, 1, 0, 0, 0], [6, 1, 1, 0, 0]], dtype=np.int32)
    names = {"tokens.npy": tokens, "rows.npy": rows}
    for name, values in names.items():
        np.save(folder / name, values)
    prints = {name: array_hash(values) for name, values in names.items()} | {"tokenizer.json": tokenizer.fingerprint()}
    told = {"length": 8, "vocabulary": tokenizer.vocabulary, "end": tokenizer.end, "classes": ["bad", "good"]}
    told |= {"groups": {"taste": ["bad", "good"]}, "withheld": [2, 2, 2], "sources": ["s"], "fingerprints": prints}
    (folder / "corpus.json").write_text(json.dumps(told))


def make_idx(folder: Path) -> None:
    head = (2051).to_bytes(4, "big") + b"".join(size.to_bytes(4, "big") for size in (3, 4, 4))
    (folder / "train-images-idx3-ubyte").write_bytes(head + bytes(range(48)))
    (folder / "train-labels-idx1-ubyte").write_bytes((2049).to_bytes(4, "big") + (3).to_bytes(4, "big") + bytes(3))


def make_landscape(folder: Path) -> None:
    (folder / "scores.csv").write_text("sequence,score\nACGTACGT,0.5\nAAAAAAAA,0.1\n")


def make_strings(folder: Path) -> None:
    esm2().save_pretrained(folder)
    esm_tokenizer(folder).save_pretrained(folder)


def make_backbone(folder: Path) -> None:
    (folder / "x.pdb").write_text(pdb(structure("ACDEFGHIK")))


def make_proteins(folder: Path) -> None:
    (folder / "x.fa").write_text(">one\nQVQLKW\nACDEF\n>another\nMKT\n")


def make_twist(folder: Path) -> None:
    p0, likelihood = (torch.tensor(TABLE[key], dtype=torch.float64) for key in ("p0", "likelihood"))
    model = tt.Table(tt.Masking(3), p0, likelihood).model()
    tt.learn_twist(model, first_token, calls=60, draws=30, refits=0).save(folder / "twist.safetensors")


def make_answers(folder: Path) -> None:
    reward = tt.Reward(first_token, vocabulary=3, cache_file=folder / "answers")
    reward(STATES)
    reward.close()


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path, bool], None], int]] = {  # and how often
    "table": (make_table, table, 5),
    "result": (make_result, result, 5),
    "checkpoint": (make_checkpoint, checkpoint, 4),
    "asked": (make_asked, asked, 3),
    "configuration": (make_config, config, 4),
    "net": (make_net, net, 4),
    "digits": (make_digits, digits, 3),
    "reviews": (make_reviews, reviews, 4),
    "published": (make_published, net, 3),
    "studio, table": (make_table, studio, 2),
    "studio, net": (make_net, studio, 2),
    "studio, reviews": (make_reviews, studio, 2),
    "corpus": (make_corpus, corpus, 2),
    "IDX": (make_idx, idx, 1),
    "landscape": (make_landscape, landscape, 1),
    "strings": (make_strings, strings, 6),
    "structure": (make_backbone, backbone, 5),
    "FASTA": (make_proteins, proteins, 2),
    "twist": (make_twist, twist, 2),
    "answers": (make_answers, answers, 2),
}


# how they are spoiled


def spoil(path: Path, chance: random.Random) -> str:
    """Make a file another one, or something that is no file; what was done."""
    if path.suffix == ".json" and chance.random() < 0.6:
        return values(path, chance)
    if path.suffix == ".safetensors" and chance.random() < 0.6:
        return tensors(path, chance)
    if path.suffix in (".pdb", ".fa", ".txt", ".csv") and chance.random() < 0.6:
        return word(path, chance)
    return chance.choice((cut, flipped, doubled, emptied, filled, instead, instead))(path, chance)


def values(path: Path, chance: random.Random) -> str:
    found = json.loads(path.read_text())
    for _ in range(chance.choice((1, 1, 1, 3))):
        found = changed(found, chance)
    path.write_text(json.dumps(found))
    return "values changed"


def tensors(path: Path, chance: random.Random) -> str:
    """Other names, shapes, kinds or numbers; saved as safetensors saves."""
    found = load_file(path)
    name = chance.choice(sorted(found))
    tensor, what = found[name], chance.randrange(7)
    if what == 0:
        del found[name]
    elif what == 1:
        found[chance.choice(("x", "extra", "aux.y", "kept.5.x", "kept.²", name + "x"))] = tensor.clone()
    elif what == 2:
        kinds = (
            torch.int8,
            torch.int64,
            torch.float16,
            torch.float64,
            torch.bool,
            torch.float8_e4m3fn,
            torch.complex64,
        )
        found[name] = tensor.to(chance.choice(kinds))
    elif what == 3:
        found[name] = tensor.reshape(-1).clone()[: chance.randrange(tensor.numel() + 1)]
    elif what == 4:
        found[name] = tensor[None].clone()
    elif what == 5:
        found[name] = torch.full_like(tensor, float(chance.choice((-1, 100, 2**20))) if tensor.numel() else 0)
    else:
        found[name] = torch.full_like(tensor.double(), chance.choice((math.nan, math.inf, -math.inf, 1e300)))
    save_file(found, path)
    return f"tensor {name}, way {what}"


def word(path: Path, chance: random.Random) -> str:
    """Another word in the place of one, as wide as it was; or the lines in another order."""
    lines = path.read_text().splitlines(keepends=True)
    if chance.random() < 0.15:
        path.write_text("".join(chance.choice((sorted(lines), lines[::-1], lines[1:], lines * 2))))
        return "lines in another order"
    place = chance.randrange(len(lines))
    found = chance.choice(list(re.finditer(r"\S+", lines[place])))
    new = chance.choice(("*****", "", "0x1F", "1.2.3.4", "1,5", "١٢.٣", "nan", "inf", "1e0", "60.000", "-1", "X", "é"))
    new = "x" * 10_000_000 if chance.random() < 0.03 else new.rjust(len(found.group()))
    lines[place] = lines[place][: found.start()] + new + lines[place][found.end() :]
    path.write_text("".join(lines))
    return f"{found.group()!r} is {new[:20]!r}"


def cut(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])
    return "cut short"


def flipped(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 3, 50))):
        place = chance.randrange(min(len(content), chance.choice((64, 4096, 10**9))) or 1)
        if content:
            content[place] = chance.randrange(256)
    path.write_bytes(content)
    return "bytes changed"


def doubled(path: Path, chance: random.Random) -> str:
    path.write_bytes(path.read_bytes() * 2)
    return "doubled"


def emptied(path: Path, chance: random.Random) -> str:
    path.write_bytes(b"")
    return "empty"


def filled(path: Path, chance: random.Random) -> str:
    """Something else altogether."""
    ways = {
        "random bytes": chance.randbytes(chance.choice((10, 1000, 100_000))),
        "deep": b"[" * chance.choice((50, 1500, 100_000)),
        "deep, closed": b"[" * 1500 + b"]" * 1500,
        "deep names": b'{"p0":' * 3000 + b"1" + b"}" * 3000,
        "a long number": b'{"p0": [' + b"9" * chance.choice((400, 5000)) + b', 1], "likelihood": [1, 1], "steps": 1}',
        "half a character": b'{"p0": "\\ud800", "architecture": "\\udfff", "format": "\\ud800"}',
        "laughs": b"a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nnet: {a: *c}\n",
        "a pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n.",
        "a header of 2^60 bytes": (2**60).to_bytes(8, "little") + b"{}",
        "a list": b"[1, 2, 3]",
        "a word": b'"table"',
        "zeros": bytes(1000),
        "gzip": b"\x1f\x8b" + chance.randbytes(50),
        "many axes": b'{"p0": '
        + b"[" * 70
        + b"1"
        + b"]" * 70
        + b', "likelihood": '
        + b"[" * 70
        + b"1"
        + b"]" * 70
        + b"}",
        "many sites": json.dumps({"p0": _cube(18), "likelihood": _cube(18)}).encode(),
        "an array of 10^15": b"\x93NUMPY\x01\x00v\x00"
        + _padded("{'descr': '<f8', 'fortran_order': False, 'shape': (10**15,), }"),
    }
    name = chance.choice(sorted(ways))
    path.write_bytes(ways[name])
    return name


def _cube(sites: int) -> Any:
    found: Any = 1.0
    for _ in range(sites):
        found = [found, found]
    return found


def _padded(text: str) -> bytes:
    return text.replace("10**15", str(10**15)).ljust(117).encode() + b"\n"


def instead(path: Path, chance: random.Random) -> str:
    """A pipe, a device, a folder or a link."""
    path.unlink()
    what = chance.choice(
        ("pipe", "/dev/zero", "/dev/random", "/dev/null", "/dev/stdin", "loop", "nowhere", "folder", "gap")
    )
    if what == "pipe":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "nowhere":
        path.symlink_to("not-there")
    elif what == "folder":
        path.mkdir()
    elif what == "gap":  # a file of 10^12 bytes that takes no place
        with open(path, "wb") as file:
            file.truncate(10**12)
    else:
        path.symlink_to(what)
    return what


def reseal(folder: Path) -> None:
    """Checksums that fit whatever the tensors are now."""
    pairs = {"particles.json": "particles.safetensors", "state.json": "state.safetensors"}
    for header, content in pairs.items():
        for path in folder.rglob(header):
            try:
                told = read_json(path)
                told["sha256"] = sha256_of(path.parent / content)
                path.write_text(json.dumps(told))
            except (OSError, ValueError, TypeError):
                continue


def hostile_case(seed: int, number: int, valid: Path) -> Case:
    chance = random.Random(f"{seed}-{number}")
    kind = chance.choices(list(KINDS), [often for _, _, often in KINDS.values()])[0]
    return Case(kind, f"case {number}", partial(spoiled, kind, valid, f"{seed}-{number}"))


def spoiled(kind: str, valid: Path, seed: str) -> None:
    """Spoil a copy of a valid folder, then read it; done in the process of the case."""
    chance = random.Random(f"{seed} spoil")
    _, read, _ = KINDS[kind]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "copy"
        shutil.copytree(valid / kind / str(chance.randrange(2)), folder)
        _move_asked(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path = chance.choice(files)
        how = spoil(path, chance)
        sealed = chance.random() < 0.7
        if sealed:
            reseal(folder)
        try:
            read(folder, sealed)
        except tt.TruetiltError:
            raise
        except Wrong as error:
            raise Wrong(f"{path.name}, {how}: {error}") from error
        except BaseException as error:
            error.add_note(f"{path.name}, {how}")
            raise


def _move_asked(folder: Path) -> None:
    """A question names its table by where it lies."""
    path = folder / "asked.json"
    if path.is_file():
        told = json.loads(path.read_text())
        told["model"] = told["found"] = str((folder / "table.json").resolve())
        path.write_text(json.dumps(told))


def main() -> int:
    """The cases, counted."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--cases", type=int, default=1000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", type=int, help="this case alone, in this process")
    told = words.parse_args()
    torch.set_num_threads(1)
    random.seed(told.seed)
    with tempfile.TemporaryDirectory() as place:
        for kind, (make, read, _) in KINDS.items():
            for version in ("0", "1"):
                (Path(place) / kind / version).mkdir(parents=True)
                make(Path(place) / kind / version)
            with tempfile.TemporaryDirectory() as copy:  # what is not spoiled is read
                shutil.copytree(Path(place) / kind / "0", Path(copy) / "whole")
                _move_asked(Path(copy) / "whole")
                try:
                    read(Path(copy) / "whole", False)
                except tt.InvalidInput as error:
                    if kind != "landscape":  # which asks for all 65,536
                        raise AssertionError(f"{kind}: {error}") from error
        cases = [hostile_case(told.seed, number, Path(place)) for number in range(told.cases)]
        if told.only is not None:
            faulthandler.dump_traceback_later(SECONDS / 3, exit=True)
            cases[told.only].run()
            return 0
        found = list(carried_out(cases, SECONDS))
    return report(Path(__file__).with_suffix(".json"), "python proofs/fuzz_files.py", told.seed, found)


if __name__ == "__main__":
    raise SystemExit(main())
