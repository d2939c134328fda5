"""Partitions of a coordinator's topic that are led here: read before they are served, dropped when they go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.base.executors import THREADS
from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
from kafkalite.broker.coordinator.shard_leadership import LedPartitions
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC, StateLog
from kafkalite.errors import ErrorCode, error_for
from tests.kit.harness.log_harness import make_batch, use_topics
from tests.kit.processes.broker import wait_until
from tests.unit.broker.log.test_assigned import OWN, assigned, opened

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

WAIT_S = 60


class Recording:
    """A coordinator that records its calls. Reading partition 9 fails, applying partition 7 fails, and each read waits
    for `may_read`.
    """

    def __init__(self) -> None:
        self.may_read = threading.Event()
        self.may_read.set()
        self.seen: list[tuple[str, int]] = []
        self.holds_back = False
        self.held: list[tuple[int, Callable[[int], object]]] = []
        """(epoch, who waits) for what was read to be safe, while `holds_back`."""

    def read_partition(self, number: int) -> Callable[[], object]:
        self.seen.append(("read", number))
        assert self.may_read.wait(WAIT_S)
        if number == 9:
            raise OSError("unreadable")
        if number == 8:
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if number == 7:
            return lambda: 1 // 0
        return lambda: self.seen.append(("installed", number))

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        if self.holds_back:
            self.held.append((epoch, callback))
            self.seen.append(("held", number))
        else:
            callback(0)

    def begin_partition(self, number: int) -> None:
        self.seen.append(("begun", number))

    def drop_partition(self, number: int) -> None:
        self.seen.append(("dropped", number))


@pytest.fixture
def coordinator() -> Recording:
    return Recording()


@pytest.fixture
def led(coordinator: Recording) -> Iterator[LedPartitions]:
    partitions = LedPartitions("__some_state", coordinator, THREADS)
    partitions.start()
    yield partitions
    coordinator.may_read.set()
    partitions.stop()


def wait_code(led: LedPartitions, number: int, code: int) -> None:
    wait_until(lambda: led.error_of(number) == code, WAIT_S, f"partition {number} answers {code}")


def test_partition_is_served_when_it_was_read(led: LedPartitions, coordinator: Recording) -> None:
    assert led.error_of(3) == ErrorCode.NOT_COORDINATOR
    coordinator.may_read.clear()
    led.take(3, 5)
    assert led.error_of(3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (led.epoch_of(3), led.epoch_of(4), led.loading) == (5, -1, True)
    assert led.home(3) == ShardEpoch(3, -1)
    coordinator.may_read.set()
    wait_code(led, 3, 0)
    assert led.home(3) == ShardEpoch(3, 5)
    assert not led.loading
    led.take(3, None)
    assert led.error_of(3) == ErrorCode.NOT_COORDINATOR
    assert coordinator.seen == [("read", 3), ("installed", 3), ("begun", 3), ("dropped", 3)]


def test_what_was_read_for_an_epoch_that_is_over_is_not_installed(led: LedPartitions, coordinator: Recording) -> None:
    coordinator.may_read.clear()
    led.take(3, 5)
    wait_until(lambda: coordinator.seen, WAIT_S, "it is being read")
    led.take(3, None)
    led.take(3, 7)
    coordinator.may_read.set()
    wait_code(led, 3, 0)
    assert led.epoch_of(3) == 7
    assert coordinator.seen == [("read", 3), ("dropped", 3), ("read", 3), ("installed", 3), ("begun", 3)]


def test_another_election_reads_it_again(led: LedPartitions, coordinator: Recording) -> None:
    led.take(3, 5)
    wait_code(led, 3, 0)
    led.take(3, 6)
    wait_code(led, 3, 0)
    assert coordinator.seen.count(("read", 3)) == 2
    assert coordinator.seen[3] == ("dropped", 3)


def test_partition_that_cannot_be_read_keeps_no_other_from_being_served(
    led: LedPartitions, coordinator: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    led.take(9, 1)
    led.take(2, 1)
    wait_code(led, 2, 0)
    assert led.error_of(9) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "could not load" in caplog.text
    assert ("installed", 9) not in coordinator.seen


def test_partition_that_cannot_be_taken_in_keeps_no_other_from_being_served(
    led: LedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    led.take(7, 1)
    led.take(2, 1)
    wait_code(led, 2, 0)
    assert led.error_of(7) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "could not take over" in caplog.text


def test_leadership_that_ends_while_it_is_read_is_no_fault(
    led: LedPartitions, coordinator: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    led.take(8, 1)
    led.take(2, 1)
    wait_code(led, 2, 0)
    assert led.error_of(8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert caplog.text == ""
    led.take(8, None)
    assert led.error_of(8) == ErrorCode.NOT_COORDINATOR


def test_nothing_is_served_before_it_has_begun(
    led: LedPartitions, coordinator: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that leaves a group whose sessions have not begun would be answered nothing."""
    codes: list[int] = []
    monkeypatch.setattr(coordinator, "begin_partition", lambda number: codes.append(led.error_of(number)))
    led.take(3, 5)
    wait_code(led, 3, 0)
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_offsets_that_were_read_are_served_only_once_durable(led: LedPartitions, coordinator: Recording) -> None:
    coordinator.holds_back = True
    led.take(3, 5)
    wait_until(lambda: coordinator.held, WAIT_S, "it was read")
    assert led.error_of(3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    epoch, tell = coordinator.held.pop()
    assert epoch == 5
    tell(0)
    wait_code(led, 3, 0)
    assert coordinator.seen == [("read", 3), ("held", 3), ("installed", 3), ("begun", 3)]


def test_what_becomes_safe_after_its_epoch_is_not_installed(led: LedPartitions, coordinator: Recording) -> None:
    coordinator.holds_back = True
    led.take(3, 5)
    wait_until(lambda: coordinator.held, WAIT_S, "it was read")
    led.take(3, 6)
    wait_until(lambda: len(coordinator.held) == 2, WAIT_S, "it was read again")
    (_, first), (_, second) = coordinator.held
    first(0)
    second(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    led.take(4, 1)
    wait_until(lambda: len(coordinator.held) == 3, WAIT_S, "the next is read, after both were told")
    assert ("installed", 3) not in coordinator.seen
    assert led.error_of(3) == ErrorCode.COORDINATOR_NOT_AVAILABLE


class AtOnce:
    """A pool that does what it is given on the caller's thread."""

    def submit(self, work: Callable[[], object]) -> None:
        work()


def test_nothing_is_written_to_a_partition_that_is_read(
    tmp_path: Path, led: LedPartitions, coordinator: Recording
) -> None:
    """The write was allowed in an epoch that ended meanwhile: the new reader has passed the log's end and would miss
    it. A marker once left a transaction's committed offsets pending that way.
    """
    logs = opened(tmp_path / "data")

    def elected(epoch: int) -> PartitionLog:
        topic = assigned(logs, "offsets", OWN, epoch)
        alone = topic.partitions[0]._replace(replicas=(OWN,), isr=(OWN,))
        use_topics(logs, [replace(topic, name=OFFSETS_TOPIC, partitions=[alone])])
        led.take(0, epoch)
        return next(iter(logs.logs()))

    log = elected(4)
    wait_code(led, 0, 0)
    pool: Any = AtOnce()
    state = StateLog(OFFSETS_TOPIC, logs, pool, SystemClock(), partition_count=1, segment_bytes=1000, in_sync=False)
    state.led = led
    codes: list[int] = []

    def write() -> None:
        told = len(codes)
        state.append(led.home(0), lambda log: log.append(make_batch()).end_offset, codes.append)
        wait_until(lambda: len(codes) > told, WAIT_S, "it is told")

    write()
    assert (log.log_end_offset, codes) == (1, [0])
    coordinator.holds_back = True
    elected(6)
    wait_until(lambda: coordinator.held, WAIT_S, "it was read")
    write()
    assert (log.log_end_offset, codes) == (1, [0, ErrorCode.NOT_COORDINATOR])
    coordinator.held.pop()[1](0)
    wait_code(led, 0, 0)
    write()
    assert (log.log_end_offset, codes) == (2, [0, ErrorCode.NOT_COORDINATOR, 0])
    logs.close()
