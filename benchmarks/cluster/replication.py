"""Measure the CPU seconds that replication costs per GB of messages, with 1 to 3 brokers on one machine.

The results are explained by a model with two numbers: the cost of a GB on the leader, and the additional cost of each
follower, at the follower and at the leader. The runs with one replica, and with two brokers and two replicas, determine
these numbers. The model's prediction for three brokers is compared with the measurement.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.cluster.clusters import GONE_AT_ONCE, Cluster
from benchmarks.path.harness import Row, client, write_result

SHAPES: Final = ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3))
"""(brokers, replicas)"""
PARTITIONS: Final = 6
COUNT: Final = 1_000_000
SIZE: Final = 200
"""Bytes of a message."""
SETTLE_S: Final = 2.0


def main(*, small: bool, repeats: int) -> list[Path]:
    count = 20_000 if small else COUNT
    rows: dict[tuple[int, int], list[Row]] = {shape: [] for shape in SHAPES}
    for repeat in range(repeats):
        for brokers in sorted({brokers for brokers, _ in SHAPES}, reverse=bool(repeat % 2)):
            with tempfile.TemporaryDirectory(prefix="kafkalite-cluster-") as folder:
                for shape, row in measured(brokers, Path(folder), count).items():
                    rows[shape].append(row)
                    print(shape, {key: round(value, 3) for key, value in row.items()}, flush=True)
    medians = {
        shape: {key: statistics.median(row[key] for row in found) for key in found[0]} for shape, found in rows.items()
    }
    result: Row = {
        "count": count,
        "size": SIZE,
        "medians": {f"{brokers} brokers, {replicas} replicas": row for (brokers, replicas), row in medians.items()},
        "model": model_of({shape: row["cpu_s_per_gb"] for shape, row in medians.items()}),
        "rows": {f"{brokers}-{replicas}": found for (brokers, replicas), found in rows.items()},
    }
    print(result["model"], flush=True)
    return [write_result("cluster-replication", result)]


def measured(brokers: int, folder: Path, count: int) -> dict[tuple[int, int], Row]:
    """Measure each number of replicas on this many brokers, with one producer and acks=all."""
    found = {}
    with Cluster("kafkalite", folder, brokers, replicas=min(3, brokers), settings=GONE_AT_ONCE) as cluster:
        for replicas in [replicas for number, replicas in SHAPES if number == brokers]:
            name = f"topic-{replicas}"
            target = ["--brokers", cluster.bootstrap, "--topic", name, "--size", SIZE, "--partitions", PARTITIONS]
            for share in (1, 20):  # so that nothing is new, pages of memory least of all
                cluster.create([name], PARTITIONS, replicas)
                client("rdk_bench", "produce", *target, "--count", count // share)
                time.sleep(SETTLE_S)
                if share == 1:
                    cluster.delete(name)
            before = cluster.counted()
            row = client("rdk_bench", "produce", *target, "--count", count, "-X", "acks=all", "-X", "linger.ms=5")
            time.sleep(SETTLE_S)  # followers that are not in sync any more catch up
            after = cluster.counted()
            cluster.delete(name)
            found[brokers, replicas] = {
                "mb_per_s": count * SIZE / row["wall_s"] / 1e6,
                "cpu_s_per_gb": (after.brokers_cpu_s - before.brokers_cpu_s) / (count * SIZE / 1e9),
                "client_cpu_s": row["client_cpu_s"],
            }
    return found


def model_of(cpu_s_per_gb: dict[tuple[int, int], float]) -> Row:
    """Return the model's two numbers, and its predictions next to the measurements."""
    leader = statistics.mean(cpu_s_per_gb[shape] for shape in ((1, 1), (2, 1)))
    follower = cpu_s_per_gb[2, 2] - leader
    told = {shape: leader + follower * (shape[1] - 1) for shape in ((3, 1), (3, 2), (3, 3))}
    return {
        "leader_cpu_s_per_gb": leader,
        "follower_cpu_s_per_gb": follower,
        "checked": {
            f"{brokers} brokers, {replicas} replicas": {
                "model": said,
                "measured": cpu_s_per_gb[brokers, replicas],
            }
            for (brokers, replicas), said in told.items()
        },
    }
