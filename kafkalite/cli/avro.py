"""What `kafkalite consume --avro` does with records: keys and values of a registry's format become JSON.

    columns ─▶ Documents ─▶ columns of JSON text (for a format string) · a dict a record (for JSON lines)

Thread rule: one thread at a time.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.output import json_text
from kafkalite.wire.record.columns import BytesColumn, slice_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.avro.client import RegistryClient
    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.columns import RecordColumns


@contextlib.contextmanager
def open_values(urls: str, *, keys: bool, permissive: bool, timeout_s: float) -> Iterator[AvroValues]:
    """An AvroValues, and the end of its connection. UsageError where it cannot begin."""
    from kafkalite.avro.client import RegistryClient

    try:
        registry = RegistryClient(urls, timeout_s=min(timeout_s, 10.0), retry_timeout_s=timeout_s)
    except ValueError as error:
        raise UsageError(f"--avro: {error}") from error
    with registry:
        yield AvroValues(registry, keys=keys, permissive=permissive)


class AvroValues:
    """See the module. `permissive` leaves what cannot be decoded as it is, and says why in JSON."""

    def __init__(self, registry: RegistryClient, *, keys: bool, permissive: bool) -> None:
        from kafkalite.avro.documents import Documents

        self._documents = Documents(registry)
        self._fields = ("value", "key") if keys else ("value",)
        self._permissive = permissive

    def decode(
        self, key: TopicPartition, columns: RecordColumns
    ) -> tuple[RecordColumns, list[dict[str, object]], CommandError | None]:
        """The records with JSON text, what JSON lines show in its place, and why the records end before their end."""
        rows: list[dict[str, object]] = [{} for _ in range(len(columns))]
        reasons: dict[int, str] = {}
        for name in self._fields:
            column = columns.values if name == "value" else columns.keys
            found, failed = self._ask(column)
            texts: list[bytes | None] = []
            for row, raw in enumerate(column):
                if row in failed:
                    reason = failed[row] if name == "value" else f"{name}: {failed[row]}"
                    reasons[row] = f"{reasons[row]}; {reason}" if row in reasons else reason
                    rows[row]["avro_error"] = reasons[row]
                    texts.append(raw)
                else:
                    rows[row][name] = found[row]
                    texts.append(None if raw is None else json_text(found[row]).encode())
            shown = BytesColumn.from_items(texts)
            columns = replace(columns, values=shown) if name == "value" else replace(columns, keys=shown)
        if self._permissive or not reasons:
            return columns, rows, None
        first = min(reasons)
        where = f"{key} offset {int(columns.offsets[first])}"
        failure = CommandError(
            f"{where}: {reasons[first]} (use --avro-mode permissive to print such values as they are)"
        )
        return slice_of(columns, 0, first), rows[:first], failure

    def _ask(self, column: BytesColumn) -> tuple[list[object], dict[int, str]]:
        """CommandError when the registry cannot be asked."""
        from kafkalite.avro.client import RegistryRefused, RegistryUnreachable

        try:
            return self._documents.decode(column)
        except RegistryUnreachable as error:
            raise CommandError(f"cannot reach the schema registry: {error}", EXIT_USAGE) from error
        except RegistryRefused as error:
            raise CommandError(f"the schema registry rejected the request: {error}") from error
