"""List and describe transactional ids, show open transactions of a partition, and abort hanging transactions.

All brokers are asked for transactional ids. A transactional id is described by its coordinator, and the open
transactions of a partition by its leader. Calls are retried after retriable error codes.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.client.cluster import raise_for
from kafkalite.client.coordinators import TRANSACTION, Coordinator
from kafkalite.errors import ErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkalite.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from kafkalite.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client.cluster import Cluster


class TransactionListing(NamedTuple):
    """A transactional id as ListTransactions reports it."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator describes it.

    Times are in ms; `start_ms` is -1 before the first transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """An open transaction in a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


class TransactionAdmin:
    """Transaction administration, created by `Client.transactions`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def list(self, states: Iterable[str] = (), older_than_ms: int = -1) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name.

        `states` and `older_than_ms` filter by transaction state and minimum duration.
        """

        def ask() -> list[TransactionListing]:
            found = []
            for broker in self._client.brokers():
                request = ListTransactionsRequest(state_filters=list(states), duration_filter=older_than_ms)
                answer = self._client.connection_to(broker.node_id).request(api.LIST_TRANSACTIONS, request)
                raise_for(answer.error_code, "the transactions")
                found += [
                    TransactionListing(row.transactional_id, row.producer_id, row.transaction_state)
                    for row in answer.transaction_states
                ]
            return sorted(found)

        return self._client.with_retries(ask)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Describe one transactional id. Raises TransactionalIdNotFound."""

        def ask() -> TransactionDescription:
            connection = Coordinator(self._client, transactional_id, TRANSACTION).connection()
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            row = connection.request(api.DESCRIBE_TRANSACTIONS, request).transaction_states[0]
            raise_for(row.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                row.producer_id,
                row.producer_epoch,
                row.transaction_state,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                tuple(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions),
            )

        return self._client.with_retries(ask)

    def open_in(self, partition: TopicPartition) -> tuple[OpenTransaction, ...]:
        """Return the open transactions of a partition, oldest first."""

        def ask() -> tuple[OpenTransaction, ...]:
            topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
            answer = self._client.leader(partition).request(
                api.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=[topic])
            )
            row = answer.topics[0].partitions[0]
            raise_for(row.error_code, str(partition), row.error_message)
            found = (
                OpenTransaction(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in row.active_producers
                if producer.current_txn_start_offset >= 0
            )
            return tuple(sorted(found, key=lambda one: one.start_offset))

        return self._client.with_retries(ask)

    def abort(self, partition: TopicPartition, start_offset: int) -> OpenTransaction:
        """Abort the hanging transaction that starts at an offset of a partition, and return it.

        The abort marker is written by the partition's leader directly, because no coordinator knows a hanging
        transaction. Raises OffsetOutOfRange if no transaction starts there.
        """
        found = next((one for one in self.open_in(partition) if one.start_offset == start_offset), None)
        if found is None:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"no open transaction in {partition} starts at offset {start_offset}"
            )

        def ask() -> None:
            topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
            marker = WritableTxnMarker(
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                coordinator_epoch=max(found.coordinator_epoch, 0),
                topics=[topic],
            )
            answer = self._client.leader(partition).request(
                api.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker])
            )
            raise_for(answer.markers[0].topics[0].partitions[0].error_code, str(partition))

        self._client.with_retries(ask)
        return found
