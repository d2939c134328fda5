"""Define the broker's settings for topics and durability, and the defaults of topic settings.

`kafkalite.settings.topic_settings_table` defines the topic settings. `kafkalite.settings.areas.cleaner` defines the
settings of compaction.
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
    """Settings of topics and durability, and the defaults of topic settings."""

    __slots__ = ()

    # Topics
    auto_create_topics_enable: bool = setting(
        BOOLEAN, True, "Create a missing topic when a client requests its metadata and allows auto-creation."
    )
    delete_topic_enable: bool = setting(BOOLEAN, True, "Allow the deletion of topics.")
    num_partitions: int = setting(INT, 1, "Default number of partitions of new topics.", low=1)
    default_replication_factor: int = setting(INT, 1, "Default replication factor of new topics.", low=1)
    replication_factor_accept_any: bool = setting(
        BOOLEAN,
        False,
        "Accept a replication factor above 1 on a standalone broker, log a warning and keep one copy. Otherwise "
        "the request fails as in Kafka.",
    )
    topic_name_max_length: int = setting(
        INT, 249, "Maximum length of a topic name; the default is Kafka's limit.", unit="characters", low=1, high=249
    )

    # Durability
    flush_on_acks_all: bool = setting(
        BOOLEAN,
        True,
        "Acknowledge writes with acks=all only when the batch is on disk or, in a cluster with other in-sync "
        "replicas, in the page cache of all of them. `false`: never wait for a disk, as in Kafka; records then "
        "survive a crash of the process but not of the machine.",
    )
    log_flush_interval_messages: int = setting(
        LONG, INT64_MAX, "Flush a partition after this number of messages.", low=1, dynamic=True
    )
    log_flush_interval_ms: int | None = setting(
        LONG,
        None,
        "Flush a partition when its oldest unflushed message reaches this age. Unset: log.flush.scheduler.interval.ms.",
        unit="ms",
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG, INT64_MAX, "Interval between checks for partitions that are due for a flush.", unit="ms", low=1
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        INT, MINUTE_MS, "Interval between writes of the flushed offsets, from which recovery starts.", unit="ms", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        INT,
        MINUTE_MS,
        "Kafka's interval between writes of log start offsets. Here they are written when one changes.",
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
        INT,
        168,
        "Default of retention.ms where log.retention.ms and log.retention.minutes are unset.",
        unit="hours",
        low=-1,
    )
    log_retention_bytes: int = setting(LONG, -1, "Default of retention.bytes.", unit="bytes", low=-1, dynamic=True)
    log_retention_policies: tuple[str, ...] = setting(
        LIST,
        (),
        ("Additional retention policies as `module:Class`, applied besides age and size; see `RetentionPolicy`."),
    )
    log_retention_check_interval_ms: int = setting(
        LONG, 5 * MINUTE_MS, "Interval between checks for segments to delete.", unit="ms", low=1
    )
    clock_jump_hold_ms: int = setting(
        LONG,
        60 * MINUTE_MS,
        "Running time, across restarts, that must pass after the wall clock jumped ahead by more than a minute "
        "(a clock change or downtime) before records, committed offsets, producer ids, transactional ids and "
        "tombstones expire by the new time. 0: follow the clock at once.",
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
