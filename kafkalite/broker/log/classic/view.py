"""Convert the messages of a classic log to record batches, for clients that read Kafka's current format.

    message at P    ─▶ record with offset P; the next message begins at P + message size
    wrapper at W    ─▶ records with the offsets W, W + 1, …

A *wrapper* is a message that contains compressed messages. It must have at least as many bytes as messages. Otherwise
there are not enough offsets.

After the record at P, a client commits the offset P + 1, which is inside the message. A fetch from there begins with
the next message.

Everything here blocks. `UNPACKING` is a leaf lock.
"""

from __future__ import annotations

import logging
import struct
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.classic.classic_log import make_batch
from kafkalite._native.classic.message_set import PARTIAL, Message, MessageIterator, MessageSetError, encode
from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.errors import ErrorCode
from kafkalite.wire.record.message_set import messages

if TYPE_CHECKING:
    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.partition_log import PartitionLog

logger = RepeatLogger(logging.getLogger(__name__))

CHUNK_SIZE_MIN: Final = 64 * 1024
"""Minimum number of bytes per read."""
UNPACKING: Final = threading.Lock()
"""Held while a wrapper is decompressed, so that only one wrapper at a time uses memory."""
RECORD_OVERHEAD: Final = 16
"""Estimated size of a record without its payload, in bytes."""


class BatchView:
    """The records for one fetch: at most `size_max` bytes, beginning at `offset`."""

    def __init__(self, log: PartitionLog, offset: int, size_max: int) -> None:
        self._log = log
        self._wanted = offset
        self._size_max = size_max
        self._size = 0
        self._records: list[tuple[int, bytes]] = []
        self._last_offset = -1

    def read(self) -> tuple[int, bytes]:
        """Return (error code, one batch or nothing)."""
        log = self._log
        try:
            at = self._wanted
            while at < log.flushed_offset and not self._records:
                at = self._read_chunk(segment_at(log, at), at)
        except MessageSetError as error:
            if not self._records:
                logger.warning("could not read messages", extra=fields(log=log.name, reason=str(error)))
                return ErrorCode.CORRUPT_MESSAGE, b""
        except SegmentUnreadable as error:
            log.unreadable(error)
            return ErrorCode.KAFKA_STORAGE_ERROR, b""
        except FileNotFoundError:
            return (ErrorCode.OFFSET_OUT_OF_RANGE if self._wanted < log.log_start_offset else -1), b""
        return 0, make_batch(self._records, self._last_offset) if self._records else b""

    def _read_chunk(self, segment: Segment, at: int) -> int:
        """Add the requested messages of one chunk of a segment; return the offset at which to continue."""
        end = min(segment.size, self._log.flushed_offset - segment.base_offset)
        position = self._log.indexes.position_of_offset(segment, at)
        data = self._chunk(segment, position, end)
        start = segment.base_offset + position
        iterator = MessageIterator(data, start, shallow=True)
        for message in iterator:
            next_offset = iterator.next_offset
            if next_offset > at and not self._take(message, start, next_offset):
                break
            start = next_offset
        return max(start, at + 1)

    def _chunk(self, segment: Segment, position: int, end: int) -> bytes:
        """Return bytes of the segment that begin with a whole message, even if this message is larger than a chunk."""
        size = min(max(self._size_max, CHUNK_SIZE_MIN), end - position)
        data = segment.read_bytes(position, size)
        needed = struct.unpack_from(">i", data)[0] + 4 if size >= 4 else 0
        if needed <= size:
            return data
        if needed > end - position:
            raise MessageSetError(PARTIAL, segment.base_offset + position)
        return segment.read_bytes(position, needed)

    def _take(self, message: Message, start: int, next_offset: int) -> bool:
        """Add the requested records of a message; return False if there is no room for more."""
        if not message.codec:
            if start >= self._wanted and not self._add(start, message.payload):
                return False
        else:
            with UNPACKING:
                found, fits = self._unwrap(message, start)
            for offset, payload in found:
                self._add(offset, payload)
            if not fits:
                return False
        if self._records:
            self._last_offset = next_offset - 1
        return True

    def _unwrap(self, wrapper: Message, offset: int) -> tuple[list[tuple[int, bytes]], bool]:
        """Return (those requested messages of a wrapper that fit into the batch, whether all of them fit).

        MessageSetError if there are more messages than offsets, or if the wrapper is damaged anywhere. An append splits
        a wrapper with too many messages, so only a log that was copied here contains one.
        """
        services = self._log.services
        entry = encode([wrapper])
        found: list[tuple[int, bytes]] = []
        size, fits, count = self._size, True, 0
        for inner in messages(entry, offset, size_max=services.decompressed_size_max, depth_max=services.nesting_max):
            if fits and offset + count >= self._wanted:
                size += len(inner.payload) + RECORD_OVERHEAD
                fits = size <= self._size_max or not (self._records or found)
                if fits:
                    found.append((offset + count, inner.payload))
            count += 1
        if count > len(entry):
            logger.warning(
                "a compressed message holds more messages than bytes, so they cannot all have their own offsets",
                extra=fields(log=self._log.name, offset=offset, size=len(entry), count=count),
            )
            raise MessageSetError(PARTIAL, offset)
        return found, fits

    def _add(self, offset: int, payload: bytes) -> bool:
        size = len(payload) + RECORD_OVERHEAD
        if self._records and self._size + size > self._size_max:
            return False
        self._size += size
        self._records.append((offset, payload))
        self._last_offset = offset
        return True


def segment_at(log: PartitionLog, offset: int) -> Segment:
    """Return the segment that contains an offset; for an offset before all segments, the first one."""
    segments = log.segments
    return next((s for s in reversed(segments) if s.base_offset <= offset), segments[0])
