"""The log of a partition with replicas: appends from a leader, truncation, and recovery at a restart."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.serve.topic_table import Topic
from kafkalite.broker.log import segment_removal, snapshots
from kafkalite.broker.log.assignment import Assignment
from kafkalite.broker.log.log_truncation import LeaderChanged
from kafkalite.broker.log.markers import marker_batch
from kafkalite.broker.log.replica_log import OffsetsOutOfOrder, ReplicaLog, UnexpectedAppendOffset
from kafkalite.errors import CorruptMessage, ErrorCode, KafkaError, OffsetOutOfRange
from tests.kit.harness.log_harness import TIME_MS, LogHarness, make_batch, read_all, release, split, started
from tests.kit.harness.replica_harness import TRANSACTIONAL, leaders, placed


def opened(harness: LogHarness, **options: object) -> ReplicaLog:
    log = harness.open(replicated=True, **options)  # type: ignore[arg-type]
    assert isinstance(log, ReplicaLog)
    return log


def led(epoch: int, *replicas: int) -> Assignment:
    """Broker 7 leads, alone or with others."""
    replicas = replicas or (7, 8)
    return Assignment(
        held=True, leads=True, leader_id=7, leader_epoch=epoch, replicas=replicas, isr=replicas, partition_epoch=epoch
    )


def followed(epoch: int) -> Assignment:
    """Broker 8 leads."""
    return led(epoch)._replace(leads=False, leader_id=8)


def offsets(found: Iterable[tuple[int, int, bytes]]) -> list[int]:
    return [first for first, _, _ in found]


def test_a_leaders_batches_keep_offsets_epochs_and_bytes(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    given = leaders(0, 3, epoch=2, records=2) + leaders(6, 2, epoch=5)
    assert log.append_as_follower(given, 5) == (0, 8, len(given))
    assert log.read(0, 1 << 20) == given
    assert log.epochs.entries == ((2, 0), (5, 6))
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 8)


def test_the_high_watermark_stays_inside_the_log_and_never_goes_back(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 5), 0)
    assert log.advance_high_watermark(3)
    assert log.high_watermark == log.last_stable_offset == 3
    assert not log.advance_high_watermark(2)
    assert log.advance_high_watermark(99)
    assert log.high_watermark == log.last_stable_offset == 5
    assert not log.advance_high_watermark(99)


def test_a_log_of_its_own_has_no_high_watermark_to_move(tmp_path: Path) -> None:
    log = LogHarness(tmp_path).open()
    log.append(make_batch())
    with pytest.raises(ValueError, match="is its end"):
        log.core.set_high_watermark(0)
    assert log.high_watermark == 1


def test_what_is_cut_off_or_of_a_newer_epoch_is_left_out(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    whole = leaders(0, 2)
    assert log.append_as_follower(whole + leaders(2, 1)[:-1], 0) == (0, 2, len(whole))
    assert log.append_as_follower(leaders(2, 1, epoch=1), 0) == (-1, 2, 0)
    assert log.append_as_follower(leaders(2, 1) + leaders(3, 1, epoch=1) + leaders(4, 1), 0).end_offset == 3
    assert log.append_as_follower(b"", 0) == (-1, 3, 0)
    assert offsets(read_all(log)) == [0, 1, 2]


def test_offsets_may_be_missing_between_batches_of_a_compacted_leader(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.append_as_follower(leaders(0, 1) + leaders(7, 1) + leaders(1 << 33, 1), 0)
    assert offsets(read_all(log)) == [0, 7, 1 << 33]
    assert len(log.segments) == 2
    log.close()
    assert opened(harness).log_end_offset == (1 << 33) + 1


@pytest.mark.parametrize("spoilt", range(3))
def test_one_damaged_batch_keeps_all_of_them_out(tmp_path: Path, spoilt: int) -> None:
    log = opened(LogHarness(tmp_path))
    batches = [bytearray(leaders(i, 1)) for i in range(3)]
    batches[spoilt][-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(b"".join(batches), 0)
    assert log.log_end_offset == 0


def test_batches_out_of_order_are_refused(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(leaders(0, 3) + leaders(2, 1), 0)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_below_the_end_is_refused(tmp_path: Path, first: int) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 2), 0)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        log.append_as_follower(leaders(first, 3), 0)
    assert (caught.value.first_offset, caught.value.last_offset) == (first, first)
    assert log.log_end_offset == 2


def test_old_formats_are_refused(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    old = bytearray(leaders(0, 1))
    old[16] = 1
    with pytest.raises(KafkaError, match="older than magic 2"):
        log.append_as_follower(bytes(old), 0)


def test_an_empty_log_takes_a_batch_in_which_its_leaders_log_starts(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.truncate_fully_and_start_at(12)
    assert log.append_as_follower(leaders(10, 2, records=5), 0).end_offset == 20
    assert (log.log_start_offset, log.high_watermark, log.segments[0].base_offset) == (12, 12, 10)


def test_the_state_of_producers_follows_without_being_asked(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    first = placed(make_batch(2, producer_id=7, epoch=3, sequence=40), 0)
    second = placed(make_batch(1, producer_id=7, epoch=3, sequence=99), 2)  # a gap that a leader would have refused
    log.append_as_follower(first + second, 0)
    assert [(row.producer_id, row.epoch, row.last_sequence) for row in log.producer_rows()] == [(7, 3, 99)]


def transaction(first: int, producer_id: int, *, commit: bool, between: int = 0) -> list[bytes]:
    """Return a transactional batch, and its marker `between` offsets after it."""
    return [
        placed(make_batch(1, producer_id=producer_id, epoch=0, sequence=0, attributes=TRANSACTIONAL), first),
        placed(marker_batch(producer_id, 0, 0, TIME_MS, commit=commit), first + 1 + between),
    ]


def test_a_transaction_is_undecided_until_its_marker_is_on_all_replicas(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    one, one_ends = transaction(1, 1, commit=True, between=2)
    two, two_ends = transaction(2, 2, commit=False, between=2)
    log.append_as_follower(leaders(0, 1) + one + two + leaders(3, 1) + one_ends + two_ends + leaders(6, 2), 0)
    seen = []
    for watermark in range(1, 9):
        log.advance_high_watermark(watermark)
        seen.append((watermark, log.last_stable_offset))
    # Marker 4 ends what began at 1, marker 5 what began at 2: each counts when the watermark is above it.
    assert seen == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 6), (7, 7), (8, 8)]


def test_retention_keeps_what_replicas_may_not_have(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path, segment_bytes=300, retention_bytes=0))
    log.append_as_follower(leaders(0, 12), 0)
    assert len(log.segments) == 4
    log.advance_high_watermark(log.segments[2].base_offset)
    assert segment_removal.apply_retention(log, TIME_MS) == 2
    assert log.log_start_offset == log.high_watermark
    with pytest.raises(OffsetOutOfRange):
        segment_removal.delete_records(log, log.high_watermark + 1)


def test_who_does_not_lead_any_more_deletes_nothing(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.lead(led(1, 7))
    log.append(make_batch(4))
    assert segment_removal.delete_records(log, 1) == 1
    log.resign(followed(2))
    for offset in (2, -1):
        with pytest.raises(KafkaError) as refused:
            segment_removal.delete_records(log, offset)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.log_start_offset == 1


def test_a_batch_that_is_good_in_one_leader_epoch_is_refused_in_every_other(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.lead(led(3, 7))
    log.append(make_batch(), in_epoch=3)
    log.append_internal(transaction(0, 1, commit=True)[0], in_epoch=3)
    log.lead(led(4, 7))
    for append in (
        lambda: log.append(make_batch(), in_epoch=3),
        lambda: log.append_internal(make_batch(), in_epoch=3),
        lambda: log.append_marker(1, 0, 0, commit=True, in_epoch=3),
    ):
        with pytest.raises(KafkaError) as refused:
            append()
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.append_marker(1, 0, 0, commit=True, in_epoch=4) == log.log_end_offset == 3


def test_a_leaders_log_start_is_taken_over(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 3) + leaders(3, 3, epoch=1), 1)
    assert log.advance_log_start(4)
    assert not log.advance_log_start(3)
    assert (log.log_start_offset, log.high_watermark, log.epochs.entries) == (4, 4, ((1, 4),))
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(7)


# --- who leads --------------------------------------------------------------------------------------------------------


def test_a_leader_of_the_only_replica_shows_all_it_has(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path, retention_bytes=0))
    log.lead(led(4, 7))
    log.append_internal(transaction(0, 1, commit=True)[0])
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.append_marker(1, 0, 0, commit=True)
    assert (log.high_watermark, log.last_stable_offset, log.epochs.entries) == (2, 2, ((4, 0),))
    assert segment_removal.apply_retention(log, TIME_MS) == 1


def test_what_was_visible_stays_so_when_another_replica_comes(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.lead(led(4, 7))
    log.append(make_batch())
    log.lead(led(4, 7, 8))
    log.append_internal(transaction(0, 1, commit=True)[0])
    log.append_marker(1, 0, 0, commit=True)
    assert (log.high_watermark, log.last_stable_offset, log.epochs.entries) == (1, 1, ((4, 0),))
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 1
    log.lead(led(4, 7))
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_who_resigns_keeps_what_is_visible_and_begins_no_epoch(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.lead(led(4))
    log.append(make_batch(3))
    log.advance_high_watermark(2)
    log.lead(led(6))
    log.resign(followed(7))
    assert (log.high_watermark, log.leader_epoch, log.epochs.entries) == (2, 7, ((4, 0), (6, 3)))
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        log.append(make_batch())
    log.append_as_follower(leaders(3, 1, epoch=7), 7)
    assert log.epochs.entries == ((4, 0), (7, 3))
    log.close()
    again = opened(harness)
    again.resign(followed(8))
    assert (again.epochs.entries, again.epoch_end(4), again.epoch_end(8)) == (((4, 0), (7, 3)), (4, 3), (-1, -1))


def test_epochs_without_batches_do_not_outlive_each_other(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    for epoch in (2, 3, 5):
        log.lead(led(epoch, 7))
    assert not harness.path.joinpath("leader-epoch-checkpoint").exists()
    log.append(make_batch())
    log.lead(led(6, 7))
    assert log.epochs.entries == ((5, 0), (6, 1))
    log.close()
    assert opened(harness).epochs.entries == ((5, 0),)


def test_a_log_of_the_only_replica_by_an_earlier_release_opens_as_it_was(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300)
    log = harness.open(epoch=3)
    for _ in range(9):
        log.append(make_batch())
    log.flush()
    expected = log.read(0, 1 << 20)
    release(log)
    again = opened(harness, clean=False, recovery_point=9, sole=True)
    assert (again.high_watermark, again.epochs.entries) == (0, ((3, 0),))
    again.lead(led(4, 7))
    assert (again.high_watermark, again.read(0, 1 << 20)) == (9, expected)


def test_damage_in_the_only_replica_is_kept_apart(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.lead(led(1, 7))
    for _ in range(3):
        log.append(make_batch(value_size=100))
    log.lead(led(5, 7))
    for _ in range(3):
        log.append(make_batch(value_size=100))
    log.flush()
    path, size = Path(log.active.path), log.active.size
    release(log)
    data = bytearray(path.read_bytes())
    data[size // 6 * 2 - 1] ^= 1
    path.write_bytes(data)
    again = opened(harness, clean=False, recovery_point=6, sole=True)
    assert (again.log_end_offset, again.epochs.entries) == (6, ((1, 0), (5, 3)))
    with pytest.raises(CorruptMessage):
        again.read(1, 1 << 20)


def test_what_a_leader_of_an_earlier_epoch_gave_is_refused(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.resign(followed(3))
    log.append_as_follower(leaders(0, 2, epoch=3), 3, 1)
    assert log.high_watermark == 1
    for change in (lambda: log.resign(followed(4)), lambda: log.lead(led(5))):
        change()
        before = (log.log_end_offset, log.high_watermark, log.log_start_offset)
        with pytest.raises(LeaderChanged):
            log.append_as_follower(leaders(2, 2, epoch=3), 3, 4)
        with pytest.raises(LeaderChanged):
            log.append_as_follower(b"", 3, 2)
        with pytest.raises(LeaderChanged):
            log.truncate_to(0, leader_epoch=3)
        with pytest.raises(LeaderChanged):
            log.truncate_fully_and_start_at(9, leader_epoch=3)
        with pytest.raises(LeaderChanged):
            log.advance_log_start(1, leader_epoch=3)
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == before


def test_a_leaders_high_watermark_comes_with_its_records(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    one, one_ends = transaction(0, 1, commit=True)
    log.append_as_follower(one + one_ends, 0, 1)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.append_as_follower(b"", 0, 99)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)
    log.append_as_follower(leaders(2, 1), 0, 1)
    assert log.high_watermark == 2


# --- truncation -------------------------------------------------------------------------------------------------------


def test_a_truncated_log_ends_there_and_takes_appends(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300)
    log = opened(harness)
    log.append_as_follower(leaders(0, 12), 0)
    log.advance_high_watermark(12)
    for offset in (11, 7, 6, 0):
        assert log.truncate_to(offset)
        assert log.log_end_offset == log.high_watermark == log.last_stable_offset == offset
        assert offsets(read_all(log)) == list(range(offset))
        assert log.flushed_offset <= offset
    log.append_as_follower(leaders(0, 9, epoch=4, value_size=20), 4)
    expected = log.read(0, 1 << 20)
    log.close()
    again = opened(harness)
    assert again.read(0, 1 << 20) == expected
    assert again.epochs.entries == ((4, 0),)


def test_a_cut_inside_a_batch_takes_the_batch(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 4, records=5), 0)
    assert log.truncate_to(12)
    assert log.log_end_offset == 10


def test_a_segment_behind_a_cut_between_batches_is_not_taken_for_what_follows_a_hole(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.append_as_follower(leaders(0, 3) + leaders(7, 3), 0)
    assert log.truncate_to(5)
    log.roll()
    log.append_as_follower(leaders(5, 2, epoch=1), 1)
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    release(log)
    for path in harness.files(".klindex"):
        path.unlink()  # nothing promises that it outlives a power cut
    again = opened(harness, clean=False, recovery_point=0)
    assert offsets(read_all(again)) == [0, 1, 2, 5, 6]


def test_epochs_at_the_end_go_even_where_no_batch_does(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 4, epoch=1), 1)
    log.lead(led(3))
    assert log.epochs.entries == ((1, 0), (3, 4))
    log.resign(followed(4))
    assert not log.truncate_to(4)
    assert log.epochs.entries == ((1, 0),)
    log.append_as_follower(leaders(4, 1, epoch=4), 4)
    assert log.epochs.entries == ((1, 0), (4, 4))


def test_a_leader_records_its_epoch_before_it_writes(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.lead(led(7))
    assert log.epochs.entries == ((7, 0),)
    log.append(make_batch())
    assert struct.unpack_from(">i", log.read(0, 1 << 20), 12) == (7,)
    assert log.high_watermark == 0
    assert log.epoch_end(7) == (7, 1)


def test_readers_of_a_segment_that_is_cut_keep_its_bytes(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    old = leaders(0, 10, value_size=500)
    log.append_as_follower(old, 0)
    _, held = log.read_blocking(2, 1 << 20)
    assert held is not None
    inode = Path(log.active.path).stat().st_ino
    assert log.truncate_to(4)
    assert Path(log.active.path).stat().st_ino != inode
    log.append_as_follower(leaders(4, 10, epoch=1, value_size=300), 1)
    assert held.tobytes() == old[len(old) // 5 :]
    held.release()
    assert offsets(split(log.read(0, 1 << 20))) == list(range(14))


def test_a_segment_without_readers_is_truncated_in_place(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 10), 0)
    path = Path(log.active.path)
    inode, size = path.stat().st_ino, log.active.size
    assert log.truncate_to(4)
    assert (path.stat().st_ino, path.stat().st_size) == (inode, size * 4 // 10)


def test_a_segment_object_from_before_the_cut_cannot_be_opened(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.append_as_follower(leaders(0, 10), 0)
    before = log.active
    log.truncate_to(4)
    with pytest.raises(FileNotFoundError):
        before.read_bytes(0, 10)


def test_the_producers_of_a_cut_log_are_those_of_its_end(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    one, one_ends = transaction(0, 1, commit=False, between=1)
    log.append_as_follower(one + leaders(1, 1) + one_ends + leaders(3, 1), 0)
    log.advance_high_watermark(4)
    log.checkpoint()
    with log.core.locked():
        captured = log.producer_state.capture_locked()
    log.producer_state.save(captured)
    assert log.last_stable_offset == 4
    assert snapshots.offsets_in(str(log.directory)) == [4]
    log.truncate_to(2)
    assert snapshots.offsets_in(str(log.directory)) == []
    assert log.ensure_producers().open_transactions() == [(1, 0)]
    assert log.last_stable_offset == 0
    log.producer_state.save(captured)  # made before the cut: it says nothing any more
    assert snapshots.offsets_in(str(log.directory)) == []
    log.append_as_follower(placed(marker_batch(1, 0, 0, TIME_MS, commit=True), 2, 1), 1)
    log.advance_high_watermark(3)
    assert (log.ensure_producers().open_transactions(), log.last_stable_offset) == ([], 3)
    assert log.ensure_producers().aborted.rows() == []


def test_a_log_restarts_at_the_given_offset(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=300)
    log = opened(harness)
    log.append_as_follower(leaders(0, 12), 0)
    for offset in (500, 20, 0, 3):
        log.truncate_fully_and_start_at(offset)
        state = (log.log_start_offset, log.flushed_offset, log.high_watermark, log.last_stable_offset)
        assert (*state, log.log_end_offset) == (offset,) * 5
        assert log.epochs.entries == ()
        assert len(log.producer_rows()) == 0
        log.append_as_follower(leaders(offset, 4, epoch=2, producer_id=5, sequence=0), 2)
        assert offsets(read_all(log)) == list(range(offset, offset + 4))
    log.close()
    assert offsets(read_all(opened(harness))) == [3, 4, 5, 6]


def test_truncation_below_the_first_segment_restarts_the_log(tmp_path: Path) -> None:
    log = opened(LogHarness(tmp_path))
    log.truncate_fully_and_start_at(50)
    log.append_as_follower(leaders(50, 4), 0)
    assert log.truncate_to(20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


# --- after a restart --------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_wherever_it_was_flushed(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.append_as_follower(leaders(0, 10, epoch=1, value_size=100), 1)
    log.flush()
    path, size = Path(log.active.path), log.active.size
    release(log)
    with path.open("r+b") as file:
        file.truncate(size - 1)
    again = opened(harness, clean=False, recovery_point=10)
    assert (again.log_end_offset, again.flushed_offset) == (9, 9)
    assert again.segments[0].damage is None
    again.append_as_follower(leaders(9, 3, epoch=2), 2)
    assert offsets(read_all(again)) == list(range(12))


def test_missing_files_do_not_make_offsets_up(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    assert opened(harness, clean=False, recovery_point=100).log_end_offset == 0


def test_epochs_come_back_from_the_batches_that_were_walked(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.append_as_follower(leaders(0, 3, epoch=1) + leaders(3, 3, epoch=4) + leaders(6, 2, epoch=6), 6)
    release(log)
    (harness.path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n4 3\n")
    again = opened(harness, clean=False, recovery_point=0)
    assert again.epochs.entries == ((1, 0), (4, 3), (6, 6))


def test_epochs_come_back_where_the_log_once_began_inside_one(tmp_path: Path) -> None:
    """A power cut during a restart of the log at a later offset: its start was lost, but its epochs already began
    there.
    """
    harness = LogHarness(tmp_path, segment_bytes=250)
    log = opened(harness)
    for first, epoch in ((0, 1), (3, 4), (6, 4), (9, 4), (12, 6)):
        log.append_as_follower(leaders(first, 3, epoch=epoch), 6)
    assert len(log.segments) > 3
    release(log)
    for index in harness.path.glob("*.klindex"):
        index.unlink()
    (harness.path / "leader-epoch-checkpoint").write_text("0\n2\n4 8\n6 12\n")
    again = opened(harness, clean=False, recovery_point=0)
    assert again.epochs.entries == ((1, 0), (4, 3), (6, 12))


@pytest.mark.parametrize(("written", "found"), [(None, 0), (3, 3), (99, 5)])
def test_the_high_watermark_of_a_checkpoint_is_kept_inside_the_log(
    tmp_path: Path, written: int | None, found: int
) -> None:
    harness = LogHarness(tmp_path)
    log = opened(harness)
    log.append_as_follower(leaders(0, 5), 0)
    log.close()
    again = opened(harness, high_watermark=written)
    assert again.high_watermark == found
    assert again.ensure_producers() is not None
    assert again.last_stable_offset == found


def test_checksums_are_those_of_the_leader(tmp_path: Path) -> None:
    """Guards the other tests: the batches given to the log are valid."""
    batch = leaders(3, 1, epoch=9)
    assert struct.unpack_from(">I", batch, 17) == (crc32c(batch[21:]),)


# --- in a data directory ----------------------------------------------------------------------------------------------


def test_what_is_written_down_of_a_log_is_lowered_before_it_is_cut(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create_topic("t", 1, {})
    plain = manager.create_topic("plain", 1, {}).partitions[0]
    harness = LogHarness(tmp_path)
    harness.services = manager.services
    log = opened(harness)
    before = manager.topics["t"]
    manager.publish(Topic(before.name, before.id, [log], before.config, before.overrides))
    log.append_as_follower(leaders(0, 9), 0)
    plain.append(make_batch())
    log.advance_high_watermark(8)
    log.flush()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    written = tmp_path / "replication-offset-checkpoint"
    assert written.read_text() == "0\n1\nt 0 8\n"
    assert log.truncate_to(5)
    assert written.read_text() == "0\n1\nt 0 5\n"
    assert ("t", 0, 5) in points_in(tmp_path / "recovery-point-offset-checkpoint")
    manager.checkpoints.high_watermarks.read()
    assert (manager.checkpoints.high_watermarks.of("t", 0), manager.checkpoints.high_watermarks.of("plain", 0)) == (
        5,
        None,
    )
    manager.close()


def points_in(path: Path) -> set[tuple[str, int, int]]:
    rows = (line.split() for line in path.read_text().splitlines()[2:])
    return {(topic, int(partition), int(offset)) for topic, partition, offset in rows}


def test_a_standalone_broker_writes_no_high_watermark_checkpoint(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    manager.close()
    assert not (tmp_path / "replication-offset-checkpoint").exists()
