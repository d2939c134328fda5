"""Fetch sessions, case by case: what opens and ends one, what an incremental answer holds, and the bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from kafkalite._native.serve.leaders import Leaders
from kafkalite._native.serve.memory import MemoryCeiling
from kafkalite._native.serve.quota import Meter
from kafkalite.broker.log import segment_removal
from kafkalite.errors import ErrorCode
from tests.kit.harness.fetch_harness import Client, FetchHarness, Wanted, errors_of, fetch_frame, partitions_of
from tests.kit.harness.log_harness import make_batch

VERSIONS = range(7, 18)
NONE, FINAL, OPEN = 0, (0, -1), (0, 0)
INT32_MAX = 2**31 - 1
STRANGER = bytes(range(16))
BATCH_SIZE = len(make_batch())


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[FetchHarness]:
    harness = FetchHarness(tmp_path / "data")
    for name in ("a", "b"):
        harness.logs.create_topic(name, 2, {})
    yield harness
    harness.close()


@pytest.fixture
def client(harness: FetchHarness) -> Client:
    return harness.client()


def produce(harness: FetchHarness, topic: str, partition: int, count: int = 1) -> None:
    harness.logs.topics[topic].partitions[partition].append(make_batch(count))


def stranger(version: int, partition: int = 0) -> Wanted:
    return Wanted((STRANGER if version >= 13 else "nobody", partition))


def all_of(harness: FetchHarness, version: int, *topics: str) -> list[Wanted]:
    return [Wanted(harness.key(version, name, index)) for name in topics or ("a", "b") for index in range(2)]


def opened(harness: FetchHarness, client: Client, version: int, *topics: str) -> int:
    """A session over both partitions of these topics."""
    answer = client.fetch(version, OPEN, *all_of(harness, version, *topics))
    assert (answer.error_code, answer.session_id > 0) == (0, True)
    return int(answer.session_id)


# ---- the kinds of request --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_without_session_answers_everything_each_time(
    harness: FetchHarness, client: Client, version: int
) -> None:
    wanted = all_of(harness, version)
    for _ in range(2):
        answer = client.fetch(version, FINAL, *wanted)
        assert list(partitions_of(answer)) == [want.key for want in wanted]
        if version >= 7:
            assert (answer.error_code, answer.session_id) == (0, NONE)
    assert len(harness.sessions) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_session_answers_only_what_is_new(harness: FetchHarness, client: Client, version: int) -> None:
    produce(harness, "a", 1)
    answer = client.fetch(version, OPEN, *all_of(harness, version))
    session = answer.session_id
    assert list(partitions_of(answer)) == [want.key for want in all_of(harness, version)]
    a1, b0 = harness.key(version, "a", 1), harness.key(version, "b", 0)
    # The client sends its new position; nothing else changed.
    answer = client.fetch(version, (session, 1), Wanted(a1, 1))
    assert (answer.error_code, answer.session_id, answer.responses) == (0, session, [])
    produce(harness, "b", 0)
    answer = client.fetch(version, (session, 2))
    assert list(partitions_of(answer)) == [b0]
    assert (partitions_of(answer)[b0].high_watermark, len(partitions_of(answer)[b0].records)) == (1, BATCH_SIZE)
    # Until the client says that it has them, the records come again.
    assert list(partitions_of(client.fetch(version, (session, 3)))) == [b0]
    assert client.fetch(version, (session, 4), Wanted(b0, 1)).responses == []


def test_high_watermark_and_log_start_are_news_without_records(harness: FetchHarness, client: Client) -> None:
    version, key = 12, ("a", 0)
    produce(harness, "a", 0, 3)
    session = client.fetch(version, OPEN, Wanted(key, 3)).session_id
    log = harness.logs.topics["a"].partitions[0]
    segment_removal.delete_records(log, 2)
    found = partitions_of(client.fetch(version, (session, 1)))
    assert (found[key].log_start_offset, found[key].high_watermark, found[key].records) == (2, 3, b"")
    # New records that do not fit: the first partition uses up the limit, the second returns its high watermark.
    assert client.fetch(version, (session, 2), Wanted(("b", 0))).responses != []
    for topic in "ba":
        produce(harness, topic, 0)
    answer = client.fetch(version, (session, 3), size_max=1)
    found = partitions_of(answer)
    assert sorted((name, part.high_watermark, len(part.records)) for (name, _), part in found.items()) == [
        ("a", 4, BATCH_SIZE),
        ("b", 1, 0),
    ]


@pytest.mark.parametrize("version", [12, 18])
def test_added_changed_and_forgotten(harness: FetchHarness, client: Client, version: int) -> None:
    session = opened(harness, client, version, "a")
    a0, a1, b0 = (harness.key(version, name, index) for name, index in (("a", 0), ("a", 1), ("b", 0)))
    answer = client.fetch(
        version, (session, 1), Wanted(b0), forget=[a1, ("nobody", 3) if version < 13 else (STRANGER, 3)]
    )
    assert list(partitions_of(answer)) == [b0]
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        produce(harness, topic, partition)
    assert set(partitions_of(client.fetch(version, (session, 2)))) == {a0, b0}
    # A partition added again is returned like a new one.
    assert set(partitions_of(client.fetch(version, (session, 3), Wanted(a1, 1), Wanted(a0, 1), Wanted(b0, 1)))) == {a1}
    assert harness.sessions.partition_count == 3


def test_added_and_forgotten_in_one_request_is_forgotten(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12, "a")
    assert client.fetch(12, (session, 1), Wanted(("b", 0)), forget=[("b", 0)]).responses == []
    assert harness.sessions.partition_count == 2


@pytest.mark.parametrize("version", [7, 13])
def test_forgetting_everything_closes_the_session(harness: FetchHarness, client: Client, version: int) -> None:
    session = opened(harness, client, version, "a")
    answer = client.fetch(version, (session, 1), forget=[want.key for want in all_of(harness, version, "a")])
    assert (answer.error_code, answer.session_id, answer.responses) == (0, NONE, [])
    assert (len(harness.sessions), harness.sessions.partition_count) == (0, 0)
    assert client.fetch(version, (session, 2)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
def test_full_fetch_closes_the_session_it_names(harness: FetchHarness, client: Client, epoch: int) -> None:
    first = opened(harness, client, 12)
    answer = client.fetch(12, (first, epoch), Wanted(("a", 0)))
    assert (answer.error_code, errors_of(answer)) == (0, {("a", 0): 0})
    assert (answer.session_id != NONE) == (epoch == 0)
    assert answer.session_id != first
    assert harness.sessions.partition_count == (1 if epoch == 0 else 0)
    assert client.fetch(12, (first, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_without_partitions_may_be_opened_and_filled(harness: FetchHarness, client: Client) -> None:
    session = client.fetch(12, OPEN).session_id
    assert session != NONE
    assert errors_of(client.fetch(12, (session, 1), Wanted(("a", 0)))) == {("a", 0): 0}


# ---- errors ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("session", [(0, 1), (0, -2), (77, 1), (77, INT32_MAX), (-5, 3)])
@pytest.mark.parametrize("version", [7, 12, 18])
def test_unknown_session_is_an_error_and_never_an_empty_answer(
    harness: FetchHarness, client: Client, version: int, session: tuple[int, int]
) -> None:
    answer = client.fetch(version, session, *all_of(harness, version))
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


@pytest.mark.parametrize("epoch", [1, 0, -1])
@pytest.mark.parametrize(
    ("listener", "principal"),
    [("inside", "User:bob"), ("outside", "User:alice"), ("inside", None)],
    ids=["another principal", "another listener", "nobody in particular"],
)
def test_session_is_for_its_principal_and_listener_alone(
    harness: FetchHarness, listener: str, principal: str | None, epoch: int
) -> None:
    owner = harness.client(listener="inside", principal="User:alice")
    session = opened(harness, owner, 12, "a")
    answer = harness.client(listener=listener, principal=principal).fetch(12, (session, epoch), Wanted(("b", 0)))
    if epoch == 1:
        assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NONE)
        assert answer.responses == []
    else:
        assert (answer.error_code, errors_of(answer)) == (0, {("b", 0): 0})
    # The session's owner is not affected, on any connection.
    produce(harness, "a", 1)
    owner = harness.client(1, listener="inside", principal="User:alice")
    answer = owner.fetch(12, (session, 1))
    assert (answer.session_id, errors_of(answer)) == (session, {("a", 1): 0})


def test_session_ids_cannot_be_foretold(harness: FetchHarness, client: Client) -> None:
    given = []
    for _ in range(2):
        random.seed(1)
        given.append(opened(harness, client, 12))
    assert given[0] != given[1]
    random.seed(1)
    assert given[0] != random.getrandbits(31)


def test_wrong_epoch_is_an_error_and_leaves_the_session_as_it_was(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    for epoch in (2, 5, INT32_MAX, -3):
        answer = client.fetch(12, (session, epoch), Wanted(("a", 9)), forget=[("a", 0)])
        assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
        assert answer.responses == []
    produce(harness, "a", 0)
    assert errors_of(client.fetch(12, (session, 1))) == {("a", 0): 0}
    assert client.fetch(12, (session, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "sent twice"
    assert client.fetch(12, (session, 2)).error_code == 0


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12), (18, 7)])
def test_session_does_not_change_between_names_and_ids(
    harness: FetchHarness, client: Client, first: int, then: int
) -> None:
    session = opened(harness, client, first)
    answer = client.fetch(then, (session, 1))
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert client.fetch(then, (session, 2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "looked at first"
    assert client.fetch(first, (session, 1)).error_code == 0


def test_the_epoch_continues_with_one_after_the_largest(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    harness.sessions._set_epoch(session, INT32_MAX)
    assert client.fetch(12, (session, INT32_MAX)).error_code == 0
    assert client.fetch(12, (session, 0x7FFFFFFF)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert client.fetch(12, (session, 1)).error_code == 0
    assert client.fetch(12, (session, 2)).error_code == 0


# ---- partitions with errors ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [12, 18])
def test_partition_with_an_error_is_answered_each_time(harness: FetchHarness, client: Client, version: int) -> None:
    a9, nobody = harness.key(version, "a", 9), stranger(version)
    session = opened(harness, client, version, "b")
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = {a9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, nobody.key: unknown}
    assert errors_of(client.fetch(version, (session, 1), Wanted(a9), nobody)) == expected
    assert errors_of(client.fetch(version, (session, 2))) == expected
    beyond = Wanted(harness.key(version, "b", 0), 50)
    assert errors_of(client.fetch(version, (session, 3), beyond, forget=[a9, nobody.key])) == {
        beyond.key: ErrorCode.OFFSET_OUT_OF_RANGE
    }
    # Once it has passed the partition is answered though nothing has happened in it.
    good = partitions_of(client.fetch(version, (session, 4), beyond._replace(offset=0)))
    assert [(key, part.error_code, part.high_watermark) for key, part in good.items()] == [(beyond.key, 0, 0)]
    assert client.fetch(version, (session, 5)).responses == []


def test_session_by_name_finds_the_topic_that_comes_and_comes_again(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12, "a")
    late = ("late", 0)
    missing = {late: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors_of(client.fetch(12, (session, 1), Wanted(late))) == missing
    harness.logs.create_topic("late", 1, {})
    assert errors_of(client.fetch(12, (session, 2))) == {late: 0}
    harness.logs.delete_topic("late")
    assert errors_of(client.fetch(12, (session, 3))) == missing
    harness.logs.create_topic("late", 1, {})
    produce(harness, "late", 0)
    assert [len(part.records) for part in partitions_of(client.fetch(12, (session, 4))).values()] == [BATCH_SIZE]


def test_a_session_by_id_distinguishes_a_deleted_topic_from_a_recreated_one(
    harness: FetchHarness, client: Client
) -> None:
    session = opened(harness, client, 13)
    b0, b1 = (harness.key(13, "b", index) for index in range(2))
    harness.logs.delete_topic("b")
    gone = {b0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors_of(client.fetch(13, (session, 1))) == gone
    harness.logs.create_topic("b", 1, {})
    produce(harness, "b", 0)
    anew = {b0: ErrorCode.INCONSISTENT_TOPIC_ID, b1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for epoch in (2, 3):
        assert errors_of(client.fetch(13, (session, epoch))) == anew
    new = harness.key(13, "b", 0)
    answer = client.fetch(13, (session, 4), Wanted(new), forget=[b0, b1])
    assert [(key, len(part.records)) for key, part in partitions_of(answer).items()] == [(new, BATCH_SIZE)]
    # Who first hears of the old id now learns no more than that it is unknown.
    assert set(errors_of(client.fetch(13, FINAL, Wanted(b0), Wanted(b1))).values()) == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_leader_epoch_and_divergence_are_checked_in_sessions_too(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12, "a")
    produce(harness, "a", 0)
    a0, a1 = ("a", 0), ("a", 1)
    answer = client.fetch(12, (session, 1), Wanted(a0, 0, leader_epoch=50), Wanted(a1, 0, leader_epoch=0))
    assert errors_of(answer) == {a0: ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert errors_of(client.fetch(12, (session, 2))) == {a0: ErrorCode.UNKNOWN_LEADER_EPOCH}
    for epoch in (3, 4):
        wanted = [Wanted(a0, 5, last_fetched_epoch=0)] if epoch == 3 else []
        part = partitions_of(client.fetch(12, (session, epoch), *wanted))[a0]
        assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 0, 1)


# ---- whose session it is, and when -----------------------------------------------------------------------------------
def test_session_outlives_its_connection_and_is_served_by_any_worker(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    client.close()
    for epoch, worker in ((1, 1), (2, 0)):
        produce(harness, "a", epoch - 1)
        assert set(errors_of(harness.client(worker).fetch(12, (session, epoch), Wanted(("a", 0), 1)))) == {
            ("a", epoch - 1)
        }


def test_waiting_fetch_looks_at_the_partitions_of_its_time(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    client.send(fetch_frame(12, (session, 1), forget=[("b", 1)], wait_ms=60_000))
    assert not client.is_answered()
    produce(harness, "b", 1)
    harness.settle()
    assert not client.is_answered(), "b-1 was forgotten"
    produce(harness, "b", 0)
    harness.settle()
    assert errors_of(client.receive(12)) == {("b", 0): 0}


def test_waiting_fetch_that_was_overtaken_gets_an_error_and_changes_nothing(
    harness: FetchHarness, client: Client
) -> None:
    session, other = opened(harness, client, 12, "a"), harness.client(1)
    client.send(fetch_frame(12, (session, 1), wait_ms=60_000))
    assert errors_of(other.fetch(12, (session, 2), Wanted(("b", 0)), forget=[("a", 1)])) == {("b", 0): 0}
    produce(harness, "a", 0)
    harness.settle()
    late = client.receive(12)
    assert (late.error_code, late.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session)
    assert late.responses == []
    assert [len(part.records) for part in partitions_of(other.fetch(12, (session, 3))).values()] == [BATCH_SIZE]


def test_waiting_fetch_without_news_is_answered_empty(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    client.send(fetch_frame(12, (session, 1), wait_ms=500))
    harness.pass_time(0.4)
    assert not client.is_answered()
    harness.pass_time(0.2)
    answer = client.receive(12)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, session, [])


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("version", [12, 13])
def test_waiting_fetch_ends_when_a_topic_of_its_session_goes(
    harness: FetchHarness, client: Client, version: int, anew: bool
) -> None:
    session, b0 = opened(harness, client, version), harness.key(version, "b", 0)
    client.send(fetch_frame(version, (session, 1), wait_ms=60_000))
    harness.logs.delete_topic("b")
    if anew:
        harness.logs.create_topic("b", 2, {})
    harness.settle()
    if anew and version < 13:
        assert not client.is_answered(), "the name is there again"
        produce(harness, "b", 0)
        harness.settle()
        assert errors_of(client.receive(version)) == {b0: 0}
        return
    expected = ErrorCode.INCONSISTENT_TOPIC_ID if anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors_of(client.receive(version))[b0] == expected


def test_fetch_that_waits_for_more_bytes_is_woken_when_they_are_there(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    client.send(fetch_frame(12, (session, 1), wait_ms=60_000, size_min=3 * BATCH_SIZE))
    for topic, partition in (("a", 0), ("b", 1)):
        produce(harness, topic, partition)
        harness.settle()
        assert not client.is_answered()
    produce(harness, "a", 1)
    harness.settle()
    assert set(errors_of(client.receive(12))) == {("a", 0), ("a", 1), ("b", 1)}


def test_client_that_leaves_while_waiting_leaves_the_session(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    client.send(fetch_frame(12, (session, 1), wait_ms=60_000))
    client.close()
    produce(harness, "a", 0)
    harness.settle()
    other = harness.client(1)
    assert other.fetch(12, (session, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert errors_of(other.fetch(12, (session, 2))) == {("a", 0): 0}


def test_full_partitions_take_turns(harness: FetchHarness, client: Client) -> None:
    session = opened(harness, client, 12)
    for topic in "ab":
        for partition in range(2):
            for _ in range(20):
                produce(harness, topic, partition)
    served = []
    for epoch in range(1, 9):
        found = partitions_of(client.fetch(12, (session, epoch), size_max=BATCH_SIZE))
        served.append([key for key, part in found.items() if part.records])
    assert served == [[("a", 0)], [("a", 1)], [("b", 0)], [("b", 1)]] * 2


@pytest.mark.parametrize("size_max", [1 << 25, 3 * BATCH_SIZE])
def test_first_fetch_after_a_start_reads_many_partitions(tmp_path: Path, size_max: int) -> None:
    # Each has its producers to be loaded and its bytes to be checked first.
    count = 250
    harness = FetchHarness(tmp_path / "data")
    harness.logs.create_topic("many", count, {})
    for partition in range(count):
        produce(harness, "many", partition)
    harness.close()
    harness = FetchHarness(tmp_path / "data")
    wanted = [Wanted(("many", index)) for index in range(count)]
    found = partitions_of(harness.client().fetch(12, FINAL, *wanted, size_max=size_max))
    assert {(part.error_code, part.high_watermark) for part in found.values()} == {(0, 1)}
    assert sum(bool(part.records) for part in found.values()) == min(count, size_max // BATCH_SIZE)
    harness.close()


# ---- bounds ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def small(tmp_path: Path) -> Iterator[FetchHarness]:
    """Two sessions of ten partitions together; topics are not needed."""
    harness = FetchHarness(tmp_path / "data", slots_max=2, partitions_max=10, eviction_ms=1000)
    yield harness
    harness.close()


def of_size(count: int) -> list[Wanted]:
    return [Wanted(("nobody", index)) for index in range(count)]


def alive(client: Client, session: int, epoch: int) -> bool:
    return bool(client.fetch(12, (session, epoch)).error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_session_is_declined_while_the_cache_is_full(small: FetchHarness) -> None:
    client = small.client()
    first, second = (client.fetch(12, OPEN, *of_size(2)).session_id for _ in range(2))
    declined = client.fetch(12, OPEN, *of_size(3))
    assert (declined.error_code, declined.session_id, len(partitions_of(declined))) == (0, NONE, 3)
    assert alive(client, first, 1)
    assert alive(client, second, 1)
    # A place that is given up is taken again, also in one request.
    assert client.fetch(12, (first, 0), *of_size(2)).session_id != NONE
    assert (len(small.sessions), small.sessions.evicted_count) == (2, 0)


def test_session_idle_for_long_gives_way(small: FetchHarness) -> None:
    client = small.client()
    first, second = (client.fetch(12, OPEN, *of_size(5)).session_id for _ in range(2))
    small.now += 0.9
    assert client.fetch(12, (first, 1)).error_code == 0
    small.now += 0.05
    assert client.fetch(12, OPEN, *of_size(1)).session_id == NONE
    small.now += 0.1
    assert client.fetch(12, OPEN, *of_size(1)).session_id != NONE
    assert alive(client, first, 2)
    assert not alive(client, second, 1)
    assert small.sessions.evicted_count == 1


def test_old_session_gives_way_to_a_larger_one(small: FetchHarness) -> None:
    client = small.client()
    large, little = (client.fetch(12, OPEN, *of_size(count)).session_id for count in (4, 2))
    for epoch in (1, 2):
        small.now += 0.9
        assert client.fetch(12, (large, epoch)).error_code == 0
        assert client.fetch(12, (little, epoch)).error_code == 0
    # Both are old now, and in use.
    assert client.fetch(12, OPEN, *of_size(2)).session_id == NONE, "not larger"
    assert client.fetch(12, OPEN, *of_size(3)).session_id != NONE
    assert alive(client, large, 3)
    assert not alive(client, little, 3)
    assert client.fetch(12, OPEN, *of_size(4)).session_id == NONE, "the newcomer is too young to go"


def test_partitions_of_all_sessions_are_bounded(small: FetchHarness) -> None:
    client = small.client()
    session = client.fetch(12, OPEN, *of_size(6)).session_id
    assert client.fetch(12, OPEN, *of_size(5)).session_id == NONE
    assert client.fetch(12, OPEN, *of_size(11)).session_id == NONE
    assert client.fetch(12, OPEN, *of_size(4)).session_id != NONE
    assert small.sessions.partition_count == 10
    # A session that exceeds the bound ends; its client asks for a new one and is declined.
    answer = client.fetch(12, (session, 1), *of_size(7))
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert (len(small.sessions), small.sessions.partition_count) == (1, 4)
    assert client.fetch(12, OPEN, *of_size(7)).session_id == NONE


def test_sessions_are_charged_to_their_client_and_declined_where_its_memory_is_used_up(tmp_path: Path) -> None:
    memory = MemoryCeiling(1_000_000)
    harness = FetchHarness(tmp_path / "data", slots_max=1000, partitions_max=100_000, memory=memory)
    client = harness.client()
    session = client.fetch(12, OPEN, *of_size(100)).session_id
    assert session != NONE
    assert memory.by_kind()["sessions"] == 1024 + 256 * 100
    assert memory.biggest(1)[0][1] >= memory.by_kind()["sessions"]
    while client.fetch(12, OPEN, *of_size(100)).session_id != NONE:
        assert len(harness.sessions) < 100
    assert memory.by_kind()["sessions"] < memory.size_max // 2
    wanted = of_size(2000)
    assert client.fetch(12, (session, 1), *wanted).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.fetch(12, OPEN, *of_size(100)).session_id != NONE, "there is room again"
    harness.close()


def test_name_that_no_topic_can_have_is_answered_but_not_kept(small: FetchHarness) -> None:
    client = small.client()
    long = Wanted(("x" * 250, 0))
    answer = client.fetch(12, OPEN, long)
    assert (answer.session_id, errors_of(answer)) == (NONE, {long.key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    session = client.fetch(12, OPEN, Wanted(("x" * 249, 0))).session_id
    assert session != NONE
    assert client.fetch(12, (session, 1), long).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(small.sessions) == 0


def test_no_slots_means_no_sessions(tmp_path: Path) -> None:
    harness = FetchHarness(tmp_path / "data", slots_max=0)
    assert harness.client().fetch(12, OPEN, *of_size(1)).session_id == NONE
    harness.close()


def test_places_of_forgotten_partitions_are_used_again(harness: FetchHarness, client: Client) -> None:
    """Random adding and forgetting keeps the order of service whole."""
    session = client.fetch(12, OPEN, Wanted(("nobody", 0))).session_id
    held = [0]
    for epoch in range(1, 200):
        add = [(epoch * 7 + step) % 40 for step in range(epoch % 5)]
        forget = [(epoch * 3 + step) % 40 for step in range(epoch % 4) if (epoch * 3 + step) % 40 != 0]
        answer = client.fetch(
            12,
            (session, epoch),
            *[Wanted(("nobody", index)) for index in add],
            forget=[("nobody", index) for index in forget],
        )
        held += [index for index in add if index not in held]
        held = [index for index in held if index not in forget]
        assert [key[1] for key in partitions_of(answer)] == held
        assert harness.sessions.partition_count == len(held)


def test_consumers_take_no_followers_place_and_followers_take_theirs(tmp_path: Path) -> None:
    harness = FetchHarness(tmp_path / "data", slots_max=2, partitions_max=100, eviction_ms=1000)
    try:
        harness.logs.create_topic("t", 8, {})
        for worker in harness.workers:
            worker.io.use_leaders(Leaders(lambda _listener, _node: None), Meter(inf, inf, inf))
        client = harness.client()
        one, many = [Wanted(("t", 0))], [Wanted(("t", number)) for number in range(8)]

        def opened(wanted: list[Wanted], replica: int = -1) -> int:
            return int(client.fetch(12, (0, 0), *wanted, replica=replica).session_id)

        consumers = [opened(many), opened(many)]
        assert 0 not in consumers
        assert opened(one) == 0, "nobody is old enough to go"
        followers = [opened(one, 2), opened(one, 3)]
        assert 0 not in followers, "a follower's comes before any consumer's"
        assert opened(one, 4) == 0, "another follower's is as young, and as large"
        for turn in range(1, 4):
            harness.pass_time(0.7)
            for number, session in enumerate(followers, 2):
                assert client.fetch(12, (session, turn), replica=number).error_code == 0
        assert opened(many) == 0, "larger than both, and they are old: but followers'"
        assert opened(many, 4) != 0, "a follower's that is larger comes before one that is old"
        harness.pass_time(1.1)
        assert opened(many) != 0, "one that nobody uses any more goes, whosever it was"
    finally:
        harness.close()
