"""Represent records as columns: numpy arrays over contiguous bytes, instead of one Python object per record.

    BytesColumn      data: bytes · starts, ends: int64[n] · nulls: uint8[n] or None
    HeaderColumns    record_starts, record_ends: int64[n] · keys, values: BytesColumn of all headers
    RecordColumns    offsets, timestamps: int64[n] · keys, values: BytesColumn · headers: HeaderColumns or None ·
                     timestamp_types: uint8[n] or None

A decoded column has no gaps: starts[i + 1] is ends[i]. A column to encode may have gaps. For example, its items can be
the lines of a text.

Thread rule: immutable by convention; may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from typing_extensions import Buffer


SPAN_PER_ITEM_MAX: Final = 4096
"""Up to this many bytes per item, gaps included, all items are copied at once before they are split."""


class Record(NamedTuple):
    """One record, for display and tests.

    `offset` is -1 before a broker assigns it. `timestamp` is in ms since 1970, or -1 for none.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn(Sequence[bytes | None]):
    """A sequence of n byte strings. An item may be null (None).

    Without gaps, `starts` and `ends` are views of one array of n + 1 offsets, as in Arrow's binary arrays.
    """

    data: Buffer
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    nulls: NDArray[np.uint8] | None = None

    @classmethod
    def from_offsets(
        cls, data: Buffer, offsets: NDArray[np.int64], nulls: NDArray[np.uint8] | None = None
    ) -> BytesColumn:
        """Create a column without gaps. Item i is data[offsets[i]:offsets[i + 1]]."""
        return cls(data, offsets[:-1], offsets[1:], nulls)

    @classmethod
    def from_items(cls, items: Iterable[bytes | None]) -> BytesColumn:
        """Create a column from Python objects, which are copied."""
        listed = list(items)
        offsets = np.zeros(len(listed) + 1, np.int64)
        nulls = None
        whole: list[Any] = listed
        try:
            sizes = list(map(len, whole))
        except TypeError:  # an item without a length is null; testing each item first would cost more than the rest
            nulls = np.array([item is None for item in listed], np.uint8)
            whole = [b"" if item is None else item for item in listed]
            sizes = list(map(len, whole))
        np.cumsum(sizes, out=offsets[1:])
        return cls.from_offsets(b"".join(whole), offsets, nulls)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The n + 1 offsets of a column without gaps. ValueError if it has gaps."""
        if len(self.starts) == 0:
            return np.zeros(1, np.int64)
        if not np.array_equal(self.starts[1:], self.ends[:-1]):
            raise ValueError("the column's items are not contiguous")
        return np.append(self.starts, self.ends[-1:])

    @property
    def size(self) -> int:
        """The size of all items together, in bytes."""
        sizes = self.ends - self.starts
        return int(sizes.sum() if self.nulls is None else sizes[self.nulls == 0].sum())

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # one signature for int and slice, as Sequence has two
        if isinstance(index, slice):
            nulls = None if self.nulls is None else self.nulls[index]
            return BytesColumn(self.data, self.starts[index], self.ends[index], nulls)
        if self.nulls is not None and self.nulls[index]:
            return None
        return bytes(memoryview(self.data)[self.starts[index] : self.ends[index]])

    def chosen(self, picked: NDArray[np.int64]) -> BytesColumn:
        """Return the items at these indexes, without copying bytes."""
        nulls = None if self.nulls is None else self.nulls[picked]
        return BytesColumn(self.data, self.starts[picked], self.ends[picked], nulls)

    def to_list(self) -> list[bytes | None]:
        """Return all items as a list.

        For many small items, this is faster than iterating, because the data is copied once.
        """
        low, high = (int(self.starts.min()), int(self.ends.max())) if len(self) else (0, 0)
        if high - low > SPAN_PER_ITEM_MAX * len(self):
            return list(self)
        copy = bytes(memoryview(self.data)[low:high])
        bounds = zip((self.starts - low).tolist(), (self.ends - low).tolist(), strict=True)
        items: list[bytes | None] = [copy[start:end] for start, end in bounds]
        if self.nulls is not None:
            for index in np.flatnonzero(self.nulls).tolist():
                items[index] = None
        return items

    def __iter__(self) -> Iterator[bytes | None]:
        view = memoryview(self.data)
        bounds = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        if self.nulls is None:
            for start, end in bounds:
                yield bytes(view[start:end])
            return
        for (start, end), null in zip(bounds, self.nulls.tolist(), strict=True):
            yield None if null else bytes(view[start:end])


@dataclass(frozen=True, slots=True, eq=False)
class HeaderColumns:
    """The headers of n records.

    The headers of record i are the items from record_starts[i] to before record_ends[i] of `keys` and `values`.
    """

    record_starts: NDArray[np.int64]
    record_ends: NDArray[np.int64]
    keys: BytesColumn
    values: BytesColumn

    @classmethod
    def from_items(cls, items: Iterable[Sequence[tuple[str, bytes | None]]]) -> HeaderColumns:
        """Create the columns from a sequence of (key, value) headers for each record."""
        listed = list(items)
        ends = np.cumsum([len(headers) for headers in listed], dtype=np.int64)
        starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
        keys = BytesColumn.from_items(key.encode() for headers in listed for key, _ in headers)
        values = BytesColumn.from_items(value for headers in listed for _, value in headers)
        return cls(starts, ends, keys, values)

    def __len__(self) -> int:
        return len(self.record_starts)

    def __getitem__(self, index: int) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers of one record. Invalid UTF-8 in a key becomes replacement characters."""
        span = range(int(self.record_starts[index]), int(self.record_ends[index]))
        return tuple((self.keys[i].decode("utf-8", "replace"), self.values[i]) for i in span)


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """The fields of n records as columns.

    To encode, `offsets` may be empty. `timestamps` may be empty if all records get the same timestamp. After decoding,
    columns that were not requested are empty. `timestamp_types` is 0 if a producer set the timestamp and 1 if a broker
    did.
    """

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: BytesColumn
    values: BytesColumn
    headers: HeaderColumns | None = None
    timestamp_types: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.values) or len(self.offsets)

    @property
    def size(self) -> int:
        """The size of all keys and values, in bytes."""
        return self.keys.size + self.values.size

    def chosen(self, picked: NDArray[np.int64]) -> RecordColumns:
        """Return the records at these indexes, without copying bytes. The result has no `timestamp_types`."""
        headers = self.headers
        if headers is not None:
            headers = HeaderColumns(
                headers.record_starts[picked], headers.record_ends[picked], headers.keys, headers.values
            )
        return RecordColumns(
            self.offsets[picked] if len(self.offsets) else self.offsets,
            self.timestamps[picked] if len(self.timestamps) else self.timestamps,
            self.keys.chosen(picked) if len(self.keys) else self.keys,
            self.values.chosen(picked) if len(self.values) else self.values,
            headers,
        )

    def record(self, index: int) -> Record:
        """Return the record at this index as an object."""
        return Record(
            int(self.offsets[index]) if len(self.offsets) else -1,
            int(self.timestamps[index]) if len(self.timestamps) else -1,
            self.keys[index],
            self.values[index],
            () if self.headers is None else self.headers[index],
        )

    def records(self) -> Iterator[Record]:
        """Yield all records as objects. This is about a hundred times slower than using the columns."""
        count = len(self)
        offsets = self.offsets.tolist() if len(self.offsets) else [-1] * count
        timestamps = self.timestamps.tolist() if len(self.timestamps) else [-1] * count
        rows = zip(offsets, timestamps, self.keys, self.values, strict=True)
        if self.headers is None:
            for row in rows:
                yield Record(*row)
            return
        for index, row in enumerate(rows):
            yield Record(*row, self.headers[index])

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> RecordColumns:
        """Create the columns from Record objects, which are copied."""
        listed = list(records)
        return cls(
            np.array([record.offset for record in listed], np.int64),
            np.array([record.timestamp for record in listed], np.int64),
            BytesColumn.from_items(record.key for record in listed),
            BytesColumn.from_items(record.value for record in listed),
            HeaderColumns.from_items(record.headers for record in listed) if any(r.headers for r in listed) else None,
        )


def slice_of(columns: RecordColumns, first: int, end: int) -> RecordColumns:
    """Return the records from index `first` to before index `end`, without copying bytes or `timestamp_types`."""
    headers = columns.headers
    part = None
    if headers is not None:
        starts, ends = headers.record_starts[first:end], headers.record_ends[first:end]
        part = HeaderColumns(starts, ends, headers.keys, headers.values)
    return RecordColumns(
        columns.offsets[first:end],
        columns.timestamps[first:end],
        columns.keys[first:end],
        columns.values[first:end],
        part,
    )
