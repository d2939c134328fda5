"""Rows of the broker's settings table: consumer groups of both protocols, and `__consumer_offsets`."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, INT32_MAX, LIST, LONG, MIB, MINUTE_MS, SHORT, STRING, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class GroupRows:
    """Consumer groups and their offsets."""

    __slots__ = ()

    group_initial_rebalance_delay_ms: int = setting(
        INT, 0, "How long an empty group waits for more members.", unit="ms", low=0
    )
    group_min_session_timeout_ms: int = setting(
        INT, 6000, "The shortest session timeout a member may ask for.", unit="ms", low=0
    )
    group_max_session_timeout_ms: int = setting(
        INT, 30 * MINUTE_MS, "The longest session timeout a member may ask for.", unit="ms", low=0
    )
    group_max_size: int = setting(INT, INT32_MAX, "Members of one group.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(
        INT, 5000, "How often members of the newer group protocol (KIP-848) report.", unit="ms", low=1
    )
    group_consumer_session_timeout_ms: int = setting(
        INT, 45_000, "After which silence a member of the newer group protocol is out.", unit="ms", low=1
    )
    group_consumer_min_session_timeout_ms: int = setting(
        INT, 45_000, "Lower bound for a group's consumer.session.timeout.ms.", unit="ms", low=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        INT, 60_000, "Upper bound for a group's consumer.session.timeout.ms.", unit="ms", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        INT, 5000, "Lower bound for a group's consumer.heartbeat.interval.ms.", unit="ms", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, "Upper bound for a group's consumer.heartbeat.interval.ms.", unit="ms", low=1
    )
    group_consumer_max_size: int = setting(INT, INT32_MAX, "Members of one group of the newer protocol.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        LIST,
        ("uniform", "range"),
        "Assignors of the newer group protocol that members may ask for; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        STRING,
        "bidirectional",
        "Whether a group changes its protocol while members are in it (KIP-848). `upgrade`: a classic group does when a"
        " member of the newer protocol joins; `downgrade`: a group of the newer one does when only classic members are"
        " left; `bidirectional`: both; `disabled`: neither. With both kinds of members the broker assigns to all.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
    )
    offset_metadata_max_bytes: int = setting(INT, 4096, "The longest text with an offset commit.", unit="bytes", low=0)
    offsets_retention_minutes: int = setting(
        INT, 7 * 24 * 60, "How long an empty group's offsets are kept.", unit="minutes", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG, 10 * MINUTE_MS, "How often expired offsets are looked for.", unit="ms", low=1
    )
    max_groups: int = setting(
        INT,
        100_000,
        "Consumer groups kept, empty ones included; beyond it a new one is refused with GROUP_MAX_SIZE_REACHED. The"
        " last tenth is for clients (principal and address) with at most 100.",
        low=1,
    )
    group_max_pending_members: int = setting(
        INT,
        10_000,
        "Member ids of one group that may be promised and not used yet. The last tenth is for clients (principal and"
        " address) with at most 100.",
        low=1,
    )
    offsets_topic_num_partitions: int = setting(INT, 50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = setting(
        INT, 100 * MIB, "segment.bytes of __consumer_offsets when it is made.", unit="bytes", low=14
    )
    offsets_commit_timeout_ms: int = setting(
        INT,
        5000,
        "In a cluster: return a retriable error for an offset commit that not all in-sync replicas have"
        " after this time. The commit may still take effect.",
        unit="ms",
        low=1,
    )
    offsets_topic_replication_factor: int = setting(
        SHORT, 3, "Replicas of __consumer_offsets when a cluster makes it; a broker alone keeps one.", low=1
    )
