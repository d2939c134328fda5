"""Define the settings of a topic, with the broker settings that provide their defaults."""

from __future__ import annotations

from typing import Final

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
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
    Effect,
    Setting,
    collect,
    setting,
)

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
VALIDATIONS: Final = ("full", "header")


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class TopicRows:
    """Settings of a topic."""

    __slots__ = ()

    cleanup_policy: tuple[str, ...] = setting(
        LIST,
        ("delete",),
        "How old records are removed: `delete` removes segments by retention.ms and retention.bytes, `compact` "
        "keeps the newest record of each key (records need a key); both can be combined.",
        choices=("compact", "delete"),
        broker_keys=(("log.cleanup.policy", 1),),
    )
    compression_gzip_level: int = setting(
        INT,
        -1,
        "Compression level if compression.type is gzip.",
        low=-1,
        high=9,
        broker_keys=(("compression.gzip.level", 1),),
    )
    compression_lz4_level: int = setting(
        INT,
        9,
        "Compression level if compression.type is lz4.",
        low=1,
        high=17,
        broker_keys=(("compression.lz4.level", 1),),
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "Codec for stored batches; `producer` keeps the codec of the producer.",
        choices=CODECS,
        broker_keys=(("compression.type", 1),),
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "Compression level if compression.type is zstd.",
        low=-131072,
        high=22,
        broker_keys=(("compression.zstd.level", 1),),
    )
    delete_retention_ms: int = setting(
        LONG,
        DAY_MS,
        "How long a compacted topic keeps tombstones.",
        unit="ms",
        low=0,
        broker_keys=(("log.cleaner.delete.retention.ms", 1),),
    )
    file_delete_delay_ms: int = setting(
        LONG,
        MINUTE_MS,
        "Time between renaming a segment to `.deleted` and removing it.",
        unit="ms",
        low=0,
        broker_keys=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = setting(
        LONG,
        INT64_MAX,
        "Flush the partition after this number of messages.",
        low=1,
        broker_keys=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = setting(
        LONG,
        INT64_MAX,
        "Flush the partition when its oldest unflushed message reaches this age.",
        unit="ms",
        low=0,
        broker_keys=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Replicas whose copying is limited to follower.replication.throttled.rate of their brokers, in a "
        "cluster: `PARTITION:BROKER`, or `*`. kafka-reassign-partitions --throttle sets and removes it.",
    )
    index_interval_bytes: int = setting(
        INT,
        4096,
        "Log bytes per entry of a segment's index.",
        unit="bytes",
        low=0,
        broker_keys=(("log.index.interval.bytes", 1),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Replicas that send to followers at most at leader.replication.throttled.rate of their brokers, in a "
        "cluster: `PARTITION:BROKER`, or `*`.",
    )
    local_retention_bytes: int = setting(
        LONG,
        -2,
        "Setting of tiered storage, which is not supported.",
        unit="bytes",
        low=-2,
        effect=NONE,
        broker_keys=(("log.local.retention.bytes", 1),),
    )
    local_retention_ms: int = setting(
        LONG,
        -2,
        "Setting of tiered storage, which is not supported.",
        unit="ms",
        low=-2,
        effect=NONE,
        broker_keys=(("log.local.retention.ms", 1),),
    )
    max_compaction_lag_ms: int = setting(
        LONG,
        INT64_MAX,
        "Maximum time that a message stays uncompacted.",
        unit="ms",
        low=1,
        broker_keys=(("log.cleaner.max.compaction.lag.ms", 1),),
    )
    max_message_bytes: int = setting(
        INT,
        MIB + 12,
        "Maximum size of a batch as sent; a larger one is rejected with MESSAGE_TOO_LARGE.",
        unit="bytes",
        low=0,
        broker_keys=(("message.max.bytes", 1),),
    )
    message_downconversion_enable: bool = setting(
        BOOLEAN, True, "Setting of message formats before v2.", effect=Effect.REMOVED
    )
    message_format: str = setting(
        STRING,
        "v2",
        "Storage format, fixed at creation: `v2` for Kafka's record batches, `classic` for Kafka 0.7's messages, "
        "which the 0.7 port serves and whose offsets are byte positions.",
        choices=("v2", "classic"),
    )
    message_format_version: str = setting(
        STRING, "3.0-IV1", "Setting of message formats before v2.", effect=Effect.REMOVED
    )
    message_timestamp_after_max_ms: int = setting(
        LONG,
        HOUR_MS,
        "Maximum time that a record's timestamp may be ahead of the broker's clock; CreateTime topics only.",
        unit="ms",
        low=0,
        broker_keys=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = setting(
        LONG,
        INT64_MAX,
        "Maximum time that a record's timestamp may be older than the broker's clock; CreateTime topics only.",
        unit="ms",
        low=0,
        broker_keys=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_difference_max_ms: int = setting(
        LONG,
        INT64_MAX,
        "Replaced by message.timestamp.before.max.ms and message.timestamp.after.max.ms.",
        unit="ms",
        low=0,
        effect=Effect.REMOVED,
    )
    message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Clock of the records' timestamps: the producer's (CreateTime), or the broker's at append (LogAppendTime).",
        choices=TIMESTAMP_TYPES,
        broker_keys=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = setting(
        DOUBLE,
        0.5,
        "Minimum ratio of uncompacted bytes at which a log is compacted.",
        low=0,
        high=1,
        broker_keys=(("log.cleaner.min.cleanable.ratio", 1),),
    )
    min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "Minimum time that a message stays uncompacted.",
        unit="ms",
        low=0,
        broker_keys=(("log.cleaner.min.compaction.lag.ms", 1),),
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "Minimum number of in-sync replicas for writes with acks=all, and for reads of those records. If"
        " the topic has fewer replicas, all must be in sync. For a cluster; a standalone broker is always"
        " in sync.",
        low=1,
        broker_keys=(("min.insync.replicas", 1),),
    )
    preallocate: bool = setting(
        BOOLEAN,
        False,
        "Allocate the whole segment's disk space at its first append instead of in doubling steps.",
        broker_keys=(("log.preallocate", 1),),
    )
    record_validation: str = setting(
        STRING,
        "full",
        "See the broker setting of the same name.",
        choices=VALIDATIONS,
        broker_keys=(("record.validation", 1),),
    )
    remote_copy_lag_bytes: int = setting(
        LONG, 0, "Setting of tiered storage, which is not supported.", unit="bytes", low=-1, effect=NONE
    )
    remote_copy_lag_ms: int = setting(
        LONG, 0, "Setting of tiered storage, which is not supported.", unit="ms", low=-1, effect=NONE
    )
    remote_log_copy_disable: bool = setting(
        BOOLEAN, False, "Setting of tiered storage, which is not supported.", effect=NONE
    )
    remote_log_delete_on_disable: bool = setting(
        BOOLEAN, False, "Setting of tiered storage, which is not supported.", effect=NONE
    )
    remote_storage_enable: bool = setting(
        BOOLEAN, False, "Enable tiered storage. It is not supported, so `true` is rejected.", effect=NONE
    )
    retention_bytes: int = setting(
        LONG,
        -1,
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        unit="bytes",
        low=-1,
        broker_keys=(("log.retention.bytes", 1),),
    )
    retention_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "Age of a segment's newest record at which the segment is deleted; -1: never.",
        unit="ms",
        low=-1,
        broker_keys=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = setting(
        INT,
        GIB,
        "Size at which a segment is rolled.",
        unit="bytes",
        low=14,
        broker_keys=(("log.segment.bytes", 1),),
    )
    segment_index_bytes: int = setting(
        INT,
        10 * MIB,
        "Size of its index at which a segment is rolled.",
        unit="bytes",
        low=4,
        broker_keys=(("log.index.size.max.bytes", 1),),
    )
    segment_jitter_ms: int = setting(
        LONG,
        0,
        "Maximum random reduction of segment.ms, so that segments do not all roll at once.",
        unit="ms",
        low=0,
        broker_keys=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "Age at which a segment is rolled.",
        unit="ms",
        low=1,
        broker_keys=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "Allow out-of-sync replicas to become leader; a standalone broker has no replicas.",
        effect=NONE,
        broker_keys=(("unclean.leader.election.enable", 1),),
    )


TOPIC_SETTINGS: Final[dict[str, Setting]] = collect(TopicRows)
REMOVED: Final = frozenset(key for key, row in TOPIC_SETTINGS.items() if row.effect is Effect.REMOVED)
BROKER_SYNONYMS: Final[dict[str, list[str]]] = {
    key: [name for name, _ in row.broker_keys] for row in TOPIC_SETTINGS.values() for key, _ in row.broker_keys
}
"""Broker setting → all broker settings that provide the default of the same topic setting, in order of precedence."""
