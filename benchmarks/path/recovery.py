"""Measure how many GB of unchecked log per second a broker recovers after an unclean stop, from a warm page cache.

A log is written without a flush, the broker is killed at once, and its next start is timed. The comparison is a start
of the same directory after a clean stop. Target: ≥ 1 GB/s.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.path.harness import Row, client, write_result
from tests.kit.processes.broker import BrokerProcess

TIMEOUT_S = 300.0
SHAPES = {"one-partition": 1, "eight-partitions": 8}


def measure(shape: str, partition_count: int, size: int) -> Row:
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-recovery-"))
    never = {"log.flush.offset.checkpoint.interval.ms": "3600000"}
    broker = BrokerProcess(folder, {**never, "num.partitions": str(partition_count)})
    try:
        broker.start()
        load = ["--records", 400, "--in-flight", 4, "--connections", partition_count, "--partitions", partition_count]
        client("raw_bench", "produce", "--port", broker.port, "--topic", "log", "--count", size // 84_000, *load)
        stored = sum(path.stat().st_size for path in broker.data_dir.glob("log-*/*.log"))
        unclean = []
        for _ in range(3):
            broker.kill()
            (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
            broker.start(timeout_s=TIMEOUT_S)
            unclean.append(broker.ready_s)
        broker.stop()
        broker.start()
        clean = broker.ready_s
    finally:
        broker.close()
        shutil.rmtree(folder)
    unclean_s = statistics.median(unclean)
    row = {"bytes": stored, "unclean_start_s": unclean_s, "clean_start_s": clean, "rows": unclean}
    row["gb_per_s"] = stored / max(unclean_s - clean, 1e-3) / 1e9
    print(f"{shape}: {stored / 1e9:.2f} GB, unclean {unclean_s:.2f} s, clean {clean:.2f} s: {row['gb_per_s']:.2f} GB/s")
    return row


def main(*, small: bool) -> list[Path]:
    size = 20_000_000 if small else 1_500_000_000
    rows = {shape: measure(shape, partition_count, size) for shape, partition_count in SHAPES.items()}
    return [write_result("recovery", {"shapes": rows})]
