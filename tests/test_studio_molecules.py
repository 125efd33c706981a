"""Molecules in the studio: a reward by name, drawn structures with the reward under each; Python and command agree."""

import shlex

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from tiny_molecules import write_tiny
from truetilt.cli.main import app
from truetilt.studio import form as forms
from truetilt.studio import molecules, pictures
from truetilt.studio.background import DONE
from truetilt.studio.form import faults, first_form, form_of
from truetilt.studio.jobs import StudioRun

pytest.importorskip("tokenizers")
pytest.importorskip("rdkit", reason="pip install 'truetilt[chem]'")


@pytest.fixture(autouse=True)
def tiny(tmp_path, monkeypatch):
    """Tiny networks in place of the embedded ones."""
    (tmp_path / "nets").mkdir()
    write_tiny(tmp_path / "nets")
    monkeypatch.setattr("truetilt.molecules.bundle.embedded", lambda name: tmp_path / "nets")


def values(**changes):
    return first_form("molecules")._asdict() | {"pace": "fast", "particles": 6, "populations": 2} | changes


def done(tmp_path, **changes):
    job = StudioRun(form_of(values(**changes)), tmp_path)
    job.run()
    assert job.state == DONE, job.message
    return job


@pytest.mark.parametrize("changes", [{}, {"condition": ""}, {"condition": "3*qed and lacks=O", "alpha": 2.0}])
def test_python_and_command_give_the_same_bits(tmp_path, monkeypatch, changes):
    monkeypatch.chdir(tmp_path)
    job = done(tmp_path, **changes)
    first, space = job.lanes["run"].result, {}
    exec(job.python, space)
    assert torch.equal(space["result"].particles, first.particles)
    assert torch.equal(space["result"].log_weights, first.log_weights)
    out = CliRunner().invoke(app, [*shlex.split(job.command)[1:], "--out", "run"])
    assert out.exit_code == 0, out.output
    again = tt.Result.load("run")
    assert torch.equal(again.particles, first.particles)
    assert torch.equal(again.log_weights, first.log_weights)
    assert ("plain" in job.lanes) == (changes.get("condition") != "")


def test_structures_are_drawn_with_their_rewards_beside_draws_without(tmp_path):
    job = done(tmp_path)
    job.free()
    seen = pictures.stage(job)
    assert "without the reward" in seen
    assert "distinct molecules" in seen
    assert "data:image/svg+xml;base64," in seen
    assert "r = " in seen
    plain = pictures.stage(done(tmp_path, condition=""))
    assert "r = " not in plain
    assert "without the reward" not in plain


def test_what_cannot_be_is_told_at_its_field(monkeypatch):
    def found(**changes):
        return list(faults(values(**changes)))

    assert found() == found(condition="") == found(condition="logp=3 and sa") == []
    assert found(condition="taste") == found(condition="qed>2") == ["condition"]
    assert found(condition="mine.py:score") == ["condition"]  # no file of the server's is run
    assert found(sampler="tilted") == found(sampler="guidance") == ["sampler"]
    monkeypatch.setattr(molecules, "has_rdkit", lambda: False)
    assert found() == ["model"]
    assert forms.what_is_there({"model": "molecules"}).kind == "molecules"
