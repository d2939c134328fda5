"""Run the transactions of one transactional id on the client's side (KIP-98): fencing, begin, commit and abort.

    NEW ─▶ READY                             init: the coordinator fences older producers
    READY ─▶ OPEN                            begin
    NEW ─▶ OPEN, OPEN ─▶ READY               resume and leave: one producer begins, another one ends it
    OPEN ─▶ COMMITTING ─▶ READY              commit
    OPEN, COMMITTING ─▶ ABORT_ONLY           an abortable error: the transaction can only be aborted
    OPEN, ABORT_ONLY ─▶ ABORTING ─▶ READY    abort
    any ─▶ FAILED                            a fatal error: the producer is finished

There are three kinds of errors:

    retriable    the request is repeated, for example while the coordinator moves or loads
    abortable    TransactionAborted is raised; the caller aborts the transaction and can begin the next
    fatal        the error is raised by every later call, for example ProducerFenced

In version 1 of the protocol, the producer adds each partition and group at the coordinator. In version 2 (KIP-890), the
brokers add them, and each transaction ends with a new epoch.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.cluster import RETRY_BACKOFF_S_MAX
from kafkalite.client.committed import CommittedOffset, committed_offsets, topics_to_commit
from kafkalite.client.coordinators import GROUP, TRANSACTION, WAITING, Coordinator
from kafkalite.client.errors import UNREACHED, TransactionAborted, UnsupportedApi
from kafkalite.errors import ErrorCode, InvalidTxnState, KafkaError, ProducerFenced, error_for
from kafkalite.wire.protocol.api import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.committed import GroupMetadata, Offsets
    from kafkalite.client.connection import Connection
    from kafkalite.model import TopicPartition

FEATURE: Final = "transaction.version"
INIT_VERSION_MAX: Final = 5
RECOVERY_SINCE: Final = 3
"""The first InitProducerId version that takes the current producer id and epoch (KIP-360)."""
ADD_PARTITIONS_VERSION_MAX: Final = 3
"""Later versions are for requests between brokers."""
MEMBERS_SINCE: Final = 3
"""The first TxnOffsetCommit version with the committing group member (KIP-447)."""
SECOND: Final = {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
"""API → its first version of protocol 2."""
BACKOFF_S_MIN: Final = 0.005
"""The previous transaction is usually complete a few milliseconds after its end was acknowledged."""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
FINAL: Final = FENCED | {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""Codes that are fatal for the producer."""


class TransactionState(Enum):
    """State of a transaction; see the module."""

    NEW = "new"
    READY = "ready"
    OPEN = "open"
    ABORT_ONLY = "to be aborted"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    FAILED = "failed"


class PreparedTransaction(NamedTuple):
    """An open transaction whose batches are acknowledged. Any process can commit or abort it with these fields."""

    transactional_id: str
    producer_id: int
    epoch: int
    second: bool


class ProducerTransactions:
    """Runs the transactions of one transactional id, one after the other; see the module."""

    def __init__(self, client: Cluster, transactional_id: str, timeout_s: float) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self._timeout_ms = int(timeout_s * 1000)
        self._coordinator = Coordinator(client, transactional_id, TRANSACTION)
        self._groups: dict[str, Coordinator] = {}
        self.state = TransactionState.NEW
        self.producer_id = -1
        self.epoch = -1
        self.second = False
        """Whether protocol 2 is used."""
        self._partitions: set[TopicPartition] = set()
        self._groups_added: set[str] = set()
        self._error: Exception | None = None
        self._resumed = False
        """Whether another producer began the open transaction, so that its partitions are unknown here."""

    # --- life ---------------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Initialize the transactional id: fence an older producer and abort its open transaction."""
        self._ask_for_epoch(recovering=False)
        self.state = TransactionState.READY

    def _ask_for_epoch(self, *, recovering: bool) -> None:
        def ask() -> tuple[int, Any]:
            connection = self._coordinator.connection()
            version = connection.version_for(INIT_PRODUCER_ID, INIT_VERSION_MAX)
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
            )
            if recovering and version >= RECOVERY_SINCE:
                request.producer_id, request.producer_epoch = self.producer_id, self.epoch
            self.second = speaks_second(connection)
            answer = connection.request(INIT_PRODUCER_ID, request, version_max=version)
            return answer.error_code, answer

        answer = self._until_done(ask, self._coordinator, "cannot get a producer id")
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def begin(self) -> None:
        """Begin a transaction. Brokers learn about it when the first partition is added."""
        self.require(TransactionState.READY)
        self._partitions.clear()
        self._groups_added.clear()
        self._error = None
        self.state = TransactionState.OPEN

    @property
    def prepared(self) -> PreparedTransaction:
        """Return the open transaction, to be resumed by another producer."""
        self.require(TransactionState.OPEN)
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch, self.second)

    def leave(self) -> None:
        """Leave the open transaction to another producer."""
        self.require(TransactionState.OPEN)
        self.state = TransactionState.READY

    def resume(self, prepared: PreparedTransaction) -> None:
        """Resume an open transaction. If it is no longer open, only its end fails."""
        self.require(TransactionState.NEW)
        self.producer_id, self.epoch, self.second = prepared[1:]
        self._resumed = True
        self.state = TransactionState.OPEN

    def require(self, *states: TransactionState) -> None:
        """Raise the error that prevents a call in this state, or RuntimeError for calls in the wrong order."""
        if self.state == TransactionState.FAILED:
            assert self._error is not None, "failed for a reason"
            raise self._error
        if self.state == TransactionState.ABORT_ONLY and TransactionState.ABORT_ONLY not in states:
            raise TransactionAborted(f"the transaction must be aborted: {self._error}") from self._error
        if self.state not in states:
            wanted = " or ".join(state.value for state in states)
            raise RuntimeError(f"the transaction of {self.transactional_id} is {self.state.value}, not {wanted}")

    def spoil(self, error: Exception) -> Exception:
        """Move to ABORT_ONLY or FAILED after an error, depending on its kind. Return the exception to raise."""
        if isinstance(error, KafkaError) and error.code in FENCED:
            error = ProducerFenced(
                f"transactional id {self.transactional_id} is fenced: a newer producer uses it, or it timed out"
            )
        elif isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_TXN_STATE:
            error = InvalidTxnState(f"the broker has ended the transaction of {self.transactional_id}: it timed out")
        if isinstance(error, KafkaError) and error.code in FINAL:
            self.state = TransactionState.FAILED
            self._error = error
            return error
        if self.state in {TransactionState.OPEN, TransactionState.COMMITTING, TransactionState.ABORT_ONLY}:
            self.state = TransactionState.ABORT_ONLY
            self._error = error
            spoilt = TransactionAborted(f"the transaction must be aborted: {error}")
            spoilt.__cause__ = error
            return spoilt
        return error

    # --- what is part of it -------------------------------------------------------------------------------------------

    def add(self, key: TopicPartition) -> None:
        """Add a partition to the transaction, before its first batch is sent."""
        self.require(TransactionState.OPEN)
        if key in self._partitions:
            return
        if not self.second:
            self._until_done(lambda: self._add_partition(key), self._coordinator, str(key))
        self._partitions.add(key)

    def _add_partition(self, key: TopicPartition) -> tuple[int, Any]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=key.topic, partitions=[key.partition])],
        )
        connection = self._coordinator.connection()
        answer = connection.request(ADD_PARTITIONS_TO_TXN, request, version_max=ADD_PARTITIONS_VERSION_MAX)
        codes = [
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        return first_error(codes), answer

    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Add a group's offsets to the transaction. They are committed when the transaction commits."""
        self.require(TransactionState.OPEN)
        rows = committed_offsets(offsets)
        if not rows:
            return
        if not self.second and group.group_id not in self._groups_added:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group.group_id,
            )
            self._until_done(
                lambda: with_code(self._coordinator.connection().request(ADD_OFFSETS_TO_TXN, request)),
                self._coordinator,
                f"group {group.group_id}",
            )
        self._groups_added.add(group.group_id)
        home = self._groups.setdefault(group.group_id, Coordinator(self._client, group.group_id, GROUP))
        self._until_done(
            lambda: self._commit_offsets(home.connection(), rows, group),
            home,
            f"cannot add the offsets of group {group.group_id}",
        )

    def _commit_offsets(
        self, connection: Connection, rows: dict[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> tuple[int, Any]:
        version = connection.version_for(TXN_OFFSET_COMMIT, self._version_max(TXN_OFFSET_COMMIT))
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=topics_to_commit(rows, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
        )
        if version >= MEMBERS_SINCE:
            request.generation_id = group.generation
            request.member_id = group.member_id
            request.group_instance_id = group.instance_id
        answer = connection.request(TXN_OFFSET_COMMIT, request, version_max=version)
        return first_error(row.error_code for topic in answer.topics for row in topic.partitions), answer

    def _version_max(self, api_key: int) -> int:
        return SECOND[api_key] if self.second else SECOND[api_key] - 1

    @property
    def produce_version_max(self) -> int:
        """Return the highest Produce version that the transaction protocol in use allows."""
        return self._version_max(PRODUCE)

    # --- its end ------------------------------------------------------------------------------------------------------

    def end(self, *, commit: bool) -> bool:
        """Commit or abort. Return whether the epoch has changed, so that sequences restart.

        If no coordinator responds in time, the outcome is unknown. The state then stays COMMITTING or ABORTING, and the
        call may be repeated.
        """
        if commit:
            self.require(TransactionState.OPEN, TransactionState.COMMITTING)
        else:
            self.require(TransactionState.OPEN, TransactionState.ABORT_ONLY, TransactionState.ABORTING)
        self.state = TransactionState.COMMITTING if commit else TransactionState.ABORTING
        before = (self.producer_id, self.epoch)
        if self._partitions or self._groups_added or self._resumed:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )

            def ask() -> tuple[int, Any]:
                connection = self._coordinator.connection()
                return with_code(connection.request(END_TXN, request, version_max=self._version_max(END_TXN)))

            answer = self._until_done(ask, self._coordinator, "cannot end the transaction")
            if self.second and answer.producer_id >= 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._resumed = False
        self.state = TransactionState.READY
        return (self.producer_id, self.epoch) != before

    def renew(self) -> None:
        """Request a new epoch after lost batches (KIP-360), so that brokers reject late batches of the old epoch.

        In version 2, each transaction ends with a new epoch for the same reason.
        """
        self._ask_for_epoch(recovering=True)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _until_done(self, ask: Callable[[], tuple[int, Any]], home: Coordinator, what: str) -> Any:
        """Repeat a request until it succeeds; return its response.

        Raises an exception after an error that is not retriable, or when `retry_timeout_s` has passed.
        """
        deadline = time.monotonic() + self._client.retry_timeout_s
        backoff_s = min(self._client.retry_backoff_s, BACKOFF_S_MIN)
        while True:
            error: Exception
            try:
                code, answer = ask()
                if not code:
                    return answer
                home.note(code)
                error = error_for(code, f"{what}: {error_for(code).message}")
            except UNREACHED as lost:
                home.forget()
                error = lost
            except KafkaError as refused:
                error = refused
            except UnsupportedApi as missing:
                self.state = TransactionState.FAILED
                self._error = missing
                raise
            passing = not isinstance(error, KafkaError) or error.code in WAITING or error.retriable
            if not passing:
                raise self.spoil(error)
            if self._client.interrupted or time.monotonic() + backoff_s > deadline:
                raise self.spoil(error) if self.state == TransactionState.OPEN else error
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, RETRY_BACKOFF_S_MAX)


def speaks_second(connection: Connection) -> bool:
    """Return whether to use version 2 of the protocol: the cluster has enabled it and both sides support it."""
    known = all(connection.knows(api_key, version) for api_key, version in SECOND.items())
    return known and connection.features.get(FEATURE, 0) >= 2


def first_error(codes: Iterable[int]) -> int:
    """Return the first error code, if possible not OPERATION_NOT_ATTEMPTED, which only means that another failed."""
    failing = [code for code in codes if code]
    telling = [code for code in failing if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return (telling or failing or [0])[0]


def with_code(answer: Any) -> tuple[int, Any]:
    """Return a response with its error code."""
    return answer.error_code, answer
