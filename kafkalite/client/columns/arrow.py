"""Convert record columns to Arrow record batches and back, in the row schema of Spark's Kafka connector.

    key, value      binary
    topic           string
    partition       int32
    offset          int64
    timestamp       timestamp[us, tz=UTC]
    timestampType   int32: 0 CreateTime, 1 LogAppendTime
    headers         list<element: struct<key: string, value: binary>>

Keys, values and headers are not copied to Arrow, except header keys with invalid UTF-8: the arrays use the memory into
which the records were decoded.

pyarrow is imported when a function of this module first needs it.

Thread rule: functions are pure; an ArrowExporter belongs to one thread at a time.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite.base.extras import needs_extra
from kafkalite.wire.record.batches import no_items
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalite.model import TopicPartition

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns, in their default order."""
FIELDS: Final = {"key": "keys", "value": "values", "headers": "headers"}
"""Column → the field that a decoder must copy for it."""
TIMESTAMP_MAX: Final = (2**63 - 1) // 1000
"""The largest timestamp in ms that fits into one in us; larger ones are clipped to it."""
INT32_MAX: Final = 2**31 - 1


def pyarrow() -> Any:
    """Import pyarrow. Raises ImportError with a one-sentence message if pyarrow is not installed."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError(_needs_pyarrow()) from error


def require_pyarrow() -> None:
    """Raise ImportError if pyarrow is not installed, without importing it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(_needs_pyarrow())


def _needs_pyarrow() -> str:
    return needs_extra("Arrow record batches need pyarrow", "arrow")


def schema_of(columns: Sequence[str] = COLUMNS) -> Any:
    """Return the Arrow schema of these columns. Raises ValueError for an unknown column."""
    pa = pyarrow()
    require_columns(columns)
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": headers_type(),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def headers_type() -> Any:
    """Return the Arrow type of the headers column."""
    pa = pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", header))


def require_columns(columns: Sequence[str]) -> None:
    """Raise ValueError for an unknown or duplicate column name, and for an empty list."""
    for name in columns:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}; choose from {', '.join(COLUMNS)}")
    if not columns:
        raise ValueError(f"no column given; choose from {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise ValueError(f"duplicate column in {', '.join(columns)}")


def binary_array(column: BytesColumn, *, text: bool = False) -> Any:
    """Return a binary or string array that shares the bytes of a contiguous column."""
    pa = pyarrow()
    count = len(column)
    offsets = np.zeros(count + 1, np.int32)
    if count:
        assert column.ends[-1] <= INT32_MAX, "a chunk is far below 2 GiB"
        offsets[:count] = column.starts
        offsets[count] = column.ends[-1]
    valid, null_count = None, 0
    if column.nulls is not None:
        valid = valid_bits(column.nulls == 0)
        null_count = int(np.count_nonzero(column.nulls))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string() if text else pa.binary(), count, buffers, null_count)


def valid_bits(valid: NDArray[np.bool_]) -> Any:
    """Pack one bit per item, as Arrow does for validity."""
    return pyarrow().py_buffer(np.packbits(valid, bitorder="little"))


def headers_array(headers: HeaderColumns | None, count: int) -> Any:
    """Return an Arrow array with a list of (key, value) for each record; null without headers, as in Spark's connector.

    Invalid UTF-8 in keys is replaced.
    """
    pa = pyarrow()
    if headers is None:
        return pa.nulls(count, headers_type())
    keys = binary_array(headers.keys, text=True)
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        keys = pa.array([(key or b"").decode("utf-8", "replace") for key in headers.keys], pa.string())
    kind = headers_type()
    items = pa.Array.from_buffers(
        kind.value_type, len(headers.keys), [None], 0, children=[keys, binary_array(headers.values)]
    )
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = headers.record_ends
    some = headers.record_ends > headers.record_starts
    buffers = [valid_bits(some), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, count, buffers, count - int(np.count_nonzero(some)), children=[items])


def microseconds(timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert timestamps from ms to us. Timestamps beyond the year 294,247 are clipped."""
    return np.clip(timestamps, -TIMESTAMP_MAX, TIMESTAMP_MAX) * 1000


class ArrowExporter:
    """Converts records to record batches of at most `rows_max` rows and `size_max` bytes of keys and values.

    A row that is larger than `size_max` gets its own batch.
    """

    def __init__(self, columns: Sequence[str], rows_max: int, size_max: int) -> None:
        self.schema = schema_of(columns)
        self._columns = tuple(columns)
        self._rows_max = rows_max
        self._size_max = size_max
        self._constants: dict[tuple[str, object], Any] = {}

    def batches(self, key: TopicPartition, columns: RecordColumns) -> Iterator[Any]:
        """Yield the records of one partition in batches, in order."""
        whole = self.batch(key, columns)
        for start, end in pieces(columns, self._rows_max, self._size_max):
            yield whole.slice(start, end - start)

    def batch(self, key: TopicPartition, columns: RecordColumns) -> Any:
        """Return all records in one batch."""
        arrays = [self._array(name, key, columns) for name in self._columns]
        return pyarrow().RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, key: TopicPartition, columns: RecordColumns) -> Any:
        pa = pyarrow()
        count = len(columns.offsets)
        match name:
            case "key":
                return binary_array(columns.keys)
            case "value":
                return binary_array(columns.values)
            case "headers":
                return headers_array(columns.headers, count)
            case "topic":
                return self._constant("topic", key.topic, count)
            case "partition":
                return self._constant("partition", key.partition, count)
            case "offset":
                return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)], 0)
            case "timestamp":
                stamps = pa.py_buffer(microseconds(columns.timestamps))
                return pa.Array.from_buffers(self.schema.field(name).type, count, [None, stamps], 0)
            case _:
                types = columns.timestamp_types
                assert types is not None, "decoded columns tell whose time it is"
                if not types.any():
                    return self._constant(name, 0, count)
                return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(types.astype(np.int32))], 0)

    def _constant(self, name: str, value: object, count: int) -> Any:
        """Return `count` copies of a value, as a slice of a cached array."""
        kept = self._constants.get((name, value))
        if kept is None or len(kept) < count:
            pa = pyarrow()
            if len(self._constants) >= len(COLUMNS) * 2:
                self._constants.clear()
            scalar = pa.scalar(value, self.schema.field(name).type)
            kept = self._constants[name, value] = pa.repeat(scalar, max(count, self._rows_max))
        return kept.slice(0, count)


def pieces(columns: RecordColumns, rows_max: int, size_max: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs within both limits, with at least one record each."""
    count = len(columns.offsets)
    reach: NDArray[np.int64] = np.zeros(count, np.int64)
    for column in (columns.keys, columns.values):
        if len(column):
            reach = reach + column.ends
    start = 0
    while start < count:
        base = int(reach[start - 1]) if start else 0
        fitting = int(np.searchsorted(reach, base + size_max, "right"))
        end = min(max(fitting, start + 1), start + rows_max, count)
        yield start, end
        start = end


# --- from Arrow -------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Records to write and their destinations. A field is None if the writer chooses the value."""

    columns: RecordColumns
    topics: Any
    """A string array or None."""
    partitions: NDArray[np.int64] | None
    """-1 where the key decides."""


WRITABLE: Final = ("key", "value", "topic", "partition", "timestamp", "headers")
UNITS_PER_MS: Final = {"us": 1000, "ns": 1_000_000}


def rows_of(batch: Any, now_ms: int) -> Rows:
    """Return the records of a record batch with a value column and any of the other columns in WRITABLE.

    `now_ms` is the timestamp of records without one. Raises ValueError for an unknown column or a wrong type.
    """
    names = batch.schema.names
    unknown = [name for name in names if name not in WRITABLE]
    if unknown or "value" not in names or len(set(names)) != len(names):
        what = f"unknown column {unknown[0]!r}" if unknown else f"cannot write columns {', '.join(names)}"
        raise ValueError(f"{what}; expected 'value' and any of {', '.join(WRITABLE)}, each at most once")
    found = {name: batch.column(name) for name in names}
    count = batch.num_rows
    none: NDArray[np.int64] = np.empty(0, np.int64)
    columns = RecordColumns(
        none,
        timestamps_of(found["timestamp"], now_ms) if "timestamp" in found else none,
        bytes_column("key", found["key"]) if "key" in found else BytesColumn(b"", none, none),
        bytes_column("value", found["value"]),
        headers_of(found["headers"], count) if "headers" in found else None,
    )
    partitions = None
    if "partition" in found:
        pa = pyarrow()
        if not pa.types.is_integer(found["partition"].type) and not pa.types.is_null(found["partition"].type):
            raise ValueError(f"column partition has type {found['partition'].type}; expected an integer type")
        partitions = found["partition"].cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return Rows(columns, found.get("topic"), partitions)


def bytes_column(name: str, array: Any) -> BytesColumn:
    """Return the contents of an array as a column. Binary and string arrays, also large ones, are not copied.

    Other arrays of bytes are cast first. Raises ValueError for an array of other values.
    """
    pa = pyarrow()
    kind = array.type
    if pa.types.is_null(kind):
        return no_items(len(array))
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        if not wide and (is_bytes(kind) or (pa.types.is_dictionary(kind) and is_bytes(kind.value_type))):
            array = array.cast(pa.large_binary())
        elif not wide:
            raise ValueError(f"column {name} has type {kind}; expected binary or string")
        width: type[np.signedinteger[Any]] = np.int64
    else:
        width = np.int32
    count = len(array)
    if not count:
        return no_items()
    _, offsets_buffer, data_buffer = array.buffers()
    raw = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + count + 1]
    data = memoryview(b"") if data_buffer is None else memoryview(data_buffer).cast("B")
    return BytesColumn.from_offsets(data, raw.astype(np.int64), null_marks(array))


def is_bytes(kind: Any) -> bool:
    """Return whether an Arrow type can be cast to large_binary without parsing text."""
    types = pyarrow().types
    tests = ("is_binary", "is_string", "is_large_binary", "is_large_string", "is_fixed_size_binary")
    views = ("is_binary_view", "is_string_view")
    return any(getattr(types, test)(kind) for test in (*tests, *views) if hasattr(types, test))


def null_marks(array: Any) -> NDArray[np.uint8] | None:
    """Return an array with 1 for each null, or None if there are no nulls."""
    if not array.null_count:
        return None
    marks: NDArray[np.uint8] = array.is_null().to_numpy(zero_copy_only=False).astype(np.uint8)
    return marks


def timestamps_of(array: Any, now_ms: int) -> NDArray[np.int64]:
    """Return the timestamps of an array in ms, with `now_ms` for nulls."""
    pa = pyarrow()
    if pa.types.is_null(array.type):
        return np.full(len(array), now_ms, np.int64)
    if not pa.types.is_timestamp(array.type) and not pa.types.is_int64(array.type):
        raise ValueError(f"column timestamp has type {array.type}; expected a timestamp, or int64 in ms")
    unit = array.type.unit if pa.types.is_timestamp(array.type) else "ms"
    numbers: NDArray[np.int64] = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if unit == "s":
        numbers = np.clip(numbers, -TIMESTAMP_MAX, TIMESTAMP_MAX) * 1000
    elif unit in UNITS_PER_MS:
        numbers = numbers // UNITS_PER_MS[unit]
    marks = null_marks(array)
    return numbers if marks is None else np.where(marks == 1, now_ms, numbers)


def headers_of(array: Any, count: int) -> HeaderColumns | None:
    """Return the headers of each record from a list of (key, value) structs or a map; null means no headers."""
    pa = pyarrow()
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_large_list(kind):
        array = array.cast(pa.list_(kind.value_field))
        kind = array.type
    if pa.types.is_map(kind):
        keys, values = array.keys, array.items
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        keys, values = array.values.field(0), array.values.field(1)
    else:
        raise ValueError(f"column headers has type {kind}; expected a map, or a list of structs with key and value")
    if not count:
        return None
    if keys.null_count:
        raise ValueError("column headers: a header has no key")
    bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    marks = null_marks(array)
    if marks is not None:
        ends = np.where(marks == 1, starts, ends)
    return HeaderColumns(starts, ends, bytes_column("headers", keys), bytes_column("headers", values))
