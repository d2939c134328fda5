"""Define the mark of a read position: the leader epoch, first offset and CRC of the batch before the position.

If the log later has a different batch there, it has diverged: it was truncated, restored or recreated
(`kafkalite.client.history`).

Thread rule: immutable values, except EpochHistory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.model import TopicPartition


class Mark(NamedTuple):
    """The leader epoch, first offset and CRC of the batch before a position; -1 if unknown."""

    epoch: int = -1
    base_offset: int = -1
    crc: int = -1


UNMARKED: Final = Mark()
EPOCHS_MAX: Final = 64
"""Leader epoch changes kept per log; older records have long been committed."""


class Position(NamedTuple):
    """The offset up to which a log was read, and the mark of the last batch read."""

    offset: int
    mark: Mark = UNMARKED


class Divergence(NamedTuple):
    """A log that was read up to `position` but now has other records, from offset `at` on (None: unknown)."""

    partition: TopicPartition
    position: int
    at: int | None

    def __str__(self) -> str:
        where = "its log has diverged" if self.at is None else f"its log has diverged from offset {self.at} on"
        return f"{self.partition} was read up to offset {self.position}, but {where}"


if TYPE_CHECKING:
    FindDivergences = Callable[[Mapping[TopicPartition, Position]], list[Divergence]]


class EpochHistory:
    """The leader epochs of the records read from one log, with the offset at which each epoch begins.

    One thread changes it; any thread may read it.
    """

    __slots__ = ("_read_to", "_rows")

    def __init__(self, offset: int, epoch: int = -1) -> None:
        """`epoch` is the leader epoch of the record before `offset`, -1 if unknown."""
        self._read_to = offset
        self._rows: tuple[tuple[int, int], ...] = ((offset - 1, epoch),)

    def extend(self, epochs: Sequence[tuple[int, int]], end: int) -> None:
        """Add (start offset, epoch) pairs after the log was read up to `end`."""
        rows = self._rows
        for start, epoch in epochs:
            at = max(start, self._read_to)
            if at < end and epoch != rows[-1][1]:
                rows = (*rows[1 - EPOCHS_MAX :], (at, epoch))
        self._rows = rows
        self._read_to = max(self._read_to, end)

    def leap(self, offset: int) -> None:
        """Continue at `offset`; epochs of skipped records are unknown."""
        if offset > self._read_to:
            if self._rows[-1][1] >= 0:
                self._rows = (*self._rows[1 - EPOCHS_MAX :], (self._read_to, -1))
            self._read_to = offset

    def before(self, offset: int) -> int:
        """Return the epoch of the record before this offset; -1 if unknown."""
        if offset > self._read_to:
            return -1
        return next((epoch for start, epoch in reversed(self._rows) if start < offset), -1)
