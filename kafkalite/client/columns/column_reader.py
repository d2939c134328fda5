"""Read a range of offsets of one partition as Arrow record batches or NumPy columns.

    read(topic, partition, start, end) ─▶ Reader ─▶ chunks ─▶ ArrowExporter ─▶ batches of ≤ 10,000 rows, ≤ 4 MiB

If part of the range cannot be read, an error is raised. Offsets without a record are no error: compaction, transaction
markers and aborted records leave such gaps.

Thread rule: one thread at a time, that of the Client. Batches belong to the caller.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.client.client import Client
from kafkalite.client.cluster import ISOLATIONS, READ_COMMITTED
from kafkalite.client.columns.arrow import COLUMNS, FIELDS, ArrowExporter, require_columns, schema_of
from kafkalite.client.errors import RangeUnavailable
from kafkalite.client.read.reader import FETCH_SIZE, Reader
from kafkalite.client.read.splitting import OffsetRange, split_by_size
from kafkalite.errors import ErrorCode, error_for
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition, uuid_text
from kafkalite.wire.record.compression import DECOMPRESSED_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalite.client.read.reader import Chunk
    from kafkalite.wire.record.columns import RecordColumns

ROWS_MAX: Final = 10_000
"""Rows of a record batch; Spark uses the same number."""
SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of keys and values of a record batch; a larger record gets its own batch."""
POLL_S: Final = 1.0


class ColumnReader:
    """Reads ranges of offsets; see the module. Usable as a context manager.

    `client`            a Client, or bootstrap servers from which to create a Client; `close` then closes it
    `isolation_level`   "read_uncommitted", or "read_committed": no aborted records, nothing after an open transaction
    `columns`           names from COLUMNS in the wanted order; other columns are not copied
    `rows_max`, `size_max`    limits of a record batch: rows; bytes of keys and values
    `fetch_size`        bytes per fetch; memory in use is a few times that
    `check_crcs`        verify each batch; CorruptMessage names partition and offset of a corrupt batch
    `stall_timeout_s`   longest time without progress before RangeUnavailable (default: the client's retry_timeout_s)
    """

    def __init__(
        self,
        client: Client | str | Iterable[str],
        *,
        isolation_level: str = "read_uncommitted",
        columns: Sequence[str] | None = None,
        rows_max: int = ROWS_MAX,
        size_max: int = SIZE_MAX,
        fetch_size: int = FETCH_SIZE,
        check_crcs: bool = True,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
        stall_timeout_s: float | None = None,
    ) -> None:
        if isolation_level not in ISOLATIONS:
            raise ValueError(f"isolation_level must be {' or '.join(ISOLATIONS)}, not {isolation_level!r}")
        if rows_max < 1 or size_max < 1:
            raise ValueError(f"rows_max ({rows_max}) and size_max ({size_max}) must be at least 1")
        self.columns = COLUMNS if columns is None else tuple(columns)
        require_columns(self.columns)
        self._owns_client = not isinstance(client, Client)
        self.client = client if isinstance(client, Client) else Client(client)
        self.isolation = ISOLATIONS[isolation_level]
        self._rows_max = rows_max
        self._size_max = size_max
        self._fetch_size = fetch_size
        self._check_crcs = check_crcs
        self._decompressed_size_max = decompressed_size_max
        self._stall_timeout_s = self.client.retry_timeout_s if stall_timeout_s is None else stall_timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the Client if this reader created it. Idempotent."""
        if self._owns_client:
            self.client.close()

    @property
    def schema(self) -> Any:
        """The Arrow schema of the batches of `read`."""
        return schema_of(self.columns)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, topic: str, partition: int, start: int, end: int, *, topic_id: bytes | None = None) -> Iterator[Any]:
        """Yield the records with start <= offset < end as pyarrow.RecordBatches, in order.

        Raises OffsetOutOfRange if `start` no longer exists, RangeUnavailable if `end` is not reached, and
        UnknownTopicOrPartition. With `topic_id` (16 bytes), it also raises InconsistentTopicId if the topic was
        recreated.
        """
        exporter = ArrowExporter(self.columns, self._rows_max, self._size_max)
        for chunk in self._chunks(topic, partition, start, end, topic_id):
            yield from exporter.batches(chunk.partition, chunk.columns)

    def read_numpy(
        self, topic: str, partition: int, start: int, end: int, *, topic_id: bytes | None = None
    ) -> Iterator[RecordColumns]:
        """Yield the same records as `read`, as NumPy columns and without pyarrow. `columns` selects keys, values and
        headers.

        Each item ends with a batch of the log. So it may have more rows and bytes than a record batch of `read`.
        """
        for chunk in self._chunks(topic, partition, start, end, topic_id):
            yield chunk.columns

    def _chunks(self, topic: str, partition: int, start: int, end: int, topic_id: bytes | None) -> Iterator[Chunk]:
        key = TopicPartition(topic, partition)
        if not 0 <= start <= end:
            raise ValueError(f"{key}: invalid offset range {start} to {end}; expected 0 <= start <= end")
        self._require_topic(topic, topic_id)
        if start == end:
            return
        with Reader(
            self.client,
            {key: start},
            ends={key: end},
            isolation=self.isolation,
            fetch_size=self._fetch_size,
            check_crcs=self._check_crcs,
            decompressed_size_max=self._decompressed_size_max,
            fields=[FIELDS[name] for name in self.columns if name in FIELDS],
            chunk_count=self._rows_max,
            chunk_size=self._size_max,
        ) as reader:
            deadline = time.monotonic() + self._stall_timeout_s
            while not reader.done:
                before = reader.position(key)
                for chunk in reader.answers(POLL_S):
                    if len(chunk.columns):
                        yield chunk
                if reader.position(key) > before:
                    deadline = time.monotonic() + self._stall_timeout_s
                elif time.monotonic() > deadline:
                    raise self._stalled(reader, key, end)
        self._require_topic(topic, topic_id)

    def _stalled(self, reader: Reader, key: TopicPartition, end: int) -> RangeUnavailable:
        """Return the error that explains why no more records arrived."""
        readable = reader.readable_end(key)
        at = reader.position(key)
        if 0 <= readable < end:
            why = " (an open transaction may hold the rest back)" if self.isolation == READ_COMMITTED else ""
            return RangeUnavailable(
                f"{key}: the range ends at offset {end}, but the log is readable up to {readable}{why}"
            )
        return RangeUnavailable(f"{key}: no data arrived at offset {at} within {self._stall_timeout_s:g} s")

    def _require_topic(self, topic: str, topic_id: bytes | None) -> None:
        """Raise an error if the topic was recreated under the same name."""
        if topic_id is None:
            return
        found = self.client.topic(topic).topic_id
        if found != topic_id:
            raise error_for(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {topic} was recreated: its id is {uuid_text(found)}, not {uuid_text(topic_id)}",
            )

    # --- planning -----------------------------------------------------------------------------------------------------

    def offsets_for(self, partitions: Iterable[TopicPartition], at: str | int) -> dict[TopicPartition, int]:
        """Return an offset in each partition for `at`: "earliest", "latest" (for the isolation level), or a time in ms.

        A time gives the offset of the first record at or after that time, or -1 if there is none.
        """
        special = {"earliest": OFFSET_EARLIEST, "latest": OFFSET_LATEST}
        if isinstance(at, str) and at not in special:
            raise ValueError(f"invalid at={at!r}; expected 'earliest', 'latest' or a time in ms since 1970")
        if isinstance(at, int) and at < 0:
            raise ValueError(f"invalid at={at}; expected 'earliest', 'latest' or a time in ms since 1970")
        stamp = special[at] if isinstance(at, str) else at
        found = self.client.list_offsets(dict.fromkeys(partitions, stamp), isolation=self.isolation)
        return {key: row.offset for key, row in found.items()}

    def split(self, topic: str, partition: int, start: int, end: int, *, size_target: int) -> list[OffsetRange]:
        """Divide a range into pieces of about `size_target` bytes on the wire, cut where batches of the log start.

        The pieces cover the range exactly and in order. Their sizes are estimated from a few batches. The method works
        with any Kafka broker. An empty range has no pieces.
        """
        return split_by_size(self.client, TopicPartition(topic, partition), start, end, size_target)

    def estimate_size(self, topic: str, partition: int, start: int, end: int) -> int:
        """Estimate the bytes of a range on the wire."""
        return sum(piece.size for piece in self.split(topic, partition, start, end, size_target=2**62))
