"""A replica that is not fit is put into no directory while others are in sync, and comes back when it is fit again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.base.deferred import Deferred
from kafkalite.broker.cluster.directories import RETRY_S, RETRY_S_MAX, ROOM_S, DirectoryAssignments
from kafkalite.broker.cluster.image import MIGRATING, Image
from kafkalite.broker.cluster.membership_setup import has_room
from kafkalite.broker.log.assignment import LOST, NOWHERE, Assignment
from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog
from kafkalite.errors import CorruptMessage, ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from tests.kit.fakes.clock import FakeClock
from tests.kit.fakes.executors import FakeExecutors
from tests.kit.harness.log_harness import TOPIC_ID, LogHarness, make_batch, release

OWN, TWO, THREE = 1, 2, 3
HOME = bytes(range(16, 32))


class Broker:
    """A broker with one partition, whose controllers answer when a test says so."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.executors = FakeExecutors()
        self.asked: list[tuple[AssignReplicasToDirsRequest, Deferred[Any]]] = []
        self.rechecked: list[ReplicaLog] = []
        self.room = False
        self.level = 27
        self.assignments = DirectoryAssignments(
            OWN,
            HOME,
            lambda: 11,
            lambda: self.level,
            self._ask,
            self.clock,
            recheck=self.rechecked.append,
            has_room=lambda: self.room,
            executors=self.executors,
        )
        self.assignments.start()
        self.harness = LogHarness(directory)
        self.harness.services.fitness_changed = self.assignments.fitness_changed
        log = self.harness.open(replicated=True)
        assert isinstance(log, ReplicaLog)
        self.log = log

    def _ask(self, _key: int, request: AssignReplicasToDirsRequest) -> Deferred[Any]:
        self.asked.append((request, Deferred()))
        return self.asked[-1][1]

    def tell(
        self,
        isr: Sequence[int],
        *,
        directory: bytes = HOME,
        leader: int = OWN,
        epoch: int = 5,
        elr: Sequence[int] = (),
    ) -> None:
        """What metadata says."""
        before = self.log.assignment
        now = Assignment(
            held=True,
            leads=leader == OWN,
            leader_id=leader,
            leader_epoch=epoch,
            replicas=(OWN, TWO, THREE),
            isr=tuple(isr),
            elr=tuple(elr),
            partition_epoch=before.partition_epoch + 1,
            directory=directory,
            others_whole=any(each != OWN for each in (*isr, *elr)),
        )
        (self.log.lead if now.leads else self.log.resign)(now)
        self.assignments.replicas_changed([ReplicaChange(self.log, before, now)])
        self.turn()

    def turn(self) -> float | None:
        return self.executors.turn("kafkalite-directories")

    @property
    def wanted(self) -> list[bytes]:
        """The directory of each request so far."""
        found = []
        for request, _ in self.asked:
            (directory,) = request.directories
            ((topic,), number) = directory.topics, request.broker_id
            assert (topic.topic_id, [each.partition_index for each in topic.partitions]) == (TOPIC_ID, [0])
            assert (number, request.broker_epoch) == (OWN, 11)
            found.append(directory.id_)
        return found

    def answer(self, code: int = 0, partition_code: int = 0) -> None:
        row = AssignReplicasToDirsResponsePartitionData(partition_index=0, error_code=partition_code)
        topic = AssignReplicasToDirsResponseTopicData(topic_id=TOPIC_ID, partitions=[row])
        directory = AssignReplicasToDirsResponseDirectoryData(id_=HOME, topics=[topic])
        self.asked[-1][1].complete(AssignReplicasToDirsResponse(error_code=code, directories=[directory]))

    def damage(self) -> None:
        """Three batches, the second of which is read and found damaged."""
        for _ in range(3):
            self.log.append(make_batch(value_size=100))
        path, size = Path(self.log.active.path), self.log.active.size
        self.log.close()
        data = bytearray(path.read_bytes())
        data[size // 3 * 2 - 1] ^= 1
        path.write_bytes(data)
        log = self.harness.open(replicated=True)
        assert isinstance(log, ReplicaLog)
        log.lead(self.log.assignment)
        self.log = log
        assert log.fit
        with pytest.raises(CorruptMessage):
            log.read(1, 1 << 20)
        assert (log.fit, log.damage_start) == (False, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    found = Broker(tmp_path)
    yield found
    release(found.log)


def test_a_leader_that_finds_damage_asks_for_others_to_lead_and_comes_back_when_it_has_what_they_have(
    broker: Broker,
) -> None:
    broker.tell([OWN, TWO])
    assert broker.asked == []
    broker.damage()
    broker.turn()
    assert broker.wanted == [LOST]
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6)
    assert broker.rechecked == [broker.log]
    broker.log.truncate_to(1, leader_epoch=6)
    broker.log.caught_up(3)
    assert not broker.log.fit, "it has not what its leader has"
    broker.clock.advance(RETRY_S)
    assert broker.turn() is None
    assert broker.wanted == [LOST]
    broker.log.caught_up(1)
    broker.turn()
    assert broker.wanted == [LOST, HOME]
    broker.answer()
    broker.tell([TWO], leader=TWO, epoch=6)
    assert broker.turn() is None
    assert (broker.log.fit, broker.assignments.given_up) == (True, 1)


def test_one_that_its_leader_took_in_again_before_it_was_cut_is_given_up_again(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.tell([TWO, OWN], directory=LOST, leader=TWO, epoch=6)
    broker.clock.advance(RETRY_S)
    broker.turn()
    assert broker.wanted == [LOST, LOST]
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6)
    broker.log.truncate_to(1, leader_epoch=6)
    broker.tell([TWO, OWN], directory=LOST, leader=TWO, epoch=6)
    assert broker.wanted == [LOST, LOST, LOST], "it was cut, and is not whole yet"
    broker.answer()
    broker.tell([TWO, OWN], directory=LOST, leader=TWO, epoch=6)
    broker.log.caught_up(1)
    broker.turn()
    assert broker.wanted[-1] == LOST, "one at a time"
    broker.answer()
    broker.turn()
    assert broker.wanted[-1] == HOME
    assert broker.assignments.given_up == 1


@pytest.mark.parametrize("elr", [(), (OWN,)])
def test_one_that_was_cut_does_not_lead_when_the_others_fail_too(broker: Broker, elr: tuple[int, ...]) -> None:
    """The controllers would elect it as one that has all there is."""
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6, elr=elr)
    broker.log.truncate_to(1, leader_epoch=6)
    broker.tell(() if elr else [OWN], directory=LOST, leader=-1, epoch=7, elr=elr)
    assert broker.turn() is None
    assert broker.wanted == [LOST]
    broker.tell((), directory=LOST, leader=-1, epoch=7)
    assert broker.wanted == [LOST, HOME], "nobody counts on it: only an unclean election can choose it"


def test_one_that_was_not_cut_leads_when_the_others_fail_too(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.tell((), directory=LOST, leader=-1, epoch=6, elr=[OWN])
    assert broker.wanted == [LOST, HOME]


def test_damage_that_is_found_while_it_is_copied_again_is_cut_too(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6)
    broker.log.truncate_to(1, leader_epoch=6)
    assert broker.rechecked == [broker.log]
    broker.log.segments[0].add_damage(0, broker.log.segments[0].size, 0, 1)
    told: list[object] = []
    broker.log.services.fitness_changed = lambda log: (told.append(log), broker.assignments.fitness_changed(log))[0]
    broker.log.note_damage()
    broker.log.caught_up(1)
    assert told == [broker.log], "else nobody looks at it"
    broker.turn()
    assert broker.rechecked == [broker.log, broker.log]
    broker.log.truncate_to(0, leader_epoch=6)
    broker.log.caught_up(0)
    broker.turn()
    assert (broker.log.fit, broker.wanted) == (True, [LOST, HOME])


def test_damage_that_is_found_just_when_it_is_whole_again_is_not_forgotten(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.tell([TWO], leader=TWO)
    log = broker.log
    log.behind = True
    found = iter([None, 0])
    monkeypatch.setattr(ReplicaLog, "damage_start", property(lambda _log: next(found, 0)))
    log.caught_up(0)
    assert not log.fit


def test_where_nobody_else_is_in_sync_it_goes_on_with_what_it_has(broker: Broker) -> None:
    broker.tell([OWN])
    broker.damage()
    assert broker.turn() is None
    assert broker.asked == []
    broker.tell([OWN, TWO])
    assert broker.wanted == [LOST]


def test_a_full_disk_lets_others_lead_until_it_has_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.tell([OWN, TWO])
    broker.log.append(make_batch())
    broker.log.write_failed_locked(errno.ENOSPC)
    assert broker.turn() == ROOM_S
    assert broker.wanted == [LOST]
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6)
    broker.clock.advance(ROOM_S)
    assert broker.turn() == ROOM_S
    assert not broker.log.fit
    broker.room = True
    broker.clock.advance(ROOM_S)
    broker.turn()
    assert (broker.log.fit, broker.wanted) == (True, [LOST, HOME])


def test_a_disk_that_cannot_be_asked_has_no_room(tmp_path: Path) -> None:
    assert not has_room(str(tmp_path / "gone"))


def test_one_that_cannot_be_read_stays_away(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.log.append(make_batch())
    broker.log.services.went_offline = lambda log, _: broker.assignments.fitness_changed(log)
    path = Path(broker.log.active.path)
    broker.log.close()
    log = broker.harness.open(replicated=True)
    assert isinstance(log, ReplicaLog)
    log.lead(broker.log.assignment)
    broker.log = log
    os.truncate(path, 10)
    with pytest.raises(KafkaError):
        log.read(0, 1 << 20)
    broker.turn()
    assert broker.wanted == [LOST]
    broker.answer()
    broker.tell([TWO], directory=LOST, leader=TWO, epoch=6)
    assert broker.turn() is None
    assert broker.wanted == [LOST]


@pytest.mark.parametrize("refusal", ["nobody", "all", "one"])
def test_what_was_not_taken_is_asked_for_again(broker: Broker, refusal: str) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    if refusal == "nobody":
        broker.asked[-1][1].complete(None)
    else:
        broker.answer(*((ErrorCode.NOT_CONTROLLER, 0) if refusal == "all" else (0, ErrorCode.NOT_CONTROLLER)))
    assert broker.turn() == RETRY_S
    assert broker.wanted == [LOST]
    broker.clock.advance(RETRY_S)
    broker.turn()
    assert broker.wanted == [LOST, LOST]
    waits = []
    for _ in range(8):
        broker.asked[-1][1].complete(None)
        wait_s = broker.turn()
        assert wait_s is not None
        waits.append(wait_s)
        broker.clock.advance(wait_s)
        broker.turn()
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2 * RETRY_S, RETRY_S_MAX)
    broker.answer()
    assert broker.turn() is None
    broker.tell([OWN, TWO, THREE])
    broker.asked[-1][1].complete(None)
    assert broker.turn() == RETRY_S


def test_where_the_last_other_one_left_at_the_same_moment_somebody_is_elected_all_the_same(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.tell([OWN], directory=LOST, leader=-1, epoch=6)
    broker.clock.advance(RETRY_S)
    broker.turn()
    assert broker.wanted == [LOST, HOME]
    broker.answer()
    broker.tell([OWN], leader=-1, epoch=6)
    broker.clock.advance(RETRY_S)
    broker.turn()
    assert broker.wanted == [LOST, HOME, HOME], "only a second request has them elect"
    broker.answer()
    broker.tell([OWN], leader=OWN, epoch=7)
    broker.clock.advance(RETRY_S)
    assert broker.turn() is None
    assert len(broker.asked) == 3


def test_a_replica_of_which_nobody_has_said_where_it_is_is_told_of_once_the_cluster_knows_directories(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.level = 16
    broker.tell([OWN, TWO], directory=MIGRATING)
    assert (broker.turn(), broker.asked) == (None, [])
    called: list[None] = []
    monkeypatch.setattr(broker.executors.workers["kafkalite-directories"], "call_locked", lambda: called.append(None))
    old = Image(features={"metadata.version": 16})
    broker.assignments.use_features(old, replace(old, offset=old.offset + 1))
    assert called == []
    broker.level = 17
    broker.assignments.use_features(old, Image(features={"metadata.version": 17}))
    assert called == [None]
    broker.turn()
    assert broker.wanted == [HOME]


def test_what_fails_here_is_logged_and_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_key: int, _request: object) -> Deferred[Any]:
        raise LookupError("nobody knows why")

    with monkeypatch.context() as patched:
        patched.setattr(broker.assignments, "_ask", fails)
        broker.tell([OWN, TWO])
        broker.damage()
        assert broker.turn() == RETRY_S
    assert [record.exc_info is not None for record in caplog.records if record.name == "kafkalite.broker.cluster"][-1]
    broker.clock.advance(RETRY_S)
    broker.turn()
    assert broker.wanted == [LOST]


def test_what_was_taken_is_not_asked_for_again_before_metadata_tells_of_the_partition(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    broker.turn()
    broker.answer()
    broker.clock.advance(RETRY_S)
    assert (broker.turn(), broker.wanted) == (None, [LOST])
    broker.tell([OWN, TWO, THREE])
    assert broker.wanted == [LOST, LOST]


def test_what_is_gone_is_forgotten(broker: Broker) -> None:
    broker.tell([OWN, TWO])
    broker.damage()
    gone = ReplicaChange(broker.log, broker.log.assignment, NOWHERE)
    broker.log.assignment = NOWHERE
    broker.assignments.replicas_changed([gone])
    assert (broker.turn(), broker.asked) == (None, [])
    assert [sum(row[1] for row in family.rows) for family in broker.assignments.families()] == [0, 0]
