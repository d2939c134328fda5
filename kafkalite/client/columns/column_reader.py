"""A range of offsets of one partition as Arrow record batches or NumPy columns, complete or an error.

    read(topic, partition, start, end) ─▶ Reader ─▶ chunks ─▶ ArrowExporter ─▶ batches of ≤ 10,000 rows, ≤ 4 MiB

What a range holds is what a reader of that isolation may see of it: offsets may be missing (compaction, transaction
markers, aborted records), and the iteration ends when everything below `end` is known to have been seen. A range that
the partition does not reach, that has aged out, or that belongs to a recreated topic ends in an error, never short.

Reading is for batch jobs: several ColumnReaders in as many processes each take ranges. `split` cuts a large partition
into ranges of about the same number of bytes.

Thread rule: one thread at a time, that of the Client. Batches are the caller's own.
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
"""Rows of a record batch: what Spark takes in one piece as well."""
SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of keys and values of a record batch; a record that is larger comes alone."""
POLL_S: Final = 1.0


class ColumnReader:
    """See the module. Usable as a context manager.

    `client`            a Client, or bootstrap servers for one of its own, which `close` closes
    `isolation_level`   "read_uncommitted" or "read_committed": without aborted records, and never after open ones
    `columns`           names out of COLUMNS, in the order wanted; what is left out is not even copied
    `rows_max`, `size_max`    of a record batch: rows; bytes of keys and values
    `fetch_size`        bytes asked for at once; memory in use is a few times that
    `check_crcs`        verify each batch: CorruptMessage names partition and offset of one that is damaged
    `stall_timeout_s`   how long a range may make no progress before RangeUnavailable (default: the client's retries)
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
        """Closes the Client, if it is its own. Idempotent."""
        if self._owns_client:
            self.client.close()

    @property
    def schema(self) -> Any:
        """The Arrow schema of what `read` gives."""
        return schema_of(self.columns)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, topic: str, partition: int, start: int, end: int, *, topic_id: bytes | None = None) -> Iterator[Any]:
        """The records with start <= offset < end as pyarrow.RecordBatches, in order.

        OffsetOutOfRange when `start` is no longer there; RangeUnavailable when `end` is not reached;
        UnknownTopicOrPartition; with `topic_id` (16 bytes) InconsistentTopicId when the topic was recreated.
        """
        exporter = ArrowExporter(self.columns, self._rows_max, self._size_max)
        for chunk in self._chunks(topic, partition, start, end, topic_id):
            yield from exporter.batches(chunk.partition, chunk.columns)

    def read_numpy(
        self, topic: str, partition: int, start: int, end: int, *, topic_id: bytes | None = None
    ) -> Iterator[RecordColumns]:
        """The same as NumPy columns, for programs without pyarrow; keys, values and headers as `columns` says.

        A piece ends with a batch of the log, so it may have more rows and bytes than a record batch of `read`.
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
        """Why nothing more came."""
        readable = reader.readable_end(key)
        at = reader.position(key)
        if 0 <= readable < end:
            why = " (an open transaction may hold the rest back)" if self.isolation == READ_COMMITTED else ""
            return RangeUnavailable(
                f"{key}: the range ends at offset {end}, but the log is readable up to {readable}{why}"
            )
        return RangeUnavailable(f"{key}: no data arrived at offset {at} within {self._stall_timeout_s:g} s")

    def _require_topic(self, topic: str, topic_id: bytes | None) -> None:
        """The topic is the one that was meant, not another of its name."""
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
        """An offset in each partition: `at` is "earliest", "latest" (as the isolation sees it), or a time in ms.

        For a time it is the first record that is not older, -1 when there is none.
        """
        special = {"earliest": OFFSET_EARLIEST, "latest": OFFSET_LATEST}
        if isinstance(at, str) and at not in special:
            raise ValueError(f"at must be 'earliest', 'latest' or a time in ms since 1970, not {at!r}")
        if isinstance(at, int) and at < 0:
            raise ValueError(f"at must be 'earliest', 'latest' or a time in ms since 1970, not {at}")
        stamp = special[at] if isinstance(at, str) else at
        found = self.client.list_offsets(dict.fromkeys(partitions, stamp), isolation=self.isolation)
        return {key: row.offset for key, row in found.items()}

    def split(self, topic: str, partition: int, start: int, end: int, *, size_target: int) -> list[OffsetRange]:
        """The range in pieces of about `size_target` bytes on the wire, each beginning with a batch of the log.

        The pieces cover the range exactly and in order. Their sizes are estimates, made by looking at single batches;
        it works with every broker. An empty range has no pieces.
        """
        return split_by_size(self.client, TopicPartition(topic, partition), start, end, size_target)

    def estimate_size(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many bytes the range has on the wire."""
        return sum(piece.size for piece in self.split(topic, partition, start, end, size_target=2**62))
