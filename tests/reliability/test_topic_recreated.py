"""F4: a topic is deleted during produce and fetch, and made again under the same name."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.kit.harness import wire
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
ALLOWED_PRODUCE = {0, 3}  # unknown topic or partition
ALLOWED_FETCH = {0, 1, 3}  # offset out of range: the new topic is shorter than the old one
TOPIC = "again"


class Clients:
    """A writer and a reader that never stop; each value is unique, and the test sets the turn."""

    def __init__(self, port: int) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.errors: dict[str, set[int]] = {"produce": set(), "fetch": set()}
        self.problems: list[str] = []
        self.read_count = 0
        self.stopping = threading.Event()
        self._port = port
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _guarded(self, work: Callable[[wire.Connection], None]) -> None:
        try:
            with wire.Connection(self._port) as connection:
                work(connection)
        except Exception as error:  # noqa: BLE001 - the test's own thread reports it
            self.problems.append(f"{work.__name__}: {error!r}")

    def _write(self, connection: wire.Connection) -> None:
        number = 0
        while not self.stopping.is_set():
            value = b"value-%d" % number
            number += 1
            answer = connection.produce(TOPIC, 0, wire.batch_of([wire.Record(None, value)]))
            self.errors["produce"].add(answer.error)
            if answer.error == 0:
                self.acknowledged.append((answer.base_offset, value))

    def _read(self, connection: wire.Connection) -> None:
        offset = 0
        while not self.stopping.is_set():
            answer = connection.fetch(TOPIC, 0, offset, max_wait_ms=5, partition_max_bytes=4096)
            self.errors["fetch"].add(answer.error)
            if answer.error:
                offset = 0
                continue
            for batch in wire.split_batches(answer.records):
                assert batch.crc_is_right
                self.read_count += len(wire.decode_records(batch))
                offset = batch.next_offset


@pytest.mark.parametrize("turn_count", [8, slow(200)])
@pytest.mark.scenario("F4")
def test_deleted_and_made_again_under_load(make_broker: MakeBroker, turn_count: int) -> None:
    settings = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "20", "log.segment.bytes": "4096"}
    broker = make_broker(settings=settings).start()
    with wire.Connection(broker.port) as connection:
        assert connection.create_topic(TOPIC) == 0
        clients = Clients(broker.port)
        try:
            for turn in range(turn_count):
                turn_of(connection, clients, turn)
        finally:
            clients.close()
    assert not clients.problems, clients.problems
    assert clients.errors["produce"] <= ALLOWED_PRODUCE, clients.errors
    assert clients.errors["fetch"] <= ALLOWED_FETCH, clients.errors
    wait_until(lambda: not leftovers(broker), 30, "the space of what was deleted")


def turn_of(connection: wire.Connection, clients: Clients, turn: int) -> None:
    """Deletes the topic under load, makes it again, and looks for old records in it."""
    written, read = len(clients.acknowledged), clients.read_count
    wait_until(
        lambda: clients.problems or (len(clients.acknowledged) > written + 50 and clients.read_count > read + 20),
        30,
        "writing and reading",
    )
    old = {value for _, value in list(clients.acknowledged)}
    assert connection.delete_topic(TOPIC) == 0
    assert connection.create_topic(TOPIC) == 0
    wait_until(lambda: connection.list_offset(TOPIC, 0, -1)[2] > 0 or clients.problems, 30, "records in the new topic")
    rows = connection.read_partition(TOPIC, 0)
    assert [offset for offset, _, _ in rows] == list(range(len(rows))), "offsets of a new topic begin at 0"
    stale = [value for _, _, value in rows if value in old]
    assert not stale, f"turn {turn}: {len(stale)} records of the deleted topic, such as {stale[0]!r}"


def leftovers(broker: BrokerProcess) -> list[str]:
    return [path.name for path in broker.data_dir.iterdir() if path.is_dir() and path.name != f"{TOPIC}-0"]
