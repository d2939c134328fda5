"""Read ranges of many partitions as columns: pipelined fetches, retries, damaged batches and diverged logs.

    fetch sent ──response──▶ next offsets, from the batch headers ─▶ send the next fetch ─▶ decode ─▶ chunks

Each leader has at most one fetch in flight. A partition is read up to its offset in `ends`, or until the caller stops.
A failing partition does not stop the others.

A log has diverged if it was truncated or restored, and now has other records below the read position (KIP-320).

Thread rule: one thread at a time, that of the Client. Chunks belong to the caller.
"""

from __future__ import annotations

import logging
import selectors
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite._native.wire.batch import BatchError
from kafkalite._native.wire.columns import last_mark
from kafkalite.client.cluster import FETCH_VERSION_MAX, READ_COMMITTED, READ_UNCOMMITTED, RETRY_BACKOFF_S_MAX, by_topic
from kafkalite.client.errors import UNREACHED, ClientError, ConnectionLost, LogTruncated, ProtocolError, RequestTimeout
from kafkalite.client.read.damage import has_other_in_sync
from kafkalite.client.read.marks import UNMARKED, EpochHistory, Mark, Position
from kafkalite.errors import CorruptMessage, ErrorCode, KafkaError, UnknownTopicOrPartition, error_for
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.wire.protocol.api import FETCH
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.record.batches import NOTHING_SEEN, OFFSET_MAX, BatchReader, Seen
from kafkalite.wire.record.compression import DECOMPRESSED_SIZE_MAX, CompressionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite._native.wire.needles import Needles
    from kafkalite.base.wakeup import Wakeup
    from kafkalite.client.cluster import Cluster
    from kafkalite.client.connection import Connection
    from kafkalite.client.read.marks import Divergence, FindDivergences
    from kafkalite.wire.record.columns import Record, RecordColumns

logger = logging.getLogger(__name__)

FETCH_SIZE: Final = 8 * 1024 * 1024
"""Bytes per fetch and per partition; a larger batch still arrives whole."""
CHUNK_SIZE: Final = 16 * 1024 * 1024
"""Bytes of keys, values and headers decoded per chunk."""
CHUNK_COUNT: Final = 1_000_000
"""Records per chunk: an empty record has no bytes there, but takes 50 bytes here."""
MAX_WAIT_MS: Final = 500
PAUSED_WAIT_MS: Final = 10
"""How long a fetch waits for its first byte after a partition was paused; doubles with each fetch."""
PAUSED_WAIT_MS_MAX: Final = 100
"""The longest that a fetch waits for its first byte after a partition was paused."""


class Chunk(NamedTuple):
    """Records of one partition, in order. Offsets may have gaps; the next chunk starts at `next_offset`.

    If the Reader has `needles`, the chunk has only records that contain at least one of them. `seen` counts all records
    that were searched.
    """

    partition: TopicPartition
    columns: RecordColumns
    next_offset: int
    high_watermark: int
    seen: Seen = NOTHING_SEEN

    def records(self) -> Iterator[Record]:
        """Yield one object per record: convenient, but far slower than the columns."""
        return self.columns.records()


class ReadPosition:
    """Position and state of one partition."""

    __slots__ = (
        "backoff_s",
        "checked_on",
        "damaged_at",
        "damaged_since",
        "empty_to",
        "end",
        "epochs",
        "error",
        "failing_since",
        "failure",
        "high_watermark",
        "kept",
        "key",
        "last_stable",
        "log_start",
        "mark",
        "offset",
        "paused",
        "retry_at",
    )

    def __init__(self, key: TopicPartition, offset: int, end: int | None, backoff_s: float, mark: Mark) -> None:
        self.key = key
        self.offset = offset
        self.end = end
        self.mark = mark
        """The batch before `offset`."""
        self.epochs = EpochHistory(offset, mark.epoch)
        self.checked_on: Connection | None = None
        """The connection on which the position was checked last; None after a failure."""
        self.high_watermark = -1
        self.last_stable = -1
        self.log_start = -1
        self.empty_to = -1
        """The readable end when the partition last had no data at `offset`."""
        self.paused = False
        self.kept: tuple[int, Any] | None = None
        """A response that arrived while the partition was paused, with its start offset."""
        self.failing_since: float | None = None
        self.failure: Exception | None = None
        self.backoff_s = backoff_s
        self.retry_at = 0.0
        self.error: Exception | None = None
        self.damaged_at = -1
        """The last unreadable offset, and since when (monotonic s)."""
        self.damaged_since = 0.0

    @property
    def done(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def move(self, offset: int) -> None:
        """Move to another offset of the same log."""
        self.epochs.leap(offset)
        self.offset = offset
        self.mark = Mark(self.epochs.before(offset))
        self.empty_to = -1


class Reader:
    """Reads many partitions; see the module. Iterate over it, or call `poll`.

    `ends`              end offsets, exclusive; partitions without an entry never end
    `isolation`         READ_COMMITTED skips aborted transactions and stops before open transactions
    `fetch_size`        bytes per fetch; memory in use is a few times that
    `max_wait_ms`       how long a broker may wait for the first byte
    `reset`             "earliest" or "latest": where to continue after OffsetOutOfRange; None: raise it
    `fields`            wanted fields of "keys", "values" and "headers" (default: all); other fields are not copied
    `chunk_count`       records per chunk; a chunk ends with a batch, so it may have more
    `chunk_size`        bytes of keys, values and headers per chunk; a chunk may have more for the same reason
    `check_crcs`        verify each batch; CorruptMessage names partition and offset of a corrupt batch
    `await_topics`      wait for a missing topic instead of raising an error
    `needles`           byte strings: decode and hand out only records that contain one of them
    `retry_damage`      True: fetch a corrupt batch once more, and for retry_timeout_s while another in-sync replica may
                        become leader; False: raise CorruptMessage at once
    `marks`             marks of the batches before `starts`, to detect diverged logs
    `raises_truncation` True: raise LogTruncated for a diverged log, as with `reset` None
    `find_divergences`  compares positions with their logs (kafkalite.client.history); None: no comparison
    """

    def __init__(
        self,
        client: Cluster,
        starts: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        isolation: int = READ_UNCOMMITTED,
        fetch_size: int = FETCH_SIZE,
        max_wait_ms: int = MAX_WAIT_MS,
        reset: str | None = None,
        check_crcs: bool = True,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
        await_topics: bool = False,
        fields: Iterable[str] | None = None,
        chunk_count: int = CHUNK_COUNT,
        chunk_size: int = CHUNK_SIZE,
        needles: Needles | None = None,
        retry_damage: bool = True,
        marks: Mapping[TopicPartition, Mark] | None = None,
        find_divergences: FindDivergences | None = None,
        raises_truncation: bool = False,
    ) -> None:
        if reset not in {None, "earliest", "latest"}:
            raise ValueError(f"reset must be 'earliest', 'latest' or None, not {reset!r}")
        self._client = client
        self._isolation = isolation
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._reset = reset
        self._await_topics = await_topics
        self._retries_damage = retry_damage
        self._chunk_count = chunk_count
        self._chunk_size = chunk_size
        self._batches = BatchReader(
            decompressed_size_max=decompressed_size_max, check_crcs=check_crcs, fields=fields, needles=needles
        )
        self._seen = NOTHING_SEEN
        self.failed: TopicPartition | None = None
        """The partition whose error was raised last."""
        self._lane = f"reader-{id(self)}"
        self._positions: dict[TopicPartition, ReadPosition] = {}
        self._sent: dict[Connection, list[tuple[ReadPosition, int]]] = {}
        self._paused_wait_ms = PAUSED_WAIT_MS
        self._find_divergences = find_divergences
        self._raises_truncation = raises_truncation or reset is None
        self.gone_back: dict[TopicPartition, int] = {}
        """Diverged partitions and the offset where reading continues; the caller may clear it."""
        self.add(starts, ends, marks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the fetches in flight and close their connections. Otherwise later requests would get the old
        responses.
        """
        self._sent.clear()
        self._client.close_lane(self._lane)
        self._batches.close()

    # --- partitions ---------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions being read, in order."""
        return sorted(self._positions)

    def add(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        marks: Mapping[TopicPartition, Mark] | None = None,
    ) -> None:
        """Read more partitions from these offsets. A partition that is already read continues at its new offset."""
        limits, known = ends or {}, marks or {}
        for key, offset in starts.items():
            mark = known.get(key, UNMARKED)
            self._positions[key] = ReadPosition(key, offset, limits.get(key), self._client.retry_backoff_s, mark)

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions. Pending responses for them are ignored."""
        for key in keys:
            self._positions.pop(key, None)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Continue at another offset. A pending response for the old offset is ignored.

        Raises KeyError for a partition that is not being read.
        """
        position = self._positions[key]
        position.move(offset)
        position.error = position.failing_since = position.failure = None
        position.retry_at = 0.0

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out no records of these partitions until `resume`."""
        for key in keys:
            if not self._positions[key].paused:
                self._positions[key].paused = True
                self._paused_wait_ms = PAUSED_WAIT_MS

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        for key in keys:
            self._positions[key].paused = False

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, in order."""
        return sorted(key for key, position in self._positions.items() if position.paused)

    @property
    def failing(self) -> Exception | None:
        """The error of a partition whose last fetch failed; None if there is none. Any thread may read it."""
        found = (position.failure for position in list(self._positions.values()))
        return next((failure for failure in found if failure is not None), None)

    @property
    def done(self) -> bool:
        """Whether every partition is at its end."""
        return all(position.done for position in self._positions.values())

    def position(self, key: TopicPartition) -> int:
        """Return the next offset to read in a partition."""
        return self._positions[key].offset

    def mark(self, key: TopicPartition) -> Mark:
        """Return the mark (epoch, first offset, CRC) of the batch before a partition's position."""
        return self._positions[key].mark

    def epoch_before(self, key: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before an offset that was read; -1 if unknown. Any thread."""
        position = self._positions.get(key)
        return -1 if position is None else position.epochs.before(offset)

    def high_watermark(self, key: TopicPartition) -> int:
        """Return the high watermark in the last response; -1 before the first response."""
        return self._positions[key].high_watermark

    def readable_end(self, key: TopicPartition) -> int:
        """Return the readable end: last stable offset for READ_COMMITTED, else high watermark; -1 if unknown."""
        position = self._positions[key]
        return position.last_stable if self._isolation == READ_COMMITTED else position.high_watermark

    def __iter__(self) -> Iterator[Chunk]:
        while not self.done:
            yield from self.answers()

    def poll(self, timeout_s: float | None = None, *, wake: Wakeup | None = None) -> list[Chunk]:
        """Wait for a response from at least one leader; return its records, possibly none.

        The wait ends after `timeout_s`, or when `wake` is signalled. The method `answers` needs less memory.

        If a partition fails, the call returns the records of the other partitions, and the next call raises the error.
        The partition stays at the failed offset. If the caller does not seek past it, the error is raised again.
        """
        return list(self.answers(timeout_s, wake))

    def answers(self, timeout_s: float | None = None, wake: Wakeup | None = None) -> Iterator[Chunk]:
        """Yield what `poll` returns, but decode each chunk only when it is requested. Take all chunks before another
        call.
        """
        self._raise_errors()
        found = self._take_kept()
        try:
            self._send_all()
        except ClientError as error:
            if not found:
                raise
            found[0][0].error = error
        for position, offset, row in found:
            yield from self._decode(position, offset, row)
        if found:
            return
        for connection in self._ready(timeout_s, wake):
            yield from self._take(connection)

    def _raise_errors(self) -> None:
        for position in self._positions.values():
            if position.error is not None:
                error, position.error = position.error, None
                self.failed = position.key
                raise error

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        """Send a fetch to each leader that has no fetch in flight and has an unfinished partition."""
        waiting = self._waiting()
        by_leader: dict[Connection, list[ReadPosition]] = {}
        for index, position in enumerate(waiting):
            try:
                by_leader.setdefault(self._client.leader(position.key, self._lane), []).append(position)
            except KafkaError as error:
                self._fail([position], error)
            except UNREACHED as error:
                self._fail(waiting[index:], error)  # the other partitions cannot be fetched either
                break
        for connection, positions in by_leader.items():
            if connection not in self._sent:
                try:
                    self._send(connection, positions)
                except (ConnectionLost, RequestTimeout) as error:
                    self._fail(positions, error)

    def _waiting(self) -> list[ReadPosition]:
        """Return the partitions that are to be fetched now and have no fetch in flight."""
        busy = {id(position) for asked in self._sent.values() for position, _ in asked}
        now = time.monotonic()
        return [
            position
            for position in self._positions.values()
            if not (position.done or position.paused or position.retry_at > now or id(position) in busy)
        ]

    def _send(self, connection: Connection, positions: list[ReadPosition]) -> None:
        offsets = {position.key: position.offset for position in positions}
        request = FetchRequest(
            max_wait_ms=self._wait_ms(),
            min_bytes=1,
            max_bytes=self._fetch_size,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=offsets[TopicPartition(topic, partition)],
                            partition_max_bytes=self._fetch_size,
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets)
            ],
        )
        timeout_s = self._client.request_timeout_s + self._max_wait_ms / 1000
        connection.send(FETCH, request, version_max=FETCH_VERSION_MAX, timeout_s=timeout_s)
        self._sent[connection] = [(position, position.offset) for position in positions]

    def _wait_ms(self) -> int:
        """Return max_wait_ms for the next fetch. It is short while any partition is paused, which may be
        resumed soon.
        """
        if not any(position.paused for position in self._positions.values()):
            return self._max_wait_ms
        wait_ms = min(self._paused_wait_ms, self._max_wait_ms)
        self._paused_wait_ms = min(2 * self._paused_wait_ms, PAUSED_WAIT_MS_MAX)
        return wait_ms

    def _ready(self, timeout_s: float | None, wake: Wakeup | None) -> list[Connection]:
        """Wait for a response, a due retry or `wake`; return connections with a response or with an overdue request."""
        now = time.monotonic()
        retries = [position.retry_at - now for position in self._positions.values() if position.retry_at > now]
        if timeout_s is None and wake is None and len(self._sent) == 1 and not retries:
            return list(self._sent)  # `receive` waits
        limit_s = self._client.request_timeout_s + self._max_wait_ms / 1000 if timeout_s is None else timeout_s
        limit_s = min([limit_s, *retries])
        with selectors.DefaultSelector() as selector:
            for connection in self._sent:
                selector.register(connection, selectors.EVENT_READ, connection)
            if wake is not None:
                selector.register(wake, selectors.EVENT_READ, None)
            ready = {key.data for key, _ in selector.select(limit_s)}
        return [connection for connection in self._sent if connection in ready or connection.overdue]

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _take(self, connection: Connection) -> Iterator[Chunk]:
        asked = self._sent.pop(connection)
        present = [position for position, _ in asked if self._positions.get(position.key) is position]
        wanted = {
            position.key: position
            for position, offset in asked
            if self._positions.get(position.key) is position and position.offset == offset
        }
        try:
            answer = connection.receive()[1]
        except (ConnectionLost, RequestTimeout) as error:
            self._fail(present, error)
            return
        except ProtocolError as error:
            if present:
                present[0].error = error
            return
        if answer.error_code:
            self._fail(present, error_for(answer.error_code))
            return
        if self._find_divergences is not None:
            self._look_back(connection, wanted, answer)
        found = []
        any_records = any(row.records for topic in answer.responses for row in topic.partitions)
        for topic in answer.responses:
            for row in topic.partitions:
                position = wanted.get(TopicPartition(topic.topic, row.partition_index))
                offset = -1 if position is None else position.offset
                if position is not None and position.paused:
                    self._keep(position, row)
                elif position is not None and self._accept(position, row):
                    found.append((position, offset, row))
                elif position is not None and not any_records:
                    self._skip_gap(position, row)
        self._send_next(connection, present, {position.key for position, _, _ in found})
        for position, offset, row in found:
            yield from self._decode(position, offset, row)

    def _keep(self, position: ReadPosition, row: Any) -> None:
        """Keep a paused partition's records, up to `fetch_size` in all partitions. Other records are fetched again."""
        kept = sum(len(other.kept[1].records) for other in self._positions.values() if other.kept is not None)
        if row.records and not row.error_code and kept + len(row.records) <= self._fetch_size:
            row.records = bytes(row.records)  # the next response overwrites the buffer
            position.kept = position.offset, row

    def _take_kept(self) -> list[tuple[ReadPosition, int, Any]]:
        """Return kept records of resumed partitions that are still at the requested offset."""
        found = []
        for position in self._positions.values():
            if position.kept is not None and not position.paused:
                (offset, row), position.kept = position.kept, None
                if offset == position.offset and self._accept(position, row):
                    found.append((position, offset, row))
        return found

    def _send_next(self, connection: Connection, positions: list[ReadPosition], with_data: set[TopicPartition]) -> None:
        """Send the next fetch. Partitions that just returned records come last, so that they cannot starve the others.

        Does nothing after an error, or if another partition waits to be fetched: `_send_all` then finds its leader
        first.
        """
        going = [position for position in positions if not position.done and not position.paused]
        wrong = any(position.failing_since or position.error for position in going)
        if going and not wrong and all(position in going for position in self._waiting()):
            try:
                self._send(connection, sorted(going, key=lambda position: position.key in with_data))
            except (ConnectionLost, RequestTimeout) as error:
                self._fail(going, error)
            except ClientError as error:  # such as SignInRefused; the next poll raises it
                going[0].error = error

    def _accept(self, position: ReadPosition, row: Any) -> bool:
        """Process one partition's response: advance past its records, or handle its error.

        Return whether it has records.
        """
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset is not None:
            self._start_over(position)
            return False
        if row.error_code:
            # Metadata shows the partition, so a broker that does not know it is not its leader (any more).
            unknown = row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if unknown else row.error_code
            said = "the broker reports a corrupt batch" if code == ErrorCode.CORRUPT_MESSAGE else "cannot fetch"
            error = error_for(code, f"{position.key}: {said} at offset {position.offset}")
            if isinstance(error, CorruptMessage):
                self._meet_damage(position, error, position.offset)
            elif error.retriable:
                self._fail([position], error)
            else:
                position.error = error
            return False
        position.failing_since = position.failure = None
        position.retry_at = 0.0
        position.backoff_s = self._client.retry_backoff_s
        position.high_watermark = row.high_watermark
        position.last_stable = row.last_stable_offset
        position.log_start = row.log_start_offset
        if not row.records:
            return False
        end = OFFSET_MAX if position.end is None else position.end
        following, mark, epochs = last_mark(row.records, position.offset, end)
        if following == position.offset:
            text = f"{position.key}: the {len(row.records)} bytes at offset {position.offset} contain no readable batch"
            self._meet_damage(position, CorruptMessage(text), position.offset)
            return False
        position.offset = min(following, end)
        position.epochs.extend(epochs, position.offset)
        position.mark = Mark(*mark)
        position.empty_to = -1
        return True

    def _skip_gap(self, position: ReadPosition, row: Any) -> None:
        """Skip the rest of a range that contains no more records (compacted tombstones, aborted records).

        The first empty response gives the readable end. If a later response is also empty, no record is left below that
        end. One response is not enough, because the broker may read the records of a response before its high
        watermark.
        """
        if row.error_code or row.records or position.end is None:
            position.empty_to = -1
            return
        if position.empty_to >= position.end:
            position.offset = position.end
        position.empty_to = self.readable_end(position.key)

    def _start_over(self, position: ReadPosition) -> None:
        """Move to the log's start or end, as `reset` says."""
        asked = OFFSET_EARLIEST if self._reset == "earliest" else OFFSET_LATEST
        try:
            found = self._client.list_offsets({position.key: asked}, isolation=self._isolation)
        except (KafkaError, ClientError) as error:
            position.error = error
        else:
            position.move(found[position.key].offset)

    # --- diverged logs ------------------------------------------------------------------------------------------------

    def _look_back(self, connection: Connection, wanted: dict[TopicPartition, ReadPosition], answer: Any) -> None:
        """Find diverged logs. Remove their partitions from `wanted`, and also partitions that cannot be checked now.

        Positions are checked at the first response on a new connection, after a failure, and at OffsetOutOfRange.
        """
        out_of_range = {
            TopicPartition(topic.topic, row.partition_index)
            for topic in answer.responses
            for row in topic.partitions
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        }
        doubtful = [
            position
            for key, position in wanted.items()
            if position.mark.epoch >= 0 and (position.checked_on is not connection or key in out_of_range)
        ]
        if doubtful:
            assert self._find_divergences is not None, "asked for"
            asked = {row.key: Position(row.offset, row.mark) for row in doubtful}
            try:
                found = self._find_divergences(asked)
            except (KafkaError, ClientError) as error:
                if isinstance(error, (KafkaError, *UNREACHED)):
                    self._fail(doubtful, error)
                else:
                    doubtful[0].error = error  # such as SignInRefused; the next poll raises it
                for key in asked:
                    del wanted[key]
                return
            for divergence in found:
                self._part(wanted.pop(divergence.partition), divergence)
        for position in wanted.values():
            position.checked_on = connection

    def _part(self, position: ReadPosition, divergence: Divergence) -> None:
        """Continue reading in a diverged log, with a warning, or set the partition's error to LogTruncated.

        Reading continues where the log diverges. If that offset is unknown, it continues as `reset` says.
        """
        what = f"{divergence}: it was restored from a backup, truncated or recreated"
        position.checked_on = None
        if self._raises_truncation:
            position.error = LogTruncated(what, *divergence)
            return
        if divergence.at is None:
            self._start_over(position)
            if position.error is not None:
                return  # the mark stays, so the next response finds the divergence again
        else:
            position.offset, position.empty_to = divergence.at, -1
        position.mark, position.epochs = UNMARKED, EpochHistory(position.offset)
        self.gone_back[position.key] = position.offset
        logger.warning("%s; reading continues at offset %d", what, position.offset)

    def _decode(self, position: ReadPosition, offset: int, row: Any) -> Iterator[Chunk]:
        """Yield the response's records in chunks of about chunk_count records or chunk_size bytes."""
        aborted = self._aborted(row)
        target = position.offset
        while offset < target:
            try:
                following = self._batches.read(
                    row.records,
                    offset,
                    position.end,
                    aborted,
                    count_max=self._chunk_count,
                    size_max=self._chunk_size,
                )
            except (BatchError, CompressionError) as error:
                chunk = self._chunk(position.key, self._batches.damaged_at, row)
                self._damaged(position, target, error)
                if len(chunk.columns) or chunk.seen != NOTHING_SEEN:
                    yield chunk
                return
            assert following > offset, "headers promised records that are not there"
            offset = following
            yield self._chunk(position.key, offset, row)

    def _chunk(self, key: TopicPartition, next_offset: int, row: Any) -> Chunk:
        """Return the decoded records since the last chunk."""
        before, self._seen = self._seen, self._batches.seen
        seen = Seen(*(now - then for now, then in zip(self._seen, before, strict=True)))
        return Chunk(key, self._batches.take(), next_offset, row.high_watermark, seen)

    def _aborted(self, row: Any) -> AbortedFilter | None:
        """Return the response's aborted transactions, for READ_COMMITTED."""
        if self._isolation != READ_COMMITTED:
            return None
        return AbortedFilter((entry.producer_id, entry.first_offset) for entry in row.aborted_transactions or ())

    def _damaged(self, position: ReadPosition, target: int, cause: Exception) -> None:
        """Move back to a batch that cannot be decoded, and handle its damage."""
        at = self._batches.damaged_at
        error = CorruptMessage(f"{position.key}: the batch at offset {at} cannot be read: {cause}")
        error.__cause__ = cause
        if position.offset == target:  # unless the caller has sought meanwhile
            position.offset = at
            self._meet_damage(position, error, at)

    def _meet_damage(self, position: ReadPosition, error: CorruptMessage, at: int) -> None:
        """Fetch a corrupt batch again if that may help; otherwise let the next poll raise the error."""
        error.partition, error.offset = position.key, at
        now = time.monotonic()
        again = position.damaged_at == at
        if not again:
            position.damaged_at, position.damaged_since = at, now
        lasted = now - position.damaged_since > self._client.retry_timeout_s
        if self._retries_damage and (not again or (not lasted and has_other_in_sync(self._client, position.key))):
            self._fail([position], error)
        else:
            position.error = error

    def _fail(self, positions: list[ReadPosition], error: Exception) -> None:
        """Schedule a retry of these partitions.

        If the error is not retriable, or has lasted retry_timeout_s, the next poll raises it instead.
        """
        now = time.monotonic()
        awaited = self._await_topics and isinstance(error, UnknownTopicOrPartition)
        for position in positions:
            self._client.forget(position.key.topic)
            position.checked_on = None
            position.failing_since = position.failing_since or now
            position.failure = error
            lasted = now - position.failing_since > self._client.retry_timeout_s
            if not awaited and (lasted or not self._client.is_passing(error)):
                position.error = error
            position.retry_at = now + position.backoff_s
            position.backoff_s = min(2 * position.backoff_s, RETRY_BACKOFF_S_MAX)
