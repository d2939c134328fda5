"""State of the topics that a mirror has left behind: the reason, since when, and the next retry.

    copied ──refused──▶ left behind ──its pause is over──▶ tried ──a commit, or nothing to copy──▶ copied
                             ▲                               │
                             └────── refused, twice the pause┘

Threads: the mirror's changes it; `rows` is any thread's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 60.0


class TopicFailed(Exception):
    """One topic cannot be copied now; the others can."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftBehind:
    """One topic that is not copied. `since_ms` is a time since 1970, `tries` counts how often it was refused."""

    reason: str
    since_ms: int
    tries: int


class TopicStates:
    """See the module."""

    def __init__(self) -> None:
        self._rows: dict[str, LeftBehind] = {}
        self._retry_at: dict[str, float] = {}
        self._tried: set[str] = set()

    @property
    def rows(self) -> dict[str, LeftBehind]:
        """The topics that are left behind, those that are being tried again among them."""
        return dict(self._rows)

    @property
    def tried(self) -> set[str]:
        """Those that are being tried again."""
        return set(self._tried)

    def restore(self, rows: dict[str, LeftBehind]) -> None:
        """What an earlier run has left behind; all of it is tried at once."""
        self._rows.update(rows)
        self._retry_at.update(dict.fromkeys(rows, 0.0))

    def leave(self, topic: str, reason: str) -> LeftBehind:
        """A topic was refused, once more maybe."""
        before = self._rows.get(topic)
        tries = 1 if before is None else before.tries + 1
        since_ms = int(time.time() * 1000) if before is None else before.since_ms
        row = self._rows[topic] = LeftBehind(reason=reason, since_ms=since_ms, tries=tries)
        self._retry_at[topic] = time.monotonic() + min(PAUSE_S_MIN * 2 ** min(tries - 1, 10), PAUSE_S_MAX)
        self._tried.discard(topic)
        return row

    def begin(self, topic: str) -> bool:
        """Whether a topic may be copied now; one that was left behind is tried from here on."""
        if topic not in self._rows or topic in self._tried:
            return True
        if self._retry_at[topic] > time.monotonic():
            return False
        self._tried.add(topic)
        return True

    def is_due(self) -> bool:
        """Whether the pause of one is over."""
        now = time.monotonic()
        return any(at <= now and topic not in self._tried for topic, at in self._retry_at.items())

    def untried(self, tries: int) -> bool:
        """Whether one of them was tried fewer times than that."""
        return any(row.tries < tries and topic not in self._tried for topic, row in self._rows.items())

    def forget(self, topics: Iterable[str]) -> None:
        """These are copied again, or are not wanted any more."""
        for topic in topics:
            self._rows.pop(topic, None)
            self._retry_at.pop(topic, None)
            self._tried.discard(topic)
