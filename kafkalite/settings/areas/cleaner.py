"""Rows of the broker's settings table: the threads that compact logs, and defaults of topics' compaction."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import BOOLEAN, DAY_MS, DOUBLE, INT, INT64_MAX, KIB, LONG, MIB, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class CleanerRows:
    """Compaction."""

    __slots__ = ()

    log_cleaner_enable: bool = setting(BOOLEAN, True, "Whether compacted topics are cleaned.")
    log_cleaner_delete_retention_ms: int = setting(
        LONG, DAY_MS, "Default of delete.retention.ms.", unit="ms", low=0, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        LONG, 0, "Default of min.compaction.lag.ms.", unit="ms", low=0, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG, INT64_MAX, "Default of max.compaction.lag.ms.", unit="ms", low=1, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        DOUBLE, 0.5, "Default of min.cleanable.dirty.ratio.", low=0, high=1, dynamic=True
    )
    log_cleaner_threads: int = setting(INT, 1, "Threads that compact logs, one log each.", low=1, dynamic=True)
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG,
        128 * MIB,
        "Memory for the keys of logs being compacted, shared by all cleaner threads: 24 bytes a key, less in number by"
        " log.cleaner.io.buffer.load.factor. A log with more dirty keys is compacted in several passes.",
        unit="bytes",
        low=MIB,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        DOUBLE, 0.9, "How full that memory may get; more than 0.95 counts as 0.95.", low=0, high=1, dynamic=True
    )
    log_cleaner_io_buffer_size: int = setting(
        INT,
        512 * KIB,
        "Bytes that all cleaner threads together collect before they write them.",
        unit="bytes",
        low=0,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE,
        1.7976931348623157e308,
        "Bytes a second that all cleaner threads together read and write.",
        unit="bytes/s",
        low=1,
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        LONG, 15_000, "How often a cleaner with nothing to do looks again.", unit="ms", low=0, dynamic=True
    )
