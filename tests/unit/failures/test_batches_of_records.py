"""Handlers that take a list: what they get, how a batch that fails is split, and what is written together."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite import failures
from kafkalite.failures.events import (
    Arrival,
    Assigned,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    FinishedTogether,
    Message,
    Outcome,
    Output,
    Run,
    RunEnded,
    Start,
    Transact,
    TransactionEnded,
)
from kafkalite.failures.lanes import PartitionLane
from kafkalite.failures.moves import choose
from kafkalite.failures.policy import Policy
from kafkalite.failures.run_progress import BatchResult, BatchWork, parted
from kafkalite.failures.session import Session
from kafkalite.failures.times import Moment
from kafkalite.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPICS = failures.RetryTopics(["1 s"])
HERE = failures.RetryHere(2, "1 s")


def records(count: int, keys: int = 3) -> list[Message]:
    return [Message("orders", 0, number, 0, b"k%d" % (number % keys), b"%d" % number) for number in range(count)]


def numbers(found: list[Message]) -> list[int]:
    return [int(record.value or b"") for record in found]


def batched(work: Callable[..., None], *, is_async: bool = False, **options: Any) -> failures.Handler[..., Any]:
    async def coroutine(*arguments: Any) -> None:
        await asyncio.sleep(0)
        work(*arguments)

    async def one(orders: list[Message]) -> None:
        await coroutine(orders)

    async def two(orders: list[Message], transaction: failures.Transaction) -> None:
        await coroutine(orders, transaction)

    takes = work.__code__.co_argcount
    function = (one if takes == 1 else two) if is_async else work
    given = {"topics": "orders", "group": "billing", "strategy": TOPICS, "batch": 100, **options}
    return failures.handler(**given)(function)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("count", [1, 4, 100])
def test_records_come_in_lists_of_at_most_so_many(count: int, is_async: bool) -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message]) -> None:
        calls.append(numbers(orders))

    tried = batched(work, is_async=is_async, batch=count).try_records(records(10))
    assert [number for call in calls for number in call] == list(range(10))
    assert {len(call) for call in calls[:-1]} <= {count}
    assert numbers(tried.processed) == list(range(10))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({}, [0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 5]),
        ({"strategy": HERE}, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]),
        ({"order": "key"}, [0, 1, 2, 3, 4, 6, 9, 10, 5, 8, 11]),
    ],
    ids=["no order", "in place", "by key"],
)
def test_only_the_failing_records_of_a_batch_are_retried(
    options: dict[str, Any], order: list[int], is_async: bool
) -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message], transaction: failures.Transaction) -> None:
        calls.append(numbers(orders))
        for record in orders:
            transaction.send("out", record.value)
            if record.value == b"5" and not record.attempt:
                raise RuntimeError("not yet")
            if record.value == b"7":
                raise failures.Failed("never", "fatal")

    tried = batched(work, is_async=is_async, **options).try_records(records(12))
    assert [call for call in calls if 5 in call][-2:] == [[5], [5]]  # it failed alone, and was retried alone
    assert numbers(tried.processed) == order
    assert numbers([one.record for one in tried.retried]) == [5]
    assert numbers([one.record for one in tried.dead_lettered]) == [7]
    assert sorted(int(one.value or b"") for one in tried.sent) == sorted(order)


@pytest.mark.parametrize("is_async", [False, True])
def test_named_records_fail_and_the_others_are_not_handled_again(is_async: bool) -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message]) -> None:
        calls.append(numbers(orders))
        bad = {place: LookupError(f"no {one.value!r}") for place, one in enumerate(orders) if one.value in {b"2", b"5"}}
        if bad:
            raise failures.BatchFailed(bad)

    tried = batched(work, is_async=is_async, fatal=LookupError).try_records(records(8))
    assert calls == [list(range(8))]
    assert numbers(tried.processed) == [0, 1, 3, 4, 6, 7]
    assert [(one.failure.name, one.failure.text) for one in tried.dead_lettered] == [
        ("LookupError", "no b'2'"),
        ("LookupError", "no b'5'"),
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"strategy": HERE}, [[0, 1, 2, 3, 4, 5], [2], [3, 4, 5]]),
        ({"order": "key"}, [[0, 1, 2, 3, 4, 5], [2], [5]]),
    ],
    ids=["in place", "by key"],
)
def test_what_must_follow_a_named_record_is_handled_again(options: dict[str, Any], wanted: list[list[int]]) -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message]) -> None:
        calls.append(numbers(orders))
        if len(calls) == 1:
            raise failures.BatchFailed({2: RuntimeError()})

    tried = batched(work, **options).try_records(records(6))
    assert calls == wanted
    assert sorted(numbers(tried.processed)) == list(range(6))


def test_with_a_transaction_named_records_are_called_apart_since_nobody_knows_whose_outputs_are_whose() -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message], transaction: failures.Transaction) -> None:
        calls.append(numbers(orders))
        bad = {}
        for place, record in enumerate(orders):
            transaction.send("out", record.value)
            if record.value == b"2":
                bad[place] = RuntimeError()
        if bad:
            raise failures.BatchFailed(bad)

    tried = batched(work, strategy=failures.RetryHere(1)).try_records(records(5))
    assert calls == [[0, 1, 2, 3, 4], [0, 1], [2], [3, 4]]
    assert [one.value for one in tried.sent] == [b"0", b"1", b"3", b"4"]


@pytest.mark.parametrize("places", [{}, {3: RuntimeError()}, {-1: RuntimeError()}])
def test_names_of_records_that_are_none_are_a_failure_of_the_call(places: dict[int, BaseException]) -> None:
    def work(orders: list[Message]) -> None:
        raise failures.BatchFailed(places)

    tried = batched(work, strategy=failures.RetryHere(1)).try_records(records(2))
    assert [one.failure.name for one in tried.dead_lettered] == ["IndexError"] * 2
    assert f"the records {[*places]} of a batch of 1" in tried.dead_lettered[0].failure.text


@pytest.mark.parametrize(("strategy", "calls"), [(TOPICS, [[0, 1, 3]]), (HERE, [[0, 1], [3]])])
def test_a_value_that_cannot_be_decoded_fails_alone_and_without_a_call(strategy: Any, calls: list[list[int]]) -> None:
    seen: list[list[Any]] = []
    bill = batched(lambda orders: seen.append([record.value for record in orders]), strategy=strategy, decode=int)
    tried = bill.try_records([b"0", b"1", b"x", b"3"])
    assert seen == calls
    assert [one.record.value for one in tried.dead_lettered] == [b"x"]


def test_an_outage_is_one_of_the_whole_batch_and_uses_no_attempt_up() -> None:
    calls: list[list[int]] = []

    def work(orders: list[Message]) -> None:
        calls.append(numbers(orders))
        if len(calls) < 3:
            raise ConnectionError

    tried = batched(work, outage=ConnectionError).try_records(records(6))
    assert [len(call) for call in calls[:3]] == [6, 1, 1]  # the batch, then one record that probes
    assert sorted(number for call in calls[2:] for number in call) == list(range(6))
    assert not tried.dead_lettered


def test_a_coroutine_of_a_def_and_the_end_of_a_program() -> None:
    async def later(orders: list[Message]) -> None: ...

    def work(orders: list[Message]) -> Any:
        return later(orders)

    (dead,) = batched(work, strategy=failures.RetryHere(1)).try_records(records(1)).dead_lettered
    assert "declare it with async def" in dead.failure.text

    def end(orders: list[Message]) -> None:
        raise SystemExit(3)

    for is_async in (False, True):
        with pytest.raises(SystemExit):
            batched(end, is_async=is_async).try_records(records(3))


def test_an_async_batch_that_takes_too_long_is_cancelled_and_split() -> None:
    calls: list[list[int]] = []

    @failures.handler(topics="orders", group="billing", strategy=failures.RetryHere(1), batch=10, processing_time_max=1)
    async def bill(orders: list[Message]) -> None:
        calls.append(numbers(orders))
        if 1 in numbers(orders):
            await asyncio.sleep(3600)

    tried = bill.try_records(records(3))
    assert [one.failure.name for one in tried.dead_lettered] == ["TimeoutError"]
    assert numbers(tried.processed) == [0, 2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch": -1}, "batch must be a whole number from 0 to 500, not -1"),
        ({"batch": 501}, "batch must be a whole number from 0 to 500"),
        ({"batch": "100"}, "not '100'"),
        ({"batch": 11, "ahead_max": 10}, "batch must be at most ahead_max (10), not 11"),
    ],
)
def test_a_size_that_cannot_be_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        failures.handler(topics="orders", group="billing", retry=["1 s"], **options)
    assert error in str(caught.value)
    with pytest.raises(TypeError, match=r"RetryTopics has no batch; it belongs to Policy and @failures.handler"):
        failures.RetryTopics(["1 s"], batch=3)  # type: ignore[call-arg]


# --- splitting --------------------------------------------------------------------------------------------------------


class Plain:
    with_transaction = False

    def prepared(self, message: Message) -> Message:
        return message


@pytest.mark.parametrize("failing", [[0], [63], [17, 18], [3, 40, 41, 59], [], list(range(64))])
def test_a_batch_is_halved_until_each_failing_record_is_alone(failing: list[int]) -> None:
    work = BatchWork(Run(ORDERS, 1, tuple(records(64)), 64), Plain(), 64)
    calls, events = 0, []
    while batch := work.next():
        calls += 1
        bad = any(one.offset in failing for one in batch)
        work.ended(BatchResult(failure=Failure(FailureKind.RETRIABLE, "RuntimeError") if bad else None))
        events += work.take()
    assert sorted(one.offset for one in events if isinstance(one, Finished)) == list(range(64))
    assert [one.offset for one in events if isinstance(one, Finished) and one.outcome.failure is not None] == failing
    assert calls <= max(1, 13 * len(failing))


def test_records_noted_as_in_hand_are_handled_one_at_a_time() -> None:
    run = Run(ORDERS, 1, tuple(records(3)), 3, marks=(None, None, None))
    work = BatchWork(run, Plain(), 100)
    sizes = []
    while batch := work.next():
        sizes.append(len(batch))
        work.ended(BatchResult())
    assert sizes == [1, 1, 1]


def test_named_places_part_a_batch() -> None:
    found = [numbers(part) for part in parted(records(7), {0: 1, 3: 1, 4: 1})]
    assert found == [[0], [1, 2], [3], [4], [5, 6]]


# --- written together -------------------------------------------------------------------------------------------------


def running(order: str, **options: Any) -> tuple[Session, Run]:
    policy = Policy(group="billing", topics=["orders"], strategy=TOPICS, order=order, batch=8, **options)
    session = Session(policy, member="m", nonce="n", draw=lambda: 0.0)
    places = [TopicPartition(topic, 0) for topic in policy.layout.lanes]
    actions = session.on(Assigned({place: Start(0, 0, 0) for place in places}, {}, {}), Moment(0, 0.0))
    for action in actions:
        if isinstance(action, Transact):
            session.on(TransactionEnded(action.number), Moment(0, 0.0))
    arrivals = [Arrival(message) for message in records(8, keys=2)]
    (run,) = [one for one in session.on(Fetched(ORDERS, arrivals, 8), Moment(0, 0.0)) if isinstance(one, Run)]
    return session, run


def lane_of(session: Session) -> PartitionLane:
    return session._lanes[ORDERS]


OUTPUT = (Output("out", 0, None, b"all of them"),)


def test_what_a_call_sent_is_committed_with_all_of_its_records() -> None:
    session, run = running("none")
    session.on(FinishedTogether(ORDERS, run.number, (0, 1, 2), OUTPUT), Moment(0, 0.0))
    lane = lane_of(session)
    assert [item.offset for item in choose(lane, 500)] == [0, 1, 2]
    assert choose(lane, 2) == []
    (transact,) = [
        one for one in session.on(RunEnded(ORDERS, run.number), Moment(0, 100.0)) if isinstance(one, Transact)
    ]
    assert [put.message.value for put in transact.puts] == [b"all of them"]
    assert transact.offsets[ORDERS] == 3


def test_a_call_waits_for_a_record_between_its_own() -> None:
    session, run = running("key")
    session.on(FinishedTogether(ORDERS, run.number, (0, 2, 4), OUTPUT), Moment(0, 0.0))
    lane = lane_of(session)
    assert choose(lane, 500) == []
    failure = Failure(FailureKind.RETRIABLE, "RuntimeError")
    session.on_all(
        [
            Finished(ORDERS, run.number, 1, Outcome(failure)),
            Finished(ORDERS, run.number, 3, Outcome(failure)),
        ],
        Moment(0, 0.0),
    )
    assert [item.offset for item in choose(lane, 500)] == [0, 1, 2, 3, 4]


def test_outcomes_of_a_partition_that_went_are_nothing() -> None:
    session, run = running("none")
    session.on(FinishedTogether(TopicPartition("orders", 9), 1, (0,), OUTPUT), Moment(0, 0.0))
    session.on(FinishedTogether(ORDERS, run.number + 1, (0, 1), OUTPUT), Moment(0, 0.0))
    assert choose(lane_of(session), 500) == []
