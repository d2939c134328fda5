"""Compare `format("kafkalite")` with Spark's own `format("kafka")`: rows per second and CPU seconds of queries.

Both read the same topics of the same broker in the same Spark session. Each repeat runs every query once, and the order
rotates from repeat to repeat. `format("ready")` returns record batches that are already in memory: no source in Python
can be faster.

    topic    rows                                           queries
    even     keys of 16 bytes, values of 200, 4 partitions  noop (all rows are dropped), parquet
    skewed   the same rows, all in one of 4 partitions      noop
    orders   JSON values of about 200 bytes, 8 fields       group: sum of a field by another field

    broker process ─▶ [Python workers ─▶ JVM]  or  [JVM]  ─▶ noop, or files in a temporary directory

CPU seconds are the kernel's, of the JVM with all its workers, and of the broker. Results go to
benchmarks/results/spark.json, with machine, versions, commit and every repeat. `--only TOPIC-QUERY` runs one query and
writes no result.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.path.harness import Kafkalite, Row, cpu_seconds, write_result
from benchmarks.spark import report
from benchmarks.spark.ready import DISTINCT_ROWS, ReadyDataSource, distinct
from benchmarks.spark.report import SOURCES
from kafkalite.client import Client, ColumnWriter
from kafkalite.spark.session import session
from tests.kit.processes import spark_connector
from tests.spark.conftest import quick_python

PARTITIONS = 4
EVEN, SKEWED, ORDERS = "even", "skewed", "orders"
NOOP, PARQUET, GROUP = "noop", "parquet", "group"
QUERIES = ((EVEN, NOOP), (EVEN, PARQUET), (SKEWED, NOOP), (ORDERS, GROUP))
GROUPED = "user STRING, amount DOUBLE"
"""The fields of orders that the query uses."""


@dataclass
class Sizes:
    """The sizes of a run."""

    rows: int
    repeat_count: int
    sources: tuple[str, ...] = SOURCES
    queries: tuple[tuple[str, str], ...] = QUERIES

    @property
    def cases(self) -> list[tuple[str, str, str]]:
        """(topic, query, source) of everything to measure; `ready` has the rows of one topic only."""
        return [
            (topic, query, source)
            for topic, query in self.queries
            for source in self.sources
            if topic == EVEN or source != "ready"
        ]


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and all its descendants, including those that have ended."""
    root = psutil.Process(pid)
    total = 0.0
    for member in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def fill(bootstrap: str, topic: str, rows: int, partitions: int, used: int) -> None:
    """Write the topic's rows, in turn to the first `used` of its partitions."""
    source = orders(DISTINCT_ROWS) if topic == ORDERS else distinct()
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, partitions)
        with ColumnWriter(client, topic, acks=1) as writer:
            for number, first in enumerate(range(0, rows, DISTINCT_ROWS)):
                part = source.slice(0, min(DISTINCT_ROWS, rows - first))
                where = np.full(part.num_rows, number % used, np.int32)
                writer.write(part.append_column("partition", where))
            writer.flush()


class Bench:
    """A Spark session, and a broker with both topics."""

    def __init__(self, sizes: Sizes, folder: Path) -> None:
        self.sizes = sizes
        self.folder = folder
        self.broker = Kafkalite("kafkalite", folder / "broker")
        os.environ["PYSPARK_PYTHON"] = str(quick_python(folder))
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        chosen = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            **spark_connector.settings(),
        }
        self.spark = session("benchmarks.spark", master=f"local[{os.cpu_count()}]", settings=chosen)
        self.spark.dataSource.register(ReadyDataSource)
        self.jvm_pid = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - PySpark has no other way there

    def start(self) -> None:
        """Start the broker with its topics, and run each source and sink once with few rows."""
        self.broker.start()
        for topic in dict.fromkeys(topic for topic, _ in self.sizes.queries):
            fill(self.bootstrap, topic, self.sizes.rows, PARTITIONS, 1 if topic == SKEWED else PARTITIONS)
        for topic, source in dict.fromkeys((topic, source) for topic, _, source in self.sizes.cases):
            found = self.frame(source, topic).count()
            if found != self.sizes.rows:
                raise RuntimeError(f"{source} returned {found} of {self.sizes.rows} rows of {topic}")
        sums = set()
        for topic, query, source in self.sizes.cases:
            if query == GROUP:
                sums.add(tuple(sorted((row[0], round(row[1], 2)) for row in self.grouped(source, topic).collect())))
            else:
                self.write(self.frame(source, topic).limit(DISTINCT_ROWS), query)
        if len(sums) > 1:
            raise RuntimeError("the sources return different sums")

    def stop(self) -> None:
        """Stop the session and the broker."""
        self.spark.stop()
        self.broker.stop()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def frame(self, source: str, topic: str) -> Any:
        """Return a topic as a source reads it, with that source's defaults."""
        reader = self.spark.read.format(source)
        if source == "ready":
            return reader.options(rows=str(self.sizes.rows), tasks=str(2 * PARTITIONS)).load()
        return reader.options(**self.options(topic)).load()

    def options(self, topic: str) -> dict[str, str]:
        """Return the options of both sources that read a topic."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}

    def grouped(self, source: str, topic: str) -> Any:
        """Return the sum of amounts by user: fields decoded by the source, or by Spark's `from_json`."""
        reader = self.spark.read.format(source).options(**self.options(topic))
        if source == "kafkalite":
            fields = reader.option("value.format", "json").schema(f"value STRUCT<{GROUPED}>").load()
        else:
            fields = reader.load().selectExpr(f"from_json(CAST(value AS STRING), '{GROUPED}') AS value")
        return fields.groupBy("value.user").sum("value.amount")

    def write(self, frame: Any, sink: str) -> None:
        """Run a query."""
        if sink != PARQUET:
            frame.write.format("noop").mode("overwrite").save()
            return
        target = self.folder / "parquet"
        try:
            frame.write.mode("overwrite").parquet(str(target))
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def measure(self, source: str, sink: str, topic: str) -> Row:
        """Measure one query."""
        frame = self.grouped(source, topic) if sink == GROUP else self.frame(source, topic)
        load_average = os.getloadavg()[0]
        before, broker_before, began = tree_cpu_s(self.jvm_pid), cpu_seconds(self.broker.pid), time.monotonic()
        self.write(frame, sink)
        wall_s = time.monotonic() - began
        spark_cpu_s = tree_cpu_s(self.jvm_pid) - before
        broker_cpu_s = cpu_seconds(self.broker.pid) - broker_before
        return {
            "rate_per_s": self.sizes.rows / wall_s,
            "wall_s": wall_s,
            "spark_cpu_s": spark_cpu_s,
            "broker_cpu_s": broker_cpu_s,
            "cores_busy": (spark_cpu_s + broker_cpu_s) / wall_s,
            "load_average": load_average,
        }


def orders(rows: int) -> Any:
    """Return a record batch of orders as JSON, of 1,000 users; the query uses two of the eight fields."""
    import pyarrow as pa

    chance = random.Random(1)
    values = [
        json.dumps(
            {
                "id": number,
                "user": f"user-{chance.randrange(1000)}",
                "amount": chance.randrange(100, 100_000) / 100,
                "currency": chance.choice(("EUR", "USD", "GBP")),
                "items": chance.randrange(1, 9),
                "paid": chance.random() < 0.9,
                "placed": 1_700_000_000_000 + 37 * number,
                "note": "".join(chance.choices("abcdefghijklmnop ", k=80)),
            }
        ).encode()
        for number in range(rows)
    ]
    return pa.record_batch({"key": [b"%d" % number for number in range(rows)], "value": values})


def run(bench: Bench, say: Callable[[str], None]) -> list[Row]:
    """All queries in turn, again and again; a row of medians a query, with the figures of every repeat."""
    asked = bench.sizes.cases
    rows: dict[tuple[str, str, str], list[Row]] = {case: [] for case in asked}
    for repeat in range(bench.sizes.repeat_count):
        shift = repeat % len(asked)
        for case in [*asked[shift:], *asked[:shift]]:
            topic, sink, source = case
            row = bench.measure(source, sink, topic)
            rows[case].append(row)
            say(f"{topic:7} {sink:8} {source:10} {row['rate_per_s']:12,.0f} rows/s")
    found = []
    for (topic, sink, source), repeats in rows.items():
        medians = {key: statistics.median(row[key] for row in repeats) for key in repeats[0]}
        found.append({"topic": topic, "sink": sink, "source": source, "medians": medians, "rows": repeats})
    return found


def versions() -> dict[str, Any]:
    """Return the versions of what is compared."""
    import pyarrow as pa
    import pyspark

    jars = list(spark_connector.connector_jars())
    return {"pyspark": pyspark.__version__, "pyarrow": pa.__version__, "connector": jars}


def result_of(sizes: Sizes, found: list[Row]) -> Row:
    """Return the result that is written."""
    return {"cases": found, "rows": sizes.rows, "repeat_count": sizes.repeat_count, "versions": versions()}


def say(text: str) -> None:
    """Print a line of progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse(arguments: list[str] | None = None) -> Sizes:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="tiny parameters, to see that it works")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of each topic (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7, help="of each query (%(default)s)")
    parser.add_argument("--sources", default=",".join(SOURCES), help="(%(default)s)")
    names = {"-".join(query): query for query in QUERIES}
    parser.add_argument("--only", choices=names, help="measure one query and write no result")
    chosen = parser.parse_args(arguments)
    sources = tuple(chosen.sources.split(","))
    if set(sources) - set(SOURCES):
        parser.error(f"choose sources from {', '.join(SOURCES)}")
    queries = (names[chosen.only],) if chosen.only else QUERIES
    if chosen.small:
        return Sizes(20_000, 1, sources, queries)
    if chosen.rows < 1 or chosen.repeats < 1:
        parser.error("nothing to measure")
    return Sizes(chosen.rows, chosen.repeats, sources, queries)


def main() -> None:
    """Run the benchmark."""
    sizes = parse()
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-", dir=os.environ.get("KAFKALITE_BENCH_DIR")) as folder:
        bench = Bench(sizes, Path(folder))
        try:
            bench.start()
            found = run(bench, say)
        finally:
            bench.stop()
    if sizes.queries == QUERIES:
        write_result("spark", result_of(sizes, found))
    for line in report.sources(found):
        say(line)
