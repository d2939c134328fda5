"""Handle WriteTxnMarkers 1-2, DescribeTransactions 0 and ListTransactions 0-2: administer transactions.

    WriteTxnMarkers       writes markers to the logs, bypassing the transaction coordinator. This ends a transaction
                          that the coordinator does not know (`kafka-transactions abort`). v2 has the transaction
                          version (KIP-890): with TV2 the marker's epoch must be higher than the transaction's.
    DescribeTransactions  describes transactional ids. An unknown id gets TRANSACTIONAL_ID_NOT_FOUND.
    ListTransactions      v1 filters by minimum duration in ms, v2 by an RE2 pattern that must match the whole id.

Thread rule: ListTransactions runs on the I/O pool, because of its pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.deferred import Deferred, completed, gathered
from kafkalite.broker.coordinator.marker_requests import RemoteMarker
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC
from kafkalite.broker.coordinator.topic_regex import matching
from kafkalite.broker.coordinator.transaction_rules import DEAD, LABELS, ONGOING, PREPARED
from kafkalite.broker.handlers.permissions import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    TOPIC,
    TRANSACTIONAL_ID,
    allows,
)
from kafkalite.broker.handlers.transactions import is_there
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, InvalidRegularExpression
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages import describe_transactions, list_transactions
from kafkalite.wire.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkalite.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.transaction_rules import Metadata
    from kafkalite.broker.handlers.context import RequestContext

_OPEN: Final = frozenset({ONGOING, *PREPARED})


def write_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
    results: list[Deferred[int]] = []
    may = allows(context, ALTER, CLUSTER, probe=True) or allows(context, CLUSTER_ACTION, CLUSTER)
    for marker in checkpointed(request.markers):
        mark = RemoteMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        results += [
            _write_marker(context, mark, TopicPartition(topic.name, number))
            if may
            else completed(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            for topic in checkpointed(marker.topics)
            for number in checkpointed(topic.partition_indexes)
        ]
    return gathered(results).map(lambda codes: _written(request, codes))


def _write_marker(context: RequestContext, mark: RemoteMarker, partition: TopicPartition) -> Deferred[int]:
    if partition.partition < 0 or (partition.topic != OFFSETS_TOPIC and not is_there(context, partition)):
        return completed(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    answer: Deferred[int] = Deferred()
    context.broker.transactions.markers.write_one(mark, partition, answer.complete)
    return answer


def _written(request: WriteTxnMarkersRequest, codes: list[int]) -> WriteTxnMarkersResponse:
    left = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=number, error_code=next(left))
                            for number in checkpointed(topic.partition_indexes)
                        ],
                    )
                    for topic in checkpointed(marker.topics)
                ],
            )
            for marker in checkpointed(request.markers)
        ]
    )


def describe(context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_described(context, name) for name in checkpointed(request.transactional_ids)]
    )


def _described(context: RequestContext, transactional_id: str) -> describe_transactions.TransactionState:
    if not allows(context, DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        return describe_transactions.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=transactional_id
        )
    transactions = context.broker.transactions
    found, code = transactions.lookup(transactional_id)
    if found is None or found.now.state is DEAD:
        return describe_transactions.TransactionState(
            error_code=code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    now = found.now
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(now.partitions):
        topics.setdefault(topic, []).append(number)
    topics = {name: numbers for name, numbers in topics.items() if allows(context, DESCRIBE, TOPIC, name)}
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=now.state.label,
        transaction_timeout_ms=now.timeout_ms,
        transaction_start_time_ms=now.start_ms,
        producer_id=now.producer_id,
        producer_epoch=now.epoch,
        topics=[describe_transactions.TopicData(topic=name, partitions=numbers) for name, numbers in topics.items()],
    )


def list_all(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    code = context.broker.transactions.shards.loading_error
    if code:
        return ListTransactionsResponse(error_code=code)
    rows = [
        (found.transactional_id, found.now)
        for found in checkpointed(context.broker.transactions.all())
        if allows(context, DESCRIBE, TRANSACTIONAL_ID, found.transactional_id, probe=True)
    ]
    if request.transactional_id_pattern:
        try:
            matches = matching(request.transactional_id_pattern, (name for name, _ in rows))
        except InvalidRegularExpression:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        rows = [(name, now) for name, now in rows if name in matches]
    states = {LABELS[name] for name in checkpointed(request.state_filters) if name in LABELS}
    producer_ids = set(request.producer_id_filters)
    time_ms = context.broker.clock.time_ms()

    def wanted(now: Metadata) -> bool:
        return (
            now.state is not DEAD
            and (not request.state_filters or now.state in states)
            and (not producer_ids or now.producer_id in producer_ids)
            and (request.duration_filter < 0 or _is_older(now, time_ms - request.duration_filter))
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in checkpointed(request.state_filters) if name not in LABELS],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=name, producer_id=now.producer_id, transaction_state=now.state.label
            )
            for name, now in checkpointed(rows)
            if wanted(now)
        ],
    )


def _is_older(now: Metadata, time_ms: int) -> bool:
    """Return whether a transaction is open and began before the time, in ms since 1970."""
    return now.state in _OPEN and now.start_ms < time_ms
