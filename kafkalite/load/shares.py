"""How much of each partition a batch reads, by records or bytes. Pure functions; any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.client import OffsetRange
    from kafkalite.model import TopicPartition

    Positions = Mapping[TopicPartition, int]

ESTIMATE_PIECE: Final = 1 << 20
"""Bytes between the places at which an estimate of sizes may interpolate, at least."""


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
