"""Headers of letters: what goes with a record, what is left out where it does not fit, what others' tools read."""

import struct

import pytest

from kafkalite.failures.events import Failure, FailureKind, Goal, Letter, Message, Put
from kafkalite.failures.headers import STACK_MAX, found_letter, letter_of, rendered
from kafkalite.model import TopicPartition

LETTER = Letter("orders-3-1842/0.2/x", "billing", TopicPartition("orders", 3), 1842, 2, 1_700, 1_600, 1)
FAILURE = Failure(
    FailureKind.RETRIABLE, "RuntimeError", "KeyError", "no such customer: 4711", "trace " * 10_000 + "end"
)
OWN = (("a", b"1"), ("a", None), ("b\udcff", b"\x00"))


def put(goal: Goal, message: Message, shrink: int = 0) -> Put:
    return Put(goal, "dlq.billing.orders", 3, message, LETTER, FAILURE, 1_800, shrink)


def message(value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = OWN) -> Message:
    return Message("orders", 3, 1842, 1_500, b"k", value, headers, 0)


def test_a_letter_comes_back_from_its_headers_and_the_records_own_stand_first() -> None:
    sent = rendered(put(Goal.DEAD, message()), 10**6, ("spring", "connect"), None)
    assert (sent.key, sent.value, sent.headers[:3]) == (b"k", b"v", OWN)
    assert len({name for name, _ in sent.headers[3:]}) == len(sent.headers) - 3
    assert letter_of(sent.headers) == LETTER._replace(due=1_700)
    found = found_letter(sent.headers)
    assert found is not None
    assert (found.letter, found.headers, found.last) == (LETTER, OWN, 1_800)
    assert (found.reason.exception, found.reason.cause, found.reason.text) == (
        *("RuntimeError", "KeyError"),
        "no such customer: 4711",
    )
    assert len(found.reason.stack) == STACK_MAX
    assert found.reason.stack.endswith("end")
    names = dict(sent.headers)
    assert names["kafka_dlt-original-offset"] == struct.pack(">q", 1842)
    assert names["__connect.errors.offset"] == b"1842"


ODD_NUMBERS = (b"", b"-", b"--5", "٣".encode(), b"9" * 19, b"9" * 30, b"9" * 5_000)


@pytest.mark.parametrize("said", ODD_NUMBERS)
def test_a_record_that_carries_a_time_that_is_none_is_a_letter_like_others(said: bytes) -> None:
    """Whoever may write into the topic writes its headers: a member that ended by one would end by it each time."""
    sent = rendered(put(Goal.DEAD, message(headers=(("dlq.timestamp", said),))), 10**6, ("spring", "connect"), None)
    assert dict(sent.headers)["dlq.timestamp"] == b"1500"
    assert dict(sent.headers)["dlq.timestamp-type"] == b"CreateTime"


@pytest.mark.parametrize("said", [b"-1", *ODD_NUMBERS[1:3], *ODD_NUMBERS[4:]])
@pytest.mark.parametrize("name", ["dlq.offset", "dlq.attempt", "dlq.due", "dlq.first-failure", "dlq.redriven"])
def test_a_letter_whose_numbers_are_none_is_none(name: str, said: bytes) -> None:
    sent = rendered(put(Goal.DEAD, message()), 10**6, (), None)
    assert letter_of(tuple((each, said if each == name else value) for each, value in sent.headers)) is None


@pytest.mark.parametrize("said", ODD_NUMBERS)
def test_a_letter_of_which_nobody_knows_when_it_failed_last_is_shown(said: bytes) -> None:
    sent = rendered(put(Goal.DEAD, message()), 10**6, (), None)
    found = found_letter(tuple((each, said if each == "dlq.last-failure" else value) for each, value in sent.headers))
    assert found is not None
    assert found.last == 0


def test_a_letter_that_moves_on_replaces_its_headers() -> None:
    once = rendered(put(Goal.RETRY, message()), 10**6, ("spring",), None)
    twice = rendered(put(Goal.DEAD, once._replace(timestamp=9_999, timestamp_type=1)), 10**6, ("spring",), None)
    again = rendered(put(Goal.DEAD, twice), 10**6, ("spring",), None)
    assert len(again.headers) == len(twice.headers)
    assert dict(again.headers)["dlq.timestamp"] == b"1500"  # the record's own, not the retry topic's
    assert dict(again.headers)["dlq.timestamp-type"] == b"CreateTime"


@pytest.mark.parametrize(
    ("value", "stack", "text", "kept"),
    [
        (1_000, True, True, True),
        (15_000, False, True, True),
        (18_900, False, False, True),
        (19_900, False, False, False),
    ],
)
def test_what_does_not_fit_is_left_out_the_value_last(value: int, stack: bool, text: bool, kept: bool) -> None:
    long = FAILURE._replace(text="x" * 1000)
    sent = rendered(put(Goal.DEAD, message(b"v" * value))._replace(failure=long), 20_000, (), None)
    found = found_letter(sent.headers)
    assert found is not None
    assert (bool(found.reason.stack), bool(found.reason.text), sent.value is not None) == (stack, text, kept)
    assert found.truncated is not kept


def test_texts_are_scrubbed_before_they_are_written() -> None:
    sent = rendered(put(Goal.DEAD, message()), 10**6, ("spring",), lambda text: text.replace("4711", "…"))
    assert b"4711" not in b"".join(value or b"" for _, value in sent.headers)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("dlq.topic", b"orders"), ("dlq.partition", b"x"), ("dlq.offset", b"1")),
        (("__connect.errors.topic", b"orders"), ("__connect.errors.partition", b"")),
        (("unrelated", b"1"),),
    ],
)
def test_what_is_no_letter_is_none(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert found_letter(headers) is None
