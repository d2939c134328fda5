"""Define the broker's settings for consumer groups of both protocols, and for `__consumer_offsets`."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, INT32_MAX, LIST, LONG, MIB, MINUTE_MS, SHORT, STRING, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class GroupRows:
    """Settings of consumer groups and their offsets."""

    __slots__ = ()

    group_initial_rebalance_delay_ms: int = setting(
        INT, 0, "Delay before the first rebalance of an empty group, so that more members can join.", unit="ms", low=0
    )
    group_min_session_timeout_ms: int = setting(INT, 6000, "Minimum session timeout of a member.", unit="ms", low=0)
    group_max_session_timeout_ms: int = setting(
        INT, 30 * MINUTE_MS, "Maximum session timeout of a member.", unit="ms", low=0
    )
    group_max_size: int = setting(INT, INT32_MAX, "Maximum number of members in a group.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(
        INT, 5000, "Heartbeat interval of members of the consumer group protocol (KIP-848).", unit="ms", low=1
    )
    group_consumer_session_timeout_ms: int = setting(
        INT, 45_000, "Session timeout of members of the consumer group protocol (KIP-848).", unit="ms", low=1
    )
    group_consumer_min_session_timeout_ms: int = setting(
        INT, 45_000, "Minimum of a group's consumer.session.timeout.ms.", unit="ms", low=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        INT, 60_000, "Maximum of a group's consumer.session.timeout.ms.", unit="ms", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        INT, 5000, "Minimum of a group's consumer.heartbeat.interval.ms.", unit="ms", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, "Maximum of a group's consumer.heartbeat.interval.ms.", unit="ms", low=1
    )
    group_consumer_max_size: int = setting(
        INT, INT32_MAX, "Maximum number of members in a group of the consumer group protocol (KIP-848).", low=1
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        LIST,
        ("uniform", "range"),
        "Assignors that members of the consumer group protocol (KIP-848) can choose; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        STRING,
        "bidirectional",
        "Online migration of groups with members between the group protocols (KIP-848). `upgrade`: a classic "
        "group is converted when a member of the consumer group protocol joins. `downgrade`: a group is "
        "converted back when only classic members are left. `bidirectional`: both. `disabled`: neither. The "
        "broker assigns partitions to all members of a mixed group.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
    )
    offset_metadata_max_bytes: int = setting(
        INT, 4096, "Maximum size of the metadata of an offset commit.", unit="bytes", low=0
    )
    offsets_retention_minutes: int = setting(
        INT, 7 * 24 * 60, "Time that committed offsets are kept after a group became empty.", unit="minutes", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG, 10 * MINUTE_MS, "Interval between checks for expired offsets.", unit="ms", low=1
    )
    max_groups: int = setting(
        INT,
        100_000,
        "Maximum number of consumer groups, including empty ones; a further one is rejected with "
        "GROUP_MAX_SIZE_REACHED. The last tenth is reserved for clients (principal and address) with at most 100.",
        low=1,
    )
    group_max_pending_members: int = setting(
        INT,
        10_000,
        "Maximum number of member ids that one group has assigned to members that have not joined yet. The last "
        "tenth is reserved for clients (principal and address) with at most 100.",
        low=1,
    )
    offsets_topic_num_partitions: int = setting(INT, 50, "Number of partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __consumer_offsets at its creation.", unit="bytes", low=14
    )
    offsets_commit_timeout_ms: int = setting(
        INT,
        5000,
        "For a cluster: time limit for replicating an offset commit to all in-sync replicas. After it, the "
        "client gets a retriable error; the commit may still take effect.",
        unit="ms",
        low=1,
    )
    offsets_topic_replication_factor: int = setting(
        SHORT,
        3,
        (
            "Replication factor of __consumer_offsets at its creation in a cluster; a standalone broker keeps "
            "one replica."
        ),
        low=1,
    )
