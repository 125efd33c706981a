"""Public networks in the studio: a folder of transformers, sampled after a prompt and steered by rewards of strings."""

import shlex

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from public_nets import bert, bert_tokenizer, esm2, esm_tokenizer
from truetilt.cli.main import app
from truetilt.studio import pictures
from truetilt.studio.background import DONE
from truetilt.studio.folders import STRINGS, found_at
from truetilt.studio.form import faults, first_form
from truetilt.studio.jobs import StudioRun
from truetilt.studio.steer_choices import EXAMPLES, named_rewards, rewards_for
from truetilt.studio.steer_form import first_steer_form, steer_faults
from truetilt.studio.steer_jobs import SteerRun
from truetilt.viz.settings_in_words import run_settings

pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")

SMALL = {"particles": 6, "populations": 2, "steps": 5, "pace": "fast", "seed": 3, "beta": 1.5, "alpha": 2.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("my 'nets'")
    for name, net, words in (("text", bert(), bert_tokenizer()), ("protein", esm2(), None)):
        (root / name).mkdir()
        net.save_pretrained(root / name)
        (words or esm_tokenizer(root / name)).save_pretrained(root / name)
    (root / "mine.py").write_text("def letters(texts):\n    return [float(text.count('K')) for text in texts]\n")
    return root


def form_with(path, **changes):
    return first_form("own")._replace(path=str(path), **SMALL | changes)


def done(job):
    job.run()
    assert job.state == DONE, job.message
    return job


def test_a_folder_of_transformers_is_told_from_others(folders):
    assert found_at(folders / "text") == (STRINGS, (), (), True)

    def found(**changes):
        return list(faults(form_with(folders / "text", **changes)._asdict()))

    assert found(prompt="the film") == ["sampler"]  # nothing to tilt by
    assert found(prompt="the film", sampler="any-order") == []
    assert found(sampler="any-order") == ["prompt"]
    assert found(condition="1", sampler="any-order") == ["condition"]


@pytest.mark.parametrize("sampler", ["any-order", "tempered", "guidance"])
@pytest.mark.parametrize(("name", "prompt"), [("text", "the film"), ("protein", "MK[MASK:3]W")])
def test_its_python_gives_the_same_bits(folders, tmp_path, monkeypatch, name, prompt, sampler):
    monkeypatch.chdir(tmp_path)
    job = done(StudioRun(form_with(folders / name, prompt=prompt, sampler=sampler), tmp_path))
    first, space = job.lanes["run"].result, {}
    exec(job.python, space)
    assert torch.equal(space["result"].particles, first.particles)
    assert torch.equal(space["result"].log_weights, first.log_weights)
    letters = name == "protein"  # a logo says nothing of whole sequences
    assert ("share of the weight" in pictures.stage(job)) == letters
    assert "public network" in job.command or "samplers tilted and tempered" in job.command
    call = run_settings(first.settings, first.times.tolist()).call
    assert f"nets.model({prompt!r}" in call
    if sampler == "tempered":  # a grid of equal steps: the call is whole
        exec(call, space)
        assert torch.equal(space["result"].log_weights, first.log_weights)


def steered(folders, **changes):
    form = first_steer_form(EXAMPLES, "own")._replace(path=str(folders / "protein"), compare=False, steps=4)
    return form._replace(**{"evaluations": 3000, "calls": 120} | changes)


def test_what_reads_texts_steers_it(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "long_words" in rewards_for(STRINGS, EXAMPLES)
    assert "ink" not in rewards_for(STRINGS, EXAMPLES)
    form = steered(folders, reward="long_words")
    assert steer_faults(form._asdict(), EXAMPLES) == {}
    assert list(steer_faults(form._replace(reward="ink")._asdict(), EXAMPLES)) == ["reward"]
    job, space = done(SteerRun(form, tmp_path, EXAMPLES)), {}
    exec(job.python, space)
    assert torch.equal(space["result"].log_weights, job.result.log_weights)


def test_a_function_of_a_file_reads_strings_here_and_on_the_command_line(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"{folders / 'mine.py'}:letters"
    known = named_rewards([name])
    form = steered(folders, reward=name, strength=2.0, condition="MK")
    job = done(SteerRun(form, tmp_path, known))
    line = CliRunner().invoke(app, [*shlex.split(job.command)[1:], "--out", "out"])
    assert line.exit_code == 0, line.output
    assert torch.equal(tt.Result.load("out").log_weights, job.result.log_weights)
