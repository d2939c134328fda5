"""What coordinators and leaders on different brokers ask each other, and what becomes of answers that are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.broker.coordinator.marker_requests import Ask, RemoteMarker
from kafkalite.broker.coordinator.marker_writer import MarkerWriter
from kafkalite.broker.coordinator.remote import Remote
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kafkalite.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.kit.fakes.clock import FakeClock

COORDINATOR = 5


class HeldPeers:
    """Keeps what is put in until `answer` is called."""

    def __init__(self) -> None:
        self.node_id = -1
        self.items: list[Any] = []
        self.build: Callable[[Sequence[Any]], Any] | None = None
        self.settle: Callable[[Sequence[Any], Any], None] | None = None
        self.says: Callable[[Any], Any] | None = None

    def lane(self, node_id: int, _key: int, _oldest: int, build: Any, settle: Any, says: Any) -> SimpleNamespace:
        self.node_id, self.build, self.settle, self.says = node_id, build, settle, says
        return SimpleNamespace(put=self.items.append)

    def request(self) -> Any:
        assert self.build is not None
        return self.build(self.items)

    def answer(self, response: Any) -> None:
        assert self.settle is not None
        self.settle(self.items, response)


@pytest.fixture
def peers() -> HeldPeers:
    return HeldPeers()


def remote(peers: HeldPeers, leader: int = COORDINATOR, *, led: bool = False) -> Remote:
    log = SimpleNamespace(core=SimpleNamespace(leader_id=leader), led=led)
    logs = SimpleNamespace(topics={"__transaction_state": SimpleNamespace(partitions=[log])})
    return Remote(logs, SimpleNamespace(partition_of=lambda _id: 0), peers)  # type: ignore[arg-type]


def ask(name: str, number: int, *, epoch: int = 0, only_verify: bool = False, abortable: bool = True) -> Ask:
    return Ask(name, 70, epoch, TopicPartition("t", number), only_verify, abortable)


def result(name: str, codes: dict[int, int]) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=name,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name="t",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number, code in codes.items()
                ],
            )
        ],
    )


def test_questions_go_together_by_transaction(peers: HeldPeers) -> None:
    asker = remote(peers)
    answers = [asker.ask(each) for each in (ask("a", 0), ask("b", 0), ask("a", 1), ask("c", 2, only_verify=True))]
    request = peers.request()
    assert peers.node_id == COORDINATOR
    assert [(each.transactional_id, each.verify_only, each.topics[0].partitions) for each in request.transactions] == [
        ("a", False, [0, 1]),
        ("b", False, [0]),
        ("c", True, [2]),
    ]
    fenced = int(ErrorCode.PRODUCER_FENCED)
    aborted = int(ErrorCode.TRANSACTION_ABORTABLE)
    rows = [result("b", {0: fenced}), result("a", {0: 0, 1: 0}), result("c", {2: aborted})]  # in no order
    peers.answer(AddPartitionsToTxnResponse(results_by_transaction=rows))
    assert [each.response for each in answers] == [0, fenced, 0, aborted]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (
            AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (AddPartitionsToTxnResponse(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (
            AddPartitionsToTxnResponse(results_by_transaction=[result("a", {0: 120})]),
            ErrorCode.INVALID_TXN_STATE,  # for one that does not know TRANSACTION_ABORTABLE
        ),
    ],
)
def test_answers_that_say_no(peers: HeldPeers, response: object, code: ErrorCode) -> None:
    answer = remote(peers).ask(ask("a", 0, abortable=False))
    peers.answer(response)
    assert answer.response == code


@pytest.mark.parametrize(("leader", "led"), [(-1, False), (COORDINATOR, True)])
def test_no_request_is_sent_without_another_coordinator(peers: HeldPeers, leader: int, led: bool) -> None:
    answer = remote(peers, leader, led=led).ask(ask("a", 0))
    assert answer.response == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert peers.items == []


def test_a_producer_and_one_that_it_fenced_are_not_asked_about_together(peers: HeldPeers) -> None:
    """The response names only the transactional id: one producer would get the other's result."""
    asker = remote(peers)
    for each in (ask("a", 0), ask("a", 1), ask("a", 0, epoch=1), ask("a", 0, only_verify=True), ask("b", 0)):
        asker.ask(each)
    assert peers.says is not None
    about = [peers.says(item) for item in peers.items]
    assert [each[0] for each in about] == ["a", "a", "a", "a", "b"]
    assert about[0] == about[1]
    assert len({each[1] for each in about[:4]}) == 3


def test_markers_of_two_coordinators_for_one_producer_do_not_go_together(peers: HeldPeers) -> None:
    sender = remote(peers)
    for coordinator_epoch in (3, 4):
        sender.write_marker(
            2, RemoteMarker(70, 1, coordinator_epoch, True, 2), TopicPartition("t", 0), lambda _code: None
        )
    assert peers.says is not None
    first, second = (peers.says(item) for item in peers.items)
    assert first[0] == second[0] == 70
    assert first[1] != second[1]


def test_markers_go_together_by_transaction(peers: HeldPeers) -> None:
    sender = remote(peers)
    codes: dict[str, int] = {}
    marks = [RemoteMarker(70, 1, 3, True, 2), RemoteMarker(71, 0, 3, False, 2)]
    for mark, number in ((marks[0], 0), (marks[1], 0), (marks[0], 4)):
        name = f"{mark.producer_id}-{number}"
        sender.write_marker(2, mark, TopicPartition("t", number), lambda code, name=name: codes.update({name: code}))
    request = peers.request()
    assert peers.node_id == 2
    assert [
        (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.transaction_result, each.topics)
        for each in request.markers
    ] == [
        (70, 1, 3, True, request.markers[0].topics),
        (71, 0, 3, False, request.markers[1].topics),
    ]
    assert [each.topics[0].partition_indexes for each in request.markers] == [[0, 4], [0]]

    def row(producer_id: int, told: dict[int, int]) -> WritableTxnMarkerResult:
        parts = [WritableTxnMarkerPartitionResult(partition_index=at, error_code=code) for at, code in told.items()]
        return WritableTxnMarkerResult(
            producer_id=producer_id, topics=[WritableTxnMarkerTopicResult(name="t", partitions=parts)]
        )

    fenced = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    peers.answer(WriteTxnMarkersResponse(markers=[row(71, {0: fenced}), row(70, {4: 0})]))
    assert codes == {"70-0": ErrorCode.NOT_LEADER_OR_FOLLOWER, "70-4": 0, "71-0": fenced}


def test_a_failing_callback_does_not_keep_the_answer_from_others(peers: HeldPeers) -> None:
    sender = remote(peers)
    codes: list[int] = []
    for number, callback in ((0, lambda _code: 1 // 0), (1, codes.append)):
        sender.write_marker(2, RemoteMarker(70, 1, 3, True, 2), TopicPartition("t", number), callback)
    peers.answer(None)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_marker_with_an_unknown_error_code_is_retried(peers: HeldPeers) -> None:
    """As of a broker of a later release: what was decided is never given up."""
    log = SimpleNamespace(led=False, core=SimpleNamespace(leader_id=2))
    logs = SimpleNamespace(topics={"t": SimpleNamespace(partitions=[log])})
    later: list[Callable[[], object]] = []

    def timer(callback: Callable[[], object]) -> SimpleNamespace:
        later.append(callback)
        return SimpleNamespace(set=lambda _delay_s: None)

    nobody = SimpleNamespace()
    writer = MarkerWriter(logs, nobody, nobody, SimpleNamespace(timer=timer, clock=FakeClock()))  # type: ignore[arg-type]
    writer.remote = remote(peers)
    done: list[bool] = []
    writer.write(RemoteMarker(70, 1, 3, True, 2), [TopicPartition("t", 0)], lambda: done.append(True))
    for code in (999, 0):
        part = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
        topic = WritableTxnMarkerTopicResult(name="t", partitions=[part])
        response = WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=70, topics=[topic])])
        assert (done, len(peers.items)) == ([], 1)
        peers.answer(response)
        peers.items.clear()
        if later:
            later.pop()()
    assert done == [True]


def test_marker_without_a_leader_comes_again(peers: HeldPeers) -> None:
    codes: list[int] = []
    remote(peers).write_marker(-1, RemoteMarker(70, 1, 3, True, 2), TopicPartition("t", 0), codes.append)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert peers.items == []


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_marker_refused_by_an_offsets_partition_gets_a_partition_error(code: int) -> None:
    """The partition's leadership may end between the check and the append. A Java coordinator that gets a coordinator
    error code for a marker treats it as fatal and does not resend the marker.
    """
    groups: Any = SimpleNamespace(
        log=SimpleNamespace(partitions=("",), led=None),
        offsets=SimpleNamespace(write_marker=lambda *_, callback, **__: callback(code)),
    )
    nobody: Any = SimpleNamespace()
    writer = MarkerWriter(nobody, groups, nobody, TimerQueue(FakeClock(), threaded=False))
    codes: list[int] = []
    mark = RemoteMarker(7, 0, 0, commit=True, transaction_version=2)
    writer.write_one(mark, TopicPartition(OFFSETS_TOPIC, 0), codes.append)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
