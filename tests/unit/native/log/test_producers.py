"""Sequence numbers: Kafka's rules, the five-batch window, epochs, wrap, snapshots; against a plain model."""

import random
import struct
from pathlib import Path

import pytest

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.log.log_append import APPEND_DONE, APPEND_DUPLICATE, append_batch
from kafkalite._native.log.producers import ProducerTable
from kafkalite.broker.log import markers, snapshots
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import ErrorCode
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, make_batch, release

SEQUENCE_MAX = (1 << 31) - 1


class Model:
    """What Kafka's ProducerAppendInfo and ProducerStateEntry check, in words of one syllable."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.window: list[tuple[int, int, int]] = []

    def answer(self, epoch: int, first: int, count: int, end: int) -> tuple[int, int]:
        last = (first + count - 1) % (SEQUENCE_MAX + 1)
        if self.epoch is not None and epoch == self.epoch:
            for old_first, old_last, offset in self.window:
                if (old_first, old_last) == (first, last):
                    return 0, offset
            expected = (self.window[-1][1] + 1) % (SEQUENCE_MAX + 1) if self.window else 0
            if first != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif self.epoch is not None and epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif self.epoch is not None and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if epoch != self.epoch:
            self.epoch, self.window = epoch, []
        self.window = [*self.window, (first, last, end)][-5:]
        return 0, end


def send(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> tuple[int, int]:
    batch = make_batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    _, error, base_offset, *_ = append_batch(log.core, batch)
    return error, base_offset


def test_a_batch_sent_again_is_a_duplicate_with_the_first_ones_offsets(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    batch = make_batch(3, producer_id=7, epoch=0, sequence=0)
    first, again = append_batch(log.core, batch), append_batch(log.core, batch)
    assert (first[0], again[0]) == (APPEND_DONE, APPEND_DUPLICATE)
    assert first[1:] == again[1:]
    assert log.log_end_offset == 3


@pytest.mark.parametrize("seed", range(20))
def test_answers_equal_the_model(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    harness = LogHarness(tmp_path, segment_bytes=rng.choice([600, 1 << 20]))
    log = harness.open()
    model = Model()
    next_sequence = 0
    for _ in range(150):
        roll = rng.random()
        epoch = (model.epoch or 0) + (rng.choice([-1, 1]) if rng.random() < 0.05 else 0)
        count = rng.randint(1, 4)
        sequence = next_sequence
        if roll < 0.25 and model.window:
            first, last, _ = rng.choice(model.window)
            sequence, count = first, last - first + 1
        elif roll < 0.35:
            sequence = max(0, next_sequence + rng.choice([-7, -1, 1, 3]))
        elif roll < 0.4:
            sequence = 0
        if epoch < 0:
            continue
        expected = model.answer(epoch, sequence, count, log.log_end_offset)
        end = log.log_end_offset
        assert send(log, sequence, count, epoch=epoch) == expected
        if expected == (0, end):
            next_sequence = sequence + count
        if roll > 0.97:
            log.close()
            log = harness.open(recovery_point=log.log_end_offset)
        elif roll > 0.94:
            release(log)
            log = harness.open(clean=False, recovery_point=0)


def test_sequence_wraps_behind_the_largest_int32(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    assert send(log, SEQUENCE_MAX - 2, 2) == (0, 0), "without state any sequence may be the first"
    assert send(log, SEQUENCE_MAX, 3) == (0, 2)
    assert send(log, SEQUENCE_MAX, 3) == (0, 2), "sent again"
    assert send(log, 3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(log, 2) == (0, 5)


def test_batch_that_left_the_window_is_out_of_order(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    for sequence in range(6):
        send(log, sequence)
    assert send(log, 0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    for sequence in range(1, 6):
        assert send(log, sequence) == (0, sequence)


def test_new_epoch_starts_at_zero_and_fences_the_old_one(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    assert send(log, 0) == (0, 0)
    assert send(log, 1, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(log, 0, epoch=1) == (0, 1)
    assert send(log, 1, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(log, 0, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1), "the old epoch's batches are forgotten"


def test_state_expires_after_silence_and_not_before(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    log = LogHarness(tmp_path, clock=clock).open()
    send(log, 0)
    clock.advance(100)
    send(log, 0, producer_id=8)
    assert log.producer_state.expire(clock.time_ms(), 100_000) == 1
    assert send(log, 5) == (0, 2), "forgotten: any sequence may start"
    assert send(log, 5, producer_id=8) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_table_forgets_the_silent_rather_than_grow(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock)
    harness.services.producer_count_max = 20
    log = harness.open()
    for producer_id in range(50):
        clock.advance(1)
        send(log, 0, producer_id=producer_id)
    assert log.producers is not None
    assert len(log.producers) <= 20
    assert send(log, 1, producer_id=49)[0] == 0
    assert send(log, 9, producer_id=0)[0] == 0, "the oldest is gone"


@pytest.mark.parametrize(("marker_epoch", "expected"), [(0, 2), (1, 0)], ids=["same epoch", "newer epoch"])
def test_marker_in_a_copied_log_ends_the_transaction(tmp_path: Path, marker_epoch: int, expected: int) -> None:
    """A log of Kafka's with a transaction. Sequences run on behind a marker of the same epoch, not of a newer one."""
    harness = LogHarness(tmp_path)
    data = make_batch(2, producer_id=3, epoch=0, sequence=0, attributes=0x10)
    marker = markers.marker_batch(3, marker_epoch, 9, TIME_MS, commit=True)
    marker = struct.pack(">q", 2) + marker[8:]
    (harness.path / f"{0:020d}.log").write_bytes(data + marker)
    log = harness.open(clean=False)
    assert log.log_end_offset == 3
    assert len(log.read(0, 1000)) == len(data + marker)
    for sequence in {0, 1, 2, 5} - {expected}:
        assert send(log, sequence, producer_id=3, epoch=marker_epoch) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(log, expected, producer_id=3, epoch=marker_epoch) == (0, 3)
    assert log.producers is not None
    entry = log.producers.get(3)
    assert entry is not None
    assert (entry.transaction_offset, entry.coordinator_epoch) == (-1, 9)
    assert log.last_stable_offset == 4


def test_snapshot_is_kafkas_byte_for_byte() -> None:
    table = ProducerTable()
    table.restore(
        4242,
        3,
        [(10, 12, 100, 102, TIME_MS)],
        coordinator_epoch=-1,
        transaction_offset=-1,
        last_offset=102,
        last_timestamp=TIME_MS,
    )
    snapshot, _ = snapshots.encode(table)
    entry = (
        bytes.fromhex("0000000000001092")  # producer id
        + bytes.fromhex("0003")  # epoch
        + bytes.fromhex("0000000c")  # last sequence
        + bytes.fromhex("0000000000000066")  # last offset
        + bytes.fromhex("00000002")  # offset delta
        + struct.pack(">q", TIME_MS)  # timestamp
        + bytes.fromhex("ffffffff")  # coordinator epoch
        + bytes.fromhex("ffffffffffffffff")  # first offset of the open transaction
    )
    body = bytes.fromhex("00000001") + entry
    assert snapshot == bytes.fromhex("0001") + struct.pack(">I", crc32c(body)) + body


@pytest.mark.parametrize("companion", [True, False], ids=["with ours beside", "Kafka's alone"])
def test_snapshot_round_trip(tmp_path: Path, companion: bool) -> None:
    log = LogHarness(tmp_path).open()
    for sequence in range(8):
        send(log, sequence)
        send(log, sequence, 2 if sequence == 0 else 1, producer_id=8) if sequence < 1 else None
    assert log.producers is not None
    directory = str(tmp_path)
    snapshots.write(directory, 9, snapshots.encode(log.producers))
    if not companion:
        (tmp_path / f"{9:020d}.producers").unlink()
    table = ProducerTable()
    assert snapshots.load(directory, 0, 9, table) == 9
    for entry in log.producers:
        again = table.get(entry.producer_id)
        assert again is not None
        expected = entry.batches() if companion else entry.batches()[-1:]
        assert (again.epoch, again.batches()) == (entry.epoch, expected)


def test_damaged_snapshot_is_never_believed(tmp_path: Path) -> None:
    table = ProducerTable()
    table.restore(1, 0, [(0, 0, 0, 0, TIME_MS)], last_offset=0, last_timestamp=TIME_MS)
    snapshot, companion = snapshots.encode(table)
    path = tmp_path / f"{5:020d}.snapshot"
    for at in range(len(snapshot)):
        for damaged in (snapshot[:at], snapshot[:at] + bytes([snapshot[at] ^ 1]) + snapshot[at + 1 :]):
            path.write_bytes(damaged)
            assert snapshots.load(str(tmp_path), 0, 9, ProducerTable()) == -1
    path.write_bytes(snapshot)
    for at in range(len(companion)):
        path.with_suffix(".producers").write_bytes(companion[:at])
        loaded = ProducerTable()
        assert snapshots.load(str(tmp_path), 0, 9, loaded) == 5
        entry = loaded.get(1)
        assert entry is not None
        assert entry.batches() == [(0, 0, 0, 0, TIME_MS)]


def test_snapshot_ahead_of_the_log_is_not_used(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.open()
    for sequence in range(4):
        send(log, sequence)
    log.close()
    path = harness.files()[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    harness.files(".klindex")[0].unlink()
    log = harness.open(clean=False, recovery_point=0)
    assert log.log_end_offset == 2
    assert send(log, 3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(log, 1) == (0, 1)
    assert send(log, 2) == (0, 2)
