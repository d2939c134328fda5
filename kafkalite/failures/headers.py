"""Write and parse the headers of letters: copies of records in retry and dead-letter topics.

A letter has the record's own headers, byte for byte, and then headers of these formats.

    kafkalite                   written always, and parsed
    Spring                      written to dead letters by default (`Policy.compat`), and parsed
    Kafka Connect (KIP-298)     written to dead letters on request (`Policy.compat`), and parsed
    Streams (KIP-1034)          only parsed
    share groups (KIP-1191)     only parsed

Numbers are decimal text, except in Spring's headers: big-endian integers, as in Spring Kafka's
DeadLetterPublishingRecoverer.

Thread rule: functions are pure.
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.failures.events import Goal, Letter, Message
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite.failures.events import Headers, Put

OURS: Final = "dlq."
TOPIC: Final = "dlq.topic"
PARTITION: Final = "dlq.partition"
OFFSET: Final = "dlq.offset"
ERROR: Final = "dlq.error"
TIMESTAMP: Final = "dlq.timestamp"
TIMESTAMP_TYPE: Final = "dlq.timestamp-type"
GROUP: Final = "dlq.group"
EXCEPTION: Final = "dlq.exception"
CAUSE: Final = "dlq.cause"
STACK: Final = "dlq.stacktrace"
ATTEMPT: Final = "dlq.attempt"
DUE: Final = "dlq.due"
FIRST: Final = "dlq.first-failure"
LAST: Final = "dlq.last-failure"
ID: Final = "dlq.id"
REDRIVEN: Final = "dlq.redriven"
EDITED: Final = "dlq.edited"
TRUNCATED: Final = "dlq.truncated"
KEY: Final = "dlq.key"
"""The record's own key, if the letter has another key."""
NUMBERS: Final = (PARTITION, OFFSET, ATTEMPT, DUE, FIRST, REDRIVEN)
"""Headers with decimal numbers."""
SPRING: Final = "kafka_dlt-"
SPRING_RETRY: Final = "kafka_"
CONNECT: Final = "__connect.errors."
STREAMS: Final = "__streams.errors."
SHARE: Final = "__dlq.errors."
STACK_MAX: Final = 8 * 1024
TEXT_MAX: Final = 1000
HEADERS_SIZE_MAX: Final = 32 * 1024
"""Bytes of letter headers, at most; above that the reason is shortened first."""
NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")
NUMBER_MAX: Final = 2**63 - 1
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
RECORD_OVERHEAD: Final = 200
"""Bytes of a record and its batch, without key, value and headers."""


class Reason(NamedTuple):
    """The reason why a record became a letter, from the letter's headers; "" for a missing field."""

    exception: str = ""
    text: str = ""
    stack: str = ""
    cause: str = ""
    family: str = ""


class FoundLetter(NamedTuple):
    """A parsed letter: the origin and the headers of its source record, and the reason."""

    letter: Letter
    reason: Reason
    headers: Headers
    last: int = 0
    truncated: bool = False
    rekeyed: bool = False
    key: bytes | None = None
    """The record's key, if the letter has another key (`rekeyed`)."""


def own_headers(headers: Headers) -> Headers:
    """Return the source record's headers: those of the letter, without letter headers."""
    families = (OURS, SPRING, CONNECT, STREAMS, SHARE)
    return tuple([pair for pair in headers if not pair[0].startswith(families)])


def up_to_date(message: Message) -> Message:
    """Return the message with the current number of failures in its header.

    The stored header is outdated after a letter has been retried in place.
    """
    if not message.attempt:
        return message
    said = str(message.attempt).encode()
    if (ATTEMPT, said) in message.headers:
        return message
    return message._replace(
        headers=tuple((name, said if name == ATTEMPT else value) for name, value in message.headers)
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def rendered(put: Put, size_max: int, compat: Iterable[str], scrub: Callable[[str], str] | None) -> Message:
    """Return the record to write, with as much of the reason as fits into `size_max` bytes.

    If the record would be too large, the stack is left out first, then the error text, then the value. A letter without
    a value only refers to the source record.
    """
    message = put.message
    if put.goal is Goal.OUTPUT:
        return message._replace(topic=put.topic)
    own = own_headers(message.headers)
    rest_size = size_of(own) + len(message.key or b"") + RECORD_OVERHEAD
    for shrink in range(put.shrink, 4):
        value = None if shrink >= 3 else message.value
        added = added_headers(put, shrink, compat, scrub)
        size = size_of(added)
        fits = rest_size + size + len(value or b"") <= size_max and (shrink == 2 or size <= HEADERS_SIZE_MAX)
        if shrink == 3 or fits:
            break
    return Message(
        put.topic,
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        value,
        (*own, *added),
        message.timestamp_type,
        message.attempt,
    )


def rekeyed(message: Message, put: Put, kind: str) -> Message:
    """Return a dead letter with another key. A header keeps the record's key.

    If `kind` is "date", the new key is the day of the last failure. If `kind` is "compact", it is that day and the
    source record. So in a compacted topic, letters of other records do not replace this letter.
    """
    assert put.letter is not None, "only letters have other keys"
    day = datetime.fromtimestamp(put.last / 1000, UTC).date().isoformat()
    origin = f"{put.letter.partition}-{put.letter.offset}"
    key = day if kind == "date" else f"{day}/{origin}"
    return message._replace(key=key.encode(), headers=(*message.headers, (KEY, message.key)))


def size_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an upper bound of the headers' size in a record, in bytes."""
    size = 10 * len(headers)
    for name, value in headers:
        size += len(name) if name.isascii() else len(name.encode(errors="surrogateescape"))
        if value is not None:
            size += len(value)
    return size


def added_headers(
    put: Put, shrink: int, compat: Iterable[str], scrub: Callable[[str], str] | None
) -> list[tuple[str, bytes]]:
    """Return the headers to add to those of the record. A higher `shrink` leaves out more of the reason."""
    letter, failure = put.letter, put.failure
    assert letter is not None, "only letters have a reason"
    is_dead = put.goal is Goal.DEAD
    text = stack = ""
    if failure is not None and is_dead:
        text, stack = (scrub(part) if scrub else part for part in (failure.text, failure.stack))
        text = text if shrink < 2 else ""
    timestamp, kind = original_time(put.message)
    added = of_others(put, letter, text, compat) if is_dead else []
    added += (
        (GROUP, letter.group.encode("utf-8", "replace")),
        (ID, letter.id.encode("utf-8", "replace")),
        (ATTEMPT, b"%d" % letter.attempt),
        (TIMESTAMP, b"%d" % timestamp),
        (TIMESTAMP_TYPE, kind.encode("utf-8", "replace")),
    )
    if failure is not None:
        name = failure.name.encode("utf-8", "replace")
        added += ((EXCEPTION, name), (FIRST, b"%d" % letter.first), (LAST, b"%d" % put.last))
        if failure.cause:
            added.append((CAUSE, failure.cause.encode("utf-8", "replace")))
    if letter.due:
        added.append((DUE, b"%d" % letter.due))
    if letter.rounds:
        added.append((REDRIVEN, b"%d" % letter.rounds))
    if stack and shrink < 1:
        added.append((STACK, tail(stack, STACK_MAX).encode("utf-8", "replace")))
    if shrink >= 3:
        added.append((TRUNCATED, b"value"))
    topic, partition = letter.partition
    added += (
        (TOPIC, topic.encode("utf-8", "replace")),
        (PARTITION, b"%d" % partition),
        (OFFSET, b"%d" % letter.offset),
    )
    if is_dead:
        added.append((ERROR, text[:TEXT_MAX].encode("utf-8", "replace")))
    return added


def original_time(message: Message) -> tuple[int, str]:
    """Return the record's timestamp and its type, from the letter's headers or else from the record."""
    carried = dict(message.headers)
    timestamp = number_of(carried.get(TIMESTAMP)) if carried else None
    if timestamp is not None:
        return timestamp, (carried.get(TIMESTAMP_TYPE) or b"").decode(errors="replace")
    return message.timestamp, TIMESTAMP_TYPES[message.timestamp_type == 1]


def number_of(value: bytes | None) -> int | None:
    """Parse a decimal 64-bit number of a header. Return None for anything else, because any client can write
    headers.
    """
    number = int(value) if value is not None and NUMBER.fullmatch(value) else NUMBER_MAX + 1
    return number if -NUMBER_MAX <= number <= NUMBER_MAX else None


def tail(text: str, size: int) -> str:
    """Return the last `size` bytes of a stack trace, because the end shows the cause."""
    return text.encode(errors="replace")[-size:].decode(errors="ignore")


def of_others(put: Put, letter: Letter, text: str, compat: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return the headers by which tools of Spring and Connect recognize a dead letter. The stack is not repeated in
    them.
    """
    assert put.failure is not None, "a dead letter has failed"
    found: list[tuple[str, bytes]] = []
    topic, partition, said = (
        letter.partition.topic.encode(),
        letter.partition.partition,
        text[:TEXT_MAX].encode(errors="replace"),
    )
    name, group = put.failure.name.encode(), letter.group.encode()
    timestamp, kind = original_time(put.message)
    if "spring" in compat:
        found += [
            (f"{SPRING}original-topic", topic),
            (f"{SPRING}original-partition", struct.pack(">i", partition)),
            (f"{SPRING}original-offset", struct.pack(">q", letter.offset)),
            (f"{SPRING}original-timestamp", struct.pack(">q", timestamp)),
            (f"{SPRING}original-timestamp-type", kind.encode()),
            (f"{SPRING}original-consumer-group", group),
            (f"{SPRING}exception-fqcn", name),
            (f"{SPRING}exception-message", said),
        ]
    if "connect" in compat:
        found += [
            (f"{CONNECT}topic", topic),
            (f"{CONNECT}partition", str(partition).encode()),
            (f"{CONNECT}offset", str(letter.offset).encode()),
            (f"{CONNECT}connector.name", group),
            (f"{CONNECT}exception.class.name", name),
            (f"{CONNECT}exception.message", said),
        ]
    return found


# --- reading ----------------------------------------------------------------------------------------------------------


def letter_of(headers: Headers) -> Letter | None:
    """Parse kafkalite's letter headers. Return None if they are missing or invalid."""
    values = dict(headers)  # hot path: every letter read, with a dozen headers
    topic = values.get(TOPIC)
    if topic is None:
        return None
    try:
        partition, offset, attempt, due, first, rounds = [int(values.get(name) or b"0") for name in NUMBERS]
    except ValueError:
        return None
    if min(offset, attempt, due, first, rounds) < 0 or max(offset, attempt, due, first, rounds) > NUMBER_MAX:
        return None
    letter_id, group = (values.get(ID) or b"").decode("utf-8", "replace"), values.get(GROUP) or b""
    where = TopicPartition(topic.decode("utf-8", "replace"), partition)
    return Letter(letter_id, group.decode("utf-8", "replace"), where, offset, attempt, due, first, rounds)


def found_letter(headers: Headers) -> FoundLetter | None:
    """Parse a letter of kafkalite, Spring, Connect, Streams or share groups. Return None for any other record."""
    values = {name: value or b"" for name, value in headers}
    ours = letter_of(headers)
    if ours is not None:
        exception, text, stack, cause = (
            values.get(name, b"").decode(errors="replace") for name in (EXCEPTION, ERROR, STACK, CAUSE)
        )
        last_ms = max(0, number_of(values.get(LAST)) or 0)
        reason = Reason(exception, text, stack, cause, "kafkalite")
        key = dict(headers).get(KEY)
        return FoundLetter(ours, reason, own_headers(headers), last_ms, TRUNCATED in values, KEY in values, key)
    for family, prefix in (("connect", CONNECT), ("streams", STREAMS), ("share", SHARE)):
        if f"{prefix}topic" in values:
            return of_texts(family, prefix, values, headers)
    for prefix in (SPRING, SPRING_RETRY):
        if f"{prefix}original-topic" in values:
            return of_spring(prefix, values, headers)
    return None


def of_texts(family: str, prefix: str, values: dict[str, bytes], headers: Headers) -> FoundLetter | None:
    """Parse the text headers of Connect, Streams and share groups."""

    def text(*names: str) -> str:
        return next((values[prefix + name].decode(errors="replace") for name in names if prefix + name in values), "")

    try:
        where, offset = TopicPartition(text("topic"), int(text("partition"))), int(text("offset"))
        attempt = int(text("delivery.count") or 0)
    except ValueError:
        return None
    letter = Letter("", text("group", "connector.name"), where, offset, attempt)
    reason = Reason(
        text("exception.class.name", "exception"),
        text("exception.message", "message"),
        text("exception.stacktrace", "stacktrace"),
        family=family,
    )
    return FoundLetter(letter, reason, own_headers(headers), truncated=family == "share")


def of_spring(prefix: str, values: dict[str, bytes], headers: Headers) -> FoundLetter | None:
    """Parse Spring's headers, which are big-endian integers and text.

    In Spring's retry topics, the header names lack `dlt-`.
    """

    def number(name: str) -> int:
        return int.from_bytes(values.get(prefix + name, b"\xff"), "big", signed=True)

    def text(name: str) -> str:
        return values.get(prefix + name, b"").decode(errors="replace")

    group = values.get(f"{SPRING}original-consumer-group", b"").decode(errors="replace")
    attempt = int.from_bytes(values.get("retry_topic-attempts", b""), "big")
    where = TopicPartition(text("original-topic"), number("original-partition"))
    letter = Letter("", group, where, number("original-offset"), attempt)
    reason = Reason(
        text("exception-cause-fqcn") or text("exception-fqcn"),
        text("exception-message"),
        text("exception-stacktrace"),
        family="spring",
    )
    theirs = (f"{SPRING_RETRY}original-", f"{SPRING_RETRY}exception-", "retry_topic-")
    own = [(name, value) for name, value in own_headers(headers) if not name.startswith(theirs)]
    return FoundLetter(letter, reason, tuple(own))
