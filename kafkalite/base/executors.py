"""Run work concurrently: on threads in a broker, under one seeded scheduler in a simulation.

    worker(name, turn)      runs one turn after another, when called or when the next turn is due
    job(name, work)         runs something once
    each(name, ...)         runs a function for many items concurrently and waits for all results
    event()                 a flag that threads can wait for, like threading.Event

Parts of a broker take their executors as a parameter, like their clock, and wait only in `Event.wait`. A turn ends
instead of waiting for more work, and a lock is held only while code runs. So in a simulation one thread can run all
parts, in any order.
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
    """Like threading.Event."""

    def set(self) -> None:
        """Mark it as happened."""

    def clear(self) -> None:
        """Mark it as not happened."""

    def is_set(self) -> bool:
        """Return whether it has happened."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has happened or `timeout` seconds have passed; return whether it has happened."""


class Worker(Protocol):
    """Runs its turns one at a time, the first when it is started."""

    lock: threading.Lock
    """Guards what the turns and their callers share. A leaf lock."""

    def start(self) -> None:
        """Schedule the first turn."""

    def call_locked(self) -> None:
        """Schedule another turn, after the one that may be running. The caller holds `lock`."""

    def stop(self) -> None:
        """Wait until no turn runs. No turn begins after that, except one that is already scheduled.

        A call from one of the worker's turns returns at once.
        """


class Job(Protocol):
    """Work that runs once."""

    def join(self) -> None:
        """Wait until it is done."""


class Executors(Protocol):
    """Creates the workers and jobs of a broker's parts."""

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """Create a worker, not started. A turn returns the seconds until the next one, or None to wait for a call."""

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Start running `work`."""

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results for all items in order, computing `count` at a time."""

    def event(self) -> Event:
        """Create an event that has not happened."""


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
        """Schedule another turn, after the one that may be running. The caller holds `lock`."""
        if not self._called:
            self._called = True
            self._ready.notify()

    def stop(self) -> None:
        """Wait until no turn runs. No turn begins after that, except one that is already scheduled."""
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
    """Executors that use threads."""

    __slots__ = ()

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """Create a worker, not started. A turn returns the seconds until the next one, or None to wait for a call."""
        return ThreadWorker(name, turn)

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Start running `work`."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results for all items in order, computing `count` at a time."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(count, name) as pool:
            return list(pool.map(function, items))

    def event(self) -> Event:
        """Create an event that has not happened."""
        return threading.Event()


THREADS: Final[Executors] = Threads()
"""The executors of a broker outside a simulation."""
