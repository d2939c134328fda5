"""Define the broker's settings for log compaction: the cleaner threads, and defaults of topic settings."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import BOOLEAN, DAY_MS, DOUBLE, INT, INT64_MAX, KIB, LONG, MIB, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class CleanerRows:
    """Settings of log compaction."""

    __slots__ = ()

    log_cleaner_enable: bool = setting(BOOLEAN, True, "Enable log compaction.")
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
    log_cleaner_threads: int = setting(
        INT, 1, "Number of threads that compact logs; each compacts one log at a time.", low=1, dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG,
        128 * MIB,
        "Memory for the keys of logs being compacted, shared by all cleaner threads. A key takes 24 bytes; "
        "log.cleaner.io.buffer.load.factor limits how many keys fit. A log with more dirty keys is compacted in "
        "several passes.",
        unit="bytes",
        low=MIB,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        DOUBLE,
        0.9,
        "Maximum load factor of the key memory; values above 0.95 count as 0.95.",
        low=0,
        high=1,
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        INT,
        512 * KIB,
        "Size of the write buffers of all cleaner threads together.",
        unit="bytes",
        low=0,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE,
        1.7976931348623157e308,
        "Maximum read and write throughput of all cleaner threads together.",
        unit="bytes/s",
        low=1,
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        LONG, 15_000, "Time that an idle cleaner waits before it checks for work again.", unit="ms", low=0, dynamic=True
    )
