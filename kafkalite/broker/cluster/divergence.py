"""Compute the offset at which a follower's log diverges from its leader's and must be truncated.

The follower sends the epoch of its last batch. The leader returns the largest epoch up to that one in its own log, and
the epoch's end offset (KIP-595). `kafkalite.broker.log.log_truncation` truncates the log.

Source: AbstractFetcherThread.getOffsetTruncationState of Kafka 4.1. Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Key = tuple[bytes, int]
"""A partition: its topic's id and its number."""
UNDEFINED: Final = -1
"""An unknown epoch or offset."""


class Diverged(NamedTuple):
    """The leader's largest epoch up to the follower's last epoch, and the end offset of this epoch in the leader's
    log."""

    key: Key
    leader_epoch: int
    epoch: int
    end_offset: int


def truncation_offset(diverged: Diverged, own: tuple[int, int], log_end: int) -> int | None:
    """Return the offset at which to truncate a log whose leader answered with `diverged`; None if no truncation is
    needed.

    `own` is the log's own (epoch, end offset) for the epoch in `diverged`: LeaderEpochs.end_offset_for.
    """
    if diverged.end_offset < 0:
        return None
    epoch, end = own
    if epoch == UNDEFINED:
        return min(diverged.end_offset, log_end)
    if epoch == diverged.epoch:
        return min(end, diverged.end_offset, log_end)
    return min(end, log_end)  # the leader has unknown epochs: the next fetch has an older one
