"""Run the threads that compact logs (the log cleaner): choose the next log, limit the I/O, store the progress.

    every log.cleaner.backoff.ms ─▶ the dirtiest log that is due ─▶ Compaction ─▶ cleaner-offset-checkpoint ─▶ the next

A log is clean below its *cleaner offset*. The dirty part begins at this offset.

Thread rule: one thread at a time compacts a log. `_lock` guards the offsets and the lists, and the checkpoint is
written under it. No other lock is taken under it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.log.scan import batch_headers
from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.broker.log import checkpoints, files
from kafkalite.broker.log.compaction import Compaction, CompactionLimits, CompactionStopped, SegmentDamaged
from kafkalite.broker.log.partition_log import FULL_DISK_ERRORS, PASSING_ERRORS, PartitionLog
from kafkalite.broker.log.swap import SwapAbandoned
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite._native.log.segment import Segment
    from kafkalite.base.executors import Worker
    from kafkalite.broker.log.upkeep import LogDirectory

logger = logging.getLogger(__name__)

INT64_MAX: Final = (1 << 63) - 1
LOAD_FACTOR_MAX: Final = 0.95
"""Maximum load of the key map: searches in a fuller map are too slow."""
SLOT_COUNT_MIN: Final = 2
THROTTLE_STEP: Final = 0.05
"""Minimum delay in seconds that a throttled thread sleeps for."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log and its dirty part, from offset `first_dirty` up to `upper`. Sizes in bytes."""

    log: PartitionLog
    first_dirty: int
    upper: int
    clean_size: int  # bytes
    dirty_size: int
    overdue: bool  # something dirty is older than max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the log's clean and dirty bytes, from 0 to 1."""
        total = self.clean_size + self.dirty_size
        return self.dirty_size / total if total else 0.0

    @property
    def due(self) -> bool:
        """Whether the log is due for compaction.

        It is due if the dirty part is more than min.cleanable.dirty.ratio of the bytes up to its end, or if a dirty
        record is older than max.compaction.lag.ms.
        """
        return self.dirty_size > 0 and (self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio)


class LogCleaner:
    """Compacts the logs of one data directory."""

    def __init__(self, logs: LogDirectory) -> None:
        self._logs = logs
        self._path = f"{logs.directory}/{files.CLEANER_OFFSETS_NAME}"
        self._stopped = logs.executors.event()
        self._lock = threading.Lock()
        self._offsets: dict[tuple[str, int], int] = {}
        self._busy: set[PartitionLog] = set()
        self._left_alone: set[PartitionLog] = set()
        self._resting: set[PartitionLog] = set()  # compacted in this round without progress
        self._paid_until = 0.0  # monotonic seconds: when the rate limit allows more bytes
        self._workers: list[Worker] = []
        self._leaving: list[Worker] = []  # surplus threads, which end after their current compaction

    # --- life ---------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the checkpoint. If the checkpoint is missing or damaged, every log is dirty from its log start.

        The file `cleaner-offset-checkpoint` is Kafka's. An entry may be too low, since compacting again is harmless.
        """
        self._offsets = checkpoints.read_offsets(self._path) or {}

    def start(self) -> None:
        """Start the threads."""
        self.resize()

    def resize(self) -> None:
        """Adjust the number of threads to log.cleaner.threads; surplus threads end after their compaction."""
        config = self._logs.config
        wanted = config.log_cleaner_threads if config.log_cleaner_enable and not self._stopped.is_set() else 0
        started = []
        with self._lock:
            while len(self._workers) < wanted:
                self._workers.append(self._new_worker(len(self._workers)))
                started.append(self._workers[-1])
            leaving = self._workers[wanted:]
            del self._workers[wanted:]
            self._leaving += leaving
        for worker in started:
            worker.start()
        for worker in leaving:
            with worker.lock:
                worker.call_locked()

    @property
    def thread_count(self) -> int:
        """The number of threads, not counting threads that are about to end."""
        return len(self._workers)

    def _new_worker(self, number: int) -> Worker:
        made: list[Worker] = []

        def turn() -> float | None:
            with self._lock:
                left = made[0] in self._leaving
                if left:
                    self._leaving.remove(made[0])
            if left:
                made[0].stop()
                return None
            return self._turn()

        made.append(self._logs.executors.worker(f"kafkalite-cleaner-{number}", turn))
        return made[0]

    def stop(self) -> None:
        """End the threads. A running compaction stops early; the segments that it has swapped in stay."""
        self._stopped.set()
        with self._lock:
            workers = self._workers + self._leaving
            self._workers, self._leaving = [], []
        for worker in workers:
            worker.stop()

    def _turn(self) -> float:
        try:
            if self.clean_dirtiest():
                return 0.0
        except Exception:
            logger.exception("cleaning failed")
        return self._logs.config.log_cleaner_backoff_ms / 1000

    def _wait(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def offset_of(self, log: PartitionLog) -> int:
        """Return the offset up to which a log is compacted; 0 if the log was never compacted."""
        with self._lock:
            return self._offsets.get((log.topic, log.partition), 0)

    def has_cleaned(self, topic: str, partition: int) -> bool:
        """Return whether the checkpoint says that a partition was ever compacted."""
        with self._lock:
            return self._offsets.get((topic, partition), 0) > 0

    def forget_topic(self, name: str) -> None:
        """Drop the cleaner offsets of all topics that had this name. OSError.

        Called when a topic is deleted, and again before a topic of this name is created.
        """
        with self._lock:
            kept = {key: offset for key, offset in self._offsets.items() if key[0] != name}
            if len(kept) < len(self._offsets):
                checkpoints.write_offsets(self._path, kept)
                self._offsets = kept
            self._left_alone = {log for log in self._left_alone if not log.deleted}

    def _cleaned(self, log: PartitionLog, offset: int) -> None:
        with self._lock:
            if log.deleted:
                return
            self._offsets = {**self._offsets, (log.topic, log.partition): offset}
            checkpoints.write_offsets(self._path, self._offsets)

    def lower(self, log: PartitionLog, offset: int) -> None:
        """Lower the cleaner offset of a log that is truncated to `offset`, so that later records count as dirty.
        OSError.
        """
        if self.offset_of(log) > offset:
            self._cleaned(log, offset)

    # --- choice -------------------------------------------------------------------------------------------------------

    def look_at(self, log: PartitionLog, now_ms: int) -> LogToClean:
        """Return how many bytes of a log are clean, and the dirty part that could be compacted now."""
        segments = log.segments
        first_dirty = self.offset_of(log)
        if first_dirty > log.log_end_offset:
            logger.warning(
                "the cleaner offset is beyond the end of the log; resetting it",
                extra=fields(log=log.name, offset=first_dirty, log_end_offset=log.log_end_offset),
            )
            first_dirty = 0
        first_dirty = max(first_dirty, log.log_start_offset)
        upper = self._first_uncleanable(log, segments, first_dirty, now_ms)
        clean_size = dirty_size = 0
        dirty = []
        for i, segment in enumerate(segments[:-1]):
            if segments[i + 1].base_offset <= first_dirty:
                clean_size += segment.size
            elif segment.base_offset < upper:
                dirty_size += segment.size
                dirty.append(segment)
        overdue = upper > first_dirty and _oldest_ms(dirty, log) < now_ms - log.config.max_compaction_lag_ms
        return LogToClean(log, first_dirty, upper, clean_size, dirty_size if upper > first_dirty else 0, overdue)

    def _first_uncleanable(self, log: PartitionLog, segments: Sequence[Segment], first_dirty: int, now_ms: int) -> int:
        """Return the end of the dirty part: the lowest of these offsets.

        - the last stable offset
        - the start of the active segment
        - the start of a segment that a flush does not make durable
        - the start of a segment with a record younger than min.compaction.lag.ms
        """
        log.ensure_producers()
        upper = min(log.last_stable_offset, segments[-1].base_offset)
        lag_ms = log.config.min_compaction_lag_ms
        for i, segment in enumerate(segments[:-1]):
            if segments[i + 1].base_offset <= first_dirty or segment.base_offset >= upper:
                continue
            if segment.flushed_size < segment.size and not self._flushed(log, segment):
                return min(upper, segment.base_offset)
            if lag_ms > 0:
                log.indexes.ensure_summary(segment)
                if segment.max_timestamp > now_ms - lag_ms:
                    return min(upper, segment.base_offset)
        return upper

    @staticmethod
    def _flushed(log: PartitionLog, segment: Segment) -> bool:
        """Flush a log because this full segment is not durable, as after recovery. Return whether the segment is
        durable now.
        """
        try:
            log.flush()
        except KafkaError:
            return False
        return segment.flushed_size >= segment.size

    def _take_dirtiest(self, now_ms: int) -> LogToClean | None:
        best: LogToClean | None = None
        for log in self._logs.logs():
            if not log.config.compacted or log.offline or log.deleted or len(log.segments) < SLOT_COUNT_MIN:
                continue
            with self._lock:
                if log in self._busy or log in self._left_alone or log in self._resting:
                    continue
            segments = log.segments
            try:
                found = self.look_at(log, now_ms)
            except SegmentUnreadable as error:
                log.unreadable(error)
                continue
            except (OSError, KafkaError) as error:
                if not log.still_has(segments):
                    continue  # the segments were deleted meanwhile; look again in the next round
                logger.warning("the cleaner could not examine a log", extra=fields(log=log.name, reason=str(error)))
                continue
            if found.due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        with self._lock:
            if best is None:
                self._resting.clear()
            if best is None or best.log in self._busy:
                return None
            self._busy.add(best.log)
        return best

    # --- work ---------------------------------------------------------------------------------------------------------

    def clean_dirtiest(self) -> bool:
        """Compact the dirtiest log that is due; return whether any log was due. Tests call this method, too."""
        now_ms = self._logs.expiry_time.time_ms()
        chosen = self._take_dirtiest(now_ms)
        if chosen is None:
            return False
        helped = False
        try:
            helped = self._clean(chosen, now_ms)
        finally:
            with self._lock:
                self._busy.discard(chosen.log)
                if not helped:
                    self._resting.add(chosen.log)
        return True

    def limits(self) -> CompactionLimits:
        """Return the memory limits for one thread."""
        config = self._logs.config
        threads = config.log_cleaner_threads
        return CompactionLimits(
            key_map_size=config.log_cleaner_dedupe_buffer_size // threads,
            key_map_load_factor=min(max(config.log_cleaner_io_buffer_load_factor, 0.01), LOAD_FACTOR_MAX),
            output_size=max(config.log_cleaner_io_buffer_size // threads, 1),
        )

    def _clean(self, chosen: LogToClean, now_ms: int) -> bool:
        """Compact the chosen log; return whether its cleaner offset rose.

        Before the compaction, its segments, their names and a recovery point above them become durable. Otherwise a
        start would treat the missing offsets as records lost in a power cut, as it does above the recovery point.
        """
        log = chosen.log
        compaction = Compaction(
            log,
            chosen.first_dirty,
            chosen.upper,
            now_ms=now_ms,
            ahead_ms=max(self._logs.clock.time_ms() - now_ms, 0),
            limits=self.limits(),
            spend=lambda size: self._spend(log, size),
        )
        try:
            self._logs.checkpoints.note_flushed(log, chosen.upper)
            offset = compaction.run()
        except (CompactionStopped, SwapAbandoned) as reason:
            logger.info("compaction stopped early", extra=fields(log=log.name, reason=str(reason)))
            return False
        except FileNotFoundError as error:
            logger.info(
                "compaction stopped, because its segments were deleted", extra=fields(log=log.name, reason=str(error))
            )
            return False
        except SegmentUnreadable as error:
            log.unreadable(error)
            return False
        except Exception as error:  # noqa: BLE001 - an unknown error must not be retried endlessly
            self._failed(log, error)
            return False
        self._cleaned(log, offset)
        logger.info(
            "log compacted",
            extra=fields(log=log.name, first_offset=chosen.first_dirty, next_offset=offset, **compaction.summary()),
        )
        return offset > chosen.first_dirty

    def _failed(self, log: PartitionLog, error: Exception) -> None:
        """Exclude a log from compaction until the next start: data that cannot be read must not be rewritten.

        After a full disk or another temporary error, the compaction is tried again.
        """
        if log.deleted:
            return
        if isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS | PASSING_ERRORS:
            logger.warning("compaction failed; retrying later", extra=fields(log=log.name, reason=str(error)))
            return
        known = isinstance(error, OSError | KafkaError | SegmentDamaged | MemoryError)
        logger.error(
            "compaction failed; the log is not compacted until the broker restarts",
            extra=fields(log=log.name, reason=str(error)),
            exc_info=None if known else error,
        )
        with self._lock:
            self._left_alone.add(log)

    def _spend(self, log: PartitionLog, size: int) -> None:
        """Count bytes that were read or written. Wait if the rate exceeds log.cleaner.io.max.bytes.per.second.

        CompactionStopped if the broker stops, or the log is deleted or offline.
        """
        if self._stopped.is_set() or log.deleted or log.offline:
            raise CompactionStopped(
                "the broker is stopping" if self._stopped.is_set() else "the log is deleted or offline"
            )
        now = self._logs.clock.monotonic()
        with self._lock:
            seconds = size / self._logs.config.log_cleaner_io_max_bytes_per_second
            self._paid_until = max(self._paid_until, now) + seconds
            ahead = self._paid_until - now
        if ahead > THROTTLE_STEP:
            self._wait(ahead)
            if self._stopped.is_set():
                raise CompactionStopped("the broker is stopping")


def _oldest_ms(segments: Sequence[Segment], log: PartitionLog) -> int:
    """Return the earliest timestamp in ms among the first batches of the segments.

    Return INT64_MAX if no batch has a timestamp, or if max.compaction.lag.ms is not set.
    """
    if log.config.max_compaction_lag_ms == INT64_MAX:
        return INT64_MAX
    oldest = INT64_MAX
    for segment in segments:
        first = batch_headers(segment, 0, segment.size, count_max=1) if segment.size else []
        if first and first[0]["max_timestamp"] > 0:
            oldest = min(oldest, first[0]["max_timestamp"])
    return oldest
