"""The run of each open page, by page id; independent of the web framework."""

from __future__ import annotations

from pathlib import Path

from .background import Background
from .job_queue import Pool

KEPT = 50  # number of reports kept


class Studio:
    """The runs of every open page: one worker, a job for each page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pool = folder, Pool()
        self.jobs: dict[str, Background] = {}  # by page
        self.reports: list[str] = []

    def start(self, page: str, job: Background) -> None:
        """Queue a new run for a page; the one it had is cancelled."""
        self.leave(page)
        self.jobs[page] = job
        self.pool.submit(job)

    def shown(self, page: str, job: Background) -> bool:
        """Whether a page still shows this run, and has not started another."""
        return self.jobs.get(page, job) is job

    def leave(self, page: str) -> None:
        """Cancel the run of a page that cancelled it or was closed."""
        job = self.jobs.pop(page, None)
        if job is not None:
            self.pool.cancel(job)

    def keep(self, token: str) -> None:
        """Keep the latest reports and remove older ones."""
        self.reports.append(token)
        while len(self.reports) > KEPT:
            (self.folder / f"{self.reports.pop(0)}.html").unlink(missing_ok=True)
