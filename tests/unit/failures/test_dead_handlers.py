"""Dead-letter handlers: what they get, what their failures lead to, and where they are refused; in memory."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from kafkalite import failures
from kafkalite.failures.calls import Caller
from kafkalite.failures.dead_letters import DeadCaller, dead_letter_of
from kafkalite.failures.events import (
    Arrival,
    Assigned,
    FailureKind,
    Fetched,
    Finished,
    Letter,
    Message,
    Outcome,
    Run,
    RunEnded,
    Start,
    Transact,
    TransactionEnded,
)
from kafkalite.failures.names import Layout
from kafkalite.failures.rows import Row, State
from kafkalite.failures.session import Session
from kafkalite.failures.times import Moment
from kafkalite.failures.workers import DividedWorkers, ThreadWorkers
from kafkalite.model import TopicPartition

DEAD = TopicPartition("dlq.billing.orders", 0)


def fail(order: Message) -> None:
    if order.value != b"good":
        raise LookupError(f"no {order.value!r}")


async def fail_later(order: Message) -> None:
    await asyncio.sleep(0)
    fail(order)


def handled(function: Callable[..., Any] = fail, **options: Any) -> failures.Handler[..., Any]:
    return failures.handler(topics="orders", group="billing", **{"retry": ["1 s"], "fatal": LookupError, **options})(
        function
    )


@pytest.mark.parametrize("function", [fail, fail_later])
@pytest.mark.parametrize("is_async", [False, True])
def test_each_dead_letter_is_given_to_the_handler_once(function: Callable[..., Any], is_async: bool) -> None:
    bill = handled(function)
    letters: list[failures.DeadLetter] = []

    def work(letter: failures.DeadLetter, transaction: failures.Transaction) -> None:
        letters.append(letter)
        transaction.send("refunds", letter.record.value)
        if letter.record.value == b"x" and len(letters) == 1:
            raise ConnectionError("not now")

    async def coroutine(letter: failures.DeadLetter, transaction: failures.Transaction) -> None:
        await asyncio.sleep(0)
        work(letter, transaction)

    given = coroutine if is_async else work
    assert bill.dead(given) is given
    record = Message("orders", 2, 7, 11, b"key", b"y", (("own", b"1"),))
    tried = bill.try_records([b"x", b"good", record])
    assert [one.value for one in tried.processed] == [b"good"]
    assert sorted(one.value or b"" for one in tried.sent) == [b"x", b"y"]
    assert [(call.letter, call.failure is None) for call in tried.dead_calls] == [
        (letters[0], False),
        *((letter, True) for letter in letters[1:]),
    ]
    (found,) = [letter for letter in letters if letter.record.value == b"y"]
    assert found.record == record._replace(attempt=1)
    assert (found.failure.name, found.failure.text) == ("LookupError", "no b'y'")
    assert found.failure.stack.endswith("LookupError: no b'y'\n")
    assert (found.letter.topic, found.letter.partition) == ("dlq.billing.orders", 2)
    (alarm,) = tried.alarms
    assert (alarm.kind, alarm.details["letter"]) == ("dead-handler", "dlq.billing.orders-0-0")


def test_alarms_about_a_dead_letter_handler_have_scrubbed_texts() -> None:
    bill = handled(scrub=lambda text: text.replace("4711", "…"))
    texts = ["account 4711"]

    @bill.dead
    def refund(_: failures.DeadLetter) -> None:
        raise ConnectionError(texts.pop()) if texts else failures.Failed("card 4711", "fatal")

    alarms = bill.try_records([b"x"]).alarms
    assert [alarm.text.rpartition(": ")[2] for alarm in alarms] == ["account …", "card …"]


def test_a_failing_call_is_repeated_after_the_delays_of_the_strategy_and_no_record_waits() -> None:
    bill = handled(retry=["1 s", "1 min"], outage=ConnectionError)
    calls = []

    @bill.dead
    def refund(letter: failures.DeadLetter) -> None:
        calls.append(letter.record.offset)
        if len(calls) < 5:
            raise ConnectionError("an outage of the handler's own is none of the group's")

    tried = bill.try_records([b"x", b"good", b"y", b"good"])
    assert calls == [0, 0, 0, 0, 0, 2]
    assert [one.offset for one in tried.processed] == [1, 3]
    assert [alarm.kind for alarm in tried.alarms] == ["dead-handler"]
    assert [bill.policy.dead_backoff.step(number).delay_ms for number in (1, 2, 3, 9)] == [1000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize(
    ("strategy", "delays"),
    [
        (failures.RetryHere(3, ["1 s", "2 s"]), [1000, 2000, 2000]),
        (failures.RetryForever("3 s"), [3000, 3000, 3000]),
        (failures.Ignore(), [100, 200, 400]),
    ],
)
def test_each_strategy_says_when_a_call_is_repeated(strategy: Any, delays: list[int]) -> None:
    bill = handled(retry=None, strategy=strategy)
    assert [bill.policy.dead_backoff.step(number).delay_ms for number in (1, 2, 3)] == delays


def test_a_call_that_never_succeeds_ends_the_trial_and_a_fatal_one_is_given_up() -> None:
    bill = handled()

    @bill.dead
    def refund(letter: failures.DeadLetter) -> None:
        if letter.record.value == b"give up":
            raise failures.Failed("nobody to refund", "fatal")
        raise LookupError("fatal classes are those of the records' handler")

    tried = bill.try_records([b"give up", b"x"], attempts_max=4)
    assert [call.letter.record.value for call in tried.dead_calls] == [b"give up"] + [b"x"] * 4
    assert [call.failure.kind for call in tried.dead_calls if call.failure is not None] == [
        FailureKind.FATAL,
        *[FailureKind.RETRIABLE] * 4,
    ]
    assert "is not called again for dlq.billing.orders-0-0: " in tried.alarms[0].text


def test_values_are_decoded_where_that_is_possible_and_keys_are_the_records_own() -> None:
    bill = handled(decode=int, cleanup="compact")
    found = []

    @bill.dead
    def refund(letter: failures.DeadLetter) -> None:
        found.append((letter.record.key, letter.record.value, letter.letter.value))

    bill.try_records([Message("orders", 0, 0, 0, b"k", b"12"), b"twelve"])
    assert found == [(b"k", 12, b"12"), (None, b"twelve", b"twelve")]
    with pytest.raises(ValueError, match="t-0-1 is not a dead letter"):
        dead_letter_of(Message("t", 0, 1, 0, None, b""), None)


def two(letter: object, transaction: object) -> None: ...


def yields(letter: object) -> object:
    yield letter


@pytest.mark.parametrize(
    ("options", "function", "error"),
    [
        ({"strategy": failures.Ignore()}, lambda letter: None, "would get no dead letters"),
        ({"strategy": failures.RetryForever()}, lambda letter: None, "would get no dead letters"),
        ({"retry": ["1 s"]}, lambda: None, "has no parameter for the record"),
        ({"retry": ["1 s"]}, yields, "is a generator function"),
        ({"retry": ["1 s"], "moves": "at least once"}, two, "needs moves='exactly once'"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(
    options: dict[str, Any], function: Callable[..., Any], error: str
) -> None:
    bill = failures.handler(topics="orders", group="billing", **options)(fail)
    with pytest.raises(ValueError, match=error):
        bill.dead(function)


def test_a_handler_has_one_dead_letter_handler() -> None:
    bill = handled()
    bill.dead(two)
    with pytest.raises(ValueError, match="fail has a dead-letter handler: two"):
        bill.dead(two)
    with pytest.raises(TypeError, match="dead; it belongs to run"):
        failures.handler(topics="t", group="g", retry=["1 s"], dead=two)  # type: ignore[call-arg]


def test_what_ends_a_program_ends_it_here_too() -> None:
    bill = handled()

    @bill.dead
    def refund(letter: failures.DeadLetter) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        bill.try_records([b"x"])


# --- the core ---------------------------------------------------------------------------------------------------------


def letter(offset: int, name: str = "", group: str = "billing") -> Arrival:
    at = Letter(name or f"id-{offset}", group, TopicPartition("orders", 0), 10 + offset)
    return Arrival(Message(*DEAD, offset, 0, None, b""), at)


def session_with(rows: dict[int, Row], known: int) -> Session:
    session = Session(handled().policy, member="m", nonce="n", draw=lambda: 0.0)
    starts = {DEAD: Start(0, known, known)}
    opened = session.on(Assigned(starts, {TopicPartition("orders", 0): rows}, {}), Moment(0, 0.0))
    for action in opened:
        if isinstance(action, Transact):
            session.on(TransactionEnded(action.number), Moment(0, 0.0))
    return session


def test_letters_that_are_not_dead_any_more_are_stepped_over() -> None:
    def dead(offset: int, state: State = State.DEAD, name: str = "") -> Row:
        return Row(state, name or f"id-{offset}", *DEAD)

    rows = {
        10: dead(0),
        11: dead(1, State.REDRIVEN),
        12: dead(2, State.RESOLVED),
        13: dead(3, name="newer"),
        15: dead(5),
    }
    session = session_with(rows, 6)
    marker = Arrival(Message(*DEAD, 6, 0, b"2026-11-29", None, (("dlq.resolved-by", b"me"),)))
    arrivals = [*map(letter, range(6)), marker, letter(7, group="shipping"), letter(8)]
    actions = session.on(Fetched(DEAD, arrivals, 9), Moment(0, 0.0))
    (run,) = [action for action in actions if isinstance(action, Run)]
    assert [message.offset for message in run.messages] == [0, 5, 8]
    assert run.failures_max == 1


def test_a_call_is_recorded_with_its_offset_at_once() -> None:
    session = session_with({}, 0)
    (run,) = [
        one for one in session.on(Fetched(DEAD, [letter(0), letter(1)], 2), Moment(0, 0.0)) if isinstance(one, Run)
    ]
    session.on(Finished(DEAD, run.number, 0, Outcome()), Moment(0, 0.0))
    session.on(Finished(DEAD, run.number, 1, Outcome()), Moment(0, 0.0))
    (transact,) = [one for one in session.on(RunEnded(DEAD, run.number), Moment(0, 0.0)) if isinstance(one, Transact)]
    assert (transact.puts, transact.rows, transact.offsets) == ((), (), {DEAD: 2})


def test_the_topics_of_dead_letters_are_known_apart() -> None:
    layout = Layout("billing", ["orders"], [1000], by_key=False)
    assert DEAD.topic not in layout.lanes
    assert layout.lane(DEAD.topic) == ("dlq.billing.orders", False, True)
    assert layout.lane("orders") == ("orders", False, False)


def test_a_hanging_dead_letter_handler_holds_no_record_up() -> None:
    """Both kinds of handlers have their own workers."""
    release, hung = threading.Event(), threading.Event()
    policy = handled().policy

    def hang(letter: object) -> None:
        hung.set()
        release.wait(60)

    bell: SimpleQueue[None] = SimpleQueue()
    own = ThreadWorkers(Caller(policy, lambda order: None), 1, bell, lambda key, row: None)
    dead = ThreadWorkers(DeadCaller(policy, hang), 1, bell, lambda key, row: None)
    workers = DividedWorkers(own, dead, lambda key: key == DEAD)
    headers = (("dlq.topic", b"orders"),)
    workers.start(Run(DEAD, 1, (Message(*DEAD, 0, 0, None, b"", headers),), 1))
    assert hung.wait(60)
    orders = TopicPartition("orders", 0)
    workers.start(Run(orders, 2, (Message(*orders, 0, 0, None, b""),), 1))
    bell.get(timeout=60)
    assert set(workers.running) == {DEAD, orders}
    assert list(workers.since) == [(DEAD, 0)]
    done = workers.results()
    assert done == [Finished(orders, 2, 0, Outcome()), RunEnded(orders, 2)]
    workers.ended(done[1])  # type: ignore[arg-type]
    workers.withdraw(DEAD)
    workers.cancel()
    assert set(workers.running) == {DEAD}
    assert workers.failure is None
    release.set()
    bell.get(timeout=60)
    assert len(workers.results()) == 2
    workers.close()
