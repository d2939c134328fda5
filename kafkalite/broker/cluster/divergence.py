"""Where a follower's log parts from its leader's, and so where it must be cut.

The leader's answer to the epoch of the newest batch names the largest epoch that both may have, and where it ends at
the leader (KIP-595). `kafkalite.broker.log.log_truncation` does the cutting.

Source: AbstractFetcherThread.getOffsetTruncationState of Kafka 4.1. Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Key = tuple[bytes, int]
"""A partition: its topic's id, its number."""
UNDEFINED: Final = -1
"""Stands for an unknown epoch or offset."""


class Diverged(NamedTuple):
    """The largest epoch that the leader has and this log may have, and where it ends at the leader."""

    key: Key
    leader_epoch: int
    epoch: int
    end_offset: int


def truncation_offset(diverged: Diverged, own: tuple[int, int], log_end: int) -> int | None:
    """Return the offset at which to cut a log whose leader answered with `diverged`, None for no cut.

    `own` is the log's own (epoch, end offset) for that epoch: LeaderEpochs.end_offset_for.
    """
    if diverged.end_offset < 0:
        return None
    epoch, end = own
    if epoch == UNDEFINED:
        return min(diverged.end_offset, log_end)
    if epoch == diverged.epoch:
        return min(end, diverged.end_offset, log_end)
    return min(end, log_end)  # the leader knows epochs that are not here: it is asked again with an older one
