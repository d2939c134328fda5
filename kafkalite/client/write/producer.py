"""Encode columns as record batches and send them to partition leaders, in order per partition, with retries.

    send                                 records are encoded as batches, which wait in order
    fewer requests than in_flight_max    the next batches are sent to the leader
    acknowledged                         the batches are delivered
    retriable error, lost connection     the batches wait again, in sequence order, and are sent after a pause
    MESSAGE_TOO_LARGE                    the batch is split in two halves, which wait again

With acks=all the producer is idempotent by default (KIP-98): each batch carries a producer id and a sequence number.

With a `transactional_id`, every batch is part of a transaction (`kafkalite.client.write.transactions`).

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from kafkalite._native.wire.batch import read_info
from kafkalite._native.wire.columns import adopt
from kafkalite.base.dataclass import dataclass
from kafkalite.client.cluster import RETRY_BACKOFF_S_MAX
from kafkalite.client.errors import (
    UNREACHED,
    ClientError,
    ConnectionLost,
    DeliveryFailed,
    ProtocolError,
    RequestTimeout,
)
from kafkalite.client.write.transactions import (
    INIT_VERSION_MAX,
    PreparedTransaction,
    ProducerTransactions,
    TransactionState,
)
from kafkalite.errors import ErrorCode, KafkaError, ProducerFenced, error_for
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.api import API_VERSIONS, INIT_PRODUCER_ID, PRODUCE
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.record.batches import BATCH_SIZE_MAX, decode, encode_batch, no_items
from kafkalite.wire.record.batches import Producer as ProducerId
from kafkalite.wire.record.columns import BytesColumn, Record, RecordColumns, slice_of
from kafkalite.wire.record.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

    from kafkalite.client.cluster import Cluster
    from kafkalite.client.committed import GroupMetadata, Offsets
    from kafkalite.client.connection import Connection

    Sendable = RecordColumns | Sequence[Record] | Sequence[bytes | None]

PRODUCE_VERSION_MAX: Final = 11
"""The last version before the new transaction protocol; it identifies topics by name."""
API_VERSIONS_BARE: Final = 2
"""The last ApiVersions version without the name of the client software."""
IN_FLIGHT_MAX: Final = 5
"""Requests per leader without a response; brokers remember five batches of an idempotent producer."""
DELIVERY_TIMEOUT_S: Final = 120.0
TRANSACTION_TIMEOUT_S: Final = 60.0
SEND_TIMEOUT_S_MIN: Final = 0.05
"""Minimum time for the response to a batch whose delivery timeout is nearly over."""
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
ACKS_NONE: Final = 0
SEQUENCE_COUNT: Final = 2**31


@dataclass(slots=True)
class Delivery:
    """Acknowledged records of one partition."""

    partition: TopicPartition
    first_offset: int = -1
    """Offset of the first acknowledged record; -1 if there is none, and for acks=0."""
    end_offset: int = -1
    """Offset after the last acknowledged record."""
    record_count: int = 0
    """Records acknowledged; with acks=0, handed to the operating system."""
    batch_count: int = 0


@dataclass(slots=True)
class Batch:
    """An encoded batch that is not acknowledged yet."""

    partition: TopicPartition
    raw: bytearray
    count: int
    sequence: int
    deadline: float
    refused_at: float = 0.0
    """When it was first rejected with a retriable error; 0 if never."""


@dataclass(slots=True)
class Stream:
    """The batches of one partition that wait to be sent, in order, and its next sequence."""

    waiting: deque[Batch] = field(default_factory=deque)
    sequence: int = 0


class Producer:
    """Writes to partitions; see the module. Call `send` repeatedly, then `flush`; leaving the `with` block flushes.

    `acks`              -1 all (written to disk first, if the broker is configured so), 1 leader, 0 none
    `codec`, `level`    compression of whole batches
    `idempotent`        default: True with acks=all; False: retries may store a batch twice or out of order
    `batch_size`        maximum bytes of records in a batch before compression
    `in_flight_max`     requests per leader without a response
    `delivery_timeout_s`   time for a batch including retries, after which DeliveryFailed is raised
    `refusal_timeout_s` time for retries after retriable errors from a broker, not after lost connections;
                        None: `delivery_timeout_s`
    `transactional_id`  makes the producer transactional and fences an older producer with the same id
    `transaction_timeout_s`   the broker aborts a transaction that is open for longer
    `on_acknowledged`   called for each batch, in order per partition: with the partition, the offset of the first
                        record (-1: unknown, for example with acks=0) and the record count
    """

    def __init__(
        self,
        client: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: int = Codec.NONE,
        level: int | None = None,
        idempotent: bool | None = None,
        batch_size: int = BATCH_SIZE_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        refusal_timeout_s: float | None = None,
        transactional_id: str | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        on_acknowledged: Callable[[TopicPartition, int, int], object] | None = None,
    ) -> None:
        if acks not in {ACKS_ALL, ACKS_LEADER, ACKS_NONE}:
            raise ValueError(f"acks must be -1 (all), 1 or 0, not {acks}")
        if idempotent and acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        if transactional_id is not None and (acks != ACKS_ALL or idempotent is False or not transactional_id):
            raise ValueError("a transactional producer needs a transactional_id, idempotence and acks=-1 (all)")
        self._client = client
        self._acks = acks
        self._codec = codec
        self._level = level
        self._idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self._batch_size = batch_size
        self._in_flight_max = min(in_flight_max, IN_FLIGHT_MAX) if self._idempotent else in_flight_max
        self._delivery_timeout_s = delivery_timeout_s
        self._refusal_timeout_s = refusal_timeout_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._transactions: ProducerTransactions | None = None
        if transactional_id is not None:
            self._transactions = ProducerTransactions(client, transactional_id, transaction_timeout_s)
        self._anything_lost = False
        """Whether a batch of this epoch may still reach the broker."""
        self._streams: dict[TopicPartition, Stream] = {}
        self._in_flight: dict[Connection, deque[Batch]] = {}
        self._unanswered: set[Connection] = set()
        self._deliveries: dict[TopicPartition, Delivery] = {}
        self._failure: DeliveryFailed | None = None
        self._lane = f"producer-{id(self)}"
        self._backoff_s = client.retry_backoff_s
        self._on_acknowledged = on_acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if self._client.inherited:
                pass  # the parent process delivers the rest
            elif self._transactions is not None and self._transactions.state in {
                TransactionState.OPEN,
                TransactionState.ABORT_ONLY,
            }:
                with contextlib.suppress(KafkaError, ClientError):  # the transaction will time out
                    self.abort_transaction()
            elif kind is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Drop undelivered records and close the connections. Call `flush` first."""
        self._streams.clear()
        self._in_flight.clear()
        self._client.close_lane(self._lane)

    @property
    def deliveries(self) -> dict[TopicPartition, Delivery]:
        """The acknowledged records of each partition."""
        return self._deliveries

    @property
    def record_count(self) -> int:
        """Records acknowledged so far."""
        return sum(delivery.record_count for delivery in self._deliveries.values())

    def delivery(self, topic: str, partition: int) -> Delivery:
        """Return the acknowledged records of one partition."""
        key = TopicPartition(topic, partition)
        return self._deliveries.setdefault(key, Delivery(key))

    def send(
        self,
        topic: str,
        partition: int,
        records: Sendable,
        *,
        timestamp: int | None = None,
        codec: int | None = None,
    ) -> None:
        """Encode and send records. Only `flush` waits for all acknowledgements.

        `records` are columns, Records or plain values. Records without a timestamp get `timestamp` (ms, default: now).
        `codec` overrides the producer's codec. Raises DeliveryFailed if an earlier batch failed, or if the broker
        rejects these records.
        """
        key = self._prepare(topic, partition)
        columns, now = stamped(records, timestamp)
        stream = self._streams.setdefault(key, Stream())
        chosen = self._codec if codec is None else codec
        first = 0
        while first < len(columns):
            identity = self._identity(stream.sequence)
            raw, count = encode_batch(
                columns,
                first,
                codec=chosen,
                level=self._level if chosen == self._codec else None,
                size_max=self._batch_size,
                timestamp=now,
                producer=identity if self._idempotent else ProducerId(),
            )
            first += count
            self._enqueue(key, stream, raw, count)

    def send_batch(self, topic: str, partition: int, batch: Buffer) -> int:
        """Send a batch that was fetched from another log; return its record count. Only its producer fields are
        changed.

        The batch must be complete, of magic 2, and dense (last offset delta + 1 == record count), like batches from
        clients. Raises ValueError otherwise, and the errors of `send`.
        """
        raw = bytearray(batch)
        info = read_info(raw)
        if info.size != len(raw) or info.record_count < 1 or info.last_offset_delta + 1 != info.record_count:
            raise ValueError("expected exactly one batch whose offsets have no gaps")
        if info.is_control or info.is_log_append_time:
            raise ValueError("a producer cannot send a control batch or a batch with LogAppendTime")
        key = self._prepare(topic, partition)
        stream = self._streams.setdefault(key, Stream())
        identity = self._identity(stream.sequence) if self._idempotent else ProducerId()
        adopt(
            raw,
            transactional=identity.transactional,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=identity.sequence,
        )
        self._enqueue(key, stream, raw, info.record_count)
        return info.record_count

    def _prepare(self, topic: str, partition: int) -> TopicPartition:
        """Prepare a partition for its first batch."""
        self._raise_failure()
        key = TopicPartition(topic, partition)
        if self._transactions is not None:
            self._client.partitions(topic)  # a missing topic must not fail the transaction
            self._transactions.add(key)
        elif self._idempotent and self._producer_id < 0:
            self._client.with_retries(self._initialise)
        return key

    def _enqueue(self, key: TopicPartition, stream: Stream, raw: bytearray, count: int) -> None:
        deadline = time.monotonic() + self._delivery_timeout_s
        stream.waiting.append(Batch(key, raw, count, stream.sequence, deadline))
        stream.sequence = (stream.sequence + count) % SEQUENCE_COUNT
        self._push(key)
        self._raise_failure()

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises DeliveryFailed and KafkaError."""
        while self._pending():
            for key, stream in self._streams.items():
                if stream.waiting:
                    self._push(key)
            for connection in list(self._in_flight):
                self._collect(connection)
        self._settle()
        self._raise_failure()

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Run a `with` block as a transaction: commit at its end, or abort after an exception and raise the exception.

            with producer.transaction():
                producer.send("out", 0, records)
                producer.send_offsets_to_transaction(reader.positions, reader.group_metadata)

        Raises TransactionAborted if the commit failed and the transaction was aborted. Raises ProducerFenced if a newer
        producer uses this transactional id.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            if self._manager.state in {TransactionState.OPEN, TransactionState.ABORT_ONLY}:
                try:
                    self.abort_transaction()
                except (KafkaError, ClientError) as failure:
                    if isinstance(failure, KafkaError):
                        raise failure from error
                    error.add_note(f"the abort failed too, so the transaction stays open until it times out: {failure}")
            raise

    def init_transactions(self) -> None:
        """Initialize the transactional id and fence an older producer; `begin_transaction` calls it if needed."""
        self._manager.initialise()
        self._forget_sequences()

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises RuntimeError if one is open."""
        if self._manager.state == TransactionState.NEW:
            self.init_transactions()
        self._manager.begin()

    def commit_transaction(self) -> None:
        """Flush and commit. Raises TransactionAborted (call abort_transaction) or a fatal error such as ProducerFenced.

        After a ClientError (no coordinator in time) the outcome is unknown; then call this method again.
        """
        if self._manager.state == TransactionState.OPEN:
            self.flush()
        if self._manager.end(commit=True):
            self._forget_sequences()

    def abort_transaction(self) -> None:
        """Abort the transaction: read_committed consumers see nothing sent since `begin_transaction`."""
        manager = self._manager
        manager.require(TransactionState.OPEN, TransactionState.ABORT_ONLY, TransactionState.ABORTING)
        self._abandon()
        self._failure = None
        if manager.end(commit=False):
            self._forget_sequences()
        elif self._anything_lost:
            manager.renew()
            self._forget_sequences()

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit these offsets with the transaction. Each offset is that of the next record to read.

        `group` is GroupReader.group_metadata. Raises TransactionAborted if the member was replaced (KIP-447).
        """
        self._raise_failure()
        self._manager.send_offsets(offsets, group)

    def prepare_transaction(self) -> PreparedTransaction:
        """Flush, and leave the transaction open for `resume_transaction` in any process. Call `close` afterwards.

        The transaction is open until it times out, or until a newer producer uses the transactional id.
        """
        self.flush()
        prepared = self._manager.prepared
        self._manager.leave()
        return prepared

    def resume_transaction(self, prepared: PreparedTransaction) -> None:
        """Resume a transaction that another producer with this transactional id prepared, to commit or abort it.

        No request is sent. If the transaction is no longer open, the commit or abort raises ProducerFenced or
        InvalidTxnState. Before that, send only to partitions to which the transaction has not written.
        """
        self._manager.resume(prepared)
        self._forget_sequences()

    @property
    def _manager(self) -> ProducerTransactions:
        if self._transactions is None:
            raise RuntimeError("this producer has no transactional_id, so it cannot use transactions")
        return self._transactions

    def _identity(self, sequence: int) -> ProducerId:
        """Return the producer id and epoch for a batch."""
        if self._transactions is not None:
            return ProducerId(self._transactions.producer_id, self._transactions.epoch, sequence, transactional=True)
        return ProducerId(self._producer_id, self._producer_epoch, sequence)

    def _abandon(self) -> None:
        """Stop sending and wait for requests in flight, so that no batch arrives after the abort."""
        for stream in self._streams.values():
            self._anything_lost |= bool(stream.waiting)
            stream.waiting.clear()
        for connection, batches in list(self._in_flight.items()):
            try:
                while batches:
                    code, _, base_offset = receive_one(connection)
                    batch = batches.popleft()
                    if code:
                        self._anything_lost = True
                    else:
                        self._delivered(batch, base_offset)
            except ClientError:
                self._anything_lost = True
        self._in_flight.clear()

    def _forget_sequences(self) -> None:
        """Reset the sequence numbers to 0, as each new producer epoch requires."""
        self._streams.clear()
        self._anything_lost = False

    def _settle(self) -> None:
        """With acks=0, send a last request and wait for its response: then the broker has read all batches.

        Lost connections are ignored.
        """
        for connection in self._unanswered:
            with contextlib.suppress(ConnectionLost, RequestTimeout):
                connection.request(API_VERSIONS, ApiVersionsRequest(), version_max=API_VERSIONS_BARE)
        self._unanswered.clear()

    # --- sending ------------------------------------------------------------------------------------------------------

    def _pending(self) -> bool:
        return any(self._in_flight.values()) or any(stream.waiting for stream in self._streams.values())

    def _initialise(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self._client.any_connection().request(INIT_PRODUCER_ID, request, version_max=INIT_VERSION_MAX)
        if answer.error_code:
            raise error_for(answer.error_code)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    def _push(self, key: TopicPartition) -> None:
        """Send the waiting batches of a partition. Collect responses while `in_flight_max` requests are in flight."""
        stream = self._streams[key]
        while stream.waiting:
            try:
                connection = self._client.leader(key, self._lane)
                self._finish_elsewhere(key, connection)
                while len(self._in_flight.get(connection, ())) >= self._in_flight_max:
                    self._collect_one(connection)
                if stream.waiting:  # collecting may have returned batches to the queue, or dropped them
                    self._put_on_wire(connection, stream)
            except (KafkaError, *UNREACHED) as error:
                self._recover(key, error)

    def _finish_elsewhere(self, key: TopicPartition, connection: Connection) -> None:
        """After a leader change, collect the old leader's responses first.

        Otherwise the new leader would see a gap in the sequence numbers.
        """
        for other, batches in list(self._in_flight.items()):
            if other is not connection:
                while any(batch.partition == key for batch in batches):
                    self._collect_one(other)
                    batches = self._in_flight.get(other, deque())

    def _put_on_wire(self, connection: Connection, stream: Stream) -> None:
        batch = stream.waiting[0]
        raw: Any = batch.raw  # the codec accepts a bytearray
        transactions = self._transactions
        request = ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self._acks,
            timeout_ms=int(self._client.request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name=batch.partition.topic,
                    partition_data=[PartitionProduceData(index=batch.partition.partition, records=raw)],
                )
            ],
        )
        answered = self._acks != ACKS_NONE
        version_max = PRODUCE_VERSION_MAX if transactions is None else transactions.produce_version_max
        left_s = max(batch.deadline - time.monotonic(), SEND_TIMEOUT_S_MIN)
        timeout_s = min(self._client.request_timeout_s, left_s)
        connection.send(PRODUCE, request, version_max=version_max, timeout_s=timeout_s, answered=answered)
        stream.waiting.popleft()
        if answered:
            self._in_flight.setdefault(connection, deque()).append(batch)
        else:
            self._unanswered.add(connection)
            self._delivered(batch, -1)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _collect(self, connection: Connection) -> None:
        """Receive every pending response of one connection."""
        try:
            while self._in_flight.get(connection):
                self._collect_one(connection)
        except (ConnectionLost, RequestTimeout) as error:
            self._recover(None, error)

    def _collect_one(self, connection: Connection) -> None:
        """Receive one response. After a failed batch, receive all responses and queue the batches that must be sent
        again.
        """
        try:
            code, message, base_offset = receive_one(connection)
        except ClientError:
            self._put_back(self._in_flight.pop(connection))
            raise
        batch = self._in_flight[connection].popleft()
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._delivered(batch, -1 if code else base_offset)
            return
        self._refused(connection, batch, code, message)

    def _refused(self, connection: Connection, batch: Batch, code: int, message: str | None) -> None:
        """Handle a batch's error. First collect the responses of later batches, so that no retry overtakes them.

        From an idempotent producer, the broker rejects later batches of the same partition too, because their sequence
        numbers leave a gap (OUT_OF_ORDER_SEQUENCE_NUMBER).
        """
        again = [batch]
        failed = {batch.partition}
        others = self._in_flight.pop(connection)
        while others:
            try:
                following_code, following_message, base_offset = receive_one(connection)
            except ClientError:
                again += others
                break
            following = others.popleft()
            if not following_code or following_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._delivered(following, -1 if following_code else base_offset)
            elif following.partition in failed or is_worth_repeating(following_code):
                again.append(following)
                failed.add(following.partition)
            else:
                self._give_up(following, error_for(following_code, following_message))
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            again[:1] = self._halves(batch)
            self._put_back(deque(again))
            return
        if error_for(code).retriable and batch.deadline > time.monotonic() and not self._refused_too_long(batch):
            self._put_back(deque(again))
            self._client.forget(batch.partition.topic)
            self._pause()
            return
        self._put_back(deque(again[1:]))
        self._give_up(batch, error_for(code, message))

    def _halves(self, batch: Batch) -> list[Batch]:
        """Split a batch into two with the same records, sequences and codec."""
        columns = decode(batch.raw)
        codec = read_info(batch.raw).codec
        middle = batch.count // 2
        halves = []
        for first, end in ((0, middle), (middle, batch.count)):
            part = slice_of(columns, first, end)
            sequence = (batch.sequence + first) % SEQUENCE_COUNT
            identity = self._identity(sequence)
            raw, count = encode_batch(
                part,
                codec=codec,
                level=self._level if codec == self._codec else None,
                size_max=2**31 - 1,
                producer=identity if self._idempotent else ProducerId(),
            )
            assert count == end - first, "a half fits where the whole did"
            halves.append(Batch(batch.partition, raw, count, sequence, batch.deadline))
        return halves

    def _put_back(self, batches: deque[Batch]) -> None:
        """Put batches back at the front of the queue, in order per partition."""
        while batches:
            batch = batches.pop()
            self._streams[batch.partition].waiting.appendleft(batch)

    def _delivered(self, batch: Batch, base_offset: int) -> None:
        delivery = self.delivery(*batch.partition)
        delivery.record_count += batch.count
        delivery.batch_count += 1
        if base_offset >= 0:
            delivery.first_offset = base_offset if delivery.first_offset < 0 else delivery.first_offset
            delivery.end_offset = base_offset + batch.count
        if self._on_acknowledged is not None:
            self._on_acknowledged(batch.partition, base_offset, batch.count)
        self._backoff_s = self._client.retry_backoff_s

    # --- failures -----------------------------------------------------------------------------------------------------

    def _recover(self, key: TopicPartition | None, error: Exception) -> None:
        """Pause after a lost connection, or while there is no leader, so that batches are retried.

        After the delivery timeout, the batches fail.
        """
        for connection in [connection for connection in self._in_flight if connection.closed]:
            self._put_back(self._in_flight.pop(connection))
        for waiting_key, stream in self._streams.items():
            if stream.waiting:
                self._client.forget(waiting_key.topic)
        now = time.monotonic()
        first = [stream.waiting[0] for stream in self._streams.values() if stream.waiting]
        overdue = [batch for batch in first if batch.deadline < now]
        if key is not None and self._streams[key].waiting:
            refused = isinstance(error, KafkaError) and self._refused_too_long(self._streams[key].waiting[0])
            if refused or not self._client.is_passing(error):
                self._give_up(self._streams[key].waiting.popleft(), error)
        for batch in overdue:
            if self._streams[batch.partition].waiting and self._streams[batch.partition].waiting[0] is batch:
                self._streams[batch.partition].waiting.popleft()
                self._give_up(batch, error)
        self._pause()

    def _refused_too_long(self, batch: Batch) -> bool:
        """Note that a batch was rejected; return whether it has been rejected for `refusal_timeout_s`."""
        now = time.monotonic()
        batch.refused_at = batch.refused_at or now
        return self._refusal_timeout_s is not None and now - batch.refused_at > self._refusal_timeout_s

    def _pause(self) -> None:
        time.sleep(self._backoff_s)
        self._backoff_s = min(2 * self._backoff_s, RETRY_BACKOFF_S_MAX)

    def _give_up(self, batch: Batch, error: Exception) -> None:
        """Store the first failure, and drop the partition's later batches: they would be written out of order."""
        waiting = self._streams[batch.partition].waiting
        lost = batch.count + sum(following.count for following in waiting)
        waiting.clear()
        self._anything_lost = True
        if self._failure is None:
            name = f" ({error.name})" if isinstance(error, KafkaError) else ""
            late = f" within {self._delivery_timeout_s:g} s" if time.monotonic() >= batch.deadline else ""
            text = f"{lost} records for {batch.partition} were not acknowledged{late}: {error}{name}"
            self._failure = DeliveryFailed(text, lost, batch.partition)
            self._failure.__cause__ = error
        else:
            self._failure.unacknowledged += lost

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        if self._transactions is not None:
            raise self._spoilt(self._transactions, self._failure)
        raise self._failure

    def _spoilt(self, transactions: ProducerTransactions, failure: DeliveryFailed) -> Exception:
        """Return the error to raise in the transaction of a batch that was not delivered.

        If the broker rejects the epoch as old, it is unclear whether a newer producer exists. The coordinator's
        response to an abort shows it.
        """
        cause = failure.__cause__
        return transactions.spoil(cause if isinstance(cause, ProducerFenced) else failure)


def is_worth_repeating(code: int) -> bool:
    """Return whether a batch rejected with this code may be accepted later, whole or in halves."""
    return code == ErrorCode.MESSAGE_TOO_LARGE or error_for(code).retriable


def receive_one(connection: Connection) -> tuple[int, str | None, int]:
    """Receive the next Produce response; return (error code, message, base offset) of its only partition."""
    answer = connection.receive()[1]
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    if len(rows) != 1:
        connection.close()
        raise ProtocolError(f"the Produce response of {connection.address} has {len(rows)} partitions; expected 1")
    (row,) = rows
    message = row.error_message
    if row.record_errors and row.record_errors[0].batch_index_error_message:
        first = row.record_errors[0]
        message = f"record {first.batch_index} of the batch: {first.batch_index_error_message}"
    return row.error_code, message, row.base_offset


def stamped(records: Sendable, timestamp: int | None) -> tuple[RecordColumns, int]:
    """Convert records to columns. Return the columns and the default timestamp in ms: `timestamp`, or now."""
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return (records if isinstance(records, RecordColumns) else columns_of(records, now)), now


def columns_of(records: Sequence[Record] | Sequence[bytes | None], now_ms: int) -> RecordColumns:
    """Convert Records (with `now_ms` as default timestamp) or plain values to columns."""
    if records and isinstance(records[0], Record):
        return RecordColumns.from_records(
            record if record.timestamp >= 0 else record._replace(timestamp=now_ms)
            for record in cast("Sequence[Record]", records)
        )
    none = np.empty(0, np.int64)
    return RecordColumns(none, none, no_items(), BytesColumn.from_items(cast("Sequence[bytes | None]", records)))
