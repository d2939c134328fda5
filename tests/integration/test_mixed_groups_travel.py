"""A group of both protocols' members travels between Apache Kafka 4.1 and kafkalite, and back: its members continue.

`__consumer_offsets` and the topic move, as their directories, from the one to the other after a clean stop. Each of the
two upgrades the group, serves members that joined at the other, and downgrades it. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness.mixed_scene import COUNT, TOPIC, Scene
from tests.kit.processes.apache_kafka import ApacheKafka, replace_partition, run_tool
from tests.kit.processes.broker import BrokerProcess, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OFFSETS = "__consumer_offsets-0"
MOVED = [OFFSETS, *(f"{TOPIC}-{number}" for number in range(COUNT))]
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
LOADED_KINDS = ('"type":"3"', '"type":"5"', '"type":"6"', '"type":"7"', '"type":"8"')


@pytest.fixture
def kafka(tmp_path: Path, kafka_jars: Path) -> Iterator[ApacheKafka]:
    kafka = ApacheKafka(tmp_path / "kafka", settings=SETTINGS)
    yield kafka
    kafka.close()


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "kafkalite", settings=SETTINGS)
    yield broker
    broker.close()
    print(broker.log()[-4000:])


def move(source: Path, target: Path) -> None:
    for name in MOVED:
        if (target / name).exists():
            replace_partition(source / name, target / name)
        else:
            shutil.copytree(source / name, target / name)


def serves_groups(side: Side) -> bool:
    side.ask(api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    (group,) = side.ask(api.CONSUMER_GROUP_DESCRIBE, 0, ConsumerGroupDescribeRequest(group_ids=["nothing"])).groups
    return bool(group.error_code == ErrorCode.GROUP_ID_NOT_FOUND)


def go_on(scene: Scene, port: int) -> None:
    """The same members, at another broker."""
    scene.side = Side(port, scene.side.ids)
    wait_until(lambda: serves_groups(scene.side), 60, "a coordinator that serves groups")


def up(scene: Scene, name: str) -> None:
    """A classic group of `a` and `b` gets a member of the newer protocol."""
    assert scene.beat(name, 0).error_code == 0
    scene.settle("a", "b", name)
    assert [len(scene.members[each].owned) for each in ("a", "b", name)] == [2, 2, 2]


def down(scene: Scene, name: str) -> None:
    """It leaves, and the others share everything again, as their leader says."""
    scene.beat(name, -1)
    assert scene.heartbeat("a") in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
    scene.join_both("a", "b")
    assert scene.heartbeat("a") == 0


def description(scene: Scene) -> list[str]:
    scene.lines.clear()
    scene.look()
    return list(scene.lines)


def dump(directory: Path) -> str:
    segments = sorted((directory / OFFSETS).glob("*.log"))
    names = ",".join(str(path) for path in segments)
    return run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", names)


def test_a_mixed_group_continues_at_the_other_broker(kafka: ApacheKafka, kafkalite: BrokerProcess) -> None:
    kafka.start()
    side = Side(kafka.port)
    topics = [CreatableTopic(name=TOPIC, num_partitions=COUNT, replication_factor=1)]
    created = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    side.ids = {topic.name: topic.topic_id for topic in created.topics}
    scene = Scene(side, "travels")
    go_on(scene, kafka.port)
    scene.classic_group("a", {"a": [0, 1, 2], "b": [3, 4, 5]})
    up(scene, "new")
    scene.commit("a", 9)
    by_kafka = description(scene)
    kafka.stop()

    kafkalite.start()
    kafkalite.stop()
    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    go_on(scene, kafkalite.port)
    assert description(scene) == by_kafka
    assert [scene.heartbeat("a"), scene.heartbeat("b"), scene.beat("new").error_code] == [0, 0, 0]
    scene.commit("a", 9)
    down(scene, "new")
    up(scene, "new two")
    by_kafkalite = description(scene)
    kafkalite.stop()
    text = dump(kafkalite.data_dir)
    assert "isvalid: false" not in text
    assert '"classicMemberMetadata":{"sessionTimeoutMs":30000,"supportedProtocols":[{"name":"coop' in text
    assert '"classicMemberMetadata":null' in text
    assert [kind in text for kind in LOADED_KINDS] == [True] * len(LOADED_KINDS)

    move(kafkalite.data_dir, kafka.data_dir)
    kafka.start()
    go_on(scene, kafka.port)
    assert description(scene) == by_kafkalite
    assert [scene.heartbeat("a"), scene.heartbeat("b"), scene.beat("new two").error_code] == [0, 0, 0]
    scene.commit("b", 9)
    down(scene, "new two")
    kafka.stop()

    move(kafka.data_dir, kafkalite.data_dir)
    kafkalite.start()
    go_on(scene, kafkalite.port)
    assert scene.heartbeat("a") == 0
    up(scene, "new three")
