"""Load, rebuild and save the indexes of a log's segments.

At its first use, an index is loaded from its file. If the file is missing or damaged, the index is rebuilt from the
segment.

Thread rule: any thread; a loaded index is published under the log's lock. Everything here may block.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from kafkalite._native.log.scan import header_at
from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite.base.logging import fields
from kafkalite.broker.log import index_file, recovery

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from kafkalite._native.log.index import SegmentIndex
    from kafkalite._native.log.log_core import LogCore
    from kafkalite._native.log.segment import Segment

logger = logging.getLogger(__name__)

VERIFY_AHEAD: Final = 4 * 1024 * 1024
"""Bytes checked beyond the requested ones, so that a consumer's next reads do not wait again."""


class SegmentIndexes:
    """Loads and saves the indexes of one log's segments.

    `cut_lock` is held while the log is truncated; None for a log that is never truncated.
    """

    __slots__ = ("_cut_lock", "_log", "_topic_id", "dense")

    def __init__(self, log: LogCore, topic_id: bytes, cut_lock: threading.Lock | None = None) -> None:
        self._log = log
        self._topic_id = topic_id
        self._cut_lock = cut_lock
        self.dense = False
        """Set while loading: whether a missing offset between the segments that exist at that time is damage."""

    def _load(self, segment: Segment, *, locked: bool) -> None:
        """Give a segment its index: load the saved index if it matches the segment, and index the batches after it."""
        size = segment.size
        summary = index_file.summary_of(segment, self._topic_id, self._log.partition)
        mapped = segment is not self._log.active
        scan = index_file.scan_after(segment, summary, index_interval=self._log.index_interval, mapped=mapped)
        from_file = scan.position
        limit = self.behind(segment)
        while not scan.run(size, verify=from_file == 0, offset_limit=limit):
            following = scan.resync(size, offset_limit=limit)
            offset = scan.first_bad_offset()
            end, next_offset = following or (size, max(offset, limit))
            recovery.quarantine(segment, scan.position, end, offset, next_offset)
            if following is None:
                break
            scan.skip_to(*following)
        else:
            # An index of the whole file was saved with the segment's end known, so only a walk needs the check.
            if from_file < size and segment.sealed and self.dense and not self._log.compacted:
                recovery.check_end(segment, max(scan.next_offset, self._log.log_start_offset), limit)
        with contextlib.nullcontext() if locked else self._log.locked():
            # Appends need the index, so the segment cannot have grown, but another thread may have installed it.
            if segment.index is None:
                scan.install(verified_from=0 if from_file == 0 else segment.size)

    def behind(self, segment: Segment) -> int:
        """Return the first offset after a segment: the base offset of the next segment, or the log end."""
        later = (other.base_offset for other in self._log.segments if other.base_offset > segment.base_offset)
        return next(later, self._log.log_end_offset)

    def loaded(self, segment: Segment) -> SegmentIndex:
        """Return the index of a segment, loading it if needed. May block."""
        if segment.index is None:
            self._load(segment, locked=False)
        assert segment.index is not None, "the index was just loaded"
        return segment.index

    def loaded_locked(self, segment: Segment) -> SegmentIndex:
        """Return the index of a segment like loaded(), for a caller that holds the log's lock."""
        if segment.index is None:
            self._load(segment, locked=True)
        assert segment.index is not None, "the index was just loaded"
        return segment.index

    def checked(self, segment: Segment, offset: int, size_max: int, offset_limit: int) -> None:
        """Open a segment, load its index and verify batches; `segment.damage` has the result. OSError. May block.

        The verified batches are those that a read of `size_max` bytes from `offset` returns, and VERIFY_AHEAD bytes
        after them. `offset_limit` is the first offset that cannot be in the segment.
        """
        with segment:
            index = self.loaded(segment)
            if segment.unverified:
                position = index.position_of_offset(offset)
                granules = segment.unverified_granules(position, position + max(size_max, 0) + VERIFY_AHEAD)
                recovery.verify_granules(segment, granules, offset_limit)

    def position_of_offset(self, segment: Segment, offset: int, *, locked: bool = False) -> int:
        """Return a position at or before the batch with `offset`, from which to read batch by batch. May block.

        `locked`: whether the caller holds the log's lock.
        """
        while True:
            index = self.loaded_locked(segment) if locked else self.loaded(segment)
            position = index.position_of_offset(offset)
            if not index.failed:
                return position
            segment.forget_index()

    def ensure_summary(self, segment: Segment) -> None:
        """Determine max_timestamp of a sealed segment, from the header of its index file if possible."""
        if segment.index is not None or segment.last_position >= 0 or segment.size == 0:
            return
        summary = index_file.summary_of(segment, self._topic_id, self._log.partition)
        if summary is not None and summary.covered_size == segment.size:
            segment.set_summary(summary.max_timestamp, summary.max_timestamp_offset, summary.last_position)
        else:
            self._load(segment, locked=False)

    @staticmethod
    def forget_failed(segments: Sequence[Segment]) -> bool:
        """Drop each index whose mapped file failed, so that it is rebuilt; return whether any was dropped."""
        failed = [segment for segment in segments if segment.index is not None and segment.index.failed]
        for segment in failed:
            segment.forget_index()
        return bool(failed)

    @staticmethod
    def state_of(segment: Segment) -> dict[str, int] | None:
        """Return the state of a segment's index for save_state(); None if nothing has to be saved.

        The index can grow after the call.
        """
        if segment.index is None or segment.size == 0 or segment.damage is not None:
            return None
        return {
            "count": len(segment.index),
            "covered_size": segment.size,
            "bytes_since_entry": segment.bytes_since_entry,
            "max_timestamp": segment.max_timestamp,
            "max_timestamp_offset": segment.max_timestamp_offset,
            "last_position": segment.last_position,
        }

    def save(self, segment: Segment) -> None:
        """Save the index of a sealed, durable segment."""
        state = self.state_of(segment)
        if state is not None:
            self.save_state(segment, state)

    def save_state(self, segment: Segment, state: dict[str, int]) -> None:
        """Save an index whose covered bytes are durable. A failure is only logged, since the index can be rebuilt.

        The index is not saved if the segment was truncated meanwhile: its file name then belongs to another segment.
        """
        if self._cut_lock is None:
            self._save(segment, state)
            return
        with self._cut_lock:
            if not segment.deleted:
                self._save(segment, state)

    def _save(self, segment: Segment, state: dict[str, int]) -> None:
        index = segment.index
        try:
            last = header_at(segment, state["last_position"])
            if index is None or last is None:
                return
            index_file.save(
                segment,
                index.columns()[:, : state.pop("count")],
                topic_id=self._topic_id,
                partition=self._log.partition,
                end_offset=last["next_offset"],
                interval=self._log.index_interval,
                **state,
            )
            segment.indexed_size = state["covered_size"]
        except SegmentUnreadable as error:
            self._log.owner.storage_failed(error, "a segment could not be read")
        except OSError as error:
            if segment.deleted or self._log.deleted:
                return
            logger.warning("could not save an index", extra=fields(path=segment.path, reason=str(error)))
