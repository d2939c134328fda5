"""Measure the cost of loading a topic into Parquet files, with `kafkalite load` and with Spark's own sink.

Three commands start, load a topic and end: `kafkalite load --engine native`, the same with `--engine spark`, and a
program whose query copies `format("kafka")` to Spark's Parquet sink (available now, one checkpoint, zstd, with headers,
files in one folder). They alternate, in an order that rotates. Rows have keys of 16 bytes and values of 200. Finally
`kafkalite load` loads five records.

CPU seconds are the kernel's, of the command and all its descendants; the broker's are counted separately. With `--kept
FILE`, the rounds of several short runs become one result. It is loads.json in benchmarks/results.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import psutil

from benchmarks.path.harness import Kafkalite, Row, cpu_seconds, write_result
from benchmarks.spark import report
from benchmarks.spark.compare import PARTITIONS, fill, say, versions
from tests.kit.processes import spark_connector
from tests.kit.processes.broker import REPOSITORY
from tests.spark.conftest import quick_python

ROWS = 3_000_000
FEW = 5
TOPIC, FEW_TOPIC = "many", "few"
PR_SET_CHILD_SUBREAPER = 36
SYSTEMS = ("native", "spark", "sink")


def become_subreaper() -> None:
    """Let the kernel give us descendants whose parents end, so that their CPU seconds are counted here."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def reap(spared: int) -> None:
    """Wait for all descendants except the broker."""
    for child in psutil.Process().children():
        if child.pid != spared:
            os.waitpid(child.pid, 0)


class Bench:
    """A broker with both topics, and a folder for the loaded files."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self._folder = folder
        self._broker = Kafkalite("kafkalite", folder / "broker")
        self._python = quick_python(folder)
        self._count = 0

    def start(self) -> None:
        self._broker.start()
        fill(self._servers, TOPIC, self.rows, PARTITIONS, PARTITIONS)
        fill(self._servers, FEW_TOPIC, FEW, 1, 1)

    def stop(self) -> None:
        self._broker.stop()

    @property
    def _servers(self) -> str:
        return f"127.0.0.1:{self._broker.port}"

    def measure(self, system: str, topic: str, rows: int) -> Row:
        """Measure one command, and count what it wrote."""
        self._count += 1
        target = self._folder / f"{system}-{self._count}"
        command = self._command(system, topic, target)
        broker_before, before = cpu_seconds(self._broker.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
        load, began = os.getloadavg()[0], time.monotonic()
        with (self._folder / "errors").open("wb") as errors:
            done = subprocess.run(command, cwd=REPOSITORY, env=self._environment(), stderr=errors, check=False)
        wall_s = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"{system}: {(self._folder / 'errors').read_text()[-2000:]}")
        reap(self._broker.pid)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = duckdb.read_parquet(f"{target}/**/*.parquet").aggregate("count(*)").fetchall()
        if found != [(rows,)]:
            raise RuntimeError(f"{system} wrote {found[0][0]} rows, not {rows}")
        return {
            "wall_s": wall_s,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "broker_cpu_s": cpu_seconds(self._broker.pid) - broker_before,
            "size": sum(path.stat().st_size for path in target.rglob("*.parquet")),
            "load_average": load,
        }

    def _command(self, system: str, topic: str, target: Path) -> list[str]:
        if system == "sink":
            jars = spark_connector.settings()["spark.jars"]
            return [sys.executable, "-m", "benchmarks.spark.parquet_sink", self._servers, topic, str(target), jars]
        words = ["load", "-b", self._servers, "-t", topic, "--to", str(target), "--engine", system, "-q"]
        return [sys.executable, "-m", "kafkalite", *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYSPARK_PYTHON": str(self._python), "SPARK_LOCAL_IP": "127.0.0.1"}


def measure_rounds(bench: Bench, count: int, found: list[dict[str, Row]], keep: Callable[[], None]) -> None:
    """Measure each system once per round, then a load of a few records. Complete the last round of an earlier run
    first."""
    wanted = len(complete(found)) + count
    while len(complete(found)) < wanted:
        if len(complete(found)) == len(found):
            found.append({})
        shift = len(found) % len(SYSTEMS)
        for system in (*SYSTEMS[shift:], *SYSTEMS[:shift], FEW_TOPIC):
            if system in found[-1]:
                continue
            if system == FEW_TOPIC:
                row = bench.measure(SYSTEMS[0], FEW_TOPIC, FEW)
            else:
                row = bench.measure(system, TOPIC, bench.rows)
            found[-1][system] = row
            keep()
            say(f"{system:7} {row['cpu_s']:6.1f} CPU s {row['wall_s']:6.2f} s, load {row['load_average']:.1f}")


def complete(found: list[dict[str, Row]]) -> list[dict[str, Row]]:
    """Return the rounds that have all commands."""
    return [row for row in found if len(row) == len(SYSTEMS) + 1]


def medians_of(found: list[dict[str, Row]]) -> dict[str, Row]:
    """Return medians of all rounds, by system."""
    return {
        system: {key: statistics.median(each[system][key] for each in found) for key in found[0][system]}
        for system in found[0]
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark.loads", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--kept", metavar="FILE", type=Path, help="rounds of earlier runs, to which these are added")
    chosen = parser.parse_args()
    kept: Path | None = chosen.kept
    found: list[dict[str, Row]] = json.loads(kept.read_text()) if kept is not None and kept.exists() else []

    def keep() -> None:
        if kept is not None:
            kept.write_text(json.dumps(found, indent=1) + "\n")

    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker ends, too
    spark_connector.connector_jars()
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-", dir=os.environ.get("KAFKALITE_BENCH_DIR")) as folder:
        bench = Bench(Path(folder), chosen.rows)
        try:
            bench.start()
            measure_rounds(bench, chosen.rounds, found, keep)
        finally:
            bench.stop()
            for left in psutil.Process().children(recursive=True):
                left.kill()
    found = complete(found)
    result = {"medians": medians_of(found), "rounds": found, "rows": chosen.rows, "versions": versions()}
    write_result("loads", {**result, "repeat_count": len(found)})
    for line in report.loads(result["medians"]):
        say(line)


if __name__ == "__main__":
    main()
