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
from ..result import Result
from ..viz.views import View

log = logging.getLogger(__name__)
WAITING, RUNNING, DONE, CANCELLED, FAILED = "waiting", "running", "done", "cancelled", "failed"


class Cancelled(Exception):
    """Raised inside a job to cancel it."""


@dataclass(eq=False)
class Background:
    """A queued or running job. A subclass implements `carry_out` and `free`, and calls `check` often."""

    form: Any
    folder: Path  # folder of the reports
    state: str = field(default=WAITING, init=False)
    message: str = field(default="", init=False)
    token: str = field(default="", init=False)  # name of the report
    seconds: float = field(default=0.0, init=False)
    stop: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def over(self) -> bool:
        return self.state in (DONE, CANCELLED, FAILED)

    def run(self) -> None:
        """Run to the end, or until cancelled; every error becomes a message."""
        begin, end = time.monotonic(), DONE
        try:
            self.carry_out()
        except Cancelled:
            end = CANCELLED
        except TruetiltError as e:
            self.message, end = str(e), FAILED
        except torch.OutOfMemoryError:
            self.message, end = "The device has too little memory for this run; take fewer particles.", FAILED
        except Exception as e:  # a bug must not end the worker thread; the log has the traceback
            log.exception("a run of the studio failed")
            self.message, end = f"The run failed: {type(e).__name__}: {e}"[:500], FAILED
        self.seconds = time.monotonic() - begin
        self.state = end
        self.free()
        gc.collect()  # the frames of an error keep references to tensors
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

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
