"""F1: what idempotent batches sent again are answered, also after kill -9. F5: readers while segments roll and go."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess, wait_until

OUT_OF_ORDER, INVALID_EPOCH, OFFSET_OUT_OF_RANGE = 45, 47, 1
SEQUENCE_MAX = 2**31 - 1
MakeBroker = Callable[..., BrokerProcess]


def batch(producer_id: int, epoch: int, sequence: int, count: int = 3) -> bytes:
    records = [wire.Record(None, f"{sequence}+{number}".encode()) for number in range(count)]
    return wire.batch_of(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Idempotent:
    """One producer id on one partition of a topic of its own."""

    def __init__(self, broker: BrokerProcess, topic: str, restart: bool) -> None:
        self.broker, self.topic, self.restart = broker, topic, restart
        create_topic(broker.port, topic, 1)
        self.connection = wire.Connection(broker.port)
        self.producer_id, self.epoch = self.connection.producer_id()

    def send(self, sequence: int, count: int = 3, epoch: int | None = None) -> wire.Produced:
        data = batch(self.producer_id, self.epoch if epoch is None else epoch, sequence, count)
        return self.connection.produce(self.topic, 0, data, acks=-1)

    def maybe_kill(self) -> None:
        if self.restart:
            self.connection.close()
            self.broker.kill()
            self.broker.start()
            self.connection = wire.Connection(self.broker.port)

    def end_offset(self) -> int:
        return self.connection.list_offset(self.topic, 0, -1)[2]


@pytest.fixture(params=[False, True], ids=["running", "after-kill"])
def producer(request: pytest.FixtureRequest, make_broker: MakeBroker):
    broker = make_broker().start()
    producer = Idempotent(broker, "idempotence", request.param)
    yield producer
    producer.connection.close()


@pytest.mark.scenario("F1")
def test_last_five_batches_are_answered_with_their_first_offset(producer: Idempotent) -> None:
    for number in range(8):
        assert producer.send(number * 3)[1:3] == (0, number * 3)
    producer.maybe_kill()
    for number in range(3, 8):
        assert producer.send(number * 3)[1:3] == (0, number * 3), f"batch {number}"
    assert producer.end_offset() == 24
    assert producer.send(24)[1:3] == (0, 24)


@pytest.mark.scenario("F1")
def test_batches_older_than_five_and_ahead_are_out_of_order(producer: Idempotent) -> None:
    for number in range(8):
        producer.send(number * 3)
    producer.maybe_kill()
    for sequence in (0, 3, 6, 25, 27, 1000):
        assert producer.send(sequence).error == OUT_OF_ORDER, f"sequence {sequence}"
    assert producer.send(21, count=2).error == OUT_OF_ORDER, "same first sequence, another length"
    assert producer.end_offset() == 24


@pytest.mark.scenario("F1")
def test_epochs(producer: Idempotent) -> None:
    assert producer.send(0, epoch=4).error == 0
    producer.maybe_kill()
    assert producer.send(3, epoch=3).error == INVALID_EPOCH
    assert producer.send(3, epoch=5).error == OUT_OF_ORDER, "a new epoch starts at 0"
    assert producer.send(0, epoch=5)[1:3] == (0, 3)
    assert producer.send(3, epoch=4).error == INVALID_EPOCH
    assert producer.send(0, epoch=5)[1:3] == (0, 3), "again: the first offset"
    assert producer.end_offset() == 6


@pytest.mark.scenario("F1")
def test_sequence_wraps_at_2_to_31(producer: Idempotent) -> None:
    """A producer without state here may begin anywhere."""
    assert producer.send(SEQUENCE_MAX - 3, count=3)[1:3] == (0, 0)
    producer.maybe_kill()
    assert producer.send(SEQUENCE_MAX, count=3)[1:3] == (0, 3), "2147483647, 0, 1"
    assert producer.send(2, count=3)[1:3] == (0, 6)
    assert producer.send(SEQUENCE_MAX, count=3)[1:3] == (0, 3), "again: the first offset"
    producer.maybe_kill()
    assert producer.send(2, count=3)[1:3] == (0, 6), "again: the first offset"
    assert producer.send(0, count=2).error == OUT_OF_ORDER
    assert producer.end_offset() == 9


@pytest.mark.slow
@pytest.mark.scenario("F1")
def test_hundred_times_each(make_broker: MakeBroker, seed: int) -> None:
    chance = random.Random(seed)
    broker = make_broker().start()
    for round_number in range(100):
        producer = Idempotent(broker, f"round-{round_number}", restart=chance.random() < 0.1)
        next_sequence = 0
        starts: list[tuple[int, int]] = []
        for _ in range(chance.randint(1, 12)):
            count = chance.randint(1, 5)
            starts.append((next_sequence, count))
            assert producer.send(next_sequence, count)[1:3] == (0, next_sequence)
            next_sequence += count
        producer.maybe_kill()
        for sequence, count in starts[-5:]:
            assert producer.send(sequence, count)[1:3] == (0, sequence)
        for sequence, count in starts[:-5]:
            assert producer.send(sequence, count).error == OUT_OF_ORDER
        assert producer.send(next_sequence + chance.randint(1, 100)).error == OUT_OF_ORDER
        assert producer.end_offset() == next_sequence
        producer.connection.close()


FETCHES = [pytest.param(2_000, id="2000"), pytest.param(200_000, id="200000", marks=pytest.mark.slow)]


@pytest.mark.parametrize("fetch_count", FETCHES)
@pytest.mark.scenario("F5")
def test_readers_from_any_offset_while_segments_roll_and_go(
    make_broker: MakeBroker, seed: int, fetch_count: int
) -> None:
    """The value of each record says its offset; a reader may get that record, a gap at the front, or error 1."""
    settings = {"log.retention.check.interval.ms": "50"}
    broker = make_broker(settings=settings).start()
    configs = {"segment.bytes": "20000", "retention.bytes": "200000", "file.delete.delay.ms": "10"}
    create_topic(broker.port, "rolling", 1, configs)
    stopping, written, problems = threading.Event(), [0], []

    def write() -> None:
        chance = random.Random(seed)
        with wire.Connection(broker.port) as connection:
            while not stopping.is_set():
                count = chance.randint(1, 30)
                rows = [wire.Record(None, b"%d" % (written[0] + number)) for number in range(count)]
                rows[0] = rows[0]._replace(key=b"k" * chance.randint(0, 2000))
                answer = connection.produce("rolling", 0, wire.batch_of(rows))
                if answer.error or answer.base_offset != written[0]:
                    problems.append(f"produce at {written[0]}: {answer}")
                    return
                written[0] += count

    writer = threading.Thread(target=write)
    writer.start()
    outcomes = {"data": 0, "empty": 0, "out of range": 0}
    try:
        chance = random.Random(seed + 1)
        with wire.Connection(broker.port) as connection:
            for number in range(fetch_count):
                outcomes[fetch_once(connection, chance, written[0])] += 1
                if number % 20 == 0:
                    timestamp = int(time.time() * 1000) - chance.randint(0, 3000)
                    assert connection.list_offset("rolling", 0, timestamp)[0] == 0
            start = connection.list_offset("rolling", 0, -2)[2]
    finally:
        stopping.set()
        writer.join()
    assert not problems, problems
    assert start > 0, "retention deleted nothing: the test showed nothing"
    assert outcomes["data"] > fetch_count // 10, outcomes
    wait_until(lambda: not held_but_deleted(broker), 10, "descriptors of deleted segments")
    assert broker.alive


def held_but_deleted(broker: BrokerProcess) -> list[str]:
    """Files without a name that the broker still keeps the space of."""
    links = []
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    return [link for link in links if link.endswith("(deleted)")]


def fetch_once(connection: wire.Connection, chance: random.Random, end: int) -> str:
    start = connection.list_offset("rolling", 0, -2)[2] if chance.random() < 0.2 else max(0, end - 8000)
    offset = chance.randint(start, end + 1)
    answer = connection.fetch("rolling", 0, offset, partition_max_bytes=chance.choice([1, 1000, 100_000]))
    if answer.error == OFFSET_OUT_OF_RANGE:
        return "out of range"
    assert answer.error == 0, answer.error
    assert answer.log_start_offset <= offset, (answer.log_start_offset, offset)
    rows = []
    for found in wire.split_batches(answer.records):
        assert found.crc_is_right
        rows += wire.decode_records(found)
    if not rows:
        return "empty"
    assert rows[0][0] <= offset <= rows[-1][0], (rows[0][0], offset, rows[-1][0])
    for at, _, value in rows:
        assert value == b"%d" % at, (at, value)
    return "data"
