"""Allocate unique producer ids for InitProducerId.

Ids are taken from a block, which is recorded durably before its first id is used. A stop loses the rest of the block,
which is harmless.

Thread rule: any thread. The lock is held while a block is made durable, and never taken while another lock is held.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kafkalite.broker.log.manager import LogManager

BLOCK_SIZE: Final = 1000
"""Producer ids made durable at once; the block size of Kafka's brokers."""


class IdSource(Protocol):
    """A source of producer ids: the data directory, or a cluster's controller."""

    def next(self) -> int:
        """Return a unique id; KafkaError if no id is available now. May block."""

    def take(self) -> int | None:
        """Return an id if one is available without waiting, else None."""


class ProducerIds:
    """The producer ids of one data directory."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._block = range(0)  # replaced as a whole, under the lock

    def next(self) -> int:
        """Return a unique id. StorageError if a write fails.

        Once in BLOCK_SIZE calls this blocks, to make a new block of ids durable.
        """
        with self._lock:
            if not self._block:
                first = self._logs.metadata.allocate_producer_ids(BLOCK_SIZE)
                self._block = range(first, first + BLOCK_SIZE)
            return self._pop_locked()

    def take(self) -> int | None:
        """Return an id if one is available without waiting, else None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._pop_locked() if self._block else None
        finally:
            self._lock.release()

    def _pop_locked(self) -> int:
        given, self._block = self._block[0], self._block[1:]
        return given
