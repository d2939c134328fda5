"""Decode Avro messages in a schema registry's wire format into Arrow columns of one reader schema.

    byte 0: 0x00 │ bytes 1–4: schema id, big-endian │ the Avro body

    binary column ─▶ ids ─▶ a program for each new id ─▶ native loop ─▶ Arrow columns, rows in their order
                     └─ no header, unknown id, bad body ─▶ null, and the reason

All batches have the columns of the reader's schema. A writer's schema is fetched when its id first occurs. A field that
a message lacks gets the default of the reader's schema. Fields that the reader's schema lacks are skipped.

Needs pyarrow. Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite._native.avro.avro_decode import FAILURES, ColumnDecoder
from kafkalite.avro.client import SCHEMA_NOT_FOUND, RegistryRefused
from kafkalite.avro.layout import Layout, arrow_type, build
from kafkalite.avro.resolution import compile_program
from kafkalite.avro.schema import Schema, SchemaError, parse
from kafkalite.base.dataclass import dataclass
from kafkalite.wire.record.columns import BytesColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalite.avro.client import RegistryClient

MAGIC: Final = 0
HEADER_SIZE: Final = 5
MODES: Final = ("failfast", "permissive", "dlq")
NULL_ROOT: Final = -1
PROGRAM_COUNT_MAX: Final = 10_000
"""A batch that begins with this number of cached programs of writer schemas, or more, clears the cache first."""
NO_HEADER: Final = "the message does not begin with 0x00 and a schema id"


class DecodeError(ValueError):
    """A message that cannot be decoded.

    `row` is its index in the batch. `schema_id` is the id in its header, or -1 without a valid header.
    """

    def __init__(self, row: int, schema_id: int, reason: str, place: str | None = None) -> None:
        about = f"schema id {schema_id}: " if schema_id >= 0 else ""
        super().__init__(f"{place or f'row {row}'}: {about}{reason}")
        self.row = row
        self.schema_id = schema_id
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded batch. In `values`, failed messages and null messages are null."""

    values: Any
    """An Arrow array of the reader's type: a struct for a record."""
    schema_ids: NDArray[np.int64]
    """The schema id of each row; -1 without a header."""
    failed: NDArray[np.int64]
    """The indexes of failed rows, in order."""
    reasons: list[str]
    """The reason for each row in `failed`."""

    def errors(self) -> Any:
        """Return an Arrow column of error texts, null for each message that was decoded."""
        import pyarrow as pa

        texts: list[str | None] = [None] * len(self.values)
        for row, reason in zip(self.failed.tolist(), self.reasons, strict=True):
            texts[row] = reason
        return pa.array(texts, pa.string())


class AvroDecoder:
    """A decoder of Avro messages into Arrow columns of one reader schema.

    `reader_schema`   the text of a schema, or a parsed schema (required if the schema has references)
    `mode`            "failfast": DecodeError for the first message that fails
                      "permissive", "dlq": failed messages become null; the result has `failed` and `reasons`

    Bytes after the record are an error, unlike in most other deserializers. Without this check, invalid messages are
    sometimes decoded as records.
    """

    def __init__(self, registry: RegistryClient, reader_schema: str | Schema, *, mode: str = "failfast") -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        self._registry = registry
        self._mode = mode
        self.schema = parse(reader_schema) if isinstance(reader_schema, str) else reader_schema
        self._layout = Layout(self.schema.root)
        self.arrow_type = arrow_type(self._layout.root)
        """The type of `values`."""
        self._roots: dict[int, int] = {}
        self._op_count = 0
        self._native = ColumnDecoder(self._layout.columns())

    @classmethod
    def of_subject(cls, registry: RegistryClient, subject: str, *, mode: str = "failfast") -> AvroDecoder:
        """Create a decoder whose reader schema is the current latest version of a subject."""
        return cls(registry, registry.latest(subject).schema, mode=mode)

    def decode(self, messages: Any) -> Decoded:
        """Decode a batch of messages: an Arrow binary, large_binary or string array, or a BytesColumn.

        In the mode "failfast", DecodeError for the first message that fails. RegistryUnreachable or RegistryRefused if
        a writer's schema cannot be fetched; an unknown id makes only its messages fail. OverflowError if one column
        would exceed 2 GiB.
        """
        column = bytes_column(messages)
        ids, headed = headers_of(column)
        roots, reasons = self._roots_of(column, ids, headed)
        bodies = np.where(roots >= 0, column.starts + HEADER_SIZE, column.starts)
        failures = self._native.decode(column.data, bodies, np.maximum(column.ends, bodies), roots)
        failed = np.flatnonzero((failures != 0) | (roots < NULL_ROOT)).astype(np.int64)
        texts = [reasons[roots[row]] if roots[row] < NULL_ROOT else FAILURES[failures[row]] for row in failed.tolist()]
        if self._mode == "failfast" and len(failed):
            row = int(failed[0])
            raise DecodeError(row, int(ids[row]), texts[0])
        return Decoded(build(self._native, self._layout.root), ids, failed, texts)

    def _roots_of(
        self, column: BytesColumn, ids: NDArray[np.int64], headed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], dict[int, str]]:
        """Return the native program for each message, and the reasons for messages that have none.

        A program is identified by its first op, a number from 0. The number is -1 for a null message. Messages that
        cannot be decoded have smaller numbers, which are the keys of the reasons.
        """
        if len(self._roots) >= PROGRAM_COUNT_MAX:  # only between batches: earlier roots would name other programs
            self._roots.clear()
            self._op_count = 0
            self._native = ColumnDecoder(self._layout.columns())
        reasons = {NULL_ROOT - 1: NO_HEADER}
        roots = np.full(len(column), NULL_ROOT - 1, np.int32)
        if column.nulls is not None:
            roots[column.nulls != 0] = NULL_ROOT
        for schema_id in np.unique(ids[headed]).tolist():
            try:
                root = self._root_of(schema_id)
            except RegistryRefused as error:
                if error.code != SCHEMA_NOT_FOUND:
                    raise  # an error of the client, not of the message
                root = NULL_ROOT - 1 - len(reasons)
                reasons[root] = f"the registry has no schema with this id: {error}"
            except SchemaError as error:
                root = NULL_ROOT - 1 - len(reasons)
                reasons[root] = f"its schema cannot be used: {error}"
            roots[ids == schema_id] = root
        return roots, reasons

    def _root_of(self, schema_id: int) -> int:
        root = self._roots.get(schema_id)
        if root is None:
            writer = self._registry.schema(schema_id)
            ops = compile_program(writer.root, self._layout, self.schema.root, self._op_count)
            root = self._native.add(ops)
            self._op_count += len(ops)
            self._roots[schema_id] = root
        return root


def headers_of(column: BytesColumn) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read the header of each message.

    Return the schema ids (-1 without a header), and whether each message has a header.
    """
    data = np.asarray(memoryview(column.data).cast("B"), np.uint8)
    headed = column.ends - column.starts >= HEADER_SIZE
    if column.nulls is not None:
        headed &= column.nulls == 0
    starts = column.starts[headed]
    magic = data[starts] == MAGIC
    headed[np.flatnonzero(headed)[~magic]] = False
    starts = starts[magic]
    ids = np.full(len(column), -1, np.int64)
    number = np.zeros(len(starts), np.int64)
    for place in range(1, HEADER_SIZE):
        number = number << 8 | data[starts + place]
    ids[headed] = number
    return ids, headed


def bytes_column(messages: Any) -> BytesColumn:
    """Convert an Arrow binary or string array to a BytesColumn. Of a ChunkedArray, the bytes are copied.

    TypeError for other Arrow types, OverflowError for chunks of more than 2 GiB in total.
    """
    if isinstance(messages, BytesColumn):
        return messages
    import pyarrow as pa

    array = messages.combine_chunks() if isinstance(messages, pa.ChunkedArray) else messages
    if isinstance(array, pa.ChunkedArray):  # its chunks do not fit into one
        raise OverflowError("the messages of one batch exceed 2 GiB; decode them in smaller batches")
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not wide and not pa.types.is_binary(array.type) and not pa.types.is_string(array.type):
        raise TypeError(f"messages have type {array.type}; expected binary")
    _, offsets, data = array.buffers()
    positions = np.zeros(1, np.int64)
    if len(array) or offsets is not None:
        kind = np.int64 if wide else np.int32
        positions = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    nulls = None
    if array.null_count:
        nulls = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.uint8)
    raw = np.frombuffer(b"" if data is None else data, np.uint8)
    return BytesColumn(raw.data, positions[:-1], positions[1:], nulls)
