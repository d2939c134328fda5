"""Append to one partition in order, with many writes per flush, without blocking the callers.

    1  write(append, callback) queues the append
    2  one job on the I/O pool does all queued appends, and requests a flush
    3  when the appended records are safe, the callbacks are called, in the order of the writes

Records are *safe* when all in-sync replicas have them. If no other replica is in sync, they must also be on this disk,
unless the writer does not flush.

Thread rule: `write` from any thread, without waiting. Callbacks run one at a time, without any lock of this module, and
must not block. The writer's lock is a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.pool import IoPool
    from kafkalite.broker.log.partition_log import PartitionLog

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR})
"""Error codes of refusals by a coordinator that has moved to another broker; clients retry there."""
_WHATEVER_IT_HAS: Final = _MOVED | {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Error codes of refusals that do not depend on the content of the log."""


class _Write:
    """A queued append and the callback for its result."""

    __slots__ = ("append", "callback", "code", "done")

    def __init__(self, append: Callable[[PartitionLog], int], callback: Callable[[int], object]) -> None:
        self.append = append
        self.callback = callback
        self.code = 0
        self.done = False


class LogWriter:
    """The writes of one partition. `find` returns the partition's log or raises an error; it runs on the I/O pool.

    With `flush`, a record of a partition without other in-sync replicas is synced before its callback. With `in_sync`,
    appends are refused with NOT_ENOUGH_REPLICAS if fewer than min.insync.replicas replicas are in sync, as for a
    producer with acks=all.
    """

    def __init__(
        self, name: str, find: Callable[[], PartitionLog], pool: IoPool, *, flush: bool, in_sync: bool = True
    ) -> None:
        self.name = name
        self._find = find
        self._pool = pool
        self._flush = flush
        self._in_sync = in_sync
        self._lock = threading.Lock()
        self._waiting: list[_Write] = []  # guarded by _lock, as everything below
        self._in_order: deque[_Write] = deque()
        self._scheduled = False
        self._announcing = False

    @property
    def idle(self) -> bool:
        """Return whether the result of every write was reported."""
        return not self._in_order

    def write(self, append: Callable[[PartitionLog], int], callback: Callable[[int], object]) -> None:
        """Queue an append. `append` gets the log and returns the log's end offset after the append.

        When the write is safe, `callback` gets 0. After a failure it gets the error code, which is KAFKA_STORAGE_ERROR
        for an unexpected error.
        """
        write = _Write(append, callback)
        with self._lock:
            self._waiting.append(write)
            self._in_order.append(write)
            if self._scheduled:
                return
            self._scheduled = True
        self._schedule()

    def _schedule(self) -> None:
        try:
            self._pool.submit(self._append_waiting)
        except RuntimeError:  # the broker stops; the connections of waiting clients are closed
            logger.info("dropped records that arrived while the broker was stopping", extra=fields(log=self.name))

    def _append_waiting(self) -> None:
        """Do all queued appends, and flush once. If more have arrived meanwhile, schedule another run.

        A failed append does not prevent later ones, since perhaps only its record is too large.

        A refusal because of the log's contents is reported only after a flush. For example, a marker is refused if the
        log has a newer marker, which a killed process may have left unsynced. Other refusals, such as too few in-sync
        replicas or another leader, need no flush.
        """
        with self._lock:
            writes, self._waiting = self._waiting, []
        end_offset = epoch = -1
        log: PartitionLog | None = None
        for write in writes:
            try:
                log = self._find()
                if (
                    epoch < 0
                ):  # the first epoch of the turn: if leadership returned in between, no write is reported as safe
                    epoch = log.leader_epoch
                if self._in_sync:
                    check_in_sync(log)
                end_offset = max(end_offset, write.append(log))
            except Exception as error:  # noqa: BLE001 - reported to the callback of this write
                write.code = self._code_of(error)
                if log is not None and write.code not in _WHATEVER_IT_HAS:
                    end_offset = max(end_offset, log.log_end_offset)
        if log is None or end_offset < 0:
            self._finish(writes, 0)
        else:
            try:
                when_safe(log, end_offset, epoch, lambda code: self._finish(writes, code), flush=self._flush)
            except Exception as error:  # noqa: BLE001 - reported to the callbacks; later writes continue
                self._finish(writes, self._code_of(error))
        with self._lock:
            if not self._waiting:
                self._scheduled = False
                return
        self._schedule()

    def _finish(self, writes: list[_Write], code: int) -> None:
        """Mark these writes as completed, and report completed writes to their callbacks, in order. This runs, for
        example, on the flusher, on the I/O pool, or on the thread that serves a follower's fetch.
        """
        with self._lock:
            for write in writes:
                write.code = code or write.code
                write.done = True
        while True:
            with self._lock:
                if self._announcing or not self._in_order or not self._in_order[0].done:
                    return
                self._announcing = True
                ready = []
                while self._in_order and self._in_order[0].done:
                    ready.append(self._in_order.popleft())
            for write in ready:
                try:
                    write.callback(write.code)
                except Exception:
                    logger.exception("a write callback failed", extra=fields(log=self.name))
            with self._lock:
                self._announcing = False

    def _code_of(self, error: Exception) -> int:
        if isinstance(error, KafkaError):
            log = logger.debug if error.code in _MOVED else logger.warning
            log("could not write records: %s", error, extra=fields(log=self.name))
            return int(error.code)
        logger.error("could not write records", exc_info=error, extra=fields(log=self.name))
        return int(ErrorCode.KAFKA_STORAGE_ERROR)


def check_in_sync(log: PartitionLog) -> None:
    """Raise KafkaError (NOT_ENOUGH_REPLICAS) if a log has fewer in-sync replicas than its topic requires."""
    followers = log.core.followers if log.REPLICATED else None
    if followers is not None and followers.under_min:
        raise error_for(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{log.name} has only {followers.in_sync_count} replicas in sync, fewer than min.insync.replicas",
        )


def when_safe(
    log: PartitionLog, end_offset: int, leader_epoch: int, callback: Callable[[int], object], *, flush: bool
) -> None:
    """Call callback(0) when the records below `end_offset` are safe; callback(code) if that fails.

    With other in-sync replicas, that is when the high watermark has passed the records. There is no timeout, because an
    appended record may take effect at any time.

    The records were appended in the leader epoch `leader_epoch`. If another leader is elected before they are safe, the
    outcome is unknown and the code is NOT_LEADER_OR_FOLLOWER. Replicas that leave the in-sync set later do not matter,
    since enough replicas had the records at that time.
    """

    def flush_alone(code: int) -> None:
        others = log.core.followers if log.REPLICATED else None
        alone = others is None or others.in_sync_count <= 1
        if code and code != ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            callback(code)
        elif flush and alone:
            try:
                log.flush_async(end_offset, callback)
            except Exception as error:  # any error is reported to the callback
                logger.exception("could not flush records to the disk", extra=fields(log=log.name))
                callback(int(error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            callback(0)

    if not log.REPLICATED:
        flush_alone(0)
        return
    from kafkalite._native.log.leading import wait_replicated

    wait_replicated(log.core, end_offset, leader_epoch, flush_alone)
