"""Produce and Fetch with transactions over a socket, with a gate in place of the transactions' coordinator."""

import threading
import time

import pytest

import kafkalite.broker.worker_factory
from kafkalite import Broker
from kafkalite._native.serve.produce import ProduceServer, deferred_bytes_now
from kafkalite.base.deferred import Deferred, completed
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

TRANSACTIONAL = 0x10
READ_COMMITTED = 1
WAIT_S = 30.0


class Gate:
    """Remembers what it is asked; answers `code`, or with a Deferred that the test completes."""

    def __init__(self):
        self.code = 0
        self.later = False
        self.asked = []
        self.waiting = []

    def admit(self, transactional_id, producer_id, producer_epoch, topic, partition, produce_version):
        self.asked.append((transactional_id, producer_id, producer_epoch, topic, partition, produce_version))
        if not self.later:
            return self.code
        answer = Deferred()
        self.waiting.append(answer)
        return answer


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def broker(gate, monkeypatch):
    def make(*args, **settings):
        return ProduceServer(*args, **{**settings, "gate": gate})

    monkeypatch.setattr(kafkalite.broker.worker_factory, "ProduceServer", make)
    with Broker(num_network_threads=1, flush_on_acks_all="false") as started:
        started.create_topic("t", 3)
        yield started
    assert deferred_bytes_now() == 0


@pytest.fixture
def connection(broker):
    with wire.Connection(broker.port) as opened:
        yield opened


def batch(sequence=0, *, producer_id=7, epoch=0, transactional=True, value=b"v"):
    return wire.batch_of(
        [wire.Record(None, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )


def produce(connection, data, *, partition=0, transactional_id="job", **fields):
    return connection.produce("t", partition, data, transactional_id=transactional_id, **fields)


def send(connection, data, *, transactional_id="job"):
    body = wire.produce_body("t", [(0, data)], version=7, acks=1, transactional_id=transactional_id)
    return connection.send(wire.PRODUCE, 7, body)


def receive(connection):
    _, body = connection.receive()
    (part,) = wire.parse_produce(body, 7)
    return part.error, part.base_offset


def log_of(broker, partition=0):
    return broker.logs.topics["t"].partitions[partition]


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_gate_is_asked_for_the_first_batch_of_a_transaction_in_each_partition(gate, broker, connection):
    for partition in (0, 1):
        for sequence in range(3):
            answer = produce(connection, batch(sequence), partition=partition)
            assert (answer.error, answer.base_offset) == (0, sequence)
    assert gate.asked == [("job", 7, 0, "t", 0, 7), ("job", 7, 0, "t", 1, 7)]
    log_of(broker).append_marker(7, 0, 0, commit=True)
    assert produce(connection, batch(3)).base_offset == 4
    assert len(gate.asked) == 3


def test_refusal_is_the_partitions_error_and_nothing_is_written(gate, broker, connection):
    for code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS):
        gate.code = code
        assert produce(connection, batch()).error == code
    assert log_of(broker).log_end_offset == 0
    gate.code = 0
    assert produce(connection, batch()).error == 0


def test_plain_producers_are_never_asked_about(gate, connection):
    assert produce(connection, batch(transactional=False)).error == 0
    assert produce(connection, batch(producer_id=-1, epoch=-1, sequence=-1, transactional=False)).error == 0
    assert gate.asked == []


def test_transactional_batch_without_transactional_id_fails_the_whole_request(gate, broker, connection):
    plain = batch(producer_id=-1, epoch=-1, sequence=-1, transactional=False)
    body = wire.produce_body("t", [(0, plain), (1, batch())], version=7, acks=1, transactional_id=None)
    answers = wire.parse_produce(connection.call(wire.PRODUCE, 7, body), 7)
    assert [answer.error for answer in answers] == [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ]
    assert log_of(broker).log_end_offset == 0
    assert gate.asked == []


def test_transactional_id_that_is_no_text_closes_the_connection(gate, connection):
    body = bytes([0, 2, 0xFF, 0xFE]) + wire.produce_body("t", [(0, batch())], version=7, acks=1)[2:]
    connection.send(wire.PRODUCE, 7, body)
    with pytest.raises(wire.Closed):
        connection.receive()
    assert gate.asked == []


def test_gate_that_fails_costs_the_batch_and_nothing_else(gate, broker, connection, caplog):
    log_of(broker).ensure_producers()
    gate.admit = lambda *_: 1 / 0
    for _ in range(2):  # on the I/O pool, which makes the file, and on the network worker
        assert produce(connection, batch()).error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert produce(connection, batch(transactional=False, producer_id=-1, epoch=-1, sequence=-1)).error == 0
    assert "transaction check" in caplog.text


def test_without_a_gate_no_transaction_is_taken(monkeypatch):
    def make(*args, **settings):
        return ProduceServer(*args, **{**settings, "gate": None})

    monkeypatch.setattr(kafkalite.broker.worker_factory, "ProduceServer", make)
    with Broker() as broker:
        broker.create_topic("t", 1)
        with wire.Connection(broker.port) as connection:
            assert produce(connection, batch()).error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert log_of(broker).log_end_offset == 0


# ---- answers that come later ----------------------------------------------------------------------------------------


def test_answer_that_was_there_already_parks_nothing(gate, connection):
    gate.admit = lambda *_: completed(0)
    assert produce(connection, batch()).error == 0
    gate.admit = lambda *_: completed(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert produce(connection, batch(producer_id=8)).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_behind_a_later_answer_keep_their_order(gate, broker, connection):
    """They are pipelined on one connection; other producers of the log are not held up."""
    gate.later = True
    for sequence in range(5):
        send(connection, batch(sequence))
    wait_until(lambda: gate.waiting, WAIT_S, "the gate to be asked")
    with wire.Connection(broker.port) as other:
        assert produce(other, batch(producer_id=-1, epoch=-1, sequence=-1, transactional=False)).error == 0
    assert len(gate.waiting) == 1
    wait_until(
        lambda: len((log_of(broker).core.admissions or {}).get(7, ())) == 4, WAIT_S, "the others to wait behind it"
    )
    gate.waiting[0].complete(0)
    assert [receive(connection) for _ in range(5)] == [(0, offset) for offset in range(1, 6)]
    assert log_of(broker).core.admissions is None
    assert produce(connection, batch(5)).base_offset == 6


def test_batch_that_comes_while_the_first_one_is_answered_stays_behind_those_that_waited(
    gate, broker, connection, monkeypatch
):
    broker.create_topic("f", 1, flush_messages=1)
    log = broker.logs.topics["f"].partitions[0]
    plain, answering, arrived = PartitionLog.flush_async, threading.Event(), threading.Event()

    def flush_async(self, end_offset, callback):
        if self is log and not answering.is_set():
            answering.set()
            arrived.wait(WAIT_S)
        plain(self, end_offset, callback)

    def send_next(sequence):
        body = wire.produce_body("f", [(0, batch(sequence))], version=7, acks=1, transactional_id="job")
        connection.send(wire.PRODUCE, 7, body)

    monkeypatch.setattr(PartitionLog, "flush_async", flush_async)
    gate.later = True
    send_next(0)
    send_next(1)
    wait_until(lambda: len((log.core.admissions or {}).get(7, ())) == 1, WAIT_S, "the second to wait behind the first")
    gate.waiting[0].complete(0)
    assert answering.wait(WAIT_S)
    kept = deferred_bytes_now()
    send_next(2)
    try:
        wait_until(lambda: deferred_bytes_now() > kept, WAIT_S, "the third to be kept for the pool")
    finally:
        arrived.set()
    assert [receive(connection) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]


def test_each_batch_behind_a_refused_one_is_asked_about(gate, broker, connection):
    gate.later = True
    for sequence in range(3):
        send(connection, batch(sequence))
    for expected in (1, 2, 3):
        wait_until(lambda: len(gate.waiting) == expected, WAIT_S, "the gate to be asked again")  # noqa: B023
        gate.waiting[-1].complete(ErrorCode.INVALID_TXN_STATE)
    assert [receive(connection) for _ in range(3)] == [(ErrorCode.INVALID_TXN_STATE, -1)] * 3
    assert log_of(broker).core.admissions is None
    assert log_of(broker).log_end_offset == 0


def test_later_answers_of_two_producers_do_not_wait_for_one_another(gate, broker, connection):
    gate.later = True
    with wire.Connection(broker.port) as other:
        send(connection, batch())
        wait_until(lambda: len(gate.waiting) == 1, WAIT_S, "the gate to be asked")
        send(other, batch(producer_id=8))
        wait_until(lambda: len(gate.waiting) == 2, WAIT_S, "the gate to be asked for the other")
        gate.waiting[1].complete(0)
        assert receive(other) == (0, 0)
        gate.waiting[0].complete(0)
        assert receive(connection) == (0, 1)


def test_marker_before_the_answer_takes_the_admission_back(gate, broker, connection):
    log_of(broker).ensure_producers()
    gate.later = True
    send(connection, batch())
    wait_until(lambda: gate.waiting, WAIT_S, "the gate to be asked")
    log_of(broker).append_marker(7, 0, 0, commit=False)
    gate.waiting[0].complete(0)
    assert receive(connection) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert log_of(broker).last_stable_offset == 1


def test_client_that_leaves_before_the_answer_leaves_no_trace(gate, broker):
    gate.later = True
    with wire.Connection(broker.port) as connection:
        for sequence in range(3):
            send(connection, batch(sequence))
        wait_until(lambda: gate.waiting, WAIT_S, "the gate to be asked")
    wait_until(lambda: broker.connection_count == 0, WAIT_S, "the connection to be forgotten")
    gate.waiting[0].complete(0)
    wait_until(lambda: deferred_bytes_now() == 0, WAIT_S, "the batches to be appended")
    assert log_of(broker).core.admissions is None


def test_memory_for_waiting_batches_is_bounded(gate, monkeypatch):
    def make(*args, **settings):
        return ProduceServer(*args, **{**settings, "gate": gate})

    monkeypatch.setattr(kafkalite.broker.worker_factory, "ProduceServer", make)
    large = bytes(700_000)
    with Broker(num_network_threads=1, queued_append_max_bytes=1 << 20, flush_on_acks_all="false") as broker:
        broker.create_topic("t", 1)
        with wire.Connection(broker.port) as connection:
            produce(connection, batch(producer_id=1))
            gate.later = True
            send(connection, batch(value=large))
            send(connection, batch(1, value=large))
            send(connection, batch(producer_id=8, value=large))
            wait_until(lambda: len(gate.waiting) == 2, WAIT_S, "the gate to be asked for both producers")
            gate.waiting[1].complete(0)
            gate.waiting[0].complete(0)
            assert receive(connection) == (0, 1)
            assert receive(connection) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            assert receive(connection) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert log_of(broker).core.admissions is None


def test_many_producers_and_later_answers_at_once(gate, broker):
    """Four connections, twenty producers each, answers from another thread in another order."""
    gate.later = True
    stop = threading.Event()

    def answer():
        while not stop.is_set():
            while gate.waiting:
                gate.waiting.pop().complete(0)
            stop.wait(0.001)

    def one(number):
        with wire.Connection(broker.port) as connection:
            for sequence in range(10):
                for producer_id in range(number * 100, number * 100 + 20):
                    send(connection, batch(sequence, producer_id=producer_id))
                results.extend(receive(connection)[0] for _ in range(20))

    results = []
    threads = [threading.Thread(target=one, args=(number,)) for number in range(1, 5)]
    answering = threading.Thread(target=answer)
    answering.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    stop.set()
    answering.join()
    assert results == [0] * 800
    assert len(gate.asked) == 80
    assert log_of(broker).core.admissions is None
    assert log_of(broker).last_stable_offset == 0


def test_parts_that_are_asked_about_at_once_take_only_their_own_answers(gate, broker, connection):
    """Two threads of the pool ask for one request. Of the first log the producer's earlier transactions are known."""
    first, second = log_of(broker, 0), log_of(broker, 1)
    for sequence in range(3):
        assert produce(connection, batch(sequence)).error == 0
        first.append_marker(7, 0, 0, commit=True)
    second_is_asked = threading.Event()

    def admit(_id, _producer_id, _epoch, _topic, partition, _version):
        if partition == 1:
            second_is_asked.set()
            return 0
        assert second_is_asked.wait(WAIT_S)
        return 0

    gate.admit = admit
    for log in (first, second):
        log.core.deferred_appends += 1  # as if the pool had something of both, so that both go there
    try:
        parts = [(0, batch(3)), (1, batch(0))]
        connection.send(wire.PRODUCE, 7, wire.produce_body("t", parts, version=7, acks=1, transactional_id="job"))
        _, body = connection.receive()
    finally:
        for log in (first, second):
            log.core.deferred_appends -= 1
    assert [part.error for part in wire.parse_produce(body, 7)] == [0, 0]


# ---- reading --------------------------------------------------------------------------------------------------------


def committed(connection, offset=0, **limits):
    return connection.fetch("t", 0, offset, isolation=READ_COMMITTED, **limits)


def bases(answer):
    return [found.base_offset for found in wire.split_batches(answer.records)]


@pytest.mark.parametrize("version", [4, 5, 7, 11])
def test_read_committed_ends_at_the_last_stable_offset(gate, broker, connection, version):
    produce(connection, batch(transactional=False, producer_id=1))
    produce(connection, batch())
    produce(connection, batch(1, transactional=False, producer_id=1))
    answer = committed(connection, version=version)
    assert (bases(answer), answer.high_watermark, answer.last_stable_offset) == ([0], 3, 1)
    assert answer.aborted == []
    plain = connection.fetch("t", 0, 0, version=version)
    assert (bases(plain), plain.last_stable_offset, plain.aborted) == ([0, 1, 2], 1, None)
    beyond = committed(connection, 2, version=version)
    assert (beyond.error, beyond.records) == (0, b""), "not yet readable is no error"
    log_of(broker).append_marker(7, 0, 0, commit=False)
    answer = committed(connection, version=version)
    assert (bases(answer), answer.last_stable_offset) == ([0, 1, 2, 3], 4)
    assert answer.aborted == [(7, 1)]
    assert committed(connection, 3, version=version).aborted == [(7, 1)], "the marker must be known to its reader"
    assert connection.fetch("t", 0, 0, version=version).aborted is None


def test_aborted_list_is_of_what_was_read(gate, broker, connection):
    for number in range(20):
        produce(connection, batch(number, value=bytes(500)))
        log_of(broker).append_marker(7, 0, 0, commit=number % 2 == 0)
    size = len(batch(value=bytes(500)))
    for offset in range(0, 40, 2):
        answer = committed(connection, offset, partition_max_bytes=size + 100)
        assert bases(answer) == [offset, offset + 1]
        assert answer.aborted == ([(7, offset)] if offset % 4 == 2 else [])


def test_waiting_reader_is_woken_by_the_marker_and_not_by_data(gate, broker, connection):
    produce(connection, batch())
    with wire.Connection(broker.port) as reader:
        body = wire.fetch_body("t", [(0, 0)], max_wait_ms=60_000, min_bytes=1, isolation=READ_COMMITTED)
        began = time.monotonic()
        reader.send(wire.FETCH, 11, body)
        for sequence in range(1, 5):
            produce(connection, batch(sequence))
        reader.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reader.receive()
        reader.socket.settimeout(WAIT_S)
        log_of(broker).append_marker(7, 0, 0, commit=True)
        (answer,) = wire.parse_fetch(reader.receive()[1])
        assert bases(answer) == [0, 1, 2, 3, 4, 5]
        assert time.monotonic() - began < 60


def test_minimum_counts_readable_bytes_only(gate, broker, connection):
    produce(connection, batch(value=bytes(1000), transactional=False, producer_id=1))
    produce(connection, batch(value=bytes(50_000)))
    answer = committed(connection, max_wait_ms=200, min_bytes=10_000)
    assert bases(answer) == [0], "the wait passed, though there were bytes enough above the last stable offset"


def test_list_offsets_by_isolation(gate, broker, connection):
    produce(connection, batch(transactional=False, producer_id=1))
    produce(connection, batch())
    assert connection.list_offset("t", 0, -1)[2] == 2
    assert connection.list_offset("t", 0, -1, isolation=READ_COMMITTED)[2] == 1
    log_of(broker).append_marker(7, 0, 0, commit=False)
    assert connection.list_offset("t", 0, -1, isolation=READ_COMMITTED)[2] == 3


def test_last_stable_offset_is_right_in_the_first_answer_after_a_restart(gate, broker, tmp_path, monkeypatch):
    settings = {"log_dirs": str(tmp_path / "data"), "num_network_threads": 1}
    with Broker(**settings) as first:
        first.create_topic("t", 2)
        for partition in (0, 1):
            with wire.Connection(first.port) as connection:
                assert produce(connection, batch(transactional=False, producer_id=1), partition=partition).error == 0
                assert produce(connection, batch(), partition=partition).error == 0
    with Broker(**settings) as second, wire.Connection(second.port) as connection:
        answer = committed(connection)
        assert (answer.last_stable_offset, answer.high_watermark, bases(answer)) == (1, 2, [0])
        assert connection.list_offset("t", 1, -1, isolation=READ_COMMITTED)[2] == 1


def test_fetch_of_a_log_whose_producers_cannot_be_loaded_is_an_error(gate, broker, connection, monkeypatch):
    monkeypatch.setattr(PartitionLog, "load_producers_locked", lambda _log: False)
    answer = connection.fetch("t", 2, 0, max_wait_ms=60_000)
    assert (answer.error, answer.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    monkeypatch.undo()
    assert connection.fetch("t", 2, 0).error == 0
