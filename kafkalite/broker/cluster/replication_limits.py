"""How fast partitions are copied that are limited (KIP-73), so that moving them leaves clients their share.

    leader     gives followers that are not in sync nothing of such a partition while its own rate is used up
    follower   asks for such a partition, while it is behind, when its rate is not used up

Which partitions those are is said by their topics' `leader.` and `follower.replication.throttled.replicas`: partition
and broker, or `*`. What replicas in sync are given counts too, but does not wait. As Kafka, which looks at the last
seconds alone, a limit forgets what is owed above so many seconds of it.

Source: ReplicationQuotaManager, TopicConfigHandler and SimpleRate of Kafka 4.1.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from kafkalite._native.serve.quota import Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.settings.broker import BrokerConfig

EVERY: Final = "*"


def is_limited(names: Sequence[str], partition: int, node_id: int) -> bool:
    """Whether a topic's list of replicas, each PARTITION:BROKER, names a broker's."""
    return bool(names) and (EVERY in names or f"{partition}:{node_id}" in names)


class ReplicationLimits:
    """Bytes a second that this broker's limited partitions may take; any thread."""

    def __init__(self, config: BrokerConfig) -> None:
        self.leading = Meter(inf, inf, inf)
        """Of what followers are given."""
        self.following = Meter(inf, inf, inf)
        """Of what leaders give."""
        self.use_config(config)

    def use_config(self, config: BrokerConfig) -> None:
        """These settings count from now on."""
        window_s = config.replication_quota_window_size_seconds
        for meter, rate in (
            (self.leading, config.leader_replication_throttled_rate),
            (self.following, config.follower_replication_throttled_rate),
        ):
            limit = inf if rate is None else float(max(rate, 1))
            if limit != meter.limit:
                meter.bound_by(limit, limit * window_s, limit * window_s * config.replication_quota_window_num)
