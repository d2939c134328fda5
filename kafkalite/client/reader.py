"""Ranges of partitions as columns, in order per partition.

One fetch is under way at each leader. When its answer is here, the offsets to go on from are read off the batch headers
and the next fetch is sent; only then are the records decoded, so that broker and client work at the same time.

    sent ──answer──▶ [advance · send the next] ──▶ decode ──▶ chunks, one a partition that had records

A partition ends at its entry in `ends`; without one it is read for ever. Leaders that move and connections that break
are followed; OffsetOutOfRange is raised unless `reset` says where to go on.

Thread rule: one thread at a time, that of the Client. Chunks are the caller's own.
"""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kafkalite._native.batch import BatchError
from kafkalite._native.columns import following_offset
from kafkalite.client.client import READ_COMMITTED, READ_UNCOMMITTED, RETRY_BACKOFF_S_MAX, by_topic
from kafkalite.client.errors import BrokerUnreachable, ConnectionLost, RequestTimeout
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.protocol.api import FETCH
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.batches import AbortedTransactions, BatchReader
from kafkalite.record.compression import DECOMPRESSED_SIZE_MAX, CompressionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.client.client import Client
    from kafkalite.client.connection import Connection
    from kafkalite.record.columns import Record, RecordColumns

FETCH_VERSION_MAX = 12
"""The last version that names topics by name."""
FETCH_SIZE = 8 * 1024 * 1024
"""Bytes asked for at once from one leader, and from one partition; one batch larger than that still comes whole."""
CHUNK_SIZE = 16 * 1024 * 1024
"""Bytes of keys and values decompressed before they are handed out."""
MAX_WAIT_MS = 500


class Chunk(NamedTuple):
    """Records of one partition, in order. Offsets may have gaps; `next_offset` is where the following chunk begins."""

    partition: TopicPartition
    columns: RecordColumns
    next_offset: int
    high_watermark: int

    def records(self) -> Iterator[Record]:
        """One object a record: convenient, and far slower than the columns."""
        return self.columns.records()


class Position:
    """How far one partition is."""

    __slots__ = ("end", "failing_since", "high_watermark", "key", "log_start", "offset")

    def __init__(self, key: TopicPartition, offset: int, end: int | None) -> None:
        self.key = key
        self.offset = offset
        self.end = end
        self.high_watermark = -1
        self.log_start = -1
        self.failing_since: float | None = None

    @property
    def done(self) -> bool:
        return self.end is not None and self.offset >= self.end


class Reader:
    """See the module. Iterate over it, or call `poll`.

    `ends`              where to stop, exclusive; partitions without an entry never end
    `isolation`         READ_COMMITTED leaves out aborted transactions and stops before open ones
    `fetch_size`        bytes asked for at once; memory in use is a few times that
    `max_wait_ms`       how long a broker may wait for the first byte
    `reset`             "earliest" or "latest": where to go on after OffsetOutOfRange, which is raised otherwise
    `check_crcs`        verify each batch
    """

    def __init__(
        self,
        client: Client,
        starts: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        isolation: int = READ_UNCOMMITTED,
        fetch_size: int = FETCH_SIZE,
        max_wait_ms: int = MAX_WAIT_MS,
        reset: str | None = None,
        check_crcs: bool = True,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
    ) -> None:
        if reset not in {None, "earliest", "latest"}:
            raise ValueError(f"reset is {reset!r}; it may be 'earliest', 'latest' or None")
        self._client = client
        limits = ends or {}
        self._positions = {key: Position(key, offset, limits.get(key)) for key, offset in starts.items()}
        self._isolation = isolation
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._reset = reset
        self._batches = BatchReader(decompressed_size_max=decompressed_size_max, check_crcs=check_crcs)
        self._lane = f"reader-{id(self)}"
        self._sent: dict[Connection, list[Position]] = {}
        self._backoff_s = client.retry_backoff_s
        self._retry_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops fetches under way, with their connections: their answers would meet the next question."""
        self._sent.clear()
        self._client.close_lane(self._lane)
        self._batches.close()

    @property
    def done(self) -> bool:
        """Whether every partition is at its end."""
        return all(position.done for position in self._positions.values())

    def position(self, key: TopicPartition) -> int:
        """The offset that comes next."""
        return self._positions[key].offset

    def high_watermark(self, key: TopicPartition) -> int:
        """The end of the partition as of its last answer; -1 before the first."""
        return self._positions[key].high_watermark

    def __iter__(self) -> Iterator[Chunk]:
        while not self.done:
            yield from self._answers()

    def poll(self) -> list[Chunk]:
        """Waits for an answer from one leader at least; the records that came, maybe none.

        Iterating needs less memory: it decodes what is compressed piece by piece.
        """
        return list(self._answers())

    def _answers(self) -> Iterator[Chunk]:
        self._send_all()
        for connection in self._ready():
            yield from self._take(connection)

    # --- asking ------------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        """Sees to it that each leader of an unfinished partition has a fetch under way."""
        pause = self._retry_at - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        busy = {position.key for positions in self._sent.values() for position in positions}
        waiting = [p.key for p in self._positions.values() if not p.done and p.key not in busy]
        try:
            for connection, keys in self._client.by_leader(waiting, self._lane):
                if connection not in self._sent:
                    self._send(connection, keys)
        except (KafkaError, ConnectionLost, RequestTimeout, BrokerUnreachable) as error:
            if not self._client.is_passing(error):
                raise
            self._fail([self._positions[key] for key in waiting], error)

    def _send(self, connection: Connection, keys: list[TopicPartition]) -> None:
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_size,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=self._positions[TopicPartition(topic, partition)].offset,
                            partition_max_bytes=self._fetch_size,
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in by_topic(keys)
            ],
        )
        timeout_s = self._client.request_timeout_s + self._max_wait_ms / 1000
        connection.send(FETCH, request, version_max=FETCH_VERSION_MAX, timeout_s=timeout_s)
        self._sent[connection] = [self._positions[key] for key in keys]

    def _ready(self) -> list[Connection]:
        """The connections that have an answer, waiting for the first; all when the wait is over (they are overdue)."""
        if len(self._sent) <= 1:
            return list(self._sent)
        with selectors.DefaultSelector() as selector:
            for connection in self._sent:
                selector.register(connection, selectors.EVENT_READ, connection)
            events = selector.select(self._client.request_timeout_s + self._max_wait_ms / 1000)
        ready = {key.data for key, _ in events}
        answered = [connection for connection in self._sent if connection in ready or connection.overdue]
        return answered or list(self._sent)

    # --- taking ------------------------------------------------------------------------------------------------------

    def _take(self, connection: Connection) -> Iterator[Chunk]:
        positions = self._sent.pop(connection)
        try:
            answer = connection.receive()[1]
        except (ConnectionLost, RequestTimeout) as error:
            self._fail(positions, error)
            return
        if answer.error_code:
            self._fail(positions, error_for(answer.error_code))
            return
        found = []
        for topic in answer.responses:
            for row in topic.partitions:
                position = self._positions.get(TopicPartition(topic.topic, row.partition_index))
                if position is not None and self._accept(position, row):
                    offset = position.offset
                    following = following_offset(row.records, offset)
                    position.offset = following if position.end is None else min(following, position.end)
                    found.append((position, offset, row))
        # Rotated, so that a full partition cannot starve the ones behind it.
        keys = [p.key for p in positions if not p.done]
        with_data = {position.key for position, offset, _ in found if position.offset > offset}
        keys = [k for k in keys if k not in with_data] + [k for k in keys if k in with_data]
        if keys and not any(position.failing_since for position in positions):
            try:
                self._send(connection, keys)
            except (ConnectionLost, RequestTimeout) as error:
                self._fail(positions, error)
        for position, offset, row in found:
            yield from self._decode(position, offset, row)

    def _accept(self, position: Position, row: Any) -> bool:
        """Whether this partition's answer has records; its errors are dealt with here."""
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset is not None:
            asked = OFFSET_EARLIEST if self._reset == "earliest" else OFFSET_LATEST
            position.offset = self._client.list_offsets({position.key: asked}, isolation=self._isolation)[
                position.key
            ].offset
            return False
        if row.error_code:
            error = error_for(row.error_code, f"{position.key}: cannot fetch at offset {position.offset}")
            if not error.retriable:
                raise error
            self._fail([position], error)
            return False
        position.failing_since = None
        self._backoff_s = self._client.retry_backoff_s
        position.high_watermark = row.high_watermark
        position.log_start = row.log_start_offset
        return bool(row.records)

    def _decode(self, position: Position, offset: int, row: Any) -> Iterator[Chunk]:
        """The answer's records in chunks of CHUNK_SIZE decompressed bytes or a little more."""
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = AbortedTransactions(
                (entry.producer_id, entry.first_offset) for entry in row.aborted_transactions or ()
            )
        target = position.offset
        while offset < target:
            try:
                following = self._batches.read(row.records, offset, position.end, aborted, size_max=CHUNK_SIZE)
            except (BatchError, CompressionError) as error:
                raise error_for(
                    ErrorCode.CORRUPT_MESSAGE, f"{position.key}: a batch behind offset {offset} cannot be read: {error}"
                ) from error
            assert following > offset, "headers promised records that are not there"
            offset = following
            yield Chunk(position.key, self._batches.take(), offset, row.high_watermark)

    def _fail(self, positions: list[Position], error: Exception) -> None:
        """Notes a failure that may pass; raises it when it has lasted for the client's retry_timeout_s."""
        now = time.monotonic()
        for position in positions:
            self._client.forget(position.key.topic)
            position.failing_since = position.failing_since or now
            if now - position.failing_since > self._client.retry_timeout_s:
                raise error
        self._retry_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, RETRY_BACKOFF_S_MAX)
