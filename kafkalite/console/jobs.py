"""Run work that takes longer than a request may, as jobs that have an id, report progress and can be cancelled.

    start ─▶ running ─▶ done │ failed │ cancelled          its page exists from the start until some time after the end

The numbers of running jobs and of stored jobs are limited. When the console stops, it cancels all jobs.

Thread rule: any thread. A job runs on its own thread, with its own client.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.requests import BadRequestError, BusyError, NotFoundError
from kafkalite.errors import KafkaError, StartupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.console.audit import Audit, AuditEntry
    from kafkalite.console.clients import Clients, PooledClients

    Work = Callable[[PooledClients, "Job"], dict[str, Any]]

logger = logging.getLogger(__name__)

RUNNING_MAX: Final = 3
KIND_MAX: Final = 2
"""Running jobs of one kind: exports, which every user may start, leave room for those of operators."""
KEPT_MAX: Final = 50
FILES_MAX: Final = 5
"""Files that are kept: the oldest are deleted first."""
JOIN_S: Final = 10.0


class Cancelled(Exception):
    """Raised in a job after it was cancelled."""


class Job:
    """A job. `state` is running, done, failed or cancelled."""

    def __init__(self, kind: str, title: str, who: str, folder: Path) -> None:
        self.id = secrets.token_hex(8)
        self.kind = kind
        self.title = title
        self.who = who
        self.state = "running"
        self.done = 0
        """Number of items done."""
        self.total: int | None = None
        self.result: dict[str, Any] = {}
        self.why = ""
        """Reason of a failure."""
        self.began = time.time_ns() // 1_000_000
        self.ended = 0
        self.path = folder / self.id
        """Path of its file, if it writes one."""
        self.file_name = ""
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def go_on(self, done: int | None = None) -> None:
        """Report progress. Raises Cancelled if the job was cancelled."""
        if done is not None:
            self.done = done
        if self._cancelled.is_set():
            raise Cancelled

    def row(self) -> dict[str, Any]:
        """Return the job as plain data for a page."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "who": self.who,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "result": self.result,
            "why": self.why,
            "began": self.began,
            "ended": self.ended,
            "file": self.file_name if self.state == "done" else "",
        }


def require_room() -> None:
    """Raise StartupError if no directory can be created for the files of jobs."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise StartupError(f"exports need a writable temporary directory; set TMPDIR: {error.strerror}") from error


class Jobs:
    """All jobs of a console, running and ended ones."""

    def __init__(self, clients: Clients, audit: Audit) -> None:
        self._clients = clients
        self._audit = audit
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False

    def start(self, kind: str, title: str, deed: AuditEntry, work: Work) -> Job:
        """Start a job. Raises BusyError if too many jobs are running."""
        with self._lock:
            if self._closed:
                raise BusyError("the console is shutting down")
            running = [job for job in self._jobs.values() if job.state == "running"]
            if len(running) >= RUNNING_MAX or sum(job.kind == kind for job in running) >= KIND_MAX:
                raise BusyError(f"{len(running)} jobs are already running; wait for one to end, or cancel one")
            if self._folder is None:
                try:
                    self._folder = tempfile.TemporaryDirectory(prefix="kafkalite-console-")
                except OSError as error:
                    raise BusyError(f"cannot create a file for the job: {error.strerror}") from error
            job = Job(kind, title, deed.who, Path(self._folder.name))
            self._jobs[job.id] = job
            self._tidy()
            thread = threading.Thread(target=self._run, args=(job, deed, work), name=f"job-{job.id}", daemon=True)
            self._threads[job.id] = thread
            thread.start()
        return job

    def _tidy(self) -> None:
        """Drop the oldest ended jobs with their files, and the oldest files of other jobs."""
        over = [job for job in self._jobs.values() if job.state != "running"]
        for job in over[: max(len(self._jobs) - KEPT_MAX, 0)]:
            del self._jobs[job.id]
            job.path.unlink(missing_ok=True)
        with_files = [job for job in self._jobs.values() if job.state == "done" and job.file_name]
        for job in with_files[: max(len(with_files) - FILES_MAX, 0)]:
            job.file_name = ""
            job.path.unlink(missing_ok=True)

    def _run(self, job: Job, deed: AuditEntry, work: Work) -> None:
        state, why, result = "failed", "", {}
        try:
            with self._clients.taken() as seat:
                try:
                    result = work(seat, job)
                    state = "done"
                except Cancelled:
                    state = "cancelled"
                except (KafkaError, ClientError, BadRequestError, NotFoundError, ValueError) as error:
                    why = str(error)
                except OSError as error:
                    logger.exception("the job %s failed", job.id)
                    why = f"cannot write the file of the job: {error.strerror}"
                deed.detail.update(job=job.id, result=result)
                self._audit.note(seat.client, deed._replace(action=f"{deed.action} (job)"), state)
        except BaseException:  # a failed job must be marked as failed
            logger.exception("the job %s failed", job.id)
            why = "failed; see the log of the console"
        if state != "done":
            job.path.unlink(missing_ok=True)
        with self._lock:
            job.result, job.why, job.ended = result, why, time.time_ns() // 1_000_000
            job.state = state
            self._threads.pop(job.id, None)

    def all(self) -> list[Job]:
        """Return all stored jobs, newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def find(self, job_id: str) -> Job:
        """Return the job with an id. Raises NotFoundError."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            raise NotFoundError("job not found; the console keeps only the latest jobs, and none after a restart")
        return job

    def close(self) -> None:
        """Cancel all jobs, and wait a while for their end."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.cancel()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(JOIN_S)
        with self._lock:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None
