"""Encode columns into record batches, and decode record batches into columns.

    write    columns ─▶ [header | records]  [header | records] …      each at most `size_max` bytes before compression
    read     fetched bytes ─▶ complete batches ─▶ wanted records as columns, and the next offset to read

Reading omits transaction markers. It also omits records below the requested offset, because brokers return complete
batches. If the caller passes the aborted transactions of the Fetch response, their records are omitted, too. A
truncated batch at the end is ignored.

Thread rule: functions are pure; a BatchReader belongs to one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from kafkalite._native.wire.batch import (
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL,
    BatchError,
    BatchInfo,
    crc_matches,
    read_info,
)
from kafkalite._native.wire.columns import ColumnBuilder, encode_records, seal, wrapper_at
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns
from kafkalite.wire.record.compression import (
    DECOMPRESSED_SIZE_MAX,
    Codec,
    Decompressor,
    compress,
    mend_old_lz4,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from kafkalite._native.wire.aborted_filter import AbortedFilter
    from kafkalite._native.wire.needles import Needles

BATCH_SIZE_MAX: Final = 1024 * 1024 - 1024
"""Default size limit of a batch's records in bytes before compression, below Kafka's max.message.bytes."""

OFFSET_MAX: Final = 2**63 - 1


class Producer(NamedTuple):
    """The producer of a batch, for idempotence (KIP-98).

    `sequence` is the sequence number of the batch's first record.
    """

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


NOBODY: Final = Producer()


def encode_batch(
    columns: RecordColumns,
    first: int = 0,
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    size_max: int = BATCH_SIZE_MAX,
    timestamp: int = -1,
    producer: Producer = NOBODY,
    base_offset: int = 0,
) -> tuple[bytearray, int]:
    """Encode one batch from the records from index `first` on. Return the batch and its number of records.

    The batch has at most `size_max` bytes before compression, but at least one record. `timestamp` (in ms) is used for
    all records if the columns have no timestamps. ValueError if the columns are inconsistent, or a record exceeds 2
    GiB.
    """
    timestamps = columns.timestamps if len(columns.timestamps) else None
    keys = columns.keys if len(columns.keys) else None
    draft, count, base_timestamp, max_timestamp = encode_records(
        columns.values, keys, timestamps, timestamp, columns.headers, first, len(columns), size_max
    )
    if codec != Codec.NONE:
        packed = compress(codec, memoryview(draft)[HEADER_SIZE:], level)
        draft = bytearray(HEADER_SIZE)
        draft += packed
    seal(
        draft,
        attributes=codec | (TRANSACTIONAL if producer.transactional else 0),
        count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    return draft, count


def next_whole(buffer: Buffer, position: int) -> BatchInfo | None:
    """Return the header of the batch at `position`; None if the batch is incomplete. BatchError if it is damaged."""
    left = memoryview(buffer).nbytes - position
    if left <= MAGIC_AT:
        return None
    try:
        info = read_info(buffer, position)
    except BatchError as error:
        if error.status == BatchError.TRUNCATED:
            return None
        raise
    return info if info.size <= left else None


def whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchInfo]]:
    """Yield the position and header of each complete batch. BatchError if a batch is damaged.

    A truncated batch at the end is ignored.
    """
    position = 0
    while (info := next_whole(buffer, position)) is not None:
        yield position, info
        position += info.size


class Seen(NamedTuple):
    """The records, transaction markers and offsets of aborted transactions that a search has examined."""

    records: int = 0
    markers: int = 0
    aborted: int = 0


NOTHING_SEEN: Final = Seen()


class BatchReader:
    """A reader that decodes fetched record batches into columns.

    It also reads the message sets of Kafka 0.8 to 0.10 (magic 0 and 1), which brokers serve from old segments.

    `fields`    the fields to decode, from "keys", "values" and "headers"
    `needles`   return only records that contain one of these byte strings; `seen` then counts the examined records

    Close it when done, because it keeps a buffer for decompression.

    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        *,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
        check_crcs: bool = True,
        fields: Iterable[str] | None = None,
        needles: Needles | None = None,
    ) -> None:
        self._decompressor = Decompressor(decompressed_size_max)
        self._check_crcs = check_crcs
        self._builder = ColumnBuilder(fields, needles)
        self.damaged_at = -1
        """After `read` raised: the first offset of the batch that cannot be read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the decompression buffer."""
        self._decompressor.close()

    @property
    def count(self) -> int:
        """The number of collected records."""
        return self._builder.count

    @property
    def size(self) -> int:
        """The size of the collected keys, values and headers, in bytes."""
        return self._builder.size

    @property
    def seen(self) -> Seen:
        """Counts of all that was examined since the reader was created. They are 0 without `needles`."""
        return Seen(self._builder.seen_count, self._builder.marker_count, self._builder.aborted_count)

    def read(
        self,
        buffer: Buffer,
        offset: int,
        end_offset: int | None = None,
        aborted: AbortedFilter | None = None,
        *,
        count_max: int = OFFSET_MAX,
        size_max: int = OFFSET_MAX,
    ) -> int:
        """Collect the records in `buffer` with offsets from `offset` to before `end_offset`.

        Return the next offset to read.

        If the buffer has no complete batch, the next offset is `offset` itself. After `count_max` records or `size_max`
        bytes, reading ends with the current batch. Then call `take`, and continue at the returned offset.

        BatchError or CompressionError for a damaged batch. `damaged_at` is then its first offset, and the records of
        earlier batches remain collected.
        """
        end = OFFSET_MAX if end_offset is None else end_offset
        view = memoryview(buffer)
        position = 0
        while True:
            try:
                position, offset = self._builder.add_run(
                    view,
                    position,
                    offset,
                    end,
                    check_crcs=self._check_crcs,
                    aborted=aborted,
                    count_max=count_max,
                    size_max=size_max,
                )
            except BatchError:
                self.damaged_at = self._builder.damaged_at
                raise
            if offset >= end or self.count >= count_max or self.size >= size_max:
                return offset
            self.damaged_at = offset
            if view.nbytes - position > MAGIC_AT and view[position + MAGIC_AT] < MAGIC_V2:
                wrapper = wrapper_at(view, position, check_crcs=self._check_crcs)
                if wrapper is None:
                    return offset
                position, offset = self._read_wrapper(view, wrapper, offset, end)
                continue
            info = next_whole(view, position)
            if info is None or info.base_offset >= end:
                return offset
            self._read_compressed(info, view[position : position + info.size], offset, end, aborted)
            offset = min(info.last_offset + 1, end)
            position += info.size

    def _read_compressed(
        self, info: BatchInfo, batch: memoryview, offset: int, end: int, aborted: AbortedFilter | None
    ) -> None:
        """Read one batch that the native `add_run` does not read, such as a compressed batch."""
        self.damaged_at = max(offset, info.base_offset)
        if self._check_crcs and not crc_matches(batch):
            raise BatchError(BatchError.BAD_CRC)
        if aborted is None or not aborted.drops_batch(info):
            self._builder.add(info, self._records(info, batch), offset, end)
        else:
            self._builder.note_aborted(info, offset, end)

    def _read_wrapper(
        self, view: memoryview, wrapper: tuple[int, int, int, int, int, int | None, int], offset: int, end: int
    ) -> tuple[int, int]:
        """Read a compressed message set of magic 0 or 1. Return the next position in the buffer and the next offset."""
        first, last, codec, magic, wrapper_offset, timestamp, position = wrapper
        data = view[first:last]
        inner = self._decompressor.decompress(codec, mend_old_lz4(data) if codec == Codec.LZ4 and not magic else data)
        self._builder.add_inner(
            inner,
            wrapper_offset,
            magic=magic,
            timestamp=timestamp,
            first_offset=offset,
            end_offset=end,
            check_crcs=self._check_crcs,
        )
        return position, min(wrapper_offset + 1, end)

    def take(self) -> RecordColumns:
        """Return the collected records as columns, and begin a new collection."""
        return columns_from(self._builder)

    def _records(self, info: BatchInfo, batch: memoryview) -> memoryview:
        return self._decompressor.decompress(info.codec, batch[HEADER_SIZE:])


def columns_from(builder: ColumnBuilder) -> RecordColumns:
    """Move the arrays that the builder has collected into RecordColumns."""
    offsets, timestamps, keys, values, headers, types = builder.take()
    header_columns = None
    if headers is not None:
        record_offsets, header_keys, header_values = headers
        header_columns = HeaderColumns(
            record_offsets[:-1],
            record_offsets[1:],
            BytesColumn.from_offsets(*header_keys),
            BytesColumn.from_offsets(*header_values),
        )
    return RecordColumns(
        offsets,
        timestamps,
        BytesColumn.from_offsets(*keys),
        BytesColumn.from_offsets(*values),
        header_columns,
        types,
    )


def decode(buffer: Buffer, offset: int = 0, end_offset: int | None = None) -> RecordColumns:
    """Decode all records in `buffer` with offsets from `offset` to before `end_offset`.

    For several calls, use a BatchReader instead.
    """
    with BatchReader() as reader:
        reader.read(buffer, offset, end_offset)
        return reader.take()


def no_items(count: int = 0) -> BytesColumn:
    """Return a column of `count` nulls."""
    empty: NDArray[np.int64] = np.zeros(count, np.int64)
    return BytesColumn(b"", empty, empty, np.ones(count, np.uint8))
