"""Writes to one partition in order, many of them with one flush, without anybody waiting.

    write(append, callback) ─▶ queue ─▶ one job on the I/O pool does all appends that wait
                                  └─▶ safe ─▶ callbacks, in the order of the writes

What is written is safe when it is on this disk, or, where others have replicas in sync, when all of these have it: when
the high watermark has passed it in the leader epoch in which it was appended. If that is over first, by another
leader's election, nobody knows whether it stays: NOT_LEADER_OR_FOLLOWER. There is no other end to that wait: what
stands in the log may hold at any time, so that who waits cannot be told that it does not.

An append that failed is told so by its own callback; those after it are tried all the same, since a record that is too
large is its own fault alone. A refusal is an answer, too: what the log knows, and refuses by, is durable before it is
told (a marker is not needed where the log has it already, but a killed process may have left that one unsynced). One
that rests on nothing in the log, since too few are in sync or another leads, does not wait for what may take as long.

Thread rule: `write` from any thread, it does not wait. Callbacks run on the flusher, on the I/O pool, or on the thread
that serves a follower's fetch, one at a time and in order, with no lock of ours held; they must not block. The writer's
lock is a leaf.
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
"""Refusals of a coordinator that has moved to another broker, where clients then ask."""
_WHATEVER_IT_HAS: Final = _MOVED | {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Refusals that do not depend on what stands in the log."""


class _Write:
    """Something to append, and who is told."""

    __slots__ = ("append", "callback", "code", "done")

    def __init__(self, append: Callable[[PartitionLog], int], callback: Callable[[int], object]) -> None:
        self.append = append
        self.callback = callback
        self.code = 0
        self.done = False


class LogWriter:
    """The writes of one partition. `find` gives its log, or raises; it runs on the I/O pool.

    `flush`: what nobody else has is put on the disk before it is told. `in_sync`: nothing is appended where fewer
    replicas are in sync than min.insync.replicas, as by a producer with acks=all (NOT_ENOUGH_REPLICAS).
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
        """Whether every write was told how it went."""
        return not self._in_order

    def write(self, append: Callable[[PartitionLog], int], callback: Callable[[int], object]) -> None:
        """`append` gets the log and returns its end after what it appended. callback(0) when that is durable, or the
        code of the KafkaError it raised, or of the flush that failed."""
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
        except RuntimeError:  # the broker stops; whoever waits loses its connection with everybody else
            logger.info("dropped records that arrived while the broker was stopping", extra=fields(log=self.name))

    def _append_waiting(self) -> None:
        """One turn: appends what waits, flushes once, and comes again when more has arrived."""
        with self._lock:
            writes, self._waiting = self._waiting, []
        end_offset = epoch = -1
        log: PartitionLog | None = None
        for write in writes:
            try:
                log = self._find()
                if (
                    epoch < 0
                ):  # the first one's: where leadership came back between two of them, neither is told it is safe
                    epoch = log.leader_epoch
                if self._in_sync:
                    check_in_sync(log)
                end_offset = max(end_offset, write.append(log))
            except Exception as error:  # noqa: BLE001 - each write is told of its own failure
                write.code = self._code_of(error)
                if log is not None and write.code not in _WHATEVER_IT_HAS:
                    end_offset = max(end_offset, log.log_end_offset)
        if log is None or end_offset < 0:
            self._finish(writes, 0)
        else:
            try:
                when_safe(log, end_offset, epoch, lambda code: self._finish(writes, code), flush=self._flush)
            except Exception as error:  # noqa: BLE001 - who waits is told, and the next write goes on
                self._finish(writes, self._code_of(error))
        with self._lock:
            if not self._waiting:
                self._scheduled = False
                return
        self._schedule()

    def _finish(self, writes: list[_Write], code: int) -> None:
        """Calls back for everything that is done, in order, whichever thread it was that finished last."""
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
    """KafkaError (NOT_ENOUGH_REPLICAS) where fewer replicas of a log are in sync than its topic wants."""
    followers = log.core.followers if log.REPLICATED else None
    if followers is not None and followers.under_min:
        raise error_for(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{log.name} has only {followers.in_sync_count} replicas in sync, fewer than min.insync.replicas",
        )


def when_safe(
    log: PartitionLog, end_offset: int, leader_epoch: int, callback: Callable[[int], object], *, flush: bool
) -> None:
    """callback(0) when what ends there, appended in this leader epoch, cannot be lost by one broker's end; else a code.

    That fewer are in sync than should be, when it is on all of these, does not count: there were enough when the high
    watermark passed it.
    """

    def flush_alone(code: int) -> None:
        others = log.core.followers if log.REPLICATED else None
        alone = others is None or others.in_sync_count <= 1
        if code and code != ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            callback(code)
        elif flush and alone:
            try:
                log.flush_async(end_offset, callback)
            except Exception as error:  # who waits is told, whatever it was
                logger.exception("could not flush records to the disk", extra=fields(log=log.name))
                callback(int(error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            callback(0)

    if not log.REPLICATED:
        flush_alone(0)
        return
    from kafkalite._native.log.leading import wait_replicated

    wait_replicated(log.core, end_offset, leader_epoch, flush_alone)
