"""Divide the size limit of a batch among its partitions, in records or bytes.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.client import OffsetRange
    from kafkalite.model import TopicPartition

    Positions = Mapping[TopicPartition, int]

ESTIMATE_PIECE: Final = 1 << 20
"""Minimum bytes between the points from which sizes are interpolated."""


def fair_shares(backlog: Positions, limit: int, turn: int = 0) -> dict[TopicPartition, int]:
    """Divide `limit` among the partitions in proportion to their backlogs. Return each partition's share.

    Each partition with a backlog gets at least 1. If `limit` is below the number of these partitions, they take turns,
    and `turn` selects the first one. Pass the sum of all positions as `turn`: it grows by `limit` from call to call.
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
    for key in waiting:  # round the cumulative sums, so that the shares add up exactly
        passed += backlog[key] - 1
        upto = rest * passed // room
        shares[key] = 1 + upto - given
        given = upto
    return shares


def end_at_size(pieces: Sequence[OffsetRange], size: int) -> int:
    """Return the offset at which about the first `size` bytes of a range end. At least one offset is before it.

    `pieces` are consecutive parts of the range with their approximate sizes.
    """
    assert pieces, "a range that is not empty has a piece"
    left = size
    for piece in pieces:
        if left < piece.size:
            cut = piece.start + (piece.end - piece.start) * left // piece.size
            return max(cut, pieces[0].start + 1)
        left -= piece.size
    return pieces[-1].end
