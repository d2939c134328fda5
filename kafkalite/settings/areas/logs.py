"""Rows of the broker's settings table: topics, when logs are flushed, and defaults of topics' settings.

What a topic may have for itself stands in `kafkalite.settings.topic_settings_table`; compaction in
`kafkalite.settings.areas.cleaner`.
"""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import (
    BOOLEAN,
    GIB,
    HOUR_MS,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    MIB,
    MINUTE_MS,
    NONE,
    STRING,
    setting,
)
from kafkalite.settings.topic_settings_table import CODECS, TIMESTAMP_TYPES


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class LogRows:
    """Topics, durability, and the defaults of topics' settings."""

    __slots__ = ()

    # Topics
    auto_create_topics_enable: bool = setting(
        BOOLEAN, True, "Asking for a missing topic's metadata creates it, where the client allows that."
    )
    delete_topic_enable: bool = setting(BOOLEAN, True, "Whether DeleteTopics is served.")
    num_partitions: int = setting(INT, 1, "Partitions of a topic created without a number.", low=1)
    default_replication_factor: int = setting(INT, 1, "Replicas of a topic created without a number.", low=1)
    replication_factor_accept_any: bool = setting(
        BOOLEAN,
        False,
        "Take a replication factor above 1 with a warning, and keep one copy; otherwise it is Kafka's error.",
    )
    topic_name_max_length: int = setting(
        INT, 249, "The longest topic name; the default is Kafka's own bound.", unit="characters", low=1, high=249
    )

    # Durability
    flush_on_acks_all: bool = setting(
        BOOLEAN,
        True,
        "acks=all is answered once the batch is on the disk; in a cluster, where others are in sync, once it is in the"
        " page cache of all of those. false: never waits for a disk, as Kafka does, which survives the death of the"
        " process but not of the machine.",
    )
    log_flush_interval_messages: int = setting(
        LONG, INT64_MAX, "Flush a partition after this number of messages.", low=1, dynamic=True
    )
    log_flush_interval_ms: int | None = setting(
        LONG,
        None,
        "Flush a partition whose oldest unflushed message is this old; unset: log.flush.scheduler.interval.ms.",
        unit="ms",
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG, INT64_MAX, "How often to look for partitions that are due for a flush.", unit="ms", low=1
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        INT, MINUTE_MS, "How often the flushed offsets are written down; recovery starts there.", unit="ms", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        INT,
        MINUTE_MS,
        "How often Kafka writes log start offsets down; here they are written when one moves.",
        unit="ms",
        low=0,
        effect=NONE,
    )

    # Defaults of topic settings
    log_segment_bytes: int = setting(INT, GIB, "Default of segment.bytes.", unit="bytes", low=14, dynamic=True)
    log_roll_ms: int | None = setting(LONG, None, "Default of segment.ms.", unit="ms", low=1, dynamic=True)
    log_roll_hours: int = setting(INT, 168, "Default of segment.ms where log.roll.ms is unset.", unit="hours", low=1)
    log_roll_jitter_ms: int | None = setting(
        LONG, None, "Default of segment.jitter.ms.", unit="ms", low=0, dynamic=True
    )
    log_roll_jitter_hours: int = setting(
        INT, 0, "Default of segment.jitter.ms where log.roll.jitter.ms is unset.", unit="hours", low=0
    )
    log_retention_ms: int | None = setting(
        LONG, None, "Default of retention.ms; -1 keeps records without a time limit.", unit="ms", low=-1, dynamic=True
    )
    log_retention_minutes: int | None = setting(
        INT, None, "Default of retention.ms where log.retention.ms is unset.", unit="minutes", low=-1
    )
    log_retention_hours: int = setting(
        INT, 168, "Default of retention.ms where the two finer ones are unset.", unit="hours", low=-1
    )
    log_retention_bytes: int = setting(LONG, -1, "Default of retention.bytes.", unit="bytes", low=-1, dynamic=True)
    log_retention_policies: tuple[str, ...] = setting(
        LIST, (), "Policies of one's own, `module:Class`, asked beside age and size: see `RetentionPolicy`."
    )
    log_retention_check_interval_ms: int = setting(
        LONG, 5 * MINUTE_MS, "How often retention looks for segments to delete.", unit="ms", low=1
    )
    clock_jump_hold_ms: int = setting(
        LONG,
        60 * MINUTE_MS,
        "Running time, added up over restarts, for which a wall clock that is ahead by more than a minute (a jump, or"
        " downtime) must stay so before anything expires by it: records, committed offsets, producer ids, transactional"
        " ids, tombstones; 0 follows it at once.",
        unit="ms",
        low=0,
    )
    log_segment_delete_delay_ms: int = setting(
        LONG, MINUTE_MS, "Default of file.delete.delay.ms.", unit="ms", low=0, dynamic=True
    )
    log_index_interval_bytes: int = setting(
        INT, 4096, "Default of index.interval.bytes.", unit="bytes", low=0, dynamic=True
    )
    log_index_size_max_bytes: int = setting(
        INT, 10 * MIB, "Default of segment.index.bytes.", unit="bytes", low=4, dynamic=True
    )
    log_preallocate: bool = setting(BOOLEAN, False, "Default of preallocate.", dynamic=True)
    log_cleanup_policy: tuple[str, ...] = setting(
        LIST, ("delete",), "Default of cleanup.policy.", choices=("compact", "delete"), dynamic=True
    )
    log_message_timestamp_type: str = setting(
        STRING, "CreateTime", "Default of message.timestamp.type.", choices=TIMESTAMP_TYPES, dynamic=True
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG, INT64_MAX, "Default of message.timestamp.before.max.ms.", unit="ms", low=0, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = setting(
        LONG, HOUR_MS, "Default of message.timestamp.after.max.ms.", unit="ms", low=0, dynamic=True
    )
    min_insync_replicas: int = setting(INT, 1, "Default of min.insync.replicas.", low=1, dynamic=True)
    unclean_leader_election_enable: bool = setting(
        BOOLEAN, False, "Default of unclean.leader.election.enable.", effect=NONE, dynamic=True
    )
    compression_type: str = setting(
        STRING, "producer", "Default of the topic setting of the same name.", choices=CODECS, dynamic=True
    )
    compression_gzip_level: int = setting(
        INT, -1, "Default of the topic setting of the same name.", low=-1, high=9, dynamic=True
    )
    compression_lz4_level: int = setting(
        INT, 9, "Default of the topic setting of the same name.", low=1, high=17, dynamic=True
    )
    compression_zstd_level: int = setting(
        INT, 3, "Default of the topic setting of the same name.", low=-131072, high=22, dynamic=True
    )
    log_local_retention_ms: int = setting(
        LONG, -2, "Default of local.retention.ms.", unit="ms", low=-2, effect=NONE, dynamic=True
    )
    log_local_retention_bytes: int = setting(
        LONG, -2, "Default of local.retention.bytes.", unit="bytes", low=-2, effect=NONE, dynamic=True
    )
