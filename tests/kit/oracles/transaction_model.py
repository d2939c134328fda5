"""A model of a log with transactions, in plain Python: one list, read from its start each time.

It also models a read_committed client: the rule by which clients drop aborted records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.oracles.record_oracle import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.broker.log.partition_log import PartitionLog

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT_KEY = struct.pack(">hh", 0, 0)


class Entry(NamedTuple):
    """A batch of `count` records, or a marker."""

    offset: int
    count: int
    producer_id: int
    transactional: bool = False
    marker: bool = False
    commit: bool = False

    @property
    def next_offset(self) -> int:
        return self.offset + self.count


class Aborted(NamedTuple):
    first_offset: int
    producer_id: int
    marker_offset: int


@dataclass
class TransactionModel:
    """The entries of a log, in order."""

    entries: list[Entry] = field(default_factory=list)
    log_start: int = 0

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    @property
    def open(self) -> dict[int, int]:
        """Producer id → first offset of its open transaction."""
        found: dict[int, int] = {}
        for entry in self.entries:
            if entry.marker:
                found.pop(entry.producer_id, None)
            elif entry.transactional:
                found.setdefault(entry.producer_id, entry.offset)
        return found

    @property
    def last_stable_offset(self) -> int:
        return max(min(self.open.values(), default=self.end), self.log_start)

    @property
    def aborted(self) -> list[Aborted]:
        running: dict[int, int] = {}
        found = []
        for entry in self.entries:
            if entry.marker:
                first = running.pop(entry.producer_id, None)
                if first is not None and not entry.commit:
                    found.append(Aborted(first, entry.producer_id, entry.offset))
            elif entry.transactional:
                running.setdefault(entry.producer_id, entry.offset)
        return found

    def aborted_between(self, start: int, upper: int) -> list[tuple[int, int]]:
        """Return the aborted transactions for a fetch of [start, upper)."""
        return sorted(
            (first, producer_id) for first, producer_id, marker in self.aborted if marker >= start and first < upper
        )

    def committed(self, start: int) -> list[int]:
        """Offsets of the records that a read_committed client sees from `start` on."""
        outcome: dict[tuple[int, int], bool] = {}
        pending: dict[int, list[int]] = {}
        for entry in self.entries:
            if entry.marker:
                for offset in pending.pop(entry.producer_id, []):
                    outcome[entry.producer_id, offset] = entry.commit
            elif entry.transactional:
                pending.setdefault(entry.producer_id, []).append(entry.offset)
        stable = self.last_stable_offset
        return [
            offset
            for entry in self.entries
            if not entry.marker and (not entry.transactional or outcome.get((entry.producer_id, entry.offset)))
            for offset in range(entry.offset, entry.next_offset)
            if start <= offset < stable
        ]


class Fetched(NamedTuple):
    base_offset: int
    next_offset: int
    producer_id: int
    transactional: bool
    control: bool
    abort: bool
    record_count: int


def batches_of(data: bytes) -> Iterator[Fetched]:
    """The headers of fetched batches."""
    position = 0
    while position < len(data):
        base, length, _, _, _, attributes, delta, _, _, producer_id, _, _, count = HEADER.unpack_from(data, position)
        control = bool(attributes & CONTROL)
        # A marker's record: length, attributes, two deltas, key size, key.
        abort = control and count > 0 and data[position + 66 : position + 70] == ABORT_KEY
        yield Fetched(base, base + delta + 1, producer_id, bool(attributes & TRANSACTIONAL), control, abort, count)
        position += 12 + length


def read_committed(log: PartitionLog, start: int, size_max: int = 1 << 20) -> list[int]:
    """Offsets of the records a client sees that fetches like any, from `start` up to the last stable offset."""
    producers = log.ensure_producers()
    seen: list[int] = []
    at = start
    while at < log.last_stable_offset:
        log.prepare_read(at, size_max)
        _, error, data = log.core.read_copy(at, size_max, upper_offset=log.last_stable_offset)
        assert error == 0, error
        assert data, f"nothing at {at} below the last stable offset {log.last_stable_offset}"
        found = list(batches_of(data))
        told = producers.aborted.between(at, found[-1].next_offset)
        seen += [offset for offset in client_view(found, told) if offset >= at]
        at = found[-1].next_offset
    return seen


def client_view(found: list[Fetched], told: list[tuple[int, int]]) -> Iterator[int]:
    """Kafka's consumer: a producer named as aborted is skipped from its first offset up to its abort marker."""
    left = sorted(told)
    skipped: set[int] = set()
    for batch in found:
        while left and left[0][0] < batch.next_offset:
            skipped.add(left.pop(0)[1])
        if batch.control:
            if batch.abort:
                skipped.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in skipped):
            yield from range(batch.base_offset, batch.next_offset)
