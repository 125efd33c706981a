"""What a user gives to training: configurations and commands, and that what cannot work is refused before a step."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import truetilt as tt
from stripes import NET, settings
from truetilt.training import loop
from truetilt.training.__main__ import main
from truetilt.training.config import config_of, read_config
from truetilt.training.tasks import build_task


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "sharpen"}, "task is 'sharpen'"),
        ({"stepz": 3}, "unknown keys: stepz"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"steps": True}, "steps is True"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"bf16": "yes"}, "bf16 is 'yes'"),
        ({"net": 3}, "net is 3"),
        ({"share": 0}, "share is 0"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"label_dropout": 0.1}, "label_dropout"),
        ({"augment": "shift"}, "augment is shift"),
        ({"max_seconds": -1}, "max_seconds is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"clip": float("nan")}, "clip is nan"),
        ({"process": "gaussian"}, "process is 'gaussian'"),
    ],
)
def test_a_wrong_configuration_is_refused(changes, words):
    with pytest.raises(tt.InvalidInput, match=words):
        config_of({"task": "unconditional", "net": NET, "steps": 1} | changes)


def test_configurations_come_from_yaml_and_json(tmp_path):
    (tmp_path / "a.yaml").write_text("task: unconditional\nsteps: 3\nlr: 1e-3\nnet: {channels: [8, 16]}\n")
    config = read_config(tmp_path / "a.yaml", steps=5)
    assert (config.steps, config.lr, config.net) == (5, 1e-3, {"channels": (8, 16)})
    for name, text, words in (
        ("b.json", "{", "no JSON"),
        ("b.yaml", "a: [", "no YAML"),
        ("c.yaml", "- 1", "holds list"),
        ("d.yaml", "task: deft", "lacks net, steps"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(tt.InvalidInput, match=words):
            read_config(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"net": {**NET, "side": 5}}, "4 pixels wide, the network 5"),
        ({"net": {**NET, "vocabulary": 3}}, "grey levels are 0 to 2"),
        ({"net": {**NET, "classes": 2}}, "the label 2"),
        ({"net": {**NET, "width": 2}}, "width"),
        ({"task": "deft"}, "base"),
        ({"task": "deft", "base": "/nowhere/at/all"}, "nowhere"),
        ({"data": "/nowhere"}, "no folder"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_step(changes, words, data, tmp_path):
    with pytest.raises(tt.InvalidInput, match=words):
        loop.train(settings(**{"data": data, **changes}), tmp_path)


def test_missing_test_digits_show_before_a_step(data, tmp_path):
    for path in data.glob("train-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(tt.InvalidInput, match="t10k-images"):
        loop.train(settings(tmp_path), tmp_path / "run")


def test_a_base_of_another_grid_is_refused(data, base, tmp_path):
    with pytest.raises(tt.InvalidInput, match="vocabulary 4, the guide 5"):
        loop.train(settings(data, base, task="deft", net={**NET, "vocabulary": 5}), tmp_path)


@pytest.mark.parametrize("name", ["unet", "deft", "potential", "judge"])
def test_the_committed_configurations_are_whole(name):
    config = read_config(Path(__file__).parents[1] / f"configs/mnist/{name}.yaml")
    assert config.max_seconds
    if config.task != "deft":
        assert build_task(config).net.config.side == 28


@pytest.fixture
def config_file(data, tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"task": "classifier", "net": NET, "steps": 4, "batch": 4}))
    return path


def test_training_without_typer(config_file, data, tmp_path, capsys):
    arguments = [str(config_file), "--data", str(data), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--steps", "2"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["steps"] == 2
    assert "step 2: loss" in said.err
    assert main(arguments) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([str(config_file)]) == 2
    assert "--data" in capsys.readouterr().err


def test_the_time_to_fit_plans_the_steps_once(config_file, data, tmp_path, capsys):
    arguments = [str(config_file), "--data", str(data), "--out", str(tmp_path / "run"), "--fit-seconds", "0.05"]
    assert main(arguments) == 0
    steps = json.loads(capsys.readouterr().out)["planned_steps"]
    assert main([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["planned_steps"] == steps


def test_the_command_trains_and_refuses(config_file, data, tmp_path):
    from truetilt.cli.main import app

    arguments = ["train", "classifier", "--config", str(config_file), "--data", str(data), "--out", str(tmp_path / "r")]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["metrics"]["accuracy"] >= 0
    assert (tmp_path / "r/model/card.json").exists()
    assert json.loads((tmp_path / "r/result.json").read_text()) == json.loads(done.stdout)
    assert (tmp_path / "r/figure.png").read_bytes()[:4] == b"\x89PNG"
    again = CliRunner().invoke(app, arguments)
    assert (again.exit_code, "--resume" in again.output) == (2, True)
    other = CliRunner().invoke(app, ["train", "deft", *arguments[2:]])
    assert (other.exit_code, "is for the task classifier" in other.output) == (2, True)


def test_help_of_training_answers_without_torch():
    code = (
        "import sys; from truetilt.cli.main import app; from typer.testing import CliRunner; "
        "r = CliRunner().invoke(app, ['train', '--help']); print(r.exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False"]
