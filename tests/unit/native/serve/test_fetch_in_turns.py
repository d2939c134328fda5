"""Fetch requests with many partitions or a large session, which a network thread serves over several turns."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native.serve.fetch import FetchPlan
from kafkalite.errors import ErrorCode
from tests.kit.harness.fetch_harness import Client, FetchHarness, Wanted, errors_of, fetch_frame, partitions_of
from tests.kit.harness.log_harness import make_batch

VERSIONS = (4, 7, 12, 18)
SESSION_VERSIONS = (7, 12, 18)
PARTITIONS = 1500
"""More than one turn serves."""
NONE, OPEN = (0, -1), (0, 0)
MAX_BODY = 1 << 14
"""Bytes of a request that is parsed at once."""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FetchHarness]:
    """All tests append to it, each reads to the end."""
    directory: Path = tmp_path_factory.mktemp("turns")
    harness = FetchHarness(directory / "data", partitions_max=2 * PARTITIONS, request_partitions_max=2 * PARTITIONS)
    harness.logs.create_topic("wide", PARTITIONS, {})
    harness.logs.create_topic("other", 1, {})
    for partition in range(0, PARTITIONS, 100):
        harness.logs.topics["wide"].partitions[partition].append(make_batch(1 + partition // 100))
    yield harness
    harness.close()


@pytest.fixture(autouse=True)
def _sessions_of_before_may_be_evicted(harness: FetchHarness) -> None:
    harness.pass_time(200)


@pytest.fixture
def client(harness: FetchHarness) -> Iterator[Client]:
    client = harness.client()
    yield client
    client.connection.close()
    harness.settle()
    assert listening() == 0


def listening() -> int:
    """Fetches that are among the listeners of a log, which a log keeps in a tuple."""
    plans = [each for each in gc.get_objects() if type(each) is FetchPlan]
    return sum(
        any(type(holder) is tuple and holder[:1] == (plan,) for holder in gc.get_referrers(plan)) for plan in plans
    )


def wanted(harness: FetchHarness, version: int, count: int = PARTITIONS, offset: int = 0) -> list[Wanted]:
    return [Wanted(harness.key(version, "wide", partition), offset) for partition in range(count)]


def told(answer: Any) -> dict[Any, Any]:
    return {
        key: (part.error_code, part.high_watermark, bytes(part.records or b""))
        for key, part in partitions_of(answer).items()
    }


def in_pieces(harness: FetchHarness, client: Client, version: int, asked: list[Wanted]) -> dict[Any, Any]:
    """What requests say that are served at once."""
    found: dict[Any, Any] = {}
    for at in range(0, len(asked), 100):
        some = asked[at : at + 100]
        assert len(fetch_frame(version, NONE, some)) < MAX_BODY
        found |= told(client.fetch(version, NONE, *some))
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_is_answered_as_by_small_requests(harness: FetchHarness, client: Client, version: int) -> None:
    asked = [*wanted(harness, version), Wanted((bytes(range(16)) if version >= 13 else "nothing", 3))]
    answer = client.fetch(version, NONE, *asked)
    assert list(partitions_of(answer)) == [want.key for want in asked]
    assert told(answer) == in_pieces(harness, client, version, asked)


@pytest.mark.parametrize("size_max", [1, 500, 1 << 25])
def test_the_size_limit_is_of_the_whole_answer(harness: FetchHarness, client: Client, size_max: int) -> None:
    answer = client.fetch(12, NONE, *wanted(harness, 12), size_max=size_max)
    sizes = [len(part.records or b"") for part in partitions_of(answer).values()]
    assert sum(sizes[1:]) <= max(0, size_max - sizes[0])
    assert sizes[0] > 0


def test_more_records_than_are_copied(harness: FetchHarness, client: Client) -> None:
    """They leave from their files, between the pieces of the answer."""
    large = make_batch(2_000)
    for partition in range(1, 4):
        harness.logs.topics["wide"].partitions[partition].append(large)
    answer = client.fetch(12, NONE, *wanted(harness, 12))
    assert [len(part.records) for part in list(partitions_of(answer).values())[1:4]] == [len(large)] * 3


def test_a_fetch_waits_for_records_and_is_woken_by_them(harness: FetchHarness, client: Client) -> None:
    ends = [log.log_end_offset for log in harness.logs.topics["wide"].partitions]
    asked = [Wanted(harness.key(12, "wide", partition), end) for partition, end in enumerate(ends)]
    client.send(fetch_frame(12, NONE, asked, wait_ms=10_000))
    harness.settle()
    assert not client.is_answered()
    harness.logs.topics["wide"].partitions[PARTITIONS - 1].append(make_batch())
    harness.settle()
    found = [part.partition_index for part in partitions_of(client.receive(12)).values() if part.records]
    assert found == [PARTITIONS - 1]


def test_a_fetch_is_answered_at_its_deadline(harness: FetchHarness, client: Client) -> None:
    ends = [log.log_end_offset for log in harness.logs.topics["wide"].partitions]
    asked = [Wanted(harness.key(12, "wide", partition), end) for partition, end in enumerate(ends)]
    client.send(fetch_frame(12, NONE, asked, wait_ms=10_000))
    harness.settle()
    harness.pass_time(9)
    assert not client.is_answered()
    harness.pass_time(2)
    assert set(errors_of(client.receive(12)).values()) == {0}


def test_other_requests_are_served_while_it_waits(harness: FetchHarness, client: Client) -> None:
    """They are answered after it, as Kafka answers in order."""
    ends = [log.log_end_offset for log in harness.logs.topics["wide"].partitions]
    asked = [Wanted(harness.key(12, "wide", partition), end) for partition, end in enumerate(ends)]
    client.send(fetch_frame(12, NONE, asked, wait_ms=1000) + fetch_frame(12, NONE, [Wanted(("other", 0))]))
    harness.settle()
    assert not client.is_answered()
    harness.pass_time(2)
    assert len(partitions_of(client.receive(12))) == PARTITIONS
    assert list(partitions_of(client.receive(12))) == [("other", 0)]


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_a_connection_that_ends_meanwhile(harness: FetchHarness, version: int, turns: int) -> None:
    """After any number of turns; nothing listens for it then, and its session is as good as any that is idle."""
    client = harness.client()
    asked = wanted(harness, version, offset=1)
    client.send(fetch_frame(version, OPEN, asked, wait_ms=1000))
    for _ in range(turns):
        client.worker.io.expire_timers()
    client.connection.close()
    harness.settle()
    assert not client.worker.takes_turns()
    assert listening() == 0


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_a_session_of_many_partitions(harness: FetchHarness, client: Client, version: int) -> None:
    asked = wanted(harness, version)
    opened = client.fetch(version, OPEN, *asked)
    session = opened.session_id
    assert session != 0
    assert told(opened) == in_pieces(harness, client, version, asked)
    # Those with records are answered again, since the positions have not moved.
    again = client.fetch(version, (session, 1))
    with_records = {key for key, (_, _, records) in told(opened).items() if records}
    assert set(partitions_of(again)) == with_records
    # All move to the end, some are forgotten.
    logs = harness.logs.topics["wide"].partitions
    ends = [Wanted(want.key, logs[want.key[1]].log_end_offset) for want in asked]
    gone = [want.key for want in asked[1400:]]
    changed = client.fetch(version, (session, 2), *ends[:1400], forget=gone)
    assert (changed.error_code, changed.session_id, partitions_of(changed)) == (0, session, {})
    assert harness.sessions.partition_count >= 1400
    logs[7].append(make_batch())
    logs[1450].append(make_batch())
    news = client.fetch(version, (session, 3))
    assert list(partitions_of(news)) == [asked[7].key]
    # Small changes of a large session.
    one = client.fetch(version, (session, 4), ends[1450])
    assert set(partitions_of(one)) == {asked[7].key, asked[1450].key}
    closed = client.fetch(version, (session, -1))
    assert closed.session_id == 0
    assert client.fetch(version, (session, 5)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_of_the_session_that_comes_meanwhile_ends_the_earlier_one(harness: FetchHarness) -> None:
    first, second = harness.client(0), harness.client(1)
    asked = wanted(harness, 12, offset=1)
    session = first.fetch(12, OPEN, *asked).session_id
    first.send(fetch_frame(12, (session, 1), asked))
    # The earlier one has been let in, and has not been answered: its client has connected again and repeats it.
    first.worker.io.expire_timers()
    second.send(fetch_frame(12, (session, 1), asked))
    harness.settle()
    answers = [client.receive(12) for client in (first, second)]
    assert sorted(answer.error_code for answer in answers) == [0, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    again = second.fetch(12, (session, 2))
    # Offset 1 is the end of a log with one record; others have records from there on, or an error.
    logs = harness.logs.topics["wide"].partitions
    told_again = {want.key for want in asked if logs[want.key[1]].log_end_offset != 1}
    assert (again.error_code, set(partitions_of(again))) == (0, told_again)
    first.fetch(12, (session, -1))


def test_more_partitions_than_sessions_may_have(harness: FetchHarness, client: Client) -> None:
    first = client.fetch(12, OPEN, *wanted(harness, 12)).session_id
    assert first != 0
    declined = harness.client(1).fetch(12, OPEN, *wanted(harness, 12))
    assert (declined.error_code, declined.session_id) == (0, 0)
    assert len(partitions_of(declined)) == PARTITIONS
    client.fetch(12, (first, -1))


@pytest.mark.parametrize("cut", [1, 100, 20_000])
def test_a_malformed_request_closes_the_connection(harness: FetchHarness, cut: int) -> None:
    client = harness.client()
    frame = fetch_frame(12, NONE, wanted(harness, 12))
    body = frame[4:-cut]
    client.send(len(body).to_bytes(4, "big") + body)
    harness.settle()
    assert client.connection.closed


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_more_than_a_request_may_name(harness: FetchHarness, version: int) -> None:
    key = harness.key(version, "wide", 0)
    many = [(key[0], number) for number in range(2 * PARTITIONS + 1)]
    for frame in (
        fetch_frame(version, NONE, [Wanted(each) for each in many]),
        fetch_frame(version, (77, 1), forget=many),
    ):
        client = harness.client()
        client.send(frame)
        harness.settle()
        assert client.connection.closed


def test_topics_without_partitions_count(harness: FetchHarness) -> None:
    """Each takes memory, too."""
    empty = b"\x01\x01\x00"
    frame = fetch_frame(12, NONE)
    head = frame[4:]
    # One byte is the count of topics, before that of the forgotten ones, the rack and the tags.
    assert head[-4:] == b"\x01\x01\x01\x00"
    count = 2 * PARTITIONS + 2
    body = head[:-4] + bytes([count & 0x7F | 0x80, count >> 7]) + empty * (count - 1) + head[-3:]
    client = harness.client()
    client.send(len(body).to_bytes(4, "big") + body)
    harness.settle()
    assert client.connection.closed
