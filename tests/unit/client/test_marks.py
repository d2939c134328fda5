"""Leader epochs of what was read of a log: of any offset that may be committed, the epoch of the record before it."""

from __future__ import annotations

from kafkalite._native.wire.columns import following_offset, last_mark
from kafkalite.client.read.marks import EPOCHS_MAX, EpochHistory
from kafkalite.wire.record.batches import encode_batch, next_whole
from kafkalite.wire.record.columns import Record, RecordColumns


def test_epochs_before_offsets() -> None:
    history = EpochHistory(100, 3)
    assert [history.before(offset) for offset in (99, 100, 101)] == [-1, 3, -1]
    history.extend([(100, 3)], 110)
    history.extend([(110, 4), (115, 6)], 120)
    assert [history.before(offset) for offset in (101, 110, 111, 115, 116, 120, 121)] == [3, 3, 4, 4, 6, 6, -1]
    history.extend([(110, 4), (115, 6)], 120)  # the same again, after a seek
    assert [history.before(offset) for offset in (110, 111, 116)] == [3, 4, 6]
    history.leap(90)
    assert history.before(116) == 6
    history.leap(200)
    assert [history.before(offset) for offset in (120, 121, 200)] == [6, -1, -1]
    history.extend([(195, 6)], 210)  # a batch that began before the position
    assert [history.before(offset) for offset in (200, 201, 210)] == [-1, 6, 6]


def test_old_epochs_are_forgotten() -> None:
    history = EpochHistory(0)
    for epoch in range(3 * EPOCHS_MAX):
        history.extend([(epoch, epoch)], epoch + 1)
    assert history.before(3 * EPOCHS_MAX) == 3 * EPOCHS_MAX - 1
    assert history.before(1) == -1
    assert history.before(2 * EPOCHS_MAX + 2) == 2 * EPOCHS_MAX + 1


def batch(base_offset: int, epoch: int) -> bytes:
    """Two records."""
    data, _ = encode_batch(
        RecordColumns.from_records(Record(-1, 1, None, b"v") for _ in range(2)), base_offset=base_offset, timestamp=1
    )
    data[12:16] = epoch.to_bytes(4, signed=True)
    return bytes(data)


def test_marks_of_batches() -> None:
    raw = batch(10, 3) + batch(12, 3) + batch(14, 5)
    info = next_whole(memoryview(batch(14, 5)), 0)
    assert info is not None
    assert last_mark(raw, 10) == (16, (5, 14, info.crc), ((10, 3), (14, 5)))
    assert last_mark(raw[:-1], 10)[0] == following_offset(raw[:-1], 10) == 14
    assert last_mark(raw[:-1], 10)[1][:2] == (3, 12)
    assert last_mark(raw, 10, 14) == (16, last_mark(raw[: -len(raw) // 3], 10)[1], ((10, 3),))
    assert last_mark(raw, 10, 15)[1:] == last_mark(raw, 10)[1:]
    assert last_mark(raw, 99)[0] == 99
    assert last_mark(b"", 7) == (7, (-1, -1, -1), ())
