"""Broker settings changed while it runs take effect at once, and again after a restart."""

import socket

import pytest

from kafkalite import Broker, protocol
from kafkalite.protocol import api, header
from kafkalite.protocol.messages import incremental_alter_configs as incremental
from tests.support import wire
from tests.support.process import wait_until

pytestmark = pytest.mark.integration

BROKER_RESOURCE, SET = 4, 0
TIMEOUT_S = 10


def change(port, key, value):
    config = incremental.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = incremental.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
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
        return connection.recv(4) != b""
    except ConnectionError:
        return False


def connections_served(broker, count):
    wait_until(lambda: broker.connection_count == 0, TIMEOUT_S, "earlier connections gone")
    opened = [socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) for _ in range(count)]
    served = [is_served(connection) for connection in opened]
    for connection in opened:
        connection.close()
    return served.count(True)


def test_connection_limit_changes_at_once_and_stays_changed(tmp_path):
    with Broker(log_dirs=str(tmp_path)) as broker:
        assert connections_served(broker, 4) == 4
        change(broker.port, "max.connections", "2")
        assert connections_served(broker, 4) == 2
    with Broker(log_dirs=str(tmp_path)) as broker:
        assert connections_served(broker, 4) == 2
        change(broker.port, "max.connections", "100")
        assert connections_served(broker, 4) == 4


def test_batch_limit_of_topics_follows_the_brokers(tmp_path):
    batch = wire.batch_of([wire.Record(value=b"x" * 500)])
    with Broker(log_dirs=str(tmp_path)) as broker:
        broker.create_topic("inherits")
        broker.create_topic("own", max_message_bytes=10_000)
        change(broker.port, "message.max.bytes", "300")
        assert broker.logs.topics["inherits"].partitions[0].append_batch(batch)[0] == 10
        assert broker.logs.topics["own"].partitions[0].append_batch(batch)[0] == 0
