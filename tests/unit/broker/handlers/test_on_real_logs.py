"""The handlers on the real log engine: behaviour that the in-memory fake assumes, and state that survives a restart."""

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker.handlers.alter_configs import SET
from kafkalite.broker.handlers.describe_configs import BROKER, TOPIC
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import ErrorCode
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import incremental_alter_configs as incremental
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.harness import wire
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls
from tests.unit.broker.handlers.test_offsets import delete_records, epoch_end, list_offsets, numbers


class RealBroker:
    """Handlers over a data directory that can be closed and opened again."""

    def __init__(self, directory):
        self.directory = directory
        self.calls = None
        self.logs = None
        self.open()

    def open(self):
        texts = {"log.dirs": str(self.directory), "node.id": str(NODE_ID)}
        self.logs = LogManager(BrokerConfig.load(overrides=texts), SystemClock(), on_fatal=pytest.fail)
        self.logs.open()
        self.calls = HandlerCalls(self.logs, log_dirs=str(self.directory))
        self.calls.services.config = self.logs.config

    def reopen(self):
        self.logs.close()
        self.open()

    def create(self, name, partitions=1, **configs):
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        (result,) = self.calls.call(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
        return result

    def append(self, name, partition, *timestamps):
        """One batch of one record per timestamp."""
        records = [wire.Record(value=b"v", timestamp_delta=time - timestamps[0]) for time in timestamps]
        batch = wire.batch_of(records, base_timestamp=timestamps[0], max_timestamp=max(timestamps))
        self.logs.topics[name].partitions[partition].append(batch)


@pytest.fixture
def real(tmp_path):
    broker = RealBroker(tmp_path / "data")
    yield broker
    broker.logs.close()


def test_topic_lives_from_creation_to_deletion(real):
    created = real.create("orders", 2, retention_ms="60000")
    assert created.error_code == 0
    assert real.create("orders").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert real.create("a.b").error_code == 0
    assert real.create("a_b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=4, assignments=None)])
    assert real.calls.call(api.CREATE_PARTITIONS, 3, grown).results[0].error_code == 0

    real.reopen()
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=created.topic_id, name=None)])
    (topic,) = real.calls.call(api.METADATA, 12, asked).topics
    assert (topic.name, topic.topic_id, len(topic.partitions)) == ("orders", created.topic_id, 4)

    gone = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=created.topic_id)])
    assert real.calls.call(api.DELETE_TOPICS, 6, gone).responses[0].error_code == 0
    again = real.create("orders", 1)
    assert again.error_code == 0
    assert again.topic_id != created.topic_id
    (topic,) = real.calls.call(api.METADATA, 12, asked).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_topic_made_by_asking_takes_records_at_once(real):
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    (topic,) = real.calls.call(api.METADATA, 9, asked).topics
    assert topic.error_code == 0
    real.append("new", 0, 1000)
    assert numbers(list_offsets(real.calls, 7, -1, topic="new", partition=0)) == (0, -1, 1)


def test_offsets_by_time_find_the_record_inside_the_batch(real):
    real.create("orders", 2)
    real.append("orders", 1, 1000, 3000, 2000)
    real.append("orders", 1, 4000, 4000, 3500)
    found = {time: numbers(list_offsets(real.calls, 9, time)) for time in (0, 1000, 1001, 3000, 3001, 4000, 4001)}
    assert found == {
        0: (0, 1000, 0),
        1000: (0, 1000, 0),
        1001: (0, 3000, 1),
        3000: (0, 3000, 1),
        3001: (0, 4000, 3),
        4000: (0, 4000, 3),
        4001: (0, -1, -1),
    }
    assert numbers(list_offsets(real.calls, 9, -3)) == (0, 4000, 3)
    assert numbers(list_offsets(real.calls, 9, -3, partition=0)) == (0, -1, -1)
    assert numbers(list_offsets(real.calls, 9, -1)) == (0, -1, 6)
    assert numbers(list_offsets(real.calls, 9, -2)) == (0, -1, 0)


def test_deleted_records_stay_deleted_over_a_restart(real):
    real.create("orders", 2)
    real.append("orders", 1, *range(1000, 1010))
    assert delete_records(real.calls, 2, 4) == (0, 4)
    assert delete_records(real.calls, 2, 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    real.reopen()
    assert numbers(list_offsets(real.calls, 9, -2)) == (0, -1, 4)
    assert numbers(list_offsets(real.calls, 9, 0)) == (0, 1004, 4)
    assert delete_records(real.calls, 2, -1) == (0, 10)


def test_leader_epoch_is_the_same_after_a_clean_restart(real):
    real.create("orders", 2)
    real.append("orders", 1, 1000, 1001)
    before = epoch_end(real.calls, 4, 0), list_offsets(real.calls, 9, -1).leader_epoch
    real.reopen()
    assert (epoch_end(real.calls, 4, 0), list_offsets(real.calls, 9, -1).leader_epoch) == before == ((0, 0, 2), 0)
    assert epoch_end(real.calls, 4, 1) == (0, -1, -1)


def change(real, kind, name, key, value):
    config = incremental.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = real.calls.call(api.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return response.error_code


def test_settings_hold_at_once_and_over_a_restart(real):
    real.create("orders", 1, retention_ms="60000")
    assert change(real, TOPIC, "orders", "max.message.bytes", "100") == 0
    assert change(real, BROKER, "", "log.segment.bytes", "1048576") == 0
    for _ in range(2):
        topic = real.logs.topics["orders"]
        assert topic.overrides == {"retention.ms": "60000", "max.message.bytes": "100"}
        assert (topic.config.max_message_bytes, topic.config.segment_bytes) == (100, 1048576)
        assert real.calls.services.config.log_segment_bytes == 1048576
        real.reopen()


def test_producer_ids_are_never_given_twice(real):
    given = [real.calls.transactions.producer_ids.next() for _ in range(3)]
    real.reopen()
    given += [real.calls.transactions.producer_ids.next() for _ in range(3)]
    assert len(set(given)) == 6
    assert given == sorted(given)


def test_log_directory_reports_the_size_of_partitions(real):
    real.create("orders", 2)
    real.append("orders", 1, *range(1000, 1100))
    (result,) = real.calls.call(api.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None)).results
    assert result.log_dir == str(real.directory)
    sizes = {row.partition_index: row.partition_size for topic in result.topics for row in topic.partitions}
    assert sizes[0] == 0
    assert sizes[1] > 100
