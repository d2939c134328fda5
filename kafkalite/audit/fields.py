"""Read the marks of messages that have them in a named payload field instead of a header.

The format of a value is found in this order:

    1. If a schema was given for the topic, the value is bare Avro.
    2. With a registry, a value that begins with 0x00 and a schema id is Avro in the registry's wire format.
    3. Any other value is JSON; the field is in the outermost object.

The field contains the mark as text. If the field is missing, or its text is not a mark, the message has no mark.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.audit.marks import Marks, marks_of_texts, read_marks
from kafkalite.wire.record.columns import BytesColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import Schema
    from kafkalite.wire.record.columns import HeaderColumns

FRAME: Final = b"\x00\x00\x00\x00\x01"
"""The header of a message in the registry's format, here for the one given schema."""
SCHEMAS_MAX: Final = 1000
"""The most cached decoders; beyond that the cache is cleared."""
JSON_FAULTS: Final = (ValueError, RecursionError)


class MarkFields:
    """The fields that contain the marks of each topic, and a reader of these marks; see the module.

    `fields`    topic → field; None → all other topics
    `registry`  for values in the registry's wire format
    `schemas`   topic → schema of values that are bare Avro records; None → all other topics with a field
    """

    def __init__(
        self,
        fields: Mapping[str | None, str],
        *,
        registry: RegistryClient | None = None,
        schemas: Mapping[str | None, Schema] | None = None,
    ) -> None:
        self._fields = dict(fields)
        self._registry = registry
        self._schemas = dict(schemas or {})
        self._decoders: dict[tuple[str | None, int, str], Any] = {}

    def field(self, topic: str) -> str | None:
        """Return the field that contains a topic's marks, or None if they are in headers only."""
        return self._fields.get(topic, self._fields.get(None))

    def marks(self, topic: str, headers: HeaderColumns | None, values: BytesColumn) -> Marks:
        """Return the mark of each record that has a mark. A mark in a header takes precedence over a mark in
        a field.

        An Avro field may also contain the bytes of the mark's text, and its type may be a union with null. If a JSON
        object has the field twice, the last field counts.
        """
        field = self.field(topic)
        return merged(headers, {} if field is None else dict(self._texts(topic, field, values)))

    def _texts(self, topic: str, field: str, values: BytesColumn) -> Iterator[tuple[int, bytes]]:
        schema = self._schemas.get(topic, self._schemas.get(None))
        if schema is not None:
            framed = BytesColumn.from_items(None if value is None else FRAME + value for value in values)
            yield from self._avro_texts(topic, schema, 1, field, framed, np.arange(len(values)))
            return
        ids = np.full(len(values), -1, np.int64)
        if self._registry is not None:
            from kafkalite.avro.decoder import headers_of

            ids, _ = headers_of(values)
        for number in np.unique(ids[ids >= 0]).tolist():
            rows = np.flatnonzero(ids == number)
            yield from self._avro_texts(None, None, number, field, values.chosen(rows), rows)
        needle = json.dumps(field).encode()
        for row in np.flatnonzero(ids < 0).tolist():
            value = values[row]
            if value is not None and needle in value and (text := json_text(value, field)) is not None:
                yield row, text

    def _avro_texts(
        self, topic: str | None, schema: Schema | None, number: int, field: str, values: BytesColumn, rows: Any
    ) -> Iterator[tuple[int, bytes]]:
        key = (topic, number, field)
        if key not in self._decoders:
            if len(self._decoders) >= SCHEMAS_MAX:
                self._decoders.clear()
            self._decoders[key] = self._decoder(schema, number, field)
        decoder = self._decoders[key]
        if decoder is None:
            return
        found = decoder.decode(values).values.field(0).to_pylist()
        for row, text in zip(rows.tolist(), found, strict=True):
            if text is not None:
                yield row, text.encode() if isinstance(text, str) else text

    def _decoder(self, schema: Schema | None, number: int, field: str) -> Any:
        """Return a decoder for one field of this schema's values.

        None if the schema has no such field of text or bytes, if it is not an Avro schema, or if the registry does not
        know the id. Raises RegistryUnreachable, and RegistryRefused for other errors.
        """
        from kafkalite.avro.client import SCHEMA_NOT_FOUND, RegistryRefused
        from kafkalite.avro.decoder import AvroDecoder
        from kafkalite.avro.schema import SchemaError

        if schema is None:
            assert self._registry is not None, "ids are looked for with a registry"
            try:
                written = self._registry.schema(number)
            except RegistryRefused as error:
                if error.code != SCHEMA_NOT_FOUND:
                    raise
                return None
            except SchemaError:
                return None
        else:
            written = schema
        wanted = one_field(written, field)
        registry: Any = self._registry if schema is None else OneSchema(schema)
        return None if wanted is None else AvroDecoder(registry, wanted, mode="permissive")


class OneSchema:
    """A registry with a single schema, for topics whose values are bare Avro records."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def schema(self, _schema_id: int) -> Schema:
        """Return the schema, for any id."""
        return self._schema


def one_field(schema: Schema, name: str) -> Schema | None:
    """Return a schema that reads only this field of a record, or None if the field is not text or bytes."""
    from kafkalite.avro.layout import nullable_part
    from kafkalite.avro.schema import Field, Type, parse, render

    for row in schema.root.fields if schema.root.kind == "record" else ():
        if row.name == name and nullable_part(row.type)[0].kind in {"string", "bytes"}:
            return parse(render(Type("record", schema.root.name, fields=(Field(name, row.type),))))
    return None


def json_text(value: bytes, field: str) -> bytes | None:
    """Return the text in a field of a JSON object, or None."""
    try:
        document = json.loads(value)
    except JSON_FAULTS:
        return None
    text = document.get(field) if isinstance(document, dict) else None
    return text.encode("utf-8", "replace") if isinstance(text, str) else None


def with_field(value: bytes | None, field: str, mark: str) -> bytes:
    """Append the mark as the last field of a JSON object. Raises ValueError if the value is not one."""
    body = b"" if value is None else value.rstrip()
    if not body.lstrip().startswith(b"{") or not body.endswith(b"}"):
        raise ValueError("the value is not a JSON object, so it cannot hold a mark")
    head = body[:-1].rstrip()
    comma = b"" if head.lstrip() == b"{" else b","
    return b"%s%s%s:%s}" % (head, comma, json.dumps(field).encode(), json.dumps(mark, ensure_ascii=False).encode())


def merged(headers: HeaderColumns | None, texts: Mapping[int, bytes]) -> Marks:
    """Return the marks from headers and, for records without such a mark, from field texts (indexed by record)."""
    one = read_marks(headers)
    if not texts:
        return one
    known = set(one.records.tolist())
    other = marks_of_texts(sorted((row, text) for row, text in texts.items() if row not in known))
    both = Marks(
        np.concatenate((one.records, other.records)),
        np.concatenate((one.runs, other.runs)),
        np.concatenate((one.sequences, other.sequences)),
        np.concatenate((one.timestamps, other.timestamps)),
        BytesColumn.from_items([*one.servers, *other.servers]),
    )
    return both.chosen(np.argsort(both.records, kind="stable"))
