"""Transactions in one log: which batch is taken, what a marker does, how far read_committed may read."""

import struct
from pathlib import Path

import pytest

from kafkalite._native.log.log_append import APPEND_ASK, append_batch
from kafkalite.broker.log import segment_removal, transaction_index
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    StorageError,
    TransactionCoordinatorFenced,
)
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import LogHarness, make_batch, release

ASK = "ask"
"""In place of an error code: a coordinator has to admit it first."""
CLIENT, CLIENT_V2, COORDINATOR = 0, 1, 2
TRANSACTIONAL = 0x10


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


@pytest.fixture
def log(harness: LogHarness) -> PartitionLog:
    return harness.open()


def put(
    log: PartitionLog,
    sequence: int = 0,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = True,
    origin: int = CLIENT,
    admit: bool = True,
    admitted: int | None = None,
) -> tuple[int | str, int]:
    """Appends a batch as a producer's that the coordinator admits: (error code or ASK, base offset)."""
    batch = make_batch(
        count,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    token = admitted if admitted is not None else log.core.marker_count() if admit else -1
    outcome, error, base_offset, *_ = append_batch(log.core, batch, origin=origin, admitted=token)
    return ASK if outcome == APPEND_ASK else error, base_offset


def end(log: PartitionLog, *, commit: bool, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    return log.append_marker(producer_id, epoch, coordinator_epoch, commit=commit)


def aborted(log: PartitionLog, start: int = 0, upper: int | None = None) -> list[tuple[int, int]]:
    return log.ensure_producers().aborted.between(start, log.log_end_offset if upper is None else upper)


# ---- what is taken ---------------------------------------------------------------------------------------------------


def test_first_batch_of_a_transaction_has_to_be_admitted_and_no_other(log: PartitionLog) -> None:
    put(log, 5, producer_id=1, transactional=False)
    assert put(log, admit=False) == (ASK, -1)
    assert put(log) == (0, 1)
    assert put(log, 1, admit=False) == (0, 2)
    assert put(log, 1, admit=False) == (0, 2), "sent again"
    end(log, commit=True)
    assert put(log, 2, admit=False) == (ASK, -1)
    assert put(log, 2) == (0, 4)


def test_admission_is_taken_back_by_a_marker_in_between(log: PartitionLog) -> None:
    """The batch arrived after its transaction ended; an append now would open a transaction without an end."""
    put(log, 0, producer_id=1)
    token = log.core.marker_count()
    end(log, commit=False)
    assert put(log, admitted=token) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert put(log, 1, producer_id=1, admitted=token) == (0, 2), "a marker of somebody else's does not matter"
    assert put(log) == (0, 3)


def test_admission_is_taken_back_also_when_the_producer_was_forgotten_meanwhile(tmp_path: Path) -> None:
    clock = FakeClock()
    log = LogHarness(tmp_path, clock=clock).open()
    log.ensure_producers()
    token = log.core.marker_count()
    end(log, commit=False)
    clock.advance(10)
    assert log.producer_state.expire(clock.time_ms(), 5000) == 1
    assert put(log, admitted=token) == (ErrorCode.INVALID_TXN_STATE, -1)


def test_plain_batch_inside_a_transaction_is_refused(log: PartitionLog) -> None:
    put(log)
    assert put(log, 1, transactional=False) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert put(log, 3, transactional=False) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (
        "the sequence is looked at first"
    )
    assert put(log, 0, epoch=1, transactional=False) == (ErrorCode.INVALID_TXN_STATE, -1)
    end(log, commit=True)
    assert put(log, 1, transactional=False) == (0, 2)


def test_older_epoch_is_refused_before_anybody_is_asked(log: PartitionLog) -> None:
    put(log, epoch=3)
    assert put(log, epoch=2, admit=False) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert put(log, 1, epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_newer_epoch_asks_again_and_the_open_transaction_stays_open(log: PartitionLog) -> None:
    """As in Kafka: a client that bumps the epoch ends the old transaction before it starts the new one."""
    put(log, epoch=3)
    assert put(log, epoch=4, admit=False) == (ASK, -1)
    assert put(log, 1, epoch=4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert log.last_stable_offset == 0
    end(log, commit=False, epoch=4)
    assert put(log, epoch=4) == (0, 2)
    assert aborted(log) == [(0, 7)]
    assert log.last_stable_offset == 2


def test_kip_890_producer_without_state_starts_at_zero(log: PartitionLog) -> None:
    assert put(log, 4, origin=CLIENT_V2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert put(log, 4, origin=CLIENT) == (0, 0), "older ones may go on where their state was forgotten"
    assert put(log, 4, producer_id=8, origin=CLIENT_V2, transactional=False) == (0, 1), "not in a transaction"
    assert put(log, 0, producer_id=9, origin=CLIENT_V2) == (0, 2)
    assert put(log, 1, producer_id=9, origin=CLIENT_V2) == (0, 3)


def test_the_coordinators_batch_has_no_sequence_and_needs_no_admission(log: PartitionLog) -> None:
    batch = make_batch(1, producer_id=7, epoch=2, sequence=-1, attributes=TRANSACTIONAL)
    assert log.append_internal(batch).base_offset == 0
    assert log.append_internal(batch).base_offset == 1
    assert log.ensure_producers().open_transactions() == [(7, 0)]
    older = make_batch(1, producer_id=7, epoch=1, sequence=-1, attributes=TRANSACTIONAL)
    with pytest.raises(InvalidProducerEpoch):
        log.append_internal(older)
    assert append_batch(log.core, batch)[1] == ErrorCode.INVALID_RECORD, "a client's must have one"
    end(log, commit=True, epoch=2)
    assert log.ensure_producers().open_transactions() == []


def test_plain_append_cannot_begin_a_transaction(log: PartitionLog) -> None:
    with pytest.raises(InvalidTxnState):
        log.append(make_batch(1, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL))
    assert log.log_end_offset == 0


def test_control_batch_of_a_client_is_refused(log: PartitionLog) -> None:
    put(log)
    batch = make_batch(1, producer_id=7, epoch=0, sequence=1, attributes=0x30, key=b"\0\0\0\1", value=bytes(6))
    for origin in (CLIENT, CLIENT_V2, COORDINATOR):
        assert append_batch(log.core, batch, origin=origin)[1] == ErrorCode.INVALID_RECORD


# ---- markers ---------------------------------------------------------------------------------------------------------


def test_marker_is_kafkas_byte_for_byte(log: PartitionLog) -> None:
    put(log, producer_id=4242, epoch=5)
    assert end(log, commit=True, producer_id=4242, epoch=5, coordinator_epoch=17) == 2
    marker = log.read(1, 1000)
    assert len(marker) == 78
    assert marker[:17] == bytes.fromhex("0000000000000001 00000042 00000000 02")
    assert marker[21:27] == bytes.fromhex("0030 00000000")
    assert marker[43:61] == struct.pack(">qhii", 4242, 5, -1, 1)
    assert marker[61:] == bytes.fromhex("20 00 00 00 08 00000001 0c 0000 00000011 00")


@pytest.mark.parametrize("strict", [1, 2], ids=["TV1", "TV2"])
def test_epochs_of_markers(log: PartitionLog, strict: int) -> None:
    put(log, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(7, 2, 5, commit=True, transaction_version=strict)
    if strict == 2:
        with pytest.raises(InvalidProducerEpoch):
            log.append_marker(7, 3, 5, commit=True, transaction_version=strict)
    assert log.last_stable_offset == 0
    log.append_marker(7, 4, 5, commit=True, transaction_version=strict)
    assert log.append_marker(7, 4, 5, commit=True, transaction_version=strict) == 3, "written again after a crash"
    with pytest.raises(TransactionCoordinatorFenced):
        log.append_marker(7, 4, 4, commit=True, transaction_version=strict)
    assert log.log_end_offset == log.last_stable_offset == 3


def test_sequences_run_on_over_a_marker_of_the_same_epoch(log: PartitionLog) -> None:
    for sequence in range(5):
        put(log, sequence)
    end(log, commit=True)
    assert put(log, 4) == (0, 4), "the last batch, sent again"
    assert put(log, 0) == (0, 0), "and the first of the five"
    assert put(log, 6) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert put(log, 5) == (0, 6)


def test_marker_of_a_newer_epoch_starts_again_at_zero(log: PartitionLog) -> None:
    put(log, 0, 3)
    end(log, commit=True, epoch=1)
    assert put(log, 3, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert put(log, 3, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert put(log, 0, epoch=1) == (0, 4)


def test_marker_without_a_transaction_leaves_no_trace_but_itself(log: PartitionLog) -> None:
    assert end(log, commit=False) == 1
    assert aborted(log) == []
    assert log.last_stable_offset == 1


def test_marker_on_a_log_that_cannot_take_it(harness: LogHarness) -> None:
    log = harness.open()
    put(log)
    log.go_offline("on purpose")
    with pytest.raises(StorageError):
        end(log, commit=True)


# ---- last stable offset ----------------------------------------------------------------------------------------------


def test_last_stable_offset_is_the_oldest_open_transactions_first(log: PartitionLog) -> None:
    put(log, transactional=False, producer_id=1)
    assert log.last_stable_offset == 1
    for producer_id in (10, 11, 12):
        put(log, producer_id=producer_id)
    assert log.last_stable_offset == 1
    assert log.ensure_producers().open_transactions() == [(10, 1), (11, 2), (12, 3)]
    end(log, commit=True, producer_id=11)
    assert log.last_stable_offset == 1
    end(log, commit=False, producer_id=10)
    assert log.last_stable_offset == 3
    put(log, 1, transactional=False, producer_id=1)
    assert log.last_stable_offset == 3
    end(log, commit=True, producer_id=12)
    assert log.last_stable_offset == log.high_watermark == 8


def test_thousands_of_open_transactions_are_not_walked(log: PartitionLog) -> None:
    """One transaction stays open while others start and end: the memory grows with the open ones."""
    put(log, producer_id=1)
    for producer_id in range(2, 3000):
        put(log, producer_id=producer_id)
        if producer_id > 20:
            end(log, commit=True, producer_id=producer_id - 10)
    assert log.last_stable_offset == 0
    assert log.producers is not None
    assert log.producers.open_count == len(log.ensure_producers().open_transactions()) == 20
    end(log, commit=True, producer_id=1)
    assert log.last_stable_offset == log.ensure_producers().open_transactions()[0][1] > 0


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_open_and_aborted_transactions_outlive_a_restart(tmp_path: Path, clean: bool) -> None:
    harness = LogHarness(tmp_path, segment_bytes=400)
    log = harness.open()
    put(log, producer_id=1)
    end(log, commit=False, producer_id=1)
    put(log, producer_id=2)
    for sequence in range(12):
        put(log, sequence, producer_id=3, transactional=False)
    put(log, 1, producer_id=2)
    put(log, producer_id=4)
    end(log, commit=False, producer_id=4)
    before = log.last_stable_offset, log.ensure_producers().open_transactions(), aborted(log)
    assert before[:2] == (2, [(2, 2)])
    log.close() if clean else release(log)
    again = harness.open(clean=clean, recovery_point=log.log_end_offset)
    assert again.last_stable_offset <= 2, "not known yet, so not told too high"
    assert (again.ensure_producers(), again.last_stable_offset)[1] == 2
    assert (again.last_stable_offset, again.ensure_producers().open_transactions(), aborted(again)) == before
    end(again, commit=False, producer_id=2)
    assert aborted(again) == sorted([*before[2], (2, 2)])
    assert again.last_stable_offset == again.log_end_offset


def test_delete_records_moves_the_last_stable_offset_past_an_open_transaction(harness: LogHarness) -> None:
    log = harness.open()
    put(log, producer_id=1)
    for sequence in range(5):
        put(log, sequence, producer_id=2, transactional=False)
    segment_removal.delete_records(log, 3)
    assert log.last_stable_offset == 3
    log.close()
    log = harness.open(log_start=3, recovery_point=log.log_end_offset)
    log.ensure_producers()
    assert (log.last_stable_offset, log.ensure_producers().open_transactions()) == (3, [(1, 0)])
    end(log, commit=False, producer_id=1)
    assert log.last_stable_offset == 7
    assert aborted(log, 3) == [(0, 1)]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_retention_takes_the_first_batch_of_an_open_transaction(tmp_path: Path, clean: bool) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300, retention_bytes=400)
    log = harness.open()
    put(log, producer_id=1)
    for sequence in range(30):
        put(log, sequence, producer_id=2, transactional=False)
    assert log.last_stable_offset == 0
    assert segment_removal.apply_retention(log, 0) > 3
    assert log.last_stable_offset == log.log_start_offset > 1
    start = log.log_start_offset
    log.close() if clean else release(log)
    log = harness.open(clean=clean, recovery_point=log.log_end_offset)
    log.ensure_producers()
    assert (log.last_stable_offset, log.ensure_producers().open_transactions()) == (start, [(1, 0)])
    put(log, 1, producer_id=1)
    end(log, commit=False, producer_id=1)
    assert log.last_stable_offset == log.log_end_offset
    assert aborted(log, start) == [(0, 1)]
    assert {int(path.stem) for path in harness.files(".txnindex")} <= {int(path.stem) for path in harness.files()}


def test_index_of_aborted_transactions_goes_with_its_segment(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300)
    log = harness.open()
    for number in range(20):
        put(log, number)
        end(log, commit=False)
    indexes = harness.files(".txnindex")
    assert len(indexes) > 3
    segment_removal.delete_records(log, log.log_end_offset - 2)
    left = harness.files(".txnindex")
    assert [path for path in indexes if path not in left], "some went"
    assert all(int(path.stem) >= int(harness.files()[0].stem) for path in left)
    assert aborted(log, log.log_start_offset) == [(38, 7)]


def test_index_files_are_written_again_where_they_differ(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300)
    log = harness.open()
    for number in range(20):
        put(log, number)
        end(log, commit=number % 2 == 0)
    log.close()
    expected = {path: path.read_bytes() for path in harness.files(".txnindex")}
    told = [(first, 7) for first in range(2, 40, 4)]
    for path in (*expected, None):
        for data in (b"", b"rubbish", bytes(34), *expected.values()):
            if path is not None:
                path.write_bytes(data)
        log = harness.open(clean=False, recovery_point=0)
        assert aborted(log) == told
        log.close()
        assert {path: path.read_bytes() for path in harness.files(".txnindex")} == expected


def test_producer_with_an_open_transaction_is_never_forgotten(tmp_path: Path) -> None:
    clock = FakeClock()
    harness = LogHarness(tmp_path, clock=clock)
    harness.services.producer_count_max = 4
    log = harness.open()
    put(log, producer_id=1)
    for producer_id in range(2, 20):
        clock.advance(1)
        put(log, producer_id=producer_id, transactional=False)
    clock.advance(1_000_000)
    log.producer_state.expire(clock.time_ms(), 1000)
    assert [entry.producer_id for entry in log.producers or ()] == [1]
    assert log.last_stable_offset == 0


# ---- the index of aborted transactions -------------------------------------------------------------------------------


def test_index_file_is_kafkas_byte_for_byte() -> None:
    row = (4242, 100, 200, 150)
    data = transaction_index.encode([row])
    assert data == bytes.fromhex("0000") + struct.pack(">qqqq", *row)
    assert len(data) == 34
    assert transaction_index.decode(data, 100, 201) == [row]


@pytest.mark.parametrize(
    "data",
    [
        transaction_index.encode([(1, 5, 10, 11)])[:-1],
        b"\0\1" + transaction_index.encode([(1, 5, 10, 11)])[2:],
        transaction_index.encode([(1, 10, 10, 11)]),
        transaction_index.encode([(1, 5, 20, 21)]),
        transaction_index.encode([(1, 5, 10, 12)]),
        transaction_index.encode([(1, 5, 10, 11), (1, 5, 9, 11)]),
        transaction_index.encode([(1, 5, 10, 11), (1, 5, 12, 9)]),
        transaction_index.encode([(-1, 5, 10, 11)]),
    ],
    ids=["torn", "version", "empty", "outside", "stable", "markers fall", "stable falls", "no producer"],
)
def test_index_file_that_cannot_be_right_is_not_believed(data: bytes) -> None:
    assert transaction_index.decode(data, 0, 20) is None


def test_aborted_transactions_of_a_range_are_those_that_reach_into_it(log: PartitionLog) -> None:
    put(log, producer_id=1)  # 0
    put(log, producer_id=2)  # 1
    end(log, commit=False, producer_id=2)  # 2
    put(log, producer_id=3)  # 3
    end(log, commit=True, producer_id=3)  # 4
    end(log, commit=False, producer_id=1)  # 5
    assert aborted(log, 0, 6) == [(0, 1), (1, 2)]
    assert aborted(log, 2, 3) == [(0, 1), (1, 2)], "a read that begins at the marker"
    assert aborted(log, 3, 6) == [(0, 1)]
    assert aborted(log, 0, 1) == [(0, 1)]
    assert aborted(log, 6, 9) == []
