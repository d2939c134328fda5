"""Split a range of offsets into pieces of about the same number of bytes, for parallel reading.

    probes        ▼      ▼      ▼  ▼▼▼  ▼      ▼         evenly over the range, then where neighbours differ
    bytes/offset  ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂████▄▄▄▄▄▄▄▄▄▄         between two probes, the mean of both
    pieces        ├────────────────┼───┼───────┤         equal areas, moved to the start of a batch

A probe is a fetch of one byte, which returns the whole batch that contains an offset (KIP-74). The batch header gives
the bytes per offset there. Pieces start at batch boundaries, so no batch is decoded twice.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.wire.batch import BatchError
from kafkalite._native.wire.columns import following_offset
from kafkalite.client.cluster import FETCH_VERSION_MAX, raise_from_leader
from kafkalite.errors import ErrorCode, error_for
from kafkalite.wire.protocol.api import FETCH
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.record.batches import next_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite.client.cluster import Cluster
    from kafkalite.model import TopicPartition

PROBES_MIN: Final = 16
PROBES_MAX: Final = 512
PROBES_PER_PIECE: Final = 2
TOLERANCE: Final = 4
"""The size between two probes may be uncertain by this fraction (1/4) of a piece."""
PIECES_MAX: Final = 10_000
"""Maximum pieces of one partition; the target size grows if there would be more."""


class OffsetRange(NamedTuple):
    """Offsets from `start` to `end` (exclusive) and their approximate bytes on the wire."""

    start: int
    end: int
    size: int


class Probe(NamedTuple):
    """The batch that contains an offset, or else the next batch after the offset."""

    base: int
    following: int
    size: int

    @property
    def density(self) -> float:
        return self.size / max(self.following - self.base, 1)


class EvenStretch(NamedTuple):
    """A range of offsets with a uniform density, in bytes per offset."""

    start: int
    end: int
    density: float


def split_by_size(client: Cluster, key: TopicPartition, start: int, end: int, size_target: int) -> list[OffsetRange]:
    """Split a range into pieces of about `size_target` bytes.

    Raises ValueError for a target below 1 and an invalid range, and OffsetOutOfRange as in reading.
    """
    if size_target < 1:
        raise ValueError(f"size_target must be at least 1 byte, not {size_target}")
    if not 0 <= start <= end:
        raise ValueError(f"{key}: invalid offset range {start} to {end}; expected 0 <= start <= end")
    if start == end:
        return []
    profile = Profile(client, key, start, end)
    profile.look(PROBES_MIN, size_target / TOLERANCE)
    stretches = profile.stretches()
    count = piece_count(stretches, size_target)
    if count * PROBES_PER_PIECE > PROBES_MIN:
        profile.look(min(count * PROBES_PER_PIECE, PROBES_MAX), size_target / TOLERANCE)
        stretches = profile.stretches()
        count = piece_count(stretches, size_target)
    cuts = [start]
    for wanted in equal_cuts(stretches, count):
        cut = batch_start(client, key, wanted)
        if cut is not None and cuts[-1] < cut < end:
            cuts.append(cut)
    cuts.append(end)
    return [
        OffsetRange(first, last, round(size_between(stretches, first, last)))
        for first, last in itertools.pairwise(cuts)
    ]


class Profile:
    """The bytes per offset over a range, estimated from probes."""

    def __init__(self, client: Cluster, key: TopicPartition, start: int, end: int) -> None:
        self._client = client
        self._key = key
        self._start = start
        self._end = end
        self._probes: dict[int, Probe] = {}
        """By base offset."""
        self._edge = end
        """No batch starts at or after this offset."""
        self._looks = 0

    def look(self, count: int, tolerance: float) -> None:
        """Probe up to `count` offsets, evenly over the range, and its last offset.

        Then also probe between neighbours where the size is uncertain by more than `tolerance` bytes.
        """
        length = self._end - self._start
        for i in range(min(count, length)):
            self._look_at(self._start + length * i // min(count, length))
        self._look_at(self._end - 1)
        while self._looks < PROBES_MAX:
            doubt, place = max(self._doubts(), default=(0.0, 0))
            if doubt <= tolerance:
                return
            known = len(self._probes)
            self._look_at(place)
            if len(self._probes) == known:
                return  # after the last batch

    def _look_at(self, offset: int) -> None:
        if offset >= self._edge or any(seen.base <= offset < seen.following for seen in self._probes.values()):
            return
        self._looks += 1
        seen = probe(self._client, self._key, offset)
        if seen is None:
            self._edge = min(self._edge, offset)
            return
        self._probes[seen.base] = seen
        if seen.base > offset:
            self._probes[offset] = Probe(offset, seen.base, 0)

    def _ordered(self) -> list[Probe]:
        return [self._probes[base] for base in sorted(self._probes)]

    def _doubts(self) -> Iterator[tuple[float, int]]:
        """Yield (uncertain bytes, offset in the middle) for each pair of neighbouring probes."""
        for one, two in itertools.pairwise(self._ordered()):
            between = two.base - one.following
            if between > 0:
                yield abs(one.density - two.density) * between / 2, one.following + between // 2

    def stretches(self) -> list[EvenStretch]:
        """Return the whole range as adjacent ranges of uniform density."""
        found: list[EvenStretch] = []
        reached, density = self._start, 0.0
        for seen in self._ordered():
            density = (density + seen.density) / 2 if found else seen.density
            found += [EvenStretch(reached, seen.base, density), EvenStretch(seen.base, seen.following, seen.density)]
            reached, density = seen.following, seen.density
        found += [EvenStretch(reached, self._edge, density), EvenStretch(self._edge, self._end, 0.0)]
        return [
            EvenStretch(max(first, self._start), min(last, self._end), density)
            for first, last, density in found
            if max(first, self._start) < min(last, self._end)
        ]


def piece_count(stretches: Sequence[EvenStretch], size_target: int) -> int:
    """Return the number of pieces of about `size_target` bytes into which to cut these stretches."""
    total = sum((stretch.end - stretch.start) * stretch.density for stretch in stretches)
    return max(1, min(round(total / size_target), PIECES_MAX))


def equal_cuts(stretches: Sequence[EvenStretch], count: int) -> list[int]:
    """Return the offsets that cut the stretches into `count` pieces of equal size."""
    total = sum((stretch.end - stretch.start) * stretch.density for stretch in stretches)
    cuts: list[int] = []
    passed = 0.0
    for stretch in stretches:
        size = (stretch.end - stretch.start) * stretch.density
        while len(cuts) < count - 1 and size and passed + size >= total * (len(cuts) + 1) / count:
            inside = (total * (len(cuts) + 1) / count - passed) / stretch.density
            cuts.append(stretch.start + int(inside))
        passed += size
    return cuts


def size_between(stretches: Sequence[EvenStretch], start: int, end: int) -> float:
    """Return the estimated bytes between two offsets."""
    return sum(max(0, min(stretch.end, end) - max(stretch.start, start)) * stretch.density for stretch in stretches)


def batch_start(client: Cluster, key: TopicPartition, offset: int) -> int | None:
    """Return the first offset of the batch at or after this offset; None after the last batch."""
    seen = probe(client, key, offset)
    return None if seen is None else seen.base


def one_batch(key: TopicPartition, offset: int) -> FetchRequest:
    """Build a fetch request for the batch at or after an offset.

    The request asks for one byte, so the response contains one batch.
    """
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=key.topic,
                partitions=[FetchPartition(partition=key.partition, fetch_offset=offset, partition_max_bytes=1)],
            )
        ],
    )


def probe(client: Cluster, key: TopicPartition, offset: int) -> Probe | None:
    """Fetch the batch at or after an offset; None after the last batch."""

    def ask() -> Probe | None:
        request = one_batch(key, offset)
        answer = client.leader(key).request(FETCH, request, version_max=FETCH_VERSION_MAX)
        if answer.error_code:
            raise error_for(answer.error_code)
        for topic in answer.responses:
            for row in topic.partitions:
                raise_from_leader(row.error_code, key)
                return first_batch(row.records, offset) if row.records else None
        return None

    return client.with_retries(ask)


def first_batch(records: memoryview, offset: int) -> Probe:
    """Return offsets and size of the first batch. The offsets of messages in format 0 or 1 start at `offset`."""
    try:
        info = next_whole(records, 0)
    except BatchError:
        following = following_offset(records, offset)
        if following == offset:
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"no readable batch at offset {offset}") from None
        return Probe(offset, following, len(records))
    if info is None:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {offset} is truncated")
    return Probe(info.base_offset, info.last_offset + 1, info.size)
