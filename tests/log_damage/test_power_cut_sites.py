"""Syncs whose lack random states hardly ever show: the very state that each of them keeps a power cut from leaving."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.broker.log import files, sealer
from kafkalite.broker.log.partition_log import PartitionLog
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, damage_ranges, make_batch, read_all, release, started
from tests.kit.oracles.compaction_model import CompactedModel, ModelRecord
from tests.kit.oracles.unsynced import ChangedNames, NameRecorder, Names, recorded, watched
from tests.log_damage.test_compaction_runs import read_from
from tests.log_damage.test_compaction_swap import COMMIT, DATA, compact, fill, latest, make_harness, transactional_log

pytestmark = pytest.mark.own_process

MESSAGE = b"\0\0\0\5\0\0\0\0\0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory with topic t, which has one record; stopped."""
    path = tmp_path / "data"
    manager = started(path)
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    manager.close()
    return path


def test_clean_marker_that_came_back_would_hide_a_hole(
    root: Path, recorder: NameRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a new segment is there, by chance, and not the end of the one before it."""
    monkeypatch.setattr(sealer, "finish_seal", lambda *_: None)  # the sealer has not come to it
    flushed = (root / "t-0" / f"{0:020d}.log").stat().st_size
    manager = started(root)
    log = manager.topics["t"].partitions[0]
    log.append(make_batch())
    log.roll()
    image = recorder.image(tmp_path / "image")
    manager.abandon()
    first = image / "t-0" / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:flushed])
    (image / "t-0" / f"{2:020d}.log").write_bytes(b"")
    manager = started(image)
    log = manager.topics["t"].partitions[0]
    assert log.leader_epoch == 1, "consumers have to notice that the log is shorter"
    assert len(read_all(log)) == log.log_end_offset == 1
    manager.close()


def test_where_an_epoch_ended_is_known(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    """A consumer that asks and gets no answer goes back to auto.offset.reset."""
    manager = started(root)
    log = manager.create_topic("u", 1, {}).partitions[0]
    log.append(make_batch())
    log.flush()
    image = recorder.image(tmp_path / "image", forget_unsynced=True)
    manager.close()
    manager = started(image)
    log = manager.topics["u"].partitions[0]
    assert log.leader_epoch == 1
    assert log.epoch_end(0) == (0, 1)
    manager.close()


def test_where_an_epoch_ended_is_known_while_the_next_one_is_written_down(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    """By chance the new file has its name, and not its content."""
    started(root).abandon()
    manager = started(root)
    manager.topics["t"].partitions[0].append(make_batch())
    recorder.sync_directory(str(root / "t-0"))
    image = recorder.image(tmp_path / "image", forget_unsynced=True)
    manager.close()
    manager = started(image)
    assert manager.topics["t"].partitions[0].epoch_end(0) == (0, 1)
    manager.close()


def test_journal_that_was_made_shorter_is_whole(
    root: Path, recorder: NameRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.SLACK_LINES", 0)
    manager = started(root)
    manager.create_topic("gone", 1, {})
    manager.delete_topic("gone")
    manager.close()
    lines = (root / files.JOURNAL_NAME).read_text().count("\n")
    manager = started(root)
    assert (root / files.JOURNAL_NAME).read_text().count("\n") < lines
    recorder.sync_directory(str(root))  # by chance the names are there
    image = recorder.image(tmp_path / "image", forget_unsynced=True)
    manager.close()
    manager = started(image)
    assert set(manager.topics) == {"t"}
    manager.close()


def test_journal_that_was_made_shorter_while_the_broker_ran_is_whole(
    root: Path, recorder: NameRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.RUNNING_SLACK_LINES", 0)
    manager = started(root)
    for _ in range(5):
        manager.create_topic("gone", 1, {})
        manager.delete_topic("gone")
    manager.compact_journal()
    recorder.sync_directory(str(root))  # by chance the names are there
    image = recorder.image(tmp_path / "compacted", forget_unsynced=True)
    manager.create_topic("later", 1, {})
    later = recorder.image(tmp_path / "later", forget_unsynced=True)
    manager.close()
    for each, topics in ((image, {"t"}), (later, {"t", "later"})):
        manager = started(each)
        assert set(manager.topics) == topics
        manager.close()


def test_expiry_time_is_stored_before_a_wrong_clock_stamps_the_checkpoints(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    """A directory of a release that stored none, and a clock that is eight days ahead: only the times of the files say
    so, and after a power cut they no longer do."""
    (root / files.EXPIRY_TIME_NAME).unlink()
    for path in root.glob("*-checkpoint"):
        os.utime(path, (TIME_MS / 1000,) * 2)
    recorder.sync_directory(str(root))
    clock = FakeClock(TIME_MS + 8 * 86_400_000)
    manager = started(root, clock=clock)
    image = recorder.image(tmp_path / "image", forget_unsynced=True)
    manager.close()
    manager = started(image, clock=clock)
    assert manager.expiry_time.time_ms() == TIME_MS
    manager.close()


def test_closed_classic_segments_have_no_hole_between_them(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic")
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        harness.services = replace(harness.services, request_flush=lambda *_: None)  # it comes too late
        log = harness.open()
        log.append_set(MESSAGE)  # type: ignore[attr-defined]
        log.flush()
        log.roll()
        log.append_set(MESSAGE)  # type: ignore[attr-defined]
        log.roll()
        image = recorder.image(tmp_path / "image")
    (image / "t-0" / Path(log.active.path).name).write_bytes(b"")  # by chance
    release(log)
    log = LogHarness(image, message_format="classic").open(clean=False)
    assert log.log_end_offset == 2 * len(MESSAGE)


def test_saved_index_covers_no_hole(tmp_path: Path) -> None:
    """It is believed: what it covers is not walked at the next start, and a hole in there would stay as damage."""
    harness = LogHarness(tmp_path)
    log = harness.open()
    for _ in range(3):
        log.append(make_batch())
    log.roll()
    first = log.segments[0]
    path = Path(first.path)
    assert path.with_suffix(".klindex").exists()
    if first.flushed_size < first.size:
        data = bytearray(path.read_bytes())
        third = len(data) // 3
        data[third : 2 * third] = bytes(third)
        path.write_bytes(data)
    release(log)
    log = harness.open(clean=False)
    log.verify_blocking(0, 1 << 20)
    assert not damage_ranges(log)
    assert len(read_all(log)) == log.log_end_offset


def test_batches_that_compaction_took_out_are_still_known_as_written(tmp_path: Path) -> None:
    """Only the snapshot has them: a producer that resends one gets a duplicate's acknowledgement."""
    harness = make_harness(tmp_path)
    log = transactional_log(harness, [(DATA, 1, b"a"), (COMMIT, 1, b""), (DATA, 1, b"a"), (COMMIT, 1, b"")])
    before = {entry.producer_id: entry.batches() for entry in log.ensure_producers()}
    assert len(before[1]) == 2
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        compact(log)
        image = recorder.image(tmp_path / "image", forget_unsynced=True)
    release(log)
    log = make_harness(image).open(clean=False, recovery_point=4)
    assert {entry.producer_id: entry.batches() for entry in log.ensure_producers()} == before


# ---- names in a swap ------------------------------------------------------------------------------------------------


def judged(
    tmp_path: Path, harness: LogHarness, expected: list[ModelRecord], end: int
) -> tuple[ChangedNames, list[int]]:
    """Looks at each directory that may be left of `harness`; how many there were is counted in the list."""
    count = [0]

    def judge(names: Names) -> None:
        count[0] += 1
        place = tmp_path / f"state-{count[0]}"
        changes.build(names, place / "t-0")
        log = make_harness(place).open(clean=False, recovery_point=end)
        try:
            found = read_from(log, 0)
            assert latest(found) == latest(expected), sorted(names)
            assert set(found) <= set(expected), sorted(names)
            assert [record.offset for record in found] == sorted({record.offset for record in found}), sorted(names)
            assert log.log_end_offset == end, sorted(names)
            assert not damage_ranges(log), sorted(names)
        finally:
            release(log)

    changes = ChangedNames(harness.path, tmp_path / "inodes", judge)
    return changes, count


def filled(path: Path) -> tuple[LogHarness, PartitionLog]:
    """A log of several small segments: each pass merges some of them."""
    path.mkdir()
    harness = make_harness(path)
    log = harness.open()
    fill(log, CompactedModel(), rounds=8)
    log.flush()
    return harness, log


def test_any_names_that_two_compactions_leave(tmp_path: Path) -> None:
    harness, log = filled(tmp_path / "data")
    changes, count = judged(tmp_path, harness, read_from(log, 0), log.log_end_offset)
    with watched(changes):
        compact(log)
        assert len(log.segments) > 2, "the last one swapped in is behind the one that the next pass begins with"
        compact(log)
    assert count[0] > 30


def test_any_names_that_a_finished_swap_leaves(tmp_path: Path) -> None:
    """Of several segments into one; a start finds it announced, and the power goes again."""
    harness, log = filled(tmp_path / "data")
    expected = read_from(log, 0)
    announced: list[Names] = []

    def judge(names: Names) -> None:
        if not announced and any(name.endswith(files.SWAP_SUFFIX) for name in names):
            announced.append(names)

    compact(log)
    count_before = len(log.segments)
    changes = ChangedNames(harness.path, tmp_path / "first", judge)
    with watched(changes):
        compact(log)
    assert len(log.segments) < count_before
    place = tmp_path / "again"
    changes.build(announced[0], place / "t-0")
    again = make_harness(place)
    changes, count = judged(tmp_path, again, expected, log.log_end_offset)
    with watched(changes):
        release(again.open(clean=False, recovery_point=log.flushed_offset))
    assert count[0] > 3


def test_any_names_that_outputs_of_a_pass_leave_that_was_not_announced(tmp_path: Path) -> None:
    """Kafka writes a segment as several when their offsets need it, and announces the last of them first."""
    harness, log = filled(tmp_path / "data")
    expected = read_from(log, 0)
    end = log.log_end_offset
    release(log)
    for index in harness.files(files.INDEX_SUFFIX):
        index.unlink()
    first = log.segments[0]
    data = Path(first.path).read_bytes()
    second = log.segments[1].base_offset // 2
    batch = next(at for at in range(1, len(data)) if data[at : at + 8] == second.to_bytes(8, "big"))
    (harness.path / f"{files.stem(0)}.log{files.CLEANED_SUFFIX}").write_bytes(data[:batch])
    (harness.path / f"{files.stem(second)}.log{files.SWAP_SUFFIX}").write_bytes(data[batch:])
    changes, count = judged(tmp_path, harness, expected, end)
    with watched(changes):
        release(harness.open(clean=False, recovery_point=end))
    assert count[0] > 2
