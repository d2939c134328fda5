"""Group commit: who waits shares a sync, each callback comes once, a failure reaches everybody who waited."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import ErrorCode
from tests.kit.harness import seams
from tests.kit.harness.log_harness import abandon, make_batch, make_manager

pytestmark = pytest.mark.own_process

WAITERS = 50


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    manager = make_manager(tmp_path)
    manager.open()
    yield manager
    file_ops.disarm()
    abandon(manager)


class Answers:
    """Callbacks that can be waited for."""

    def __init__(self, count: int) -> None:
        self.codes: list[int] = []
        self._left = count
        self._changed = threading.Condition()

    def __call__(self, code: int) -> None:
        with self._changed:
            self.codes.append(code)
            self._left -= 1
            self._changed.notify_all()

    def wait(self) -> list[int]:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left <= 0, 60), f"{self._left} callbacks never came"
        return self.codes


def held(manager: LogManager) -> tuple[threading.Event, Answers]:
    """Keeps the flusher busy inside a callback until the event is set."""
    log = manager.create_topic("gate", 1, {}).partitions[0]
    log.append(make_batch())
    release, entered = threading.Event(), Answers(1)

    def gate(code: int) -> None:
        entered(code)
        release.wait(60)

    log.flush_async(1, gate)
    entered.wait()
    return release, entered


def test_waiters_share_one_sync_of_each_file(manager: LogManager) -> None:
    logs = manager.create_topic("t", 3, {}).partitions
    for log in logs:
        log.append(make_batch())
        log.flush()
    release, _ = held(manager)
    answers = Answers(3 * WAITERS)
    for log in logs:
        for _ in range(WAITERS):
            log.flush_async(log.append(make_batch()).end_offset, answers)
    seams.arm((), after=0, error=0)
    release.set()
    assert answers.wait() == [0] * 3 * WAITERS
    assert file_ops.call_counts()["sync"] == 3
    assert all(log.flushed_offset == log.log_end_offset for log in logs)


def test_callback_comes_at_once_for_what_is_on_the_disk(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {}).partitions[0]
    end = log.append(make_batch(3)).end_offset
    log.flush()
    codes: list[int] = []
    log.flush_async(end, codes.append)
    assert codes == [0]


def test_first_flush_makes_the_names_durable_too(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {}).partitions[0]
    log.append(make_batch())
    seams.arm((), after=0, error=0)
    log.flush()
    assert file_ops.call_counts()["sync"] == 5, "log, epochs, topic id, its directory, the data directory"
    log.append(make_batch())
    log.flush()
    assert file_ops.call_counts()["sync"] == 6
    log.flush()
    assert file_ops.call_counts()["sync"] == 6, "nothing new, nothing to sync"


def test_failed_sync_reaches_every_waiter_of_that_log_only(manager: LogManager) -> None:
    topic = manager.create_topic("t", 2, {})
    bad, good = topic.partitions
    for log in (bad, good):
        log.append(make_batch())
        log.flush()
    release, _ = held(manager)
    bad_answers, good_answers = Answers(5), Answers(5)
    for _ in range(5):
        bad.flush_async(bad.append(make_batch()).end_offset, bad_answers)
    for _ in range(5):
        good.flush_async(good.append(make_batch()).end_offset, good_answers)
    seams.arm(("sync",), after=0, error=errno.EIO)
    release.set()
    assert bad_answers.wait() == [ErrorCode.KAFKA_STORAGE_ERROR] * 5
    assert good_answers.wait() == [0] * 5
    assert (bad.offline, good.offline) == (True, False)


def test_a_callback_that_raises_does_not_affect_others(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {}).partitions[0]
    release, _ = held(manager)
    end = log.append(make_batch()).end_offset

    def broken(_code: int) -> None:
        raise RuntimeError("this waiter is broken")

    answers = Answers(1)
    log.flush_async(end, broken)
    log.flush_async(end, answers)
    release.set()
    assert answers.wait() == [0]


def test_stopping_answers_each_waiting_call(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {}).partitions[0]
    release, _ = held(manager)
    answers = Answers(11)
    for _ in range(10):
        log.flush_async(log.append(make_batch()).end_offset, answers)
    stopper = threading.Thread(target=manager.flusher.stop)
    stopper.start()
    release.set()
    stopper.join(60)
    log.flush_async(log.append(make_batch()).end_offset, answers)
    assert answers.wait() == [0] * 11


def test_flush_messages_flushes_by_itself(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {"flush.messages": "4"}).partitions[0]
    for _ in range(3):
        log.append(make_batch())
    assert log.flushed_offset == 0
    end = log.append(make_batch()).end_offset
    answers = Answers(1)
    log.flush_async(end, answers)
    assert answers.wait() == [0]
    assert log.core.unflushed_count == 0


def test_flush_ms_flushes_what_waited_long_enough(manager: LogManager) -> None:
    log = manager.create_topic("t", 1, {"flush.ms": "0"}).partitions[0]
    other = manager.create_topic("u", 1, {}).partitions[0]
    for each in (log, other):
        each.append(make_batch())
        assert each.core.unflushed_since > 0
    manager.housekeeper.flush_by_age()
    manager.flusher.stop()
    assert (log.flushed_offset, other.flushed_offset) == (1, 0)


def test_many_logs_are_flushed_by_one_sync_of_the_file_system(manager: LogManager) -> None:
    logs = manager.create_topic("t", 50, {}).partitions
    for log in logs:
        log.append(make_batch())
    seams.arm((), after=0, error=0)
    manager.housekeeper.checkpoint()
    assert file_ops.call_counts()["sync"] < 10
    assert all(log.flushed_offset == 1 for log in logs)


def test_failed_sync_of_the_file_system_is_traced_to_its_logs(manager: LogManager) -> None:
    logs = manager.create_topic("t", 40, {}).partitions
    for log in logs:
        log.append(make_batch())
    seams.arm(("sync",), after=0, error=errno.EIO)
    manager.housekeeper.checkpoint()
    assert all(log.flushed_offset == 1 for log in logs), "only the first sync failed, each log's own one succeeded"
    for log in logs:
        log.append(make_batch())
    seams.arm(("sync",), after=0, error=errno.EIO, sticky=True)
    manager.housekeeper.checkpoint()
    file_ops.disarm()
    assert all(log.offline and log.flushed_offset == 1 for log in logs)


def test_topic_deleted_while_its_flush_waits_ends_nothing_else(manager: LogManager) -> None:
    """The flusher begins with the writeback of all logs that wait, among them one whose files are gone."""
    kept, gone = (manager.create_topic(name, 1, {}).partitions[0] for name in ("kept", "gone"))
    release, _ = held(manager)
    answers, refusals = Answers(1), Answers(1)
    for log, told in ((gone, refusals), (kept, answers)):
        log.append(make_batch())
        log.flush_async(1, told)
    manager.delete_topic("gone")
    release.set()
    assert answers.wait() == [0]
    assert refusals.wait() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
