"""Measure 2,000 partitions with three replicas on three brokers: the cost when idle, and the recovery after failures.

A broker is killed, restarted, stopped and restarted, and each time all partitions must be led and in sync again. Both
kinds of broker are measured: kafkalite and Java.

    idle_cpu_percent     of one core, all three brokers together, without clients
    kill_led_s           from kill -9 until another broker reports a leader of every partition; 9 s of it is the session
    back_ready_s         from the start of the process until it serves; back_in_sync_s: until all replicas are in sync
    stop_s               of a stop by SIGTERM, which moves leadership away first
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.cluster.clusters import KINDS, WAIT_S, Cluster
from benchmarks.path.harness import Row, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS: Final = 20
PER_TOPIC: Final = 100
REPLICAS: Final = 3
IDLE_S: Final = 30.0
SETTLE_S: Final = 10.0


def main(*, small: bool, repeats: int) -> list[Path]:
    topics, idle_s = (1, 2.0) if small else (TOPICS, IDLE_S)
    rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for repeat in range(repeats):
        for kind in KINDS if repeat % 2 == 0 else reversed(KINDS):
            with tempfile.TemporaryDirectory(prefix="kafkalite-cluster-") as folder:
                row = measured(kind, Path(folder), topics, idle_s)
            rows[kind].append(row)
            print(kind, {key: round(value, 2) for key, value in row.items()}, flush=True)
    medians = {
        kind: {key: statistics.median(row[key] for row in found) for key in found[0]} for kind, found in rows.items()
    }
    result: Row = {"partitions": topics * PER_TOPIC, "replicas": REPLICAS, "medians": medians, "rows": rows}
    return [write_result("cluster-partitions", result)]


def measured(kind: str, folder: Path, topics: int, idle_s: float) -> Row:
    """Measure the life of one cluster."""
    count = topics * PER_TOPIC
    row: Row = {}
    with Cluster(kind, folder) as cluster:
        row["empty_rss_mb"] = statistics.mean(cluster.counted().broker_rss_bytes) / 1e6
        row["create_s"] = timed(
            lambda: cluster.create((f"topic-{number}" for number in range(topics)), PER_TOPIC, REPLICAS)
        )
        time.sleep(min(SETTLE_S, idle_s))
        before, began = cluster.counted(), time.monotonic()
        time.sleep(idle_s)
        after, took = cluster.counted(), time.monotonic() - began
        row["idle_cpu_percent"] = 100 * (after.brokers_cpu_s - before.brokers_cpu_s) / took
        row["idle_controller_cpu_percent"] = 100 * (after.controller_cpu_s - before.controller_cpu_s) / took
        row["full_rss_mb"] = statistics.mean(after.broker_rss_bytes) / 1e6
        killed = cluster.brokers[0]
        assert killed.process is not None
        killed.process.kill()
        killed.process.wait()
        row["kill_led_s"] = timed(lambda: cluster.wait_led(1, count, gone=1))
        began = time.monotonic()
        killed.launch()
        killed.wait_ready(WAIT_S)
        row["back_ready_s"] = time.monotonic() - began
        cluster.wait_in_sync(1, count, REPLICAS)
        row["back_in_sync_s"] = time.monotonic() - began
        row["stop_s"] = timed(cluster.brokers[1].stop)
        began = time.monotonic()
        cluster.brokers[1].launch()
        cluster.brokers[1].wait_ready(WAIT_S)
        row["again_ready_s"] = time.monotonic() - began
        cluster.wait_in_sync(0, count, REPLICAS)
        row["again_in_sync_s"] = time.monotonic() - began
    return row


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a function takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
