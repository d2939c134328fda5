"""Run jobs that may wait for a disk on a few threads (the I/O pool), so that network workers never wait.

Jobs with the same key run one after another, in order of submission. All other jobs run concurrently. The queue has no
maximum size, so callers must limit their jobs. An exception in a job is logged and ends only that job.

Thread rule: submit from any thread. A job completes its request through an Answer, which wakes the network worker of
the connection.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from kafkalite._native.base import native_time as time
from kafkalite.base.logging import RepeatLogger
from kafkalite.base.shortage import is_shortage, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

logger = RepeatLogger(logging.getLogger("kafkalite.base.pool"))


class _Hold:
    """A pause in a key's queue: the later jobs of the key do not run until it is removed."""

    __slots__ = ()


class IoPool:
    """A pool of up to `size` daemon threads, which are started when jobs arrive."""

    def __init__(self, size: int, name: str = "kafkalite-io") -> None:
        self.size = size
        self._name = name
        self._jobs: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._strands: dict[Hashable, deque[tuple[Callable[..., object], tuple[Any, ...]] | _Hold]] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def start(self) -> None:
        """Start the first thread, so that jobs can run even if there is no memory for another thread later."""
        with self._ready:
            if not self._threads:
                self._grow_locked()

    def submit(self, job: Callable[..., object], *args: Any) -> None:
        """Run `job(*args)` on a thread of the pool as soon as one is free."""
        with self._ready:
            self._submit_locked(job, args)

    def submit_ordered(self, key: Hashable, job: Callable[..., object], *args: Any) -> None:
        """Run `job(*args)` after all jobs that were submitted earlier with the same key."""
        with self._ready:
            strand = self._strands.get(key)
            if strand is not None:
                strand.append((job, args))
                return
            self._strands[key] = deque([(job, args)])
            try:
                self._submit_locked(self._run_strand, (key,))
            except BaseException:
                del self._strands[key]
                raise

    def hold(self, key: Hashable) -> Callable[[], None]:
        """Pause all jobs of this key that have not started. Return a function that resumes them; call it once.

        So a key can wait without blocking a thread. Call this method from a job of the key, which continues to run, or
        while the key has no jobs.
        """
        place = _Hold()
        with self._ready:
            strand = self._strands.setdefault(key, deque())
            strand.insert(1, place)  # after the job that runs
        return lambda: self._release(key, place)

    def _release(self, key: Hashable, place: _Hold) -> None:
        with self._ready:
            strand = self._strands[key]
            first = strand[0] is place
            strand.remove(place)
            if not first or not self._is_due_locked(key):
                return
            if self._closed:
                del self._strands[key]  # too late: their connections end with the broker
            else:
                self._submit_locked(self._run_strand, (key,))

    def resize(self, size: int) -> None:
        """Change the maximum number of threads. Surplus threads end after their current jobs."""
        with self._ready:
            self.size = size
            for _ in range(len(self._jobs) - self._idle):
                self._grow_locked()
            self._ready.notify_all()

    @property
    def thread_count(self) -> int:
        """The number of threads, busy or idle."""
        return len(self._threads)

    def has_jobs(self, key: Hashable) -> bool:
        """Return whether jobs with this key are queued or running."""
        return key in self._strands

    def close(self, timeout_s: float) -> bool:
        """Accept no more jobs and wait for the queued ones.

        Return False if a thread still runs after `timeout_s` seconds, which are the limit for all threads together.
        """
        with self._ready:
            self._closed = True
            self._ready.notify_all()
            threads = list(self._threads)
        until = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    @property
    def busy(self) -> int:
        """The number of threads that run a job."""
        return max(0, len(self._threads) - self._idle)

    @property
    def queued(self) -> int:
        """The number of jobs that have not started. The queue of each key counts as one job."""
        return len(self._jobs)

    def _submit_locked(self, job: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._closed:
            raise RuntimeError("the I/O pool is closed")
        # A thread that was woken for an earlier job counts as idle until it runs, so compare with the queued jobs.
        grown = self._idle <= len(self._jobs) and self._grow_locked()
        self._jobs.append((job, args))
        if not grown:
            self._ready.notify()

    def _grow_locked(self) -> bool:
        """Start another thread. Return False if the pool has its maximum size, or if there is no memory for the thread.

        Without memory for the pool's only thread, the error is raised.
        """
        if len(self._threads) >= self.size:
            return False
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except Exception as error:
            self._threads.remove(thread)
            if not self._threads or not is_shortage(error):
                raise
            return False
        return True

    def _run(self) -> None:
        run_to_end(self._serve)

    def _serve(self) -> None:
        while True:
            with self._ready:
                self._idle += 1
                try:
                    while not self._jobs and not self._closed and len(self._threads) <= self.size:
                        self._ready.wait()
                finally:
                    self._idle -= 1
                if not self._closed and len(self._threads) > self.size:
                    self._threads.remove(threading.current_thread())
                    self._ready.notify()  # this thread ends, but the wake-up was for a job
                    return
                if not self._jobs:
                    return
                job, args = self._jobs.popleft()
            self._call(job, args)
            del job, args

    def _run_strand(self, key: Hashable) -> None:
        """Run one job of a key's queue, and submit the queue again, so that other jobs can run in between."""
        with self._ready:
            first = self._strands[key][0]
        assert not isinstance(first, _Hold), "nothing runs that is kept back"
        self._call(*first)
        with self._ready:
            self._strands[key].popleft()
            if self._is_due_locked(key):
                self._jobs.append((self._run_strand, (key,)))
                self._ready.notify()

    def _is_due_locked(self, key: Hashable) -> bool:
        """Return whether the key's queue begins with a job, not with a pause. An empty queue is removed."""
        strand = self._strands[key]
        if not strand:
            del self._strands[key]
        return bool(strand) and not isinstance(strand[0], _Hold)

    @staticmethod
    def _call(job: Callable[..., object], args: tuple[Any, ...]) -> None:
        try:
            job(*args)
        except BaseException:  # the thread has to run other jobs
            logger.exception("a job of the I/O pool failed")
