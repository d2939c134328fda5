"""Encode and decode the messages of the audit topic, in which producers report how many messages they have sent.

    topic   kafkalite.audit
    key     RUN/FIRST/PART/TOPIC, run in hex
    value   {"version": 1, "run": "00c5…", "server": "web1", "topic": "logs", "window_ms": 60000,
             "first": 0, "end": 40000, "part": 0, "counts": [[window's start in ms, messages], …]}      JSON

Such a message is called an increment. It covers the producer's messages with sequences from `first` to `end` - 1, and
contains their number for each window. If there are too many windows, the increment is split into parts. Run, topic,
first sequence and part identify an increment, so a repeated increment counts once. Readers ignore unknown fields.

Thread rule: increments are immutable. One thread fills a Reported; after that, any thread may read it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

AUDIT_TOPIC: Final = "kafkalite.audit"
VERSION: Final = 1
WINDOWS_MAX: Final = 10_000
"""The most windows of an increment, about 250 KiB of JSON."""
INT64_MAX: Final = 2**63 - 1


class Increment(NamedTuple):
    """The messages of a topic passed to a producer since its last increment for the topic, counted by window."""

    run: int
    server: str
    topic: str
    window_ms: int
    first: int
    end: int
    part: int
    counts: tuple[tuple[int, int], ...]
    """(start of the window in ms, messages)"""

    def record(self) -> Record:
        """Return the increment as a record without a timestamp."""
        fields = {
            "version": VERSION,
            "run": f"{self.run:016x}",
            "server": self.server,
            "topic": self.topic,
            "window_ms": self.window_ms,
            "first": self.first,
            "end": self.end,
            "part": self.part,
            "counts": self.counts,
        }
        key = f"{self.run:016x}/{self.first}/{self.part}/{self.topic}"
        return Record(-1, -1, key.encode(), json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())


def classic_topic(audit_topic: str) -> str:
    """Return the name of the topic in 0.7's format, in which Kafka 0.7's producers report their counts."""
    return f"{audit_topic}.classic"


def increment_of(value: bytes | None) -> Increment:
    """Decode a message's value; raise ValueError with the reason if it is not an increment."""
    if value is None:
        raise ValueError("the message has no value")
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise ValueError(f"the version is {str(fields['version'])[:20]}, not {VERSION}")
        found = Increment(
            int(fields["run"], 16),
            str(fields["server"]),
            str(fields["topic"]),
            number(fields["window_ms"]),
            number(fields["first"]),
            number(fields["end"]),
            number(fields["part"]),
            tuple((number(start, least=-INT64_MAX), number(count)) for start, count in fields["counts"]),
        )
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("the message is not a producer count") from error
    if not 0 <= found.run < 2**64 or found.window_ms < 1 or found.first > found.end:
        raise ValueError("the numbers of the message contradict each other")
    return found


def number(value: object, *, least: int = 0) -> int:
    """Return a value that is an integer in range; raise ValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= INT64_MAX:
        raise ValueError(f"{str(value)[:20]} is not a count")
    return value


class Reported:
    """The sum of all increments.

    `expected`                 numbers of messages by (topic, run), then by window start in ms
    `servers`, `windows_ms`    server and window length of each run
    """

    def __init__(self) -> None:
        self.expected: dict[tuple[str, int], dict[int, int]] = {}
        self.servers: dict[int, str] = {}
        self.windows_ms: dict[int, int] = {}
        self.unreadable = 0
        """Number of messages in the audit topic that are not increments."""
        self._known: set[tuple[int, str, int, int]] = set()
        self._spans: dict[tuple[str, int], dict[int, int]] = {}
        self._sorted: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def add(self, increment: Increment) -> bool:
        """Add an increment unless it is known. Return whether it was added.

        The server and window length of a run are those of its first increment.
        """
        identity = (increment.run, increment.topic, increment.first, increment.part)
        if identity in self._known:
            return False
        length = self.windows_ms.setdefault(increment.run, increment.window_ms)
        if length != increment.window_ms:
            self.unreadable += 1
            return False
        self._known.add(identity)
        self.servers.setdefault(increment.run, increment.server)
        key = (increment.topic, increment.run)
        windows = self.expected.setdefault(key, {})
        for start, count in increment.counts:
            windows[start] = windows.get(start, 0) + count
        spans = self._spans.setdefault(key, {})
        spans[increment.first] = max(spans.get(increment.first, 0), increment.end)
        self._sorted.pop(key, None)
        return True

    def add_message(self, value: bytes | None) -> None:
        """Add a message's increment, or count the message as unreadable."""
        try:
            self.add(increment_of(value))
        except ValueError:
            self.unreadable += 1

    @property
    def topics(self) -> set[str]:
        """The topics with reported messages."""
        return {topic for topic, _ in self.expected}

    def spans(self, topic: str, run: int) -> list[tuple[int, int]]:
        """Return the reported spans of sequences [first, end), in order."""
        return sorted(self._spans.get((topic, run), {}).items())

    def covers(self, topic: str, run: int, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these sequences are reported."""
        key = (topic, run)
        if key not in self._sorted:
            rows = np.array(self.spans(topic, run), np.int64).reshape(-1, 2)
            self._sorted[key] = (rows[:, 0], rows[:, 1])
        firsts, ends = self._sorted[key]
        if not len(firsts):
            return np.zeros(len(sequences), np.bool_)
        at = np.searchsorted(firsts, sequences, "right") - 1
        covered: NDArray[np.bool_] = (at >= 0) & (sequences < ends[np.maximum(at, 0)])
        return covered
