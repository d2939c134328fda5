"""Compute the offset at which a follower's log diverges from its leader's and must be truncated.

The follower sends the epoch F of its last batch. The leader finds the largest epoch L <= F in its own log, and returns
L and the offset at which L ends in the leader's log (KIP-595).

Source: AbstractFetcherThread.getOffsetTruncationState of Kafka 4.1. Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Key = tuple[bytes, int]
"""A partition: its topic's id and its number."""
UNDEFINED: Final = -1
"""An unknown epoch or offset."""


class Diverged(NamedTuple):
    """The largest epoch in the leader's log that is not above the follower's last epoch, and its end offset there."""

    key: Key
    leader_epoch: int
    epoch: int
    end_offset: int


def truncation_offset(diverged: Diverged, own: tuple[int, int], log_end: int) -> int | None:
    """Return the offset at which to truncate a follower's log; None if no truncation is needed.

    `diverged` is the leader's answer. `own` is the follower's own (epoch, end offset) for the epoch in `diverged`, as
    LeaderEpochs.end_offset_for returns it.
    """
    if diverged.end_offset < 0:
        return None
    epoch, end = own
    if epoch == UNDEFINED:
        return min(diverged.end_offset, log_end)
    if epoch == diverged.epoch:
        return min(end, diverged.end_offset, log_end)
    return min(end, log_end)  # the leader has unknown epochs: the next fetch has an older one
