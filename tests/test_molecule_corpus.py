"""Molecules to rows: pieces that cut no atom and give the SMILES back, a length from the data, labels by bins."""

import gzip
import json

import numpy as np
import pytest

from truetilt.core.errors import InvalidInput
from truetilt.training import prepare_molecules as preparation
from truetilt.training.corpus import Corpus
from truetilt.training.prepare import main

pytest.importorskip("tokenizers")
PARTS = ("C", "c1ccccc1", "C(=O)N", "CCl", "c1c[nH]cc1", "OCC", "CBr", "N1CCOCC1")
SMILES = [a + b + c for a in PARTS for b in PARTS[:5] for c in PARTS]


def moses(folder, smiles=SMILES):
    folder.mkdir(exist_ok=True)
    for name, chosen in (("train", smiles), ("test", smiles[::7])):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write("SMILES\n" + "\n".join(chosen) + "\n")
    return folder


def recipe(folder, **values):
    (folder / "recipe.json").write_text(json.dumps({"vocabulary": 48, "properties": [], "tokenizer_share": 1} | values))
    return folder / "recipe.json"


def prepared(folder, name="made", **values):
    given = ["--data", str(moses(folder / "moses")), "--config", str(recipe(folder, **values))]
    assert main(["--source", "moses", "--out", str(folder / name), *given]) == 0
    return Corpus.read(folder / name)


def test_rows_give_the_smiles_back_and_no_piece_cuts_an_atom(tmp_path, capsys):
    corpus = prepared(tmp_path, left_out=0.0)
    words, rows = corpus.tokenizer, corpus.texts(("guidance",), labelled=False).tokens
    assert [words.decode(row) for row in rows.tolist()] == SMILES
    assert rows.shape[1] == corpus.length
    assert (rows[:, -1] == corpus.end).all()  # an end fits behind the longest
    pieces = [words.piece(token) for token in range(words.vocabulary)]
    assert not [piece for piece in pieces if piece.count("[") != piece.count("]") or piece in ("l", "B", "r", "H")]
    again = prepared(tmp_path, "again", left_out=0.0)
    assert again.fingerprints == corpus.fingerprints


def test_labels_are_bins_of_a_property_and_each_row_has_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparation, "find_spec", lambda name: name)  # as if rdkit were installed
    monkeypatch.setattr(preparation, "property_values", lambda name, smiles: np.array([len(one) for one in smiles]))
    corpus = prepared(tmp_path, properties=["qed", "logp"], labelled_share=0.4, levels=[0.25, 0.5, 0.75])
    assert corpus.group_sizes == (4, 4)
    texts, words = corpus.texts(("guidance",), labelled=True), corpus.tokenizer
    assert 0.7 * len(SMILES) < texts.count < 0.9 * len(SMILES)
    for row, label in zip(texts.tokens.tolist(), texts.labels.tolist(), strict=True):
        name, place = ("qed", "logp")[label // 4], label % 4
        edges = [-np.inf, *corpus.bins[name]["edges"], np.inf]
        assert edges[place] <= len(words.decode(row)) < edges[place + 1]
    assert corpus.texts(("test",), labelled=True).count == corpus.texts(("test",), labelled=False).count


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"notation": "letters"}, "choose one of smiles, selfies"),
        ({"properties": ["taste"]}, "known are qed, logp"),
        ({"levels": [0.5, 0.5]}, "shares between 0 and 1 that grow"),
        ({"vocabulary": 5000}, "lower it"),
        ({"vocabulary": 8}, "from 32"),
    ],
)
def test_what_no_corpus_can_be_made_of_is_refused(tmp_path, values, words):
    with pytest.raises(InvalidInput, match=words):
        preparation.prepare_molecules(recipe(tmp_path, **values), moses(tmp_path / "moses"), tmp_path / "out")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "find_spec", lambda name: None)
    for values, package in (({"properties": ["qed"], "levels": [0.5]}, "rdkit"), ({"notation": "selfies"}, "selfies")):
        with pytest.raises(InvalidInput, match=f"need the package {package}: pip install {package}"):
            preparation.prepare_molecules(recipe(tmp_path, **values), tmp_path, tmp_path / "out")


def test_files_that_are_missing_or_other_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="unpacked package molsets"):
        preparation.read_moses(tmp_path / "train.csv.gz")
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write("name,SMILES\n")
    with pytest.raises(InvalidInput, match="first column must be called SMILES"):
        preparation.read_moses(tmp_path / "train.csv.gz")
