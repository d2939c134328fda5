"""Executors whose workers take a turn when a test says so, on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class FakeWorker:
    """One that runs nothing by itself."""

    def __init__(self, turn: Callable[[], float | None]) -> None:
        self.lock = threading.Lock()
        self.turn = turn

    def start(self) -> None:
        """Begins with nothing."""

    def call_locked(self) -> None:
        """Its turn comes when the test takes it."""

    def stop(self) -> None:
        """Takes no more."""
        self.turn = lambda: None


class FakeJob:
    """One that is done when somebody waits for it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.join = work


class FakeExecutors:
    """`kafkalite.base.executors.Executors`, as far as workers and jobs go."""

    def __init__(self) -> None:
        self.workers: dict[str, FakeWorker] = {}

    def job(self, _name: str, work: Callable[[], object]) -> FakeJob:
        return FakeJob(work)

    def worker(self, name: str, turn: Callable[[], float | None]) -> FakeWorker:
        self.workers[name] = FakeWorker(turn)
        return self.workers[name]

    def turn(self, name: str) -> float | None:
        """One turn of this worker; the seconds that it says."""
        return self.workers[name].turn()
