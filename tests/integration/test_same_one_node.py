"""What Apache Kafka 4.1 of one node answers about its cluster, kafkalite answers.

Elections, reassignments, data directories, the quorum, features, registrations, settings of groups and of client
metrics: in every version both serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import alter_configs as ac
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite.wire.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkalite.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kit.checkers.side_by_side import Make, Side, Step, differences, two_brokers, versions
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODE = 1
UPGRADE, SAFE, UNSAFE = 1, 2, 3
OURS = frozenset({"eligible.leader.replicas.version", "group.version", "metadata.version", "transaction.version"})


def always(request: Any) -> Make:
    return lambda version, side: request


def elections() -> Iterator[Step]:
    key = api.ELECT_LEADERS

    def ask(topics: list[TopicPartitions] | None, election: int = 0) -> Make:
        def request(version: int, side: Side) -> ElectLeadersRequest:
            more = {"election_type": election} if version else {}
            return ElectLeadersRequest(topic_partitions=topics, timeout_ms=10_000, **more)

        return request

    known = [TopicPartitions(topic="orders", partitions=[0, 1])]
    odd = [TopicPartitions(topic="orders", partitions=[7, -1]), TopicPartitions(topic="missing", partitions=[0])]
    for label, topics in (("known", known), ("odd", odd), ("all", None), ("none", []), ("empty", [TopicPartitions()])):
        yield f"elect {label}", key, versions(key), ask(topics)
        yield f"elect any {label}", key, versions(key, 1), ask(topics, 1)
        yield f"elect by no known type {label}", key, versions(key, 1), ask(topics, 2)
    yield "elect by a negative type", key, versions(key, 1), ask(known, -1)
    yield "elect twice", key, versions(key), ask([TopicPartitions(topic="orders", partitions=[0, 0])])


def reassignments() -> Iterator[Step]:
    key = api.ALTER_PARTITION_REASSIGNMENTS

    def ask(replicas: list[int] | None, topic: str = "orders", index: int = 0, **more: Any) -> Make:
        part = ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [ReassignableTopic(name=topic, partitions=[part])]
        return always(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=10_000, **more))

    every = versions(key)
    yield "reassign here", key, every, ask([NODE])
    yield "reassign with as many", key, versions(key, 1), ask([NODE], allow_replication_factor_change=False)
    yield "reassign with more", key, versions(key, 1), ask([NODE, 2], allow_replication_factor_change=False)
    yield "reassign cancelled", key, every, ask(None)
    yield "reassign nowhere", key, every, ask([])
    yield "reassign to a stranger", key, every, ask([99])
    yield "reassign to nobody", key, every, ask([-1])
    yield "reassign to a stranger too", key, every, ask([NODE, 2])
    yield "reassign twice", key, every, ask([NODE, NODE])
    yield "reassign unknown partition", key, every, ask([NODE], index=9)
    yield "reassign negative partition", key, every, ask([NODE], index=-1)
    yield "reassign unknown topic", key, every, ask([NODE], "missing")
    yield "reassign topic without name", key, every, ask(None, "")
    yield "reassign nothing", key, every, always(AlterPartitionReassignmentsRequest(topics=[]))
    key = api.LIST_PARTITION_REASSIGNMENTS
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 5]) for name in ("orders", "missing")]
    for topics in (None, [], asked):
        yield f"reassignments {topics}", key, versions(key), always(ListPartitionReassignmentsRequest(topics=topics))


def directories() -> Iterator[Step]:
    key = api.ALTER_REPLICA_LOG_DIRS

    def ask(*topics: tuple[str, list[int]], path: str = "", below: str = "") -> Make:
        moved = [AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics]

        def request(version: int, side: Side) -> AlterReplicaLogDirsRequest:
            dirs = [AlterReplicaLogDir(path=path or log_dir(side) + below, topics=moved)]
            return AlterReplicaLogDirsRequest(dirs=dirs)

        return request

    every = versions(key)
    yield "move to where it is", key, every, ask(("orders", [0, 1]))
    yield "move elsewhere", key, every, ask(("orders", [0]), path="/nowhere")
    yield "move to no absolute path", key, every, ask(("orders", [0]), path="data")
    yield "move to another spelling", key, every, ask(("orders", [0]), below="/.")
    yield "move unknown partition", key, every, ask(("orders", [9, -1]))
    yield "move unknown topic", key, every, ask(("missing", [0]), ("", [0]))
    yield "move a long name", key, every, ask(("x" * 213, [0]), ("x" * 214, [0]), ("x" * 249, [0]))
    yield "move a long name elsewhere", key, every, ask(("x" * 249, [0]), path="/nowhere")
    yield "move nothing", key, every, always(AlterReplicaLogDirsRequest(dirs=[]))


def log_dir(side: Side) -> str:
    answer = side.ask(api.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=[]))
    return str(answer.results[0].log_dir)


def quorum() -> Iterator[Step]:
    key = api.DESCRIBE_QUORUM

    def ask(*topics: tuple[str, list[int]]) -> Make:
        return always(
            DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequestTopicData(
                        topic_name=name,
                        partitions=[DescribeQuorumRequestPartitionData(partition_index=index) for index in indexes],
                    )
                    for name, indexes in topics
                ]
            )
        )

    metadata = "__cluster_metadata"
    yield "quorum", key, versions(key), ask((metadata, [0]))
    yield "quorum of another partition", key, versions(key), ask((metadata, [1]))
    yield "quorum of two partitions", key, versions(key), ask((metadata, [0, 1]))
    yield "quorum of another topic", key, versions(key), ask(("orders", [0]))
    yield "quorum of two topics", key, versions(key), ask((metadata, [0]), ("orders", [0]))
    yield "quorum of nothing", key, versions(key), ask()
    yield "quorum of no partition", key, versions(key), ask((metadata, []))


def features() -> Iterator[Step]:
    key = api.UPDATE_FEATURES

    def ask(*updates: tuple[str, int, int], validate_only: bool = False) -> Make:
        def request(version: int, side: Side) -> UpdateFeaturesRequest:
            rows = []
            for name, level, kind in updates:
                row = FeatureUpdateKey(feature=name, max_version_level=level)
                if version:
                    row.upgrade_type = kind
                rows.append(row)
            more = {"validate_only": validate_only} if version else {}
            return UpdateFeaturesRequest(feature_updates=rows, timeout_ms=10_000, **more)

        return request

    every, later = versions(key), versions(key, 1)
    yield "features none", key, every, ask()
    yield "features as they are", key, every, ask(("group.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE))
    yield "features metadata as it is", key, every, ask(("metadata.version", 27, UPGRADE))
    yield "features down by an upgrade", key, every, ask(("group.version", 0, UPGRADE))
    yield "features only asked", key, later, ask(("group.version", 0, SAFE), validate_only=True)
    for name, level, kind in (
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE),
        ("group.version", 1, SAFE),
        ("group.version", 1, 4),
        ("group.version", 1, 0),
        ("metadata.version", 22, SAFE),
        ("metadata.version", 22, UNSAFE),
        ("metadata.version", 7, UNSAFE),
        ("metadata.version", 6, SAFE),
        ("metadata.version", 0, SAFE),
        ("metadata.version", 28, UPGRADE),
        ("eligible.leader.replicas.version", 1, UPGRADE),
        ("eligible.leader.replicas.version", 2, UPGRADE),
        ("kraft.version", 1, UPGRADE),
        ("kraft.version", 2, UPGRADE),
        ("kraft.version", 0, UPGRADE),
        ("kraft.version", 0, SAFE),
        ("kraft.version", 0, UNSAFE),
        ("nonsense", 1, UPGRADE),
        ("nonsense", 0, UPGRADE),
        ("nonsense", 0, SAFE),
        ("", 1, UPGRADE),
    ):
        yield f"features {name} {level} by {kind}", key, later, ask((name, level, kind))
    yield "features good and bad", key, later, ask(("transaction.version", 1, SAFE), ("nonsense", 1, UPGRADE))
    yield "features down", key, later, ask(("group.version", 0, SAFE), ("metadata.version", 23, SAFE))
    yield "features down again", key, later, ask(("group.version", 0, UNSAFE))
    yield "features eligible replicas down", key, later, ask(("eligible.leader.replicas.version", 0, SAFE))
    yield "features eligible replicas up", key, later, ask(("eligible.leader.replicas.version", 1, UPGRADE))


def newer_groups() -> Iterator[Step]:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="AAAAAAAAAAAAAAAAAAAAAQ", rebalance_timeout_ms=9, subscribed_topic_names=["orders"]
    )
    key = api.CONSUMER_GROUP_HEARTBEAT
    yield "heartbeat without the protocol", key, versions(key), always(beat)
    key = api.CONSUMER_GROUP_DESCRIBE
    asked = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    yield "described without the protocol", key, versions(key), always(asked)


CLIENT_METRICS_TYPE, GROUP_TYPE = 16, 32
SET, DELETE, APPEND = 0, 1, 2
SESSION, BEATS = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def group_settings() -> Iterator[Step]:
    def change(*configs: tuple[str, int, str | None], name: str = "g", validate_only: bool = False) -> Make:
        items = [iac.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs]
        resource = iac.AlterConfigsResource(resource_type=GROUP_TYPE, resource_name=name, configs=items)
        return always(iac.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only))

    def replace(*configs: tuple[str, str]) -> Make:
        items = [ac.AlterableConfig(name=key, value=value) for key, value in configs]
        resource = ac.AlterConfigsResource(resource_type=GROUP_TYPE, resource_name="g", configs=items)
        return always(ac.AlterConfigsRequest(resources=[resource]))

    key = api.INCREMENTAL_ALTER_CONFIGS
    for name, value in (
        (SESSION, "50000"),
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "x"),
        (SESSION, ""),
        (BEATS, "6000"),
        (BEATS, "4999"),
        (BEATS, "15001"),
        ("share.session.timeout.ms", "1"),
        ("share.heartbeat.interval.ms", "16000"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.record.lock.duration.ms", "60000"),
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "none"),
        ("share.isolation.level", "read_committed"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("streams.num.standby.replicas", "2"),
        ("streams.num.standby.replicas", "3"),
        ("streams.session.timeout.ms", "44000"),
        ("retention.ms", "1"),
    ):
        yield f"group {name} {value}", key, versions(key), change((name, SET, value))
    yield "group append", key, versions(key), change((SESSION, APPEND, "1"))
    yield "group null", key, versions(key), change((SESSION, SET, None))
    yield "group without a name", key, versions(key), change((SESSION, SET, "50000"), name="")
    yield "group checked", key, versions(key), change((SESSION, SET, "51000"), validate_only=True)
    yield from described_groups("after changes")
    yield (
        "group deleted",
        key,
        versions(key),
        change((SESSION, DELETE, None), (BEATS, DELETE, None)),
    )
    yield from described_groups("after a deletion")
    yield "group replaced", api.ALTER_CONFIGS, versions(api.ALTER_CONFIGS), replace((SESSION, "55000"))
    yield from described_groups("after a replacement")
    yield "group replaced badly", api.ALTER_CONFIGS, versions(api.ALTER_CONFIGS), replace((SESSION, "1"))
    yield (
        "groups listed",
        api.LIST_CONFIG_RESOURCES,
        range(1, 2),
        always(ListConfigResourcesRequest(resource_types=[32])),
    )


def described_groups(when: str) -> Iterator[Step]:
    key = api.DESCRIBE_CONFIGS
    for name in ("g", "nobody", ""):
        asked = [DescribeConfigsResource(resource_type=GROUP_TYPE, resource_name=name, configuration_keys=None)]
        # Kafka 4.1 names no broker settings among the synonyms: test_same_newer_release.py compares them with 4.4.
        request = DescribeConfigsRequest(resources=asked, include_synonyms=False)
        yield f"group {name!r} described {when}", key, versions(key), always(request)


def client_metrics_settings() -> Iterator[Step]:
    def change(*configs: tuple[str, int, str | None], name: str = "m") -> Make:
        items = [iac.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs]
        resource = iac.AlterConfigsResource(resource_type=CLIENT_METRICS_TYPE, resource_name=name, configs=items)
        return always(iac.IncrementalAlterConfigsRequest(resources=[resource]))

    key, listing, describing = api.INCREMENTAL_ALTER_CONFIGS, api.LIST_CONFIG_RESOURCES, api.DESCRIBE_CONFIGS
    listed = always(ListConfigResourcesRequest(resource_types=[]))
    for name, value in (
        ("metrics", "org.apache.kafka.producer.,b"),
        ("metrics", ""),
        ("metrics", "*"),
        ("interval.ms", "99"),
        ("interval.ms", "100"),
        ("interval.ms", "3600001"),
        ("interval.ms", "x"),
        ("interval.ms", ""),
        ("interval.ms", "99999999999"),
        ("match", "client_id"),
        ("match", "client_id="),
        ("match", "client_id=a="),
        ("match", "client_id=a=b"),
        ("match", "client_id=a,"),
        ("match", "client_id=a,client_software_name=[ab]+"),
        ("match", "colour=red"),
        ("match", "client_id=("),
        ("match", ""),
        ("push", "1"),
    ):
        yield f"client metrics {name} {value}", key, versions(key), change((name, SET, value))
    yield "client metrics append", key, range(1), change(("metrics", APPEND, "z."))
    yield "client metrics append to a number", key, versions(key), change(("interval.ms", APPEND, "1"))
    yield "client metrics null", key, versions(key), change(("metrics", SET, None))
    yield "client metrics without a name", key, versions(key), change(("metrics", SET, "*"), name="")
    yield "client metrics listed", listing, range(1), listed
    for name in ("m", "nobody", ""):
        asked = [
            DescribeConfigsResource(resource_type=CLIENT_METRICS_TYPE, resource_name=name, configuration_keys=None)
        ]
        request = DescribeConfigsRequest(resources=asked, include_synonyms=True)
        yield f"client metrics {name!r} described", describing, versions(describing), always(request)
    gone = [(name, DELETE, None) for name in ("metrics", "interval.ms", "match")]
    yield "client metrics deleted", key, versions(key), change(*gone)
    yield "client metrics listed after that", listing, range(1), listed


def strangers() -> Iterator[Step]:
    for broker_id in (99, -1, 2):
        request = UnregisterBrokerRequest(broker_id=broker_id)
        yield f"unregister {broker_id}", api.UNREGISTER_BROKER, range(1), always(request)


def in_force(side: Side) -> dict[str, int]:
    """Finalized features that both know."""
    request = ApiVersionsRequest(client_software_name="story", client_software_version="1")
    answer = side.ask(api.API_VERSIONS, 4, request)
    return {row.name: row.max_version_level for row in answer.finalized_features if row.name in OURS}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka")) as both:
        for side in both:
            topics = [CreatableTopic(name="orders", num_partitions=2, replication_factor=1)]
            answer = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
            assert answer.topics[0].error_code == 0
        yield both


@pytest.mark.parametrize(
    "story",
    [elections, reassignments, directories, quorum, group_settings, client_metrics_settings, strangers],
    ids=lambda story: story.__name__,
)
def test_answers_about_the_cluster_are_the_same(sides: tuple[Side, Side], story: Any) -> None:
    found = differences(sides, story(), {})
    assert not found, "\n".join(found)


def test_features_go_up_and_down_alike(sides: tuple[Side, Side]) -> None:
    found = differences(sides, features(), {})
    assert not found, "\n".join(found)
    wait_until(lambda: in_force(sides[0]) == in_force(sides[1]), 30, "features that come into force")
    assert in_force(sides[0]) == {
        "eligible.leader.replicas.version": 1,
        "metadata.version": 23,
        "transaction.version": 2,
    }
    found = differences(sides, newer_groups(), {})
    assert not found, "\n".join(found)


def test_a_broker_that_is_unregistered_says_so(sides: tuple[Side, Side]) -> None:
    request = UnregisterBrokerRequest(broker_id=NODE)
    found = differences(sides, [("unregister", api.UNREGISTER_BROKER, range(1), always(request))], {})
    assert not found, "\n".join(found)
    answer = sides[1].ask(api.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=None))
    assert answer.error_code == 0, "this one serves on"
