"""The trusted time of a data directory: stored, read again, and what goes by it when the clock is wrong at a start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.base.clock import ExpiryTime, StoredTime, SystemClock
from kafkalite.broker.backup import back_up, restore
from kafkalite.broker.host_check import LOOK, NOTE, OK, expiry_time
from kafkalite.broker.log import checkpoints, expiry_checkpoint, files
from kafkalite.broker.log.compaction import INT64_MAX
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import wire
from tests.kit.harness.log_harness import TIME_MS, abandon, make_batch, started
from tests.kit.harness.scrape import Scrape, ask
from tests.kit.oracles.compaction_model import keyed_batch
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog

HOUR_S, DAY_S = 3600, 86_400
WEEK_MS = 7 * DAY_S * 1000
NEVER_MS = 2**31 - 1
SETTINGS: dict[str, Any] = {
    "producer_id_expiration_ms": DAY_S * 1000,
    "log_flush_offset_checkpoint_interval_ms": 60_000,
    # Tests expire by hand, before the housekeeper's thread sees the clock that was moved on.
    "log_retention_check_interval_ms": NEVER_MS,
    "producer_id_expiration_check_interval_ms": NEVER_MS,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(TIME_MS)


def filled(path: Path, clock: FakeClock) -> LogManager:
    """A topic with three segments of now, the last one active, and an idempotent producer."""
    manager = started(path, clock=clock, **SETTINGS)
    log = manager.create_topic("t", 1, {"retention.ms": str(WEEK_MS), "segment.bytes": "1000"}).partitions[0]
    for number in range(3):
        log.append(make_batch(timestamp=clock.time_ms(), producer_id=5, epoch=0, sequence=number))
        os.utime(log.active.path, (clock.time_ms() / 1000,) * 2)
        if number < 2:
            log.roll()
    return manager


def again(manager: LogManager, clock: FakeClock, *, kill: bool = False, down_s: float = 0) -> LogManager:
    if kill:
        abandon(manager)
    else:
        manager.close()
    clock.advance(down_s)
    return started(Path(manager.directory), clock=clock, **SETTINGS)


def expire(manager: LogManager) -> tuple[int, int]:
    """(segments, producers) that went. The active segment stays: its file has the time of the machine."""
    log = manager.topics["t"].partitions[0]
    log.ensure_producers()
    return manager.housekeeper.apply_retention(), manager.housekeeper.expire_producers()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    stored = StoredTime(TIME_MS, 8 * DAY_S * 1000, 1_200_000)
    expiry_checkpoint.write(str(tmp_path), stored)
    assert expiry_checkpoint.read(str(tmp_path)) == stored


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\n",
        "version: 2\ntime_ms: 1\nahead_ms: 0\nheld_ms: 0\n",
        "version: 1\ntime_ms: soon\nahead_ms: 0\nheld_ms: 0\n",
        "version: 1\ntime_ms: -1\nahead_ms: 0\nheld_ms: 0\n",
        "\0\0\0",
        "version 1",
    ],
)
def test_file_that_cannot_be_read_counts_as_absent_with_one_line(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / files.EXPIRY_TIME_NAME).write_text(text)
    assert expiry_checkpoint.read(str(tmp_path)) is None
    assert len(caplog.records) == 1


def test_directory_without_a_stored_time_takes_the_newest_of_its_checkpoints(tmp_path: Path, clock: FakeClock) -> None:
    manager = filled(tmp_path / "data", clock)
    manager.close()
    root = tmp_path / "data"
    (root / files.EXPIRY_TIME_NAME).unlink()
    checkpoints.write_offsets(str(root / files.HIGH_WATERMARKS_NAME), {})
    names = [files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME, files.HIGH_WATERMARKS_NAME]
    for hours, name in enumerate(names):
        os.utime(root / name, (TIME_MS / 1000 - hours * HOUR_S,) * 2)
    clock.jump(8 * DAY_S)
    manager = started(root, clock=clock, **SETTINGS)
    assert manager.expiry_time.time_ms() == TIME_MS
    # Stored before the wall clock stamps any of the others.
    assert expiry_checkpoint.read(manager.directory) == StoredTime(TIME_MS, 8 * DAY_S * 1000, 0), (
        "before others are new"
    )
    assert expire(manager) == (0, 0)
    manager.close()


def test_new_directory_begins_with_the_wall_clock(tmp_path: Path, clock: FakeClock) -> None:
    manager = started(tmp_path / "data", clock=clock)
    assert manager.expiry_time.time_ms() == clock.time_ms()
    manager.close()


@pytest.mark.parametrize("kill", [False, True])
def test_start_eight_days_ahead_deletes_nothing_until_the_clock_has_stayed_so(
    tmp_path: Path, clock: FakeClock, kill: bool
) -> None:
    manager = filled(tmp_path / "data", clock)
    manager.expiry_checkpoint.store()
    clock.jump(8 * DAY_S)
    for _ in range(3):
        manager = again(manager, clock, kill=kill)
        assert expire(manager) == (0, 0)
        clock.advance(HOUR_S / 4)
        assert expire(manager) == (0, 0)
        manager.expiry_checkpoint.store()
    manager = again(manager, clock, kill=kill)
    clock.advance(HOUR_S / 4)
    assert expire(manager) == (2, 1), "an hour of running time, over four starts"
    manager.close()


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
def test_start_an_hour_off_deletes_nothing_early_and_keeps_nothing_forever(
    tmp_path: Path, clock: FakeClock, off_s: int
) -> None:
    manager = filled(tmp_path / "data", clock)
    clock.advance(7 * DAY_S - 600)
    manager.expiry_checkpoint.store()
    clock.jump(off_s)
    manager = again(manager, clock)
    segments, _ = expire(manager)
    assert segments == 0
    clock.jump(-off_s)
    manager = again(manager, clock)
    assert expire(manager)[0] == 0
    clock.advance(HOUR_S + 601)
    assert expire(manager)[0] == 2
    manager.close()


def test_clock_that_stays_ahead_deletes_an_hour_of_running_time_later(tmp_path: Path, clock: FakeClock) -> None:
    manager = filled(tmp_path / "data", clock)
    manager = again(manager, clock, down_s=30 * DAY_S)
    assert expire(manager) == (0, 0)
    clock.advance(HOUR_S - 1)
    assert expire(manager) == (0, 0)
    clock.advance(1)
    assert expire(manager) == (2, 1)
    manager.close()


def test_housekeeping_stores_the_time_at_least_once_a_minute(tmp_path: Path, clock: FakeClock) -> None:
    manager = started(tmp_path / "data", clock=clock)
    manager.housekeeper.stop()
    for _ in range(120):
        clock.advance(1)
        manager.housekeeper.run_due()
        stored = expiry_checkpoint.read(manager.directory)
        assert stored is not None or clock.time_ms() < TIME_MS + 60_000
        assert stored is None or clock.time_ms() - stored.time_ms <= 60_000
    assert stored is not None
    manager.close()
    assert expiry_checkpoint.read(manager.directory) == StoredTime(clock.time_ms()), "and at a stop"


def test_time_that_cannot_be_stored_is_logged_once_and_stops_nothing(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(tmp_path / "data", clock=clock)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(expiry_checkpoint, "write", full)
        for _ in range(5):
            manager.expiry_checkpoint.store()
    assert sum("could not store" in record.getMessage() for record in caplog.records) == 1
    assert manager.close()


def test_groups_transactions_and_logs_have_one_time(tmp_path: Path) -> None:
    made: list[ExpiryTime] = []
    original = ExpiryTime.__init__

    def count(self: ExpiryTime, *arguments: Any) -> None:
        made.append(self)
        original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExpiryTime, "__init__", count)
        with Broker(log_dirs=str(tmp_path / "data")) as broker:
            assert made == [broker.logs.expiry_time]


def keys_after_cleaning(manager: LogManager, log: PartitionLog) -> set[bytes | None]:
    """The keys that are there when one more record was sealed and the log compacted."""
    log.append(keyed_batch([(b"other", b"v")], timestamp=manager.clock.time_ms())[0])
    log.roll()
    log.flush()
    assert manager.cleaner.clean_dirtiest()
    data = log.read(log.log_start_offset, 1 << 20)
    return {key for _, key, _ in wire.decode_records(wire.split_batches(data)[0])}


@pytest.mark.parametrize("delete_retention_ms", [DAY_S * 1000, INT64_MAX])
def test_tombstone_reached_while_the_clock_is_held_keeps_its_time_when_it_is_followed(
    tmp_path: Path, clock: FakeClock, delete_retention_ms: int
) -> None:
    settings = {**SETTINGS, "log_cleaner_enable": "false"}
    manager = started(tmp_path / "data", clock=clock, **settings)
    overrides = {"delete.retention.ms": str(delete_retention_ms), "min.cleanable.dirty.ratio": "0"}
    manager.create_topic("c", 1, {"cleanup.policy": "compact", **overrides})
    manager.close()
    clock.advance(3 * DAY_S)
    manager = started(tmp_path / "data", clock=clock, **settings)
    log = manager.topics["c"].partitions[0]
    log.append(keyed_batch([(b"k", None)], timestamp=clock.time_ms())[0])
    log.roll()
    assert b"k" in keys_after_cleaning(manager, log)
    clock.advance(HOUR_S)
    assert manager.expiry_time.time_ms() == clock.time_ms(), "it follows"
    assert b"k" in keys_after_cleaning(manager, log), "a tombstone stays for delete.retention.ms"
    clock.advance(DAY_S)
    assert (b"k" in keys_after_cleaning(manager, log)) == (delete_retention_ms == INT64_MAX)
    manager.close()


class ClockAhead(SystemClock):
    """The machine's, with a wall clock that a test sets ahead."""

    def __init__(self) -> None:
        self.off_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.off_ms


def test_health_and_metrics_show_a_clock_that_is_ahead(tmp_path: Path) -> None:
    clock = ClockAhead()
    settings = {"log.dirs": str(tmp_path / "data"), "metrics.listeners": "http://127.0.0.1:0"}
    with Broker(settings, clock=clock) as broker:
        (url,) = broker.metrics_urls
        wait_until(lambda: ask(url, "/health/ready").status == 200, 60, "a broker that is ready")
        assert "notes" not in ask(url, "/health/ready").json
        scrape = Scrape(ask(url).text)
        assert scrape("kafkalite_clock_ahead_seconds") == scrape("kafkalite_clock_hold_left_seconds") == 0
        before = scrape("kafkalite_expiry_time_seconds")
        clock.off_ms = 8 * DAY_S * 1000
        scrape = Scrape(ask(url).text)
        assert before <= scrape("kafkalite_expiry_time_seconds") < before + DAY_S
        assert scrape("kafkalite_clock_ahead_seconds") == pytest.approx(8 * DAY_S, abs=60)
        assert 0 < scrape("kafkalite_clock_hold_left_seconds") <= HOUR_S
        answer = ask(url, "/health/ready")
        assert answer.status == 200, "clients are served all the same"
        (note,) = answer.json["notes"]
        assert "s ahead (a clock jump, or downtime); expiry ignores that for another" in note


@pytest.mark.parametrize(("off_s", "verdict"), [(0, OK), (30, OK), (DAY_S, NOTE), (-DAY_S, LOOK)])
def test_check_compares_the_clock_with_the_stored_time(tmp_path: Path, off_s: int, verdict: str) -> None:
    assert list(expiry_time(str(tmp_path))) == []
    expiry_checkpoint.write(str(tmp_path), StoredTime(SystemClock().time_ms() - off_s * 1000))
    (row,) = expiry_time(str(tmp_path))
    assert row.verdict == verdict
    assert bool(row.why) == (verdict != OK)


def test_backup_has_the_time_that_was_stored(tmp_path: Path, clock: FakeClock) -> None:
    """Records restored a month later do not expire at once."""
    manager = filled(tmp_path / "data", clock)
    manager.close()
    back_up(str(tmp_path / "data"), str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), str(tmp_path / "again"))
    clock.advance(30 * DAY_S)
    manager = started(tmp_path / "again", clock=clock, **SETTINGS)
    assert expire(manager) == (0, 0)
    manager.close()
