"""Bytes written down field by field from the protocol's definition, read and written by the codec.

One message per encoding rule that has to be right for anything to work: plain and compact types, nulls, tag buffers,
absent fields, the header versions. Versions of Kafka 4.4 are the bytes that its Java client writes. Each line of a
frame is a field: its bytes, then what they are.
"""

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ID = bytes(range(16))


def frame(text: str) -> bytes:
    """The hex digits before each line's `|`."""
    return bytes.fromhex("".join(line.partition("|")[0] for line in text.strip().splitlines()))


REQUESTS = [
    pytest.param(
        api.METADATA, 0, "00000000 | topics: none, which in v0 means all", MetadataRequest(), id="metadata-v0"
    ),
    pytest.param(
        api.METADATA,
        1,
        "ffffffff | topics: null, all of them",
        MetadataRequest(topics=None),
        id="metadata-v1-null-array",
    ),
    pytest.param(
        api.METADATA,
        4,
        """
        00000001     | topics: 1
        0002 6869    | name "hi"
        00           | allow_auto_topic_creation
        """,
        MetadataRequest(topics=[MetadataRequestTopic(name="hi")], allow_auto_topic_creation=False),
        id="metadata-v4",
    ),
    pytest.param(
        api.METADATA,
        12,
        f"""
        03           | topics: 2, as count + 1
        {ID.hex()}   | topic_id
        00           | name: null
        00           | no tags
        {"00" * 16}  | topic_id: zero
        03 6869      | name "hi"
        00           | no tags
        01           | allow_auto_topic_creation
        00           | include_topic_authorized_operations
        00           | no tags
        """,
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=ID, name=None), MetadataRequestTopic(name="hi")]),
        id="metadata-v12-by-id",
    ),
    pytest.param(
        api.LIST_OFFSETS,
        1,
        """
        ffffffff           | replica_id
        00000001           | topics: 1
        0001 74            | name "t"
        00000001           | partitions: 1
        00000007           | partition_index
        fffffffffffffffe   | timestamp -2, the log start
        """,
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=7, timestamp=-2)])],
        ),
        id="list-offsets-v1",
    ),
    pytest.param(
        api.INIT_PRODUCER_ID,
        0,
        "ffff 0000ea60 | transactional_id null, transaction_timeout_ms; no producer id yet: -1, not 0",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1),
        id="init-producer-id-v0",
    ),
    pytest.param(
        api.INIT_PRODUCER_ID,
        4,
        """
        00                | transactional_id null
        7fffffff          | transaction_timeout_ms
        ffffffffffffffff  | producer_id
        ffff              | producer_epoch
        00                | no tags
        """,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF),
        id="init-producer-id-v4",
    ),
    pytest.param(
        api.CREATE_TOPICS,
        2,
        """
        00000001          | topics: 1
        0001 74           | name "t"
        00000003          | num_partitions
        0001              | replication_factor
        00000000          | assignments: none
        00000001          | configs: 1
        0001 6b           | name "k"
        ffff              | value null
        00000bb8          | timeout_ms
        00                | validate_only
        """,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t",
                    num_partitions=3,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="k", value=None)],
                )
            ],
            timeout_ms=3000,
        ),
        id="create-topics-v2",
    ),
    pytest.param(
        api.API_VERSIONS,
        3,
        """
        03 6b6c   | client_software_name "kl"
        02 31     | client_software_version "1"
        00        | no tags
        """,
        ApiVersionsRequest(client_software_name="kl", client_software_version="1"),
        id="api-versions-v3",
    ),
    pytest.param(
        api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        """
        02                | topics: 1
        02 74 00          | name "t", no tags
        000007d0          | response_partition_limit
        01 02 74 00000005 | cursor is there: topic_name, partition_index
        00                | its tags
        00                | no tags
        """,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="t")],
            response_partition_limit=2000,
            cursor=DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=5),
        ),
        id="describe-topic-partitions-v0-struct",
    ),
    pytest.param(
        api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        "01 000007d0 ff 00 | no topics, limit, cursor null, no tags",
        DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000, cursor=None),
        id="describe-topic-partitions-v0-null-struct",
    ),
    pytest.param(
        api.API_VERSIONS,
        5,
        """
        04 617070 04 312e30       | client_software_name "app", client_software_version "1.0"
        0c 7468652d636c7573746572 | cluster_id "the-cluster"
        00000007 00               | node_id, no tags
        """,
        ApiVersionsRequest(
            client_software_name="app", client_software_version="1.0", cluster_id="the-cluster", node_id=7
        ),
        id="api-versions-v5",
    ),
    pytest.param(
        api.API_VERSIONS,
        5,
        "04 617070 04 312e30 00 ffffffff 00 | the software, cluster_id null, node_id -1, no tags",
        ApiVersionsRequest(client_software_name="app", client_software_version="1.0"),
        id="api-versions-v5-null",
    ),
    pytest.param(
        api.TXN_OFFSET_COMMIT,
        6,
        f"""
        03 7478 02 67                     | transactional_id "tx", group_id "g"
        0000000000000009 0002             | producer_id, producer_epoch
        00000004 03 6d65 00               | generation_id, member_id "me", group_instance_id null
        02 {ID.hex()}                     | topics: 1; topic_id in place of a name
        02 00000003                       | partitions: 1; partition_index
        000000000000002a 00000005 02 6d00 | committed_offset, committed_leader_epoch, committed_metadata "m", no tags
        00 00                             | no tags of the topic and the request
        """,
        TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=9,
            producer_epoch=2,
            generation_id=4,
            member_id="me",
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=3, committed_offset=42, committed_leader_epoch=5, committed_metadata="m"
                        )
                    ],
                )
            ],
        ),
        id="txn-offset-commit-v6",
    ),
]

RESPONSES = [
    pytest.param(
        api.TXN_OFFSET_COMMIT,
        6,
        f"""
        00000001 02 {ID.hex()}  | throttle_time_ms, topics: 1; topic_id in place of a name
        02 00000003 0071 00     | partitions: 1; partition_index, error_code, no tags
        00 00                   | no tags of the topic and the response
        """,
        TxnOffsetCommitResponse(
            throttle_time_ms=1,
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=ID,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=3, error_code=ErrorCode.STALE_MEMBER_EPOCH)
                    ],
                )
            ],
        ),
        id="txn-offset-commit-v6",
    ),
    pytest.param(
        api.DELETE_GROUPS,
        3,
        """
        00000001 03              | throttle_time_ms, results: 2
        02 67 0086 04 776879 00  | group_id "g", error_code 134, error_message "why", no tags
        02 68 0000 00 00         | group_id "h", error_code, error_message null, no tags
        00                       | no tags
        """,
        DeleteGroupsResponse(
            throttle_time_ms=1,
            results=[
                DeletableGroupResult(group_id="g", error_code=ErrorCode.GROUP_DELETION_FAILED, error_message="why"),
                DeletableGroupResult(group_id="h"),
            ],
        ),
        id="delete-groups-v3",
    ),
    pytest.param(
        api.API_VERSIONS,
        0,
        """
        0023             | error_code 35
        00000001         | api_keys: 1
        0012 0000 0004   | ApiVersions, 0 to 4
        """,
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        id="api-versions-v0",
    ),
    pytest.param(
        api.API_VERSIONS,
        3,
        """
        0000               | error_code
        02                 | api_keys: 1
        0000 0000 000b 00  | Produce, 0 to 11, no tags
        00000000           | throttle_time_ms
        00                 | no tags: an epoch of -1 in writing locks old librdkafka out
        """,
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=0, max_version=11)]),
        id="api-versions-v3-no-default-tags",
    ),
    pytest.param(
        api.API_VERSIONS,
        3,
        """
        0000               | error_code
        01                 | api_keys: 0
        00000000           | throttle_time_ms
        02                 | 2 tags
        01 08              | tag 1: 8 bytes
        0000000000000007   | finalized_features_epoch
        02 08              | tag 2: 8 bytes
        02                 | finalized_features: 1
        02 66 0002 0001 00 | name "f", max_version_level, min_version_level, no tags
        """,
        ApiVersionsResponse(
            finalized_features_epoch=7,
            finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
        ),
        id="api-versions-v3-tags",
    ),
    pytest.param(
        api.INIT_PRODUCER_ID,
        1,
        "00000000 0000 00000000000003e8 0000 | throttle_time_ms, error_code, producer_id 1000, producer_epoch",
        InitProducerIdResponse(producer_id=1000, producer_epoch=0),
        id="init-producer-id-v1",
    ),
    pytest.param(
        api.METADATA,
        9,
        """
        00000000           | throttle_time_ms
        02                 | brokers: 1
        00000001           | node_id
        02 68              | host "h"
        00002384           | port
        00                 | rack: null
        00                 | no tags
        02 63              | cluster_id "c"
        00000001           | controller_id
        02                 | topics: 1
        0000               | error_code
        02 74              | name "t"
        00                 | is_internal
        02                 | partitions: 1
        0000 00000000      | error_code, partition_index
        00000001 00000005  | leader_id, leader_epoch
        02 00000001        | replica_nodes: 1
        02 00000001        | isr_nodes: 1
        01                 | offline_replicas: none
        00                 | no tags
        80000000           | topic_authorized_operations: not asked
        00                 | no tags
        80000000           | cluster_authorized_operations: not asked
        00                 | no tags
        """,
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
            cluster_id="c",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[
                        MetadataResponsePartition(leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1])
                    ],
                )
            ],
        ),
        id="metadata-v9",
    ),
]


@pytest.mark.parametrize(("key", "version", "text", "message"), REQUESTS)
def test_request_frame_is_read_and_written_as_defined(key, version, text, message):
    assert protocol.encode_request(key, version, message) == frame(text)
    assert protocol.decode_request(key, version, frame(text)) == message


@pytest.mark.parametrize(("key", "version", "text", "message"), RESPONSES)
def test_response_frame_is_read_and_written_as_defined(key, version, text, message):
    assert protocol.encode_response(key, version, message) == frame(text)
    assert protocol.decode_response(key, version, frame(text)) == message


def test_request_frame_with_header_v1():
    expected = frame("""
        00000013                | what follows: 19 bytes
        0003 0001 0000002a      | Metadata v1, correlation id
        0005 6b63617421         | client id "kcat!"
        ffffffff                | topics: null
    """)
    request = MetadataRequest(topics=None)
    assert protocol.encode_request_frame(api.METADATA, 1, 42, "kcat!", request) == expected


def test_request_frame_with_header_v2_keeps_the_short_client_id():
    expected = frame("""
        00000010                | what follows: 16 bytes
        0012 0003 00000001      | ApiVersions v3, correlation id
        ffff                    | client id: null, int16 length even here
        00                      | header tags
        02 61 02 62 00          | names "a" and "b", no tags
    """)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert protocol.encode_request_frame(api.API_VERSIONS, 3, 1, None, request) == expected


@pytest.mark.parametrize(
    ("key", "version", "header"),
    [
        pytest.param(api.API_VERSIONS, 3, "00000007", id="api-versions-never-has-tags"),
        pytest.param(api.METADATA, 8, "00000007", id="plain"),
        pytest.param(api.METADATA, 9, "00000007 00", id="flexible"),
    ],
)
def test_response_frame_header(key, version, header):
    message = protocol.response_program(key, version).message()
    body = protocol.encode_response(key, version, message)
    expected = bytes.fromhex(header) + body
    assert protocol.encode_response_frame(key, version, 7, message) == len(expected).to_bytes(4, "big") + expected
