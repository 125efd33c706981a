"""A background job of the studio: errors become messages, and its memory is freed at the end."""

from __future__ import annotations

import gc
import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import torch

from ..core.errors import TruetiltError
from ..core.user_functions import raised
from ..result import Result
from ..viz.views import View

log = logging.getLogger(__name__)
WAITING, RUNNING, DONE, CANCELLED, FAILED = "waiting", "running", "done", "cancelled", "failed"


_HERE = threading.local()  # `job`: the one that this thread works for


class Cancelled(BaseException):
    """Raised inside a job to cancel it; like KeyboardInterrupt no `Exception`, which a user's function may catch."""


def heed_cancelling() -> Any:
    """From now on every module of a network asks, before it computes, whether its job was cancelled: a pass of many
    states takes minutes. The handle's `remove` ends it."""

    def look(module: torch.nn.Module, given: Any) -> None:
        job = getattr(_HERE, "job", None)
        if job is not None:
            job.check()

    return torch.nn.modules.module.register_module_forward_pre_hook(look)


@dataclass(eq=False)
class Background:
    """A queued or running job. A subclass implements `carry_out` and `free`, and calls `check` often."""

    form: Any
    folder: Path  # folder of the reports
    state: str = field(default=WAITING, init=False)
    message: str = field(default="", init=False)
    token: str = field(default="", init=False)  # name of the report
    begun: float = field(default=0.0, init=False)  # time.monotonic at the start
    seconds: float = field(default=0.0, init=False)
    stop: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def over(self) -> bool:
        return self.state in (DONE, CANCELLED, FAILED)

    def run(self) -> None:
        """Run to the end, or until cancelled; every error becomes a message."""
        begin, end = time.monotonic(), DONE
        self.begun = begin
        try:
            self.work_here()
            self.carry_out()
        except Cancelled:
            end = CANCELLED
        except TruetiltError as e:
            self.message, end = str(e), FAILED
        except torch.OutOfMemoryError:
            self.message, end = "The device has too little memory for this run; take fewer particles.", FAILED
        except (Exception, SystemExit) as e:  # a bug must not end the worker thread
            log.exception("a run of the studio failed")
            self.message, end = f"The run failed: {raised(e)}", FAILED
        self.seconds = time.monotonic() - begin
        self.state = end
        self.free()
        gc.collect()  # the frames of an error keep references to tensors
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def work_here(self) -> None:
        """Networks that this thread runs heed that the job is cancelled."""
        _HERE.job = self

    def carry_out(self) -> None:
        """Do the work."""
        raise NotImplementedError

    def free(self) -> None:
        """Release networks and particles from the device; what the page shows is kept in host memory."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if the job was cancelled."""
        if self.stop.is_set():
            raise Cancelled

    def write_report(self, result: Result, view: View | None) -> None:
        """Write the report of a result, and name it."""
        token = token_urlsafe(16)
        result.report(self.folder / f"{token}.html", view)
        self.token = token
