"""A replica's directory that Apache Kafka wrote or will write next: the files kafkalite trusts and those it leaves."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log import checkpoints, files, snapshots
from kafkalite.broker.log.directory import check_kind, clean_broker_epoch, leave_clean_marker, read_identity
from kafkalite.broker.log.housekeeping import Housekeeper
from kafkalite.broker.log.markers import marker_batch
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.errors import StartupError
from kafkalite.settings.topic_setting_lookup import TopicConfig
from tests.kit.harness.log_harness import TIME_MS, LogHarness, abandon, make_batch, read_all, started, use_topics
from tests.kit.harness.replica_harness import TRANSACTIONAL, leaders, placed
from tests.unit.broker.log.test_assigned import OWN, assigned, opened

if TYPE_CHECKING:
    from kafkalite.broker.log.assigned import AssignedTopic
    from kafkalite.broker.log.manager import LogManager

KAFKAS = (".index", ".timeindex")


def replica(harness: LogHarness, **options: object) -> ReplicaLog:
    log = harness.open(replicated=True, **options)  # type: ignore[arg-type]
    assert isinstance(log, ReplicaLog)
    return log


def left_by_kafka(harness: LogHarness) -> None:
    """Kafka ran on it: each segment has its indexes, none of ours is there."""
    for path in harness.files(".klindex"):
        path.unlink()
    for path in harness.files():
        for suffix in KAFKAS:
            path.with_suffix(suffix).write_bytes(b"Kafka's")


def segments(harness: LogHarness) -> list[int]:
    return [int(path.stem) for path in harness.files()]


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    """A replica of three segments, ten batches."""
    harness = LogHarness(tmp_path, segment_bytes=400)
    log = replica(harness)
    for offset in range(10):
        log.append_as_follower(leaders(offset, 1, value_size=60), 0)
    log.close()
    assert len(segments(harness)) >= 3
    left_by_kafka(harness)
    return harness


def test_below_the_recovery_point_of_kafka_only_the_last_segment_is_read_at_a_start(harness: LogHarness) -> None:
    """The damage is found by who reads it; a walk would have found it."""
    first = harness.files()[0]
    first.write_bytes(first.read_bytes()[:-1] + b"\xff")
    log = replica(harness, recovery_point=10)
    assert log.log_end_offset == 10
    assert log.segments[0].damage is None
    assert log.fit
    left_by_kafka(harness)
    assert replica(harness, clean=False, recovery_point=10).segments[0].damage is None
    left_by_kafka(harness)
    assert replica(harness, clean=False, recovery_point=0).log_end_offset < 10


def test_a_copy_of_kafkas_is_read_whole_where_it_is_no_replica(harness: LogHarness) -> None:
    """The recovery point may belong to another copy."""
    first = harness.files()[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    log = harness.open(recovery_point=10)
    assert log.segments[0].damage is not None
    assert log.log_end_offset == 10


@pytest.mark.parametrize("sole", [False, True])
def test_missing_offsets_above_the_recovery_point_are_kafkas_compaction_where_nobody_else_has_them(
    harness: LogHarness, sole: bool
) -> None:
    second = segments(harness)[1]
    harness.files()[0].write_bytes(leaders(0, 1, value_size=60))  # a pass of its cleaner's took the rest of it out
    log = replica(harness, clean=False, recovery_point=0, sole=sole)
    assert [first for first, _, _ in read_all(log)] == ([0, *range(second, 10)] if sole else [0])
    assert log.log_end_offset == (10 if sole else 1)


def compacted(name: str, epoch: int, logs: LogManager) -> AssignedTopic:
    """One partition of a compacted topic whose only replica is here."""
    topic = assigned(logs, name, OWN, epoch)
    config = TopicConfig.resolve(logs.config, {"cleanup.policy": "compact", "segment.bytes": "400"}, name)
    alone = topic.partitions[0]._replace(replicas=(OWN,), isr=(OWN,), others_whole=False)
    return replace(topic, config=config, partitions=[alone])


def test_what_only_a_killed_kafka_had_is_there_after_a_kill_of_ours_too(tmp_path: Path) -> None:
    """Its compaction left holes above the recovery point, in the last segment, too: it was copied from a leader."""
    logs = opened(tmp_path / "data")
    use_topics(logs, [topic := compacted("orders", 1, logs)])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    log.resign(topic.partitions[0]._replace(leads=False, leader_id=8, leader_epoch=2))
    offsets = [0, 1, 2, 5, 6, 9, 10, 14, 15, 16, 20]
    for offset in offsets:
        log.append_as_follower(leaders(offset, 1, value_size=60), 2)
    harness_files = sorted(Path(log.directory).glob("*.log"))
    assert len(harness_files) > 2
    abandon(logs)
    first = harness_files[0]
    first.write_bytes(leaders(0, 1, value_size=60))  # and its cleaner was there
    kept = [0, *(offset for offset in offsets if offset >= int(harness_files[1].stem))]
    for path in harness_files:
        path.with_suffix(".klindex").unlink(missing_ok=True)
        for suffix in KAFKAS:
            path.with_suffix(suffix).write_bytes(b"Kafka's")
    checkpoints.write_offsets(str(tmp_path / "data" / files.RECOVERY_POINTS_NAME), {})
    for _ in range(3):
        logs = opened(tmp_path / "data")
        use_topics(logs, [compacted("orders", 3, logs)])
        (log,) = logs.logs()
        assert [base for base, _, _ in read_all(log)] == kept
        assert log.append(leaders(0, 1, value_size=10)).base_offset == kept[-1] + 1
        kept.append(kept[-1] + 1)
        abandon(logs)


def test_a_compacted_copy_of_kafkas_is_whole_after_a_kill_of_ours_too(tmp_path: Path) -> None:
    """The copy lies next to topics of a standalone broker, which has recovery points for its own topics."""
    manager = started(tmp_path / "data")
    manager.create_topic("first", 1, {}).partitions[0].append(make_batch())
    manager.close()
    copied = LogHarness(tmp_path, segment_bytes=400)
    log = replica(copied)
    for offset in (0, 1, 2, 5, 6, 9, 10, 14):
        log.append_as_follower(leaders(offset, 1, value_size=60), 0)
    log.close()
    left_by_kafka(copied)
    copied.files()[0].write_bytes(leaders(0, 1, value_size=60))
    kept = [0, *(offset for offset in (1, 2, 5, 6, 9, 10, 14) if offset >= segments(copied)[1])]
    shutil.copytree(copied.path, tmp_path / "data" / "t-0")
    for start in range(3):
        manager = started(tmp_path / "data")
        if start == 0:
            manager.alter_topic("t", {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1 << 62)})
        log = manager.topics["t"].partitions[0]
        assert [base for base, _, _ in read_all(log)] == kept
        assert log.append(make_batch()).base_offset == kept[-1] + 1
        kept.append(kept[-1] + 1)
        abandon(manager)


def test_gaps_of_a_directory_that_lost_its_recovery_points_outlive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes before the first checkpoint of all, after one that compaction had written for another log."""
    monkeypatch.setattr(Housekeeper, "start", lambda keeper: None)
    data = tmp_path / "data"
    manager = started(data)
    manager.create_topic("other", 1, {}).partitions[0].append(make_batch())
    manager.create_topic("t", 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1 << 62)})
    manager.close()
    compacted_log = LogHarness(tmp_path, segment_bytes=400)
    log = replica(compacted_log)
    for offset in range(10):
        log.append_as_follower(leaders(offset, 1, value_size=60), 0)
    log.close()
    compacted_log.files()[0].write_bytes(leaders(0, 1, value_size=60))
    kept = [0, *range(segments(compacted_log)[1], 10)]
    (data / "t-0").mkdir(exist_ok=True)
    for path in compacted_log.files():
        shutil.copy(path, data / "t-0")
    for name in (files.RECOVERY_POINTS_NAME, files.CLEAN_SHUTDOWN_NAME):
        (data / name).unlink()
    for _ in range(3):
        manager = started(data)
        log = manager.topics["t"].partitions[0]
        assert [base for base, _, _ in read_all(log)] == kept
        other = manager.topics["other"].partitions[0]
        manager.checkpoints.note_flushed(other, other.append(make_batch()).base_offset + 1)
        abandon(manager)


def test_kafkas_indexes_of_a_segment_that_grows_or_is_cut_go(harness: LogHarness) -> None:
    bases = segments(harness)
    log = replica(harness, recovery_point=10)
    assert [int(path.stem) for path in harness.files(".index")] == bases[:-1]
    log.truncate_to(bases[1] + 1)
    assert [int(path.stem) for path in harness.files(".timeindex")] == bases[:1]
    log.append_as_follower(leaders(bases[1] + 1, 1, value_size=60), 0)
    log.close()
    assert [int(path.stem) for path in harness.files(".index")] == bases[:1]


def test_kafkas_indexes_of_what_a_start_cuts_go(harness: LogHarness) -> None:
    second = harness.files()[1]
    second.write_bytes(second.read_bytes()[:-1])
    bases = segments(harness)
    log = replica(harness, clean=False, recovery_point=0)
    assert log.active.base_offset == bases[1]
    assert [int(path.stem) for path in harness.files(".index")] == bases[:1]


def test_what_stands_beside_a_snapshot_of_kafkas_counts_where_both_know_the_last_batch(tmp_path: Path) -> None:
    """Kafka does not know the companion, and writes another snapshot over the one that it was made with."""
    both = ((7, 0), (7, 1), (5, 1))  # producers, with sequences
    ours, kafkas = (LogHarness(made(tmp_path / name)) for name in ("ours", "kafkas"))
    for harness, batches in ((ours, (*both, (5, 2), (6, 0))), (kafkas, (*both, (6, 0), (5, 2)))):
        log = replica(harness)
        for offset, (producer, sequence) in enumerate(batches):
            log.append_as_follower(leaders(offset, 1, producer_id=producer, epoch=0, sequence=sequence), 0)
        log.close()
    assert snapshots.offsets_in(str(kafkas.path))[0] == 5
    shutil.copy(ours.path / "00000000000000000005.producers", kafkas.path)
    table = replica(kafkas).ensure_producers()
    spans = {entry.producer_id: [span[:4] for span in entry.batches()] for entry in table}
    assert spans == {7: [(0, 0, 0, 0), (1, 1, 1, 1)], 5: [(2, 2, 4, 4)], 6: [(0, 0, 3, 3)]}


def test_companions_of_snapshots_that_kafka_removed_go(harness: LogHarness) -> None:
    """It removes its own, which are no use any more, and does not know ours."""
    kept, *gone = snapshots.offsets_in(str(harness.path))
    assert gone
    for offset in gone:
        (harness.path / f"{offset:020}.snapshot").unlink()
    assert len(harness.files(".producers")) > 1
    replica(harness, recovery_point=10)
    assert [int(path.stem) for path in harness.files(".producers")] == [kept]


def test_transactions_that_were_aborted_while_kafka_ran_stay_aborted(tmp_path: Path) -> None:
    """The companion beside its snapshot is of another history of that length, in which none was."""
    ours, kafkas = (LogHarness(made(tmp_path / name)) for name in ("ours", "kafkas"))
    data = leaders(0, 1, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    for harness, commit in ((ours, True), (kafkas, False)):
        log = replica(harness)
        log.append_as_follower(data, 0)
        log.append_as_follower(placed(bytes(marker_batch(7, 0, 0, TIME_MS, commit=commit)), 1), 0)
        log.close()
    assert (kafkas.path / "00000000000000000000.txnindex").exists()
    assert replica(kafkas).ensure_producers().aborted.between(0, 2) == [(0, 7)]
    shutil.copy(ours.path / "00000000000000000002.producers", kafkas.path)
    for _ in range(2):
        assert replica(kafkas).ensure_producers().aborted.between(0, 2) == [(0, 7)]


def made(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_broker_that_never_registered_leaves_the_epoch_in_which_the_one_before_stopped(tmp_path: Path) -> None:
    """Else the controllers would take what stopped cleanly for what crashed (KIP-966)."""
    opened(tmp_path / "data").close()
    leave_clean_marker(str(tmp_path / "data"), 41)
    logs = opened(tmp_path / "data")
    assert logs.previous_broker_epoch == 41
    logs.close()
    assert clean_broker_epoch(str(tmp_path / "data")) == 41


def test_a_kafka_directory_is_taken_over_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "data"
    logs = opened(root)
    topic = assigned(logs, "orders", 8, 1)
    use_topics(logs, [topic])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    log.append_as_follower(leaders(0, 4, epoch=1), 1, 3)
    logs.close()
    (root / "metadata.journal").unlink()
    properties = (root / "meta.properties").read_text().splitlines()
    (root / "meta.properties").write_text("\n".join(row for row in properties if not row.startswith("kafkalite.")))
    (root / "__cluster_metadata-0").mkdir()
    (root / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps({"leaderId": 100}))
    logs = opened(root)
    use_topics(logs, [topic])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    assert (log.log_end_offset, log.high_watermark, log.fit) == (4, 3, True)
    logs.close()
    assert sorted(path.name for path in root.glob("*-0")) == ["__cluster_metadata-0", "orders-0"]
    kept = [row for row in properties if not row.startswith("kafkalite.")]
    assert set(kept) <= set((root / "meta.properties").read_text().splitlines())


def test_directory_of_zookeepers_days_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=0\ncluster.id={'a' * 22}\nbroker.id={OWN}\n")
    identity = read_identity(str(tmp_path), OWN)
    assert identity is not None
    check_kind(str(tmp_path), identity, in_cluster=False)
    with pytest.raises(StartupError, match="ZooKeeper"):
        check_kind(str(tmp_path), identity, in_cluster=True)
