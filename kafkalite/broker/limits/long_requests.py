"""Run requests that take too long for a network thread, on one dedicated thread and in portions.

    1  submit(connection, job)    adds the job to the connection's *strand*: its long requests, in order
    2  strands wait for a turn, in one queue per holder; the holders take turns
    3  the dedicated thread runs the first job of the strand whose turn it is
    4  if its handler may wait for a disk, the handler runs on the I/O pool: one job at a time, and holders take turns
    5  when the job is done, the strand's next job waits for its turn

While a connection has a strand, its later requests are submitted here, too, even short ones. So the requests of one
connection take effect in order.

Thread rule: a connection's network worker calls `submit`. While the connection has jobs on the I/O pool, only the pool
calls `submit`. Any thread may call `has_jobs`, `finish` and `close`. `_lock` is a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from kafkalite._native.serve.connection import InlineShare
from kafkalite.base.logging import RepeatLogger
from kafkalite.base.shortage import run_to_end
from kafkalite.broker.limits.collector import OLD_OBJECTS
from kafkalite.broker.limits.holder import Holder, holder_of
from kafkalite.broker.limits.pace import Pace, Peer, Stopped, has_gone, run_with

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    Work = Callable[[Pace], "Work | None"]
    """A step of a request. It returns what is left to do on the I/O pool, or None."""

logger = RepeatLogger(logging.getLogger("kafkalite.broker.limits"))


class Client(Peer, Protocol):
    """The parts of a connection that long requests need."""

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...


class Submitter(Protocol):
    """The parts of the I/O pool that long requests need."""

    def submit_ordered(self, key: Hashable, job: Callable[..., object], *args: object) -> None: ...


class Job(Protocol):
    """A long request."""

    def run(self, pace: Pace) -> Work | None:
        """Serve the request; return work that is left for the I/O pool, or None."""

    def drop(self) -> None:
        """End the request without a response, because its client has disconnected or the broker stops."""


class _Strand:
    """One connection's jobs, or one job that completes an earlier request. The first waits for its turn or runs."""

    __slots__ = ("client", "holder", "jobs", "runs", "work")

    def __init__(self, client: Client, holder: Holder) -> None:
        self.client = client
        self.holder = holder
        self.jobs: deque[Job] = deque()
        self.runs = False  # whether the first job runs
        self.work: Work | None = None  # the first job's work that is left for the I/O pool


class _Turns:
    """The strands that wait for a turn, in one queue per holder. The holders take turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Holder, deque[_Strand]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, strand: _Strand) -> None:
        self._queues.setdefault(strand.holder, deque()).append(strand)

    def take(self) -> _Strand:
        holder, queue = self._queues.popitem(last=False)
        strand = queue.popleft()
        if queue:
            self._queues[holder] = queue  # after all other holders
        return strand


class LongRequests:
    """Runs long requests on a thread, which the first long request starts."""

    def __init__(self, pool: Submitter) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self.strands: dict[Client, _Strand] = {}
        """Connection → its jobs here; connections without jobs have no entry."""
        self._completing: set[_Strand] = set()  # those of `finish`
        self._turns = _Turns()
        self._disk_turns = _Turns()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._shares: WeakValueDictionary[Holder, InlineShare] = WeakValueDictionary()
        self._disk_pace = Pace(self._stops)
        self.served_count = 0
        """The number of long requests that have ended."""

    def has_jobs(self, client: Client) -> bool:
        """Return whether requests of this connection wait or run here."""
        return client in self.strands

    @property
    def waiting_count(self) -> int:
        """The number of long requests that wait or run."""
        with self._lock:
            return sum(len(strand.jobs) for strand in self._all_locked())

    def share_of(self, client: Client) -> InlineShare:
        """Return the InlineShare of this client's holder, which all connections of the holder use."""
        return self._shares.setdefault(holder_of(client.principal, client.client_host), InlineShare())

    def submit(self, client: Client, job: Job) -> None:
        """Run a job after all earlier jobs of this connection."""
        with self._ready:
            dropped = self._stopping
            if not dropped:
                strand = self.strands.get(client)
                if strand is None:
                    holder = holder_of(client.principal, client.client_host)
                    strand = _Strand(client, holder)
                    self._begin_locked(strand)  # may raise MemoryError for the thread
                    self.strands[client] = strand
                strand.jobs.append(job)
        if dropped:
            job.drop()

    def finish(self, client: Client, job: Job) -> None:
        """Run a job that completes an earlier request of this connection.

        It waits for its holder's turn, and not for other jobs of the connection.
        """
        strand = _Strand(client, holder_of(client.principal, client.client_host))
        strand.jobs.append(job)
        with self._ready:
            dropped = self._stopping
            if not dropped:
                self._begin_locked(strand)
                self._completing.add(strand)
        if dropped:
            job.drop()

    def close(self, timeout_s: float) -> bool:
        """Stop the running job at its next checkpoint, and drop the waiting jobs.

        Return False if the running job did not stop in time.
        """
        with self._ready:
            self._stopping = True
            self._ready.notify_all()
            jobs = [job for strand in self._all_locked() for job in list(strand.jobs)[strand.runs :]]
            thread = self._thread
        for job in jobs:
            job.drop()
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _stops(self) -> bool:
        return self._stopping

    def _all_locked(self) -> list[_Strand]:
        return [*self.strands.values(), *self._completing]

    def _begin_locked(self, strand: _Strand) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="kafkalite-long", daemon=True)
            thread.start()
            self._thread = thread
        self._turns.add(strand)
        self._ready.notify()

    def _run(self) -> None:
        pace, collector = Pace(self._stops), _Collector()
        run_to_end(lambda: self._serve(pace, collector))

    def _serve(self, pace: Pace, collector: _Collector) -> None:
        while True:
            with self._ready:
                if not self._turns and not self._stopping:
                    collector.resume()
                    while not self._turns and not self._stopping:
                        self._ready.wait()
                    pace.resume()
                if self._stopping:
                    collector.resume()
                    return
                strand = self._turns.take()
                strand.runs = True
            collector.spare_old_objects()
            pace.begin(strand.client)
            self._step(strand, strand.jobs[0], strand.jobs[0].run, pace)
            del strand

    def _step(self, strand: _Strand, job: Job, work: Work, pace: Pace) -> None:
        """Run one step of a strand's first job; then schedule its next step, or the next job."""
        left: Work | None = None
        try:
            if has_gone(strand.client):
                job.drop()
            else:
                left = run_with(pace, work)
        except Stopped:
            job.drop()
        except Exception:
            logger.exception("a long request failed")
            job.drop()
        finally:
            pace.end()
        with self._ready:
            stopping = self._stopping
            strand.runs = False
            if left is not None and not stopping:
                strand.work = left
                self._disk_turns.add(strand)
            else:
                self._next_locked(strand)
        if left is None:
            return
        if stopping:
            job.drop()
        else:
            self._submit_to_pool(strand)

    def _next_locked(self, strand: _Strand) -> None:
        """Remove a strand's completed job, and let the next job wait for its turn."""
        self.served_count += 1
        strand.jobs.popleft()
        if strand.jobs:
            self._begin_locked(strand)
        elif self.strands.get(strand.client) is strand:
            del self.strands[strand.client]
        else:
            self._completing.discard(strand)

    def _submit_to_pool(self, strand: _Strand) -> None:
        OLD_OBJECTS.spare()  # until the pool has served the request, even if this thread calls `resume`
        try:
            self._pool.submit_ordered(self, self._run_on_pool)
        except RuntimeError:  # the pool is closed: the broker stops
            OLD_OBJECTS.resume()
            strand.jobs[0].drop()

    def _run_on_pool(self) -> None:
        """Take one turn on the I/O pool. The pool runs jobs with the same key one after another."""
        try:
            self._take_disk_turn()
        finally:
            OLD_OBJECTS.resume()

    def _take_disk_turn(self) -> None:
        with self._ready:
            if self._stopping or not self._disk_turns:
                return
            strand = self._disk_turns.take()
            strand.runs = True
        work, strand.work = strand.work, None
        assert work is not None, "it waits for the pool"
        pace = self._disk_pace
        pace.resume()
        pace.begin(strand.client)
        self._step(strand, strand.jobs[0], work, pace)
        pace.rest()  # also for time spent on the disk, since short requests wait for the same disk


class _Collector:
    """Calls `OldObjects` only once for requests of the thread that follow one another without a break."""

    def __init__(self) -> None:
        self._spares = False

    def spare_old_objects(self) -> None:
        """Exclude old objects from collections until `resume`."""
        if not self._spares:
            self._spares = True
            OLD_OBJECTS.spare()

    def resume(self) -> None:
        """Include old objects in collections again, unless other requests still exclude them."""
        if self._spares:
            self._spares = False
            OLD_OBJECTS.resume()
