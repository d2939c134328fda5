"""Decode Avro messages in a schema registry's wire format into JSON documents, for display.

    Avro                            JSON
    record, map                     object
    array                           array
    union                           the value, without the name of its branch
    bytes, fixed                    base64 text
    decimal                         text, such as "12.50"
    date, time, timestamp           ISO 8601 text; a timestamp ends with Z, a local timestamp does not
                                    the stored number, if the year is not from 1 to 9999
    NaN, Infinity, -Infinity        text, because JSON has no such numbers
    other types                     as in JSON

Each message is decoded with the schema that it was written with, by an AvroDecoder for each schema id. The slower
`kafkalite.avro.single` decodes recursive schemas and schemas with very many columns. Without pyarrow, it decodes all
schemas.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.avro import single
from kafkalite.avro.client import SCHEMA_NOT_FOUND, RegistryRefused
from kafkalite.avro.decoder import HEADER_SIZE, NO_HEADER, AvroDecoder, headers_of
from kafkalite.avro.layout import TIMES, UnsupportedSchema, decimal_of, nullable_part
from kafkalite.avro.leaves import DIGITS, date_text, number_text, stamp_text, time_text
from kafkalite.avro.schema import Schema, SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import Type
    from kafkalite.wire.record.columns import BytesColumn

DECODER_COUNT_MAX: Final = 1000
"""Maximum cached decoders; when it is exceeded, the cache is cleared."""


class Documents:
    """A decoder of Avro messages into JSON documents.

    `columns` is True to decode with pyarrow and False to decode value by value. The default depends on whether pyarrow
    is installed.
    """

    def __init__(self, registry: RegistryClient, *, columns: bool | None = None) -> None:
        self._registry = registry
        self._decoders: dict[int, AvroDecoder | Schema] = {}
        self._columns = importlib.util.find_spec("pyarrow") is not None if columns is None else columns

    def decode(self, messages: BytesColumn) -> tuple[list[object], dict[int, str]]:
        """Return the document of each message, and the reason for each message that failed, by its index.

        A null message and a failed message have the document None. RegistryUnreachable or RegistryRefused if a schema
        cannot be fetched; an unknown id makes only its messages fail.
        """
        found: list[object] = [None] * len(messages)
        ids, headed = headers_of(messages)
        present = np.ones(len(messages), np.bool_) if messages.nulls is None else messages.nulls == 0
        failed = dict.fromkeys(np.flatnonzero(present & ~headed).tolist(), NO_HEADER)
        for schema_id in np.unique(ids[headed]).tolist():
            rows = np.flatnonzero(headed & (ids == schema_id))
            try:
                decoder = self._decoder(schema_id)
            except RegistryRefused as error:
                if error.code != SCHEMA_NOT_FOUND:
                    raise
                failed |= dict.fromkeys(rows.tolist(), f"the registry has no schema with id {schema_id}: {error}")
                continue
            except SchemaError as error:
                failed |= dict.fromkeys(rows.tolist(), f"schema {schema_id} cannot be used: {error}")
                continue
            if isinstance(decoder, Schema):
                self._decode_singly(schema_id, decoder, messages, rows, found, failed)
                continue
            decoded = decoder.decode(messages.chosen(rows))
            for row, document in zip(rows.tolist(), documents(decoded.values, decoder.schema.root), strict=True):
                found[row] = document
            for place, reason in zip(decoded.failed.tolist(), decoded.reasons, strict=True):
                failed[int(rows[place])] = f"schema {schema_id}: {reason}"
        return found, dict(sorted(failed.items()))

    @staticmethod
    def _decode_singly(
        schema_id: int,
        schema: Schema,
        messages: BytesColumn,
        rows: NDArray[np.int64],
        found: list[object],
        failed: dict[int, str],
    ) -> None:
        for row in rows.tolist():
            try:
                found[row] = single.document(schema.root, bytes(messages[row] or b"")[HEADER_SIZE:])
            except ValueError as error:
                failed[row] = f"schema {schema_id}: {error}"

    def _decoder(self, schema_id: int) -> AvroDecoder | Schema:
        """Return the decoder for a schema id: an AvroDecoder, or the schema itself to decode value by value."""
        decoder = self._decoders.get(schema_id)
        if decoder is None:
            decoder = schema = self._registry.schema(schema_id)
            if self._columns:
                with contextlib.suppress(UnsupportedSchema):
                    decoder = AvroDecoder(self._registry, schema, mode="permissive")
            if len(self._decoders) >= DECODER_COUNT_MAX:
                self._decoders.clear()
            self._decoders[schema_id] = decoder
        return decoder


def documents(column: Any, schema: Type) -> list[object]:
    """Convert an Arrow column that an `AvroDecoder` returned to a list of JSON documents.

    `schema` is the column's Avro type.
    """
    made, _ = nullable_part(schema)
    rows = _rows(column, made)
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _rows(column: Any, made: Type) -> list[object]:
    if made.kind == "record":
        names = [row.name for row in made.fields]
        fields = [documents(column.field(place), row.type) for place, row in enumerate(made.fields)]
        return [dict(zip(names, values, strict=True)) for values in _across(fields, len(column))]
    if made.kind == "union":
        branches = [branch for branch in made.branches if branch.kind != "null"]
        members = [documents(column.field(place), branch) for place, branch in enumerate(branches)]
        return [next((value for value in row if value is not None), None) for row in _across(members, len(column))]
    if made.kind in {"array", "map"}:
        assert made.items is not None, "an array and a map have items"
        items = documents(column.values if made.kind == "array" else column.items, made.items)
        keys = column.keys.to_pylist() if made.kind == "map" else None
        bounds = column.offsets.to_pylist()
        spans = [slice(start, end) for start, end in itertools.pairwise(bounds)]
        if keys is None:
            return [items[span] for span in spans]
        return [dict(zip(keys[span], items[span], strict=True)) for span in spans]
    return _leaves(column, made)


def _leaves(column: Any, made: Type) -> list[object]:
    time = TIMES.get((made.kind, made.logical or ""))
    if time is not None:
        return _time_texts(column, time)
    values = column.to_pylist()
    if decimal_of(made) is not None:
        return [str(value) for value in values]
    if made.kind in {"bytes", "fixed"}:
        return [base64.b64encode(value or b"").decode() for value in values]
    if made.kind in {"float", "double"}:
        return [number_text(value) for value in values]
    return list(values)


def _across(columns: list[list[object]], length: int) -> Any:
    """Return the rows of these columns as tuples. If there are no columns, return `length` empty tuples."""
    return zip(*columns, strict=True) if columns else [()] * length


def _time_texts(column: Any, name: str) -> list[object]:
    """Format a column of dates or times in ISO 8601.

    Uses the stored integers, because Python's datetime cannot represent all values.
    """
    import pyarrow as pa

    wide = pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type)
    numbers = column.view(pa.int64() if wide else pa.int32()).to_pylist()
    kind, _, unit = name.partition("_")
    if kind == "date32":
        return [None if number is None else date_text(number) for number in numbers]
    if kind in {"time32", "time64"}:
        return [None if number is None else time_text(number, DIGITS[column.type.unit]) for number in numbers]
    zone = "Z" if kind == "timestamp" else ""
    return [None if number is None else stamp_text(number, DIGITS[unit], zone) for number in numbers]
