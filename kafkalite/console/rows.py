"""Convert records to rows for programs, for exports and for copying from a page.

    {"topic", "partition", "offset", "timestamp", "key", "key_is", "value", "value_is", "headers": [[name, value, is]]}

Avro is decoded to JSON if a registry has its schema. Other keys and values are text if they are UTF-8, otherwise
base64. The fields `key_is`, `value_is` and `is` contain the name of the format.

Thread rule: functions belong to the thread that has the Documents, which decode Avro.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.wire.record.columns import BytesColumn

if TYPE_CHECKING:
    from kafkalite.avro.documents import Documents
    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.columns import Record

COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp"),
    *("key", "key_is", "value", "value_is", "headers"),
)


def rows_of(portion: list[tuple[TopicPartition, Record]], documents: Documents | None) -> list[dict[str, Any]]:
    """Return one dict per record, with the fields COLUMNS."""
    keys = texts_of([record.key for _, record in portion], documents)
    values = texts_of([record.value for _, record in portion], documents)
    rows = []
    for (where, record), key, value in zip(portion, keys, values, strict=True):
        headers = [[name_text(name), *text_of(raw)] for name, raw in record.headers]
        place = (where.topic, where.partition, record.offset, record.timestamp)
        rows.append(dict(zip(COLUMNS, (*place, *key, *value, headers), strict=True)))
    return rows


def name_text(name: str) -> str:
    return name.encode(errors="replace").decode()


def texts_of(column: list[bytes | None], documents: Documents | None) -> list[tuple[str | None, str]]:
    """Return (text, kind) for each key or value. The kind is null, text, base64 or avro."""
    found = [text_of(raw) for raw in column]
    if documents is None or not any(raw is not None and raw[:1] == b"\0" for raw in column):
        return found
    try:
        decoded, failed = documents.decode(BytesColumn.from_items(column))
    except (RegistryRefused, RegistryUnreachable):
        return found
    return [
        plain
        if raw is None or raw[:1] != b"\0" or place in failed
        else (json.dumps(document, ensure_ascii=False).encode(errors="replace").decode(), "avro")
        for place, (raw, plain, document) in enumerate(zip(column, found, decoded, strict=True))
    ]


def text_of(raw: bytes | None) -> tuple[str | None, str]:
    if raw is None:
        return None, "null"
    try:
        return raw.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), "base64"
