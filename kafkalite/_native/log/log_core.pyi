from collections.abc import Callable
from typing import Any, Protocol

from kafkalite._native.log.followers import Followers
from kafkalite._native.log.log_slice import LogSlice
from kafkalite._native.log.producers import ProducerTable
from kafkalite._native.log.record_format import RecordFormat
from kafkalite._native.log.segment import Segment
from kafkalite._native.wire.batch import RecordFaults
from kafkalite.base.clock import Clock

class LockedLog:
    def __enter__(self) -> None: ...
    def __exit__(self, *_error: object) -> None: ...

class LogListener: ...

class _Owner(Protocol):
    def prepare_segment_locked(self, roll: bool) -> Segment | None: ...
    def load_producers_locked(self) -> bool: ...
    def check_compressed(
        self, batch: bytes, key_required: bool, timestamp_min: int, timestamp_max: int
    ) -> tuple[int, int, int]: ...
    def faults_of(self, batch: bytes, timestamp_min: int, timestamp_max: int) -> RecordFaults: ...
    def recode(self, batch: bytes, codec: int) -> bytearray: ...
    def flush_due(self, end_offset: int) -> None: ...
    def flush_async(self, end_offset: int, callback: Callable[[int], None]) -> None: ...
    def epoch_end(self, epoch: int) -> tuple[int, int]: ...
    def verify_blocking(self, offset: int, size: int) -> None: ...
    def write_failed_locked(self, error: int) -> None: ...
    def read_failed(self, segment: Segment, error: int) -> None: ...
    def storage_recovered_locked(self) -> None: ...
    def storage_failed(self, error: OSError, what: str) -> None: ...

class LogCore:
    owner: _Owner
    topic: str
    partition: int
    log_start_offset: int
    flushed_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    deferred_appends: int
    offline: bool
    deleted: bool
    led: bool
    leader_id: int
    followers: Followers | None
    format: RecordFormat
    segments: tuple[Segment, ...]
    producers: ProducerTable | None
    active: Segment
    admissions: dict[int, object] | None
    epoch_recorded: bool
    cut_count: int
    unflushed_count: int
    unflushed_since: float
    segment_size_max: int
    segment_ms: int
    roll_jitter_ms: int
    index_interval: int
    index_count_max: int
    message_size_max: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compacted: bool
    validate_records: bool
    preallocate: bool
    flush_messages: int
    codec: int
    def __init__(
        self,
        owner: _Owner,
        topic: str,
        partition: int,
        format: RecordFormat,  # noqa: A002
        clock: Clock,
        *,
        dirty_logs: set[Any],
        system_clock: bool = False,
        replicated: bool = False,
    ) -> None: ...
    def marker_count(self) -> int: ...
    def gauges(self) -> tuple[int, int, int, int, int]: ...
    def read_copy(
        self,
        offset: int,
        size_max: int,
        *,
        whole_first_batch: bool = True,
        upper_offset: int | None = None,
    ) -> tuple[int, int, bytes]: ...
    def slice_at(
        self, offset: int, size_max: int, *, whole_first_batch: bool = True
    ) -> tuple[int, int, LogSlice | None]: ...
    @property
    def name(self) -> str: ...
    @property
    def replicated(self) -> bool: ...
    @property
    def storage_full(self) -> bool: ...
    @storage_full.setter
    def storage_full(self, full: bool) -> None: ...
    def locked(self) -> LockedLog: ...
    def wake_listeners(self) -> None: ...
    def configure(
        self,
        *,
        segment_size_max: int,
        segment_ms: int,
        roll_jitter_ms: int,
        index_interval: int,
        index_count_max: int,
        message_size_max: int,
        log_append_time: bool,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        compacted: bool,
        validate_records: bool,
        flush_messages: int,
        codec: int = -1,
        preallocate: bool = False,
    ) -> None: ...
    def set_segments(self, segments: tuple[Segment, ...]) -> None: ...
    def set_offsets(self, log_start: int, flushed: int, log_end: int) -> None: ...
    def set_log_start(self, log_start: int) -> None: ...
    def set_flushed(self, flushed: int) -> None: ...
    def set_high_watermark(self, offset: int) -> bool: ...
    def set_replicated(self, replicated: bool) -> None: ...
    def advance(self, now: float) -> bool: ...
    def use_followers(self, followers: Followers | None) -> None: ...
    def begin_flush(self) -> tuple[int, tuple[Segment, ...]]: ...
    def set_producers(self, producers: ProducerTable) -> None: ...
    def set_leader_epoch(self, leader_epoch: int, recorded: bool) -> None: ...
    def set_led(self, led: bool, leader_id: int = -1) -> None: ...
    def set_offline(self) -> bool: ...
    def set_deleted(self) -> None: ...
