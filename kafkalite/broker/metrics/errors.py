"""Count the error codes in responses when they are encoded, for the APIs that are not served in C."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.table import PARTITIONS_MAX
from kafkalite.broker.limits.pace import checkpointed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.broker.handlers.context import RequestContext

DEPTH_MAX: Final = 3
"""Depth of nested lists that are searched for error codes: topics, their partitions."""


class ErrorCounts:
    """Counts the error codes in responses of APIs that are not served in C. Any thread."""

    def __init__(self, rows: Iterable[table.Row] = table.ROWS) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[int, int]] = Counter()
        self._rows = {row.key: CountedRow(row, self.note) for row in rows}

    def find(self, key: int) -> table.Row | None:
        """Return the row of an API key, like table.find. This row also counts the error codes of its responses."""
        return self._rows.get(key)

    def note(self, key: int, response: object) -> None:
        """Count the error codes of a response; 0 means success."""
        codes = Counter(error_codes(response))
        with self._lock:
            self._counts.update({(key, code): count for code, count in codes.items()})

    def numbers(self) -> dict[tuple[int, int], int]:
        """Return (API key, error code) → count."""
        with self._lock:
            return dict(self._counts)


class CountedRow(table.Row):
    """A row of the API table that counts the error codes of the responses that it encodes."""

    __slots__ = ("_note", "_row")

    def __init__(self, row: table.Row, note: Callable[[int, object], None]) -> None:
        super().__init__(
            row.key,
            row.oldest,
            row.newest,
            row.handler,
            row.blocks,
            advertised=row.advertised,
            in_order=row.in_order,
            item_us=row.item_us,
            unnamed=row.unnamed,
        )
        self._row = row
        self._note = note

    @property
    def gated(self) -> bool:
        return self._row.gated

    def cost_us(self, context: RequestContext, request: Any) -> float:
        return self._row.cost_us(context, request)

    def quick_cost_us(self, context: RequestContext, request: Any, size: int) -> float:
        return self._row.quick_cost_us(context, request, size)

    def decode(
        self,
        version: int,
        body: bytes | bytearray | memoryview,
        partitions_max: int = PARTITIONS_MAX,
        pace: Callable[[], object] | None = None,
    ) -> Any:
        return self._row.decode(version, body, partitions_max, pace)

    def encode(
        self, version: int, correlation_id: int, response: object, pace: Callable[[int], object] | None = None
    ) -> bytes:
        self._note(self.key, self._row.message(version, response))
        return self._row.encode(version, correlation_id, response, pace)

    def release(self, version: int, request: Any, response: object, pace: Callable[[], object]) -> None:
        self._row.release(version, request, response, pace)


def error_codes(message: Any, depth: int = 0) -> Iterator[int]:
    """Yield every `error_code` in a message and in the structs of its lists; yield 0 if there is none."""
    found = False
    code = getattr(message, "error_code", None)
    if code is not None:
        found = True
        yield code
    if depth < DEPTH_MAX:
        for name, kind, *_ in message.FIELDS:
            if kind.startswith("[]") and kind[2:3].isupper():
                for item in checkpointed(getattr(message, name) or ()):
                    for inner in error_codes(item, depth + 1):
                        found = True
                        yield inner
    if not found and depth == 0:
        yield 0
