"""Produce requests with many partitions, which a network thread serves over several turns."""

from __future__ import annotations

import pytest

from kafkalite import Broker
from kafkalite._native.serve.produce import deferred_bytes_now
from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

METADATA = 3
PARTITIONS = 40
PARTS = 3_000
"""More than one turn serves, of PARTITIONS partitions: each is named many times."""
UNKNOWN_PARTITION = PARTITIONS
SMALL, LARGE = 1, 400
"""Bytes of a value. With large ones the frame does not fit into the worker's receive buffer."""


@pytest.fixture(params=["true", "false"], ids=["flushed", "not flushed"])
def broker(request):
    with Broker(num_network_threads=1, flush_on_acks_all=request.param) as started:
        started.create_topic("t", PARTITIONS)
        started.create_topic("other", 1)
        yield started
    assert deferred_bytes_now() == 0


@pytest.fixture
def connection(broker):
    with wire.Connection(broker.port) as opened:
        yield opened


def body_of(size=SMALL, acks=1, **changed):
    """Return a request with PARTS parts; the value identifies the part."""
    batches = {number: wire.batch_of([wire.Record(None, b"%06d" % number + bytes(size))]) for number in range(PARTS)}
    parts = [(number % PARTITIONS, batch) for number, batch in batches.items()]
    for number, part in changed.items():
        parts[int(number.removeprefix("part_"))] = part
    return wire.produce_body("t", parts, acks=acks)


def values(connection, partition):
    return [int(value[:6]) for _, _, value in connection.read_partition("t", partition)]


def assert_all_there(connection, rounds=1):
    for partition in range(PARTITIONS):
        assert values(connection, partition) == list(range(partition, PARTS, PARTITIONS)) * rounds


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("acks", [1, -1])
def test_each_part_is_appended_and_answered_in_order(connection, size, acks):
    answer = wire.parse_produce(connection.call(wire.PRODUCE, 7, body_of(size, acks)), 7)
    assert [part.partition for part in answer] == [number % PARTITIONS for number in range(PARTS)]
    assert [part.base_offset for part in answer] == [number // PARTITIONS for number in range(PARTS)]
    assert {part.error for part in answer} == {0}
    assert_all_there(connection)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_pipelined_around_it_is_answered_in_order(connection, size):
    """Before it and after it in one piece, so that what follows has been received when its turns begin."""
    single = wire.produce_body("other", [(0, wire.batch_of([wire.Record(None, b"v")]))])
    bodies = [single, body_of(size), single, body_of(size, -1), single]
    first = connection.correlation_id + 1
    frames = [wire.frame(wire.header(wire.PRODUCE, 7, first + i) + body) for i, body in enumerate(bodies)]
    connection.send_bytes(b"".join(frames))
    received = [connection.receive() for _ in bodies]
    assert [number for number, _ in received] == list(range(first, first + len(bodies)))
    answers = [wire.parse_produce(body, 7) for _, body in received]
    assert [len(answer) for answer in answers] == [1, PARTS, 1, PARTS, 1]
    assert [answers[i][0].base_offset for i in (0, 2, 4)] == [0, 1, 2]
    assert_all_there(connection, rounds=2)


def test_a_frame_that_arrives_in_pieces(connection):
    data = wire.frame(wire.header(wire.PRODUCE, 7, 1) + body_of(LARGE))
    for at in range(0, len(data), 50_000):
        connection.send_bytes(data[at : at + 50_000])
    assert len(wire.parse_produce(connection.receive()[1], 7)) == PARTS
    assert_all_there(connection)


def test_errors_are_of_their_part(connection):
    parts = {"part_5": (UNKNOWN_PARTITION, b"x"), "part_2999": (2999 % PARTITIONS, b"no batch"), "part_7": (7, None)}
    answer = wire.parse_produce(connection.call(wire.PRODUCE, 7, body_of(**parts)), 7)
    refused = {number: part.error for number, part in enumerate(answer) if part.error}
    assert refused.keys() == {5, 7, 2999}
    assert refused[5] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused[7] == ErrorCode.INVALID_RECORD
    assert sum(len(values(connection, partition)) for partition in range(PARTITIONS)) == PARTS - 3


def test_idempotent_batches_keep_their_order(connection):
    producer_id, epoch = connection.producer_id()
    batches = [
        wire.batch_of([wire.Record(None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
        for number in range(PARTS)
    ]
    body = wire.produce_body("t", [(0, batch) for batch in batches], acks=-1)
    answer = wire.parse_produce(connection.call(wire.PRODUCE, 7, body), 7)
    assert [(part.error, part.base_offset) for part in answer] == [(0, number) for number in range(PARTS)]


def test_without_an_answer(connection):
    connection.send(wire.PRODUCE, 7, body_of(acks=0))
    connection.send(wire.PRODUCE, 7, wire.produce_body("other", [(0, wire.batch_of([wire.Record(None, b"v")]))]))
    assert len(wire.parse_produce(connection.receive()[1], 7)) == 1
    assert_all_there(connection)


def test_without_an_answer_a_refused_part_closes_the_connection(connection):
    connection.send(wire.PRODUCE, 7, body_of(acks=0, part_3=(UNKNOWN_PARTITION, b"x")))
    with pytest.raises(wire.Closed):
        connection.receive()


def test_acks_that_are_none_refuse_each_part(connection):
    answer = wire.parse_produce(connection.call(wire.PRODUCE, 7, body_of(acks=2)), 7)
    assert {part.error for part in answer} == {ErrorCode.INVALID_REQUIRED_ACKS}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_request_is_carried_out_though_its_client_goes(broker, acks):
    """As by Kafka; and the logs take what others send meanwhile."""
    data = wire.frame(wire.header(wire.PRODUCE, 7, 1) + body_of(LARGE, acks))
    with wire.Connection(broker.port) as leaving:
        leaving.send_bytes(data)
    with wire.Connection(broker.port) as other:
        assert other.produce("other", 0, wire.batch_of([wire.Record(None, b"v")])).error == 0
        answer = wire.parse_produce(other.call(wire.PRODUCE, 7, body_of(acks=-1)), 7)
        assert {part.error for part in answer} == {0}
        last = PARTITIONS - 1
        wait_until(lambda: len(values(other, last)) == 2 * PARTS // PARTITIONS, 60, "the request of who has gone")
        for partition in range(PARTITIONS):
            assert sorted(values(other, partition)) == sorted(2 * list(range(partition, PARTS, PARTITIONS)))


def test_a_large_request_of_another_api_between_others(connection):
    """The thread for long requests is given the receive buffer; what was received after it is served from another."""
    names = [wire.string(f"missing-{number:08d}") for number in range(20_000)]
    metadata = wire.array(names) + wire.i8(0)
    assert len(metadata) > 1 << 18
    single = wire.produce_body("other", [(0, wire.batch_of([wire.Record(None, b"v")]))])
    requests = [(wire.PRODUCE, 7, single), (METADATA, 4, metadata), (wire.PRODUCE, 7, single), (METADATA, 4, metadata)]
    first = connection.correlation_id + 1
    frames = [
        wire.frame(wire.header(key, version, first + i) + body) for i, (key, version, body) in enumerate(requests)
    ]
    connection.send_bytes(b"".join(frames))
    received = [connection.receive() for _ in requests]
    assert [number for number, _ in received] == list(range(first, first + len(requests)))
    assert [wire.parse_produce(received[i][1], 7)[0].base_offset for i in (0, 2)] == [0, 1]
    assert received[1][1].count(b"missing-") == 20_000
    assert received[3][1] == received[1][1]
