"""Notices logs that were restored, truncated or recreated below what an audit has read of them.

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
    """See the module."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, Position] = {}

    def note(self, reader: Reader, chunk: Chunk) -> None:
        """A chunk was counted: keeps what its log ended with, once all of an answer was."""
        key = chunk.partition
        if reader.position(key) == chunk.next_offset:
            self._rows[key] = Position(chunk.next_offset, reader.mark(key))

    def parted(self, client: Client, positions: Mapping[TopicPartition, int]) -> list[Divergence]:
        """Those of these positions whose log has another history now. Without a mark only one that ends before."""
        known = {key: Position(offset) for key, offset in positions.items() if offset > 0}
        known |= {
            key: self._rows[key] for key in known if key in self._rows and self._rows[key].offset == positions[key]
        }
        return find_divergences(client, known) if known else []

    def offset(self, key: TopicPartition) -> int:
        """Up to where a log was read at most; 0 where nothing is known."""
        return self._rows[key].offset if key in self._rows else 0

    def clear(self) -> None:
        """Everything is read once more."""
        self._rows.clear()

    def saved(self) -> list[list[Any]]:
        """All of it, as JSON."""
        return [[*key, row.offset, *row.mark] for key, row in self._rows.items()]

    def restore(self, rows: list[list[Any]]) -> None:
        """What `saved` gave."""
        for topic, partition, offset, *mark in rows:
            self._rows[TopicPartition(topic, partition)] = Position(offset, Mark(*mark))
