"""Coordinators whose partitions go to another broker and come back: what was decided before counts no more after."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.broker.coordinator.shard_leadership import _Led
from kafkalite.broker.coordinator.state_log import append_records
from kafkalite.broker.coordinator.transaction_records import transaction_record
from kafkalite.broker.coordinator.transaction_rules import TV1, TV2, Metadata, TransactionState
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.record.batches import Producer
from tests.kit.fakes.executors import FakeExecutors
from tests.kit.harness.coordinator_bench import Bench, MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.shard_leadership import LedPartitions

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class Moving(Bench):
    """The coordinators of a broker of a cluster, which leads all of their partitions in epoch 5."""

    def __init__(self) -> None:
        super().__init__()
        for name in (GROUPS, TRANSACTIONS):
            self.logs.create_topic(name, 2)
        self.remote = SimpleNamespace(write_marker=lambda *_arguments: None)
        executors: Any = FakeExecutors()
        self.executors = executors
        self.groups.shards.executors = self.transactions.shards.executors = executors
        logs: Any = self.logs
        logs.leadership = {}
        self.groups.shards.coordinate_led(logs)
        self.transactions.coordinate_led(logs, self.remote)  # type: ignore[arg-type]  # a stand-in
        for name in (GROUPS, TRANSACTIONS):
            self.elect(name, 5)
        self.load()

    def led(self, name: str) -> LedPartitions:
        led = (self.groups if name == GROUPS else self.transactions).log.led
        assert led is not None
        return led

    def elect(self, name: str, epoch: int) -> None:
        """It leads, and has not read anything yet."""
        for number, log in enumerate(self.logs.topics[name].partitions):
            log.led, log.leader_epoch = True, epoch
            self.led(name).take(number, epoch)

    def resign(self, name: str, *, told: bool = True) -> None:
        """Another leads; whether the coordinator knows already."""
        for number, log in enumerate(self.logs.topics[name].partitions):
            log.led = False
            if told:
                self.led(name).take(number, None)

    def load(self) -> None:
        """All that is led is read, and served."""
        self.settle()
        for name in ("consumer_offsets", "transaction_state"):
            while self.executors.turn(f"kafkalite-load-{name}") is not None:
                self.settle()

    def state_log(self, name: str, owner: str) -> MemoryLog:
        log = (self.groups if name == GROUPS else self.transactions).log
        return self.log(log.partition_of(owner), name)

    def written_elsewhere(self, metadata: Metadata) -> None:
        """Another coordinator has written what became of "tx"."""
        log: Any = self.state_log(TRANSACTIONS, "tx")
        append_records(log, [transaction_record("tx", metadata)], self.clock.time_ms())

    def committed(self) -> int | None:
        (found,) = self.groups.offsets.fetch("g", "t", [0])
        return None if found is None else found.offset


@pytest.fixture
def bench() -> Moving:
    return Moving()


def ongoing(bench: Moving, *, timeout_ms: int = 60_000) -> Any:
    client = bench.producer(version=TV2, timeout_ms=timeout_ms)
    assert client.write(0, b"a") == 0
    assert bench.state() == "Ongoing"
    return client


def when_found(monkeypatch: pytest.MonkeyPatch, coordinator: Any, method: str, then: Callable[[], object]) -> None:
    """Run `then` after the first call of a coordinator's method, before its caller continues."""
    original = getattr(coordinator, method)
    pending = [then]

    def called(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        if pending:
            pending.pop()()
        return found

    monkeypatch.setattr(coordinator, method, called)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_timeout_that_could_not_be_written_down_is_not_tried_over_what_a_later_coordinator_wrote(
    bench: Moving,
) -> None:
    client = ongoing(bench, timeout_ms=10_000)
    bench.resign(TRANSACTIONS, told=False)
    bench.jobs.waiting.clear()
    bench.clock.advance(11)
    bench.timers.run_due()  # it is to be aborted
    for log in bench.logs.topics[TRANSACTIONS].partitions:
        bench.led(TRANSACTIONS).take(log.partition, None)
    bench.settle()  # the commit is refused
    later = Metadata(
        producer_id=client.producer_id, epoch=9, timeout_ms=60_000, state=TransactionState.COMPLETE_COMMIT, update_ms=1
    )
    bench.written_elsewhere(later)
    bench.elect(TRANSACTIONS, 7)
    bench.load()
    end = bench.state_log(TRANSACTIONS, "tx").log_end_offset
    bench.pass_time(5)
    assert bench.state_log(TRANSACTIONS, "tx").log_end_offset == end
    found = bench.transactions.find("tx")
    assert found is not None
    assert found.now.epoch == 9


def test_an_end_requested_before_an_election_is_not_written_after_it(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would see a commit that the coordinator, which read the transaction as open, aborts."""
    client = ongoing(bench)

    def again() -> None:
        bench.elect(TRANSACTIONS, 6)
        bench.load()

    when_found(monkeypatch, bench.transactions, "find", again)
    end = bench.state_log(TRANSACTIONS, "tx").log_end_offset
    assert client.end(commit=True) == ErrorCode.NOT_COORDINATOR
    assert bench.state_log(TRANSACTIONS, "tx").log_end_offset == end
    assert client.end(commit=True) == 0
    assert (bench.state(), bench.log(0).committed()) == ("CompleteCommit", [b"a"])


def test_a_producer_id_is_not_given_twice_by_who_was_asked_before_an_election(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.producer()

    def again() -> None:
        bench.elect(TRANSACTIONS, 6)
        bench.load()

    when_found(monkeypatch, bench.transactions, "find", again)
    first, second = bench.init(), bench.init()
    assert (first[0], second[0]) == (ErrorCode.NOT_COORDINATOR, 0)


def test_an_id_that_is_begun_while_its_partition_is_read_hides_nothing(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Metadata(producer_id=77, epoch=3, timeout_ms=60_000, state=TransactionState.EMPTY, update_ms=1)

    def moved() -> None:
        bench.resign(TRANSACTIONS)
        bench.written_elsewhere(known)
        bench.elect(TRANSACTIONS, 7)

    when_found(monkeypatch, bench.transactions.producer_ids, "next", moved)
    first = bench.transactions.initialise("tx", 60_000, None)
    bench.load()
    assert first.response[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.init() == (0, 77, 4)


def test_an_id_that_is_dropped_while_it_is_looked_for_is_not_unknown(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INVALID_PRODUCER_ID_MAPPING would end its producer."""
    client = ongoing(bench)
    when_found(monkeypatch, bench.transactions, "error_of", lambda: bench.resign(TRANSACTIONS))
    assert client.end(commit=True) == ErrorCode.NOT_COORDINATOR


def test_a_marker_does_not_get_in_front_of_a_commit_that_was_asked_for_before_an_election(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets pending after it would never be completed."""
    client = bench.producer(version=TV1)
    assert bench.answer(bench.transactions.offsets.add_group("tx", client.producer_id, client.epoch, "g")) == 0

    def again() -> None:
        bench.elect(TRANSACTIONS, 6)
        bench.load()

    def end() -> None:
        assert client.end(commit=True) == 0
        bench.settle()

    when_found(monkeypatch, bench.transactions, "verify", end)
    when_found(monkeypatch, bench.transactions, "lookup", again)
    asked = Offset(TopicPartition("t", 0), 6, -1, "")
    member = ("", None, -1)
    answer = bench.transactions.offsets.commit("tx", client.producer_id, client.epoch, "g", member, [asked], 4)
    bench.settle()
    assert answer.response == [ErrorCode.NOT_COORDINATOR]
    assert bench.groups.offsets._in_transactions == {}


def test_ids_of_a_topic_that_is_deleted_go_whatever_number_of_partitions_it_had(bench: Moving) -> None:
    """Once it is gone, its number of partitions is what it would be made with."""
    client = ongoing(bench)
    log = bench.transactions.log
    log._partition_count = 50
    assert log.partition_of("tx") < 2
    bench.logs.topics.pop(TRANSACTIONS)
    assert log.partition_of("tx") != 0
    for number in (0, 1):
        bench.led(TRANSACTIONS).take(number, None)
    assert bench.transactions.find(client.name) is None


def test_a_marker_for_a_topic_that_was_made_again_with_fewer_partitions_is_not_waited_for(bench: Moving) -> None:
    client = bench.producer(version=TV2)
    assert client.write(0, b"a") == client.write(2, b"b") == 0
    bench.logs.delete_topic("t")
    bench.logs.create_topic("t", 1)
    assert client.end(commit=True) == 0
    bench.pass_time(1)
    assert bench.state() == "CompleteCommit"


# --- groups -----------------------------------------------------------------------------------------------------------


def commit(bench: Moving, offset: int) -> int:
    asked = Offset(TopicPartition("t", 0), offset, -1, "")
    (code,) = bench.answer(bench.groups.offsets.commit("g", "", None, -1, [asked]))
    return int(code)


def test_a_commit_requested_before_an_election_is_not_acknowledged_and_lost(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election waits for the group's lock; the commit is appended after the partition was read."""
    assert commit(bench, 5) == 0
    log, led = bench.state_log(GROUPS, "g"), bench.led(GROUPS)

    def elected() -> None:
        log.leader_epoch = 6
        led._led[log.partition] = _Led(6)

    when_found(monkeypatch, bench.groups.log, "waits_for_others", elected)
    asked = Offset(TopicPartition("t", 0), 6, -1, "")
    answer = bench.groups.offsets.commit("g", "", None, -1, [asked])
    append, bench.jobs.waiting = bench.jobs.waiting, deque()
    led.take(log.partition, 6)
    bench.load()
    bench.jobs.waiting = append
    bench.settle()
    assert (answer.response, bench.committed()) == ([ErrorCode.NOT_COORDINATOR], 5)


def test_a_group_that_is_begun_while_its_partition_is_read_hides_nothing(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elected() -> None:
        bench.elect(GROUPS, 6)

    when_found(monkeypatch, bench.groups.table, "error_of", elected)
    asked = Offset(TopicPartition("t", 0), 6, -1, "")
    answer = bench.groups.offsets.commit("g", "", None, -1, [asked])
    bench.load()
    assert answer.response == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert bench.groups.groups() == []


def test_a_group_that_is_dropped_while_it_is_looked_for_has_not_lost_its_members(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNKNOWN_MEMBER_ID would have them begin from scratch."""
    assert commit(bench, 5) == 0
    when_found(monkeypatch, bench.groups.table, "error_of", lambda: bench.resign(GROUPS))
    assert bench.groups.heartbeat("g", "m", None, 1) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("name", [GROUPS, TRANSACTIONS])
def test_where_one_that_is_known_is_kept_is_found_out_once_a_request(
    bench: Moving, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It takes a step of Python for each character."""
    assert commit(bench, 5) == 0
    ongoing(bench)
    coordinator: Any = bench.groups if name == GROUPS else bench.transactions
    known = "g" if name == GROUPS else "tx"
    asked: list[str] = []
    original = coordinator.log.partition_of
    monkeypatch.setattr(coordinator.log, "partition_of", lambda owner: asked.append(owner) or original(owner))
    found, code = coordinator.lookup(known)
    assert (found is None, code, asked) == (False, 0, [known])


def test_a_marker_is_not_taken_while_the_offsets_that_it_decides_are_read(
    bench: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read has them open, and would for as long as it is led here."""
    log = bench.state_log(GROUPS, "g")
    codes: list[int] = []
    producer = Producer(70, 1, -1, transactional=True)
    asked = Offset(TopicPartition("t", 0), 6, -1, "")
    bench.answer(bench.groups.offsets.commit("g", "", None, -1, [asked], producer=producer))
    bench.elect(GROUPS, 6)
    for read in (False, True):
        if read:
            bench.load()
        bench.groups.offsets.write_marker(
            log.partition,
            lambda at: at.append_marker(70, 2, 3, commit=True, transaction_version=2),
            70,
            2,
            commit=True,
            callback=codes.append,
        )
        bench.settle()
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
    assert bench.committed() == 6


def test_a_late_marker_of_an_earlier_epoch_ends_no_later_transaction(bench: Moving) -> None:
    log = bench.state_log(GROUPS, "g")
    codes: list[int] = []
    bench.groups.offsets.write_marker(
        log.partition,
        lambda at: at.append_marker(70, 2, 3, commit=True, transaction_version=2),
        70,
        2,
        commit=True,
        callback=codes.append,
    )
    assert bench.jobs.run_one()  # it is appended
    told, arguments = bench.jobs.waiting.popleft()
    asked = Offset(TopicPartition("t", 0), 6, -1, "")
    bench.groups.offsets.commit("g", "", None, -1, [asked], producer=Producer(70, 2, -1, transactional=True))
    assert bench.jobs.run_one()  # of the next transaction
    bench.elect(GROUPS, 6)
    bench.load()
    told(*arguments)
    bench.settle()
    assert codes == [0]
    assert bench.committed() is None


def asked_elsewhere(bench: Moving, producer_id: int, offset: int, version: int = 5) -> tuple[Any, Any]:
    """A commit in epoch 1, in a transaction that another broker coordinates: its answer to come, and what that broker
    is to say."""
    said: Any = Deferred()
    bench.remote.ask = lambda _ask: said
    bench.resign(TRANSACTIONS)
    offset_asked = Offset(TopicPartition("t", 0), offset, -1, "")
    answer = bench.transactions.offsets.commit("tx", producer_id, 1, "g", ("", None, -1), [offset_asked], version)
    return answer.map(lambda codes: codes[0]), said


def end_in_groups(bench: Moving, producer_id: int, epoch: int = 2) -> None:
    partition = bench.state_log(GROUPS, "g").partition
    bench.groups.offsets.write_marker(
        partition,
        lambda log: log.append_marker(producer_id, epoch, 3, commit=True, transaction_version=2),
        producer_id,
        epoch,
        commit=True,
        callback=lambda _code: None,
    )
    bench.settle()


@pytest.mark.parametrize(("ended", "code"), [(70, ErrorCode.COORDINATOR_NOT_AVAILABLE), (71, ErrorCode.NONE)])
def test_only_its_own_end_refuses_a_commit_about_which_another_broker_was_asked(
    bench: Moving, ended: int, code: ErrorCode
) -> None:
    """All members of a group commit to one partition, and all their transactions have a marker there."""
    answer, said = asked_elsewhere(bench, 70, 6)
    end_in_groups(bench, ended)
    said.complete(0)
    bench.settle()
    assert answer.response == code
    assert bench.groups.offsets._watches == {}


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (5, 0, ErrorCode.NONE),
        (5, 1, ErrorCode.NONE),
        (5, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (4, 0, ErrorCode.NONE),
        (4, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (4, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_kip890_marker_of_the_transaction_before_refuses_no_commit_of_the_next(
    bench: Moving, version: int, epoch: int, code: ErrorCode
) -> None:
    """The coordinator that is asked waits for the markers of the transaction before, and so they come meanwhile. In TV2
    they have the epoch that the producer has now, or a lower one; before, an epoch does not tell them apart."""
    answer, said = asked_elsewhere(bench, 70, 6, version)
    end_in_groups(bench, 70, epoch)
    said.complete(0)
    bench.settle()
    assert answer.response == code
    assert bench.groups.offsets._watches == {}
    if code == ErrorCode.NONE:
        end_in_groups(bench, 70, epoch=2)
        assert bench.committed() == 6


def test_a_commit_about_which_another_broker_was_asked_before_an_election_is_to_be_tried_again(bench: Moving) -> None:
    answer, said = asked_elsewhere(bench, 70, 6)
    bench.elect(GROUPS, 6)
    bench.load()
    said.complete(0)
    bench.settle()
    assert answer.response == ErrorCode.NOT_COORDINATOR
    assert bench.groups.offsets._watches == {}


def test_a_group_that_was_made_for_a_request_of_an_earlier_epoch_takes_no_commits(bench: Moving) -> None:
    """They would be written, and what was read would not know them."""
    commit = Offset(TopicPartition("t", 0), 5, -1, "")
    assert bench.answer(bench.groups.offsets.commit("g", "", None, -1, [commit])) == [0]
    number = bench.groups.log.partition_of("g")
    bench.groups.drop_partition(number)
    early, _ = bench.groups.table.lookup_or_new("g", None, Group)
    assert early is not None
    bench.groups.shards.read_partition(number)()
    with early.changing():
        assert early.commit_error_locked("", None, -1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.committed() == 5
    assert bench.answer(bench.groups.offsets.commit("g", "", None, -1, [commit])) == [0]
