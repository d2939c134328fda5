"""C6: memory that runs out while the broker serves, by a limit of its address space."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

import pytest

from tests.kit.harness import wire
from tests.kit.harness.load import create_topic, read_partition
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
MIB = 1 << 20
LIMIT = 700 * MIB
FRAME_SIZES = [95 * MIB] * 4 + [12 * MIB] * 16 + [MIB * 3 // 2] * 20
"""Of unfinished requests: small ones take what long ones leave."""
PARTITIONS = 4
TOPICS = 10
"""Topics that an honest client makes: each maps a segment."""


class Hogs:
    """Connections that send almost all of a long frame, keep it for a moment, and begin again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self.ended_early = 0
        self._threads = [threading.Thread(target=self._run, args=(size,)) for size in FRAME_SIZES]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, size: int) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=20) as connection:
                    connection.sendall(struct.pack(">i", size))
                    for _ in range(size // MIB - 1):
                        connection.sendall(bytes(MIB))
                        if self._stop.is_set():
                            return
                    self._stop.wait(0.3)
            except OSError:
                self.ended_early += 1


class Honest(threading.Thread):
    """Writes records and creates topics all the time; an error or a closed connection is not its concern."""

    def __init__(self, port: int, partition: int) -> None:
        super().__init__()
        self._port, self._partition = port, partition
        self.stop = threading.Event()
        self.acknowledged: list[int] = []
        self.topics: list[str] = []
        self.hung = 0

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            try:
                with wire.Connection(self._port, timeout_s=60) as connection:
                    while not self.stop.is_set():
                        number += 1
                        batch = wire.batch_of([wire.Record(None, bytes(9000))])
                        answer = connection.produce("kept", self._partition, batch)
                        if answer.error == 0:
                            self.acknowledged.append(answer.base_offset)
                        if number % 10 == 0 and len(self.topics) < TOPICS:
                            topic = f"made-{self._partition}-{number}"
                            if connection.create_topic(topic, 1) == 0:
                                self.topics.append(topic)
            except TimeoutError:
                self.hung += 1
            except (OSError, wire.Closed):
                time.sleep(0.01)


@pytest.mark.parametrize("short_count", [10, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.scenario("C6")
def test_broker_outlives_a_shortage_of_address_space(make_broker: MakeBroker, short_count: int) -> None:
    """`short_count` connections have to be ended for want of memory before everything is to be served again."""
    settings = {"log.segment.bytes": str(MIB), "num.network.threads": "2"}
    broker = make_broker(settings=settings, prefix=("prlimit", f"--as={LIMIT}")).start()
    create_topic(broker.port, "kept", PARTITIONS)
    honest = [Honest(broker.port, partition) for partition in range(PARTITIONS)]
    with Hogs(broker.port) as hogs:
        for client in honest:
            client.start()
        try:
            wait_until(lambda: hogs.ended_early >= short_count or not broker.alive, 300, "memory runs out")
        finally:
            for client in honest:
                client.stop.set()
            for client in honest:
                client.join()
    assert broker.alive, "the broker ended"
    assert "died: " not in broker.log()
    assert sum(client.hung for client in honest) == 0, "a request was never answered, nor its connection closed"
    wait_until(lambda: all_served(broker, "after"), 60, "everything is served again")
    with wire.Connection(broker.port) as connection:
        for partition, client in enumerate(honest):
            found = {record.offset for record in read_partition(connection, "kept", partition)}
            assert found.issuperset(client.acknowledged), "an acknowledged record is gone"
            for topic in client.topics:
                assert connection.produce(topic, 0, wire.batch_of([wire.Record(None, b"v")])).error == 0, topic
    broker.stop()


def all_served(broker: BrokerProcess, topic: str) -> bool:
    """Whether a new topic, each partition and all network threads serve; a connection may still be closed."""
    with contextlib.suppress(OSError, wire.Closed):
        for _ in range(4):  # the acceptor deals connections to the network threads in turn
            with wire.Connection(broker.port) as connection:
                connection.create_topic(topic, 1)
                places = [(topic, 0), *(("kept", partition) for partition in range(PARTITIONS))]
                if any(connection.produce(*place, wire.batch_of([wire.Record(None, b"v")])).error for place in places):
                    return False
        return True
    return False


@pytest.mark.scenario("C6")
def test_limit_below_what_libraries_need_is_an_error_at_the_start(make_broker: MakeBroker) -> None:
    broker = make_broker(prefix=("prlimit", f"--as={100 * MIB}"))
    with pytest.raises(BrokerDidNotStart) as caught:
        broker.start()
    assert caught.value.status == 2
    assert "the address space limit (ulimit -v) of 100 MiB leaves less than" in caught.value.log
    assert "OpenBLAS" not in caught.value.log
