"""Send requests between coordinators and partition leaders on different brokers of a cluster.

    write_marker   sends a transaction marker to a partition's leader, by WriteTxnMarkers (KIP-98)
    ask            asks a transaction's coordinator to add a partition, or whether the transaction has it, by
                   AddPartitionsToTxn 4-5 (KIP-890)

If a broker cannot be reached, the result is a retriable error code.

Source: TransactionMarkerChannelManager and AddPartitionsToTxnManager of Kafka 4.1.

Thread rule: any thread. Callbacks run on a thread of the peer connections or on the caller's, and must not block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalite.base.deferred import Deferred, completed
from kafkalite.base.logging import RepeatLogger
from kafkalite.broker.coordinator.state_log import TRANSACTIONS_TOPIC
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkalite.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from kafkalite.broker.coordinator.marker_requests import Ask, RemoteMarker
    from kafkalite.broker.coordinator.state_log import StateLog
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.model import TopicPartition

logger = RepeatLogger(logging.getLogger(__name__))

NOBODY: Final = -1
VERIFYING_SINCE: Final = 4
"""First version of AddPartitionsToTxn between brokers."""


class Lane(Protocol):
    """The queue of markers or questions for one API of one other broker.

    One request is in flight at a time. Items that are queued meanwhile wait for a later request.
    """

    def put(self, item: Any) -> None:
        """Queue an item (a marker or a question). Any thread."""


class Peers(Protocol):
    """The connections to the other brokers."""

    def lane(
        self,
        node_id: int,
        api_key: int,
        oldest: int,
        build: Callable[[Sequence[Any]], object],
        settle: Callable[[Sequence[Any], Any], None],
        says: Callable[[Any], tuple[Hashable, Hashable]],
    ) -> Lane:
        """Return the queue for an API of a broker. `oldest` is the oldest acceptable version of the API.

        `build` makes a request from queued items. `settle` gets these items and the response, or None without a
        response. `says` returns (subject, content) of an item: a request never has two contents for the same subject.
        """


class _MarkerTo(NamedTuple):
    mark: RemoteMarker
    partition: TopicPartition
    callback: Callable[[int], object]


class _AskTo(NamedTuple):
    ask: Ask
    answer: Deferred[int]


class Remote:
    """Sends this broker's markers and questions to other brokers. `log` is the log of transactional ids."""

    def __init__(self, logs: LogManager, log: StateLog, peers: Peers) -> None:
        self._logs = logs
        self._log = log
        self._peers = peers

    def write_marker(
        self, node_id: int, mark: RemoteMarker, partition: TopicPartition, callback: Callable[[int], object]
    ) -> None:
        """Send a marker to the leader. Call callback(0) when it is durable there, or callback(code) after an error."""
        if node_id == NOBODY:
            callback(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        lane = self._peers.lane(node_id, api.WRITE_TXN_MARKERS, 1, _markers, _marked, _mark_of)
        lane.put(_MarkerTo(mark, partition, callback))

    def ask(self, ask: Ask) -> Deferred[int]:
        """Send a question to the transaction's coordinator; the result is 0 or an error code."""
        topic = self._logs.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return completed(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        log = topic.partitions[self._log.partition_of(ask.transactional_id)]
        if log.core.leader_id == NOBODY or log.led:
            return completed(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        answer: Deferred[int] = Deferred()
        lane = self._peers.lane(
            log.core.leader_id, api.ADD_PARTITIONS_TO_TXN, VERIFYING_SINCE, _asks, _asked, _asker_of
        )
        lane.put(_AskTo(ask, answer))
        return answer


def _mark_of(item: _MarkerTo) -> tuple[int, RemoteMarker]:
    """Return (producer id, marker): the subject and the content of a queued marker.

    A request may have only one marker per producer. More could be queued, because two coordinators may end a producer's
    transactions at the same time.
    """
    return item.mark.producer_id, item.mark


def _asker_of(item: _AskTo) -> tuple[str, tuple[int, int, bool]]:
    """Return (transactional id, question): the subject and the content of a queued question.

    A request may have only one question per transactional id. More could be queued, because a fenced producer may
    write at the same time as its successor.
    """
    ask = item.ask
    return ask.transactional_id, (ask.producer_id, ask.epoch, ask.only_verify)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic → its partitions, without duplicates."""
    found: dict[str, list[int]] = {}
    for topic, number in dict.fromkeys(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _markers(items: Sequence[_MarkerTo]) -> object:
    partitions: dict[RemoteMarker, list[TopicPartition]] = {}
    for item in items:
        partitions.setdefault(item.mark, []).append(item.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=mark.producer_id,
                producer_epoch=mark.producer_epoch,
                transaction_result=mark.commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in _by_topic(wanted).items()
                ],
                coordinator_epoch=mark.coordinator_epoch,
                transaction_version=mark.transaction_version,
            )
            for mark, wanted in partitions.items()
        ]
    )


def _tell(callback: Callable[[int], object], code: int) -> None:
    """Call `callback(code)`; log its exception, so that the other callbacks still run."""
    try:
        callback(code)
    except Exception:
        logger.exception("handling a response from another broker failed")


def _marked(items: Sequence[_MarkerTo], answer: Any) -> None:
    codes = {
        (marker.producer_id, topic.name, each.partition_index): each.error_code
        for marker in (() if answer is None else answer.markers)
        for topic in marker.topics
        for each in topic.partitions
    }
    for item in items:
        key = (item.mark.producer_id, *item.partition)
        _tell(item.callback, codes.get(key, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)))


def _asks(items: Sequence[_AskTo]) -> object:
    partitions: dict[tuple[str, int, int, bool], list[TopicPartition]] = {}
    for ask, _ in items:
        partitions.setdefault((ask.transactional_id, ask.producer_id, ask.epoch, ask.only_verify), []).append(
            ask.partition
        )
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=only_verify,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=numbers)
                    for name, numbers in _by_topic(wanted).items()
                ],
            )
            for (transactional_id, producer_id, epoch, only_verify), wanted in partitions.items()
        ]
    )


def _asked(items: Sequence[_AskTo], answer: Any) -> None:
    failed = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    codes = {
        (result.transactional_id, topic.name, each.partition_index): each.partition_error_code
        for result in (() if answer is None or answer.error_code else answer.results_by_transaction)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    if answer is not None and answer.error_code:
        failed = int(answer.error_code)
    for ask, told in items:
        code = codes.get((ask.transactional_id, *ask.partition), failed)
        if code == ErrorCode.TRANSACTION_ABORTABLE and not ask.abortable:
            code = int(ErrorCode.INVALID_TXN_STATE)
        _tell(told.complete, code)
