"""One thread, one clock, one seed: the seed draws which of the ready workers runs next.

    Scheduler       draws one of the ready workers and runs it; if none is ready, time advances to the next event
    Site            the executors of one process (kafkalite.base.executors.Executors) and its I/O pool; dies as a whole
    trace           each run with its time, and the simulation's notes: the same seed gives the same trace

Time does not advance while code runs. Code that waits (for an Event) lets the others run meanwhile, on the same thread:
deeper in the stack, not elsewhere.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.kit.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


class Stuck(Exception):
    """A deadlock: code waits for an event that no other can set."""


class Killed(BaseException):
    """The process that waited is no more: its work ends here."""


class SimulatedWorker:
    """A worker whose turns the scheduler gives."""

    def __init__(self, site: Site, name: str, turn: Callable[[], float | None]) -> None:
        self.lock = threading.Lock()
        self.name = f"{site.name} {name}"
        self._scheduler = site.scheduler
        self._turn = turn
        self._called = False
        self._stopping = False
        self._busy = False
        self.due: float | None = None  # on the clock; None: when called for
        self.dead = False

    def start(self) -> None:
        self.due = self._scheduler.clock.monotonic()
        self._scheduler.workers.append(self)

    def call_locked(self) -> None:
        self._called = True

    def stop(self) -> None:
        self._stopping = True
        if self._called and not self._busy and not self.dead and self in self._scheduler.workers:
            self.run()
        if self in self._scheduler.workers:
            self._scheduler.workers.remove(self)

    def is_ready(self, now: float) -> bool:
        """Whether a turn of it may come now."""
        if self._busy or self._stopping:
            return False
        return self._called or (self.due is not None and self.due <= now)

    def sleeps_until(self) -> float | None:
        """When it is ready by itself; None: not before it is called for."""
        return None if self._busy or self._stopping else self.due

    def run(self) -> None:
        """One turn."""
        self._called = False
        self.due = None
        self._busy = True
        try:
            delay_s = self._turn()
        except Killed:
            delay_s = None
        finally:
            self._busy = False
        self.due = None if delay_s is None else self._scheduler.clock.monotonic() + delay_s


class SimulatedJob:
    """Something that the scheduler will do once."""

    def __init__(self, scheduler: Scheduler, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.work = work
        self.done = False
        self._scheduler = scheduler

    def join(self, _timeout: float | None = None) -> None:
        self._scheduler.run_until(lambda: self.done)


class SimulatedEvent:
    """An event for which others run meanwhile."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set or timeout == 0:
            return self._is_set
        scheduler = self._site.scheduler
        if timeout is None:
            scheduler.run_until(self._ended)
        else:
            scheduler.run_for(timeout, self._ended)
        if self._site.dead:
            raise Killed
        return self._is_set

    def _ended(self) -> bool:
        return self._is_set or self._site.dead


class Site:
    """What one simulated process runs. `kill` takes away all that has not run."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dead = False
        self._workers: list[SimulatedWorker] = []
        self._strands: dict[Hashable, deque[Callable[[], object]]] = {}

    # ---- executors --------------------------------------------------------------------------------------------------

    def worker(self, name: str, turn: Callable[[], float | None]) -> SimulatedWorker:
        worker = SimulatedWorker(self, name, turn)
        worker.dead = self.dead
        self._workers.append(worker)
        return worker

    def job(self, name: str, work: Callable[[], object]) -> SimulatedJob:
        job = SimulatedJob(self.scheduler, f"{self.name} {name}", work)
        if not self.dead:
            self.scheduler.jobs.append((self, job))
        return job

    def each(self, name: str, count: int, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        numbered = list(enumerate(items))
        order = list(numbered)
        self.scheduler.draw.shuffle(order)
        results = {number: function(item) for number, item in order}
        return [results[number] for number, _ in numbered]

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self)

    # ---- I/O pool ---------------------------------------------------------------------------------------------------

    def submit(self, job: Callable[..., object], *args: Any) -> None:
        if self.dead:
            raise RuntimeError("the I/O pool is closed")
        self.job("pool", lambda: job(*args))

    def submit_ordered(self, key: Hashable, job: Callable[..., object], *args: Any) -> None:
        strand = self._strands.get(key)
        if strand is not None:
            strand.append(lambda: job(*args))
            return
        self._strands[key] = deque([lambda: job(*args)])
        self.submit(self._run_strand, key)

    def has_jobs(self, key: Hashable) -> bool:
        return key in self._strands

    def _run_strand(self, key: Hashable) -> None:
        strand = self._strands[key]
        try:
            strand[0]()
        finally:
            strand.popleft()
            if strand:
                self.submit(self._run_strand, key)
            else:
                del self._strands[key]

    # ---- death ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is no more: nothing of it runs again."""
        self.dead = True
        for worker in self._workers:
            worker.dead = True
            if worker in self.scheduler.workers:
                self.scheduler.workers.remove(worker)
        self.scheduler.jobs = [(site, job) for site, job in self.scheduler.jobs if site is not self]


class Scheduler:
    """Everything that runs in a simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.chance = random.Random(seed + 1)  # draws of the parts themselves: ids and jitter
        self.clock = FakeClock()
        self.workers: list[SimulatedWorker] = []
        self.jobs: list[tuple[Site, SimulatedJob]] = []
        self.trace: list[str] = []

    def note(self, *words: object) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.clock.monotonic():.3f} " + " ".join(map(str, words)))

    def step(self, until: float) -> bool:
        """Run one of the ready workers, else advance the time, to `until` at most. Return False if nothing is left."""
        now = self.clock.monotonic()
        ready: list[SimulatedWorker | tuple[Site, SimulatedJob]] = [w for w in self.workers if w.is_ready(now)]
        ready += self.jobs
        if ready:
            chosen = ready[self.draw.randrange(len(ready))]
            if isinstance(chosen, SimulatedWorker):
                self.note(chosen.name)
                chosen.run()
            else:
                self.jobs.remove(chosen)
                self.note(chosen[1].name)
                with contextlib.suppress(Killed):
                    chosen[1].work()
                chosen[1].done = True
            return True
        if now >= until:
            return False
        sleeping = [due for due in (worker.sleeps_until() for worker in self.workers) if due is not None]
        self.clock.advance(max(0.0, min([until, *sleeping]) - now))
        return True

    def run_for(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass, with all that happens meanwhile."""
        until = self.clock.monotonic() + seconds
        while not enough() and self.step(until):
            pass

    def run_until(self, enough: Callable[[], bool], seconds_max: float = 3600.0) -> None:
        """Runs until something is the case; Stuck when it is not within an hour of the clock."""
        self.run_for(seconds_max, enough)
        if not enough():
            raise Stuck(f"seed {self.seed}: nobody does what is waited for")
