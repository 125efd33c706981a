"""Files are whole or absent, plain and bounded; what belongs to others stays, and a full disk is one line."""

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import truetilt as tt
from problems import table
from truetilt.__main__ import _interrupted
from truetilt.cli.main import app
from truetilt.commands.resume import read_command
from truetilt.commands.table_files import read_table
from truetilt.core import storage
from truetilt.core.errors import FolderTaken
from truetilt.core.storage import remove_written, sha256_of, write_folder, write_json, write_text, write_with
from truetilt.models.pretrained import check_finite, config_of
from truetilt.models.text_bundle import Facts
from truetilt.models.unet import UNet, UNetConfig
from truetilt.runtime.memory import RunSizes, check_fits, check_run, told_bytes
from truetilt.studio.folders import Found, found_at
from truetilt.studio.form import faults, first_form
from truetilt.training.checkpoints import load_checkpoint
from truetilt.training.config import parse_file
from truetilt.training.corpus import Corpus

SMALL = {"p0": [1, 2, 3], "likelihood": [0.2, 0.5, 0.9]}


def run(*words):
    return CliRunner().invoke(app, list(words))


def small_run(**options):
    model = table(tt.Masking, 3, 2).model()
    return tt.sample(model, 2.0, num_inference_steps=4, particles=6, populations=2, snapshots=2, **options)


@pytest.fixture
def small(tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(SMALL))
    return tmp_path / "table.json"


def in_place_of(path, what):
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "sparse":
        with open(path, "wb") as file:
            file.truncate(10**13)
    else:
        path.symlink_to(what if what.startswith("/") else path.name)
    return path


# writing


@pytest.mark.parametrize("what", ["pipe", "folder", "/dev/null", "/dev/fd/{pipe}"])
def test_a_device_a_pipe_or_a_folder_is_not_replaced(what, tmp_path):
    path = in_place_of(tmp_path / "out", what.format(pipe=os.pipe()[1]))
    kind = os.stat(path).st_mode
    with pytest.raises(tt.InvalidInput, match=r"is a .*plain file"):
        write_json(path, {})
    assert os.stat(path).st_mode == kind
    assert [found.name for found in tmp_path.iterdir()] == ["out"]


def test_a_loop_of_links_is_no_name_of_a_file(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(tt.InvalidInput, match="is no name of a file"):
        tt.Reward(len, cache_file=tmp_path / "loop")


def test_what_a_link_leads_to_is_written_and_the_link_stays(tmp_path):
    (tmp_path / "link").symlink_to("there.json")
    write_json(tmp_path / "link", [1])
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "there.json").read_text()) == [1]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("No space left")])
def test_a_full_disk_names_the_file_and_leaves_what_was_there(error, tmp_path):
    write_json(tmp_path / "a.json", 1)

    def full(path):
        path.write_text("half")
        raise error

    with pytest.raises(OSError, match="No space left") as told:
        write_with(tmp_path / "a.json", full)
    assert told.value.filename == str(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_a_killed_process_left_of_a_file_goes_when_it_is_written_again(tmp_path, monkeypatch):
    """If it is an hour old: a younger one may be under way. Other hidden files of the same beginning stay."""

    def killed(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage.Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_with(tmp_path / "figure.png", killed)
    (left,) = (path.name for path in tmp_path.iterdir())
    own = [".figure-original.png", ".figure-a.part.png"]
    for name in own:
        (tmp_path / name).touch()
    write_with(tmp_path / "figure.png", lambda path: path.write_text("whole"))
    assert {path.name for path in tmp_path.iterdir()} == {left, *own, "figure.png"}
    for name in [left, *own]:
        os.utime(tmp_path / name, (time.time() - 4000,) * 2)
    write_with(tmp_path / "figure.png", lambda path: path.write_text("whole"))
    assert {path.name for path in tmp_path.iterdir()} == {*own, "figure.png"}


def test_sigterm_leaves_nothing_half_written(tmp_path, capfd):
    """Without a handler it ended the process at once, and left .figure-....png."""

    def half(temporary):
        temporary.write_text("half")
        _interrupted(signal.SIGTERM, None)

    with pytest.raises(SystemExit) as caught:
        write_with(tmp_path / "figure.png", half)
    assert caught.value.code == 143
    assert capfd.readouterr().err == "error: stopped\n"
    assert list(tmp_path.iterdir()) == []


def test_sigterm_ends_a_command_in_one_line(small):
    words = [sys.executable, "-m", "truetilt", "sample", str(small), "--steps", "5000", "--particles", "5000"]
    started = subprocess.Popen([*words, "--out", "out"], stderr=subprocess.PIPE, cwd=small.parent, text=True)
    while started.poll() is None and not heeds(started.pid, signal.SIGTERM):
        time.sleep(0.01)
    time.sleep(1.0)
    started.terminate()
    assert started.communicate(timeout=60)[1] == "error: stopped\n"
    assert started.returncode == 143
    assert not (small.parent / "out").exists()


def test_a_folder_that_is_removed_is_gone_at_once(tmp_path, monkeypatch):
    (tmp_path / "stages" / "0-run").mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(storage.shutil, "rmtree", lambda *_, **__: None)  # killed before it
        storage.remove_folder(tmp_path / "stages")
    assert not (tmp_path / "stages").exists()
    (tmp_path / "stages").mkdir()
    storage.remove_folder(tmp_path / "stages")
    storage.remove_folder(tmp_path / "stages")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_for_one_and_leaves_nothing(tmp_path):
    with storage.owned(tmp_path / "a"):
        with pytest.raises(FolderTaken, match=rf"a is in use by process {os.getpid()} on"):
            storage.owned(tmp_path / "a").__enter__()
        assert (tmp_path / "a").exists()
    assert list(tmp_path.iterdir()) == []
    with storage.owned(tmp_path / "a"):
        (tmp_path / "a" / "result").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["result"]


def test_a_full_disk_is_one_line_of_a_command(small, monkeypatch):
    def full(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("truetilt.runtime.result_files.save_file", full)
    told = run("sample", str(small), "--steps", "2", "--particles", "3", "--out", str(small.parent / "out"))
    assert told.exit_code == 1
    assert "No space left" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1


def test_nan_is_refused_in_json(tmp_path):
    with pytest.raises(tt.InvalidInput, match="NaN"):
        write_json(tmp_path / "a.json", float("nan"))
    assert run("sample", "x.json", "--alpha", "nan", "--checkpoint-every", "2", "--out", str(tmp_path)).exit_code == 2


def test_a_folder_is_replaced_whole_and_what_others_left_stays(tmp_path):
    (tmp_path / ".mine.part").mkdir()
    target = tmp_path / "step"
    write_folder(target, lambda folder: write_text(folder / "a", "old"))
    (target / "notes.txt").write_text("mine")
    write_folder(target, lambda folder: write_text(folder / "a", "new"))
    assert (target / "a").read_text() == "new"
    assert (target / "notes.txt").read_text() == "mine"

    def broken(folder):
        write_text(folder / "a", "half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(target, broken)
    assert (target / "a").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "step"]


# reading


@pytest.mark.parametrize("what", ["pipe", "folder", "/dev/zero", "sparse", "loop"])
@pytest.mark.timeout(30)
def test_only_plain_files_of_bounded_size_are_read(what, tmp_path):
    path = in_place_of(tmp_path / "table.json", what)
    with pytest.raises((tt.InvalidInput, OSError)):
        storage.read_bytes(path)
    with pytest.raises(tt.InvalidInput, match=r"table\.json"):
        read_table(path, "masking", 1e-3)
    with pytest.raises(tt.InvalidInput):
        parse_file(tmp_path / "table.json")
    assert run("sample", str(path), "--out", str(tmp_path / "out")).exit_code == 2


@pytest.mark.parametrize("what", ["pipe", "/dev/zero"])
def test_the_studio_finds_nothing_at_a_pipe_or_a_device(what, tmp_path):
    path = in_place_of(tmp_path / "net", what)
    assert found_at(path) == Found()
    assert "path" in faults(first_form("own")._asdict() | {"path": str(path)})


def test_the_studio_refuses_numbers_and_classes_of_any_size(tmp_path):
    values = first_form("nine")._asdict()
    for name in ("alpha", "particles", "seed"):
        assert name in faults(values | {name: 10**400})
        assert name in faults(values | {name: float("nan")})
    assert "model" in faults(values | {"model": ["nine"]})
    (tmp_path / "config.json").write_text(json.dumps({"classes": 10**15, "architecture": "sedd"}))
    assert len(found_at(tmp_path).classes) <= 10_000


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 500 + "1" + "}" * 500])
def test_deep_nesting_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match="deep"):
        storage.parse_json(text)
    for name in ("table.json", "table.yaml"):
        (tmp_path / name).write_text(text)
        with pytest.raises(tt.InvalidInput):
            parse_file(tmp_path / name)


def test_long_numbers_are_floats():
    assert storage.parse_json("[9223372036854775807, 1]") == [2**63 - 1, 1]
    assert storage.parse_json("9223372036854775808") == 2.0**63
    assert storage.parse_json("9" * 5000) == float("inf")
    with pytest.raises(tt.InvalidInput, match="NaN or infinite"):
        tt.Table(tt.Masking(2), torch.tensor([storage.parse_json("9" * 400), 1.0]), torch.ones(2))


def test_what_unpacks_to_too_much_is_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(10**6)))
    assert len(storage.read_unpacked(tmp_path / "a.gz")) == 10**6
    with pytest.raises(tt.InvalidInput, match="unpacks to more"):
        storage.read_unpacked(tmp_path / "a.gz", 10**5)


def test_aliases_in_yaml_are_refused(tmp_path):
    lines = ["a0: &a0 [x]"] + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 30)]
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    with pytest.raises(tt.InvalidInput, match="aliases"):
        parse_file(tmp_path / "laughs.yaml")


# sizes


def test_sizes_that_cannot_fit_are_refused_by_name():
    with pytest.raises(tt.InvalidInput, match=r"a cube would take more than 1,000 TiB"):
        check_fits(10**40, "a cube")
    with pytest.raises(tt.InvalidInput, match="9,223,372,036,854,775,807 particles"):
        check_run(RunSizes(2**63 - 1, 1, 10), 2, 0)
    with pytest.raises(tt.InvalidInput, match="steps"):
        check_run(RunSizes(1, 1, 10**20), 2, 0)
    check_run(RunSizes(1000, 1, 100), 64, 8)
    assert told_bytes(3 << 30) == "3 GiB"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "sizes", [{"blocks": 10**7}, {"channels": [10**6]}, {"vocabulary": 2**62}, {"condition": 10**9}]
)
def test_a_net_that_cannot_fit_is_refused_before_it_is_built(sizes):
    with pytest.raises(tt.InvalidInput, match=r"blocks is 10,000,000|would take"):
        UNet(config_of(UNetConfig, sizes, "net"))
    words = {"hidden" if name == "channels" else name: size for name, size in sizes.items()}
    words = {name: size[0] if isinstance(size, list) else size for name, size in words.items()} | {"heads": 1}
    for kind, net in ((tt.SEDDConfig, tt.SEDD), (tt.TextClassifierConfig, tt.TextClassifier)):
        with pytest.raises(tt.InvalidInput, match=r"blocks is 10,000,000|would take"):
            net(kind(**words))


def test_a_table_whose_noised_space_cannot_fit_is_refused(tmp_path):
    cube = torch.ones((2,) * 16).tolist()
    (tmp_path / "cube.json").write_text(json.dumps({"p0": cube, "likelihood": cube}))
    import truetilt.runtime.memory as memory

    before, memory._available = memory._available, lambda: 2**28
    try:
        with pytest.raises(tt.InvalidInput, match=r"3\^16 states would take"):
            read_table(tmp_path / "cube.json", "masking", 1e-3)
    finally:
        memory._available = before


# saved results and checkpoints


def reseal(folder, header, content, change):
    """Change the tensors of a folder, and the checksum with them."""
    tensors = change(load_file(folder / content))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / content)
    told = json.loads((folder / header).read_text())
    (folder / header).write_text(json.dumps(told | {"sha256": sha256_of(folder / content)}))


RESULT = {
    "a name too many": lambda found: found | {"extra": torch.zeros(1)},
    "one missing": lambda found: {name: tensor for name, tensor in found.items() if name != "ess"},
    "another shape": lambda found: found | {"log_weights": found["log_weights"][:, :3].clone()},
    "another kind": lambda found: found | {"log_weights": found["log_weights"].float()},
    "strangers for ancestors": lambda found: found | {"ancestors": found["ancestors"] + 100},
    "NaN": lambda found: found | {"log_weights": found["log_weights"] * float("nan")},
    "no particles": lambda found: found | {"particles": found["particles"][:0]},
    "snapshots of no step": lambda found: found | {"snapshot_steps": found["snapshot_steps"] + 50},
}


@pytest.mark.parametrize("how", RESULT)
def test_a_saved_result_is_checked_beyond_its_checksum(how, tmp_path):
    small_run().save(tmp_path)
    reseal(tmp_path, "particles.json", "particles.safetensors", RESULT[how])
    with pytest.raises(tt.InvalidInput, match=r"particles\.safetensors"):
        tt.Result.load(tmp_path)
    assert run("report", str(tmp_path)).exit_code == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "settings",
    [{"populations": 10**9, "seed": 0, "first_population": 0}, {"united": 3}, {"united": [[]]}, 7, {"seed": "x"}],
)
def test_settings_that_no_run_has_are_refused(settings, tmp_path):
    small_run().save(tmp_path)
    told = json.loads((tmp_path / "particles.json").read_text())
    (tmp_path / "particles.json").write_text(json.dumps(told | {"settings": settings}))
    assert run("report", str(tmp_path)).exit_code == 2


def test_half_characters_in_a_title_are_written_as_question_marks(tmp_path):
    small_run().save(tmp_path)
    told = run("report", str(tmp_path), "--title", "a\udcff")
    assert told.exit_code == 0
    assert "<title>a?" in (tmp_path / "report.html").read_text()


CHECKPOINT = {
    "one missing": lambda found: {name: tensor for name, tensor in found.items() if name != "ess"},
    "a stranger": lambda found: found | {"kept.3.x": found["x"].clone()},
    "fewer particles": lambda found: found | {"x": found["x"][:, :3].clone()},
    "other times": lambda found: found | {"times": found["times"] * 0.5},
    "strangers for ancestors": lambda found: found | {"ancestors": found["ancestors"] + 100},
    "weights of NaN": lambda found: found | {"log_w": found["log_w"] * float("nan")},
}


@pytest.mark.parametrize("how", CHECKPOINT)
def test_a_checkpoint_is_checked_beyond_its_checksum(how, tmp_path):
    def stop(done, total, info):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(checkpoint=tmp_path, checkpoint_every=1, callback_on_step_end=stop)
    reseal(tmp_path / "step-00000002", "state.json", "state.safetensors", CHECKPOINT[how])
    with pytest.raises(tt.InvalidInput, match="remove it to go on from the one before"):
        small_run(checkpoint=tmp_path)


def test_a_training_checkpoint_with_other_shapes_changes_nothing(tmp_path):
    from truetilt.training.checkpoints import Learner, TrainingProgress, save_checkpoint

    net = torch.nn.Linear(2, 2)
    learner = Learner(
        net, net.state_dict(), {}, torch.optim.AdamW(net.parameters()), torch.zeros((), dtype=torch.float64)
    )
    net(torch.ones(1, 2)).sum().backward()
    learner.optimizer.step()
    path = save_checkpoint(tmp_path, learner, TrainingProgress(3), "f")
    tensors = load_file(path / "state.safetensors")
    save_file(tensors | {"net.bias": torch.zeros(1), "net.weight": torch.zeros(2, 2)}, path / "state.safetensors")
    before = net.weight.detach().clone()
    with pytest.raises(tt.InvalidInput, match="does not fit"):
        load_checkpoint(path, learner, "f")
    assert torch.equal(net.weight, before)


# stopped runs


def stopped(small, out, seed):
    """A run that was killed after some steps."""
    from truetilt.commands import resume as resuming
    from truetilt.commands.request import SampleRequest, TableNoise

    reached = 0

    def advance(done):
        nonlocal reached
        reached += done
        if reached == 5:
            raise KeyboardInterrupt

    request = SampleRequest(None, 2.0, None, 8, 1, 10, seed, "cpu")
    with pytest.raises(KeyboardInterrupt):
        resuming.sample_or_resume(resuming.SampleCommand(str(small), request, TableNoise(), 2), out, advance)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "options", [("--seed", "4"), ("--seed", "3", "--alpha", "nan"), ("--seed", "3", "--steps", "0")]
)
def test_a_refused_command_leaves_the_stopped_run_as_it_was(options, small, tmp_path):
    out = tmp_path / "out"
    stopped(small, out, 3)
    before = contents(out)
    sizes = ("--particles", "8", "--steps", "10", "--alpha", "2")
    told = run("sample", str(small), *sizes, *options, "--checkpoint-every", "2", "--out", str(out))
    assert told.exit_code == 2
    assert contents(out) == before
    assert run("resume", str(out)).exit_code == 0


def test_a_refused_command_leaves_no_folder_behind(tmp_path):
    out = tmp_path / "out"
    assert run("sample", "mnist", "--condition", "77", "--checkpoint-every", "2", "--out", str(out)).exit_code == 2
    assert not out.exists()


def test_a_finished_run_removes_its_own_checkpoints_alone(small, tmp_path):
    out = tmp_path / "out"
    stopped(small, out, 0)
    (out / "checkpoints" / "notes.txt").write_text("mine")
    (out / "checkpoints" / "step-mine").mkdir()
    (out / "checkpoints" / "step-00000004" / "notes.txt").write_text("mine too")
    assert run("resume", str(out)).exit_code == 0
    left = sorted(str(path.relative_to(out)) for path in (out / "checkpoints").rglob("*"))
    steps = ["checkpoints/step-00000004", "checkpoints/step-00000004/notes.txt", "checkpoints/step-mine"]
    assert left == ["checkpoints/notes.txt", *steps]
    assert not (out / "asked.json").exists()


def test_states_of_another_space_are_no_checkpoint_of_a_table(small, tmp_path):
    out = tmp_path / "out"
    stopped(small, out, 0)
    step = out / "checkpoints" / "step-00000004"
    reseal(step, "state.json", "state.safetensors", lambda found: found | {"x": found["x"] + 50})
    told = run("resume", str(out))
    assert told.exit_code == 2
    assert "no states of 1 sites" in told.stderr


@pytest.mark.parametrize("value", [3, None, "x", [], {"alpha": "4"}, {"steps": 10**20}])
def test_a_question_of_other_kinds_is_refused(value, small, tmp_path):
    out = tmp_path / "out"
    stopped(small, out, 0)
    told = json.loads((out / "asked.json").read_text())
    told["wish"] = told["wish"] | value if isinstance(value, dict) else value
    (out / "asked.json").write_text(json.dumps(told))
    assert run("resume", str(out)).exit_code == 2


@pytest.mark.parametrize("field", ["backbone", "files"])
@pytest.mark.parametrize("value", [3, True, None, "x", [], {"structure": 3}])
def test_a_backbone_of_other_kinds_is_refused(field, value, small, tmp_path):
    out = tmp_path / "out"
    stopped(small, out, 0)
    (out / "asked.json").write_text(json.dumps(json.loads((out / "asked.json").read_text()) | {field: value}))
    with pytest.raises(tt.InvalidInput, match="was not written by this version"):
        read_command(out)


def test_a_folder_named_as_a_file_of_ours_is_left_alone(tmp_path):
    (tmp_path / "step" / "state.json").mkdir(parents=True)
    (tmp_path / "step" / "other.json").write_text("{}")
    remove_written(tmp_path / "step", ("state.json", "other.json"))
    assert [path.name for path in (tmp_path / "step").iterdir()] == ["state.json"]


# commands


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sample", "{table}", "--steps", str(10**20)), "would take more than"),
        (("sample", "{table}", "--particles", str(2**63 - 1)), "would take"),
        (("sample", "{table}", "--alpha", "1e308"), "alpha is 1e+308; the target's exponent must be"),
        (("sample", "mnist", "--condition", "²"), "the condition is '²'"),
        (("sample", "tiny-reviews", "--condition", "²"), "the condition is '²'"),
        (("infill", "the [MASK:99999999999999] film"), "a gap of 99999999999999 tokens"),
        (("infill", "the \udcff [MASK] film"), "lone surrogate"),
        (("sample", "\udcff.json"), "there is no file"),
        (("report", "{table}"), "holds no particles.json"),
    ],
)
@pytest.mark.timeout(120)
def test_absurd_options_are_refused_in_one_line(words, said, small):
    told = run(*(word.format(table=small) for word in words), "--out", str(small.parent / "out"))
    assert told.exit_code == 2
    assert said in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1


def heeds(process, number):
    """Whether a process has a handler of a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1)


@pytest.mark.interrupt
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_an_interrupt_during_the_imports_is_one_line(delay, small):
    """Whatever is being imported then."""
    words = [
        sys.executable,
        "-m",
        "truetilt",
        "sample",
        str(small),
        "--steps",
        "5000",
        "--out",
        str(small.parent / "out"),
    ]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=small.parent)
    while started.poll() is None and not heeds(started.pid, signal.SIGTERM):  # on a busy machine Python takes its time
        time.sleep(0.01)
    time.sleep(delay)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert said.decode().startswith("error: stopped")
    assert len(said.decode().strip().splitlines()) == 1


def test_a_full_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "truetilt", "--version"]
        told = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert told.returncode == 1
    assert len(told.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("spoiled", [b"}]", b"(((", b"'", b"\x00", b"}" * 9])
def test_an_array_with_a_broken_header_is_a_value_error(tmp_path, spoiled):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(12, dtype=np.uint16))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"}", spoiled, 1))
    with pytest.raises(ValueError, match="Error: "):
        storage.read_array(path)
    np.savez(tmp_path / "many.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="several arrays"):
        storage.read_array(tmp_path / "many.npz")


def test_a_model_that_is_a_link_to_itself_is_one_line(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    words = [
        "sample",
        str(tmp_path / "loop"),
        "--alpha",
        "2",
        "--checkpoint-every",
        "5",
        "--out",
        str(tmp_path / "out"),
    ]
    run = CliRunner().invoke(app, words)
    assert run.exit_code in (1, 2)
    assert run.stderr.startswith("error: ")
    assert len(run.stderr.splitlines()) == 1


def test_weights_that_float32_cannot_hold_are_refused(tmp_path):
    """Float64 on disk, finite there, and infinite in the net that computes in float32."""
    with pytest.raises(tt.InvalidInput, match="w holds NaN or infinity"):
        check_finite(tmp_path / "model.safetensors", {"w": torch.tensor([1.0, 1e300], dtype=torch.float64)})
    with pytest.raises(tt.InvalidInput, match=r"w is of torch\.int64"):
        check_finite(tmp_path / "model.safetensors", {"w": torch.tensor([1])})
    check_finite(tmp_path / "model.safetensors", {"w": torch.tensor([1.0, 1e30], dtype=torch.float64)})


CORPUS_OF_TWO = {"length": 4, "vocabulary": 9, "end": 0, "classes": ["a", "b"], "groups": {"mood": ["a", "b"]}}
CORPUS_OF_TWO |= {"withheld": [2, 2, 2], "sources": ["here"], "fingerprints": {"tokenizer.json": "x"}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": 0}, "does not agree with itself"),
        ({"end": 9}, "does not agree with itself"),
        ({"vocabulary": 2**40}, "does not agree with itself"),
        ({"withheld": [2, 2, 7]}, "does not agree with itself"),
        ({"withheld": [2, 2]}, "one class for each and one for none"),
        ({"groups": {"mood": ["b"]}}, "does not agree with itself"),
        ({"groups": 3}, "lacks"),
        ({"length": 10**400}, "does not agree with itself|lacks"),
    ],
)
def test_a_corpus_that_disagrees_with_itself_is_refused(tmp_path, changes, words):
    write_json(tmp_path / "corpus.json", CORPUS_OF_TWO)
    assert Corpus.read(tmp_path).classes == ("a", "b")
    (tmp_path / "corpus.json").write_text(json.dumps(CORPUS_OF_TWO | changes))
    with pytest.raises(tt.InvalidInput, match=words):
        Corpus.read(tmp_path)


@pytest.mark.parametrize(("withheld", "words"), [((2, 3), "classes are 0 to 2"), ((2,), "1 entries for 2 classes")])
def test_facts_of_text_nets_that_name_no_class_are_refused(withheld, words):
    with pytest.raises(tt.InvalidInput, match=words):
        Facts(("a", "b"), {"mood": ("a", "b")}, withheld)


def test_a_folder_that_cannot_be_replaced_is_left_as_it_was(tmp_path, monkeypatch):
    target = tmp_path / "step-1"
    write_folder(target, lambda folder: (folder / "old").write_text("old"))
    replace = os.replace

    def failing(source, place):
        if str(source).endswith(".part"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, place)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="No space"):
        write_folder(target, lambda folder: (folder / "new").write_text("new"))
    assert (target / "old").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
