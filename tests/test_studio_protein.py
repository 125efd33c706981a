"""ProteinMPNN in the studio: a structure, open residues, weights to lean to; a logo, sequences with their weights."""

import shlex

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from tiny_protein import pdb, structure, write_weights
from truetilt.cli.main import app
from truetilt.studio import pictures
from truetilt.studio.background import DONE, FAILED
from truetilt.studio.folders import DIGITS, STRINGS, TEXT, Found, sampler_for
from truetilt.studio.form import faults, first_form, form_of
from truetilt.studio.jobs import StudioRun
from truetilt.studio.residues import WholeChain
from truetilt.viz.logo import SequenceLogo
from truetilt.viz.settings_in_words import run_settings
from truetilt.viz.view_choice import view_of

pytest.importorskip("gemmi", reason="pip install 'truetilt[protein]'")
NATIVE = "MKTAYIAKQR"


@pytest.fixture(autouse=True)
def tiny(tmp_path, monkeypatch):
    """Tiny weights in place of the published ones."""
    files = {"vanilla": 0, "soluble": 1}
    made = {name: write_weights(tmp_path / f"{name}.pt", seed=seed) for name, seed in files.items()}
    monkeypatch.setattr("truetilt.proteins.bundle.find_weights", lambda weights, noise="020": made[str(weights)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my 'x'.pdb"
    path.write_text(pdb(structure(NATIVE)))
    return str(path)


def values(file, **changes):
    return first_form("protein")._asdict() | {"path": file, "open": "3-5", "pace": "fast"} | changes


def done(job):
    job.run()
    assert job.state == DONE, job.message
    return job


@pytest.mark.parametrize(
    "changes",
    [{}, {"condition": ""}, {"sampler": "guidance"}, {"weights": "soluble", "condition": "vanilla", "open": ""}],
)
def test_python_and_command_give_the_same_bits(file, tmp_path, monkeypatch, changes):
    monkeypatch.chdir(tmp_path)
    job = done(StudioRun(form_of(values(file, particles=4, populations=2, **changes)), tmp_path))
    first, space = job.lanes["run"].result, {}
    exec(job.python, space)
    assert torch.equal(space["result"].particles, first.particles)
    assert torch.equal(space["result"].log_weights, first.log_weights)
    call = run_settings(first.settings, first.times.tolist()).call  # what the report shows
    if changes.get("sampler") == "guidance":
        assert "# model: the one that was sampled" in call
    else:
        exec(call, space)
        assert torch.equal(space["result"].particles, first.particles)
    if job.command.startswith("truetilt"):
        out = CliRunner().invoke(app, [*shlex.split(job.command)[1:], "--out", "run"])
        assert out.exit_code == 0, out.output
        assert torch.equal(tt.Result.load("run").particles, first.particles)
    else:
        assert changes == {"sampler": "guidance"}
    assert ("plain" in job.lanes) == (changes.get("sampler") != "guidance" and changes.get("condition") != "")
    if "plain" in job.lanes:
        assert float(job.lanes["plain"].result.log_weights.abs().max()) < 1e-12  # nothing is weighed


def test_sequences_stand_under_the_logo_with_their_weights(file, tmp_path):
    job = done(StudioRun(form_of(values(file, particles=4, populations=2)), tmp_path))
    job.free()
    seen = pictures.stage(job)
    assert seen.count("Sequence logo") == 2
    assert ">A3</text>" in seen
    assert "share of the weight" in seen
    assert f"{NATIVE[:2]}<b>" in seen  # what was kept, and what was drawn


def test_what_cannot_be_is_told_at_its_field(file, tmp_path):
    def found(**changes):
        return list(faults(values(file, **changes)))

    assert found() == []
    assert found(path="") == found(path=str(tmp_path / "none.pdb")) == found(path=str(tmp_path)) == ["path"]
    assert found(sampler="tilted") == found(sampler="any-order") == ["sampler"]
    assert (
        found(condition="vanilla") == found(condition="x") == found(condition="", sampler="guidance") == ["condition"]
    )
    assert found(weights="x") == ["weights"]
    assert list(faults(first_form()._asdict() | {"sampler": "in-order"})) == ["sampler"]
    job = StudioRun(form_of(values(file, open="99")), tmp_path)
    job.run()
    assert job.state == FAILED
    assert "there is no residue A99" in job.message


def test_a_sampler_that_works_is_proposed():
    assert sampler_for(Found(STRINGS)) == sampler_for(Found(TEXT)) == "any-order"
    assert sampler_for(Found(STRINGS, masked=False)) == "tempered"
    assert sampler_for(Found(DIGITS)) == sampler_for(Found()) == "tilted"


def test_a_sequence_is_spelled_whole():
    spell = WholeChain("MKTA", ("A", "A", "B", "B"), ((1, 3),))
    assert spell(np.array([0])) == '<p class="chain">M<b>A</b>/T<b>A</b></p>'
    assert "<b>▢</b>" in spell(np.array([20]))


def test_a_logo_has_names_and_rows():
    logo = SequenceLogo("ACDEFGHIKLMNPQRSTVWY", tuple(f"A<{k}" for k in range(60)))
    picture = logo.picture(np.zeros((2, 60), dtype=int), np.full(2, 0.5))
    assert picture.count("<g ") == 3
    assert "A&lt;59" in picture
    assert view_of(logo.described()) == logo
    assert SequenceLogo("ACGT").described() == {"kind": "logo", "alphabet": "ACGT"}
