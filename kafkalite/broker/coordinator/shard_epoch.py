"""Identify the partition and the leader epoch in which a group or transactional id is stored."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class ShardEpoch(NamedTuple):
    """A partition of a coordinator's topic, and the leader epoch in which its state was read or created."""

    partition: int
    epoch: int
    """The leader epoch; NO_EPOCH if the partition is not served, or the broker is standalone."""
