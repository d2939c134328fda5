"""The decorator: arguments, the decorated function, and records that are handled in memory."""

import asyncio
import inspect
import math
import pickle
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from kafkalite import failures
from kafkalite.failures.arguments import RUN_ARGUMENTS
from kafkalite.failures.events import FailureKind, Message
from kafkalite.failures.handlers import PolicyOptions, _ended_by_signals
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryTopics


@failures.handler(topics="orders", group="billing", retry=["1 s", "10 s"], fatal=LookupError)
def bill(order: Message, transaction: failures.Transaction) -> None:
    """Send an invoice."""
    if order.value == b"?":
        raise LookupError("nobody ordered this")
    if order.value == b"never" or (order.value == b"late" and order.attempt < 2):
        raise RuntimeError("not yet")
    transaction.send("invoices", order.value, order.key)


def values(records: list[Message]) -> list[bytes | None]:
    return [record.value for record in records]


def test_each_option_of_a_policy_is_one_of_the_decorator() -> None:
    assert set(PolicyOptions.__annotations__) | {"topics", "group"} == {field.name for field in fields(Policy)}
    given = {
        "order": "key",
        "after": "fraud",
        "outage": ConnectionError,
        "decode": int,
        "rules": {TimeoutError: failures.RetryForever("1 s")},
    }
    made = failures.handler(topics=["orders"], group="billing", retry=["1 s"], **given)(lambda order: None)  # type: ignore[arg-type]
    wanted = {**given, "after": ["fraud"], "outage": [ConnectionError]}
    assert made.policy == Policy(group="billing", topics=["orders"], strategy=RetryTopics(["1 s"]), **wanted)  # type: ignore[arg-type]


def test_the_arguments_of_run_are_those_that_errors_name() -> None:
    parameters = inspect.signature(failures.run).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(RUN_ARGUMENTS)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (
            lambda: RetryTopics(["1 s"], order="key"),  # type: ignore[call-arg]
            "RetryTopics has no order; it belongs to Policy and @failures.handler",
        ),
        (
            lambda: failures.RetryHere(3, delays_after=["1 s"]),
            "RetryHere has no delays_after; it belongs to RetryTopics",
        ),  # type: ignore[call-arg]
        (lambda: failures.Limit(0.5, ratios=1), "Limit has no ratios; did you mean ratio?"),  # type: ignore[call-arg]
        (lambda: failures.handler(topics="t", group="g", retry=["1 s"], workers=2), "workers; it belongs to run"),  # type: ignore[call-arg]
        (lambda: failures.handler(topics="t", group="g", retry=["1 s"], jitter=1), "jitter; it belongs to RetryTopics"),  # type: ignore[call-arg]
        (lambda: bill.run(order="key"), "run has no order; it belongs to Policy and @failures.handler"),
        (lambda: bill.run(auto_comit_interval_s=1), "run has no auto_comit_interval_s; did you mean auto_commit"),
        (lambda: bill.try_records(["text"]), "'text' is not a record: pass bytes"),  # type: ignore[list-item]
    ],
)
def test_an_unknown_argument_is_refused_with_its_place(make: Callable[[], object], error: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "needs retry=[…] or strategy=…"),
        ({"retry": ["1 s"], "strategy": failures.Ignore()}, "pass one of them"),
        ({"retry": "1 s"}, "retry must be a list of 1 to 1000 delays, such as ['1 s'], not '1 s'"),
        ({"retry": []}, "a list of 1 to"),
        ({"retry": ["soon"]}, "retry: 'soon' is not a duration"),
        ({"strategy": ["1 s"]}, "strategy: ['1 s'] is not a strategy"),
        ({"retry": ["1 s"], "fatal": ["LookupError"]}, "fatal: 'LookupError' is not an exception class"),
        ({"retry": ["1 s"], "rules": {KeyError: "1 s"}}, "rules: '1 s' is not a strategy"),
        ({"retry": ["1 s"], "limit": failures.Loss(0.1)}, "limit must be a Limit, not Loss("),
        ({"retry": ["1 s"], "decode": "json"}, "decode must be a function, not 'json'"),
        ({"retry": ["1 s"], "compat": "spring"}, "compat must be a list of names, not 'spring'"),
        ({"retry": ["1 s"], "order": "keys"}, "order must be one of 'none', 'key', not 'keys'"),
    ],
)
def test_a_wrong_value_is_refused(options: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        failures.handler(topics="orders", group="billing", **options)  # type: ignore[arg-type]
    assert error in str(caught.value)


BROKEN = (5, -1, 1.5, "x", "", True, [], [5], {}, {"x": 1}, object(), len, KeyError, failures.Ignore, math.nan, b"x")
"""Values of all kinds: few fit any argument."""
NEEDED: dict[type, dict[str, object]] = {
    failures.Exponential: {"first": "1 s"},
    failures.Loss: {"ratio": 0.1},
    failures.Limit: {"ratio": 0.1},
    failures.Ignore: {},
    failures.RetryForever: {},
    failures.RetryHere: {"attempts": 3},
    failures.RetryTopics: {"delays_after": ["1 s"]},
    Policy: {"group": "billing", "topics": ["orders"], "strategy": RetryTopics(["1 s"])},
}
ALLOWED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("first", "ceiling", "over", "alarm_after", "processing_time_max", "factor"), (5, 1.5)),
    **dict.fromkeys(("delays_after", "retry"), ([5],)),
    **dict.fromkeys(("least", "consecutive", "attempts", "ahead_max", "parked_max", "batch"), (5,)),
    **dict.fromkeys(("record", "dead_letters", "skip_tombstones"), (True,)),
    **dict.fromkeys(("after", "compat"), ([],)),
    **dict.fromkeys(("fatal", "outage"), ([], KeyError)),
    **dict.fromkeys(("decode", "scrub"), (len, KeyError, failures.Ignore)),
    "backoff": (5, 1.5, [5]),
    **dict.fromkeys(("rules", "dead_topics"), ({},)),
    "group": ("x",),
}
"""Those that fit."""


def names(error: str, option: str) -> bool:
    return re.search(rf"\b{option}\b", error) is not None


@pytest.mark.parametrize(("kind", "option"), [(kind, field.name) for kind in NEEDED for field in fields(kind)], ids=str)
def test_each_option_refuses_what_does_not_fit_by_its_name(kind: type, option: str) -> None:
    refused = 0
    for value in BROKEN:
        try:
            kind(**{**NEEDED[kind], option: value})
        except ValueError as error:
            assert names(str(error), option) or option == "topics", (value, error)  # noqa: PT017  # of many
            refused += 1
        else:
            assert any(
                value is one or (value == one and type(value) is type(one)) for one in ALLOWED.get(option, ())
            ), value
    assert refused


@pytest.mark.parametrize("option", ["retry", "topics", "group", *PolicyOptions.__annotations__])
def test_the_decorator_refuses_what_does_not_fit_by_its_name(option: str) -> None:
    for value in BROKEN:
        if any(value is one or (value == one and type(value) is type(one)) for one in ALLOWED.get(option, ())):
            continue
        if value == "x" and option in {"topics", "after"}:  # one is as good as a list
            continue
        given: dict[str, Any] = {"topics": "orders", "group": "billing", "retry": ["1 s"], option: value}
        if option == "strategy":
            del given["retry"]
        with pytest.raises(ValueError, match=rf"\b{option}\b|\btopic\b"):
            failures.handler(**given)


def yields(order: Message) -> object:
    yield order


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (yields, "yields is a generator function, which would handle no record"),
        (lambda: None, "has no parameter for the record"),
        (lambda order, transaction: None, "needs moves='exactly once'"),
    ],
)
def test_a_function_that_cannot_handle_is_refused(function: Callable[..., object], error: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        failures.handler(topics="orders", group="billing", retry=["1 s"], moves="at least once")(function)
    assert error in str(caught.value)


def test_a_handler_is_its_function() -> None:
    assert (bill.__name__, bill.__doc__) == ("bill", "Send an invoice.")
    with pytest.raises(LookupError):
        bill(Message("orders", 0, 0, 0, None, b"?"), failures.Transaction())
    transaction = failures.Transaction()
    bill(Message("orders", 0, 0, 0, b"k", b"1"), transaction)
    assert [output.value for output in transaction.outputs] == [b"1"]
    assert pickle.loads(pickle.dumps(bill)) is bill  # noqa: S301  # made here


def test_records_in_memory_have_the_outcomes_of_the_policy() -> None:
    tried = bill.try_records([b"a", b"?", b"late", b"never", None])
    assert values(tried.processed) == [b"a", None, b"late"]
    assert [one.value for one in tried.sent] == [b"a", None, b"late"]
    assert [(one.record.value, one.record.attempt) for one in tried.retried] == [
        (b"late", 0),
        (b"never", 0),
        (b"late", 1),
        (b"never", 1),
    ]
    assert [(one.record.value, one.failure.kind, one.failure.text) for one in tried.dead_lettered] == [
        (b"?", FailureKind.FATAL, "nobody ordered this"),
        (b"never", FailureKind.RETRIABLE, "not yet"),
    ]
    letter = tried.dead_lettered[1].letter
    assert (letter.topic, dict(letter.headers)["dlq.offset"], dict(letter.headers)["dlq.attempt"]) == (
        "dlq.billing.orders",
        b"3",
        b"3",
    )
    assert (tried.ignored, tried.skipped, tried.unfinished, tried.stopped) == ([], [], [], "")


@pytest.mark.parametrize(
    ("strategy", "outcome"),
    [
        (failures.Ignore(), {"processed": 2, "ignored": 1}),
        (failures.RetryHere(2, "1 h"), {"processed": 2, "retried": 1, "dead_lettered": 1}),
        (failures.RetryHere(2, "1 h", then="stop"), {"processed": 1, "retried": 1, "unfinished": 2, "alarms": 1}),
        (failures.RetryForever("1 h"), {"processed": 1, "retried": 4, "unfinished": 2, "alarms": 1}),
        (RetryTopics(["1 d", "2 d"]), {"processed": 2, "retried": 2, "dead_lettered": 1}),
        (RetryTopics(["1 d"], dead_letters=False), {"processed": 2, "retried": 1, "ignored": 1}),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_each_strategy_in_memory(strategy: failures.RetryTopics, outcome: dict[str, int], is_async: bool) -> None:
    def work(record: Message) -> None:
        if record.value == b"2":
            raise RuntimeError

    async def coroutine(record: Message) -> None:
        await asyncio.sleep(0)
        work(record)

    made = failures.handler(topics="orders", group="billing", strategy=strategy)(coroutine if is_async else work)
    found = made.try_records([b"1", b"2", b"3"], attempts_max=5)._asdict()
    assert {name: len(of) for name, of in found.items() if isinstance(of, list) and of} == outcome
    assert bool(found["stopped"]) is (strategy == failures.RetryHere(2, "1 h", then="stop"))


def test_keys_are_kept_in_order_in_memory() -> None:
    seen = []

    @failures.handler(topics="orders", group="billing", retry=["1 s"], order="key")
    def handle(record: Message) -> None:
        seen.append((record.value, record.attempt))
        if record.value == b"1" and not record.attempt:
            raise RuntimeError

    records = [Message("orders", 3, 10 + n, 0, key, b"%d" % n) for n, key in enumerate([b"a", b"b", b"b", b"a"])]
    tried = handle.try_records(records)
    assert seen == [(b"0", 0), (b"1", 0), (b"3", 0), (b"1", 1), (b"2", 0)]
    assert [(one.partition, one.offset) for one in tried.processed] == [(3, 10), (3, 13), (3, 11), (3, 12)]


def test_outages_pause_and_undecodable_values_die_in_memory() -> None:
    calls = []

    @failures.handler(
        topics=["orders", "returns"],
        group="billing",
        retry=["1 s"],
        outage=ConnectionError,
        decode=int,
        skip_tombstones=True,
    )
    def handle(record: Message) -> None:
        calls.append(record.value)
        if len(calls) < 4:
            raise ConnectionError

    records = [Message("returns", 1, 0, 0, None, b"1"), None, b"x", b"2"]
    tried = handle.try_records(records)
    assert sorted(values(tried.processed), key=str) == [b"1", b"2"]
    assert [one.record.value for one in tried.dead_lettered] == [b"x"]
    assert [one.failure.kind for one in tried.retried].count(FailureKind.OUTAGE) == 3
    assert values(tried.skipped) == [None]
    assert [alarm.details["open"] for alarm in tried.alarms] == [True, False]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([Message("other", 0, 0, 0, None, b"")], "a record has topic 'other'"),
        ([b"", Message("orders", 0, 0, 0, None, b"")], "offset 0 of orders-0 follows offset 0"),
    ],
)
def test_records_that_no_partition_has_are_refused(records: list[Message | bytes | None], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        bill.try_records(records)


def test_a_def_that_returns_a_coroutine_fails_its_record() -> None:
    async def work(record: Message) -> None: ...

    def handle(record: Message) -> object:
        return work(record)

    made = failures.handler(topics="orders", group="billing", strategy=failures.RetryHere(1))(handle)
    (dead,) = made.try_records([b"1"]).dead_lettered
    assert "declare it with async def" in dead.failure.text


def test_records_that_wait_for_a_dead_letter_of_their_key_are_unfinished() -> None:
    @failures.handler(topics="orders", group="billing", retry=["1 s"], order="key", after_dead="hold")
    def handle(record: Message) -> None:
        assert record.value != b"1"

    tried = handle.try_records([Message("orders", 0, offset, 0, b"k", b"%d" % offset) for offset in range(1, 4)])
    assert values(tried.unfinished) == [b"2", b"3"]
    assert (tried.processed, tried.skipped) == ([], [])


def test_what_ends_a_program_ends_a_trial() -> None:
    @failures.handler(topics="orders", group="billing", retry=["1 s"])
    async def handle(record: Message) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        handle.try_records([b"1"])


def test_a_signal_sets_the_stop_unless_the_program_handles_signals() -> None:
    stop = threading.Event()
    with _ended_by_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(30)
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    stop.clear()
    try:
        with _ended_by_signals(stop):
            signal.raise_signal(signal.SIGTERM)
        assert (seen, stop.is_set()) == ([signal.SIGTERM], False)
    finally:
        signal.signal(signal.SIGTERM, before)
