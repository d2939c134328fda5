"""Run work concurrently: on threads in a broker, or under one scheduler with a seed in a simulation.

    worker(name, turn)      calls `turn` on request, and again after the delay that `turn` returns, if any
    job(name, work)         runs `work` once
    each(name, ...)         runs a function for many items concurrently and waits for all results
    event()                 a flag that threads can wait for, like threading.Event

A simulation runs all parts of a broker on one thread, by these rules:

- A part waits for another part only in `Event.wait`.
- If a worker has no work, its turn returns, and is called again later.
- Code that holds a lock never waits.
- A set is sorted before its items reach the disk or a queue, because its order differs between processes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafkalite.base.shortage import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
Result = TypeVar("Result")


class Event(Protocol):
    """A flag that threads can wait for, like threading.Event."""

    def set(self) -> None:
        """Set the flag."""

    def clear(self) -> None:
        """Clear the flag."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set or `timeout` seconds have passed. Return whether it is set."""


class Worker(Protocol):
    """A worker, which calls a function repeatedly, never concurrently. Each call is a turn."""

    lock: threading.Lock
    """Guards what the turns and their callers share. A leaf lock."""

    def start(self) -> None:
        """Schedule the first turn."""

    def call_locked(self) -> None:
        """Schedule another turn at once, or after the current turn. The caller holds `lock`."""

    def stop(self) -> None:
        """Stop the worker: wait for the current turn, and for a turn that is already scheduled.

        If the worker's own turn calls this method, it returns at once.
        """


class Job(Protocol):
    """Work that runs once."""

    def join(self) -> None:
        """Wait until the work is done."""


class Executors(Protocol):
    """A factory for the workers, jobs and events of a broker."""

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """Create a worker, which must then be started.

        `turn` returns the seconds until the next turn, or None to wait for `call_locked`.
        """

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Start running `work` once."""

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call `function` for each item, at most `count` at a time. Return the results in the order of the items."""

    def event(self) -> Event:
        """Create an event that is not set."""


class ThreadWorker:
    """A worker with its own daemon thread."""

    def __init__(self, name: str, turn: Callable[[], float | None]) -> None:
        self._name = name
        self._turn = turn
        self.lock = threading.Lock()
        self._ready = threading.Condition(self.lock)
        self._called = False  # guarded by lock, like the next one
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Schedule the first turn."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def call_locked(self) -> None:
        """Schedule another turn at once, or after the current turn. The caller holds `lock`."""
        if not self._called:
            self._called = True
            self._ready.notify()

    def stop(self) -> None:
        """Stop the worker: wait for the current turn, and for a turn that is already scheduled."""
        with self.lock:
            self._stopping = True
            self._ready.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        run_to_end(self._turns)

    def _turns(self) -> None:
        while True:
            delay_s = self._turn()
            with self.lock:
                if not self._called and not self._stopping and (delay_s is None or delay_s > 0):
                    self._ready.wait(delay_s)
                if self._stopping and not self._called:
                    return
                self._called = False


class Threads:
    """Executors that run work on threads."""

    __slots__ = ()

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """Create a worker with its own thread, which must then be started.

        `turn` returns the seconds until the next turn, or None to wait for `call_locked`.
        """
        return ThreadWorker(name, turn)

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Run `work` once on a new daemon thread."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call `function` for each item, on `count` threads. Return the results in the order of the items."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(count, name) as pool:
            return list(pool.map(function, items))

    def event(self) -> Event:
        """Create an event that is not set."""
        return threading.Event()


THREADS: Final[Executors] = Threads()
"""The executors of a broker outside a simulation."""
