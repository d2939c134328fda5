"""C3 to C5: the n-th system call fails, once or from then on, with every errno that a disk returns; n = 1, 2, 3 …

After any failure: records acknowledged before are served afterwards and after the next start; records not acknowledged
as durable may be missing, but only at the end; only written records are served; after a failed sync no success follows
for the same bytes.
"""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.errors import ErrorCode, KafkaError, StartupError, StorageError
from tests.kit.harness import seams
from tests.kit.harness.log_harness import PlainLog, abandon, make_batch, make_manager, read_all

pytestmark = pytest.mark.own_process

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}
POINTS_MAX = 2000


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    file_ops.disarm()


class Life:
    """A broker's life in small: create, append, sync, roll, restart; what it acknowledged is remembered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = PlainLog()
        self.durable = 0
        self.created = False
        self.sequence = 0

    def run(self) -> None:
        """Two starts with appends and a delete of records; KafkaError and StartupError are how faults may show."""
        for round_number in range(2):
            manager = make_manager(self.path, log_segment_bytes=700, log_index_interval_bytes=100)
            manager.open()
            try:
                self.work(manager, round_number)
                manager.close()
            except BaseException:
                abandon(manager)
                raise

    def work(self, manager: object, round_number: int) -> None:
        if "t" not in manager.topics:  # type: ignore[attr-defined]
            assert not self.created, "an acknowledged topic is gone"
            manager.create_topic("t", 1, {})  # type: ignore[attr-defined]
            self.created = True
        log = manager.topics["t"].partitions[0]  # type: ignore[attr-defined]
        for i in range(9):
            batch = make_batch(
                1 + i % 2,
                value_size=60 + i + 10 * round_number,
                producer_id=3,
                epoch=round_number,
                sequence=0 if i == 0 else self.sequence,
            )
            self.sequence = (0 if i == 0 else self.sequence) + 1 + i % 2
            info = log.append(batch)
            self.model.append(info.base_offset, batch)
            if i % 3 == 2:
                log.flush()
                self.durable = log.log_end_offset
        manager.housekeeper.checkpoint()  # type: ignore[attr-defined]

    def verify(self) -> None:
        """A start without faults: everything acknowledged is there, and nothing else but what was sent."""
        manager = make_manager(self.path, log_segment_bytes=700, log_index_interval_bytes=100)
        manager.open()
        try:
            if not self.created:
                return
            log = manager.topics["t"].partitions[0]
            served = read_all(log)
            sent = {batch[2] for batch in self.model.batches}
            for batch in self.model.batches:
                if batch[1] <= log.log_end_offset:
                    assert batch in served
            assert log.log_end_offset >= self.model.end, "acknowledged in the page cache, and no power was lost"
            unknown = [batch for batch in served if batch[2] not in sent]
            assert len(unknown) <= 1, "more than the append that failed"
            info = log.append(make_batch())
            assert info.base_offset == (served[-1][1] if served else 0)
        finally:
            manager.close()


def fault_kinds() -> Iterator[object]:
    """Every kind of call with every error, once and from then on; quick runs take the telling ones."""
    quick = {("write", "ENOSPC", True), ("sync", "EIO", False), ("truncate", "EIO", False)}
    for kinds in (("write",), ("sync",), ("open",), ("rename",), ("truncate", "allocate", "mkdir")):
        for name, error in ERRORS.items():
            for sticky in (False, True):
                if sticky and name == "EINTR":
                    continue  # no system interrupts a call without end
                label = f"{kinds[0]} {name} {'from then on' if sticky else 'once'}"
                usual = (kinds[0], name, sticky) in quick
                yield pytest.param(kinds, error, sticky, id=label, marks=() if usual else pytest.mark.slow)


@pytest.mark.parametrize(("kinds", "error", "sticky"), list(fault_kinds()))
def test_nth_call_fails(tmp_path: Path, kinds: tuple[str, ...], error: int, sticky: bool) -> None:
    for after in range(POINTS_MAX):
        directory = tmp_path / str(after)
        directory.mkdir()
        life = Life(directory)
        seams.arm(kinds, after=after, error=error, sticky=sticky, written=20 if kinds == ("write",) else 0)
        failed: Exception | None = None
        try:
            life.run()
        except (KafkaError, StartupError, OSError) as failure:
            failed = failure
        hits = file_ops.disarm()
        assert hits or failed is None, "it failed without a fault"
        assert not isinstance(failed, KafkaError) or failed.code == ErrorCode.KAFKA_STORAGE_ERROR
        life.verify()
        if hits == 0:
            assert life.durable == life.model.end > 20, "the run without a fault must do all its work"
            return
    pytest.fail(f"still hitting faults after {POINTS_MAX} points")


@pytest.mark.parametrize("after", range(0, 50, 3))
def test_failed_sync_is_never_taken_for_success(tmp_path: Path, after: int) -> None:
    """C5: once a sync of a partition failed, no flush of it succeeds and no acknowledgement comes, until a restart."""
    manager = make_manager(tmp_path, log_segment_bytes=500)
    manager.open()
    try:
        log = manager.create_topic("t", 1, {}).partitions[0]
        log.append(make_batch())
        seams.arm(("sync",), after=after, error=errno.EIO)
        failed = False
        for _ in range(60):
            try:
                log.append(make_batch(value_size=50))
                log.flush()
                assert not failed, "a flush succeeded after a failed one"
            except StorageError:
                failed = failed or log.offline
        codes: list[int] = []
        if file_ops.disarm():
            assert log.offline
            flushed = log.flushed_offset
            log.flush_async(log.log_end_offset + 1, codes.append)
            manager.flusher.stop()
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
            assert log.flushed_offset == flushed
            assert log.core.read_copy(0, 100)[1] == ErrorCode.KAFKA_STORAGE_ERROR
            assert "t-0" in {offline.name for offline in manager.offline_logs}
    finally:
        file_ops.disarm()
        abandon(manager)


def test_full_disk_refuses_appends_and_nothing_else(tmp_path: Path) -> None:
    """C1 in small: ENOSPC with part of the batch written; reads continue, and appends do once there is space."""
    manager = make_manager(tmp_path)
    manager.open()
    log = manager.create_topic("t", 1, {}).partitions[0]
    model = PlainLog()
    batch = make_batch(3, value_size=200)
    model.append(log.append(batch).base_offset, batch)
    for written in (0, 1, 61, 300):
        seams.arm(("write",), after=0, error=errno.ENOSPC, sticky=True, written=written)
        for _ in range(3):
            with pytest.raises(KafkaError) as refused:
                log.append(batch)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert read_all(log) == model.batches
        file_ops.disarm()
        assert not log.offline
        model.append(log.append(batch).base_offset, batch)
        assert read_all(log) == model.batches
    assert Path(log.segments[0].path).stat().st_size == log.segments[0].size
    abandon(manager)
    manager = make_manager(tmp_path)
    manager.open()
    assert read_all(manager.topics["t"].partitions[0]) == model.batches
    manager.close()
