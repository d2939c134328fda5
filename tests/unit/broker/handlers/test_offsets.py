"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the numbers of a partition."""

import pytest

from kafkalite.errors import ErrorCode, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.kit.harness.handler_calls import versions

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
EVERY_VERSION = versions(api.LIST_OFFSETS)


@pytest.fixture
def log(broker):
    """Partition orders-1: offsets 10 to 15, the last two unstable, epochs 0 and 3."""
    found = broker.logs.topics["orders"].partitions[1]
    found.log_start_offset = 10
    found.timestamps = [100, 300, 200, 400, 400, 350]
    found.unstable_count = 2
    found.leader_epoch = 3
    found.epochs = [(0, 0), (3, 12)]
    return found


def list_offsets(broker, version, timestamp, *, topic="orders", partition=1, isolation=0, epoch=-1):
    item = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[item])]
    )
    response = broker.call(api.LIST_OFFSETS, version, request)
    assert response.topics[0].name == topic
    (answer,) = response.topics[0].partitions
    assert answer.partition_index == partition
    return answer


def numbers(answer):
    return answer.error_code, answer.timestamp, answer.offset


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_latest_is_the_high_watermark(broker, log, version):
    answer = list_offsets(broker, version, LATEST)
    assert numbers(answer) == (0, -1, 16)
    assert answer.leader_epoch == (3 if version >= 4 else -1)
    assert not broker.blocked


@pytest.mark.parametrize("version", EVERY_VERSION[1:])
def test_latest_for_read_committed_is_the_last_stable_offset(broker, log, version):
    assert numbers(list_offsets(broker, version, LATEST, isolation=1)) == (0, -1, 14)


def test_record_of_the_largest_time_counts_only_below_the_readable_end(broker, log):
    assert numbers(list_offsets(broker, 7, MAX_TIMESTAMP, isolation=1)) == (0, 400, 13)
    log.unstable_count = 3
    assert numbers(list_offsets(broker, 7, MAX_TIMESTAMP, isolation=1)) == (0, -1, -1)
    assert numbers(list_offsets(broker, 7, 400, isolation=1)) == (0, -1, -1)
    assert numbers(list_offsets(broker, 7, MAX_TIMESTAMP)) == (0, 400, 13)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_earliest_is_the_log_start(broker, log, version):
    answer = list_offsets(broker, version, EARLIEST)
    assert numbers(answer) == (0, -1, 10)
    assert answer.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        pytest.param(MAX_TIMESTAMP, 7, (0, 400, 13), id="max-timestamp"),
        pytest.param(EARLIEST_LOCAL, 8, (0, -1, 10), id="earliest-local"),
        pytest.param(LATEST_TIERED, 9, (0, -1, -1), id="latest-tiered"),
        pytest.param(PENDING_UPLOAD, 11, (0, -1, -1), id="earliest-pending-upload"),
        pytest.param(-7, 99, (), id="unknown"),
    ],
)
def test_special_timestamps_since_their_version(broker, log, version, timestamp, since, expected):
    answer = list_offsets(broker, version, timestamp)
    if version < since:
        assert numbers(answer) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    else:
        assert numbers(answer) == expected


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        pytest.param(0, (0, 100, 10), id="before-all"),
        pytest.param(100, (0, 100, 10), id="exact"),
        pytest.param(101, (0, 300, 11), id="between"),
        pytest.param(400, (0, 400, 13), id="first-of-equal"),
        pytest.param(401, (0, -1, -1), id="after-all"),
    ],
)
def test_first_record_since_a_time(broker, log, version, timestamp, expected):
    assert numbers(list_offsets(broker, version, timestamp)) == expected
    assert broker.blocked


def test_time_search_stops_at_the_readable_end(broker, log):
    log.timestamps[3] = 0
    assert numbers(list_offsets(broker, 5, 400)) == (0, 400, 14)
    assert numbers(list_offsets(broker, 5, 400, isolation=1)) == (0, -1, -1)


def test_max_timestamp_of_an_empty_partition(broker):
    assert numbers(list_offsets(broker, 7, MAX_TIMESTAMP, partition=0)) == (0, -1, -1)


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("orders", 3), ("orders", -1)])
def test_unknown_partition(broker, version, topic, partition):
    answer = list_offsets(broker, version, LATEST, topic=topic, partition=partition)
    assert numbers(answer) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert topic in ("orders", "missing")
    assert "missing" not in broker.logs.topics


@pytest.mark.parametrize("version", EVERY_VERSION[3:])
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_is_checked(broker, log, version, epoch, code):
    assert list_offsets(broker, version, LATEST, epoch=epoch).error_code == code


def test_offline_partition(broker, log):
    log.offline = True
    assert numbers(list_offsets(broker, 7, LATEST)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def test_failing_search_is_the_partitions_error(broker, log):
    log.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "cannot read")
    assert numbers(list_offsets(broker, 7, 100)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def test_partition_named_twice_is_refused_once(broker, log):
    twice = [ListOffsetsPartition(partition_index=1, timestamp=LATEST) for _ in range(2)]
    other = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[*twice, other])])
    answers = broker.call(api.LIST_OFFSETS, 7, request).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [
        (1, ErrorCode.INVALID_REQUEST),
        (0, 0),
    ]


def epoch_end(broker, version, epoch, *, topic="orders", partition=1, current=-1):
    item = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2, topics=[OffsetForLeaderTopic(topic=topic, partitions=[item])]
    )
    response = broker.call(api.OFFSET_FOR_LEADER_EPOCH, version, request)
    assert response.topics[0].topic == topic
    (answer,) = response.topics[0].partitions
    assert answer.partition == partition
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", versions(api.OFFSET_FOR_LEADER_EPOCH))
@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        pytest.param(0, (0, 0, 12), id="older"),
        pytest.param(2, (0, 0, 12), id="between"),
        pytest.param(3, (0, 3, 16), id="current"),
        pytest.param(4, (0, -1, -1), id="younger"),
        pytest.param(-1, (0, -1, -1), id="none"),
    ],
)
def test_end_of_a_leader_epoch(broker, log, version, epoch, expected):
    assert epoch_end(broker, version, epoch) == expected


@pytest.mark.parametrize("version", versions(api.OFFSET_FOR_LEADER_EPOCH))
def test_leader_epoch_errors(broker, log, version):
    assert epoch_end(broker, version, 0, topic="missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert epoch_end(broker, version, 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert epoch_end(broker, version, 0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert epoch_end(broker, version, 0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    log.offline = True
    assert epoch_end(broker, version, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def delete_records(broker, version, offset, *, topic="orders", partition=1):
    item = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[item])], timeout_ms=1000)
    response = broker.call(api.DELETE_RECORDS, version, request)
    assert response.topics[0].name == topic
    (answer,) = response.topics[0].partitions
    assert answer.partition_index == partition
    assert broker.blocked
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", versions(api.DELETE_RECORDS))
@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(12, (0, 12), id="middle"),
        pytest.param(16, (0, 16), id="all"),
        pytest.param(-1, (0, 16), id="high-watermark"),
        pytest.param(10, (0, 10), id="log-start"),
        pytest.param(3, (0, 10), id="below-log-start"),
        pytest.param(17, (1, -1), id="above-high-watermark"),
        pytest.param(-2, (1, -1), id="negative"),
    ],
)
def test_delete_records(broker, log, version, offset, expected):
    assert delete_records(broker, version, offset) == expected
    assert log.log_start_offset == (expected[1] if expected[0] == 0 else 10)


@pytest.mark.parametrize("version", versions(api.DELETE_RECORDS))
def test_delete_records_errors(broker, log, version):
    assert delete_records(broker, version, 1, topic="missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(broker, version, 1, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(broker, version, 1, topic="__consumer_offsets") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    broker.logs.create_topic("__consumer_offsets", 2, {})
    assert delete_records(broker, version, 1, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    log.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "no")
    assert delete_records(broker, version, 12) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    log.offline = True
    assert delete_records(broker, version, 12) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize(("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)])
def test_delete_records_of_a_compacted_topic(broker, log, policy, code):
    broker.logs.alter_topic("orders", {"cleanup.policy": policy})
    assert delete_records(broker, 2, 12)[0] == code
