"""Track the topics that a mirror has left behind because they cannot be copied at the moment, and retry them.

    copied ─▶ left behind     copying the topic was refused
    left behind ─▶ retried    the pause is over
    retried ─▶ left behind    refused again: the next pause is twice as long, up to a limit
    retried ─▶ copied         records were committed, or there was nothing to copy

Thread rule: the mirror's thread changes the states; any thread may read `rows`.
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
    """One topic cannot be copied at the moment. Other topics can be copied."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftBehind:
    """A topic that cannot be copied. `since_ms` is in ms since 1970, `tries` the number of refusals."""

    reason: str
    since_ms: int
    tries: int


class TopicStates:
    """The topics left behind, with their retries; see the module."""

    def __init__(self) -> None:
        self._rows: dict[str, LeftBehind] = {}
        self._retry_at: dict[str, float] = {}
        self._tried: set[str] = set()

    @property
    def rows(self) -> dict[str, LeftBehind]:
        """The topics left behind, including those being retried."""
        return dict(self._rows)

    @property
    def tried(self) -> set[str]:
        """The topics being retried."""
        return set(self._tried)

    def restore(self, rows: dict[str, LeftBehind]) -> None:
        """Load the topics that an earlier run left behind; all are retried at once."""
        self._rows.update(rows)
        self._retry_at.update(dict.fromkeys(rows, 0.0))

    def leave(self, topic: str, reason: str) -> LeftBehind:
        """Store that a topic cannot be copied, for the first time or again."""
        before = self._rows.get(topic)
        tries = 1 if before is None else before.tries + 1
        since_ms = int(time.time() * 1000) if before is None else before.since_ms
        row = self._rows[topic] = LeftBehind(reason=reason, since_ms=since_ms, tries=tries)
        self._retry_at[topic] = time.monotonic() + min(PAUSE_S_MIN * 2 ** min(tries - 1, 10), PAUSE_S_MAX)
        self._tried.discard(topic)
        return row

    def begin(self, topic: str) -> bool:
        """Return whether a topic may be copied now. If its pause is over, it counts as being retried from now on."""
        if topic not in self._rows or topic in self._tried:
            return True
        if self._retry_at[topic] > time.monotonic():
            return False
        self._tried.add(topic)
        return True

    def is_due(self) -> bool:
        """Return whether the pause of a topic left behind is over."""
        now = time.monotonic()
        return any(at <= now and topic not in self._tried for topic, at in self._retry_at.items())

    def untried(self, tries: int) -> bool:
        """Return whether a topic left behind was tried fewer than `tries` times."""
        return any(row.tries < tries and topic not in self._tried for topic, row in self._rows.items())

    def forget(self, topics: Iterable[str]) -> None:
        """Forget topics that are copied again or that are no longer selected."""
        for topic in topics:
            self._rows.pop(topic, None)
            self._retry_at.pop(topic, None)
            self._tried.discard(topic)
