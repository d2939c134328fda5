"""Seal full segments, one after another: trim, sync, save the index and the producer state.

A roll queues the old segment and continues. If SEAL_COUNT_MAX segments are queued, the roll waits.

Thread rule: the sealer never takes a log's lock, because a waiting roll may hold it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields

if TYPE_CHECKING:
    from kafkalite._native.log.segment import Segment
    from kafkalite.base.executors import Executors
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.producer_state import CapturedProducers

logger = logging.getLogger(__name__)

SEAL_COUNT_MAX: Final = 256
"""Number of queued segments at which rolls wait."""


class Sealer:
    """The sealing thread of one data directory."""

    def __init__(self, executors: Executors) -> None:
        self._worker = executors.worker("kafkalite-sealer", self._turn)
        self._room = executors.event()
        self._waiting: deque[tuple[PartitionLog, Segment, CapturedProducers]] = deque()  # guarded by the worker's lock

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """Seal the queued segments, then end the thread."""
        self._worker.stop()

    def submit(self, log: PartitionLog, segment: Segment, state: CapturedProducers) -> None:
        """Queue a segment; wait while the queue is full."""
        with self._worker.lock:
            self._waiting.append((log, segment, state))
            full = len(self._waiting) >= SEAL_COUNT_MAX
            if full:
                self._room.clear()
            self._worker.call_locked()
        if full:
            self._room.wait()

    def _turn(self) -> None:
        while True:
            with self._worker.lock:
                if not self._waiting:
                    return
                log, segment, state = self._waiting.popleft()
                if len(self._waiting) < SEAL_COUNT_MAX:
                    self._room.set()
            try:
                finish_seal(log, segment, state)
            except Exception:  # the other logs still need this thread
                logger.exception("could not flush and index a full segment", extra=fields(path=segment.path))


def finish_seal(log: PartitionLog, segment: Segment, state: CapturedProducers) -> None:
    """Finish a roll: trim and sync the old segment, then save its index and the producer state."""
    if _is_gone(log, segment):
        return
    try:
        segment.trim()
        with log.flush_lock:
            if log.offline:
                return
            segment.sync()
    except OSError as error:
        if not _is_gone(log, segment):
            log.go_offline(f"a full segment could not be synced: {error}")
        return
    log.indexes.save(segment)
    log.producer_state.save_or_warn(state)


def _is_gone(log: PartitionLog, segment: Segment) -> bool:
    return segment.deleted or log.deleted
