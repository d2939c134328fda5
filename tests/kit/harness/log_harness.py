"""Logs in a temporary directory, batches for them, and a plain list of what a log must serve.

The model is deliberately simple: a list of (first offset, next offset, the bytes the CRC covers). All that a log serves
must be in the list, in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite._native.log.segment import FileCache, Segment
from kafkalite.broker.log import sealer
from kafkalite.broker.log.assigned import AssignedTopic, AssignedTopics
from kafkalite.broker.log.loading import LoadPlan, load
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.partition_log import LogServices, PartitionLog
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig
from tests.kit.fakes.clock import FakeClock
from tests.kit.oracles.record_oracle import HEADER, OracleBatch, OracleRecord, encode_batch

if TYPE_CHECKING:
    from kafkalite.base.clock import Clock

TOPIC_ID = bytes(range(1, 17))
CRC_FROM = 21
TIME_MS = 1_700_000_000_000


def make_batch(
    count: int = 1,
    *,
    value_size: int = 10,
    value: bytes | None = None,
    key: bytes | None = b"k",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int = TIME_MS,
    step_ms: int = 0,
    attributes: int = 0,
    **fields: object,
) -> bytes:
    """A batch as a producer sends it: base offset 0, `count` records, timestamps rising by step_ms."""
    body = value if value is not None else bytes((i * 7 + count) & 0xFF for i in range(value_size))
    records = [OracleRecord(i * step_ms, i, key, body) for i in range(count)]
    return encode_batch(
        OracleBatch(
            records,
            base_timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
            **fields,  # type: ignore[arg-type]
        )
    )


def split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(first offset, next offset, bytes under the CRC) of each batch in fetched bytes; they must be whole."""
    position = 0
    while position < len(data):
        base_offset, length, _, _, _, _, last_delta = HEADER.unpack_from(data, position)[:7]
        end = position + 12 + length
        assert end <= len(data), f"a batch at {position} of {len(data)} bytes is cut off"
        yield base_offset, base_offset + last_delta + 1, data[position + CRC_FROM : end]
        position = end


@dataclass
class PlainLog:
    """The expected batches of a log, as a list."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    def append(self, base_offset: int, batch: bytes) -> None:
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        self.batches.append((base_offset, base_offset + last_delta + 1, batch[CRC_FROM:]))

    def from_offset(self, offset: int) -> list[tuple[int, int, bytes]]:
        """Return the batches that a reader from `offset` must get."""
        return [batch for batch in self.batches if batch[1] > offset]

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= end]


def read_all(log: PartitionLog, offset: int | None = None, *, size_max: int = 1 << 20) -> list[tuple[int, int, bytes]]:
    """Everything from `offset` (else the log start) on, read as a consumer does."""
    at = log.log_start_offset if offset is None else offset
    found: list[tuple[int, int, bytes]] = []
    while at < log.log_end_offset:
        data = log.read(at, size_max)
        assert data, f"nothing at {at} although the log ends at {log.log_end_offset}"
        found += split(data)
        assert found[-1][1] > at, f"no progress at {at}"
        at = found[-1][1]
    return found


class LogHarness:
    """One partition directory, opened again and again."""

    def __init__(self, directory: Path, *, clock: Clock | None = None, **settings: object) -> None:
        self.path = directory / "t-0"
        self.path.mkdir(exist_ok=True)
        self.clock = clock if clock is not None else FakeClock(TIME_MS)
        self.config = topic_config(settings)
        self.removed: list[str] = []
        self.offline: list[str] = []
        self.producer_ids: list[int] = []
        self.log_starts: list[int] = []
        self.services = self._services()

    def _services(self) -> LogServices:
        return LogServices(
            cache=FileCache(64),
            clock=self.clock,
            dirty_logs=set(),
            seal=sealer.finish_seal,
            remove_later=lambda paths, _delay: self.removed.extend(paths),
            request_flush=self._flush_now,
            log_start_moved=lambda log: self.log_starts.append(log.log_start_offset),
            went_offline=lambda _log, reason: self.offline.append(reason),
            producer_id_seen=self.producer_ids.append,
            sync_root=lambda: None,
        )

    @staticmethod
    def _flush_now(log: PartitionLog, _end: int, callback: Callable[[int], None]) -> None:
        log.flush()
        callback(0)

    def open(
        self,
        *,
        clean: bool = True,
        recovery_point: int | None = None,
        log_start: int | None = None,
        epoch: int = 0,
        replicated: bool = False,
        sole: bool = False,
        high_watermark: int | None = None,
        partition: int = 0,
    ) -> PartitionLog:
        """The log as the next start of a broker would open it."""
        plan = LoadPlan(
            topic="t",
            partition=partition,
            topic_id=TOPIC_ID,
            config=self.config,
            directory=str(self.path),
            clean=clean,
            recovery_point=recovery_point,
            log_start=log_start,
            leader_epoch=epoch,
            replicated=replicated,
            sole=sole,
            high_watermark=high_watermark,
        )
        return load(plan, self.services)

    def files(self, suffix: str = ".log") -> list[Path]:
        return sorted(self.path.glob(f"*{suffix}"))


def topic_config(settings: Mapping[str, object]) -> TopicConfig:
    """Topic settings by name with `_` for `.`."""
    return TopicConfig.resolve(
        BrokerConfig.load(None, {}), {key.replace("_", "."): str(value) for key, value in settings.items()}
    )


def release(log: PartitionLog) -> None:
    """Close descriptors and maps without saving, as the death of the process does."""
    for segment in log.segments:
        segment.close()


def damage_ranges(log: PartitionLog) -> list[tuple[int, int]]:
    """The quarantined offsets, as (first, next)."""
    return [(first, after) for segment in log.segments for _, _, first, after in segment.damage or ()]


def segment_of(log: PartitionLog, number: int) -> Segment:
    return log.segments[number]


def make_manager(
    directory: Path,
    *,
    clock: Clock | None = None,
    on_fatal: Callable[[BaseException], None] | None = None,
    **settings: object,
) -> LogManager:
    """A manager over a data directory, not open yet; settings by name with `_` for `.`."""
    texts = {key.replace("_", "."): value for key, value in settings.items()}
    config = BrokerConfig.load(None, {"log.dirs": str(directory), **texts})
    return LogManager(config, clock or FakeClock(TIME_MS), on_fatal=on_fatal or _fail)


def started(directory: Path, **options: Any) -> LogManager:
    """The manager of a data directory, started; `options` are `make_manager`'s."""
    manager = make_manager(directory, **options)
    manager.open()
    return manager


def use_topics(manager: LogManager, changed: Sequence[AssignedTopic], removed: Sequence[bytes] = ()) -> None:
    """As the controllers say; the manager was made with `topics_of=AssignedTopics`."""
    assert isinstance(manager.source, AssignedTopics)
    manager.source.use_topics(changed, removed)


def _fail(error: BaseException) -> None:
    raise AssertionError("a thread of the manager died") from error


def abandon(manager: LogManager) -> None:
    """What kill -9 leaves: threads gone, lock free, no clean marker, the page cache as it is."""
    manager._started = False
    manager.cleaner.stop()
    manager.housekeeper.stop()
    manager.sealer.stop()
    manager.flusher.stop()
    for log in manager.logs():
        release(log)
    manager.metadata.close()
    assert manager._directory_lock is not None
    manager._directory_lock.release()
