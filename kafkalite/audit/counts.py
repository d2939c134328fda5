"""Count the messages of a stage by their marks, as distinct, duplicated or unreported, by topic, run and window.

A run is the time from a producer's start to its end. A window is a span of time of fixed length.

    chunk of records ─▶ marks, sorted by run and sequence ─▶ pages of bits ─▶ counts of windows
                                                              65,536 sequences each

Each message is one bit. A page takes 8 KiB, but all full pages share one page.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalite.audit.marks import read_marks
from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalite.audit.events import Reported
    from kafkalite.audit.marks import Marks
    from kafkalite.wire.record.columns import HeaderColumns

PAGE_BITS: Final = 16
PAGE_SIZE: Final = 1 << PAGE_BITS
FULL: Final = np.full(PAGE_SIZE // 8, 0xFF, np.uint8)
"""The shared page for pages whose messages were all seen."""
RANGES_MAX: Final = 20
"""The most ranges of sequences that are listed for a topic and run."""


class Window(NamedTuple):
    """The messages of one run in one time window of a topic."""

    topic: str
    run: int
    start_ms: int


@dataclass(slots=True)
class SeenCounts:
    """A stage's counts for a window."""

    distinct: int = 0
    """Reported messages, each counted once."""
    duplicated: int = 0
    """Records of a message after its first."""
    unreported: int = 0
    """Messages without an increment, each counted once."""


class Count:
    """The marks that were found in one stage. Fill it with `add`, then read `windows`, `unmarked` and `missing_ranges`.

    `window_ms`  the window length of runs without reports
    `since_ms`   older messages are ignored
    """

    def __init__(self, reported: Reported, *, window_ms: int = 60_000, since_ms: int | None = None) -> None:
        self._reported = reported
        self._window_ms = window_ms
        self._since_ms = since_ms
        self._pages: dict[tuple[str, int, int], NDArray[np.uint8]] = {}
        self._twice: dict[tuple[str, int], dict[int, int]] = {}
        self.windows: dict[Window, SeenCounts] = {}
        self.topics: frozenset[str] | None = None
        """The topics of the stage; None for all."""
        self.servers: dict[int, str] = dict(reported.servers)
        self.unmarked: dict[str, int] = {}
        """Number of records without a mark, by topic."""
        self.record_count = 0

    def window_ms(self, run: int) -> int:
        """Return the window length of a run."""
        return self._reported.windows_ms.get(run, self._window_ms)

    def may_take(self, newest_us: int | None) -> bool:
        """Return whether records up to this time (µs since 1970; None if unknown) can include messages that count."""
        return self._since_ms is None or newest_us is None or newest_us >= self._since_ms * 1000

    def add(self, topic: str, headers: HeaderColumns | None, count: int) -> None:
        """Add `count` records of a topic with their headers. `headers` is None if no record has any."""
        self.add_marks(topic, read_marks(headers), count)

    def add_marks(self, topic: str, marks: Marks, count: int) -> None:
        """Add `count` records of a topic with the marks of those that have one."""
        self.record_count += count
        if count > len(marks.records):
            self.unmarked[topic] = self.unmarked.get(topic, 0) + count - len(marks.records)
        if self._since_ms is not None:
            marks = marks.chosen(np.flatnonzero(marks.timestamps >= self._since_ms))
        marks = marks.chosen(np.lexsort((marks.sequences, marks.runs)))
        for start, end in segments(marks.runs, marks.sequences):
            run = int(marks.runs[start])
            if run not in self.servers:
                self.servers[run] = marks.server(start)
            self._add_page(topic, run, marks.sequences[start:end], marks.timestamps[start:end])

    def _add_page(self, topic: str, run: int, sequences: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        """Add sorted sequences of one page."""
        key = (topic, run, int(sequences[0]) >> PAGE_BITS)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = np.zeros(PAGE_SIZE // 8, np.uint8)
        low = sequences & (PAGE_SIZE - 1)
        places, bits = low >> 3, np.left_shift(1, low & 7).astype(np.uint8)
        fresh = (page[places] & bits) == 0
        fresh[1:] &= sequences[1:] != sequences[:-1]
        if page is not FULL:
            np.bitwise_or.at(page, places, bits)
            if page[0] == 0xFF and page.all() and np.array_equal(page, FULL):
                self._pages[key] = FULL
        length = self.window_ms(run)
        starts = timestamps // length * length
        covered = self._reported.covers(topic, run, sequences)
        for kind, chosen in (("distinct", fresh & covered), ("unreported", fresh & ~covered), ("duplicated", ~fresh)):
            found, counts = np.unique(starts[chosen], return_counts=True)
            for window, count in zip(found.tolist(), counts.tolist(), strict=True):
                seen = self.windows.setdefault(Window(topic, run, window), SeenCounts())
                setattr(seen, kind, getattr(seen, kind) + count)
        if not fresh.all():
            self._remember_twice((topic, run), sequences[~fresh].tolist())
        strange = fresh & ~covered
        if strange.any():
            self._note_unreported(topic, run, sequences[strange], starts[strange])

    def _note_unreported(self, topic: str, run: int, sequences: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        """Receive sequences of a page that no increment covers, and the starts of their windows.

        This method does nothing; LastingCount overrides it.
        """

    def _remember_twice(self, key: tuple[str, int], sequences: list[int]) -> None:
        """Store duplicated sequences for the report, with the number of additional records of each."""
        known = self._twice.setdefault(key, {})
        for sequence in sequences:
            if sequence in known or len(known) < RANGES_MAX:
                known[sequence] = known.get(sequence, 0) + 1

    def duplicated_sequences(self, topic: str, run: int) -> dict[int, int]:
        """Return the first RANGES_MAX duplicated sequences, with the number of additional records of each."""
        return dict(sorted(self._twice.get((topic, run), {}).items()))

    def missing_ranges(
        self, topic: str, run: int, spans: list[tuple[int, int]] | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield, in order, the ranges [first, end) of reported sequences (or of `spans`) that the stage lacks.

        With `since_ms`, the ranges also include older messages.
        """
        pages = sorted(page for of_topic, of_run, page in self._pages if (of_topic, of_run) == (topic, run))
        open_range: tuple[int, int] | None = None
        for first, end in self._reported.spans(topic, run) if spans is None else spans:
            for start, stop in self._gaps(topic, run, first, end, pages):
                if open_range is not None and open_range[1] == start:
                    open_range = (open_range[0], stop)
                    continue
                if open_range is not None:
                    yield open_range
                open_range = (start, stop)
        if open_range is not None:
            yield open_range

    def _gaps(self, topic: str, run: int, first: int, end: int, pages: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of a span without messages. Only `pages` have messages, so only these are examined."""
        reached = first
        for index in range(bisect.bisect_left(pages, first >> PAGE_BITS), len(pages)):
            page = pages[index]
            base = page << PAGE_BITS
            if base >= end:
                break
            if base > reached:
                yield reached, base
            left, right = max(first, base), min(end, base + PAGE_SIZE)
            clear = np.unpackbits(self._pages[topic, run, page], bitorder="little")[left - base : right - base] == 0
            edges = np.flatnonzero(np.diff(clear.astype(np.int8), prepend=0, append=0))
            yield from zip((left + edges[::2]).tolist(), (left + edges[1::2]).tolist(), strict=True)
            reached = right
        if reached < end:
            yield reached, end


def segments(runs: NDArray[np.uint64], sequences: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of consecutive rows with equal run and page. Rows are sorted by run and sequence."""
    if not len(runs):
        return
    pages = sequences >> PAGE_BITS
    cuts = np.flatnonzero((runs[1:] != runs[:-1]) | (pages[1:] != pages[:-1])) + 1
    bounds = [0, *cuts.tolist(), len(runs)]
    yield from itertools.pairwise(bounds)
