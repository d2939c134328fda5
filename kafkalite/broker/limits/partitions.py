"""Count the partitions that each holder (a principal at an address) has created, to limit its share of max.partitions.

The last tenth of max.partitions is reserved for holders with few partitions (`kafkalite.broker.limits.shares`).

A deleted topic's partitions are no longer counted. Partitions that exist at a start have no holder.

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
    """The numbers of partitions by topic that the holders of one broker have created."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares = Shares()
        self._charges: dict[str, list[tuple[Holder, int]]] = {}

    def admits(self, holder: Holder, present: int, limit: int, added: int) -> bool:
        """Return whether a holder may add `added` partitions to the `present` ones. A refusal is logged, at most once a
        minute.
        """
        with self._lock:
            if self._shares.admits(holder, present, limit, added):
                return True
            held = self._shares.of(holder)
        note_refusal(holder, "max.partitions", limit, held)
        return False

    def charge(self, topic: str, holder: Holder, added: int, topics: Container[str]) -> None:
        """Charge new partitions to a holder. Do nothing if the topic is not in `topics`: it was deleted meanwhile."""
        with self._lock:
            self._shares.add(holder, added)
            self._charges.setdefault(topic, []).append((holder, added))
        self.topic_changed(topic, topics)

    def topic_changed(self, topic: str, topics: Container[str]) -> None:
        """Stop counting the partitions of a topic if it is not in `topics`: it was deleted."""
        if topic in topics:
            return
        with self._lock:
            for holder, added in self._charges.pop(topic, ()):
                self._shares.remove(holder, added)
