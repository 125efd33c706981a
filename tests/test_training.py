"""Training: every task runs from files to a saved network, and a run that was stopped goes on as if it had not been."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import truetilt as tt
from stripes import NET, SIDE, TASKS, V, settings
from truetilt.models.classifier import Classifier
from truetilt.models.unet import UNet
from truetilt.runtime.checkpoints import found as found_checkpoints
from truetilt.training import loop
from truetilt.training.checkpoints import load_checkpoint
from truetilt.training.evaluation import evaluate
from truetilt.training.journal import Journal, read_losses
from truetilt.training.runs import TrainingRun, fresh
from truetilt.training.tasks import build_task


@pytest.mark.parametrize("task", TASKS)
def test_every_task_goes_from_files_to_a_network_and_its_card(task, data, base, tmp_path):
    config = settings(data, base, task=task, label_dropout=0.1 if task == "conditional" else 0.0)
    heard = []
    card = loop.train(config, tmp_path, report=lambda step, loss: heard.append((step, loss)))
    kind = Classifier if task in ("potential", "classifier") else UNet
    net = kind.from_pretrained(tmp_path / "model")
    assert net.config.side == SIDE
    assert [step for step, _ in heard] == [3, 6, 8]
    assert [line["loss"] for line in read_losses(tmp_path)] == [loss for _, loss in heard]
    assert card == json.loads((tmp_path / "model/card.json").read_text())
    assert (card["steps"], card["data"]["images"], card["test_images"]) == (8, 50, 30)
    wanted = {
        "unconditional": {"bound"},
        "conditional": {"bound", "conditional_bound"},
        "deft": {"conditional_bound"},
        "potential": {"accuracy_t0", "cross_entropy_t0.9"},
        "classifier": {"accuracy", "cross_entropy"},
    }[task]
    assert wanted <= card["metrics"].keys()
    assert card["training_loss"] == heard[-1][1]


def test_the_uniform_process_trains_too(data, tmp_path):
    config = settings(data, process="uniform", steps=60, batch=16)
    run = TrainingRun.prepare(config, tmp_path)
    before = evaluate(run.task, run.train)["bound"]
    assert loop.train(config, tmp_path)["metrics"]["bound"] < 0.7 * before


def test_a_tiny_network_learns_what_there_is_to_learn(data, tmp_path):
    """Half the pixels say the class (or follow from one another), half are coins: at best (8 log 2 + log 3) / 16."""
    card = loop.train(settings(data, steps=250, batch=32, log_every=50, checkpoint_every=250), tmp_path)
    best = (8 * np.log(2) + np.log(3)) / 16
    assert best - 0.15 < card["metrics"]["bound"] < best + 0.2 < np.log(V) - 0.5


def test_a_judge_learns_the_classes(data, tmp_path):
    config = settings(data, task="classifier", steps=60, batch=16, augment="shift", max_shift=1)
    assert loop.train(config, tmp_path)["metrics"]["accuracy"] == 1.0


class Stopped(Exception):
    pass


def stop_at(step):
    def report(reached, loss):
        if reached >= step:
            raise Stopped

    return report


def outcome(folder):
    """The loss curve, the last checkpoint and the network, all bits of them."""
    losses = [(line["step"], line["loss"], line["lr"]) for line in read_losses(folder)]
    tensors = load_file(found_checkpoints(folder / "checkpoints")[-1] / "state.safetensors")
    return losses, tensors, load_file(folder / "model/model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stop", [3, 6])
def test_a_stopped_run_goes_on_to_the_bit(task, stop, data, base, tmp_path):
    changes = {"label_dropout": 0.3} if task == "conditional" else {"augment": "shift"} if task == "classifier" else {}
    config = settings(data, base, task=task, **changes)
    loop.train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        loop.train(config, tmp_path / "broken", report=stop_at(stop))
    loop.train(config, tmp_path / "broken", resume=True)
    (curve, state, net), (curve_again, state_again, net_again) = map(outcome, (tmp_path / "whole", tmp_path / "broken"))
    assert curve == curve_again
    assert same(state, state_again)
    assert same(net, net_again)


@pytest.mark.parametrize("lost", ["exp_avg", "ema", "loss_sum"])
def test_wrong_a_resumption_that_forgets_something_is_seen(lost, data, tmp_path, monkeypatch):
    config = settings(data, log_every=8)
    loop.train(config, tmp_path / "whole")

    def forgetful(path, learner, fingerprint):
        progress = load_checkpoint(path, learner, fingerprint)
        if lost == "exp_avg":
            for state in learner.optimizer.state.values():
                state["exp_avg"].zero_()
        for tensor in learner.ema.values() if lost == "ema" else [learner.loss_sum] if lost == "loss_sum" else []:
            tensor.zero_()
        return progress

    run = TrainingRun.prepare(replace(config, steps=8), tmp_path / "broken")
    monkeypatch.setattr("truetilt.training.runs.load_checkpoint", forgetful)
    monkeypatch.setattr(loop, "save_checkpoint", _save_then_stop(loop.save_checkpoint))
    with pytest.raises(Stopped):
        loop.train(config, tmp_path / "broken")
    monkeypatch.undo()
    monkeypatch.setattr("truetilt.training.runs.load_checkpoint", forgetful)
    loop.train(config, tmp_path / "broken", resume=True)
    whole, broken = outcome(tmp_path / "whole"), outcome(tmp_path / "broken")
    assert run.checkpoints.is_dir()
    assert whole[0] != broken[0] or not same(whole[1], broken[1])


def _save_then_stop(save):
    def stopping(*arguments):
        save(*arguments)
        raise Stopped

    return stopping


@pytest.mark.prove
def test_a_run_killed_outright_goes_on_to_the_bit(data, tmp_path):
    """SIGKILL at three moments, resumed each time, against a run that nobody touched."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "unconditional", "net": NET, "steps": 600, "batch": 8, "log_every": 20}
                                 | {"checkpoint_every": 50, "data": str(data)}))  # fmt: skip

    def command(name):
        return [sys.executable, "-m", "truetilt.training", str(config), "--out", str(tmp_path / name), "--resume"]

    subprocess.run(command("whole"), check=True, capture_output=True)
    killed = 0
    for wait in (1, 4, 7):
        process = subprocess.Popen(command("broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(read_losses(tmp_path / "broken")) < 3 * wait:
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 2
    subprocess.run(command("broken"), check=True, capture_output=True)
    whole, broken = outcome(tmp_path / "whole"), outcome(tmp_path / "broken")
    assert whole[0] == broken[0]
    assert same(whole[1], broken[1])
    assert same(whole[2], broken[2])


def test_the_last_two_checkpoints_are_kept_and_nothing_half_written(data, tmp_path):
    loop.train(settings(data), tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000006", "step-00000008"]
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".bin", ".pkl") or ".part" in path.name]


def test_a_run_is_not_overwritten_nor_resumed_as_another(data, base, tmp_path):
    config = settings(data)
    loop.train(config, tmp_path)
    with pytest.raises(tt.InvalidInput, match="--resume"):
        loop.train(config, tmp_path)
    with pytest.raises(tt.InvalidInput, match="another configuration"):
        loop.train(replace(config, lr=0.5), tmp_path, resume=True)
    assert loop.train(replace(config, log_every=1), tmp_path, resume=True)["steps"] == 8


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    config = settings(data)
    loop.train(config, tmp_path)
    file = found_checkpoints(tmp_path / "checkpoints")[-1] / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(tt.InvalidInput, match="step-00000008 cannot be read"):
        loop.train(config, tmp_path, resume=True)


def test_a_loss_that_is_not_finite_stops_the_run(data, tmp_path, monkeypatch):
    run = TrainingRun.prepare(settings(data), tmp_path)
    spoiled = replace(run, task=replace(run.task, loss=lambda net, batch: run.task.loss(net, batch) * float("nan")))
    monkeypatch.setattr(TrainingRun, "prepare", lambda *_: spoiled)
    with pytest.raises(tt.TruetiltError, match="loss is nan after step 2"):
        loop.train(settings(data), tmp_path)
    assert found_checkpoints(tmp_path / "checkpoints") == []


def test_the_wall_clock_stops_a_run_and_the_network_is_saved(data, tmp_path):
    card = loop.train(settings(data, steps=10**6, max_seconds=0.2), tmp_path)
    assert card["steps"] < 10**6 == card["planned_steps"]
    assert UNet.from_pretrained(tmp_path / "model")


def test_steps_are_planned_from_a_trial(data, tmp_path):
    run = TrainingRun.prepare(settings(data), tmp_path)
    before = {name: tensor.clone() for name, tensor in run.task.net.state_dict().items()}
    one, two = (loop.steps_within(run, seconds, trial=4) for seconds in (1e-9, 5.0))
    assert one == 1 < two
    assert same(before, run.task.net.state_dict())


def test_the_running_mean_is_a_mean_and_what_is_saved(data, tmp_path):
    config = settings(data, ema=0.0)
    loop.train(config, tmp_path)
    state = load_file(found_checkpoints(tmp_path / "checkpoints")[-1] / "state.safetensors")
    saved = load_file(tmp_path / "model/model.safetensors")
    for name, tensor in saved.items():
        assert tensor.equal(state[f"ema.{name}"])
        assert tensor.allclose(state[f"net.{name}"], atol=1e-7)  # no memory: the weights themselves


def test_the_learning_rate_rises_then_falls_to_nothing(data):
    config = settings(data, steps=100, warmup=9, lr=1.0)
    rates = [loop.learning_rate(config, step) for step in range(101)]
    assert rates[:10] == pytest.approx([0.1 * (k + 1) for k in range(10)])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[100] == pytest.approx(0.0, abs=1e-12)
    constant = replace(config, schedule="constant")
    assert loop.learning_rate(constant, 99) == 1.0


def test_an_untrained_network_has_the_bound_of_uniform_pixels(data):
    """Zero logits: every masked pixel costs log V, so the bound is log V; 5 standard errors, a false alarm in 1e6."""
    task = build_task(settings(data))
    digits = TrainingRun.prepare(settings(data), data).train
    found = evaluate(task, digits, seed=1, passes=40)
    assert abs(found["bound"] - np.log(V)) < 5 * found["bound_stderr"] < 0.2


def test_a_batch_is_a_function_of_seed_and_step(data):
    run = TrainingRun.prepare(settings(data, task="conditional", label_dropout=0.5), data)
    one, again = run.batches().at(5), run.batches().at(5)
    assert one.noised.x.equal(again.noised.x)
    assert one.told.equal(again.told)
    assert not one.noised.x.equal(run.batches().at(6).noised.x)
    assert not one.noised.x.equal(replace(run.batches(), seed=1).at(5).noised.x)


def test_a_fresh_learner_and_the_global_generator_do_not_meet(data):
    before = torch.get_rng_state()
    fresh(TrainingRun.prepare(settings(data), data))
    assert torch.get_rng_state().equal(before)


def test_the_journal_forgets_what_will_be_written_again(tmp_path):
    journal = Journal(tmp_path)
    for step in (1, 2, 3):
        journal.write(step, loss=float(step))
    journal.close()
    with open(tmp_path / "loss.jsonl", "a") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    Journal(tmp_path, 2).close()
    assert [line["step"] for line in read_losses(tmp_path)] == [1, 2]


def test_the_journal_tells_tensorboard_where_there_is_one(tmp_path, monkeypatch):
    told = []

    class Writer:
        def __init__(self, folder, purge_step):
            told.append((folder, purge_step))

        def add_scalar(self, *what):
            told.append(what)

        def close(self):
            told.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    journal = Journal(tmp_path, 4)
    journal.write(5, loss=0.5, lr=0.1)
    journal.close()
    assert told == [(str(tmp_path / "tensorboard"), 5), ("loss", 0.5, 5), ("lr", 0.1, 5), "closed"]


def test_a_run_out_of_time_stays_where_it_is_when_resumed(data, tmp_path):
    config = settings(data, steps=10**6, max_seconds=0.2)
    first = loop.train(config, tmp_path)
    again = loop.train(config, tmp_path, resume=True)
    assert again["steps"] == first["steps"]


def test_a_device_that_is_not_there_is_named(data, tmp_path):
    with pytest.raises(tt.InvalidInput, match="cannot compute on cuda:99"):
        loop.train(settings(data), tmp_path, device="cuda:99")
