"""Compare producers' counts with each stage, to find missing, duplicated and unreported messages in closed windows.

    missing      reported by an increment (a producer's count), but not in the stage
    duplicated   a second or later record of the same message
    unreported   in the stage, but in no increment: its producer died, or will report it soon

A window is closed when the grace period after its end is over; open windows are not judged. Messages are identified
individually, so lost messages and duplicates in a window do not cancel each other out.

Thread rule: functions are pure.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.audit.counts import SeenCounts, Window
from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.audit.counts import Count
    from kafkalite.audit.events import Reported

    Group = tuple[str, int, int, str]


class Difference(NamedTuple):
    """The faults in one stage, for the messages of one server in one window of a topic."""

    stage: str
    topic: str
    window_ms: int
    """The window's start in ms since 1970."""
    length_ms: int
    server: str
    expected: int
    missing: int
    duplicated: int
    unreported: int


@dataclass(slots=True)
class Verdict:
    """The result of an audit."""

    differences: list[Difference] = field(default_factory=list)
    expected: int = 0
    """Messages in closed windows."""
    window_count: int = 0
    """Number of closed windows, by topic and length."""
    open_count: int = 0
    """Number of windows that are not judged yet."""
    topics: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether windows were judged, and every stage has each of their messages exactly once."""
        return self.window_count > 0 and not self.differences


class Selection(NamedTuple):
    """The windows to judge: those of `topics` that end by `closed_ms` and lie within the other times."""

    topics: frozenset[str]
    closed_ms: int
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, topic: str, start_ms: int, end_ms: int) -> bool:
        """Return whether a window lies within the selected times, even if it is not closed yet."""
        return (
            topic in self.topics
            and (self.since_ms is None or start_ms >= self.since_ms)
            and (self.until_ms is None or end_ms <= self.until_ms)
        )


class Judged(NamedTuple):
    """A stage's result for the selected windows."""

    groups: dict[Group, list[int]]
    """(topic, start, length, server) → expected, missing, duplicated, unreported."""
    closed: set[tuple[str, int, int]]
    """(topic, start, length)."""
    still_open: set[tuple[str, int, int]]


def judge_stage(reported: Reported, count: Count, selection: Selection) -> Judged:
    """Judge every selected window that has messages, reported or in the stage."""
    judged = Judged({}, set(), set())
    expected = expected_of(reported)
    for window in expected.keys() | count.windows.keys():
        length = count.window_ms(window.run)
        end_ms = window.start_ms + length
        if not selection.takes(window.topic, window.start_ms, end_ms):
            continue
        if count.topics is not None and window.topic not in count.topics:
            continue
        named = (window.topic, window.start_ms, length)
        if end_ms > selection.closed_ms:
            judged.still_open.add(named)
            continue
        judged.closed.add(named)
        wanted = expected.get(window, 0)
        seen = count.windows.get(window, SeenCounts())
        row = judged.groups.setdefault((*named, count.servers[window.run]), [0, 0, 0, 0])
        surplus = max(seen.distinct - wanted, 0)
        found = (wanted, max(wanted - seen.distinct, 0), seen.duplicated, seen.unreported + surplus)
        for index, value in enumerate(found):
            row[index] += value
    return judged


def expected_of(reported: Reported) -> dict[Window, int]:
    """Return the number of reported messages by window."""
    return {
        Window(topic, run, start): count
        for (topic, run), windows in reported.expected.items()
        for start, count in windows.items()
    }


def judge(reported: Reported, stages: Mapping[str, Count], selection: Selection) -> Verdict:
    """Judge every window that has messages, reported or in a stage.

    The differences are in the order of the stages, and then sorted by topic and window.
    """
    verdict = Verdict(topics=sorted(selection.topics))
    closed: set[tuple[str, int, int]] = set()
    still_open: set[tuple[str, int, int]] = set()
    for place, (stage, count) in enumerate(stages.items()):
        judged = judge_stage(reported, count, selection)
        closed |= judged.closed
        still_open |= judged.still_open
        verdict.expected += sum(row[0] for row in judged.groups.values()) if place == 0 else 0
        wrong = [(group, row) for group, row in sorted(judged.groups.items()) if any(row[1:])]
        verdict.differences += [Difference(stage, *group, *row) for group, row in wrong]
    verdict.window_count, verdict.open_count = len(closed), len(still_open)
    return verdict
