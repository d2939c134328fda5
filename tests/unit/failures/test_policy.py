"""What a policy takes and refuses, what its steps are, and the names that it comes to."""

import json
from typing import Any

import pytest

from kafkalite.failures.names import origin_text, parse_origin
from kafkalite.failures.policy import Policy
from kafkalite.failures.policy_file import policy_of
from kafkalite.failures.retry_strategies import (
    Exponential,
    Ignore,
    Limit,
    Loss,
    RetryForever,
    RetryHere,
    RetryTopics,
    StepKind,
)
from kafkalite.failures.rows import Row, State, decode_row, encode_row
from kafkalite.failures.times import milliseconds, short_name
from kafkalite.failures.windows import Window
from kafkalite.model import TopicPartition


def policy(strategy: object, **options: object) -> Policy:
    return Policy(**{"group": "billing", "topics": ["orders"], "strategy": strategy, **options})


@pytest.mark.parametrize(
    ("text", "ms", "short"),
    [
        ("250 ms", 250, "250ms"),
        ("10 s", 10_000, "10s"),
        ("1.5 min", 90_000, "90s"),
        ("10m", 600_000, "10m"),
        ("2 h", 7_200_000, "2h"),
        ("3 d", 259_200_000, "3d"),
        (0.5, 500, "500ms"),
        (0, 0, "0s"),
    ],
)
def test_durations(text: str | float, ms: int, short: str) -> None:
    assert (milliseconds(text), short_name(ms)) == (ms, short)


@pytest.mark.parametrize(
    "text", ["", "10", "ten s", "-1 s", "1 week", "400 d", -3, "1 s 2", float("inf"), float("nan"), ["1 s"], None]
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    """A policy's file may hold any of them."""
    with pytest.raises(ValueError, match="is not a duration"):
        milliseconds(text)


def steps(strategy: object, count: int) -> list[tuple[str, int]]:
    return [(step.kind.value, step.delay_ms) for step in (strategy.step(n + 1) for n in range(count))]


def test_steps_of_the_strategies() -> None:
    assert steps(Ignore(), 2) == [("ignore", 0), ("ignore", 0)]
    assert steps(RetryForever(Exponential("1 s", "3 s")), 4) == [
        ("here", 1000),
        ("here", 2000),
        ("here", 3000),
        ("here", 3000),
    ]
    assert steps(RetryHere(3, "1 s"), 4) == [("here", 1000), ("here", 1000), ("dead letter", 0), ("dead letter", 0)]
    assert steps(RetryHere(1, then="stop"), 1) == [("stop", 0)]
    chained = RetryHere(2, "100 ms", then=RetryTopics(["500 ms", "10 s"], dead_letters=False))
    assert steps(chained, 4) == [("here", 100), ("here", 500), ("topic", 10_000), ("ignore", 0)]


def test_another_number_of_attempts_needs_no_other_topics() -> None:
    three = policy(RetryTopics(["1 s", "2 s", "4 s"])).layout
    thirty = policy(RetryTopics(["1 s", "2 s", "4 s", *["8 s"] * 27])).layout
    assert set(three.lanes) < set(thirty.lanes)
    assert set(thirty.lanes) - set(three.lanes) == {"retry.billing.orders.8s"}
    assert len(policy(RetryTopics([*["1 s", "2 s", "4 s", "8 s"], *["16 s"] * 225])).layout.lanes) == 1 + 5 + 1


def test_names() -> None:
    layout = policy(RetryTopics(["10 s", "1 min"])).layout
    assert list(layout.lanes) == [
        "orders",
        "retry.billing.orders.0s",
        "retry.billing.orders.10s",
        "retry.billing.orders.1m",
    ]
    assert (layout.dead("orders"), layout.ledger) == ("dlq.billing.orders", "kafkalite.failures.billing")
    assert list(policy(RetryTopics(["10 s", "1 min"]), order="key").layout.lanes) == ["orders", "retry.billing.orders"]
    assert parse_origin(origin_text(TopicPartition("a-b", 3), 1842)) == (TopicPartition("a-b", 3), 1842)
    with pytest.raises(ValueError, match="write TOPIC-PARTITION-OFFSET"):
        parse_origin("a-b-3-" + "1" * 5000)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": []}, "list with at least one topic"),
        ({"topics": "orders"}, "list with at least one topic"),
        ({"group": ""}, "group must be the name of a group, not ''"),
        ({"group": "x" * 240}, "a name has 1 to 249"),
        ({"group": "a b"}, "a name has 1 to 249"),
        ({"topics": ["a.b", "a_b"]}, "collide in Kafka"),
        ({"topics": ["orders", "dlq.billing.orders"]}, "collide in Kafka|own retry"),
        ({"topics": ["kafkalite.failures.fraud"]}, "contain a ledger"),
        ({"order": "random"}, "order must be .*, not 'random'"),
        ({"order": "key", "strategy": RetryHere(3)}, 'order="key" needs RetryTopics'),
        ({"order": "key", "moves": "at least once"}, 'order="key" needs moves'),
        ({"after_dead": "hold"}, 'after_dead="hold" needs order="key"'),
        ({"after_dead": "mourn", "order": "key"}, "after_dead must be .*, not 'mourn'"),
        ({"after": ["billing"]}, "the policy's own group billing"),
        ({"compat": ["camel"]}, "compat may contain"),
        ({"on_damage": "pray"}, "on_damage must be .*, not 'pray'"),
        ({"cleanup": "burn"}, "cleanup must be .*, not 'burn'"),
        ({"cleanup": "compact", "letter_key": "date"}, 'leave out letter_key="date"'),
        ({"ahead_max": 0}, "ahead_max"),
        ({"processing_time_max": "0 s"}, "processing_time_max must be above 0"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_in_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        policy(**{"strategy": RetryTopics(["10 s"]), **options})


@pytest.mark.parametrize(
    "broken",
    [
        lambda: RetryHere(0),
        lambda: RetryHere(3, []),
        lambda: RetryHere(3, then="later"),
        lambda: RetryTopics([]),
        lambda: RetryTopics("10 s"),
        lambda: RetryTopics(["1 s"], jitter=2),
        lambda: Loss(1.5),
        lambda: Loss(0.1, then="panic"),
        lambda: Limit(0.5, least=0),
        lambda: Limit(0.5, consecutive=0),
        lambda: Exponential("10 s", "1 s"),
        lambda: Exponential("1 s", factor=0.5),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(broken: object) -> None:
    with pytest.raises(ValueError, match=r"must|needs|above"):
        broken()


def test_rows_come_back_from_their_json() -> None:
    row = Row(
        State.RETRYING, "orders-0-1/0.2", "retry.billing.orders.10s", 0, 2, 17, "Füß", "why", 1, 2, "m", "", 1, 0, 9
    )
    assert decode_row(encode_row(row)) == row
    assert decode_row(b'{"v": 1, "state": "dead", "later": true}') == Row(State.DEAD)


@pytest.mark.parametrize("text", ["", 'a "b"', "\\", "\n\t\r\b\f", "\x00\x1f\x7f", "Füß \u2028 \U0001f600"])
def test_rows_are_what_json_makes_of_them(text: str) -> None:
    row = Row(State.DEAD, text, attempt=-3, due=2**62, exception=text, reason="no")
    said = {name: value for name, value in row._asdict().items() if value != Row(State.DEAD)._asdict()[name]}
    assert encode_row(row) == json.dumps({"v": 1, "state": "dead", **said}, ensure_ascii=False).encode()


def test_a_row_holds_what_an_exception_quotes_though_it_is_no_unicode() -> None:
    """json.loads makes such a text of what anybody may send; whoever cannot write the row down never gets past it."""
    text = json.loads(r'"no customer \ud83d"')
    assert decode_row(encode_row(Row(State.DEAD, reason=text))) == Row(State.DEAD, reason="no customer ?")


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"v": 2, "state": "dead"}', b'{"v": 1}', b'{"v": 1, "state": "dead", "due": "x"}']
)
def test_what_is_no_row_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_row(value)


def test_a_window_slides() -> None:
    window = Window(0.5, 32_000, 4)
    for ms in range(0, 3000, 1000):
        window.note(ms, failed=True)
    assert not window.exceeded  # three are too few
    window.note(3000, failed=True)
    assert window.exceeded
    for ms in range(34_000, 38_000, 1000):
        window.note(ms, failed=False)
    assert (window.exceeded, window.ratio) == (False, 0.0)
    window.forget()
    assert window.ratio == 0.0
    assert StepKind("dead letter") is StepKind.DEAD


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"limit": 5}, "limit must be a table, not 5"),
        ({"limit": {"ratio": 0.1, "then": "stop"}}, "Limit has no then; it belongs to Loss and RetryHere"),
        ({"fatal": "ValueError"}, "fatal must be a list of exception classes, not 'ValueError'"),
        ({"fatal": [5]}, "5 is not an exception class"),
        ({"rules": ["TimeoutError"]}, "rules must be a table"),
        ({"decode": 5}, "5 is not MODULE:NAME"),
        ({"strategy": {"kind": "RetryTopics"}}, "key delays is missing in the strategy RetryTopics"),
        (
            {"strategy": {"kind": "RetryTopics", "delays": ["1 s"], "order": "key"}},
            "RetryTopics has no order; it belongs",
        ),
        ({"strategy": {"kind": "Ignore", "alarm": 0.1}}, "alarm must be a table, not 0.1"),
        ({"strategy": {"kind": "RetryHere", "attempts": "3"}}, "attempts of RetryHere must be a whole number"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_by_the_name_of_the_key(more: dict[str, Any], error: str) -> None:
    document = {"group": "billing", "topics": ["orders"], "strategy": {"kind": "Ignore"}}
    with pytest.raises((ValueError, TypeError)) as caught:
        policy_of({**document, **more})
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("then", "writes_letters", "keeps_ledger"),
    [
        ("dead letter", True, True),
        (RetryForever(), False, False),
        (RetryHere(2, then=Ignore()), False, False),
        (Ignore(record=True), False, True),
        (Ignore(alarm=Loss(0.1, then="dead letter")), True, True),
        (RetryTopics(["1 s"]), True, True),
    ],
)
def test_what_follows_retries_in_place_decides_whether_there_are_dead_letters(
    then: Any, writes_letters: bool, keeps_ledger: bool
) -> None:
    made = policy(RetryHere(2, then=then))
    assert (made.writes_letters, made.keeps_ledger) == (writes_letters, keeps_ledger)
    assert policy(RetryHere(2, then=then), fatal=[ValueError]).writes_letters
