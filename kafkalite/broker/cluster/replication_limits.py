"""Throttle the replication of selected partitions (KIP-73), so that moving them leaves bandwidth for clients.

    leader     while the leader's rate is used up, it sends no records of throttled partitions to followers that are
               out of sync
    follower   while the follower's rate is used up, it does not fetch throttled partitions that lag

Bytes for in-sync replicas are charged, too, but never delayed.

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
    """Return whether this broker's replica is in a topic's list of throttled replicas: PARTITION:BROKER, or `*`.

    The topic settings leader.replication.throttled.replicas and follower.replication.throttled.replicas have the lists.
    """
    return bool(names) and (EVERY in names or f"{partition}:{node_id}" in names)


class ReplicationLimits:
    """The rates in bytes per second for this broker's throttled partitions. Any thread.

    Kafka measures a rate only over the last quota windows. So the debt of a rate is limited to these windows.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.leading = Meter(inf, inf, inf)
        """Bytes sent to followers."""
        self.following = Meter(inf, inf, inf)
        """Bytes fetched from leaders."""
        self.use_config(config)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply the throttled rates and the quota windows of these settings."""
        window_s = config.replication_quota_window_size_seconds
        for meter, rate in (
            (self.leading, config.leader_replication_throttled_rate),
            (self.following, config.follower_replication_throttled_rate),
        ):
            limit = inf if rate is None else float(max(rate, 1))
            if limit != meter.limit:
                meter.bound_by(limit, limit * window_s, limit * window_s * config.replication_quota_window_num)
