"""Identify where a coordinator keeps a group or transactional id: a partition of its topic, in one leader epoch."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class ShardEpoch(NamedTuple):
    """A partition, and the leader epoch in which its state was read or begun."""

    partition: int
    epoch: int
    """The leader epoch; NO_EPOCH if the partition is not served, or the broker is standalone."""
