"""Track the partitions assigned to a group member, their positions, and records that were not handed out yet.

    assigned            the partition is `unplaced`: it has no start offset yet
    begin               sets the start offset
    chunks are read     the chunks wait here until they are handed out
    chunk handed out    the position moves to the offset after the chunk
    position committed  `uncommitted` leaves the partition out until its position moves
    revoked or lost     everything about the partition is dropped

Thread rule: one thread at a time, that of the GroupReader.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalite.client.committed import CommittedOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client.read.reader import Chunk
    from kafkalite.model import TopicPartition


class Holdings:
    """A member's assigned partitions; see the module."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.unplaced: set[TopicPartition] = set()
        """Assigned partitions whose start offset is not known yet."""
        self.unplaced_since = 0.0
        self.place_at = 0.0
        """When the start offsets are looked up next, in time.monotonic() seconds."""
        self.positions: dict[TopicPartition, int] = {}
        """The offset of the next record to hand out, by partition: what `commit` commits."""
        self._committed: dict[TopicPartition, int] = {}
        """Committed offsets that this member knows."""
        self._chunks: deque[Chunk] = deque()
        """Chunks that were read and not handed out."""

    # --- partitions ---------------------------------------------------------------------------------------------------

    def take(self, keys: set[TopicPartition], now: float) -> None:
        """Add newly assigned partitions."""
        self.owned |= keys
        self.unplaced |= keys
        self.unplaced_since = now
        self.place_at = 0.0

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of partitions that have none yet."""
        self.positions |= starts
        self.unplaced -= starts.keys()

    def drop(self, keys: set[TopicPartition]) -> None:
        """Remove partitions that were revoked or lost."""
        self.owned -= keys
        self.unplaced -= keys
        self.drop_chunks(keys)
        for key in keys:
            self.positions.pop(key, None)
            self._committed.pop(key, None)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def hold(self, chunks: Iterable[Chunk]) -> bool:
        """Append chunks that were read. Return whether there is a record to hand out.

        Leading chunks without records (control records, aborted transactions) are skipped; they only advance the
        position.
        """
        self._chunks.extend(chunks)
        while self._chunks and not len(self._chunks[0].columns):
            self.hand_out()
        return bool(self._chunks)

    def hand_out(self) -> Chunk:
        """Return the first chunk and advance its position."""
        chunk = self._chunks.popleft()
        self.positions[chunk.partition] = chunk.next_offset
        return chunk

    def hand_out_all(self) -> list[Chunk]:
        """Return all chunks that have records and advance the positions."""
        chunks = [self.hand_out() for _ in range(len(self._chunks))]
        return [chunk for chunk in chunks if len(chunk.columns)]

    def drop_chunks(self, keys: set[TopicPartition]) -> set[TopicPartition]:
        """Drop the chunks of these partitions; return the partitions that had chunks."""
        dropped = {chunk.partition for chunk in self._chunks} & keys
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition not in keys)
        return dropped

    # --- commits ------------------------------------------------------------------------------------------------------

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions that are not committed."""
        return {
            key: CommittedOffset(offset) for key, offset in self.positions.items() if self._committed.get(key) != offset
        }

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the committed offsets of assigned partitions."""
        self._committed |= {key: offset for key, offset in offsets.items() if key in self.owned}
