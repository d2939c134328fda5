"""The same KIP-848 group on Apache Kafka 4.1, on 4.4 and on kafkalite: equal records in `__consumer_offsets`.

Ids of topics are replaced by names, and hashes by their topics. Records of different keys may come in another order
within a write; those of each key are compared in theirs. The epochs of a new group begin at 1 here and in Kafka 4.1,
and at 2 in Kafka 4.4: they are counted from the first. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.metadata_hash import group_hash, topic_hash
from kafkalite.client import Chunk, Client
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.kit.checkers.side_by_side import Side
from tests.kit.processes.apache_kafka import ApacheKafka, NotAvailable, jars
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OURS, NEWEST = "kafkalite", "4.4.0"
RELEASES = ("4.1.0", NEWEST)
RACK = "eu-1b"
SETTINGS = {
    "broker.rack": RACK,
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
AT_ONCE = {"group.consumer.min.assignment.interval.ms": "0", "group.consumer.assignment.interval.ms": "0"}
"""Kafka 4.4 waits between two assignments of a group; the others do not know these."""
COUNTS = {"orders": (4, 6)}
"""The partitions of each topic, at first and later."""
TOPICS = sorted(COUNTS)
GROUP = "g"
EPOCHS = {"epoch", "assignment_epoch", "member_epoch", "previous_member_epoch"}
Since = Callable[[int], int]
"""An epoch, counted from the first of its group."""
Records = Mapping[tuple[int, str], list[Any]]
"""(kind, member id) → its values, None for a tombstone."""


class Group:
    """Members that say by heartbeats what they have, as a client would."""

    def __init__(self, port: int, client: Client) -> None:
        self.side = Side(port, {name: client.topic(name).topic_id for name in COUNTS})
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[bytes, list[int]]] = {}

    def beat(self, member: str, epoch: int | None = None, **said: Any) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat. The member follows the response, and reports its partitions in the next one."""
        joins = epoch == 0
        rows = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=numbers)
            for topic, numbers in self.owned.setdefault(member, {}).items()
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member,
            member_epoch=self.epochs[member] if epoch is None else epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            topic_partitions=[] if joins else rows,
            **said,
        )
        answer: ConsumerGroupHeartbeatResponse = self.side.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == 0, answer
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member] = {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}
        return answer

    def settle(self, *members: str, **said: Any) -> None:
        """Each member has what it is to have."""
        for _ in range(4):
            for member in members:
                self.beat(member, **said.get(member, {}))

    def play(self, client: Client) -> None:
        """Members join, leave, are away for a while; a topic grows."""
        reads = {"subscribed_topic_names": TOPICS}
        static = {"instance_id": "i"}
        self.beat("a", 0, **reads)
        self.beat("b", 0, rack_id=RACK, **reads)
        self.settle("a", "b")
        self.beat("c", 0, **reads, **static)
        self.settle("a", "b", "c", c=static)
        self.beat("c", -2, **static)
        self.beat("d", 0, **reads, **static)
        self.settle("a", "b", "d", d=static)
        self.beat("b", -1)
        self.settle("a", "d", d=static)
        client.admin.add_partitions("orders", COUNTS["orders"][-1])
        wait_until(lambda: self.beat("a").member_epoch > self.epochs["d"], 60, "an epoch for new partitions", 0.2)
        self.settle("a", "d", d=static)


@contextmanager
def running(kind: str, directory: Path) -> Iterator[int]:
    """The port of a broker of a release, or of ours."""
    if kind == OURS:
        with Broker(
            log_dirs=str(directory), **{key.replace(".", "_"): value for key, value in SETTINGS.items()}
        ) as ours:
            yield ours.port
        return
    try:
        jars(kind)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {kind}: {missing}")
    with ApacheKafka(directory, {**SETTINGS, **AT_ONCE}, version=kind) as kafka:
        yield kafka.port


def serves_groups(side: Side) -> bool:
    side.ask(api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0))
    answer = side.ask(api.CONSUMER_GROUP_DESCRIBE, 0, ConsumerGroupDescribeRequest(group_ids=["nothing"]))
    return bool(answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND)


def readable(value: Any, names: Mapping[bytes, str], hashes: Mapping[int, str], since: Since) -> Any:
    """A value without what only one broker has."""
    if isinstance(value, bytes):
        return names.get(value, value)
    if isinstance(value, list):
        found = [readable(each, names, hashes, since) for each in value]
        return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
    if not dataclasses.is_dataclass(value):
        return value
    fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    for name in EPOCHS & fields.keys():
        fields[name] = since(fields[name])
    if isinstance(value, stored.CurrentPartitions) and value.assignment_epochs is not None:
        epochs = [since(epoch) for epoch in value.assignment_epochs]
        fields["assignment_epochs"] = dict(sorted(zip(value.partitions, epochs, strict=True)))
    if "partitions" in fields:
        fields["partitions"] = sorted(fields["partitions"])
    if isinstance(value, stored.GroupValue):
        fields["metadata_hash"] = hashes.get(value.metadata_hash, value.metadata_hash)
    return {name: readable(each, names, hashes, since) for name, each in fields.items()}


def hashes_of(ids: Mapping[str, bytes]) -> dict[int, str]:
    """Kafka's hash of everything that a group of these topics may read → its topics, with their partitions."""
    found = {}
    for counts in itertools.product(*((0, *COUNTS[name]) for name in TOPICS)):
        read = [(name, count) for name, count in zip(TOPICS, counts, strict=True) if count]
        hashed = group_hash([topic_hash(name, ids[name], [[RACK]] * count) for name, count in read])
        found[hashed] = ", ".join(f"{name} {count}" for name, count in read)
    return found


def played(kind: str, directory: Path) -> Records:
    """The records of the group, as a broker wrote them."""
    with running(kind, directory) as port, Client(f"127.0.0.1:{port}") as client:
        for name, counts in COUNTS.items():
            client.admin.create_topic(name, counts[0], replication_factor=1)
        group = Group(port, client)
        wait_until(lambda: serves_groups(group.side), 60, "a coordinator that serves groups")
        group.play(client)
        names = {topic_id: name for name, topic_id in group.side.ids.items()}
        hashes = hashes_of(group.side.ids)
        rows = [row for chunk in client.read("__consumer_offsets", 0) for row in zip(*columns(chunk), strict=True)]
    records: dict[tuple[int, str], list[Any]] = {}
    values = [(key, None if value is None else stored.read_value(stored.kind_of(key), value)) for key, value in rows]
    first = next(value.epoch for _, value in values if isinstance(value, stored.GroupValue)) - 1
    for key, value in values:
        shown = readable(value, names, hashes, lambda epoch: epoch - first if epoch > 0 else epoch)
        records.setdefault((stored.kind_of(key), stored.read_key(key)[1]), []).append(shown)
    return records


def columns(chunk: Chunk) -> tuple[Iterable[bytes], Iterable[bytes | None]]:
    return chunk.columns.keys, chunk.columns.values


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return played(OURS, tmp_path_factory.mktemp("ours"))


def without_epochs(records: Records) -> Records:
    """As releases before 4.4 write them."""
    text = {"assignment_epochs": None}

    def old(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: old(each) for name, each in value.items()} | (text if "assignment_epochs" in value else {})
        return [old(each) for each in value] if isinstance(value, list) else value

    return {key: [old(value) for value in values] for key, values in records.items()}


def moves(records: Records) -> Records:
    """Kafka writes a member that waits once more, with its own epoch as the one before: that is no move of it."""
    found = {}
    for key, values in records.items():
        kept: list[Any] = []
        for value in values:
            if key[0] == stored.CURRENT and kept and value and kept[-1] and moved_only_before(kept[-1], value):
                continue
            kept.append(value)
        found[key] = kept
    return found


def moved_only_before(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {**one, "previous_member_epoch": 0} == {**other, "previous_member_epoch": 0}


@pytest.mark.parametrize("release", RELEASES)
def test_a_group_has_the_records_of_a_release(release: str, ours: Records, tmp_path: Path) -> None:
    theirs = moves(played(release, tmp_path))
    expected = moves(ours if release == NEWEST else without_epochs(ours))
    for key in sorted(theirs.keys() | ours.keys()):
        assert expected.get(key) == theirs.get(key), key
    hashed = [value["metadata_hash"] for value in theirs[stored.GROUP, ""]]
    assert hashed[0] == "orders 4", hashed
    assert hashed[-1] == "orders 6", hashed
