"""Requests of one connection take effect in the order they were sent, whichever thread serves them."""

import socket
import struct

from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import create_topics, delete_topics, metadata


def frame(key, version, number, message):
    return protocol.encode_request_frame(key, version, number, "order", message)


def receive_exactly(client, size):
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def receive(client, key, version):
    size = struct.unpack(">i", receive_exactly(client, 4))[0]
    data = receive_exactly(client, size)
    number, position = protocol.header.decode_response_header(key, version, data)
    return number, protocol.decode_response(key, version, data[position:])


def test_metadata_sent_behind_create_and_delete_sees_what_they_did(kafka_broker):
    """CreateTopics and DeleteTopics run on the I/O pool, Metadata does not: it may not overtake them."""
    host, port = kafka_broker.bootstrap_servers.split(":")
    create = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name="in-order", num_partitions=1, replication_factor=1)], timeout_ms=5000
    )
    ask = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="in-order")], allow_auto_topic_creation=False
    )
    delete = delete_topics.DeleteTopicsRequest(topic_names=["in-order"], timeout_ms=5000)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        for round_number in range(20):
            client.sendall(
                frame(api.CREATE_TOPICS, 4, 1, create)
                + frame(api.METADATA, 8, 2, ask)
                + frame(api.DELETE_TOPICS, 3, 3, delete)
                + frame(api.METADATA, 8, 4, ask)
            )
            assert receive(client, api.CREATE_TOPICS, 4)[1].topics[0].error_code == 0, f"round {round_number}"
            number, there = receive(client, api.METADATA, 8)
            assert (number, there.topics[0].error_code, len(there.topics[0].partitions)) == (2, 0, 1)
            assert receive(client, api.DELETE_TOPICS, 3)[1].responses[0].error_code == 0
            number, gone = receive(client, api.METADATA, 8)
            assert (number, gone.topics[0].error_code) == (4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
