"""Who runs what stands beside the caller: threads here, one seeded scheduler in a simulation.

    worker(name, turn)      a turn after the other, when called for or when its time has come
    job(name, work)         something that is done once
    each(name, ...)         the same for many things, side by side, before the caller goes on
    event()                 something that happens once, and can be waited for

Parts of a broker are handed their executors as they are handed their clock. What they wait for they wait for here: a
turn ends instead of waiting for more work, and locks are only held for as long as something takes. So one thread can
run all of them, in any order.
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
    """As threading.Event."""

    def set(self) -> None:
        """It has happened."""

    def clear(self) -> None:
        """It has not."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def wait(self, timeout: float | None = None) -> bool:
        """Returns when it has, or after so many seconds; whether it has."""


class Worker(Protocol):
    """Takes its turns one at a time, the first of them when it is started."""

    lock: threading.Lock
    """For what the turns and those who call for them share. A leaf."""

    def start(self) -> None:
        """Begins with a first turn, soon."""

    def call_locked(self) -> None:
        """There is work: another turn begins soon, after the one that may be running. The caller holds `lock`."""

    def stop(self) -> None:
        """Returns when no turn runs nor will: none begins any more, but the one that is called for already.

        From a turn of its own it returns at once.
        """


class Job(Protocol):
    """Something that runs once."""

    def join(self) -> None:
        """Returns when it is done."""


class Executors(Protocol):
    """What a part of a broker is handed."""

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """A worker that is not started. A turn returns the seconds until the next one, None: when it is called for."""

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Has something done, from now on."""

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results for all items in their order, `count` of them made at a time."""

    def event(self) -> Event:
        """Something that has not happened."""


class ThreadWorker:
    """A worker with a daemon thread of its own."""

    def __init__(self, name: str, turn: Callable[[], float | None]) -> None:
        self._name = name
        self._turn = turn
        self.lock = threading.Lock()
        self._ready = threading.Condition(self.lock)
        self._called = False  # guarded by lock, as the next
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins with a first turn, soon."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def call_locked(self) -> None:
        """There is work: another turn begins soon, after the one that may be running. The caller holds `lock`."""
        if not self._called:
            self._called = True
            self._ready.notify()

    def stop(self) -> None:
        """Returns when no turn runs nor will: none begins any more, but the one that is called for already."""
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
    """Executors that are threads."""

    __slots__ = ()

    def worker(self, name: str, turn: Callable[[], float | None]) -> Worker:
        """A worker that is not started. A turn returns the seconds until the next one, None: when it is called for."""
        return ThreadWorker(name, turn)

    def job(self, name: str, work: Callable[[], object]) -> Job:
        """Has something done, from now on."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def each(self, name: str, count: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results for all items in their order, `count` of them made at a time."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(count, name) as pool:
            return list(pool.map(function, items))

    def event(self) -> Event:
        """Something that has not happened."""
        return threading.Event()


THREADS: Final[Executors] = Threads()
"""What runs in a broker."""
