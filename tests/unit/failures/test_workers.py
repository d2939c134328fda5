"""Async handlers as tasks: how many run at a time, in which order, and what a cancellation leaves."""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from kafkalite.failures.calls import Caller
from kafkalite.failures.events import Event, FailureKind, Finished, Mark, Message, Run, RunEnded
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryTopics
from kafkalite.failures.rows import Row, State
from kafkalite.failures.workers import EventLoopThread, TaskWorkers
from kafkalite.model import TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
POLICY = Policy(group="billing", topics=["orders"], strategy=RetryTopics(["1 s"]), outage=[ConnectionError])
MANY = 64
TIMEOUT_S = 60.0


@pytest.fixture
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread()
    yield thread
    thread.close()


class Member:
    """Workers, and what they report until a run has ended."""

    def __init__(
        self, handler: Callable[[Message], Awaitable[object]], count: int, loop: EventLoopThread | None = None
    ) -> None:
        self.marked: list[str] = []
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.workers = TaskWorkers(
            Caller(POLICY, handler), count, self._bell, lambda key, row: self.marked.append(key), loop and loop.loop
        )

    def run(self, *runs: Run) -> list[Event]:
        for run in runs:
            self.workers.start(run)
        return self.wait(len(runs))

    def wait(self, count: int = 1) -> list[Event]:
        for _ in range(count):
            self._bell.get(timeout=TIMEOUT_S)
        return self.workers.results()


def run_of(
    count: int,
    failures_max: int = MANY,
    *,
    partition: TopicPartition = ORDERS,
    keys: int = 0,
    marks: tuple[Mark | None, ...] = (),
) -> Run:
    """Numbered records; with `keys`, so many different ones."""
    messages = [
        Message(*partition, offset, 0, b"k%d" % (offset % keys) if keys else None, b"%d" % offset)
        for offset in range(count)
    ]
    return Run(partition, 1 + partition.partition, tuple(messages), failures_max, bool(keys), marks)


def offsets(events: list[Event], *, failed: bool | None = None) -> list[int]:
    return [
        event.offset
        for event in events
        if isinstance(event, Finished) and failed in {None, event.outcome.failure is not None}
    ]


def test_as_many_records_overlap_as_there_are_workers_over_all_partitions() -> None:
    running, most = 0, 0

    async def handle(record: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    member = Member(handle, 5)
    events = member.run(run_of(40), run_of(40, partition=OTHERS))
    member.workers.close()
    assert Counter(offsets(events)) == dict.fromkeys(range(40), 2)
    assert most == 5


@pytest.mark.parametrize(("count", "failures_max"), [(1, MANY), (8, 1)])
def test_records_of_a_partition_are_in_order_with_one_worker_or_a_policy_that_keeps_it(
    count: int, failures_max: int
) -> None:
    begun: list[int] = []

    async def handle(record: Message) -> None:
        begun.append(record.offset)
        await asyncio.sleep(0)
        assert begun[-1] == record.offset

    member = Member(handle, count)
    events = member.run(run_of(20, failures_max))
    member.workers.close()
    assert begun == offsets(events, failed=False) == list(range(20))


def test_records_of_a_key_never_overlap_and_stop_at_its_first_failure() -> None:
    running: Counter[bytes | None] = Counter()

    async def handle(record: Message) -> None:
        running[record.key] += 1
        assert running[record.key] == 1
        await asyncio.sleep(0.001)
        running[record.key] -= 1
        if record.offset == 4:
            raise RuntimeError

    member = Member(handle, 8)
    events = member.run(run_of(20, keys=3))
    member.workers.close()
    assert offsets(events, failed=True) == [4]
    assert sorted(offsets(events)) == [offset for offset in range(20) if offset % 3 != 1 or offset <= 4]


def test_an_outage_or_the_last_failure_begins_no_more_records() -> None:
    async def handle(record: Message) -> None:
        await asyncio.sleep(0)
        raise ConnectionError if record.offset == 3 else RuntimeError

    for count in (1, 2):
        member = Member(handle, count)
        events = member.run(run_of(40, 10))
        member.workers.close()
        assert 4 <= len(offsets(events)) <= 4 + count
    member = Member(handle, 2)
    events = member.run(run_of(40, 2))
    member.workers.close()
    assert 2 <= len(offsets(events, failed=True)) <= 3


def test_marked_records_are_handled_one_at_a_time_each_behind_its_mark() -> None:
    order: list[str] = []

    async def handle(record: Message) -> None:
        order.append(f"{len(member.marked)}")

    marks = tuple(Mark(f"hand-{place}", Row(State.OPEN)) if place % 2 == 0 else None for place in range(6))
    member = Member(handle, 8)
    events = member.run(run_of(6, marks=marks))
    member.workers.close()
    assert order == ["1", "1", "2", "2", "3", "3"]
    assert [event.each_ms >= 0 for event in events if isinstance(event, RunEnded)] == [True]


def test_a_withdrawn_run_ends_behind_the_records_in_hand() -> None:
    member: Member
    release = threading.Event()

    async def handle(record: Message) -> None:
        await asyncio.to_thread(release.wait, TIMEOUT_S)

    member = Member(handle, 3)
    member.workers.start(run_of(40))
    while len(member.workers.since) < 3:
        pass
    member.workers.withdraw(ORDERS)
    release.set()
    assert sorted(offsets(member.wait())) == [0, 1, 2]
    member.workers.close()


@pytest.mark.parametrize("count", [1, 4])
def test_a_cancellation_leaves_records_without_an_outcome(loop: EventLoopThread, count: int) -> None:
    ended: list[int] = []

    async def handle(record: Message) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if record.offset == 0:
                raise RuntimeError("a handler that hides its cancellation") from None
            raise
        finally:
            ended.append(record.offset)

    member = Member(handle, count, loop)
    member.workers.start(run_of(40))
    while len(member.workers.since) < count:
        pass
    member.workers.cancel()
    assert [type(event) for event in member.wait()] == [RunEnded]
    assert sorted(ended) == list(range(count))
    assert [type(event) for event in member.run(run_of(3, partition=OTHERS))] == [RunEnded]  # nothing begins after it
    member.workers.close()
    assert not loop.call(others())


async def others() -> set[str]:
    """Tasks of the loop that handle something."""
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("failures-")}


def test_a_cancelled_error_and_a_time_limit_of_the_handler_are_failures() -> None:
    async def handle(record: Message) -> None:
        if record.offset == 0:
            raise asyncio.CancelledError
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)

    member = Member(handle, 2)
    events = member.run(run_of(2))
    member.workers.close()
    found = [event.outcome.failure for event in events if isinstance(event, Finished) and event.outcome.failure]
    assert {(one.name, one.kind) for one in found} == {
        ("asyncio.exceptions.CancelledError", FailureKind.RETRIABLE),
        ("TimeoutError", FailureKind.RETRIABLE),
    }


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_program_does_not_stop_the_loop(
    loop: EventLoopThread, count: int, error: type[BaseException]
) -> None:
    async def handle(record: Message) -> None:
        if record.offset == 2:
            raise error

    member = Member(handle, count, loop)
    events = member.run(run_of(40))
    assert isinstance(member.workers.failure, error)
    assert {0, 1} <= set(offsets(events)) <= {0, 1, 3}
    member.workers.close()
    assert not loop.call(others())


def test_a_closed_loop_of_the_program_is_no_error() -> None:
    async def handle(record: Message) -> None: ...

    theirs = EventLoopThread()
    member = Member(handle, 1, theirs)
    theirs.close()
    member.workers.cancel()
    member.workers.close()
