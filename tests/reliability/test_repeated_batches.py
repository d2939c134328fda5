"""What idempotent batches that are sent again are answered, also after kill -9."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess

OUT_OF_ORDER, INVALID_EPOCH = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
SEQUENCE_MAX = 2**31 - 1
MakeBroker = Callable[..., BrokerProcess]


def batch(producer_id: int, epoch: int, sequence: int, count: int = 3) -> bytes:
    records = [wire.Record(None, f"{sequence}+{number}".encode()) for number in range(count)]
    return wire.batch_of(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Idempotent:
    """One producer id on one partition of a separate topic."""

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


@pytest.mark.slow
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
