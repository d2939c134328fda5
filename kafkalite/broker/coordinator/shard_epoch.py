"""Where something that a coordinator knows is kept, and for how long it may be written there."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class ShardEpoch(NamedTuple):
    """A partition, and the leader epoch in which what is known of it was read or begun."""

    partition: int
    epoch: int
    """NO_EPOCH: it is not served, or by a broker that stands alone."""
