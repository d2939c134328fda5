"""The results of both benchmarks around Spark as tables in Markdown: no figure of docs/benchmarks.md is copied by hand.

Thread rule: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]

READS = (
    ("read-all-columns", "all columns"),
    ("read-offset-and-value", "offset and value"),
    ("read-offset", "offset alone"),
)
CODECS = ("none", "lz4", "zstd")


def sources(cases: Sequence[Row]) -> Iterator[str]:
    """Rows of every query, beside the others of its kind."""
    rates = {(row["topic"], row["sink"], row["source"]): row["medians"]["rate_per_s"] for row in cases}
    yield "| topic, sink | source | rows/s | beside `ready` | beside `kafka` | cores busy | CPU s, Spark | broker |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in cases:
        medians, where = row["medians"], (row["topic"], row["sink"])
        beside = [
            f"× {medians['rate_per_s'] / rates[*where, other]:.2f}" if (*where, other) in rates else ""
            for other in ("ready", "kafka")
        ]
        yield (
            f"| {', '.join(where)} | `{row['source']}` | {medians['rate_per_s']:,.0f} | {' | '.join(beside)} |"
            f" {medians['cores_busy']:.2f} | {medians['spark_cpu_s']:.1f} | {medians['broker_cpu_s']:.1f} |"
        )


def columns(cases: Sequence[Row]) -> Iterator[str]:
    """Rows of the columnar client alone: what a task does before Spark."""
    found = {case["case"]: case["rows"]["kafkalite"] for case in cases}
    yield "| to Arrow | codec | records/s | records per CPU second of the client |"
    yield "| --- | --- | --- | --- |"
    for codec in CODECS:
        for name, title in READS:
            rows = found[f"{name}-{codec}"]
            rates = sorted(row["rate_per_s"] for row in rows)
            per_core = sorted(row["count"] / row["client_cpu_s"] for row in rows)
            middle = len(rows) // 2
            yield f"| {title} | {codec} | {rates[middle]:,.0f} | {per_core[middle]:,.0f} |"


def facts(result: Row) -> str:
    """On what, and when."""
    machine = result["machine"]
    return (
        f"{machine['cpu']}, {machine['core_count']} cores, {machine['time'][:10]}; load average before the run"
        f" {machine['load_average']:.1f}."
    )


def versions(result: Row) -> str:
    """What was compared."""
    found = result["versions"]
    connector = next(jar for jar in found["connector"] if "sql-kafka" in jar).removesuffix(".jar")
    return (
        f"{result['rows']:,} rows, {result['repeat_count']} repeats; PySpark {found['pyspark']}, pyarrow"
        f" {found['pyarrow']}, `kafka` is {connector}."
    )
