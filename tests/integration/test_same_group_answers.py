"""What Apache Kafka 4.1 answers to groups of the newer protocol (KIP-848), kafkalite answers.

Members join, report, give up, leave, come back; everything a client can get wrong is asked on the way. What differs on
purpose is listed in DIFFERENT with the reason. Slow: Kafka takes seconds to start.

Kafka 4.4 begins groups at epoch 2 and assigns them in the background, up to a second later: epochs and answers of a
scene depend on time there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import offset_commit as commits
from kafkalite.wire.protocol.messages import offset_fetch as fetches
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest
from tests.kit.checkers.side_by_side import Make, Side, Step, differences, two_brokers, versions
from tests.kit.processes.apache_kafka import KAFKA_VERSION
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DIFFERENT: dict[str, str] = {}
"""Step → why the answers differ on purpose."""

BEAT, DESCRIBE = api.CONSUMER_GROUP_HEARTBEAT, api.CONSUMER_GROUP_DESCRIBE
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


def beat(member: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Make:
    def request(version: int, side: Side) -> ConsumerGroupHeartbeatRequest:
        rows = None
        if owned is not None:
            topic_id = side.ids["orders"]
            rows = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=owned)] if owned else []
        named = {"group_id": f"g{version}", **fields}
        return ConsumerGroupHeartbeatRequest(
            member_id=member, member_epoch=epoch, **{"topic_partitions": rows, **named}
        )

    return request


def join(member: str, **fields: Any) -> Make:
    return beat(member, 0, [], **{"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], **fields})


def describe(version: int, side: Side) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[f"g{version}", "nothing", ""], include_authorized_operations=False)


def beats(label: str, make: Make, newest: int = 99, oldest: int = 0) -> Step:
    return label, BEAT, versions(BEAT, oldest, newest), make


def refusals() -> Iterator[Step]:
    yield beats("no group", beat("m", 1))
    yield beats("leave no group", beat("m", -1))
    yield beats("no group id", join("m", group_id=""))
    yield beats("no member id", join("", group_id="g"), oldest=1)
    yield beats("blank member id", beat(" ", 1))
    yield beats("no instance id", join("m", instance_id=""))
    yield beats("no rack", join("m", rack_id=""))
    yield beats("no rebalance timeout", join("m", rebalance_timeout_ms=-1))
    yield beats("no subscription", join("m", subscribed_topic_names=None))
    yield beats("no owned partitions", join("m", topic_partitions=None))
    yield beats("owned partitions", beat("m", 0, [1], rebalance_timeout_ms=1, subscribed_topic_names=["orders"]))
    yield beats("away without instance", beat("m", -2))
    yield beats("epoch -3", beat("m", -3))
    yield beats("unknown assignor", join("m", server_assignor="sticky"))
    for expression in ("(", "a{1001}", "(?=x)", r"\1", "[b-a]", "*", "a**", r"\pN", "(?P<n>a)", r"\Qa.b\E", "(?i)A"):
        fields = {"group_id": f"expression {expression}", "subscribed_topic_names": None}
        yield beats(f"expression {expression}", join("m", subscribed_topic_regex=expression, **fields), oldest=1)


def members() -> Iterator[Step]:
    yield beats("join", join("m1"))
    yield beats("nothing new", beat("m1", 1))
    yield beats("everything said", beat("m1", 1, [0, 1, 2, 3], **full()))
    yield beats("join again", join("m1"))
    yield beats("epoch ahead", beat("m1", 2))
    yield beats("unknown member", beat("m9", 1))
    yield beats("unknown leaves", beat("m9", -1))
    yield "describe one", DESCRIBE, versions(DESCRIBE), describe
    yield beats("second joins", join("m2", rack_id="r", server_assignor="range"))
    yield "describe assigned", DESCRIBE, versions(DESCRIBE), describe
    yield beats("first is told", beat("m1", 1, [0, 1, 2, 3]))
    yield beats("second waits", beat("m2", 2))
    yield "describe moving", DESCRIBE, versions(DESCRIBE), describe
    yield beats("first gives up", beat("m1", 1, [0, 1]))
    yield beats("second takes over", beat("m2", 2))
    yield "describe stable", DESCRIBE, versions(DESCRIBE), describe
    yield beats("lost answer", beat("m1", 1, [0, 1]))
    yield beats("lost answer, owns more", beat("m1", 1, [0, 3]))
    yield beats("lost answer, owns unsaid", beat("m1", 1))
    yield beats("other assignor", beat("m1", 2, server_assignor="range"))
    yield beats("no such topic", join("m3", subscribed_topic_names=["missing"]))
    yield beats("no topic", join("m4", subscribed_topic_names=[]))
    yield from others_ask()
    for member in ("m4", "m3", "m2"):
        yield beats(f"{member} leaves", beat(member, -1))
    yield "describe left", DESCRIBE, versions(DESCRIBE), describe
    yield beats("last one is told", beat("m1", 2))
    yield beats("last one leaves", beat("m1", -1))
    yield "describe empty", DESCRIBE, versions(DESCRIBE), describe


def full() -> dict[str, Any]:
    return {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}


def static_members() -> Iterator[Step]:
    group = {"group_id": "static"}

    def once(label: str, make: Make) -> Step:
        return label, BEAT, range(1, 2), make

    yield once("static joins", join("s1", instance_id="i", **group))
    yield once("static held", join("s2", instance_id="i", **group))
    yield once("static held by itself", join("s1", instance_id="i", **group))
    yield once("static other id", beat("s2", 1, instance_id="i", **group))
    yield once("static unknown", beat("s1", 1, instance_id="j", **group))
    yield once("static other leaves", beat("s2", -2, instance_id="i", **group))
    yield once("static unknown leaves", beat("s2", -1, instance_id="j", **group))
    yield once("static away", beat("s1", -2, instance_id="i", **group))
    yield once("static away beats", beat("s1", 1, instance_id="i", **group))
    yield once("static back", join("s2", instance_id="i", **group))
    yield once("static elder", beat("s1", 1, instance_id="i", **group))
    yield once("static as dynamic", beat("s2", 1, **group))
    yield once("static leaves", beat("s2", -1, instance_id="i", **group))


def others_ask() -> Iterator[Step]:
    """What other APIs say of such a group."""
    yield (
        "describe classic",
        api.DESCRIBE_GROUPS,
        versions(api.DESCRIBE_GROUPS),
        lambda version, side: DescribeGroupsRequest(groups=["g1"]),
    )
    yield "list", api.LIST_GROUPS, versions(api.LIST_GROUPS), lambda version, side: ListGroupsRequest()
    yield (
        "list by type",
        api.LIST_GROUPS,
        range(5, 6),
        lambda version, side: ListGroupsRequest(types_filter=["CONSUMER"]),
    )
    yield (
        "list by state",
        api.LIST_GROUPS,
        range(4, 6),
        lambda version, side: ListGroupsRequest(states_filter=["stable"]),
    )
    yield (
        "delete while in use",
        api.DELETE_GROUPS,
        versions(api.DELETE_GROUPS),
        lambda version, side: DeleteGroupsRequest(groups_names=["g1"]),
    )
    yield from offsets()
    yield from classic_requests()


def offsets() -> Iterator[Step]:
    for label, member, epoch in (
        ("own", "m1", 2),
        ("stale", "m1", 1),
        ("ahead", "m1", 9),
        ("unknown", "m9", 2),
        ("nobody", "", -1),
        ("no epoch", "m1", -1),
    ):
        yield f"commit {label}", api.OFFSET_COMMIT, versions(api.OFFSET_COMMIT, 8), commit(member, epoch)
        yield f"fetch {label}", api.OFFSET_FETCH, versions(api.OFFSET_FETCH, 9), fetch(member, epoch)
    yield "commit strange id", api.OFFSET_COMMIT, range(10, 11), commit("m1", 2, b"\1" * 16)
    yield "fetch strange id", api.OFFSET_FETCH, range(10, 11), fetch("m1", 2, b"\1" * 16)
    yield (
        "fetch all",
        api.OFFSET_FETCH,
        versions(api.OFFSET_FETCH, 9),
        lambda version, side: fetches.OffsetFetchRequest(
            groups=[fetches.OffsetFetchRequestGroup(group_id="g1", topics=None)]
        ),
    )
    yield (
        "delete offset in use",
        api.OFFSET_DELETE,
        range(1),
        lambda version, side: OffsetDeleteRequest(
            group_id="g1",
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                for name in ("orders", "logs")
            ],
        ),
    )


def classic_requests() -> Iterator[Step]:
    yield (
        "classic heartbeat",
        api.HEARTBEAT,
        range(4, 5),
        lambda version, side: HeartbeatRequest(group_id="g1", member_id="m1", generation_id=2),
    )
    yield (
        "classic sync",
        api.SYNC_GROUP,
        range(5, 6),
        lambda version, side: SyncGroupRequest(
            group_id="g1", member_id="m1", generation_id=2, protocol_type="consumer", protocol_name="range"
        ),
    )
    yield (
        "classic leave",
        api.LEAVE_GROUP,
        range(5, 6),
        lambda version, side: LeaveGroupRequest(
            group_id="g1", members=[MemberIdentity(member_id="m1"), MemberIdentity(group_instance_id="none")]
        ),
    )
    yield (
        "classic join of another kind",
        api.JOIN_GROUP,
        range(3, 4),
        lambda version, side: JoinGroupRequest(
            group_id="g1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="connect",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        ),
    )


def commit(member: str, epoch: int, topic_id: bytes | None = None) -> Make:
    def request(version: int, side: Side) -> commits.OffsetCommitRequest:
        rows = [commits.OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in (0, 9)]
        topic = commits.OffsetCommitRequestTopic(
            name="orders" if version < 10 else "", topic_id=topic_id or side.ids["orders"], partitions=rows
        )
        return commits.OffsetCommitRequest(
            group_id="g1", member_id=member, generation_id_or_member_epoch=epoch, topics=[topic]
        )

    return request


def fetch(member: str, epoch: int, topic_id: bytes | None = None) -> Make:
    def request(version: int, side: Side) -> fetches.OffsetFetchRequest:
        topic = fetches.OffsetFetchRequestTopics(
            name="orders" if version < 10 else "",
            topic_id=topic_id or side.ids["orders"],
            partition_indexes=[0, 1],
        )
        group = fetches.OffsetFetchRequestGroup(
            group_id="g1", member_id=member or None, member_epoch=epoch, topics=[topic]
        )
        return fetches.OffsetFetchRequest(groups=[group])

    return request


def story() -> list[Step]:
    deleted = api.DELETE_GROUPS, range(2, 3), lambda version, side: DeleteGroupsRequest(groups_names=["g0", "g1"])
    return [
        *refusals(),
        *members(),
        *static_members(),
        ("delete", *deleted),
        ("delete again", *deleted),
        ("describe deleted", DESCRIBE, versions(DESCRIBE), describe),
    ]


def _serves_groups(side: Side) -> bool:
    """Kafka makes its topic of groups when somebody first asks for a coordinator."""
    side.ask(api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    (group,) = side.ask(DESCRIBE, 0, ConsumerGroupDescribeRequest(group_ids=["nothing"])).groups
    return bool(group.error_code == ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka"), version=KAFKA_VERSION, offsets_topic_num_partitions="1") as both:
        for side in both:
            topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("orders", "logs")]
            created = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            side.ids = {topic.name: topic.topic_id for topic in created.topics}
            wait_until(lambda side=side: _serves_groups(side), 60, "a coordinator that serves groups")
        yield both


def test_answers_are_kafkas(sides: tuple[Side, Side]) -> None:
    found = differences(sides, story(), DIFFERENT)
    assert not found, "\n".join(found)
