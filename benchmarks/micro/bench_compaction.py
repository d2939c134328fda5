"""How many MB/s does compaction get through on one core, and what does a key cost in the key map?

Values of 104 and 1000 bytes (half of them noise), keys of 16 bytes, each key about four times (so a quarter stays),
batches of 100 records, uncompressed and zstd. A pass reads every byte three times (checking, noting keys, filtering),
writes and syncs what stays, and reads that back. MB/s is of input as it is stored: for zstd, about half of what is
unpacked.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kafkalite._native.key_map import KeyMap
from kafkalite.clock import SystemClock
from kafkalite.config import BrokerConfig
from kafkalite.log.compaction import Compaction, CompactionLimits
from kafkalite.log.manager import LogManager
from kafkalite.record.batches import encode_batch
from kafkalite.record.columns import BytesColumn, RecordColumns
from kafkalite.record.compression import Codec

INPUT_SIZE = {True: 64 << 20, False: 4 << 20}
RECORDS_PER_BATCH = 100
NONE = np.empty(0, dtype=np.int64)
LIMITS = CompactionLimits(key_map_size=128 << 20, key_map_load_factor=0.9, output_size=512 << 10)


def fill(path: Path, value_size: int, codec: int, input_size: int) -> int:
    """A stopped data directory with one compacted partition; its size."""
    manager = LogManager(config(path), SystemClock(), on_fatal=print)
    manager.open()
    log = manager.create_topic("bench", 1, {"cleanup.policy": "compact"}).partitions[0]
    record_count = max(1, input_size // (value_size + 30))
    number = 0
    step = 0x9E3779B1
    noise = random.Random(1).randbytes(1 << 16)
    while number < record_count:
        keys = []
        for _ in range(RECORDS_PER_BATCH):
            number += 1
            keys.append(struct.pack(">QQ", 7, number * step % max(1, record_count // 4)))
        values = [struct.pack(">Q", number + i) * (value_size // 8) for i in range(RECORDS_PER_BATCH)]
        starts = [(number + i) * 7919 % (len(noise) - value_size) for i in range(RECORDS_PER_BATCH)]
        values = [noise[start : start + value_size // 2] + bytes(value_size // 2) for start in starts]
        columns = RecordColumns(NONE, NONE, BytesColumn.from_items(keys), BytesColumn.from_items(values))
        log.append(encode_batch(columns, codec=codec, timestamp=1_700_000_000_000, size_max=1 << 30)[0])
    log.roll()
    size = log.size_bytes
    manager.close()
    return size


def config(path: Path) -> BrokerConfig:
    return BrokerConfig.load(
        None, {"log.dirs": str(path), "log.cleaner.enable": "false", "log.segment.bytes": str(16 << 20)}
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("value_size", [104, 1000])
def test_compaction(benchmark: Callable[..., object], tmp_path: Path, value_size: int, codec: int) -> None:
    full = benchmark.enabled  # type: ignore[attr-defined]
    size = fill(tmp_path / "made", value_size, codec, INPUT_SIZE[full])
    managers: list[LogManager] = []

    def set_up() -> tuple[tuple[LogManager], dict[str, object]]:
        close(managers)
        target = tmp_path / "run"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(tmp_path / "made", target)
        managers.append(LogManager(config(target), SystemClock(), on_fatal=print))
        managers[0].open()
        return (managers[0],), {}

    def run(manager: LogManager) -> int:
        log = manager.topics["bench"].partitions[0]
        upper = log.active.base_offset
        compaction = Compaction(log, 0, upper, now_ms=0, limits=LIMITS, spend=lambda _size: None)
        assert compaction.run() == upper
        return log.size_bytes

    left = benchmark.pedantic(run, setup=set_up, rounds=3 if full else 1)  # type: ignore[attr-defined]
    close(managers)
    assert 0 < left < size
    if full:
        best = benchmark.stats.stats.min  # type: ignore[attr-defined]
        benchmark.extra_info.update(  # type: ignore[attr-defined]
            input_bytes=size, output_bytes=left, megabytes_per_second=round(size / best / 1e6)
        )


def close(managers: list[LogManager]) -> None:
    for manager in managers:
        manager.close()
    managers.clear()


@pytest.mark.parametrize("fill_share", [0.5, 0.9])
def test_key_map_put(benchmark: Callable[..., object], fill_share: float) -> None:
    """One look-up and replacement in a map of 100,000 slots filled to a share, from Python (so mostly the call)."""
    keys = KeyMap(24 * 100_000, 0.95)
    count = int(100_000 * fill_share)
    for number in range(count):
        assert keys.put(b"%016d" % number, number)
    assert len(keys) == count
    benchmark(keys.put, b"%016d" % (count // 2), count)
