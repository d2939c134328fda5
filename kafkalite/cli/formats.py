"""Write records as a format string or as JSON lines, for `kafkalite consume` and `kafkalite log dump`.

Format strings are kcat's:

    %s value    %S its size    %k key    %K its size    %o offset    %T timestamp in ms    %h headers, k=v,k=v
    %t topic    %p partition   %% a percent sign        \\n \\t \\r \\0 \\\\ \\xHH

In JSON lines, each record is an object. With --avro, a decoded value is JSON text in a format string, and a JSON value
in JSON lines.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.lines import OPERATIONS, STEPS_MAX, render
from kafkalite.cli import UsageError
from kafkalite.cli.common import unescape
from kafkalite.cli.output import escaped, escaped_bytes, json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.columns import Record, RecordColumns

FIELDS: Final = {
    b"s": "value",
    b"S": "value_size",
    b"k": "key",
    b"K": "key_size",
    b"o": "offset",
    b"T": "timestamp",
    b"h": "headers",
}
_PART: Final = re.compile(rb"%(.?)", re.DOTALL)


class Format:
    """A parsed format string."""

    def __init__(self, text: str, null_text: str = "", *, terminal: bool = False) -> None:
        """Parse a format string. UsageError if it is invalid.

        A null is written as `null_text`, and its size as -1.
        If `terminal`, keys, values and headers are escaped. Line ends and tabs in values stay.
        """
        self._terminal = terminal
        self._raw = unescape(text, "--format")
        self._null = null_text.encode(errors="surrogateescape")
        self._steps: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for match in _PART.finditer(self._raw):
            if match[1] not in {*FIELDS, b"t", b"p", b"%"}:
                raise UsageError(f"--format: unknown %{match[1].decode(errors='replace')}; see --help")

    def write(self, key: TopicPartition, columns: RecordColumns, _documents: object = None) -> bytes | memoryview:
        """Return the text of the records."""
        if key not in self._steps:
            self._steps[key] = self._compile(key)
        steps = self._steps[key]
        if self._terminal:
            return "".join(self._shown(record, steps) for record in columns.records()).encode(errors="surrogateescape")
        return render(columns, steps, self._null)

    def _shown(self, record: Record, steps: list[tuple[int, bytes]]) -> str:
        """Return the text of one record for a terminal.

        The format's literal text comes from the user, so it is not escaped.
        """
        null = self._null.decode(errors="surrogateescape")

        def text(raw: bytes | None) -> str:
            return null if raw is None else escaped(raw.decode(errors="backslashreplace"))

        def size(raw: bytes | None) -> str:
            return str(-1 if raw is None else len(raw))

        shown = {
            OPERATIONS["key"]: lambda: text(record.key),
            OPERATIONS["value"]: lambda: null if record.value is None else escaped_bytes(record.value),
            OPERATIONS["offset"]: lambda: str(record.offset),
            OPERATIONS["timestamp"]: lambda: str(record.timestamp),
            OPERATIONS["key_size"]: lambda: size(record.key),
            OPERATIONS["value_size"]: lambda: size(record.value),
            OPERATIONS["headers"]: lambda: ",".join(f"{escaped(key)}={text(value)}" for key, value in record.headers),
        }
        parts = (literal.decode(errors="surrogateescape") if literal else shown[step]() for step, literal in steps)
        return "".join(parts)

    def _compile(self, key: TopicPartition) -> list[tuple[int, bytes]]:
        """Compile the format into steps of `render`. The topic and the partition become literal text."""
        constants = {b"t": key.topic.encode(), b"p": str(key.partition).encode(), b"%": b"%"}
        steps: list[tuple[int, bytes]] = []
        text = b""
        position = 0
        for match in _PART.finditer(self._raw):
            text += self._raw[position : match.start()]
            position = match.end()
            if match[1] in constants:
                text += constants[match[1]]
                continue
            if text:
                steps.append((OPERATIONS["literal"], text))
            steps.append((OPERATIONS[FIELDS[match[1]]], b""))
            text = b""
        text += self._raw[position:]
        if text:
            steps.append((OPERATIONS["literal"], text))
        if len(steps) > STEPS_MAX:
            raise UsageError(f"--format has {len(steps)} parts; at most {STEPS_MAX} are allowed")
        return steps


class JsonLines:
    """Writes each record as a JSON object on one line."""

    def write(
        self, key: TopicPartition, columns: RecordColumns, documents: Sequence[dict[str, object]] | None = None
    ) -> bytes:
        """Return the text of the records. The decoded fields in `documents` replace the contents of the columns."""
        rows = (as_json(key, record) for record in columns.records())
        if documents is not None:
            rows = ({**row, **shown} for row, shown in zip(rows, documents, strict=True))
        return "".join(f"{json_text(row)}\n" for row in rows).encode()


def as_json(key: TopicPartition, record: Record) -> dict[str, object]:
    """Return a record as a dict for JSON output."""
    row: dict[str, object] = {
        "topic": key.topic,
        "partition": key.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    put_text(row, "key", record.key)
    put_text(row, "value", record.value)
    if record.headers:
        row["headers"] = [header_as_json(name, value) for name, value in record.headers]
    return row


def header_as_json(name: str, value: bytes | None) -> dict[str, object]:
    row: dict[str, object] = {"key": name}
    put_text(row, "value", value)
    return row


def put_text(row: dict[str, object], name: str, value: bytes | None) -> None:
    """Set the field `name` to the text of a key or value. If it is not UTF-8, `name` is null and NAME_base64 is set."""
    try:
        row[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        row[name] = None
        row[f"{name}_base64"] = base64.b64encode(value or b"").decode()
