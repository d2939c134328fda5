"""Decode Avro keys and values with a schema registry, for `kafkalite consume --avro`.

    columns ─▶ Documents ─▶ columns of JSON text, for a format string
                        └─▶ one dict per record, for JSON lines

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
    """Yield an AvroValues, and close its connection to the registry at the end. UsageError if the address is
    invalid."""
    from kafkalite.avro.client import RegistryClient

    try:
        registry = RegistryClient(urls, timeout_s=min(timeout_s, 10.0), retry_timeout_s=timeout_s)
    except ValueError as error:
        raise UsageError(f"--avro: {error}") from error
    with registry:
        yield AvroValues(registry, keys=keys, permissive=permissive)


class AvroValues:
    """Decodes the keys and values of records.

    If `permissive`, values that cannot be decoded stay unchanged, and the field `avro_error` has the reason.
    """

    def __init__(self, registry: RegistryClient, *, keys: bool, permissive: bool) -> None:
        from kafkalite.avro.documents import Documents

        self._documents = Documents(registry)
        self._fields = ("value", "key") if keys else ("value",)
        self._permissive = permissive

    def decode(
        self, key: TopicPartition, columns: RecordColumns
    ) -> tuple[RecordColumns, list[dict[str, object]], CommandError | None]:
        """Return the records with JSON text instead of Avro, the decoded fields of each record, and an error or None.

        With an error, only the records before the first one that cannot be decoded are returned.
        """
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
        """Decode a column. Return the values, and row → reason for rows that cannot be decoded.

        CommandError if the registry fails.
        """
        from kafkalite.avro.client import RegistryRefused, RegistryUnreachable

        try:
            return self._documents.decode(column)
        except RegistryUnreachable as error:
            raise CommandError(f"cannot reach the schema registry: {error}", EXIT_USAGE) from error
        except RegistryRefused as error:
            raise CommandError(f"the schema registry rejected the request: {error}") from error
