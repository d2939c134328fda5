"""Broker settings changed while it runs take effect at once, and again after a restart."""

import contextlib
import socket
import threading

import pytest

from kafkalite import Broker
from kafkalite._native.log.log_append import append_batch
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages import incremental_alter_configs as incremental
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

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
    """Open `count` connections and return those that are served. They stay open: the broker decides when a closed one
    stops counting. Each sends a request before the next one opens: a worker counts those it has accepted.
    """
    opened = (stack.enter_context(connect(broker)) for _ in range(count))
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
        assert append_batch(broker.logs.topics["inherits"].partitions[0].core, batch)[1] == ErrorCode.MESSAGE_TOO_LARGE
        assert append_batch(broker.logs.topics["own"].partitions[0].core, batch)[1] == 0


def network_threads(broker):
    """Names of the threads that serve connections, of this broker."""
    return [worker._thread.name for worker in broker._parts.workers if worker._thread.is_alive()]


def test_network_threads_come_and_go_while_clients_are_served(tmp_path):
    with Broker(log_dirs=str(tmp_path), num_network_threads=2) as broker, contextlib.ExitStack() as stack:
        clients = served(broker, stack, 4)
        change(clients[0], "num.network.threads", "4")
        assert len(network_threads(broker)) == 4
        clients += served(broker, stack, 4)
        assert [worker.connection_count for worker in broker._parts.workers] == [2, 2, 2, 2]
        leaving = broker._parts.workers[2:]
        change(clients[-1], "num.network.threads", "2")  # asked of one that leaves, and answered
        assert len(network_threads(broker)) == 2
        wait_until(lambda: not any(worker._thread.is_alive() for worker in leaving), TIMEOUT_S, "threads that end")
        wait_until(lambda: broker.connection_count == 4, TIMEOUT_S, "connections that are closed")
        assert sum(map(is_served, clients)) == 4
        assert len(served(broker, stack, 4)) == 4
        change(clients[0], "num.network.threads", "1")
    with Broker(log_dirs=str(tmp_path), num_network_threads=2) as broker:
        assert len(network_threads(broker)) == 1


def test_threads_for_disks_and_compaction_follow_their_settings(tmp_path):
    with Broker(log_dirs=str(tmp_path), num_io_threads=2) as broker, contextlib.ExitStack() as stack:
        (client,) = served(broker, stack, 1)
        change(client, "num.io.threads", "4")
        together = threading.Barrier(5)
        for _ in range(4):
            broker._parts.pool.submit(together.wait, TIMEOUT_S)
        together.wait(TIMEOUT_S)
        change(client, "log.cleaner.threads", "2")
        assert broker.logs.cleaner.thread_count == 2
        change(client, "log.cleaner.threads", "1")
        change(client, "num.io.threads", "2")
        wait_until(lambda: broker._parts.pool.thread_count == 2, TIMEOUT_S, "threads that end")
        change(client, "num.io.threads", "3")
        change(client, "log.cleaner.threads", "2")
    with Broker(log_dirs=str(tmp_path), num_io_threads=2) as broker:
        assert broker.logs.cleaner.thread_count == 2
        assert broker._parts.pool.size == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [("num.io.threads", "9"), ("num.io.threads", "1"), ("num.network.threads", "5"), ("background.threads", "21")],
)
def test_threads_are_at_most_doubled_or_halved_at_once(tmp_path, key, value):
    with Broker(log_dirs=str(tmp_path), num_network_threads=2, num_io_threads=4) as broker, connect(broker) as client:
        with pytest.raises(AssertionError, match=key):
            change(client, key, value)
        assert not broker.logs.broker_overrides
