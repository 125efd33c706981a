"""The commands on a folder of transformers: sample, infill and steer with strings in and out."""

import json

import pytest
from typer.testing import CliRunner

import truetilt as tt
from public_nets import bert, bert_tokenizer, esm2, esm_tokenizer
from truetilt.cli.main import app

pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")

REWARD = """
def tryptophans(proteins):
    return [float(protein.count("W")) for protein in proteins]


def letters(texts):
    return [float(len(text)) for text in texts]
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("nets")
    for name in ("protein", "text"):
        (root / name).mkdir()
    esm2().save_pretrained(root / "protein")
    esm_tokenizer(root / "protein").save_pretrained(root / "protein")
    bert().save_pretrained(root / "text")
    bert_tokenizer().save_pretrained(root / "text")
    (root / "mine.py").write_text(REWARD)
    return root


def called(*words, code=0):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == code, found.output
    return found


def test_a_folder_is_what_load_makes_of_it(folders):
    assert isinstance(tt.load(folders / "protein"), tt.Sequences)
    with pytest.raises(tt.InvalidInput, match="another project's network"):
        tt.load(folders / "protein", compile=True)


def test_sample_after_a_prompt(folders, tmp_path):
    out = tmp_path / "run"
    called(
        "sample", folders / "text", "--prompt", "the film", "--length", 4, "--alpha", 2, "--particles", 8, "--out", out
    )
    told = json.loads((out / "result.json").read_text())
    assert len(told["texts"]) == 8
    assert sum(particle["weight"] for particle in told["particles"]) == pytest.approx(1)
    assert told["settings"]["model"]["alpha"] == 2
    assert "--prompt 'the film'" in told["settings"]["command"]
    assert "trust" not in told["settings"]["command"]
    assert len((out / "samples.txt").read_text().splitlines()) == 8
    called("report", out)


def test_sample_proteins_as_fasta(folders, tmp_path):
    called("sample", folders / "protein", "--length", 6, "--particles", 8, "--out", tmp_path)
    lines = (tmp_path / "samples.fasta").read_text().splitlines()
    assert lines[::2] == [f">sample_{k}" for k in range(1, 9)]
    assert all(len(line) == 6 and set(line) <= set("ACDEFGHIKLMNPQRSTVWY") for line in lines[1::2])


def test_infill_by_a_folder(folders, tmp_path):
    called("infill", "MK[MASK:3]WW", "--model", folders / "protein", "--alpha", 2, "--particles", 4, "--out", tmp_path)
    told = json.loads((tmp_path / "result.json").read_text())
    assert all(entry["text"][:2] == "MK" and entry["text"][5:] == "WW" for entry in told["texts"])
    assert told["settings"]["command"].startswith("truetilt infill 'MK[MASK:3]WW' --model ")
    assert "--prompt" not in told["settings"]["command"]


def test_steer_by_a_reward_of_strings(folders, tmp_path):
    reward = f"{folders / 'mine.py'}:tryptophans"
    words = ["--strength", 3, "--calls", 300, "--length", 4, "--out", tmp_path]
    called("steer", folders / "protein", "--reward", reward, "--prompt", "MK", *words)
    draws = json.loads((tmp_path / "result.json").read_text())["draws"]
    assert all(draw["reward"] == draw["text"].count("W") for draw in draws)
    assert sum(draw["reward"] for draw in draws) > len(draws)
    lines = (tmp_path / "samples.fasta").read_text().splitlines()
    assert len(lines) == 2 * tt.Result.load(tmp_path).log_weights.numel()
    assert lines[0] == ">sample_1"
    assert all(len(line) == 4 for line in lines[1::2])
    assert sum(line.count("W") for line in lines[1::2]) > len(lines) / 2


def test_steer_reads_a_text_with_gaps_whole(folders, tmp_path):
    words = ["--calls", 60, "--evaluations", 800, "--prompt", "MK[MASK:2]WW", "--out", tmp_path]
    called("steer", folders / "protein", "--reward", f"{folders / 'mine.py'}:letters", *words)
    draws = json.loads((tmp_path / "result.json").read_text())["draws"]
    assert all(draw["reward"] == 6 and draw["text"][4:] == "WW" for draw in draws)
    lines = (tmp_path / "samples.fasta").read_text().splitlines()
    assert all(line[:2] == "MK" and line[4:] == "WW" for line in lines[1::2])


def test_steer_by_a_prompt(folders, tmp_path):
    words = ["--alpha", 2, "--prompt", "the film", "--length", 3, "--evaluations", 2000, "--out", tmp_path]
    called("steer", folders / "text", *words)
    assert len(json.loads((tmp_path / "result.json").read_text())["draws"]) == 16
    assert len((tmp_path / "samples.txt").read_text().splitlines()) >= 16


def test_what_does_not_go_together_is_one_line(folders, tmp_path):
    out = ("--out", tmp_path / "none")
    assert "give a --prompt" in called("sample", folders / "text", "--alpha", 2, *out, code=2).output
    assert "takes no prompt" in called("sample", "mnist", "--condition", 4, "--prompt", "x", *out, code=2).output
    assert "no gap" in called("infill", "MKW", "--model", folders / "protein", *out, code=2).output
    assert "leave out" in called(
        "infill", "M[MASK]", "--condition", "good", "--model", folders / "protein", *out, code=2
    ).output  # fmt: skip


def test_a_name_that_means_nothing_is_told_so_whatever_else_is_asked(folders, tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def absent(hub_id, **how):
        asked.append(hub_id)
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    monkeypatch.chdir(tmp_path)
    reward = ("--reward", f"{folders / 'mine.py'}:letters", "--length", 5)
    commands = (
        ("sample", "{}", "--prompt", "MK"),
        ("sample", "{}"),
        ("sample", "{}", "--condition", 4),
        ("steer", "{}", *reward),
        ("infill", "M[MASK]", "--model", "{}"),
    )
    for words in commands:
        said = called(*[str(word).format("owner/nothere") for word in words], code=2).output
        assert "the hub did not give one of that id" in " ".join(said.split())
        said = called(*[str(word).format("nofolder") for word in words], code=2).output
        assert "there is no model 'nofolder'" in said or "there is no folder nofolder" in said
        assert "hub id owner/name" in " ".join(said.split())
    assert set(asked) == {"owner/nothere"}
    assert not [*tmp_path.rglob("*.json")]


def test_a_hub_id_stands_for_the_folder_that_the_hub_gives(folders, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda hub_id, **how: str(folders / "protein"))
    sizes = ("--prompt", "MK", "--length", 3)
    called("sample", "owner/protein", *sizes, "--particles", 4, "--out", tmp_path / "sampled")
    assert (tmp_path / "sampled/samples.fasta").is_file()
    reward = ("--reward", f"{folders / 'mine.py'}:letters", "--calls", 40, "--evaluations", 600)
    called("steer", "owner/protein", *reward, *sizes, "--out", tmp_path / "steered")
