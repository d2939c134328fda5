"""Let a group member of `kafkalite.failures` read and write with kafkalite's columnar client.

Thread rule: everything belongs to the runner's thread, except `transact` and `write`, which use a separate client.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalite.client import (
    READ_COMMITTED,
    ClientError,
    CommitFailed,
    DeliveryFailed,
    GroupMetadata,
    Producer,
    TransactionAborted,
)
from kafkalite.errors import CorruptMessage, ErrorCode, KafkaError
from kafkalite.failures.events import Message
from kafkalite.failures.runner import CommitRefused, DamagedBatch, Fetch
from kafkalite.failures.transaction_writer import TransactionFailed
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.client import Chunk, Client, GroupReader
    from kafkalite.failures.transaction_writer import Written

FETCH_SIZE: Final = 1024 * 1024
TRANSACTION_TIMEOUT_S: Final = 30.0
COMMIT_TIMEOUT_S: Final = 5.0
OUTCOME_WAIT_S: Final = 120.0
"""How long to retry the commit of a transaction whose outcome is unknown."""

logger = logging.getLogger(__name__)


class ColumnarPort:
    """Reads and writes with kafkalite's client.

    `transactional_id` must be unique to the member; `options` are those of GroupReader.
    """

    by_partition = False
    reports_damage = True

    def __init__(self, client: Client, transactional_id: str, **options: object) -> None:
        self._client = client
        self._writing = client.twin()
        self._transactional_id = transactional_id
        self._options = options
        self._reader: GroupReader | None = None
        self._transactional: Producer | None = None
        self._plain: Producer | None = None

    def claim(self) -> None:
        self._claimed().init_transactions()

    def _claimed(self) -> Producer:
        if self._transactional is None:
            self._transactional = self._writing.producer(
                transactional_id=self._transactional_id, transaction_timeout_s=TRANSACTION_TIMEOUT_S
            )
        return self._transactional

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._reader = self._client.group_reader(
            group,
            topics,
            **{
                "reset": "earliest",
                "isolation": READ_COMMITTED,
                "assignors": ("range",),
                "fetch_size": FETCH_SIZE,
                "raises_truncation": True,
                "on_assigned": on_assigned,
                "on_revoked": on_revoked,
                "on_lost": on_lost,
                **self._options,
            },
        )

    @property
    def reader(self) -> GroupReader:
        assert self._reader is not None, "open"
        return self._reader

    def poll(self, timeout_s: float) -> list[Fetch]:
        try:
            chunks = self.reader.poll(timeout_s)
        except CorruptMessage as error:
            if error.partition is None:
                raise
            raise DamagedBatch(error.message, TopicPartition(*error.partition), error.offset) from error
        return [Fetch(chunk.partition, messages_of(chunk), chunk.next_offset) for chunk in chunks]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.reader.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        return self.reader.positions.get(partition, -1)

    def pause(self, partition: TopicPartition) -> None:
        self.reader.pause([partition])

    def resume(self, partition: TopicPartition) -> None:
        self.reader.resume([partition])

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self.reader.commit(dict(offsets), timeout_s=COMMIT_TIMEOUT_S)
        except CommitFailed as error:
            raise CommitRefused(str(error)) from error

    def commit_soon(self, offsets: Mapping[TopicPartition, int], ended: Callable[[Exception | None], None]) -> None:
        try:
            self.reader.commit_async(dict(offsets), lambda _, error: ended(error))
        except CommitFailed as error:
            ended(error)

    def settle(self) -> None:
        self.reader.commit_async({})  # an empty commit after all that are under way

    def member(self) -> GroupMetadata:
        return self.reader.group_metadata

    # --- writing ------------------------------------------------------------------------------------------------------

    def transact(
        self,
        records: Sequence[Written],
        offsets: Mapping[TopicPartition, int],
        scope: TopicPartition | None,
        member: object,
    ) -> None:
        assert scope is None, "the group metadata names the member"
        assert isinstance(member, GroupMetadata)
        try:
            producer = self._claimed()
            producer.begin_transaction()
            self._send(producer, records)
            producer.send_offsets_to_transaction(self.reader.with_epochs(offsets), member)
            producer.flush()
        except (KafkaError, ClientError) as error:
            self._give_up()
            raise failed(error) from error
        self._end(producer)

    def _end(self, producer: Producer) -> None:
        """Commit the transaction. Retry until its outcome is known, for at most OUTCOME_WAIT_S."""
        deadline = time.monotonic() + OUTCOME_WAIT_S
        while True:
            try:
                producer.commit_transaction()
            except (TransactionAborted, DeliveryFailed) as error:
                self._give_up()
                raise failed(error) from error
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("retrying to end a transaction of %s: %s", self._transactional_id, error)
            else:
                return

    def _give_up(self) -> None:
        """Abort the transaction and drop the producer.

        If the abort fails, the start of the next producer aborts the transaction.
        """
        producer, self._transactional = self._transactional, None
        if producer is not None:
            try:
                producer.abort_transaction()
            except (KafkaError, ClientError, RuntimeError) as error:
                logger.info("the transaction of %s was not aborted: %s", self._transactional_id, error)
            producer.close()

    def write(self, records: Sequence[Written]) -> None:
        try:
            if self._plain is None:
                self._plain = self._writing.producer()
            self._send(self._plain, records)
            self._plain.flush()
        except (KafkaError, ClientError) as error:
            if self._plain is not None:
                self._plain.close()
                self._plain = None
            raise failed(error) from error

    def _send(self, producer: Producer, records: Sequence[Written]) -> None:
        by_place: dict[TopicPartition, list[Message]] = defaultdict(list)
        for topic, partition, message in records:
            number = self._choose(topic, message.key) if partition is None else partition
            by_place[TopicPartition(topic, number)].append(message)
        for place, messages in by_place.items():
            producer.send(*place, columns_of(messages))

    def _choose(self, topic: str, key: bytes | None) -> int:
        """Choose a partition by the key.

        The choice differs from that of Kafka's partitioner. A program that needs Kafka's choice must name the
        partition.
        """
        numbers = self._writing.partitions(topic)
        return numbers[zlib.crc32(key or b"") % len(numbers)]

    def close(self) -> None:
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            for producer in (self._transactional, self._plain):
                if producer is not None:
                    producer.close()
            self._writing.close()


def failed(error: BaseException) -> TransactionFailed:
    """Return the exception for a failed write. If a record was too large, it names the topic."""
    topic = ""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, DeliveryFailed) and reason.partition is not None:
            topic = reason.partition.topic
        if isinstance(reason, KafkaError) and reason.code in {
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.RECORD_LIST_TOO_LARGE,
        }:
            return TransactionFailed(str(error), too_large=True, topic=topic)
        reason = reason.__cause__
    return TransactionFailed(str(error))


def messages_of(chunk: Chunk) -> list[Message]:
    """Convert a chunk of records to messages. Header names keep bytes that are not UTF-8."""
    topic, partition = chunk.partition
    columns = chunk.columns
    types = [0] * len(columns) if columns.timestamp_types is None else columns.timestamp_types.tolist()
    keys, values = columns.keys.to_list(), columns.values.to_list()
    rows = zip(columns.offsets.tolist(), columns.timestamps.tolist(), keys, values, types, strict=True)
    if columns.headers is None:
        return [Message(topic, partition, offset, ms, key, value, (), kind) for offset, ms, key, value, kind in rows]
    spans = zip(columns.headers.record_starts.tolist(), columns.headers.record_ends.tolist(), strict=True)
    cut = columns.headers.values.to_list()
    names = common_names(columns.headers)
    if names is not None:
        return [
            Message(topic, partition, offset, ms, key, value, tuple(zip(names, cut[start:end], strict=True)), kind)
            for (offset, ms, key, value, kind), (start, end) in zip(rows, spans, strict=True)
        ]
    raw = columns.headers.keys.to_list()
    known = {name: name_of(name) for name in set(raw)}
    pairs = list(zip(map(known.__getitem__, raw), cut, strict=True))
    return [
        Message(topic, partition, offset, ms, key, value, tuple(pairs[start:end]), kind)
        for (offset, ms, key, value, kind), (start, end) in zip(rows, spans, strict=True)
    ]


def name_of(name: bytes | None) -> str:
    """Decode the name of a record header."""
    return (name or b"").decode(errors="surrogateescape")


def common_names(headers: HeaderColumns) -> list[str] | None:
    """Return the decoded header names if all records have the same names, else None.

    Letters usually have the same names. Decoding them once per batch saves time.
    """
    records, keys = len(headers), headers.keys
    width, rest = divmod(len(keys), records) if records else (0, 1)
    if rest or not width or keys.nulls is not None:
        return None
    ends = np.arange(width, len(keys) + 1, width)
    if not (np.array_equal(headers.record_ends, ends) and np.array_equal(headers.record_starts, ends - width)):
        return None  # a selection of records: their headers lie among those of others
    sizes = (keys.ends - keys.starts).reshape(records, width)
    if (sizes != sizes[0]).any() or not np.array_equal(keys.starts[1:], keys.ends[:-1]):
        return None
    whole = bytes(memoryview(keys.data)[keys.starts[0] : keys.ends[-1]])
    if whole != whole[: int(sizes[0].sum())] * records:
        return None
    return [name_of(name) for name in keys[:width].to_list()]


def message_of(columns: RecordColumns, source: TopicPartition, row: int) -> Message:
    """Return one record of a batch."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if columns.headers is not None:
        span = range(int(columns.headers.record_starts[row]), int(columns.headers.record_ends[row]))
        headers = tuple(
            ((columns.headers.keys[at] or b"").decode(errors="surrogateescape"), columns.headers.values[at])
            for at in span
        )
    return Message(
        *source,
        int(columns.offsets[row]),
        int(columns.timestamps[row]),
        columns.keys[row],
        columns.values[row],
        headers,
        0 if columns.timestamp_types is None else int(columns.timestamp_types[row]),
    )


def columns_of(messages: Sequence[Message]) -> RecordColumns:
    """Convert messages to columns for a producer."""
    ends = np.cumsum([len(message.headers) for message in messages], dtype=np.int64)
    starts = ends - np.array([len(message.headers) for message in messages], np.int64)
    names = [name for message in messages for name, _ in message.headers]
    encoded = {name: name.encode(errors="surrogateescape") for name in set(names)}
    values = [value for message in messages for _, value in message.headers]
    now_ms = time.time_ns() // 1_000_000
    return RecordColumns(
        np.empty(0, np.int64),
        np.array([message.timestamp if message.timestamp >= 0 else now_ms for message in messages], np.int64),
        BytesColumn.from_items([message.key for message in messages]),
        BytesColumn.from_items([message.value for message in messages]),
        HeaderColumns(
            starts,
            ends,
            BytesColumn.from_items(map(encoded.__getitem__, names)),
            BytesColumn.from_items(values),
        ),
    )
