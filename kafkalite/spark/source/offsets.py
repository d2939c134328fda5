"""Which offsets a query reads, and in how many pieces: pure functions.

    OffsetBound (earliest, offsets, times) ─▶ resolve ─▶ Positions ─▶ checked_ranges ─▶ split_range ─▶ split_to_count
    backlog, limit ─▶ fair_shares ─▶ how much each partition gives to a micro-batch

Thread rule: pure functions; `resolve` asks through the function that it is given.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.model import OFFSET_LATEST, TopicPartition
from kafkalite.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalite.client import OffsetRange
    from kafkalite.spark.options import OffsetBound

    Positions = Mapping[TopicPartition, int]


class DataLoss(RuntimeError):
    """Records that the query was to read are gone; the message names the range and the remedy."""


class Piece(NamedTuple):
    """What one task reads: offsets of a partition from `start` up to, not including, `end`, and about its bytes."""

    key: TopicPartition
    start: int
    end: int
    size: int


def resolve(
    bound: OffsetBound,
    partitions: Iterable[TopicPartition],
    look_up: Callable[[Positions], Positions],
    *,
    missing: str,
) -> dict[TopicPartition, int]:
    """The offset that a bound means in each partition.

    `look_up` answers with an offset for a time in ms or a marker (OFFSET_EARLIEST, OFFSET_LATEST), -1 for none;
    `missing` says what a time means that is later than all records: "error" or "latest". OptionError names the option.
    """
    keys = sorted(partitions)
    if bound.everywhere is not None:
        return dict(look_up(dict.fromkeys(keys, bound.everywhere)))
    if bound.offsets is not None:
        require_same(bound.option, keys, bound.offsets)
        markers = {key: offset for key, offset in bound.offsets.items() if offset < 0}
        return {**bound.offsets, **(look_up(markers) if markers else {})}
    assert bound.timestamps is not None, "a bound is one of three"
    if isinstance(bound.timestamps, int):
        stamps = dict.fromkeys(keys, bound.timestamps)
    else:
        require_same(bound.option, keys, bound.timestamps)
        stamps = dict(bound.timestamps)
    found = dict(look_up(stamps))
    late = [key for key in keys if found[key] < 0]
    if late and missing == "error":
        raise OptionError(
            f"option {bound.option}: no record of {late[0]} is as young as {stamps[late[0]]} ms; "
            "set startingOffsetsByTimestampStrategy to latest where that may be"
        )
    return {**found, **(look_up(dict.fromkeys(late, OFFSET_LATEST)) if late else {})}


def require_same(name: str, wanted: Iterable[TopicPartition], given: Iterable[TopicPartition]) -> None:
    """OptionError unless an option names the partitions that are read, no more and no fewer."""
    expected, named = set(wanted), set(given)
    if expected - named:
        raise OptionError(
            f"option {name} says nothing about {min(expected - named)}; it has to name every partition that is read "
            "(-2 is the earliest offset, -1 the latest)"
        )
    if named - expected:
        raise OptionError(
            f"option {name} names {min(named - expected)}, which is not among the partitions that are read"
        )


def beyond_the_end(starting: OffsetBound, starts: Positions, ends: Positions) -> list[str]:
    """A sentence for each partition that begins after its end, in order: none of its records could be read."""
    return [
        f"option {starting.option}: {key} begins at offset {starts[key]}, after its end {ends[key]}"
        for key in sorted(ends)
        if starts[key] > ends[key]
    ]


def checked_ranges(
    starts: Positions, ends: Positions, earliest: Positions, latest: Positions, *, fail_on_data_loss: bool
) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
    """The ranges that are not empty, and what is gone of them: DataLoss instead, where that is to fail."""
    found = {}
    losses = []
    for key in sorted(starts):
        start, end = starts[key], ends[key]
        if start < end and start < earliest[key]:
            losses.append(f"offsets {start} to {min(earliest[key], end)} of {key} have aged out or were deleted")
            start = earliest[key]
        if start < end and end > latest[key]:
            losses.append(
                f"{key} ends at offset {latest[key]} and has nothing up to {end}: the topic may have been recreated"
            )
            end = latest[key]
        if start < end:
            found[key] = (start, end)
    if losses and fail_on_data_loss:
        raise DataLoss(f"{losses[0]}; {REMEDY}")
    return found, losses


REMEDY: Final = "begin at offsets that are there, or set failOnDataLoss to false to read what is left"


# --- how much at once -------------------------------------------------------------------------------------------------


def fair_shares(backlog: Positions, limit: int, turn: int = 0) -> dict[TopicPartition, int]:
    """What each partition gives of `limit`, in the same unit as its backlog: `limit` in all, or everything there is.

    Every partition with a backlog gives something, the rest goes by backlog. With a limit below their number they take
    turns: `turn` is a number that rises by `limit` from one time to the next (the sum of all positions does).
    """
    waiting = sorted(key for key, size in backlog.items() if size > 0)
    total = sum(backlog[key] for key in waiting)
    if total <= limit:
        return {key: backlog[key] for key in waiting}
    if limit < len(waiting):
        first = turn % len(waiting)
        return dict.fromkeys(sorted((waiting[first:] + waiting[:first])[:limit]), 1)
    rest, room = limit - len(waiting), total - len(waiting)
    shares = {}
    passed = given = 0
    for key in waiting:  # the sum up to each partition is rounded, so that all of them together are exact
        passed += backlog[key] - 1
        upto = rest * passed // room
        shares[key] = 1 + upto - given
        given = upto
    return shares


def end_at_size(pieces: Sequence[OffsetRange], size: int) -> int:
    """Up to which offset a range has about `size` bytes: at least one offset, at most all of them."""
    assert pieces, "a range that is not empty has a piece"
    left = size
    for piece in pieces:
        if left < piece.size:
            cut = piece.start + (piece.end - piece.start) * left // piece.size
            return max(cut, pieces[0].start + 1)
        left -= piece.size
    return pieces[-1].end


def split_to_offsets(pieces: Iterable[Piece], limit: int) -> list[Piece]:
    """Pieces of at most `limit` offsets each, about equally long within a given one, in the same order."""
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
    """At least `count` pieces where there are as many offsets, made by halving the largest one again and again.

    They cover what the given ones cover, in the order of partitions and offsets.
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
