"""Producer ids, none of them given twice.

Ids come from a block that was made durable before its first id is handed out; what is left of it at a stop is lost,
which costs nothing.

Thread rule: any thread. `next` may wait for the disk once in BLOCK_SIZE calls, `take` never does. The lock is held
while a block is made durable, and taken under no other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kafkalite.broker.log.manager import LogManager

BLOCK_SIZE: Final = 1000
"""Producer ids made durable at once; as many as Kafka's brokers take."""


class IdSource(Protocol):
    """Where new producers' ids come from: the data directory's own, or those that a cluster's controller gives."""

    def next(self) -> int:
        """An id nobody else gets; KafkaError when there is none now. May block."""

    def take(self) -> int | None:
        """An id if there is one at hand, without waiting."""


class ProducerIds:
    """The ids of one data directory."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._block = range(0)  # replaced as a whole, under the lock

    def next(self) -> int:
        """An id nobody else gets. Blocks when a new block has to be made durable; StorageError when it cannot be."""
        with self._lock:
            if not self._block:
                first = self._logs.metadata.allocate_producer_ids(BLOCK_SIZE)
                self._block = range(first, first + BLOCK_SIZE)
            return self._pop_locked()

    def take(self) -> int | None:
        """An id if there is one at hand, without waiting."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._pop_locked() if self._block else None
        finally:
            self._lock.release()

    def _pop_locked(self) -> int:
        given, self._block = self._block[0], self._block[1:]
        return given
