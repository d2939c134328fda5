"""Measure how many MB/s compaction processes on one core.

Values have 104 and 1000 bytes (half of them noise), keys 16. Each key occurs about four times, so a quarter of the
records is kept, and almost every batch is rewritten. Batches have 100 records, with and without a codec.

A pass reads every byte three times (check, index keys, filter), writes and syncs what is kept, and reads that back.
Rates use the process's CPU time, because a compaction is one thread. `stored` counts the bytes of the log before,
`records` the same bytes uncompressed. Target: ≥ 200 MB/s of records on one core.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.path.harness import Row, write_result
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log.compaction import Compaction, CompactionLimits
from kafkalite.broker.log.manager import LogManager
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.record.batches import encode_batch
from kafkalite.wire.record.columns import BytesColumn, RecordColumns
from kafkalite.wire.record.compression import Codec

RECORDS_PER_BATCH = 100
RECORD_OVERHEAD = 30  # key, lengths, deltas and a share of the batch's header, in bytes
REPEAT_COUNT = 5
NONE = np.empty(0, dtype=np.int64)
LIMITS = CompactionLimits(key_map_size=128 << 20, key_map_load_factor=0.9, output_size=512 << 10)


def config(path: Path) -> BrokerConfig:
    return BrokerConfig.load(
        None, {"log.dirs": str(path), "log.cleaner.enable": "false", "log.segment.bytes": str(16 << 20)}
    )


def opened(path: Path) -> LogManager:
    manager = LogManager(config(path), SystemClock(), on_fatal=print)
    manager.open()
    return manager


def fill(path: Path, value_size: int, codec: int, size: int) -> int:
    """Fill a stopped data directory with one compacted partition; return the bytes of its uncompressed records."""
    manager = opened(path)
    log = manager.create_topic("bench", 1, {"cleanup.policy": "compact"}).partitions[0]
    record_count = max(RECORDS_PER_BATCH, size // (value_size + RECORD_OVERHEAD))
    key_count = max(1, record_count // 4)
    noise = random.Random(1).randbytes(1 << 16)
    unpacked = 0
    for first in range(0, record_count, RECORDS_PER_BATCH):
        numbers = range(first, first + RECORDS_PER_BATCH)
        keys = [struct.pack(">QQ", 7, number * 0x9E3779B1 % key_count) for number in numbers]
        starts = [number * 7919 % (len(noise) - value_size) for number in numbers]
        values = [noise[start : start + value_size // 2] + bytes(value_size // 2) for start in starts]
        columns = RecordColumns(NONE, NONE, BytesColumn.from_items(keys), BytesColumn.from_items(values))
        log.append(encode_batch(columns, codec=codec, timestamp=1_700_000_000_000, size_max=1 << 30)[0])
        unpacked += RECORDS_PER_BATCH * (value_size + RECORD_OVERHEAD)
    log.roll()
    manager.close()
    return unpacked


def compact(path: Path) -> Row:
    """Compact a copy that no other process uses."""
    manager = opened(path)
    try:
        log = manager.topics["bench"].partitions[0]
        before, upper = log.size_bytes, log.active.base_offset
        compaction = Compaction(log, 0, upper, now_ms=0, limits=LIMITS, spend=lambda _size: None)
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        if compaction.run() != upper:
            raise RuntimeError("the log was not compacted up to its end")
        row: Row = {
            "cpu_s": time.process_time() - started_cpu_s,
            "elapsed_s": time.perf_counter() - started_s,
            "input_bytes": before,
            "output_bytes": log.size_bytes,
        }
        if not 0 < row["output_bytes"] < before / 2:
            raise RuntimeError("expected a quarter of the records to remain")
        return row
    finally:
        manager.close()


def measure(value_size: int, codec: Codec, size: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-", dir=os.environ.get("KAFKALITE_BENCH_DIR")) as folder:
        made, copy = Path(folder, "made"), Path(folder, "copy")
        unpacked = fill(made, value_size, codec, size)
        rows = []
        for _ in range(REPEAT_COUNT):
            shutil.copytree(made, copy)
            rows.append(compact(copy))
            shutil.rmtree(copy)
    cpu_s = statistics.median(row["cpu_s"] for row in rows)
    stored = rows[0]["input_bytes"]
    row = {
        "codec": codec.name.lower(),
        "value_size": value_size,
        "rows": rows,
        "stored_mb_per_cpu_s": round(stored / cpu_s / 1e6),
        "records_mb_per_cpu_s": round(unpacked / cpu_s / 1e6),
    }
    sys.stdout.write(
        f"values of {value_size:4} B, {row['codec']:6}: {row['stored_mb_per_cpu_s']:5} MB/s as stored, "
        f"{row['records_mb_per_cpu_s']:5} MB/s of records on one core\n"
    )
    return row


def main(*, small: bool) -> list[Path]:
    size = 2 << 20 if small else 64 << 20
    rows = [measure(value_size, codec, size) for value_size in (104, 1000) for codec in Codec]
    return [write_result("compaction", {"cases": rows, "repeat_count": REPEAT_COUNT})]
