"""One member against a coordinator that moves, loads, forgets, is late or refuses: what it does about each answer.

Groups of several members, on real brokers, are in tests/integration/test_client_groups.py.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite.client import Client, CommitFailed, GroupReader, NoOffset, ProtocolError, ReaderClosed
from kafkalite.errors import ErrorCode, FencedInstanceId, GroupMaxSizeReached, InconsistentGroupProtocol
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages.join_group import JoinGroupResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse
from tests.kit.fakes.cluster import (
    CLOSE,
    CLOSE_AFTER,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    VERSIONS,
    FakeCluster,
)
from tests.kit.fakes.one_member_group import FakeGroup
from tests.kit.processes.broker import wait_until

QUICK = {"request_timeout_s": 10.0, "retry_timeout_s": 20.0, "retry_backoff_s": 0.005}
RECORD_COUNT = 100
TIMEOUT_S = 30


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(nodes=2) as cluster:
        cluster.create("t", 2)
        yield cluster


@pytest.fixture
def member(cluster: FakeCluster) -> Iterator[Callable[..., GroupReader]]:
    made: list[Any] = []

    def make(retry_timeout_s: float = QUICK["retry_timeout_s"], **options: Any) -> GroupReader:
        client = Client(cluster.bootstrap, **{**QUICK, "retry_timeout_s": retry_timeout_s})
        made.insert(0, client)
        for partition in (0, 1):
            if not cluster.topics["t"][partition].end:
                client.produce("t", partition, [b"%d" % i for i in range(RECORD_COUNT)])
        options = {"reset": "earliest", "heartbeat_interval_s": 0.02, "max_wait_ms": 1, **options}
        reader = client.group_reader("g", options.pop("topics", "t"), **options)
        made.append(reader)
        return reader

    yield make
    for each in reversed(made):
        each.close()


def read_all(reader: GroupReader, count: int = 2 * RECORD_COUNT) -> list[tuple[int, bytes | None]]:
    """Poll until `count` records arrived; return (partition, value) of each."""
    found: list[tuple[int, bytes | None]] = []

    def enough() -> bool:
        for chunk in reader.poll(0.05):
            found.extend((chunk.partition.partition, value) for value in chunk.columns.values)
        return len(found) >= count

    wait_until(enough, TIMEOUT_S, "all records", 0.0)
    return found


def read_to_the_end(reader: GroupReader) -> list[tuple[int, bytes | None]]:
    """Polls until all that there is was handed out in the present generation: (partition, value) of each."""
    found: list[tuple[int, bytes | None]] = []

    def at_the_end() -> bool:
        for chunk in reader.poll(0.05):
            found.extend((chunk.partition.partition, value) for value in chunk.columns.values)
        return list(reader.positions.values()) == [RECORD_COUNT, RECORD_COUNT]

    wait_until(at_the_end, TIMEOUT_S, "the end of both partitions", 0.0)
    return found


EVERYTHING = sorted((partition, b"%d" % i) for partition in (0, 1) for i in range(RECORD_COUNT))

PASSING = [
    pytest.param(api_key, action, id=f"{name}-{action}")
    for name, api_key, actions in (
        ("find", FIND_COORDINATOR, (CLOSE, CLOSE_AFTER, 14, 15)),
        ("join", JOIN_GROUP, (CLOSE, CLOSE_AFTER, 14, 15, 16, 25, 27)),
        ("sync", SYNC_GROUP, (CLOSE, CLOSE_AFTER, 14, 15, 16, 22, 25, 27)),
        ("fetch", OFFSET_FETCH, (CLOSE, CLOSE_AFTER, 14, 15, 16, 27, 51, 88)),
        ("commit", OFFSET_COMMIT, (CLOSE, CLOSE_AFTER, 7, 14, 15, 16, 27)),
        ("beat", HEARTBEAT, (CLOSE, CLOSE_AFTER, 14, 15, 16, 27)),
        ("leave", LEAVE_GROUP, (CLOSE, CLOSE_AFTER, 16, 25)),
    )
    for action in actions
]


@pytest.mark.parametrize(("api_key", "action"), PASSING)
def test_what_passes_is_lived_through(
    cluster: FakeCluster, member: Callable[..., GroupReader], api_key: int, action: str | int
) -> None:
    cluster.fail(api_key, action, times=3)
    reader = member()
    found = read_all(reader)
    if api_key == HEARTBEAT:  # a rebalance gives back what was not committed, and it is read once more
        found += read_to_the_end(reader)
        found = list(set(found))
    assert sorted(found) == EVERYTHING
    reader.commit()
    assert cluster.group.offsets == {("t", 0): RECORD_COUNT, ("t", 1): RECORD_COUNT}
    if api_key == HEARTBEAT:
        everything = [TopicPartition("t", 0), TopicPartition("t", 1)]
        wait_until(
            lambda: not reader.poll(0.02) and cluster.count(HEARTBEAT) > 5 and reader.assignment == everything,
            TIMEOUT_S,
            "beats, and all partitions",
        )
    reader.close()


@pytest.mark.parametrize(
    ("api_key", "code", "error"),
    [
        (JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocol),
        (JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReached),
        (JOIN_GROUP, ErrorCode.FENCED_INSTANCE_ID, FencedInstanceId),
        (SYNC_GROUP, ErrorCode.FENCED_INSTANCE_ID, FencedInstanceId),
        (HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID, FencedInstanceId),
    ],
)
def test_what_does_not_pass_is_raised_by_every_poll(cluster, member, api_key, code, error) -> None:
    lost: list[TopicPartition] = []
    reader = member(on_lost=lost.extend)
    cluster.fail(api_key, code)

    def poll_until_refused() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            reader.poll(0.05)

    for _ in range(2):
        with pytest.raises(error, match="group g"):
            poll_until_refused()
    assert (len(lost) > 0) == (api_key == HEARTBEAT)
    assert reader.assignment == []


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_dropped_comes_back(cluster, member, code) -> None:
    events: list[tuple[str, int]] = []
    reader = member(
        on_assigned=lambda keys: events.append(("assigned", len(keys))),
        on_revoked=lambda keys: events.append(("revoked", len(keys))),
        on_lost=lambda keys: events.append(("lost", len(keys))),
    )
    read_all(reader)
    reader.commit()
    cluster.fail(HEARTBEAT, code)
    wait_until(lambda: reader.poll(0.02) == [] and len(events) == 3, TIMEOUT_S, "the second assignment")
    assert events == [("assigned", 2), ("lost", 2), ("assigned", 2)]
    assert cluster.group.joins[-1].member_id != cluster.group.joins[1].member_id


def test_partitions_kept_while_the_group_rebalances_are_revoked_by_closing(cluster, member) -> None:
    events: list[tuple[str, int]] = []
    reader = member(
        assignors=("cooperative-sticky",),
        on_revoked=lambda keys: events.append(("revoked", len(keys))),
        on_lost=lambda keys: events.append(("lost", len(keys))),
    )
    read_all(reader)
    joins = len(cluster.group.joins)
    cluster.fail(JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=10_000)
    cluster.fail(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
    wait_until(lambda: reader.poll(0.02) == [] and len(cluster.group.joins) > joins, TIMEOUT_S, "the member joining")
    reader.close()
    assert events == [("revoked", 2)]


def test_a_late_commit_says_so(cluster, member) -> None:
    reader = member(heartbeat_interval_s=1000.0)
    read_all(reader)
    cluster.group.generation += 1
    with pytest.raises(CommitFailed, match=r"no longer in group .* \(ILLEGAL_GENERATION\)"):
        reader.commit()
    answers: list[Exception | None] = []
    reader.commit_async(callback=lambda offsets, error: answers.append(error))
    wait_until(lambda: reader.poll(0.01) == [] and answers, TIMEOUT_S, "the answer")
    assert isinstance(answers[0], CommitFailed)
    with pytest.raises(CommitFailed, match="cannot commit t-5: not assigned"):
        reader.commit({TopicPartition("t", 5): 1})


def test_a_commit_before_the_first_poll_has_nothing_to_commit(cluster, member) -> None:
    member().commit()
    assert cluster.group.offsets == {}


@pytest.mark.parametrize(
    ("kind", "field", "lie", "said"),
    [
        (SyncGroupResponse, "assignment", b"\0\1\2\0\0\1" + bytes(20), "invalid assignment"),
        (SyncGroupResponse, "assignment", b"\0", "invalid assignment"),
        (JoinGroupResponse, "protocol_name", "fairest", "chose assignor 'fairest', which this member does not support"),
    ],
)
def test_nonsense_about_a_groups_agreement_is_our_error(
    member, monkeypatch: pytest.MonkeyPatch, kind: type, field: str, lie: object, said: str
) -> None:
    name = "sync" if kind is SyncGroupResponse else "join"
    honest = getattr(FakeGroup, name)

    def lying(group: FakeGroup, node: int, request: Any, code: int) -> Any:
        answer = honest(group, node, request, code)
        if not answer.error_code:
            setattr(answer, field, lie)
        return answer

    monkeypatch.setattr(FakeGroup, name, lying)
    with pytest.raises(ProtocolError, match=said):
        read_all(member(retry_timeout_s=2.0))


def test_commit_callbacks_come_in_order(cluster, member) -> None:
    reader = member()
    read_all(reader)
    seen: list[tuple[int, bool]] = []
    cluster.fail(OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, skip=1)
    key = TopicPartition("t", 0)
    for offset in range(5):
        reader.commit_async({key: offset}, lambda rows, error: seen.append((rows[key].offset, error is None)))
    reader.commit({key: 50})
    assert seen == [(0, True), (1, False), (2, True), (3, True), (4, True)]
    assert cluster.group.offsets["t", 0] == 50


def test_commits_under_way_are_heard_of_when_the_connection_breaks(cluster, member) -> None:
    reader = member()
    read_all(reader)
    cluster.fail(OFFSET_COMMIT, CLOSE)
    errors: list[Exception | None] = []
    for offset in range(3):
        reader.commit_async({TopicPartition("t", 0): offset}, lambda rows, error: errors.append(error))
    wait_until(lambda: reader.poll(0.01) == [] and len(errors) == 3, TIMEOUT_S, "three answers")
    assert isinstance(errors[0], CommitFailed)


def test_without_an_offset_and_without_reset(cluster, member) -> None:
    cluster.group.offsets["t", 0] = 7
    reader = member(reset=None)

    def poll() -> None:
        for _ in range(1000):
            reader.poll(0.02)

    with pytest.raises(NoOffset, match="no committed offset for t-1"):
        poll()
    cluster.group.offsets["t", 1] = 9
    values = read_all(reader, 2 * RECORD_COUNT - 16)
    assert min(int(value) for partition, value in values if partition == 0) == 7


def test_coordinator_that_moves(cluster, member) -> None:
    reader = member()
    read_all(reader)
    cluster.group.node = 1
    reader.commit()
    wait_until(lambda: reader.poll(0.02) == [] and cluster.count(HEARTBEAT) > 3, TIMEOUT_S, "beats")
    assert len(reader.assignment) == 2


@pytest.mark.parametrize("assignors", [("range",), ("cooperative-sticky",), ("range", "cooperative-sticky")], ids=str)
def test_a_rebalance(cluster, member, assignors) -> None:
    """Eager: all is given up and taken again. Cooperative: nothing happens to what stays."""
    events: list[tuple[str, int]] = []
    reader = member(
        assignors=assignors,
        on_assigned=lambda keys: events.append(("+", len(keys))),
        on_revoked=lambda keys: events.append(("-", len(keys))),
    )
    read_all(reader)
    cluster.fail(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
    count = len(cluster.group.joins)
    wait_until(lambda: reader.poll(0.02) == [] and len(cluster.group.joins) > count, TIMEOUT_S, "another join")
    cooperative = assignors == ("cooperative-sticky",)
    assert reader.group_metadata.member_id == cluster.group.member_id
    expected = [("+", 2), ("+", 0)] if cooperative else [("+", 2), ("-", 2), ("+", 2)]
    wait_until(lambda: reader.poll(0.02) is not None and events == expected, TIMEOUT_S, f"{expected}, has {events}")


def test_a_topic_that_grows_is_noticed_by_the_leader(cluster, member) -> None:
    reader = member(topics_age_max_s=0.05, topics=["t", "later"])
    read_all(reader)
    with cluster.lock:
        cluster.topics["t"].append(type(cluster.topics["t"][0])(leader=1))
    wait_until(lambda: reader.poll(0.02) == [] and len(reader.assignment) == 3, TIMEOUT_S, "the third partition")
    cluster.create("later")
    wait_until(lambda: reader.poll(0.02) == [] and len(reader.assignment) == 4, TIMEOUT_S, "the new topic")


def test_who_does_not_poll_leaves(cluster, member) -> None:
    lost: list[TopicPartition] = []
    reader = member(max_poll_interval_s=0.3, on_lost=lost.extend)
    read_all(reader)
    wait_until(lambda: cluster.group.left, TIMEOUT_S, "the member leaving")

    def refused() -> bool:
        try:
            reader.commit(reader.positions)
        except CommitFailed as error:
            return "is not in group g now" in str(error)
        return False  # the answer to its leaving has not come yet: this one was taken, the next may not be

    wait_until(refused, TIMEOUT_S, "a commit that is refused")
    reader.poll(0.0)
    assert len(lost) == 2


def test_leaving_on_close_and_not_for_static_members(cluster, member) -> None:
    reader = member()
    read_all(reader)
    reader.close()
    reader.close()
    assert cluster.group.left == [cluster.group.member_id]
    static = member(instance_id="one")
    read_all(static)
    static.close()
    assert len(cluster.group.left) == 1
    assert cluster.group.joins[-1].group_instance_id == "one"


def test_closed_by_another_thread(member) -> None:
    reader = member()
    read_all(reader)
    ended = threading.Event()

    def follow() -> None:
        for _ in reader:
            pass
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()

    def refused() -> bool:
        try:
            reader.poll(0.0)
        except RuntimeError as error:
            return "one thread at a time" in str(error)
        return False

    wait_until(refused, TIMEOUT_S, "the other thread inside")
    reader.close()
    assert ended.wait(TIMEOUT_S)
    thread.join()
    with pytest.raises(ReaderClosed):
        reader.poll()
    with pytest.raises(ReaderClosed):
        reader.commit()


def test_automatic_commits_and_none_after_an_exception(cluster, member) -> None:
    with contextlib.suppress(ZeroDivisionError), member(auto_commit_interval_s=1000.0) as reader:
        read_all(reader)
        assert 1 // 0
    assert cluster.group.offsets == {}
    with member(auto_commit_interval_s=1000.0) as reader:
        read_all(reader)
    assert cluster.group.offsets == {("t", 0): RECORD_COUNT, ("t", 1): RECORD_COUNT}
    cluster.group.offsets.clear()
    reader = member(auto_commit_interval_s=0.02)
    read_all(reader)
    wait_until(lambda: reader.poll(0.02) == [] and len(cluster.group.offsets) == 2, TIMEOUT_S, "the commit")


def test_seek_pause_position_and_lag(member) -> None:
    reader = member(fetch_size=100)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    read_all(reader)
    assert reader.positions == {first: RECORD_COUNT, second: RECORD_COUNT}
    assert (reader.lag(first), reader.position(first)) == (0, RECORD_COUNT)
    reader.pause([second])
    reader.seek(first, RECORD_COUNT - 2)
    reader.seek(second, 0)
    assert reader.lag(first) == 2
    assert read_all(reader, 2) == [(0, b"98"), (0, b"99")]
    assert reader.poll(0.05) == []
    assert reader.paused == [second]
    reader.resume([second])
    assert read_all(reader, RECORD_COUNT)[0] == (1, b"0")
    with pytest.raises(KeyError):
        reader.seek(TopicPartition("t", 7), 0)


def test_seek_from_on_assigned(member) -> None:
    def place(keys: list[TopicPartition]) -> None:
        for key in keys:
            reader.seek(key, 90)

    reader = member(on_assigned=place)
    assert sorted(read_all(reader, 20)) == sorted((p, b"%d" % i) for p in (0, 1) for i in range(90, 100))


def test_iterating_counts_what_was_handed_out(cluster, member) -> None:
    reader = member(fetch_size=100)
    seen = {("t", 0): 0, ("t", 1): 0}
    for chunk in reader:
        seen[chunk.partition] = chunk.next_offset
        reader.commit()
        assert cluster.group.offsets == seen
        if list(seen.values()) == [RECORD_COUNT, RECORD_COUNT]:
            break


def test_older_brokers(cluster: FakeCluster) -> None:
    """Versions of Kafka 2.1: no static members, a list of members in LeaveGroup, nor stable offsets."""
    old = {
        JOIN_GROUP: (0, 4), SYNC_GROUP: (0, 2), HEARTBEAT: (0, 2), LEAVE_GROUP: (0, 2), OFFSET_COMMIT: (0, 6),
        OFFSET_FETCH: (0, 5), FIND_COORDINATOR: (0, 2),
    }  # fmt: skip
    with FakeCluster(versions={**VERSIONS, **old}) as cluster, Client(cluster.bootstrap, **QUICK) as client:
        cluster.create("t")
        client.produce("t", 0, [b"x"] * 3)
        with client.group_reader("g", "t", reset="earliest") as reader:
            assert len(read_all(reader, 3)) == 3
            reader.commit()
        assert cluster.group.offsets == {("t", 0): 3}
        assert cluster.count(LEAVE_GROUP) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"assignors": ("fair",)}, "assignors must be"),
        ({"assignors": ()}, "assignors must be"),
        ({"topics": ()}, "no topic"),
        ({"reset": "middle"}, "reset must be"),
    ],
)
def test_what_is_no_reader(member, options, text) -> None:
    with pytest.raises(ValueError, match=text):
        member(**options)
