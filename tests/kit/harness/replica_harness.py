"""A replica's log, the checkpoints a broker keeps for it, and lists of its expected content.

`leaders` makes a leader's batches. A `ReplicaHarness` keeps recovery point, log start and high watermark in Kafka's
files, on the current disk, and opens the log from them; a `History` is the log as a plain list.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, disk, files
from kafkalite.broker.log.markers import marker_batch
from kafkalite.broker.log.replica_log import ReplicaLog
from tests.kit.harness.log_harness import TIME_MS, LogHarness, make_batch

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

TRANSACTIONAL = 0x10
KEY = ("t", 0)


def placed(batch: bytes, offset: int, epoch: int = 0) -> bytes:
    """Return a batch with the offset and epoch that a leader's log gives it."""
    return struct.pack(">q", offset) + batch[8:12] + struct.pack(">i", epoch) + batch[16:]


def leaders(first: int, count: int, *, epoch: int = 0, records: int = 1, **fields: object) -> bytes:
    """`count` batches of a leader's log from an offset on."""
    return b"".join(
        placed(make_batch(records, **fields), first + i * records, epoch)  # type: ignore[arg-type]
        for i in range(count)
    )


@dataclass
class History:
    """The expected batches of a replica: (first offset, next offset, epoch, the batch)."""

    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def take(self, batch: bytes) -> None:
        base, _, epoch = struct.unpack_from(">qii", batch)
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        assert base >= self.end
        self.end = base + last_delta + 1
        self.batches.append((base, self.end, epoch, batch))

    def cut(self, offset: int) -> None:
        """As Kafka cuts, but that a batch in which the cut lies goes as a whole."""
        across = [each for each in self.batches if each[0] < offset < each[1]]
        self.end = across[0][0] if across else min(self.end, offset)
        self.batches = [each for each in self.batches if each[1] <= self.end]
        self.start = min(self.start, self.end)

    def begin_anew(self, offset: int) -> None:
        self.batches = []
        self.start = self.end = offset

    def copy(self) -> History:
        return History(list(self.batches), self.start, self.end)

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) as the batches themselves say."""
        found: list[tuple[int, int]] = []
        for base, _, epoch, _ in self.batches:
            if not found or epoch != found[-1][0]:
                found.append((epoch, base))
        return found

    @property
    def data(self) -> bytes:
        return b"".join(each[3] for each in self.batches)


class Batches:
    """A leader's batches by chance: plain, of producers, of transactions and their ends."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.number = 0

    def next(self, offset: int, epoch: int) -> bytes:
        """Return a unique batch at an offset."""
        self.number += 1
        value = struct.pack(">q", self.number) + bytes(self.draw.randrange(200))
        kind = self.draw.random()
        producer = self.draw.randrange(3)
        if kind < 0.15:
            end = marker_batch(producer, 0, 0, TIME_MS + self.number, commit=self.draw.random() < 0.5)
            return placed(bytes(end), offset, epoch)
        count = self.draw.randint(1, 3)
        if kind < 0.6:
            return placed(make_batch(count, value=value, timestamp=TIME_MS + self.draw.randrange(1000)), offset, epoch)
        attributes = TRANSACTIONAL if kind > 0.8 else 0
        batch = make_batch(
            count, value=value, producer_id=producer, epoch=0, sequence=self.number, attributes=attributes
        )
        return placed(batch, offset, epoch)


class ReplicaHarness(LogHarness):
    """One replica, whose checkpoints are next to its directory."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.root = str(directory)
        super().__init__(directory, **settings)
        self.services.sync_root = lambda: file_ops.sync_directory(self.root)
        self.services.end_lowered = self._end_lowered
        self.services.log_start_moved = lambda log: self._write(files.LOG_STARTS_NAME, log.log_start_offset)

    def _write(self, name: str, offset: int) -> None:
        path = f"{self.root}/{name}"
        if checkpoints.read_offsets(path) != {KEY: offset}:
            checkpoints.write_offsets(path, {KEY: offset})

    def _read(self, name: str) -> int | None:
        return (checkpoints.read_offsets(f"{self.root}/{name}") or {}).get(KEY)

    def _end_lowered(self, log: PartitionLog, _offset: int) -> None:
        self.write_points(log)

    def write_points(self, log: PartitionLog) -> None:
        """Write the checkpoints, as a broker does every few seconds and before a truncation."""
        self._write(files.RECOVERY_POINTS_NAME, log.flushed_offset)
        self._write(files.HIGH_WATERMARKS_NAME, log.high_watermark)

    def opened(self, *, clean: bool) -> ReplicaLog:
        """The log at the next start."""
        for path in self.removed:
            if disk.exists(path):
                file_ops.unlink(path)
        self.removed.clear()
        if not clean:
            file_ops.sync_directory(self.root)  # as AssignedTopics does first
        log = self.open(
            clean=clean,
            recovery_point=self._read(files.RECOVERY_POINTS_NAME),
            log_start=self._read(files.LOG_STARTS_NAME),
            replicated=True,
            high_watermark=self._read(files.HIGH_WATERMARKS_NAME),
        )
        assert isinstance(log, ReplicaLog)
        log.sync_walked()  # as AssignedTopics has it done, and the next
        if (self._read(files.LOG_STARTS_NAME) or 0) > log.log_start_offset:
            self._write(files.LOG_STARTS_NAME, log.log_start_offset)
        return log
