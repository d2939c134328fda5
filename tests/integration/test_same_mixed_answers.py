"""kafkalite gives the responses of Apache Kafka 4.1 to members of groups that change their protocol (KIP-848).

One program plays each scene to both brokers and uses the ids, generations and partitions that each of them returned.
Every response is compared, in order. Slow: Kafka takes seconds to start.

Kafka 4.4 begins groups at epoch 2 and assigns them in the background, up to a second later: epochs and responses of a
scene depend on time there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kit.checkers.side_by_side import Side, two_brokers
from tests.kit.harness.mixed_scene import COUNT, TOPIC, Member, Scene
from tests.kit.processes.apache_kafka import KAFKA_VERSION
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def up_and_down(scene: Scene, *, eager: bool) -> None:
    for name in ("a", "b"):
        scene.member(name, eager=eager)
    scene.classic_group("a", {"a": [0, 1, 2], "b": [3, 4, 5]})
    scene.look()
    scene.beat("new", 0)
    scene.look()
    scene.commit("a", 8)
    scene.heartbeat("a")
    scene.join("a")
    scene.sync("a")
    scene.heartbeat("a")
    scene.beat("new")
    scene.settle("a", "b", "new")
    scene.look()
    scene.leave("b")
    scene.beat("new two", 0)
    scene.settle("a", "new", "new two")
    scene.look()
    scene.beat("new", -1)
    scene.settle("a", "new two")
    scene.beat("new two", -1)
    scene.look()
    scene.heartbeat("a")
    scene.join("a")
    scene.look()
    scene.sync("a", {"a": list(range(COUNT))})
    scene.heartbeat("a")
    scene.look()


def cooperative_members(scene: Scene) -> None:
    up_and_down(scene, eager=False)


def eager_members(scene: Scene) -> None:
    up_and_down(scene, eager=True)


def what_is_refused(scene: Scene) -> None:
    scene.classic_group("a", {"a": [0, 1, 2, 3, 4, 5]})
    scene.beat("new", 3)
    scene.beat("a", 0)
    scene.look()
    scene.beat("new", 0)
    scene.join("a")
    scene.sync("a", generation_id=77)
    scene.sync("a", member_id="nobody")
    scene.sync("a", protocol_type="connect")
    scene.sync("a", protocol_name="roundrobin")
    scene.sync("a", group_instance_id="none")
    scene.sync("new")
    scene.heartbeat("a", generation_id=77)
    scene.heartbeat("a", member_id="nobody")
    scene.heartbeat("a", group_instance_id="none")
    scene.heartbeat("new")
    scene.join("a", protocol_type="connect")
    scene.join("a", protocols=[])
    scene.join("a", protocols=[JoinGroupRequestProtocol(name="none", metadata=b"")])
    scene.join("a", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0")])
    scene.join("a", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\xff\xff\0\0\0\0")])
    scene.join("a", session_timeout_ms=1)
    scene.join("a", group_instance_id="none")
    scene.sync("a")
    for version in (8, 9):
        for name in ("a", "new"):
            scene.commit(name, version)
            scene.commit(name, version, 77)
            scene.commit(name, version, -1)
    scene.fetch("a")
    scene.fetch("a", 77)
    scene.fetch("new", 77)
    scene.ask("delete", api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[scene.group]))
    scene.leave("nobody", "new", "a")
    scene.look()


def static_members(scene: Scene) -> None:
    scene.member("old", "one")
    scene.classic_group("a", {"a": [0, 1, 2], "old": [3, 4, 5]})
    scene.member("new", "one")
    scene.beat("new", 0)
    scene.look()
    scene.heartbeat("old")
    scene.sync("old")
    scene.settle("a", "new")
    scene.look()
    scene.beat("new", -2)
    scene.look()
    scene.member("new again", "one")
    scene.beat("new again", 0)
    scene.settle("a", "new again")
    scene.look()
    scene.member("back", "one")
    scene.join("back")
    scene.look()
    scene.sync("back")
    scene.heartbeat("back")
    scene.heartbeat("a")
    scene.heartbeat("new again")
    scene.beat("new again")


def what_stays_classic(scene: Scene) -> None:
    member = scene.member("a", eager=True)
    for number, (kind, metadata, given) in enumerate(
        [
            ("connect", scene.subscription(member), b""),
            ("consumer", b"\0", b""),
            ("consumer", scene.subscription(member), b"\0\0\0\0\0\0\0\0\0\1x"),
            ("consumer", scene.subscription(member), b"\0\0\0"),
        ]
    ):
        protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
        group = f"{scene.group}{number}"
        request = scene.join_request(Member("a"), group_id=group, protocol_type=kind, protocols=protocols)
        joined = scene.side.ask(api.JOIN_GROUP, 3, request)
        assert joined.error_code == 0, joined
        rows = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=given)]
        scene.side.ask(
            api.SYNC_GROUP,
            3,
            SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id, assignments=rows),
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="new",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        scene.ask(f"case {number}", api.CONSUMER_GROUP_HEARTBEAT, 1, request)
        heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id=joined.member_id)
        scene.ask(f"case {number} goes on", api.HEARTBEAT, 4, heartbeat)


def joins_a_group_of_the_newer_protocol(scene: Scene) -> None:
    scene.beat("new", 0)
    scene.join("a")
    scene.heartbeat("a")
    scene.sync("a")
    scene.settle("a", "new")
    scene.look()
    scene.join("b", 3)
    scene.sync("b")
    scene.settle("a", "b", "new")
    scene.look()
    scene.leave("a", "new")
    scene.look()
    scene.heartbeat("b")
    scene.join("b", 3)
    scene.look()


def asked_for_more(scene: Scene) -> None:
    scene.beat("new", 0)
    scene.join("a")
    scene.sync("a")
    scene.beat("new")
    scene.beat("new two", 0)
    scene.beat("new")
    scene.look()
    scene.heartbeat("a")
    scene.settle("a", "new", "new two")
    scene.leave("new", "new two")
    scene.look()


SCENES = [
    asked_for_more,
    cooperative_members,
    eager_members,
    what_is_refused,
    static_members,
    what_stays_classic,
    joins_a_group_of_the_newer_protocol,
]


def _serves_groups(side: Side) -> bool:
    """Kafka makes its topic of groups when somebody first asks for a coordinator."""
    side.ask(api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    (group,) = side.ask(api.CONSUMER_GROUP_DESCRIBE, 0, ConsumerGroupDescribeRequest(group_ids=["nothing"])).groups
    return bool(group.error_code == ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    settings = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}
    with two_brokers(tmp_path_factory.mktemp("kafka"), version=KAFKA_VERSION, **settings) as both:
        for side in both:
            topics = [CreatableTopic(name=TOPIC, num_partitions=COUNT, replication_factor=1)]
            created = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            side.ids = {topic.name: topic.topic_id for topic in created.topics}
            wait_until(lambda side=side: _serves_groups(side), 60, "a coordinator that serves groups")
        yield both


@pytest.mark.parametrize("play", SCENES)
def test_answers_are_kafkas(sides: tuple[Side, Side], play: Callable[[Scene], None]) -> None:
    kafka, ours = (Scene(side, play.__name__) for side in sides)
    play(kafka)
    play(ours)
    both = zip(kafka.lines, ours.lines, strict=False)
    differ = [f"kafka {theirs}\nours  {mine}" for theirs, mine in both if theirs != mine]
    assert not differ, "\n\n".join(differ)
    assert len(kafka.lines) == len(ours.lines)
