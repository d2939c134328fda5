"""The partitions that a member of a group has, and how far each of them is.

    taken ──▶ unplaced ──begin──▶ placed: chunks held ──handed out──▶ position ──committed──▶ …
      └───────────────────────────── dropped: given up or lost ◀────────────────────────────┘

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
    """See the module."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.unplaced: set[TopicPartition] = set()
        """Owned, and nobody knows yet where to read on."""
        self.unplaced_since = 0.0
        self.place_at = 0.0
        """When it is asked next where to read on; both as time.monotonic has it."""
        self.positions: dict[TopicPartition, int] = {}
        """Where the next record to be handed out stands; what commit commits."""
        self._committed: dict[TopicPartition, int] = {}
        """As far as this member knows."""
        self._chunks: deque[Chunk] = deque()
        """Read, and not handed out."""

    # --- partitions ---------------------------------------------------------------------------------------------------

    def take(self, keys: set[TopicPartition], now: float) -> None:
        """These are owned from now on."""
        self.owned |= keys
        self.unplaced |= keys
        self.unplaced_since = now
        self.place_at = 0.0

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """These are read from these offsets on."""
        self.positions |= starts
        self.unplaced -= starts.keys()

    def drop(self, keys: set[TopicPartition]) -> None:
        """These are somebody else's."""
        self.owned -= keys
        self.unplaced -= keys
        self.drop_chunks(keys)
        for key in keys:
            self.positions.pop(key, None)
            self._committed.pop(key, None)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def hold(self, chunks: Iterable[Chunk]) -> bool:
        """Keeps these after what is held; whether there is a record to hand out.

        What holds none, markers and aborted transactions, is stepped over as long as it stands in front.
        """
        self._chunks.extend(chunks)
        while self._chunks and not len(self._chunks[0].columns):
            self.hand_out()
        return bool(self._chunks)

    def hand_out(self) -> Chunk:
        """The first chunk that is held."""
        chunk = self._chunks.popleft()
        self.positions[chunk.partition] = chunk.next_offset
        return chunk

    def hand_out_all(self) -> list[Chunk]:
        """Everything that is held, without what has no records."""
        chunks = [self.hand_out() for _ in range(len(self._chunks))]
        return [chunk for chunk in chunks if len(chunk.columns)]

    def drop_chunks(self, keys: set[TopicPartition]) -> set[TopicPartition]:
        """Forgets what is held of these partitions; of which something was."""
        dropped = {chunk.partition for chunk in self._chunks} & keys
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition not in keys)
        return dropped

    # --- commits ------------------------------------------------------------------------------------------------------

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """The positions that are not committed yet."""
        return {
            key: CommittedOffset(offset) for key, offset in self.positions.items() if self._committed.get(key) != offset
        }

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """So far the group has these; of partitions that are owned."""
        self._committed |= {key: offset for key, offset in offsets.items() if key in self.owned}
