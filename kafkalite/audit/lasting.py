"""Count marks in a continuous audit: accept late reports, drop old windows, and limit the memory.

A mark identifies a message by its producer's run and a sequence (kafkalite.audit.marks). An increment is a producer's
report of the number of its messages (kafkalite.audit.events). A mark is in one of these states:

    held        no increment of its run has arrived, so the length of its window is unknown
    unclaimed   counted in its window, but no increment covers the mark yet
    claimed     counted, and covered by an increment

The horizon is the oldest time that the audit still counts. Windows that ended before the horizon are dropped.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalite.audit.counts import FULL, PAGE_BITS, PAGE_SIZE, Count, SeenCounts, Window
from kafkalite.audit.events import Reported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kafkalite.audit.events import Increment
    from kafkalite.audit.marks import Marks

    Key = tuple[str, int]

PAGES_MAX: Final = 32_768
"""The most pages of a stage that are partly filled: 256 MiB. All full pages share one page."""
WINDOWS_MAX: Final = 500_000
"""The most windows of a stage, by run and topic."""
HELD_MAX: Final = 1_000_000
"""The most marks of runs without reports."""
UNCLAIMED_MAX: Final = 500_000
"""The most ranges of sequences without an increment; further ones stay unreported even if an increment follows."""
AHEAD_MS: Final = 24 * 3600 * 1000
"""Messages with a time further ahead are untracked."""


class Unclaimed:
    """Sequences that no increment covers yet, as ranges. Each range is within one window."""

    def __init__(self) -> None:
        self.rows: NDArray[np.int64] = np.empty((0, 3), np.int64)
        """(first, end, window), by window and first."""

    def add(self, sequences: NDArray[np.int64], windows: NDArray[np.int64]) -> None:
        """Add new sequences, each with its window."""
        new = np.stack((sequences, sequences + 1, windows), axis=1)
        self.rows = joined(np.concatenate((self.rows, joined(new))))

    def claim(self, first: int, end: int) -> dict[int, int]:
        """Remove the sequences from `first` to before `end`. Return the number of removed sequences by window."""
        rows = self.rows
        low, high = np.maximum(rows[:, 0], first), np.minimum(rows[:, 1], end)
        hit = high > low
        if not hit.any():
            return {}
        found: dict[int, int] = {}
        for window, count in zip(rows[hit, 2].tolist(), (high - low)[hit].tolist(), strict=True):
            found[window] = found.get(window, 0) + count
        left, right = rows[hit].copy(), rows[hit].copy()
        left[:, 1], right[:, 0] = low[hit], high[hit]
        rest = np.concatenate((rows[~hit], left[left[:, 1] > left[:, 0]], right[right[:, 1] > right[:, 0]]))
        self.rows = joined(rest)
        return found

    def forget(self, horizon_ms: int) -> None:
        """Drop windows that begin before the horizon."""
        self.rows = self.rows[self.rows[:, 2] >= horizon_ms]


def joined(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort the rows and merge touching ones."""
    rows = rows[np.lexsort((rows[:, 0], rows[:, 2]))]
    if len(rows) < 2:
        return rows
    begins = np.concatenate(([True], (rows[1:, 0] != rows[:-1, 1]) | (rows[1:, 2] != rows[:-1, 2])))
    ends = np.concatenate((begins[1:], [True]))
    return np.stack((rows[begins, 0], rows[ends, 1], rows[begins, 2]), axis=1)


class LastingReported(Reported):
    """The sum of the increments since the horizon."""

    def __init__(self) -> None:
        super().__init__()
        self._reach: dict[tuple[Key, int], tuple[int, int]] = {}
        """(topic and run, first sequence of a span) → start of its first and of its last window."""
        self._identities: dict[tuple[Key, int], list[tuple[int, str, int, int]]] = {}

    def take(self, increment: Increment, horizon_ms: int, ahead_ms: int) -> bool:
        """Add an increment and return whether it was added. It must be new, after the horizon and not too far ahead."""
        starts = [start for start, _ in increment.counts]
        newest = max(starts, default=horizon_ms) + increment.window_ms
        if newest <= horizon_ms or newest > ahead_ms + increment.window_ms or not self.add(increment):
            return False
        key = ((increment.topic, increment.run), increment.first)
        low, high = self._reach.get(key, (newest, newest - increment.window_ms))
        self._reach[key] = (min([low, *starts]), max([high, *starts]))
        identity = (increment.run, increment.topic, increment.first, increment.part)
        self._identities.setdefault(key, []).append(identity)
        return True

    def spans_of(self, topic: str, run: int, start_ms: int) -> list[tuple[int, int]]:
        """Return the spans of sequences that may have messages in a window."""
        key = (topic, run)
        found = []
        for first, end in self.spans(topic, run):
            low, high = self._reach[key, first]
            if low <= start_ms <= high:
                found.append((first, end))
        return found

    def forget(self, horizon_ms: int) -> None:
        """Drop windows that ended before the horizon, and spans whose windows were all dropped."""
        for (key, first), (_, high) in list(self._reach.items()):
            if high + self.windows_ms[key[1]] <= horizon_ms:
                del self._reach[key, first]
                self._known.difference_update(self._identities.pop((key, first)))
                del self._spans[key][first]
                self._sorted.pop(key, None)
        for key in list(self.expected):
            length = self.windows_ms[key[1]]
            kept = {start: count for start, count in self.expected[key].items() if start + length > horizon_ms}
            if kept or self._spans[key]:
                self.expected[key] = kept
            else:
                del self.expected[key], self._spans[key]
        runs = {run for _, run in self.expected}
        for run in [run for run in self.servers if run not in runs]:
            del self.servers[run], self.windows_ms[run]

    def saved(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "unreadable": self.unreadable,
            "runs": [[run, name, self.windows_ms[run]] for run, name in self.servers.items()],
            "expected": [[*key, list(rows.items())] for key, rows in self.expected.items()],
            "spans": [
                [*key, first, end, *self._reach[key, first], [row[3] for row in self._identities[key, first]]]
                for key, rows in self._spans.items()
                for first, end in rows.items()
            ],
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Load the result of `saved`."""
        self.unreadable = value["unreadable"]
        for run, name, length in value["runs"]:
            self.servers[run], self.windows_ms[run] = name, length
        for topic, run, rows in value["expected"]:
            self.expected[topic, run] = dict(rows)
            self._spans.setdefault((topic, run), {})
        for topic, run, first, end, low, high, parts in value["spans"]:
            self._spans[topic, run][first] = end
            self._reach[(topic, run), first] = (low, high)
            identities = [(run, topic, first, part) for part in parts]
            self._identities[(topic, run), first] = identities
            self._known.update(identities)


class LastingCount(Count):
    """The marks of one stage in a continuous audit; see the module.

    `late` records are older than the horizon. `untracked` records are beyond PAGES_MAX or WINDOWS_MAX, or
    too far ahead in time. Neither is judged. The limits keep a broken or hostile program from exhausting memory.
    """

    def __init__(self, reported: LastingReported, horizon_ms: int) -> None:
        super().__init__(reported, since_ms=horizon_ms)
        self._lasting = reported
        self._newest: dict[tuple[str, int, int], int] = {}
        self._unclaimed: dict[Key, Unclaimed] = {}
        self._unclaimed_count = 0
        self._held: dict[int, list[tuple[str, NDArray[np.int64], NDArray[np.int64], str]]] = {}
        self._held_count = 0
        self._ahead_ms = horizon_ms
        self.late = 0
        self.untracked = 0

    def emptied(self) -> LastingCount:
        """Return an empty count with the same horizon."""
        count = LastingCount(self._lasting, self.since_ms)
        count._ahead_ms = self._ahead_ms
        return count

    @property
    def since_ms(self) -> int:
        """The horizon: older messages are late."""
        assert self._since_ms is not None, "there is a horizon"
        return self._since_ms

    def look_ahead(self, now_ms: int) -> None:
        """Set the current time. Messages with a time more than a day after it are untracked."""
        self._ahead_ms = now_ms + AHEAD_MS

    def add_marks(self, topic: str, marks: Marks, count: int) -> None:
        """Add marks as Count.add_marks does. Marks of runs without reports are held and counted later."""
        assert self._since_ms is not None, "there is a horizon"
        self.late += int(np.count_nonzero(marks.timestamps < self._since_ms))
        believed = marks.timestamps <= self._ahead_ms
        self.untracked += int(np.count_nonzero(~believed))
        believed &= marks.timestamps >= self._since_ms
        strangers = np.array([int(run) not in self._reported.windows_ms for run in np.unique(marks.runs)], np.bool_)
        if strangers.any():
            unknown = np.isin(marks.runs, np.unique(marks.runs)[strangers]) & believed
            self._hold(topic, marks.chosen(np.flatnonzero(unknown)))
            believed &= ~unknown
        kept = marks.chosen(np.flatnonzero(believed))
        super().add_marks(topic, kept, len(kept.records))
        self.record_count += count - len(kept.records)
        if count > len(marks.records):
            self.unmarked[topic] = self.unmarked.get(topic, 0) + count - len(marks.records)

    def _hold(self, topic: str, marks: Marks) -> None:
        for run in np.unique(marks.runs).tolist():
            rows = np.flatnonzero(marks.runs == run)
            self._held.setdefault(run, []).append(
                (topic, marks.sequences[rows], marks.timestamps[rows], marks.server(int(rows[0])))
            )
            self._held_count += len(rows)
        while self._held_count > HELD_MAX:
            self.release(next(iter(self._held)))

    def release(self, run: int) -> None:
        """Count the held marks of a run. A run without reports has windows of the default length."""
        for topic, sequences, timestamps, server in self._held.pop(run, []):
            self._held_count -= len(sequences)
            order = np.argsort(sequences, kind="stable")
            sequences, timestamps = sequences[order], timestamps[order]
            self.servers.setdefault(run, server)
            cuts = np.flatnonzero(np.diff(sequences >> PAGE_BITS)) + 1
            for part, times in zip(np.split(sequences, cuts), np.split(timestamps, cuts), strict=True):
                self._add_page(topic, run, part, times)

    def claim(self, increments: Iterable[Increment]) -> None:
        """Apply new increments: the messages that they cover become reported."""
        for one in increments:
            self.servers[one.run] = self._reported.servers[one.run]
            self.release(one.run)
            unclaimed = self._unclaimed.get((one.topic, one.run))
            if unclaimed is None:
                continue
            before = len(unclaimed.rows)
            claimed = unclaimed.claim(one.first, one.end)
            self._unclaimed_count += len(unclaimed.rows) - before
            for start, count in claimed.items():
                seen = self.windows.get(Window(one.topic, one.run, start))
                if seen is not None:
                    seen.unreported -= count
                    seen.distinct += count

    def settle(self, closed_ms: int) -> None:
        """Count the held marks of each run whose oldest window is closed.

        The producer of such a run must have died before its first report.
        """
        for run, parts in list(self._held.items()):
            if min(int(times.min()) for _, _, times, _ in parts) + self._window_ms <= closed_ms:
                self.release(run)

    def _add_page(self, topic: str, run: int, sequences: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        key = (topic, run, int(sequences[0]) >> PAGE_BITS)
        crowded = len(self.windows) >= WINDOWS_MAX or len(self._pages) >= PAGES_MAX
        if crowded and key not in self._pages and not self._make_room():
            self.untracked += len(sequences)
            return
        self._newest[key] = max(int(timestamps.max()), self._newest.get(key, 0))
        super()._add_page(topic, run, sequences, timestamps)

    def _make_room(self) -> bool:
        """Return whether another page fits; full pages need no memory."""
        partial = sum(page is not FULL for page in self._pages.values())
        return partial < PAGES_MAX and len(self.windows) < WINDOWS_MAX

    def _note_unreported(self, topic: str, run: int, sequences: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        if self._unclaimed_count < UNCLAIMED_MAX:
            one = self._unclaimed.setdefault((topic, run), Unclaimed())
            before = len(one.rows)
            one.add(sequences, starts)
            self._unclaimed_count += len(one.rows) - before

    def forget(self, horizon_ms: int) -> None:
        """Drop windows that ended before the horizon, and pages whose messages are all older."""
        self._since_ms = max(horizon_ms, self._since_ms or horizon_ms)
        for window in [one for one in self.windows if one.start_ms + self.window_ms(one.run) <= horizon_ms]:
            del self.windows[window]
        for key in [one for one, newest in self._newest.items() if newest < horizon_ms]:
            del self._pages[key], self._newest[key]
        live = {(window.topic, window.run) for window in self.windows}
        for topic_run, unclaimed in list(self._unclaimed.items()):
            unclaimed.forget(horizon_ms - self.window_ms(topic_run[1]))
            if topic_run not in live or not len(unclaimed.rows):
                del self._unclaimed[topic_run]
        self._unclaimed_count = sum(len(one.rows) for one in self._unclaimed.values())
        for topic_run in [one for one in self._twice if one not in live]:
            del self._twice[topic_run]
        runs = {run for _, run in live} | self._reported.servers.keys() | self._held.keys()
        for run in [one for one in self.servers if one not in runs]:
            del self.servers[run]

    # --- saved state --------------------------------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as JSON and arrays by name."""
        partial = [(key, page) for key, page in self._pages.items() if page is not FULL]
        full = [key for key, page in self._pages.items() if page is FULL]
        meta = {
            "since_ms": self._since_ms,
            "windows": [
                [*window, seen.distinct, seen.duplicated, seen.unreported] for window, seen in self.windows.items()
            ],
            "servers": list(self.servers.items()),
            "unmarked": self.unmarked,
            "record_count": self.record_count,
            "late": self.late,
            "untracked": self.untracked,
            "twice": [[*key, list(rows.items())] for key, rows in self._twice.items()],
            "partial": [[*key, self._newest[key]] for key, _ in partial],
            "full": [[*key, self._newest[key]] for key in full],
            "unclaimed": [[*key, len(one.rows)] for key, one in self._unclaimed.items()],
            "held": [[run, part[0], len(part[1]), part[3]] for run, parts in self._held.items() for part in parts],
        }
        none: NDArray[np.int64] = np.empty(0, np.int64)
        held = [part for parts in self._held.values() for part in parts]
        arrays: dict[str, NDArray[Any]] = {
            "pages": np.stack([page for _, page in partial]) if partial else np.empty((0, PAGE_SIZE // 8), np.uint8),
            "unclaimed": np.concatenate([none.reshape(0, 3), *(one.rows for one in self._unclaimed.values())]),
            "held_sequences": np.concatenate([none, *(part[1] for part in held)]),
            "held_times": np.concatenate([none, *(part[2] for part in held)]),
        }
        return meta, arrays

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Load the result of `saved`."""
        self._since_ms = meta["since_ms"]
        for topic, run, start, distinct, duplicated, unreported in meta["windows"]:
            self.windows[Window(topic, run, start)] = SeenCounts(distinct, duplicated, unreported)
        self.servers.update((run, name) for run, name in meta["servers"])
        self.unmarked.update(meta["unmarked"])
        self.record_count, self.late, self.untracked = meta["record_count"], meta["late"], meta["untracked"]
        for topic, run, rows in meta["twice"]:
            self._twice[topic, run] = dict(rows)
        for row, (topic, run, page, newest) in enumerate(meta["partial"]):
            self._pages[topic, run, page] = arrays["pages"][row].copy()
            self._newest[topic, run, page] = newest
        for topic, run, page, newest in meta["full"]:
            self._pages[topic, run, page] = FULL
            self._newest[topic, run, page] = newest
        at = 0
        for topic, run, count in meta["unclaimed"]:
            self._unclaimed[topic, run] = one = Unclaimed()
            one.rows = arrays["unclaimed"][at : at + count].copy()
            self._unclaimed_count += count
            at += count
        at = 0
        for run, topic, count, server in meta["held"]:
            part = (arrays["held_sequences"][at : at + count], arrays["held_times"][at : at + count])
            self._held.setdefault(run, []).append((topic, *part, server))
            self._held_count += count
            at += count
