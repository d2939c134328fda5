"""Measure one append and one read of a log without network, in batches of 1 and 50 records of 200 bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite._native.log.log_append import append_batch
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log.manager import LogManager
from kafkalite.settings.broker import BrokerConfig

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

COUNTS = [1, 50]
RETENTION = {"retention.ms": "-1"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    config = BrokerConfig.load(None, {"log.dirs": str(tmp_path / "data")})
    manager = LogManager(config, SystemClock(), on_fatal=print)
    manager.open()
    yield manager.create_topic("bench", 1, RETENTION).partitions[0]
    manager.close()


@pytest.mark.parametrize("count", COUNTS)
def test_append(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], log: PartitionLog, count: int
) -> None:
    data = make_batch(count, 200)
    before = log.log_end_offset

    def append() -> None:
        data[:8] = bytes(8)
        append_batch(log.core, data)

    benchmark(append)
    assert (log.log_end_offset - before) % count == 0


@pytest.mark.parametrize("count", COUNTS)
def test_read_slice(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], log: PartitionLog, count: int
) -> None:
    """Locate 64 KiB of whole batches in the middle of 1,000, without copying a byte."""
    data = bytes(make_batch(count, 200))
    for _ in range(1000):
        append_batch(log.core, bytearray(data))

    def read() -> None:
        _, _, found = log.core.slice_at(500 * count, 65_536)
        assert found is not None
        found.release()

    benchmark(read)
