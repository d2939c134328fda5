"""Run sync handlers in threads and async handlers as tasks of one event loop, while the client is polled.

    ThreadWorkers   the next free thread handles a run
    TaskWorkers     a task of the event loop handles a run
    results         outcomes of records, then RunEnded; at the end of a run, the bell wakes the runner

A run is a sequence of records of one partition.

Thread rule: public methods belong to the runner's thread, except `cancel`. That thread reads `since` and `failure`
while handlers run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import ChainMap, deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kafkalite.failures.batch_calls import BatchCaller
from kafkalite.failures.events import Finished, RunEnded
from kafkalite.failures.run_progress import BatchWork, RunProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from kafkalite.failures.calls import Caller
    from kafkalite.failures.events import Event, Mark, Message, Outcome, Run
    from kafkalite.failures.rows import Row
    from kafkalite.model import TopicPartition

CANCEL_WAIT_S: Final = 10.0
"""How long cancelled handlers may take to end."""

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class Workers(ABC):
    """Base of both kinds of workers. At most `count` handlers run at a time. `mark` writes a mark to the ledger.

    `bell` wakes the runner once per run. To wake it for each record would slow down the workers.
    """

    def __init__(
        self, caller: Caller, count: int, bell: queue.SimpleQueue[None], mark: Callable[[str, Row], None]
    ) -> None:
        self._caller = caller
        self._count = count
        self._bell = bell
        self._mark = mark
        self._results: deque[Event] = deque()
        self.running: dict[TopicPartition, Run] = {}
        """Runs whose end the runner's thread has not processed."""
        self.since: dict[tuple[TopicPartition, int], float] = {}
        """Records in a handler, by partition and offset, with the start of the call (monotonic s)."""
        self._withdrawn: set[int] = set()
        self.failure: BaseException | None = None
        """The handler's exception that ends the member. No record is handled after it."""

    def start(self, run: Run) -> None:
        """Pass the run to a worker."""
        self.running[run.partition] = run
        self._begin(run)

    @abstractmethod
    def _begin(self, run: Run) -> None: ...

    def withdraw(self, partition: TopicPartition) -> None:
        """Start no more records of this partition."""
        run = self.running.get(partition)
        if run is not None:
            self._withdrawn.add(run.number)

    def ended(self, event: RunEnded) -> None:
        """Forget a run, after the runner has processed its end."""
        if (run := self.running.get(event.partition)) is not None and run.number == event.run:
            del self.running[event.partition]
        self._withdrawn.discard(event.run)

    def results(self) -> list[Event]:
        """Return the outcomes of records and ends of runs since the last call."""
        found: list[Event] = []
        while self._results:
            found.append(self._results.popleft())
        return found

    def cancel(self) -> None:  # noqa: B027  # threads cannot be cancelled
        """Cancel the handlers that can be cancelled. Their records get no outcome. Any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """End the workers that run no handler at the moment."""

    def _is_over(self, run: Run) -> bool:
        """Return whether no further record of the run may begin."""
        return run.number in self._withdrawn or self.failure is not None

    def _finish(self, run: Run, message: Message, outcome: Outcome) -> None:
        self._results.append(Finished(run.partition, run.number, message.offset, outcome))

    def _end(self, run: Run, each_ms: float) -> None:
        self._results.append(RunEnded(run.partition, run.number, each_ms))
        self._bell.put(None)

    @contextlib.contextmanager
    def _watched(self, run: Run, message: Message) -> Iterator[None]:
        key = (run.partition, message.offset)
        self.since[key] = time.monotonic()
        try:
            yield
        finally:
            del self.since[key]


class ThreadWorkers(Workers):
    """Threads for sync handlers. Each handles one run at a time, and the records of a run in order."""

    def __init__(
        self, caller: Caller, count: int, bell: queue.SimpleQueue[None], mark: Callable[[str, Row], None]
    ) -> None:
        super().__init__(caller, count, bell, mark)
        self._jobs: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"failures-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _begin(self, run: Run) -> None:
        self._jobs.put(run)

    def close(self) -> None:
        """End the idle threads. A thread that runs a handler ends after the handler."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (run := self._jobs.get()) is not None:
            each_ms = 0.0
            try:
                each_ms = self._handle(run)
            except BaseException as error:  # noqa: BLE001  # for the thread of `run`, which raises it
                self.failure = self.failure or error
            self._end(run, each_ms)

    def _handle(self, run: Run) -> float:
        """Handle the records of a run in order. Return the mean time per record in ms, for a run with marks."""
        if isinstance(self._caller, BatchCaller):
            return self._handle_batches(run, self._caller)
        progress, handled_s = RunProgress(run), 0.0
        for place, message in enumerate(run.messages):
            if progress.over or self._is_over(run):
                break
            if progress.skips(message):
                continue
            if run.marks and (mark := run.marks[place]) is not None:
                self._mark(mark.key, mark.row)
            begun = time.monotonic()
            key = (run.partition, message.offset)
            self.since[key] = begun  # not with _watched: this is the fast path of every record
            try:
                outcome = self._caller(message)
            finally:
                del self.since[key]
            if run.marks:
                handled_s += time.monotonic() - begun
            self._finish(run, message, outcome)
            if outcome.failure is not None:
                progress.fail(message, outcome.failure)
        return 1000 * handled_s / len(run.messages)

    def _handle_batches(self, run: Run, caller: BatchCaller) -> float:
        work, handled_s = BatchWork(run, caller, caller.size), 0.0
        while not self._is_over(run) and (records := work.next()):
            self._results.extend(work.take())
            if (mark := mark_of(run, work.batch[0])) is not None:
                self._mark(mark.key, mark.row)
            begun = time.monotonic()
            with self._watched(run, work.batch[0]):
                result = caller.call_batch(records)
            handled_s += time.monotonic() - begun
            work.ended(result)
        self._results.extend(work.take())
        return 1000 * handled_s / len(run.messages) if run.marks else 0.0


def mark_of(run: Run, message: Message) -> Mark | None:
    """Return the mark to write to the ledger before this record of a run is handled, or None."""
    return run.marks[run.messages.index(message)] if run.marks else None


class DividedWorkers:
    """Separate workers for the handler and the dead-letter handler, so that neither delays the other.

    The class has the methods and attributes of Workers. `is_dead` returns whether a partition contains dead letters.
    """

    def __init__(self, own: Workers, dead: Workers, is_dead: Callable[[TopicPartition], bool]) -> None:
        self._both = (own, dead)
        self._is_dead = is_dead

    def _of(self, partition: TopicPartition) -> Workers:
        return self._both[self._is_dead(partition)]

    @property
    def running(self) -> Mapping[TopicPartition, Run]:
        return ChainMap(*(one.running for one in self._both))

    @property
    def since(self) -> Mapping[tuple[TopicPartition, int], float]:
        return {key: since for one in self._both for key, since in list(one.since.items())}

    @property
    def failure(self) -> BaseException | None:
        return next((one.failure for one in self._both if one.failure is not None), None)

    def start(self, run: Run) -> None:
        self._of(run.partition).start(run)

    def withdraw(self, partition: TopicPartition) -> None:
        self._of(partition).withdraw(partition)

    def ended(self, event: RunEnded) -> None:
        self._of(event.partition).ended(event)

    def results(self) -> list[Event]:
        return [event for one in self._both for event in one.results()]

    def cancel(self) -> None:
        for one in self._both:
            one.cancel()

    def close(self) -> None:
        """Close the dead-letter handler's workers first: they may use the event loop of the others."""
        for one in reversed(self._both):
            one.close()


class EventLoopThread:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[asyncio.AbstractEventLoop] = queue.SimpleQueue()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="failures-loop", daemon=True)
        self._thread.start()
        self.loop = self._ready.get()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._ready.put(asyncio.get_running_loop())
        await self._over.wait()

    def call(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what the coroutine returns, or raise what it raises. SystemExit does not stop the loop."""

        async def guarded() -> tuple[Result | None, BaseException | None]:
            try:
                return await work, None
            except BaseException as error:  # noqa: BLE001  # raised in the thread of the caller
                return None, error

        found, error = asyncio.run_coroutine_threadsafe(guarded(), self.loop).result()
        if error is not None:
            raise error
        return cast("Result", found)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the loop.

        If a handler blocks the loop for CANCEL_WAIT_S, the thread is abandoned.
        """
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(CANCEL_WAIT_S)


class TaskWorkers(Workers):
    """Tasks for async handlers, in `loop`, or in the loop of a thread started for them.

    A task handles up to `count` records of a run at a time. It handles them in order if the run has batches or marks,
    or if it ends at the first failure.
    """

    def __init__(
        self,
        caller: Caller,
        count: int,
        bell: queue.SimpleQueue[None],
        mark: Callable[[str, Row], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(caller, count, bell, mark)
        self._own: EventLoopThread | None = None
        if loop is None:
            self._own = EventLoopThread()
            loop = self._own.loop
        self.loop = loop
        self._free = asyncio.Semaphore(count)
        self._tasks: set[asyncio.Task[float]] = set()
        self._cancelled = False

    def _begin(self, run: Run) -> None:
        self.loop.call_soon_threadsafe(self._start_task, run)

    def _start_task(self, run: Run) -> None:
        if self._cancelled:
            self._end(run, 0.0)
            return
        task = asyncio.get_running_loop().create_task(self._work(run), name=f"failures-{run.partition}")
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, run))

    def _done(self, run: Run, task: asyncio.Task[float]) -> None:
        """End a run, even if its task was cancelled before the task's first step."""
        self._tasks.discard(task)
        self._end(run, 0.0 if task.cancelled() else task.result())

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing runs in it
            self.loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self, ended: Future[None] | None = None) -> None:
        self._cancelled = True
        for task in self._tasks:
            task.cancel()
        if ended is not None:
            self._tell_when_ended(ended)

    def _tell_when_ended(self, ended: Future[None]) -> None:
        if self._tasks:
            next(iter(self._tasks)).add_done_callback(lambda _: self._tell_when_ended(ended))
        elif not ended.done():
            ended.set_result(None)

    def close(self) -> None:
        """Cancel the handlers that still run. Wait at most CANCEL_WAIT_S for their end."""
        ended: Future[None] = Future()
        try:
            self.loop.call_soon_threadsafe(self._cancel_all, ended)
            ended.result(CANCEL_WAIT_S)
        except RuntimeError:
            logger.info("the event loop of the handlers is closed")
        except NotYet:
            logger.warning("%d handlers still run %g s after they were cancelled", len(self._tasks), CANCEL_WAIT_S)
        if self._own is not None:
            self._own.close()

    # --- in the loop --------------------------------------------------------------------------------------------------

    async def _work(self, run: Run) -> float:
        """Handle a run. Catch SystemExit and KeyboardInterrupt, which would stop the event loop."""
        if isinstance(self._caller, BatchCaller):
            handled = self._in_batches(run, self._caller)
        else:
            overlaps = self._count > 1 and run.failures_max > 1 and not run.marks
            handled = self._overlapping(run) if overlaps else self._in_order(run)
        try:
            return await handled
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # for the thread of `run`, which raises it
            self.failure = self.failure or error
            return 0.0

    async def _in_order(self, run: Run) -> float:
        """Handle the records in order, as ThreadWorkers._handle does, but as a task."""
        progress, handled_s = RunProgress(run), 0.0
        for place, message in enumerate(run.messages):
            if progress.over or self._is_over(run):
                break
            if progress.skips(message):
                continue
            if run.marks and (mark := run.marks[place]) is not None:
                await asyncio.to_thread(self._mark, mark.key, mark.row)
            async with self._free:
                begun = time.monotonic()
                outcome = await self._handled(run, message)
                handled_s += time.monotonic() - begun
            if outcome.failure is not None:
                progress.fail(message, outcome.failure)
        return 1000 * handled_s / len(run.messages) if run.marks else 0.0

    async def _in_batches(self, run: Run, caller: BatchCaller) -> float:
        """Handle the batches in order, as ThreadWorkers._handle_batches does."""
        work, handled_s = BatchWork(run, caller, caller.size), 0.0
        while not self._is_over(run) and (records := work.next()):
            self._results.extend(work.take())
            if (mark := mark_of(run, work.batch[0])) is not None:
                await asyncio.to_thread(self._mark, mark.key, mark.row)
            async with self._free:
                begun = time.monotonic()
                with self._watched(run, work.batch[0]):
                    result = await caller.call_batch_async(records)
                handled_s += time.monotonic() - begun
            work.ended(result)
        self._results.extend(work.take())
        return 1000 * handled_s / len(run.messages) if run.marks else 0.0

    async def _overlapping(self, run: Run) -> float:
        """Handle up to `count` records at a time.

        With order by key, the records of a key are handled one after the other.
        """
        chains: dict[object, list[Message]] = {}
        for message in run.messages:
            key: object = message.key if run.by_key and message.key is not None else message.offset
            chains.setdefault(key, []).append(message)
        progress = RunProgress(run)

        async def follow(chain: list[Message]) -> None:
            for message in chain:
                async with self._free:
                    if progress.over or self._is_over(run):
                        return
                    try:
                        outcome = await self._handled(run, message)
                    except asyncio.CancelledError:
                        raise
                    except BaseException as error:  # noqa: BLE001  # a task that raises it would stop the loop
                        self.failure = self.failure or error
                        return
                if outcome.failure is not None:
                    progress.fail(message, outcome.failure)
                    return

        async with asyncio.TaskGroup() as group:
            for chain in chains.values():
                group.create_task(follow(chain))
        return 0.0

    async def _handled(self, run: Run, message: Message) -> Outcome:
        with self._watched(run, message):
            outcome = await self._caller.call(message)
        self._finish(run, message, outcome)
        return outcome
