"""Which record has a time: against a plain list, over segments, restarts, codecs, deleted records."""

import random
import struct
from pathlib import Path

import pytest

from kafkalite.broker.log import segment_removal
from kafkalite.wire.record.compression import Codec
from tests.kit.harness.log_harness import TIME_MS, LogHarness, make_batch
from tests.unit.native.log.test_append import compressed, patched


@pytest.mark.parametrize("seed", range(8))
def test_answers_equal_a_plain_list(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    harness = LogHarness(tmp_path, segment_bytes=rng.choice([800, 1 << 20]), index_interval_bytes=rng.choice([0, 300]))
    log = harness.open()
    records: list[tuple[int, int]] = []
    for _ in range(60):
        count, step = rng.randint(1, 6), rng.choice([0, 5, -3])
        timestamp = TIME_MS - 100_000 + rng.randrange(90_000)
        batch = make_batch(count, timestamp=timestamp, step_ms=step)
        if step < 0:
            batch = patched(batch, 35, struct.pack(">q", timestamp))
        if rng.random() < 0.3:
            batch = compressed(batch, rng.choice([Codec.GZIP, Codec.ZSTD]))
        base_offset = log.append(batch).base_offset
        records += [(base_offset + i, timestamp + i * step) for i in range(count)]
        if rng.random() < 0.05:
            log.close()
            log = harness.open(recovery_point=log.log_end_offset, log_start=log.log_start_offset)
        if rng.random() < 0.03:
            segment_removal.delete_records(log, rng.randint(log.log_start_offset, log.log_end_offset))
    for _ in range(60):
        wanted = TIME_MS - 105_000 + rng.randrange(100_000)
        upper = rng.choice([None, rng.randrange(log.log_start_offset, log.log_end_offset + 1)])
        limit = log.log_end_offset if upper is None else upper
        expected = next(
            ((offset, time) for offset, time in records if log.log_start_offset <= offset < limit and time >= wanted),
            None,
        )
        found = log.find_timestamp(wanted, upper)
        assert (found and found[:2]) == expected
    visible = [(time, -offset) for offset, time in records if offset >= log.log_start_offset]
    newest = log.max_timestamp()
    assert (newest and (newest.timestamp, -newest.offset)) == max(visible, default=None)


def test_nothing_and_no_time(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    assert log.find_timestamp(0) is None
    assert log.max_timestamp() is None
    log.append(make_batch(2, timestamp=-1))
    assert log.find_timestamp(0) is None
    assert log.max_timestamp() is None
    log.append(make_batch(2, timestamp=TIME_MS))
    found = log.find_timestamp(0)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (2, TIME_MS, 0)


def test_append_time_of_a_batch_is_that_of_each_record(tmp_path: Path) -> None:
    log = LogHarness(tmp_path, message_timestamp_type="LogAppendTime").open()
    log.append(make_batch(3, timestamp=5))
    found = log.find_timestamp(TIME_MS)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, TIME_MS)
    assert log.find_timestamp(TIME_MS + 1) is None


def test_batch_that_cannot_be_unpacked_answers_by_its_header(tmp_path: Path) -> None:
    log = LogHarness(tmp_path, record_validation="header").open()
    log.append(make_batch(1, timestamp=TIME_MS - 50))
    log.append(patched(compressed(make_batch(4, timestamp=TIME_MS), Codec.GZIP), 61, b"\0\0\0\0"))
    found = log.find_timestamp(TIME_MS)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, TIME_MS)
    newest = log.max_timestamp()
    assert newest is not None
    assert newest.timestamp == TIME_MS


def test_damage_is_stepped_over(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=200)
    log = harness.open()
    for i in range(40):
        log.append(make_batch(1, timestamp=TIME_MS - 1000 + i, value_size=60))
    log.close()
    path = harness.files()[0]
    data = bytearray(path.read_bytes())
    size = len(data) // 40
    data[10 * size + 80] ^= 1
    path.write_bytes(data)
    log = harness.open(recovery_point=40)
    for i in range(40):
        found = log.find_timestamp(TIME_MS - 1000 + i)
        assert found is not None
        assert found.offset == (11 if i == 10 else i)
