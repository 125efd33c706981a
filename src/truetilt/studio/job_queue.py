"""The queue of the studio: one worker thread runs one job at a time."""

from __future__ import annotations

import threading
from collections import deque

from .background import CANCELLED, RUNNING, Background, heed_cancelling

PATIENCE = 5.0  # seconds that a cancelled run may take to end when the studio is closed


class Pool:
    """One worker thread and its queue."""

    def __init__(self) -> None:
        self._queue: deque[Background] = deque()
        self._current: Background | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._heeded = heed_cancelling()
        self._worker = threading.Thread(target=self._work, name="truetilt-studio", daemon=True)
        self._worker.start()

    def submit(self, job: Background) -> None:
        with self._changed:
            self._queue.append(job)
            self._changed.notify_all()

    def ahead(self, job: Background) -> int:
        """Number of runs queued before this one."""
        with self._changed:
            if job not in self._queue:
                return 0
            return self._queue.index(job) + (self._current is not None)

    def cancel(self, job: Background) -> None:
        """Cancel a run after its current step, or remove it from the queue."""
        job.stop.set()
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
                job.state = CANCELLED

    def close(self) -> bool:
        """Cancel all runs and stop the worker; whether it has stopped."""
        with self._changed:
            self._closed = True
            jobs = [*self._queue, *([self._current] if self._current else [])]
            self._changed.notify_all()
        for job in jobs:
            self.cancel(job)
        self._worker.join(timeout=PATIENCE)
        self._heeded.remove()
        return not self._worker.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.state = RUNNING
            job.run()
            with self._changed:
                self._current = None

    def _next(self) -> Background | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._queue))
            self._current = None if self._closed else self._queue.popleft()
            return self._current
