"""Proposals on their way to the controllers: one request at a time with all that wait, again until it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native.log.leading import fetched_by, wait_low, wait_replicated
from kafkalite.base.deferred import Deferred
from kafkalite.broker.cluster.alter_partition import FAILED_S, RETRY_S, InSyncReplicas, _Item
from kafkalite.broker.cluster.image import BrokerState, Image
from kafkalite.broker.cluster.in_sync import InSync
from kafkalite.broker.log.assignment import NOWHERE, Assignment
from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tests.kit.fakes.clock import FakeClock
from tests.kit.fakes.executors import FakeExecutors
from tests.kit.harness.log_harness import TOPIC_ID, LogHarness, make_batch

OWN, TWO, THREE = 1, 2, 3
OWN_EPOCH = 11
LAG_S = 30.0


class Leader:
    """The leader of some partitions, whose controllers answer when a test says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.executors = FakeExecutors()
        self.asked: list[tuple[Any, Deferred[Any]]] = []
        self.in_sync = InSyncReplicas(
            OWN, lambda: OWN_EPOCH, self._ask, self.clock, lag_s_max=LAG_S, executors=self.executors
        )
        self.in_sync.start()
        self.use_brokers({OWN: OWN_EPOCH, TWO: 12, THREE: 13})
        self.logs: list[ReplicaLog] = []

    def _ask(self, _key: int, request: object) -> Deferred[Any]:
        self.asked.append((request, Deferred()))
        return self.asked[-1][1]

    def use_brokers(self, epochs: dict[int, int]) -> None:
        brokers = {
            node: BrokerState(node, b"", epoch, {}, {}, rack=None, fenced=False, stopping=False, directories=())
            for node, epoch in epochs.items()
        }
        self.in_sync.use_brokers(Image(), Image(brokers=brokers))

    def lead(self, isr: tuple[int, ...], *, leader_epoch: int = 5, partition_epoch: int = 7) -> ReplicaLog:
        """One more partition, with all three replicas."""
        number = len(self.logs)
        path = self.directory / str(number)
        path.mkdir()
        harness = LogHarness(path, clock=self.clock)
        harness.services.leading = self.in_sync
        log = harness.open(replicated=True, partition=number)
        assert isinstance(log, ReplicaLog)
        self.logs.append(log)
        self.tell(log, isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        return log

    def tell(
        self,
        log: ReplicaLog,
        isr: tuple[int, ...],
        *,
        leader_epoch: int = 5,
        partition_epoch: int,
        lost: tuple[int, ...] = (),
    ) -> None:
        """What metadata says."""
        log.lead(
            Assignment(
                held=True,
                leads=True,
                leader_id=OWN,
                leader_epoch=leader_epoch,
                replicas=(OWN, TWO, THREE),
                isr=isr,
                partition_epoch=partition_epoch,
                lost=lost,
            )
        )

    def fetch(self, log: ReplicaLog, replica: int, offset: int, epoch: int | None = None) -> int:
        return fetched_by(
            log.core, replica, offset, 0, 10 + replica if epoch is None else epoch, self.clock.monotonic()
        )

    def turn(self) -> float | None:
        return self.executors.turn("kafkalite-in-sync")

    def lag(self) -> None:
        """Advance past the replica lag limit without a fetch, and flush what the proposals require."""
        self.clock.advance(LAG_S * 1.5)
        self.turn()
        self.turn()

    @property
    def last(self) -> dict[int, list[tuple[int, int]]]:
        """Partition → who was proposed, with epochs, in the newest request."""
        request = self.asked[-1][0]
        return {
            row.partition_index: [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
            for topic in request.topics
            for row in topic.partitions
        }

    def answer(self, code: int = 0, **rows: dict[str, object]) -> None:
        """By partition (p0, p1, …) what is said of it; the others are not named. None: there was no controller."""
        parts = [
            AlterPartitionResponsePartitionData(partition_index=int(name[1:]), **fields)  # type: ignore[arg-type]
            for name, fields in rows.items()
        ]
        topic = AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=parts)
        self.asked[-1][1].complete(AlterPartitionResponse(error_code=code, topics=[topic]))
        self.turn()


def taken(*isr: int, epoch: int = 8) -> dict[str, object]:
    return {"leader_id": OWN, "leader_epoch": 5, "isr": list(isr), "partition_epoch": epoch}


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    found = Leader(tmp_path)
    yield found
    for log in found.logs:
        log.close()


def waits(log: ReplicaLog) -> Callable[[], list[int]]:
    """Append a record and wait as acks=all does; return the error codes the waiter gets."""
    told: list[int] = []
    end = log.append(make_batch()).end_offset
    wait_replicated(log.core, end, log.leader_epoch, told.append)
    return lambda: told


def test_one_in_no_directory_is_not_proposed_whatever_it_has(leader: Leader) -> None:
    log = leader.lead((OWN, TWO, THREE))
    leader.tell(log, (OWN, TWO), partition_epoch=8, lost=(THREE,))
    leader.fetch(log, THREE, 0)
    leader.turn()
    assert leader.asked == []
    leader.tell(log, (OWN, TWO), partition_epoch=9)
    leader.fetch(log, THREE, 0)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH), (TWO, -1), (THREE, 13)]}


def test_a_waiter_gets_its_answer_though_another_one_fails(leader: Leader, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_code: int) -> None:
        raise LookupError("nobody is there")

    log = leader.lead((OWN, TWO))
    wait_replicated(log.core, log.append(make_batch()).end_offset, log.leader_epoch, fails)
    replicated = waits(log)
    leader.fetch(log, TWO, 2)
    assert replicated() == [0]
    low: list[int] = []
    log.core.set_log_start(2)
    wait_low(log.core, 2, fails)
    wait_low(log.core, 2, low.append)
    for replica in (TWO, THREE):
        fetched_by(log.core, replica, 2, 2, 10 + replica, leader.clock.monotonic())
    assert low == [0]
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]


def test_all_that_wait_go_together_and_one_request_is_under_way(leader: Leader) -> None:
    first, second, third = leader.lead((OWN,)), leader.lead((OWN,)), leader.lead((OWN,))
    leader.fetch(first, TWO, 0)
    leader.fetch(second, THREE, 0)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH), (TWO, 12)], 1: [(OWN, OWN_EPOCH), (THREE, 13)]}
    leader.fetch(third, TWO, 0)
    leader.turn()
    assert len(leader.asked) == 1
    leader.answer(p0=taken(OWN, TWO), p1=taken(OWN, THREE))
    assert leader.last == {2: [(OWN, OWN_EPOCH), (TWO, 12)]}
    assert (leader.in_sync.changes.expands, leader.in_sync.changes.failed) == (2, 0)


def test_an_answer_moves_what_waited_for_one_that_left(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    told = waits(log)
    leader.lag()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}
    assert (told(), log.high_watermark) == ([], 0)
    leader.answer(p0=taken(OWN))
    assert (told(), log.high_watermark) == ([0], 1)
    assert leader.in_sync.changes.shrinks == 1


def test_one_that_stopped_before_it_joined_is_not_waited_for_longer_than_it_counts(leader: Leader) -> None:
    log = leader.lead((OWN, THREE))
    leader.fetch(log, TWO, 0)
    leader.turn()
    leader.answer(p0={"error_code": ErrorCode.INELIGIBLE_REPLICA})
    told = waits(log)
    leader.fetch(log, THREE, 1)
    assert (told(), log.high_watermark) == ([], 0)
    leader.clock.advance(LAG_S + 1)
    leader.fetch(log, THREE, 1)
    leader.turn()
    assert (told(), log.high_watermark) == ([0], 1)


def test_one_that_is_fenced_before_it_joined_is_not_waited_for(leader: Leader) -> None:
    log = leader.lead((OWN, THREE))
    leader.fetch(log, TWO, 0)
    leader.turn()
    leader.answer(p0={"error_code": ErrorCode.INELIGIBLE_REPLICA})
    told = waits(log)
    leader.fetch(log, THREE, 1)
    assert (told(), log.high_watermark) == ([], 0)
    leader.use_brokers({OWN: OWN_EPOCH, THREE: 13})
    assert (told(), log.high_watermark) == ([0], 1)


def test_metadata_that_comes_before_the_answer_moves_it_too(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    told = waits(log)
    leader.lag()
    leader.tell(log, (OWN,), partition_epoch=8)
    assert (told(), leader.in_sync.changes.shrinks) == ([0], 1)
    leader.answer(p0=taken(OWN))
    assert leader.in_sync.changes.shrinks == 1


def test_one_that_was_proposed_counts_even_if_the_answer_says_no_more_than_that_it_is_late(leader: Leader) -> None:
    log = leader.lead((OWN,))
    leader.fetch(log, TWO, 0)
    leader.turn()
    told = waits(log)
    leader.answer(p0={"error_code": ErrorCode.INVALID_UPDATE_VERSION})
    leader.clock.advance(LAG_S * 2)
    assert told() == []
    assert leader.turn() is not None
    assert len(leader.asked) == 1
    leader.tell(log, (OWN,), partition_epoch=8)
    assert told() == [0]


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_one_that_is_refused_may_be_proposed_by_the_next_fetch(leader: Leader, code: ErrorCode) -> None:
    log = leader.lead((OWN,))
    leader.fetch(log, TWO, 0)
    leader.turn()
    leader.answer(p0={"error_code": code})
    assert len(leader.asked) == 1
    assert log.core.followers is not None
    assert log.core.followers.maximal_count == 1
    leader.fetch(log, TWO, 0)
    leader.turn()
    assert len(leader.asked) == 2


@pytest.mark.parametrize("how", ["nobody", "stale", "not named", "other controller"])
def test_what_was_not_answered_goes_again_as_it_was(leader: Leader, how: str) -> None:
    log = leader.lead((OWN,))
    leader.fetch(log, TWO, 0)
    leader.turn()
    first = leader.asked[0][0]
    if how == "nobody":
        leader.asked[-1][1].complete(None)
        leader.turn()
    elif how == "stale":
        leader.answer(ErrorCode.STALE_BROKER_EPOCH)
    elif how == "not named":
        leader.answer()
    else:
        leader.answer(p0={"error_code": ErrorCode.NOT_CONTROLLER})
    assert len(leader.asked) == 1, "not at once"
    leader.fetch(log, TWO, 0, epoch=14)
    leader.clock.advance(RETRY_S)
    leader.turn()
    assert leader.asked[1][0] == first, "with the epochs of the fetch for which it was proposed"
    leader.answer(p0=taken(OWN, TWO))
    assert leader.in_sync.changes == type(leader.in_sync.changes)(expands=1, failed=1)


def test_what_was_overtaken_does_not_go_again(leader: Leader) -> None:
    log = leader.lead((OWN,))
    leader.fetch(log, TWO, 0)
    leader.turn()
    leader.asked[-1][1].complete(None)
    leader.turn()
    leader.tell(log, (OWN,), leader_epoch=6, partition_epoch=8)
    leader.clock.advance(RETRY_S)
    leader.turn()
    assert len(leader.asked) == 1


def test_nothing_is_proposed_for_what_is_led_elsewhere(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    before = log.assignment
    elsewhere = before._replace(leads=False, leader_id=TWO, leader_epoch=6, partition_epoch=8)
    told = waits(log)
    log.resign(elsewhere)
    assert told() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    leader.in_sync.replicas_changed([ReplicaChange(log, before, elsewhere)])
    leader.clock.advance(LAG_S * 2)
    leader.turn()
    assert leader.asked == []
    leader.in_sync.replicas_changed([ReplicaChange(log, elsewhere, NOWHERE)])


def test_a_new_epoch_knows_nothing_of_what_followers_had(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    log.append(make_batch(3))
    leader.fetch(log, TWO, 2)
    assert log.high_watermark == 2
    leader.tell(log, (OWN, TWO), leader_epoch=6, partition_epoch=8)
    assert log.high_watermark == 2
    assert log.core.followers is not None
    assert [row[1] for row in log.core.followers.states()] == [-1, -1]
    assert log.epochs.entries[-1] == (6, 3)
    leader.fetch(log, TWO, 3)
    assert log.high_watermark == 3


def test_followers_come_and_go_within_an_epoch(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    log.append(make_batch(3))
    leader.fetch(log, TWO, 3)
    assert log.high_watermark == 3
    alone = log.assignment._replace(replicas=(OWN,), isr=(OWN,), partition_epoch=8)
    log.lead(alone)
    leader.in_sync.replicas_changed([ReplicaChange(log, log.assignment, alone)])
    assert log.append(make_batch()).end_offset == log.high_watermark == 4
    leader.tell(log, (OWN,), partition_epoch=9)
    assert log.append(make_batch()).end_offset == 5
    assert log.high_watermark == 5, "nobody else is in sync"
    leader.fetch(log, THREE, 5)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH), (THREE, 13)]}


def test_a_write_counts_as_too_little_where_too_few_are_in_sync_when_it_is_there(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    log.append(make_batch())
    leader.fetch(log, TWO, 1)
    told: list[int] = []
    assert log.core.followers is not None
    log.core.followers.use_min(3)
    wait_replicated(log.core, 1, log.leader_epoch, told.append)
    assert told == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_one_that_is_no_replica_any_more_does_not_count_where_the_answer_came_first(leader: Leader) -> None:
    log = leader.lead((OWN,))
    leader.fetch(log, TWO, 0)
    leader.turn()
    leader.answer(p0=taken(OWN, TWO))
    log.lead(log.assignment._replace(replicas=(OWN, TWO), isr=(OWN, TWO), partition_epoch=8))
    assert log.core.followers is not None
    assert [(state[0], state[5]) for state in log.core.followers.states()] == [(TWO, True)]
    assert leader.fetch(log, THREE, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_others_acknowledged_is_on_the_disk_before_nobody_else_counts(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    waits(log)
    leader.fetch(log, TWO, 1)
    waits(log)
    assert log.flushed_offset == 0
    leader.lag()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}
    assert log.flushed_offset == 2


def lagging(leader: Leader, log: ReplicaLog) -> list[tuple[int, Callable[[int], object]]]:
    """Replica 2 lags behind what it had; gives who waits for the disk of the log."""
    asked: list[tuple[int, Callable[[int], object]]] = []
    log.services.request_flush = lambda _log, end, callback: asked.append((end, callback))
    log.append(make_batch())
    leader.clock.advance(LAG_S * 1.5)
    return asked


def test_a_slow_disk_holds_up_no_other_partition(leader: Leader) -> None:
    log, other = leader.lead((OWN, TWO)), leader.lead((OWN,))
    flushes = lagging(leader, log)
    assert leader.turn() is not None
    assert [end for end, _ in flushes] == [1]
    leader.fetch(other, TWO, 0)
    leader.turn()
    assert leader.last == {1: [(OWN, OWN_EPOCH), (TWO, 12)]}
    leader.answer(p1=taken(OWN, TWO))
    flushes[0][1](0)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}


def test_proposals_for_many_partitions_are_not_compared_with_each_other(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand proposals queue at once when the follower of that many partitions dies."""
    compared: list[object] = []
    monkeypatch.setattr(_Item, "__eq__", lambda self, other: compared.append(other) or self is other)
    logs = [leader.lead((OWN, TWO)) for _ in range(3)]
    for log in logs:
        log.append(make_batch())
    leader.lag()
    assert sorted(leader.last) == [0, 1, 2]
    assert compared == []


def test_a_proposal_whose_flush_failed_is_not_pending_any_more(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    flushes = lagging(leader, log)
    leader.turn()
    flushes[0][1](ErrorCode.KAFKA_STORAGE_ERROR)
    leader.turn()
    assert leader.asked == []
    leader.clock.advance(LAG_S)
    leader.turn()
    assert [end for end, _ in flushes] == [1, 1]
    flushes[1][1](0)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}


def test_a_flush_that_fails_too_late_takes_nothing_back(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    flushes = lagging(leader, log)
    leader.turn()
    leader.tell(log, (OWN, TWO, THREE), partition_epoch=8)
    leader.clock.advance(LAG_S)
    leader.turn()
    flushes[0][1](ErrorCode.KAFKA_STORAGE_ERROR)
    flushes[1][1](0)
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}


def test_nothing_is_proposed_for_a_log_that_is_offline(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    flushes = lagging(leader, log)
    log.go_offline("a test says so")
    leader.turn()
    assert (leader.asked, flushes) == ([], [])


def test_what_fails_for_one_partition_is_logged_and_tried_again(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = leader.lead((OWN, TWO)), leader.lead((OWN, TWO))
    propose = InSync.propose

    def fails(_in_sync: InSync, *_: object) -> None:
        monkeypatch.setattr(InSync, "propose", propose)
        raise LookupError("nobody knows why")

    monkeypatch.setattr(InSync, "propose", fails)
    for log in (first, second):
        log.append(make_batch())
    leader.clock.advance(LAG_S * 1.5)
    assert leader.turn() == FAILED_S
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]
    leader.turn()
    assert leader.last == {1: [(OWN, OWN_EPOCH)]}
    leader.answer(p1=taken(OWN))
    leader.clock.advance(FAILED_S)
    leader.turn()
    leader.turn()
    assert leader.last == {0: [(OWN, OWN_EPOCH)]}


@pytest.mark.parametrize("when", ["asking", "answered"])
def test_what_fails_for_all_is_logged_and_tried_again(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    def fails(*_: object) -> None:
        raise LookupError("nobody knows why")

    log = leader.lead((OWN,))
    with monkeypatch.context() as patched:
        patched.setattr(leader.in_sync, "_ask" if when == "asking" else "_settle", fails)
        leader.fetch(log, TWO, 0)
        if when == "answered":
            leader.turn()
            leader.answer(p0=taken(OWN, TWO))
        else:
            assert leader.turn() == FAILED_S
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]
    leader.clock.advance(FAILED_S)
    leader.turn()
    assert len(leader.asked) == (2 if when == "answered" else 1)
    assert leader.last == {0: [(OWN, OWN_EPOCH), (TWO, 12)]}
    leader.answer(p0=taken(OWN, TWO))
    assert leader.in_sync.changes.expands == 1


def test_what_others_acknowledged_goes_on_the_disk_when_the_controllers_took_them_out(leader: Leader) -> None:
    log = leader.lead((OWN, TWO))
    waits(log)
    before = log.assignment
    now = before._replace(isr=(OWN,), partition_epoch=8)
    leader.in_sync.replicas_changed([ReplicaChange(log, before, before._replace(partition_epoch=8))])
    assert log.flushed_offset == 0
    leader.in_sync.replicas_changed([ReplicaChange(log, before, now)])
    assert log.flushed_offset == 1
    waits(log)
    leader.in_sync.replicas_changed([ReplicaChange(log, now, now._replace(partition_epoch=9))])
    assert log.flushed_offset == 1, "who waits for it flushes it"
