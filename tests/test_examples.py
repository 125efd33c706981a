"""The scripts of `examples/`, each as a newcomer starts it; those that take a public network get a tiny one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import pytest

from public_nets import bert, bert_tokenizer, esm2, esm_tokenizer
from tiny_protein import pdb, structure, write_weights

EXAMPLES = Path(__file__).parents[1] / "examples"


def tiny(folder, net, tokenizer):
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return [str(folder)]


def masked_lm(folder):
    return tiny(folder / "bert", bert(), bert_tokenizer())


def protein_motif(folder):
    return tiny(folder / "esm", esm2(), esm_tokenizer(folder))


def proteins(folder):
    write_weights(folder / "tiny.pt")
    (folder / "x.pdb").write_text(pdb(structure("MKTAYIAKQR")))
    return ["x.pdb", "3-5,9", "tiny.pt"]


SCRIPTS = {  # what each needs, its arguments, and words that it prints
    "own_model": ("torch", None, ["the network: ", "steered: ", "log Z: -"]),
    "dna_reward": ("torch", None, ["1. Importance: ", "Spent: ", "look at it: dna.html"]),
    "masked_lm": ("transformers", masked_lm, ["alpha = 2: trust", "the film was "]),
    "protein_motif": ("transformers", protein_motif, ["HELGH", "Spent: "]),
    "text_by_class": ("tokenizers", None, ["guidance of strength 3: ", "truetilt, p0(x) p(positive | x)^3: "]),
    "molecules": ("rdkit", None, ["weight    QED  molecule", "look at it: molecules.html"]),
    "proteins": ("gemmi", proteins, ["ProteinMPNN: ", "more K and R: "]),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs_and_says_something(name, tmp_path, monkeypatch, capsys):
    needs, arguments, words = SCRIPTS[name]
    pytest.importorskip(needs)
    given = [] if arguments is None else arguments(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *given])
    run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert [one for one in words if one not in told] == []


@pytest.mark.skipif(find_spec("torch.distributed") is None, reason="torch without distributed")
def test_the_example_of_two_processes_gives_the_same_bits(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    told = subprocess.run(
        [*command, str(EXAMPLES / "two_gpus.py")], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert "2 processes, cpu: " in told.stdout
    assert "the same bits as one process alone: True" in told.stdout


def test_examples_are_short_and_all_run():
    found = sorted(EXAMPLES.glob("*.py"))
    assert [path.stem for path in found] == sorted([*SCRIPTS, "two_gpus"])
    assert max(len(path.read_text().splitlines()) for path in found) <= 40
