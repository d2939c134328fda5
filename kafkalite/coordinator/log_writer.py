"""Writes to one partition in order, many of them with one flush, without anybody waiting.

    write(append, callback) ─▶ queue ─▶ one job on the I/O pool does all appends that wait
                                  └─▶ one flush ─▶ callbacks, in the order of the writes

An append that failed is told so by its own callback; those after it are tried all the same, since a record that is too
large is its own fault alone. A refusal is an answer, too: what the log knows, and refuses by, is durable before it is
told (a marker is not needed where the log has it already, but a killed process may have left that one unsynced).

Thread rule: `write` from any thread, it does not wait. Callbacks run on the flusher or on the I/O pool, one at a time
and in order, with no lock of ours held; they must not block. The writer's lock is a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.logging import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.pool import IoPool

logger = logging.getLogger(__name__)


class _Write:
    """Something to append, and who is told."""

    __slots__ = ("append", "callback", "code", "done")

    def __init__(self, append: Callable[[PartitionLog], int], callback: Callable[[int], object]) -> None:
        self.append = append
        self.callback = callback
        self.code = 0
        self.done = False


class LogWriter:
    """The writes of one partition. `find` gives its log, or raises; it runs on the I/O pool."""

    def __init__(self, name: str, find: Callable[[], PartitionLog], pool: IoPool, *, flush: bool) -> None:
        self.name = name
        self._find = find
        self._pool = pool
        self._flush = flush
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
            logger.info("records come too late to be written", extra=fields(log=self.name))

    def _append_waiting(self) -> None:
        """One turn: appends what waits, flushes once, and comes again when more has arrived."""
        with self._lock:
            writes, self._waiting = self._waiting, []
        end_offset = -1
        log: PartitionLog | None = None
        for write in writes:
            try:
                log = self._find()
                end_offset = max(end_offset, write.append(log))
            except Exception as error:  # noqa: BLE001 - each write is told of its own failure
                write.code = self._code_of(error)
                if log is not None:
                    end_offset = max(end_offset, log.log_end_offset)
        if log is not None and end_offset >= 0 and self._flush:
            try:
                log.flush_async(end_offset, lambda code: self._finish(writes, code))
            except Exception as error:  # noqa: BLE001 - who waits is told, whatever it was
                self._finish(writes, self._code_of(error))
        else:
            self._finish(writes, 0)
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
                    logger.exception("taking note of a write failed", extra=fields(log=self.name))
            with self._lock:
                self._announcing = False

    def _code_of(self, error: Exception) -> int:
        if isinstance(error, KafkaError):
            logger.warning("records could not be written: %s", error, extra=fields(log=self.name))
            return int(error.code)
        logger.error("records could not be written", exc_info=error, extra=fields(log=self.name))
        return int(ErrorCode.KAFKA_STORAGE_ERROR)
