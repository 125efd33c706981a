"""Rewards that worker processes can import: honest ones, and those that raise, hang, die or start others."""

import os
import signal
import subprocess
import time


def count_gc(text):
    return float(text.count("G") + text.count("C"))


def counts(texts):
    return [count_gc(text) for text in texts]


def total(x):
    return x.sum(-1)


def largest(x):
    assert type(x).__name__ == "Tensor"
    assert x.dim() == 1
    return x.max()


def raises_on_gggg(text):
    if text == "GGGG":
        raise RuntimeError("no fold")
    return count_gc(text)


def nan_on_gggg(text):
    return float("nan") if text == "GGGG" else count_gc(text)


def hangs_on_gggg(text):
    if text == "GGGG":
        time.sleep(1000)
    return count_gc(text)


def starts_a_sleeper(text):
    """A program that would outlive its worker, its number in the file that $SLEEPER names."""
    program = subprocess.Popen(["sleep", "1000"])
    with open(os.environ["SLEEPER"], "w", encoding="utf-8") as file:
        file.write(str(program.pid))
    program.wait()


def dies(text):
    os.kill(os.getpid(), signal.SIGKILL)


def slow(text):
    """Takes a moment, and leaves a line for each call in the file that $REWARD_LOG names."""
    with open(os.environ["REWARD_LOG"], "a", encoding="utf-8") as file:
        file.write(text + "\n")
    time.sleep(0.1)
    return count_gc(text)


def exits(text):
    raise SystemExit("x" * 100_000)
