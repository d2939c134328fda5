"""Detect that a log was restored, truncated or recreated after an audit has read it.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.client.history import find_divergences
from kafkalite.client.read.marks import Mark, Position
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client import Client
    from kafkalite.client.read.marks import Divergence
    from kafkalite.client.read.reader import Chunk, Reader


class Histories:
    """The positions up to which an audit has read logs, each with a mark that identifies the batch before it."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, Position] = {}

    def note(self, reader: Reader, chunk: Chunk) -> None:
        """Store the position after a chunk, with its mark, if the chunk completes a response.

        A mark identifies the last batch before the position.
        """
        key = chunk.partition
        if reader.position(key) == chunk.next_offset:
            self._rows[key] = Position(chunk.next_offset, reader.mark(key))

    def parted(self, client: Client, positions: Mapping[TopicPartition, int]) -> list[Divergence]:
        """Return the positions whose log has diverged.

        Without a mark, the divergence is detected only if the log ends before the position.
        """
        known = {key: Position(offset) for key, offset in positions.items() if offset > 0}
        known |= {
            key: self._rows[key] for key in known if key in self._rows and self._rows[key].offset == positions[key]
        }
        return find_divergences(client, known) if known else []

    def offset(self, key: TopicPartition) -> int:
        """Return the offset up to which a log was read, or 0 if unknown."""
        return self._rows[key].offset if key in self._rows else 0

    def clear(self) -> None:
        """Forget all positions, because everything is read again."""
        self._rows.clear()

    def saved(self) -> list[list[Any]]:
        """Return the state as JSON."""
        return [[*key, row.offset, *row.mark] for key, row in self._rows.items()]

    def restore(self, rows: list[list[Any]]) -> None:
        """Load the result of `saved`."""
        for topic, partition, offset, *mark in rows:
            self._rows[TopicPartition(topic, partition)] = Position(offset, Mark(*mark))
