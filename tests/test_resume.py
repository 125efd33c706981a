"""Stopped at any moment, a run goes on to the same bits; and what is no checkpoint of it is refused."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from cases import CLOCK, MASKED, cases, run, same
from problems import table
from truetilt.cli.main import app
from truetilt.core.fingerprints import fingerprint
from truetilt.core.storage import write_json
from truetilt.runtime import checkpoints as checkpointing
from truetilt.runtime.checkpoints import found

PROOF = Path(__file__).parent.parent / "proofs" / "kills.json"


class Broken(Exception):
    """What ends a run in the middle."""


def stopped(name, folder, at, **options):
    """Carry a case out until `at` steps are done, and no further."""

    def end(done, total, info):
        if done == at:
            raise Broken

    with pytest.raises(Broken):
        run(name, checkpoint=folder, callback_on_step_end=end, **options)


@pytest.mark.parametrize("name", cases())
def test_a_broken_run_goes_on_to_the_same_bits(name, tmp_path):
    whole, steps = run(name), len(cases()[name][1]) - 1
    for at in (1, 2, steps):
        folder = tmp_path / str(at)
        stopped(name, folder, at, checkpoint_every=1)
        assert len(found(folder)) == min(2, at - 1)
        seen = []
        assert same(
            run(name, checkpoint=folder, callback_on_step_end=lambda done, *_, seen=seen: seen.append(done)), whole
        )
        assert seen == list(range(at if at > 1 else 0, steps + 1))  # nothing is done twice


def test_a_finished_run_is_read_and_not_run_again(tmp_path):
    def not_again(*_):
        pytest.fail("a step was taken again")

    whole = run("clock", checkpoint=tmp_path)
    assert same(run("clock", checkpoint=tmp_path, callback_on_step_end=not_again), whole)


def test_the_steps_between_checkpoints_are_all_that_is_lost(tmp_path):
    stopped("clock", tmp_path, 6, checkpoint_every=4)
    assert [path.name for path in found(tmp_path)] == ["step-00000004"]


@pytest.mark.parametrize("part", ["log_w", "aux.log_tilt", "x"])
def test_a_checkpoint_without_one_of_its_parts_would_show(part, tmp_path, monkeypatch):
    """A wrong variant for each tensor a step reads: forgetting it changes the answer."""
    stopped("populations", tmp_path, 5, checkpoint_every=1)
    whole, read = run("populations"), checkpointing.read

    def forgetful(path, identity):
        tensors = read(path, identity)
        return tensors | {part: torch.zeros_like(tensors[part])}

    monkeypatch.setattr(checkpointing, "read", forgetful)
    assert not torch.equal(run("populations", checkpoint=tmp_path).log_weights, whole.log_weights)


def test_sigterm_finishes_the_step_saves_and_stops(tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    def ask(done, total, info):
        if done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(tt.Stopped, match=r"after step 3 of 8, which is saved in .*goes on"):
        run("clock", checkpoint=tmp_path, checkpoint_every=100, callback_on_step_end=ask)
    assert [path.name for path in found(tmp_path)] == ["step-00000003"]
    assert signal.getsignal(signal.SIGTERM) is before
    assert same(run("clock", checkpoint=tmp_path), run("clock"))


# what is refused


def spoil(path, how):
    state, facts = path / "state.safetensors", path / "state.json"
    data = bytearray(state.read_bytes())
    if how == "a flipped bit":
        data[-5] ^= 1
        state.write_bytes(data)
    elif how == "cut short":
        state.write_bytes(data[:-100])
    elif how == "no tensors":
        state.unlink()
    elif how == "no facts":
        facts.unlink()
    elif how == "broken facts":
        facts.write_text(facts.read_text()[:-20])
    elif how == "foreign facts":
        facts.write_text('{"step": 3}')
    else:
        facts.write_text(facts.read_text().replace('"version": 1,', '"version": 2,', 1))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("a flipped bit", "does not match its checksum"),
        ("cut short", "does not match its checksum"),
        ("no tensors", "cannot be read"),
        ("no facts", "cannot be read"),
        ("broken facts", "cannot be read"),
        ("foreign facts", "not a truetilt checkpoint of version 1"),
        ("another version", "not a truetilt checkpoint of version 1"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_serves(how, words, tmp_path):
    stopped("clock", tmp_path, 5, checkpoint_every=1)
    last = found(tmp_path)[-1]
    spoil(last, how)
    with pytest.raises(tt.InvalidInput, match=words):
        run("clock", checkpoint=tmp_path)
    shutil.rmtree(last)
    assert same(run("clock", checkpoint=tmp_path), run("clock"))


def other_table():
    return table(tt.Masking, 3, 3, seed=5).model()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 6}, "seed"),
        ({"particles": 38}, "particles"),
        ({"resample": tt.systematic}, "resampler"),
        ({"snapshots": 2}, "snapshots"),
        ({"fk": tt.Tempered(MASKED.model(), 4.0, 2.0)}, "model, networks"),
        ({"fk": tt.Tempered(other_table(), 3.0, 2.0)}, "in networks"),  # its settings read alike
        ({"grid": (*CLOCK[:4], 0.45, *CLOCK[5:])}, "grid"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_by_name(change, word, tmp_path):
    stopped("clock", tmp_path, 3, checkpoint_every=1)
    fk, grid, _ = cases()["clock"]
    change = dict(change)
    fk, grid = change.pop("fk", fk), change.pop("grid", grid)
    with pytest.raises(tt.InvalidInput, match=f"belongs to another run: .*{word}"):
        tt.run(fk, grid, **{"particles": 37, "seed": 5, "checkpoint": tmp_path} | change)


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_bad_distances_between_checkpoints_are_refused(every, tmp_path):
    with pytest.raises(tt.InvalidInput, match="checkpoint_every is"):
        run("clock", checkpoint=tmp_path, checkpoint_every=every)


def test_fingerprints_tell_models_apart_and_not_where_they_lie():
    made = [tt.Tilted(MASKED.model(), 4.0), tt.Tilted(MASKED.model(), 4.0), tt.Tilted(other_table(), 4.0)]
    assert fingerprint(made[0]) == fingerprint(made[1]) != fingerprint(made[2])
    nets = [torch.nn.Linear(2, 2, bias=False) for _ in range(2)]
    assert fingerprint(nets[0]) != fingerprint(nets[1])
    nets[1].load_state_dict(nets[0].state_dict())
    assert fingerprint(nets[0]) == fingerprint(nets[1])
    assert fingerprint(lambda x, a=1: x + a) != fingerprint(lambda x, a=2: x + a)
    assert fingerprint(lambda x: x.sum(-1)) != fingerprint(lambda x: x.max(-1))  # the same bytecode, another name in it
    homeless = lambda x: x.sum(-1)  # noqa: E731
    homeless.__module__ = None  # as of a function that exec made
    assert len(fingerprint(homeless)) == len(fingerprint(made[0]))
    assert fingerprint(lambda x: [v + 1 for v in x]) != fingerprint(lambda x: [v + 2 for v in x])
    assert fingerprint("cpu time") != fingerprint("cpu") == fingerprint(torch.device("cpu"))
    for strange in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):  # of any layout, and without numbers
        assert fingerprint(strange) == fingerprint(strange.clone()) != fingerprint(torch.ones(4))


# kills


def work(folder):
    """A run that writes much and often: about as long at its checkpoints as at its steps."""
    result = tt.run(tt.Tilted(MASKED.model(), 4.0), CLOCK, particles=20_000, checkpoint=folder, checkpoint_every=1)
    result.save(folder / "result")


def child(folder):
    """`work` in a process of its own; returns its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work(folder)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid


def kill_and_resume(folder, delay):
    """Kill after so many seconds, see what lies there, carry on to the end; whether it was writing when killed."""
    pid = child(folder)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    died = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    writing, reached = any(folder.glob(".*.part")), [int(path.name[5:]) for path in found(folder)]
    assert os.waitstatus_to_exitcode(os.waitpid(child(folder), 0)[1]) == 0
    return {"delay": delay, "killed": died, "writing": writing, "reached": max(reached, default=None)}


def kills(tmp_path, count, seed):
    chance = random.Random(seed)
    begin = time.perf_counter()
    work(tmp_path / "whole")
    took = time.perf_counter() - begin
    whole, rows = tt.Result.load(tmp_path / "whole" / "result"), []
    for number in range(count):
        folder = tmp_path / str(number)
        rows.append(kill_and_resume(folder, chance.uniform(0.0, took)))
        rows[-1]["same bits"] = same(tt.Result.load(folder / "result"), whole)
        shutil.rmtree(folder)
    return rows


def test_three_kills_resume_to_the_same_bits(tmp_path):
    assert all(row["same bits"] for row in kills(tmp_path, 3, 0))


@pytest.mark.prove
def test_fifty_kills_resume_to_the_same_bits(tmp_path):
    """Kills that came after the run had ended are replaced, so that 50 count."""
    rows, seed = [], 1
    while len(rows) < 50:
        rows += [row for row in kills(tmp_path, 10, seed) if row["killed"]]
        shutil.rmtree(tmp_path / "whole")
        seed += 1
    rows = rows[:50]
    command = "python -m pytest -m prove tests/test_resume.py"
    counts = {"kills": len(rows), "while a checkpoint was being written": sum(row["writing"] for row in rows)}
    write_json(PROOF, {"command": command} | counts | {"rows": rows})
    assert all(row["same bits"] for row in rows)


# the command line

TABLE = {"p0": [[2, 3, 4], [3, 1, 1], [1, 1, 1]], "likelihood": [[0.1, 0.5, 0.9], [0.4, 0.1, 0.3], [0.2, 0, 0.7]]}


def until(ready, seconds=60):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_command_stops_on_sigterm_and_resumes(tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    asked = ["sample", str(tmp_path / "table.json"), "--alpha", "3", "--particles", "2000", "--steps", "200"]
    assert CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "whole")]).exit_code == 0
    out = tmp_path / "out"
    words = [sys.executable, "-m", "truetilt", *asked, "--out", str(out), "--checkpoint-every", "5"]
    begun = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    until(lambda: found(out / "checkpoints"))
    begun.terminate()
    message = begun.communicate()[1]
    assert begun.returncode == 143, message
    assert "stopped after step" in message
    assert "truetilt resume" in message
    assert not (out / "result.json").exists()
    done = CliRunner().invoke(app, ["resume", str(out), "--json"])
    assert done.exit_code == 0, done.stderr
    assert same(tt.Result.load(out), tt.Result.load(tmp_path / "whole"))
    assert not (out / "checkpoints").exists()
    again = CliRunner().invoke(app, ["resume", str(out)])
    assert again.exit_code == 2
    assert "holds no stopped run" in again.stderr
