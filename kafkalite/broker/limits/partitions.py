"""Count the partitions that each holder has created, for the last tenth of max.partitions.

A topic's partitions are given back when the topic is gone. Those of topics that a start found have no holder.

Thread rule: any thread; one leaf lock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafkalite.broker.limits.shares import Shares, note_refusal

if TYPE_CHECKING:
    from collections.abc import Container

    from kafkalite.broker.limits.holder import Holder


class PartitionShares:
    """The holders of one broker's partitions, by topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares = Shares()
        self._charges: dict[str, list[tuple[Holder, int]]] = {}

    def admits(self, holder: Holder, present: int, limit: int, added: int) -> bool:
        """Return whether a holder may add partitions to the `present` ones; log it once a minute where not."""
        with self._lock:
            if self._shares.admits(holder, present, limit, added):
                return True
            held = self._shares.of(holder)
        note_refusal(holder, "max.partitions", limit, held)
        return False

    def charge(self, topic: str, holder: Holder, added: int, topics: Container[str]) -> None:
        """Count partitions in that were just created, unless the topic is gone from `topics` again."""
        with self._lock:
            self._shares.add(holder, added)
            self._charges.setdefault(topic, []).append((holder, added))
        self.topic_changed(topic, topics)

    def topic_changed(self, topic: str, topics: Container[str]) -> None:
        """Count a topic's partitions out if it is gone from `topics`."""
        if topic in topics:
            return
        with self._lock:
            for holder, added in self._charges.pop(topic, ()):
                self._shares.remove(holder, added)
