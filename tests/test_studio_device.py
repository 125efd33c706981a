"""A run of the studio that ended, however it ended, holds nothing: no network is alive, and a GPU has its memory back.

Without a browser and without gradio. On a machine with a GPU it runs there, and needs no pytest either:

    PYTHONPATH=src python tests/test_studio_device.py
"""

import gc
import subprocess
import sys
import tempfile
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch

from truetilt.studio.background import CANCELLED, DONE, FAILED
from truetilt.studio.form import first_form
from truetilt.studio.jobs import StudioRun
from truetilt.studio.sessions import Studio

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
WORDS = find_spec("tokenizers") is not None  # else the digits
MODELS = ["tiny-reviews"] * WORDS + ["mnist"] * (DEVICE != "cpu" or not WORDS)
WAYS = {"finished": DONE, "cancelled": CANCELLED, "left": CANCELLED, "failed": FAILED}


MODULES: list[weakref.ref[torch.nn.Module]] = []  # all that were made, while `noting`


def noting():
    """Note every module that is made; to ask the collector for all objects breaks tuples that other threads build."""
    made = torch.nn.Module.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        MODULES.append(weakref.ref(self))

    return mock.patch.object(torch.nn.Module, "__init__", init)


def held():
    """Parameters alive in this process, and bytes that torch holds on the GPU (work space of cuBLAS aside)."""
    gc.collect()
    modules = [module for noted in list(MODULES) if (module := noted()) is not None]
    alive = sum(parameter is not None for module in modules for parameter in module._parameters.values())
    if DEVICE == "cpu":
        return alive, 0
    torch.cuda.synchronize()
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
    return alive, torch.cuda.memory_allocated()


def waited(true, seconds=120.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true()


def ended(studio, model, way):
    """A job that ran on the device and ended in this way, and what was held in its midst."""
    short = way == "finished"
    form = first_form(model)._replace(device=DEVICE, particles=2, populations=1, steps=2 if short else 200, pace="fast")
    seen = []

    def look(self, step, particles, info):
        if step == 1:
            seen.append(held())
        if way == "failed" and step == 1:
            raise ArithmeticError("a bug")

    room = "truetilt.studio.jobs"
    with mock.patch(f"{room}.Lane.look", look), mock.patch("truetilt.studio.background.log"):  # pytest keeps logs
        job = StudioRun(form, studio.folder)
        studio.start("page", job)
        if way in ("cancelled", "left"):
            waited(lambda: job.steps >= 3)
            studio.pool.cancel(job) if way == "cancelled" else studio.leave("page")
        waited(lambda: job.over and studio.pool._current is None)
    return job, max(seen)


def check(model, way):
    """(before, in the midst, after); the job itself is still there, as it is while a page shows it."""
    with tempfile.TemporaryDirectory() as folder:
        studio = Studio(Path(folder))
        try:
            before = held()
            job, midst = ended(studio, model, way)
            after = held()
        finally:
            studio.pool.close()
    assert job.state == WAYS[way], job.message
    assert midst[0] > before[0] + 50
    assert DEVICE == "cpu" or midst[1] > before[1] + 10_000_000
    return before, midst, after


def test_a_run_that_ended_holds_no_network_and_no_memory():
    """In a process of its own: what other tests left alive may go at any moment."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all memory is given back" in done.stdout


def frees_nothing(model):
    """The wrong variant: what is looked for is there if nobody frees it."""
    with mock.patch.object(StudioRun, "free"):
        before, _, after = check(model, "cancelled")
    assert after > before


if __name__ == "__main__":
    print(f"device {DEVICE}: (parameters alive, bytes on the GPU)")
    with noting():
        for model in MODELS:
            for way in WAYS:
                before, midst, after = check(model, way)
                print(f"{model:13} {way:10} before {before}, in the midst {midst}, after {after}")
                assert after == before
        frees_nothing(MODELS[0])
    print("all memory is given back; a job that frees nothing is caught")
