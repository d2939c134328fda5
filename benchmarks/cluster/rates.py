"""Compare the produce rates of three kafkalite brokers and three Apache Kafka brokers, in turns, with three replicas.

One librdkafka producer, idempotent with acks=all, writes messages of 200 bytes to twelve partitions, in batches of 50
or of up to 10,000. Each turn has a new topic (GONE_AT_ONCE). Neither side waits for its disks. A third row is kafkalite
with its defaults, which does wait for them with acks=all.

All clusters run all the time, and the others are idle while one works. CPU is that of the three brokers.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.cluster.clusters import GONE_AT_ONCE, Cluster
from benchmarks.pairs import interval
from benchmarks.path.harness import Row, client, write_result

JAVA: Final = "java"
SIDES: Final = {
    "kafkalite": ("kafkalite", {"flush.on.acks.all": "false"}),
    "kafkalite-flushes": ("kafkalite", {}),
    JAVA: ("java", {}),
}
"""Name → kind of brokers, and their settings."""
BATCHES: Final = {50: 300_000, 10_000: 3_000_000}
"""Messages a batch at most → messages a turn."""
LINGER_MS: Final = {50: 5, 10_000: 100}
"""Messages a batch at most → how long a batch is waited for, long enough to be full."""
PARTITIONS: Final = 12
REPLICAS: Final = 3
SIZE: Final = 200
PRODUCER: Final = (
    "enable.idempotence=true",
    "batch.size=4000000",
    "queue.buffering.max.messages=1000000",
    "queue.buffering.max.kbytes=1000000",
)
WARM_ROUNDS: Final = 3
"""Before any counts: Java compiles what it runs often."""

Turns = dict[tuple[str, int], list[Row]]


def main(*, small: bool, repeats: int) -> list[Path]:
    turns: Turns = {(side, batch): [] for side in SIDES for batch in BATCHES}
    with tempfile.TemporaryDirectory(prefix="kafkalite-cluster-") as folder, ExitStack() as stack:
        clusters = {
            side: stack.enter_context(Cluster(kind, Path(folder) / side, settings={**GONE_AT_ONCE, **settings}))
            for side, (kind, settings) in SIDES.items()
        }
        for repeat in range(-(1 if small else WARM_ROUNDS), repeats):
            names = list(SIDES)
            for side in names[repeat % len(names) :] + names[: repeat % len(names)]:
                for batch, count in BATCHES.items():
                    row = turn(clusters[side], batch, count // 100 if small else count)
                    if repeat >= 0:
                        turns[side, batch].append(row)
                        print(side, batch, {key: round(value, 3) for key, value in row.items()}, flush=True)
    return [write_result("cluster-rates", {"size": SIZE, "medians": medians_of(turns), "turns": told(turns)})]


def turn(cluster: Cluster, batch: int, count: int) -> Row:
    """Let one producer write its messages."""
    wanted = (*PRODUCER, f"batch.num.messages={batch}", f"linger.ms={LINGER_MS[batch]}")
    options = [word for pair in wanted for word in ("-X", pair)]
    topic = f"batch-{batch}"
    cluster.create([topic], PARTITIONS, REPLICAS)
    before = cluster.counted()
    row = client(
        "rdk_bench",
        *("produce", "--brokers", cluster.bootstrap, "--topic", topic, "--count", count),
        *("--size", SIZE, "--partitions", PARTITIONS, *options),
    )
    if row["failed"]:
        raise RuntimeError(f"{row['failed']} messages were not acknowledged")
    cpu_s = cluster.counted().brokers_cpu_s - before.brokers_cpu_s
    cluster.delete(topic)
    return {"rate_per_s": row["rate_per_s"], "brokers_cpu_s_per_million": cpu_s / count * 1e6}


def medians_of(turns: Turns) -> dict[str, Row]:
    """Return medians by side and batch. Ratios are to Java's turn of the same round, with their 95 % interval."""
    found = {}
    for (side, batch), rows in turns.items():
        row: Row = {key: statistics.median(each[key] for each in rows) for key in rows[0]}
        for key in rows[0]:
            pairs = zip(rows, turns[JAVA, batch], strict=True)
            row[f"{key}_to_java"] = interval([one[key] / other[key] for one, other in pairs])
        found[f"{side}, {batch}"] = row
        print(side, batch, row, flush=True)
    return found


def told(turns: Turns) -> dict[str, list[Row]]:
    return {f"{side}, {batch}": rows for (side, batch), rows in turns.items()}
