"""Assign marks to a producer's messages, and count them by window until the counts are reported.

A producer reports its counts in increments. Each increment covers a span of sequences of a topic, such as [0, 40,000).
It contains the number of messages by window. An increment that is sent twice counts once.

Thread rule: any thread; a lock guards the tally. A forked process starts a new run.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalite.audit.events import WINDOWS_MAX, Increment
from kafkalite.audit.fields import with_field
from kafkalite.audit.marks import mark, mark_text, server_bytes, with_marks
from kafkalite.base.dataclass import dataclass
from kafkalite.wire.record.columns import BytesColumn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kafkalite.wire.record.columns import RecordColumns

WINDOW_S: Final = 60.0
REPORT_INTERVAL_S: Final = 10.0
"""How long counts stay with the producer at most while it is used."""
WINDOWS_PENDING_MAX: Final = 5000
"""The most unreported counts of a topic; beyond that they are reported at once."""
NO_TIMESTAMP: Final = -1


@dataclass(slots=True)
class Span:
    """The messages of a topic that were marked since its last increment."""

    first: int = 0
    end: int = 0
    counts: dict[int, int] = field(default_factory=dict)


class SentTally:
    """The marks and counts of one producer; see the module. `window_s` is the length of a window in seconds."""

    def __init__(self, server: str, *, window_s: float = WINDOW_S) -> None:
        self._server = server_bytes(server)
        self.server = server
        self.window_ms = round(window_s * 1000)
        if self.window_ms < 1:
            raise ValueError(f"a window of {window_s:g} s is too short")
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.run = secrets.randbits(64)
        self._process = os.getpid()
        self._spans: dict[str, Span] = {}
        self._reported_at = time.monotonic()

    def _span(self, topic: str) -> Span:
        if self._process != os.getpid():
            self._begin()  # the parent reports its own counts
        return self._spans.setdefault(topic, Span())

    def mark_columns(self, topic: str, columns: RecordColumns, now_ms: int) -> RecordColumns:
        """Mark and count the records. Records without a timestamp get `now_ms`."""
        if not len(columns):
            return columns
        timestamps = times_of(columns, now_ms)
        windows, counts = np.unique(timestamps // self.window_ms, return_counts=True)
        with self._lock:
            span = self._span(topic)
            marked = with_marks(columns, timestamps, run=self.run, first=span.end, server=self._server)
            span.end += len(columns)
            for window, count in zip(windows.tolist(), counts.tolist(), strict=True):
                span.counts[window] = span.counts.get(window, 0) + count
        return marked

    def mark_values(self, topic: str, columns: RecordColumns, now_ms: int, field: str) -> RecordColumns:
        """Mark and count records whose values are JSON objects: each mark becomes the named field. Raises
        ValueError.
        """
        values = list(columns.values)
        for value in values:
            with_field(value, field, "")  # check all before counting one
        texts = self.mark_texts(topic, times_of(columns, now_ms).tolist())
        marked = (with_field(value, field, text) for value, text in zip(values, texts, strict=True))
        return replace(columns, values=BytesColumn.from_items(marked))

    def mark_one(self, topic: str, timestamp: int) -> bytes:
        """Mark and count one message; see `take_back`."""
        with self._lock:
            span = self._span(topic)
            made = mark(self.run, span.end, timestamp, self._server)
            span.end += 1
            window = timestamp // self.window_ms
            span.counts[window] = span.counts.get(window, 0) + 1
        return made

    def mark_texts(self, topic: str, timestamps: Iterable[int]) -> list[str]:
        """Return the mark of each of these messages as text, and count them. `timestamps` are in ms since 1970."""
        found = []
        with self._lock:
            span = self._span(topic)
            for timestamp in timestamps:
                found.append(mark_text(self.run, span.end, timestamp, self._server))
                span.end += 1
                window = timestamp // self.window_ms
                span.counts[window] = span.counts.get(window, 0) + 1
        return found

    def take_back(self, topic: str, timestamp: int) -> None:
        """Free the sequence of the last `mark_one`, because its message was refused."""
        with self._lock:
            span = self._spans[topic]
            span.end -= 1
            span.counts[timestamp // self.window_ms] -= 1

    def due(self, interval_s: float) -> bool:
        """Return whether counts should be reported now: the interval has passed, or many windows are waiting."""
        with self._lock:
            waiting = [span for span in self._spans.values() if span.end > span.first]
            if not waiting or self._process != os.getpid():
                return False
            full = any(len(span.counts) >= WINDOWS_PENDING_MAX for span in waiting)
            return full or time.monotonic() - self._reported_at >= interval_s

    def take(self) -> list[Increment]:
        """Return the increments since the last call. Sending an increment more than once is harmless.

        Their spans follow those of earlier increments; only `forget` leaves a gap.
        """
        with self._lock:
            taken: list[Increment] = []
            if self._process != os.getpid():
                return taken
            for topic, span in self._spans.items():
                if span.end == span.first:
                    continue
                rows = sorted((window, count) for window, count in span.counts.items() if count)
                parts = [rows[at : at + WINDOWS_MAX] for at in range(0, len(rows), WINDOWS_MAX)]
                taken += [
                    Increment(
                        self.run,
                        self.server,
                        topic,
                        self.window_ms,
                        span.first,
                        span.end,
                        part,
                        tuple((window * self.window_ms, count) for window, count in counts),
                    )
                    for part, counts in enumerate(parts)
                ]
                self._spans[topic] = Span(span.end, span.end)
            self._reported_at = time.monotonic()
            return taken

    def forget(self) -> None:
        """Drop the counts since the last `take`, because the messages were aborted."""
        with self._lock:
            for topic, span in self._spans.items():
                self._spans[topic] = Span(span.end, span.end)


def times_of(columns: RecordColumns, now_ms: int) -> NDArray[np.int64]:
    """Return each record's time in ms since 1970; `now_ms` for records without one."""
    timestamps: NDArray[np.int64] = np.full(len(columns), now_ms, np.int64)
    if len(columns.timestamps):
        timestamps = np.where(columns.timestamps == NO_TIMESTAMP, now_ms, columns.timestamps)
    return timestamps
