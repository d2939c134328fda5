"""Write the results of the Spark benchmarks as Markdown tables for docs/benchmarks.md.

Thread rule: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]

READS = (
    ("read-all-columns", "all columns"),
    ("read-offset-and-value", "offset and value"),
    ("read-offset", "offset only"),
)
CODECS = ("none", "lz4", "zstd")


SOURCES = ("ready", "kafkalite", "kafka")


def sources(cases: Sequence[Row]) -> Iterator[str]:
    """Rows of each topic and query: median rows/s with the lowest and highest repeat, then median CPU seconds of Spark
    and the broker together.
    """
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in cases:
        found.setdefault((row["topic"], row["sink"]), {})[row["source"]] = row
    yield "| topic, query | `ready` | `kafkalite` | `kafka` | ratio | CPU s: `ready` | `kafkalite` | `kafka` | ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for where, rows in found.items():
        rates = {source: row["medians"]["rate_per_s"] for source, row in rows.items()}
        cpu = {source: row["medians"]["spark_cpu_s"] + row["medians"]["broker_cpu_s"] for source, row in rows.items()}
        cells = [spread(rows[source]) if source in rows else "" for source in SOURCES]
        seconds = [f"{cpu[source]:.1f}" if source in cpu else "" for source in SOURCES]
        ratios = f"{rates['kafkalite'] / rates['kafka']:.2f}×", f"{cpu['kafka'] / cpu['kafkalite']:.2f}×"
        yield f"| {', '.join(where)} | {' | '.join(cells)} | {ratios[0]} | {' | '.join(seconds)} | {ratios[1]} |"


def spread(row: Row) -> str:
    """Millions of rows/s: the median, with the lowest and the highest repeat."""
    rates = [each["rate_per_s"] / 1e6 for each in row["rows"]]
    return f"{row['medians']['rate_per_s'] / 1e6:.2f} ({min(rates):.2f}–{max(rates):.2f})"


def columns(cases: Sequence[Row]) -> Iterator[str]:
    """Return a row per codec for the columnar client alone: records/s, and records per CPU second of the client."""
    found = {case["case"]: case["rows"]["kafkalite"] for case in cases}
    yield "| codec | " + " | ".join(title for _, title in READS) + " |"
    yield "| --- |" + " --- |" * len(READS)
    for codec in CODECS:
        cells = []
        for name, _ in READS:
            rows = found[f"{name}-{codec}"]
            rates = sorted(row["rate_per_s"] for row in rows)
            per_core = sorted(row["count"] / row["client_cpu_s"] for row in rows)
            middle = len(rows) // 2
            cells.append(f"{rates[middle] / 1e6:.2f} ({per_core[middle] / 1e6:.2f})")
        yield f"| {codec} | " + " | ".join(cells) + " |"


LOADS = (
    ("native", "`kafkalite load --engine native`"),
    ("spark", "`kafkalite load --engine spark`"),
    ("sink", "Spark: `kafka` to its Parquet sink"),
)


def loads(medians: dict[str, Row]) -> Iterator[str]:
    """Return a row per way to load a topic into files. The last row has a few records."""
    yield "| command | CPU s | broker's CPU s | wall time s | MB |"
    yield "| --- | --- | --- | --- | --- |"
    for system, title in (*LOADS, ("few", "five records, `--engine native`")):
        row = medians[system]
        size, digits = ("", 2) if system == "few" else (f"{row['size'] / 1e6:.0f}", 1)
        cells = [f"{row[key]:.{digits}f}" for key in ("cpu_s", "broker_cpu_s", "wall_s")]
        yield f"| {title} | {' | '.join(cells)} | {size} |"


def load_facts(result: Row) -> str:
    """Return machine and time of the loads."""
    rounds = [row["load_average"] for each in result["rounds"] for row in each.values()]
    machine = result["machine"]
    return (
        f"{machine['cpu']}, {machine['core_count']} cores, {machine['time'][:10]}; load average before the commands"
        f" {min(rounds):.1f} to {max(rounds):.1f}."
    )


def facts(result: Row) -> str:
    """Return machine and time of the comparison."""
    machine = result["machine"]
    return (
        f"{machine['cpu']}, {machine['core_count']} cores, {machine['time'][:10]}; load average before the run"
        f" {machine['load_average']:.1f}."
    )


def versions(result: Row) -> str:
    """Return the compared versions."""
    found = result["versions"]
    connector = next(jar for jar in found["connector"] if "sql-kafka" in jar).removesuffix(".jar")
    return (
        f"{result['rows']:,} rows, {result['repeat_count']} repeats; PySpark {found['pyspark']}, pyarrow"
        f" {found['pyarrow']}, `kafka` is {connector}."
    )
