"""Writes to one partition: each caller gets the result, and only once the write is durable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite._native.log.followers import BrokerEpochs, Followers
from kafkalite._native.log.leading import fetched_by
from kafkalite.base.pool import IoPool
from kafkalite.broker.coordinator import log_writer
from kafkalite.broker.coordinator.log_writer import LogWriter
from kafkalite.broker.coordinator.state_log import _in_epoch
from kafkalite.broker.log.assignment import Assignment
from kafkalite.broker.log.flusher import Flusher
from kafkalite.errors import ErrorCode, KafkaError, StorageError, error_for
from tests.kit.harness.log_harness import make_batch
from tests.kit.harness.replica_harness import ReplicaHarness
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.replica_log import ReplicaLog

TIMEOUT_S = 60.0
OWN, TWO, THREE = 1, 2, 3
LAG_S = 30.0
BROKER_EPOCH = 7


class LogThatCannotFlush:
    """Takes appends; asking it for a flush fails at once."""

    name = "t-0"
    log_end_offset = 1
    leader_epoch = 0
    REPLICATED = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def flush_async(self, _end_offset: int, _callback: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("refusal", "warns"),
    [
        (ErrorCode.NOT_COORDINATOR, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),
    ],
)
def test_a_coordinator_that_has_moved_is_no_reason_to_warn(
    refusal: ErrorCode, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def find() -> PartitionLog:
        raise error_for(refusal, "t-0 is refused")

    pool, codes, told = IoPool(1), [], threading.Event()
    writer = LogWriter("t-0", find, pool, flush=True)
    writer.write(lambda _log: 1, lambda code: (codes.append(code), told.set()))
    assert told.wait(TIMEOUT_S)
    assert pool.close(TIMEOUT_S)
    assert codes == [refusal]
    assert ["t-0 is refused" in record.message for record in caplog.records] == [True] * warns


@pytest.mark.parametrize("error", [RuntimeError("no flusher"), StorageError("no disk")], ids=["any", "known"])
def test_a_flush_that_cannot_be_queued_fails_the_waiting_write(error: Exception) -> None:
    pool = IoPool(1)
    log: Any = LogThatCannotFlush(error)
    writer = LogWriter("t-0", lambda: log, pool, flush=True)
    codes: list[int] = []
    for _ in range(2):  # the writer continues after it
        told = threading.Event()
        writer.write(lambda _log: 1, lambda code, told=told: (codes.append(code), told.set()))
        assert told.wait(TIMEOUT_S)
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert pool.close(TIMEOUT_S)
    assert writer.idle


def test_a_wait_that_cannot_begin_fails_its_write_and_the_next_write_works(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = IoPool(1)
    log: Any = LogThatCannotFlush(RuntimeError())
    writer = LogWriter("t-0", lambda: log, pool, flush=False)
    codes: list[int] = []

    def fail(*_wait: object, **_how: object) -> None:
        raise MemoryError

    def write() -> None:
        told = threading.Event()
        writer.write(lambda _log: 1, lambda code: (codes.append(code), told.set()))
        assert told.wait(TIMEOUT_S)

    with monkeypatch.context() as broken:
        broken.setattr(log_writer, "when_safe", fail)
        write()
    write()
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert pool.close(TIMEOUT_S)


class Replicated:
    """A log that broker 1 leads with followers, its writer, and the results its callers got."""

    def __init__(self, directory: Path) -> None:
        self.harness = ReplicaHarness(directory)
        self.flusher = Flusher(lambda _error: None)
        self.flusher.start()
        self.harness.services.request_flush = self.flusher.submit
        self.log: ReplicaLog = self.harness.opened(clean=True)
        self.pool = IoPool(1)
        self.resign_at_append = False
        self.told: list[tuple[int, int]] = []
        self.flushed_when_told: list[int] = []

    def close(self) -> None:
        assert self.pool.close(TIMEOUT_S)
        self.flusher.stop()

    def lead(self, *in_sync: int, minimum: int = 1, epoch: int = 1) -> None:
        wanted = Assignment(
            held=True, leads=True, leader_id=OWN, leader_epoch=epoch, replicas=(OWN, TWO, THREE), isr=in_sync
        )
        self.log.lead(wanted)
        brokers = BrokerEpochs()
        brokers.use([(each, BROKER_EPOCH, True, True) for each in wanted.replicas])
        followers = Followers(brokers, LAG_S, lambda _log: None)
        followers.use_min(minimum)
        followers.begin((TWO, THREE), in_sync, self.log.log_end_offset, 0.0)
        with self.log.core.locked():
            self.log.core.use_followers(followers)

    def resign(self, epoch: int) -> None:
        with self.log.core.locked():
            self.log.core.use_followers(None)
        self.log.resign(Assignment(held=True, leads=False, leader_id=TWO, leader_epoch=epoch))

    def write(self, writer: LogWriter, number: int) -> None:
        """Append a record; once it is durable, its callback gets (number, code)."""

        def append(log: PartitionLog) -> int:
            end_offset = log.append(make_batch()).end_offset
            if self.resign_at_append:
                self.resign(2)
            return end_offset

        def tell(code: int) -> None:
            self.told.append((number, code))
            self.flushed_when_told.append(self.log.flushed_offset)

        writer.write(append, tell)

    def writer(self, *, in_sync: bool = True) -> LogWriter:
        return LogWriter("t-0", lambda: self.log, self.pool, flush=True, in_sync=in_sync)

    def wait_end(self, offset: int) -> None:
        wait_until(lambda: self.log.log_end_offset == offset, TIMEOUT_S, f"the log ends at {offset}")

    def fetched(self, replica: int, offset: int) -> None:
        """A follower asks for what is behind an offset: it has what is before."""
        assert fetched_by(self.log.core, replica, offset, 0, BROKER_EPOCH, 1.0) == 0


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    found = Replicated(tmp_path)
    yield found
    found.close()


def test_a_write_completes_when_all_in_sync_replicas_have_it(replicated: Replicated) -> None:
    replicated.lead(OWN, TWO, THREE)
    writer = replicated.writer()
    for number in (1, 2):
        replicated.write(writer, number)
        replicated.wait_end(number)
    replicated.fetched(TWO, 2)
    assert replicated.told == []
    replicated.fetched(THREE, 1)
    wait_until(lambda: replicated.told, TIMEOUT_S, "the first is told")
    assert replicated.told == [(1, 0)]
    replicated.fetched(THREE, 2)
    wait_until(lambda: len(replicated.told) == 2, TIMEOUT_S, "the second is told")
    assert replicated.told == [(1, 0), (2, 0)]
    assert writer.idle


def test_another_leaders_high_watermark_completes_no_write(replicated: Replicated) -> None:
    replicated.lead(OWN, TWO)
    writer = replicated.writer()
    replicated.write(writer, 1)
    replicated.wait_end(1)
    replicated.resign(2)
    replicated.log.advance_high_watermark(1)
    assert replicated.told == [(1, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))]
    replicated.lead(OWN, epoch=3)
    replicated.write(writer, 2)
    wait_until(lambda: len(replicated.told) == 2, TIMEOUT_S, "the next is told")
    assert replicated.told[1] == (2, 0)


def test_who_leads_no_more_when_it_was_appended_is_not_told_that_it_is_safe(replicated: Replicated) -> None:
    """Its only follower was elected, which has not got the record, between the append and the question who follows."""
    replicated.lead(OWN)
    replicated.resign_at_append = True
    replicated.write(replicated.writer(), 1)
    wait_until(lambda: replicated.told, TIMEOUT_S, "it is told")
    assert replicated.told == [(1, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))]
    assert replicated.log.log_end_offset == 1


def test_who_is_in_sync_alone_has_it_on_the_disk(replicated: Replicated) -> None:
    replicated.lead(OWN)
    replicated.write(replicated.writer(), 1)
    wait_until(lambda: replicated.told, TIMEOUT_S, "it is told")
    assert (replicated.told, replicated.flushed_when_told) == ([(1, 0)], [1])


def test_with_too_few_in_sync_nothing_is_appended_that_asks_for_more(replicated: Replicated) -> None:
    replicated.lead(OWN, minimum=2)
    replicated.write(replicated.writer(), 1)
    wait_until(lambda: replicated.told, TIMEOUT_S, "it is told")
    assert replicated.told == [(1, int(ErrorCode.NOT_ENOUGH_REPLICAS))]
    assert replicated.log.log_end_offset == 0


def test_that_too_few_are_in_sync_is_told_at_once_whatever_else_waits_for_them(replicated: Replicated) -> None:
    replicated.lead(OWN, minimum=2)
    replicated.write(replicated.writer(in_sync=False), 1)
    replicated.wait_end(1)
    replicated.write(replicated.writer(), 2)
    wait_until(lambda: replicated.told, TIMEOUT_S, "it is told")
    assert replicated.told == [(2, int(ErrorCode.NOT_ENOUGH_REPLICAS))]


def test_with_too_few_in_sync_what_asks_for_no_more_waits_for_them(replicated: Replicated) -> None:
    replicated.lead(OWN, minimum=2)
    replicated.write(replicated.writer(in_sync=False), 1)
    replicated.wait_end(1)
    followers = replicated.log.core.followers
    assert followers is not None
    replicated.fetched(TWO, 1)
    assert replicated.told == []
    followers.set_in_sync((OWN, TWO))
    replicated.log.core.advance(2.0)
    wait_until(lambda: replicated.told, TIMEOUT_S, "it is told")
    assert replicated.told == [(1, 0)]


def test_what_was_decided_in_an_epoch_is_not_written_in_the_next_whenever_that_begins(replicated: Replicated) -> None:
    replicated.lead(OWN, TWO, epoch=3)
    log = replicated.log

    def append(in_epoch: PartitionLog, *, elected: bool) -> int:
        if elected:  # behind the check, before the append
            replicated.lead(OWN, TWO, epoch=4)
        return in_epoch.append(make_batch()).end_offset

    assert _in_epoch(partial(append, elected=False), 3)(log) == 1
    with pytest.raises(KafkaError) as refused:
        _in_epoch(partial(append, elected=True), 3)(log)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.log_end_offset == 1
