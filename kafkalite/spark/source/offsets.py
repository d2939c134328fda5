"""Check the offset ranges of a query and divide them into pieces for tasks.

    starts and ends (kafkalite.load.selection) ─▶ checked_ranges ─▶ plan.split_range ─▶ split_to_offsets, split_to_count

Thread rule: pure functions.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.model import TopicPartition

    Positions = Mapping[TopicPartition, int]


class DataLoss(RuntimeError):
    """Records that the query must read no longer exist. The message names the range and the remedy."""


class Piece(NamedTuple):
    """A task's work: the offsets of a partition from `start` to before `end`, and their approximate bytes."""

    key: TopicPartition
    start: int
    end: int
    size: int


def checked_ranges(
    starts: Positions, ends: Positions, earliest: Positions, latest: Positions, *, fail_on_data_loss: bool
) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
    """Return the non-empty ranges, and sentences about records in them that no longer exist.

    With `fail_on_data_loss`, such records raise DataLoss instead.
    """
    found = {}
    losses = []
    for key in sorted(starts):
        start, end = starts[key], ends[key]
        if start < end and start < earliest[key]:
            losses.append(f"offsets {start} to {min(earliest[key], end)} of {key} have aged out or were deleted")
            start = earliest[key]
        if start < end and end > latest[key]:
            losses.append(
                f"{key} ends at offset {latest[key]}, below the requested {end}: the topic may have been recreated"
            )
            end = latest[key]
        if start < end:
            found[key] = (start, end)
    if losses and fail_on_data_loss:
        raise DataLoss(f"{losses[0]}; {REMEDY}")
    return found, losses


REMEDY: Final = "start at offsets that exist, or set failOnDataLoss to false to read the rest"


# --- how much at once -------------------------------------------------------------------------------------------------


def split_to_offsets(pieces: Iterable[Piece], limit: int) -> list[Piece]:
    """Divide pieces into parts of at most `limit` offsets, in the same order. The parts of a piece are about equally
    long.
    """
    found = []
    for key, start, end, size in pieces:
        length = end - start
        count = -(-length // limit)
        cuts = [start + length * number // count for number in range(count + 1)]
        sizes = [size * number // count for number in range(count + 1)]
        for number in range(count):
            share = sizes[number + 1] - sizes[number]
            found.append(Piece(key, cuts[number], cuts[number + 1], share))
    return found


def split_to_count(pieces: Iterable[Piece], count: int) -> list[Piece]:
    """Halve the largest piece repeatedly until there are `count` pieces, or until each piece has one offset.

    The pieces cover the same offsets, in the order of partitions and offsets.
    """
    done = []
    heap: list[tuple[int, int, Piece]] = []
    for piece in pieces:
        if piece.end - piece.start > 1:
            heapq.heappush(heap, (-piece.size, piece.start - piece.end, piece))
        else:
            done.append(piece)
    while heap and len(heap) + len(done) < count:
        _, _, (key, start, end, size) = heapq.heappop(heap)
        middle = start + (end - start) // 2
        size_before = size * (middle - start) // (end - start)
        for half in (Piece(key, start, middle, size_before), Piece(key, middle, end, size - size_before)):
            if half.end - half.start > 1:
                heapq.heappush(heap, (-half.size, half.start - half.end, half))
            else:
                done.append(half)
    return sorted(itertools.chain(done, (piece for _, _, piece in heap)))
