"""What identifies the history that a position in a log belongs to, and where another history parts from it.

Thread rule: values that do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.model import TopicPartition


class Mark(NamedTuple):
    """What a position is kept with, of the batch before it; -1: not known."""

    epoch: int = -1
    base_offset: int = -1
    crc: int = -1


UNMARKED: Final = Mark()
EPOCHS_MAX: Final = 64
"""Changes of leader epochs that are remembered of a log: older records are long committed."""


class Position(NamedTuple):
    """An offset that a log was read up to, and the mark of what was read last."""

    offset: int
    mark: Mark = UNMARKED


class Divergence(NamedTuple):
    """A log that has another history than a position is of: from offset `at` on, or from an unknown one."""

    partition: TopicPartition
    position: int
    at: int | None

    def __str__(self) -> str:
        where = "its log has diverged" if self.at is None else f"its log has diverged from offset {self.at} on"
        return f"{self.partition} was read up to offset {self.position}, but {where}"


if TYPE_CHECKING:
    FindDivergences = Callable[[Mapping[TopicPartition, Position]], list[Divergence]]


class EpochHistory:
    """The leader epochs of one log's records, as far as they were read: from which offset on each was in force.

    One thread changes it; any thread may ask.
    """

    __slots__ = ("_read_to", "_rows")

    def __init__(self, offset: int, epoch: int = -1) -> None:
        """`epoch` is that of the record before `offset`, -1 where it is not known."""
        self._read_to = offset
        self._rows: tuple[tuple[int, int], ...] = ((offset - 1, epoch),)

    def extend(self, epochs: Sequence[tuple[int, int]], end: int) -> None:
        """These epochs begin at these offsets, and the log was read up to `end`."""
        rows = self._rows
        for start, epoch in epochs:
            at = max(start, self._read_to)
            if at < end and epoch != rows[-1][1]:
                rows = (*rows[1 - EPOCHS_MAX :], (at, epoch))
        self._rows = rows
        self._read_to = max(self._read_to, end)

    def leap(self, offset: int) -> None:
        """What is read next is at `offset`; nothing is known of what is left out."""
        if offset > self._read_to:
            if self._rows[-1][1] >= 0:
                self._rows = (*self._rows[1 - EPOCHS_MAX :], (self._read_to, -1))
            self._read_to = offset

    def before(self, offset: int) -> int:
        """The epoch of the record before this offset; -1 where it is not known."""
        if offset > self._read_to:
            return -1
        return next((epoch for start, epoch in reversed(self._rows) if start < offset), -1)
