"""Broker settings changed while it runs take effect at once, and again after a restart."""

import contextlib
import socket

import pytest

from kafkalite import Broker, protocol
from kafkalite.errors import ErrorCode
from kafkalite.protocol import api, header
from kafkalite.protocol.messages import incremental_alter_configs as incremental
from tests.kit.harness import wire

pytestmark = pytest.mark.integration

BROKER_RESOURCE, SET = 4, 0
TIMEOUT_S = 60


def change(connection, key, value):
    config = incremental.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = incremental.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    connection.sendall(protocol.encode_request_frame(api.INCREMENTAL_ALTER_CONFIGS, 1, 1, "test", request))
    answer = receive(connection, int.from_bytes(receive(connection, 4), "big"))
    _, position = header.decode_response_header(api.INCREMENTAL_ALTER_CONFIGS, 1, answer)
    (result,) = protocol.decode_response(api.INCREMENTAL_ALTER_CONFIGS, 1, answer[position:]).responses
    assert result.error_code == 0, result.error_message


def receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def is_served(connection):
    """Whether the broker talks on this connection; it closes those above a limit."""
    try:
        connection.sendall(wire.frame(wire.header(wire.API_VERSIONS, 0, 1)))
        size = connection.recv(4)
    except ConnectionError:
        return False
    if size:
        receive(connection, int.from_bytes(size, "big"))
    return size != b""


def connect(broker):
    return socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S)


def served(broker, stack, count):
    """Those of so many new connections that are served. They stay open: when one that is closed leaves the count is the
    broker's affair."""
    opened = [stack.enter_context(connect(broker)) for _ in range(count)]
    return [connection for connection in opened if is_served(connection)]


def test_connection_limit_changes_at_once_and_stays_changed(tmp_path):
    with Broker(log_dirs=str(tmp_path)) as broker, contextlib.ExitStack() as stack:
        first = served(broker, stack, 4)
        assert len(first) == 4
        change(first[0], "max.connections", "6")
        assert len(served(broker, stack, 4)) == 2
    with Broker(log_dirs=str(tmp_path)) as broker, contextlib.ExitStack() as stack:
        first = served(broker, stack, 8)
        assert len(first) == 6
        change(first[0], "max.connections", "100")
        assert len(served(broker, stack, 4)) == 4


def test_batch_limit_of_topics_follows_the_brokers(tmp_path):
    batch = wire.batch_of([wire.Record(value=b"x" * 500)])
    with Broker(log_dirs=str(tmp_path)) as broker:
        broker.create_topic("inherits")
        broker.create_topic("own", max_message_bytes=10_000)
        with connect(broker) as connection:
            change(connection, "message.max.bytes", "300")
        assert broker.logs.topics["inherits"].partitions[0].core.append_batch(batch)[1] == ErrorCode.MESSAGE_TOO_LARGE
        assert broker.logs.topics["own"].partitions[0].core.append_batch(batch)[1] == 0
