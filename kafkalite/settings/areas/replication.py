"""Define the broker's settings for replication between the brokers of a cluster."""

from __future__ import annotations

from typing import Final

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import INT, LONG, MIB, STRING, setting

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICATION_KEYS: Final = (
    "num.replica.fetchers",
    "replica.fetch.backoff.ms",
    "replica.fetch.max.bytes",
    "replica.fetch.min.bytes",
    "replica.fetch.response.max.bytes",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.selector.class",
    "replica.socket.timeout.ms",
    "replication.quota.window.num",
    "replication.quota.window.size.seconds",
)
"""Settings without effect on a standalone broker."""


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ReplicationRows:
    """Settings of replication."""

    __slots__ = ()

    follower_replication_throttled_rate: int | None = setting(
        LONG,
        None,
        "Maximum rate at which this broker copies out-of-sync replicas that the topic setting "
        "follower.replication.throttled.replicas lists. kafka-reassign-partitions --throttle sets and removes it.",
        unit="bytes/s",
        low=0,
        dynamic=True,
    )
    leader_replication_throttled_rate: int | None = setting(
        LONG,
        None,
        "Maximum rate at which this broker sends data to out-of-sync followers of partitions that the topic "
        "setting leader.replication.throttled.replicas lists.",
        unit="bytes/s",
        low=0,
        dynamic=True,
    )
    num_replica_fetchers: int = setting(INT, 1, "Number of fetcher threads per leader.", low=1, dynamic=True)
    replica_fetch_backoff_ms: int = setting(
        INT, 1000, "Time before a partition that could not be copied is retried.", unit="ms", low=0
    )
    replica_fetch_max_bytes: int = setting(
        INT,
        MIB,
        ("Maximum number of bytes of one partition in a replica fetch response; one larger batch is still returned."),
        unit="bytes",
        low=0,
    )
    replica_fetch_min_bytes: int = setting(
        INT, 1, "Minimum number of bytes in a replica fetch response; the leader waits for them.", unit="bytes"
    )
    replica_fetch_response_max_bytes: int = setting(
        INT, 10 * MIB, "Maximum number of bytes of all partitions in a replica fetch response.", unit="bytes", low=0
    )
    replica_fetch_wait_max_ms: int = setting(
        INT, 500, "Maximum time that a leader waits for new data before it answers a replica fetch.", unit="ms", low=0
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        LONG, 5000, "Interval between writes of the high watermarks to disk.", unit="ms", low=1
    )
    replica_selector_class: str | None = setting(
        STRING,
        None,
        f"`{RACK_AWARE_SELECTOR}`: a consumer that sends its rack (`client.rack`) is directed to an"
        " in-sync replica with the same `broker.rack`, if the leader is in another rack (KIP-392). Unset:"
        " consumers read from leaders.",
        choices=(RACK_AWARE_SELECTOR,),
    )
    replica_socket_timeout_ms: int = setting(INT, 30_000, "Time limit for a response of the leader.", unit="ms", low=1)
    replication_quota_window_num: int = setting(INT, 11, "Number of samples that replication quotas keep.", low=1)
    replication_quota_window_size_seconds: int = setting(
        INT, 1, "Length of a replication quota sample.", unit="s", low=1
    )


def check_replication(rows: ReplicationRows) -> None:
    """Raise ConfigError if replication settings contradict each other."""
    if rows.replica_fetch_wait_max_ms > rows.replica_socket_timeout_ms:
        raise ConfigError(
            "replica.fetch.wait.max.ms", "is above replica.socket.timeout.ms, so every fetch that waits would time out"
        )
