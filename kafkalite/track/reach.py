"""Account for every offset that a search covers, per partition, so that users can trust an empty result.

    requested offsets = records seen + markers + aborted + damaged + aged out + not seen + missing

Markers are transaction markers. Offsets that aged out were deleted while the search ran. Offsets that were not seen
were not read, because of an error or because the search was ended. Missing offsets have no record, for example after
compaction.

Thread rule: a Slice belongs to the worker that reads it. `reach_of` may read slices while workers change them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.batches import Seen


@dataclass(slots=True)
class Slice:
    """A part of a partition, from offset `start` to before `end`, with the counts of what was read."""

    key: TopicPartition
    start: int
    end: int
    age: int = 0
    """0 for the newest part of its partition, then 1, 2, …"""
    position: int = -1
    records: int = 0
    markers: int = 0
    aborted: int = 0
    aged_out: int = 0
    undecodable: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    problem: str = ""

    def __post_init__(self) -> None:
        self.position = self.start

    def note(self, seen: Seen, next_offset: int) -> None:
        """Add the counts of a chunk."""
        self.records += seen.records
        self.markers += seen.markers
        self.aborted += seen.aborted
        self.position = max(self.position, next_offset)


class Asked(NamedTuple):
    """The offset range of a partition that the search covers, from `start` to before `end`.

    `open_to` is the high watermark if it is above `end`, because a transaction is open; else -1. `size` is the
    approximate number of bytes, or -1 if unknown.
    """

    key: TopicPartition
    start: int
    end: int
    open_to: int = -1
    deleted_to: int = 0
    size: int = -1


class Reach(NamedTuple):
    """The account of one partition: the numbers of offsets of each kind. `damaged` are offset ranges.

    Partition -1 means that no partition of the topic is known.

    `open_from`   first offset of an open transaction, whose outcome is unknown; -1 if there is none
    `unseen`      requested offsets that were not read; `problem` is the reason
    `deleted_to`  log start offset, if the search begins there because earlier records were deleted
    """

    topic: str
    partition: int
    start: int = 0
    end: int = 0
    records: int = 0
    markers: int = 0
    aborted: int = 0
    aged_out: int = 0
    missing: int = 0
    unseen: int = 0
    undecodable: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    open_from: int = -1
    open_to: int = -1
    problem: str = ""
    deleted_to: int = 0

    @property
    def complete(self) -> bool:
        """Whether every existing record was readable and examined."""
        return not (self.aged_out or self.unseen or self.damaged or self.problem or self.open_from >= 0)

    def remarks(self) -> list[str]:
        """Return sentences about records that could not be examined."""
        found = []
        if self.problem:
            found.append(f"{self.unseen} offsets were not read: {self.problem}" if self.unseen else self.problem)
        elif self.unseen:
            found.append(f"{self.unseen} offsets were not read: the search was ended")
        if self.aged_out:
            found.append(f"{self.aged_out} offsets were deleted while the search ran")
        found += [f"offsets {first} to {end - 1} are damaged" for first, end in self.damaged]
        if self.open_from >= 0:
            found.append(
                f"a transaction has been open since offset {self.open_from}: {self.open_to - self.open_from} "
                "offsets were not read"
            )
        if self.undecodable:
            found.append(f"{self.undecodable} values could not be decoded (another format, or encrypted)")
        if self.deleted_to:
            found.append(f"offsets before {self.deleted_to} were deleted before the search")
        if self.aborted:
            found.append(f"{self.aborted} offsets belong to aborted transactions")
        if self.missing:
            found.append(f"{self.missing} offsets have no record (compacted)")
        return found


def reach_of(asked: Asked, slices: list[Slice]) -> Reach:
    """Sum up the counts of a partition's slices."""
    key, start, end, open_to = asked.key, asked.start, asked.end, asked.open_to
    unseen = sum(part.end - part.position for part in slices)
    damaged = sorted(span for part in slices for span in part.damaged)
    records, markers, aborted, aged_out, undecodable = (
        sum(getattr(part, name) for part in slices)
        for name in ("records", "markers", "aborted", "aged_out", "undecodable")
    )
    lost = sum(last - first for first, last in damaged)
    return Reach(
        key.topic,
        key.partition,
        start,
        end,
        records,
        markers,
        aborted,
        aged_out,
        max(end - start - records - markers - aborted - aged_out - lost - unseen, 0),
        unseen,
        undecodable,
        tuple(damaged),
        end if open_to > end else -1,
        open_to if open_to > end else -1,
        next((part.problem for part in slices if part.problem), ""),
        asked.deleted_to,
    )
