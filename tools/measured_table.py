"""Write the tables of measurements in README.md, docs and benchmarks/README.md from benchmarks/results.

With `--check`, only compare, for the tests. After a new measurement (`make bench-parts`, or `kafkalite bench --out
benchmarks/results/head_to_head`), run `make docs`. So no figure is copied by hand.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
KAFKA_07 = ROOT / "docs" / "kafka-0.7.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
REPEATING = ROOT / "benchmarks" / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
HEAD_TO_HEAD = RESULTS / "head_to_head"
BARE_SOCKET = RESULTS / "bare_socket"
PARTS = "measured"
NULL_BROKER = "null broker"
GUARANTEES = "guarantees"
COMPARISON = "head to head"
BARE = "bare socket"
COLUMNS = "columns"
SPARK = "spark"
LOADS = "loads"

SIDE_BY_SIDE = (
    ("throughput-produce", "produce-batch-50", "produce, 200 B messages, acks=1, batches of 50"),
    ("throughput-produce", "produce-batch-10000", "the same, batches of 10,000"),
    ("throughput-consume", "consume-batch-50", "consume what was produced in batches of 50"),
    ("throughput-consume", "consume-batch-10000", "the same, batches of 10,000"),
    ("latency", "acks-1-in-flight-1-connections-1-same-core", "one message a request, one in flight, one core"),
    ("latency", "acks-1-in-flight-5-connections-1-free", "one message a request, five in flight"),
    ("latency", "acks-all-in-flight-5-connections-4-free", "the same with acks=all, four connections"),
    ("python-client", "confluent-kafka-produce", "confluent-kafka from Python, produce"),
    ("python-client", "confluent-kafka-consume-500", "confluent-kafka from Python, consume(500)"),
)
YARDSTICK = "null-append"


def load(name: str) -> dict[str, Any]:
    """Read one result file."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def side_by_side() -> Iterator[str]:
    """Return rows of kafkalite compared with the yardstick in the same run."""
    yield "| case | messages/s | vs. null broker | broker CPU s/million | vs. null broker |"
    yield "| --- | --- | --- | --- | --- |"
    for name, case_name, title in SIDE_BY_SIDE:
        cases = {case["case"]: case for case in load(name)["cases"]}
        medians, ratios = cases[case_name]["medians"]["kafkalite"], cases[case_name]["ratios"]["kafkalite"]
        assert cases[case_name]["yardstick"] == YARDSTICK, f"{name} is measured beside {YARDSTICK}"
        yield (
            f"| {title} | {medians['rate_per_s']:,.0f} | {ratios['rate_per_s']:.2f}× |"
            f" {medians['server_cpu_s_per_million']:.2f} | {ratios['server_cpu_s_per_million']:.2f}× |"
        )


def alone() -> Iterator[str]:
    """Return rows of figures without a comparison."""
    startup, partitions = load("startup"), load("partitions")
    connections, recovery = load("connections"), load("recovery")["shapes"]
    count, size = connections["connection_count"], connections["bytes_per_connection"]
    yield "| case | figure |"
    yield "| --- | --- |"
    yield f"| start in an empty directory to the first acknowledged message | {startup['first_message_s']:.2f} s |"
    yield f"| stop with a client attached | {startup['stop_s']:.2f} s |"
    yield f"| clean restart with {partitions['partition_count']:,} partitions | {partitions['clean_restart_s']:.1f} s |"
    yield f"| the same after kill -9 | {partitions['restart_after_kill_s']:.1f} s |"
    yield f"| memory per idle connection, {count:,} open | {size:,.0f} B |"
    rates = " / ".join(f"{recovery[shape]['gb_per_s']:.1f}" for shape in ("one-partition", "eight-partitions"))
    yield f"| check of an unflushed log after a crash, one partition / eight | {rates} GB/s |"


def machine_of_parts() -> str:
    """Return one sentence with the machine, date and commit of the path benchmarks."""
    machine = load("throughput-produce")["machine"]
    return (
        f"{machine['cpu']}, {machine['core_count']} cores, Python {machine['python']}, {machine['time'][:10]}, commit"
        f" {machine['commit'][:7]}; load average before the run {machine['load_average']:.1f}."
    )


def table() -> str:
    """Return the table of kafkalite's figures without a comparison."""
    return "\n".join(["", *alone(), "", machine_of_parts(), "", ""])


def null_broker() -> str:
    """Return the table of kafkalite compared with the null broker."""
    return "\n".join(["", *side_by_side(), "", machine_of_parts(), "", ""])


def guarantees() -> str:
    """Return the table of what each guarantee costs."""
    result = load("guarantees")
    rows = ["", "| guarantee | messages/s | broker CPU s/million |", "| --- | --- | --- |"]
    rows += [
        f"| {case['case']} | {case['rate_per_s']:,.0f} | {case['server_cpu_s_per_million']:,.2f} |"
        for case in result["cases"]
    ]
    machine = result["machine"]
    rows.append("")
    rows.append(
        f"{machine['cpu']}, {machine['core_count']} cores, {machine['time'][:10]}; load average before the run"
        f" {machine['load_average']:.1f}."
    )
    return "\n".join([*rows, "", ""])


def comparison() -> str:
    """Return the tables of the comparison with other brokers, and its plots."""
    from benchmarks.head_to_head import page, report

    pictures = [
        f"![{path.stem}](../{path.relative_to(ROOT).as_posix()})" for path in sorted(HEAD_TO_HEAD.glob("*.svg"))
    ]
    return "\n".join(["", page.comparison(report.Results.load(HEAD_TO_HEAD)), *pictures, "", ""])


def small_comparison() -> str:
    """Return the README's table."""
    from benchmarks.head_to_head import report

    results = report.Results.load(HEAD_TO_HEAD)
    return "\n".join(["", *report.markdown_rows(report.small_table(results)), "", report.facts(results), "", ""])


def bare_socket() -> str:
    """Return the table of the run without client libraries."""
    from benchmarks.head_to_head import page, report

    return "\n".join(["", page.bare_socket(report.Results.load(BARE_SOCKET)), "", ""])


CLASSIC = (
    ("produce-batch-50", "produce, Producer in Python, batches of 50"),
    ("consume-stream", "consume, KafkaStream in Python"),
    ("consume-simple", "consume, SimpleConsumer in Python"),
)


def classic() -> str:
    """Return the table of Kafka 0.7's protocol compared with the current one."""
    result = load("classic")
    cases = {case["case"]: case for case in result["cases"]}
    rows = [
        "",
        "| case | messages/s | current protocol | broker CPU s/million | CPU vs. current |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, title in CLASSIC:
        medians, ratios = cases[name]["medians"], cases[name]["ratios"]["classic"]
        rows.append(
            f"| {title} | {medians['classic']['rate_per_s']:,.0f} | {medians['today']['rate_per_s']:,.0f} |"
            f" {medians['classic']['server_cpu_s_per_million']:.2f} | {ratios['server_cpu_s_per_million']:.2f}× |"
        )
    machine = result["machine"]
    facts = (
        f"{machine['cpu']}, {machine['core_count']} cores, {machine['time'][:10]}; load average before the run"
        f" {machine['load_average']:.1f}. `python -m benchmarks.path classic`."
    )
    return "\n".join([*rows, "", facts, "", ""])


def spark() -> str:
    """Return the table of reading into Spark, compared with its own connector."""
    from benchmarks.spark import report

    result = load("spark")
    return "\n".join(["", *report.sources(result["cases"]), "", report.versions(result), report.facts(result), "", ""])


def loads() -> str:
    """Return the table of loading a topic into files, compared with Spark's own sink."""
    from benchmarks.spark import report

    result = load("loads")
    rows = report.loads(result["medians"])
    return "\n".join(["", *rows, "", report.versions(result), report.load_facts(result), "", ""])


def columns() -> str:
    """Return the table of reading to Arrow without Spark."""
    from benchmarks.spark import report

    result = load("columns")
    return "\n".join(["", *report.columns(result["cases"]), "", report.facts(result), "", ""])


def _filled(text: str, name: str, content: str) -> str:
    """Return a page with its table of this name replaced."""
    block = re.compile(rf"(<!-- {name}: make docs -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return block.sub(lambda match: match[1] + content + match[2], text)


def tables() -> Iterator[tuple[Path, str, str]]:
    """Yield the page, the name and the content of each table."""
    yield BENCHMARKS, PARTS, table()
    yield REPEATING, NULL_BROKER, null_broker()
    yield BENCHMARKS, GUARANTEES, guarantees()
    yield KAFKA_07, PARTS, classic()
    if (RESULTS / "spark.json").exists():
        yield BENCHMARKS, SPARK, spark()
    yield BENCHMARKS, LOADS, loads()
    yield REPEATING, COLUMNS, columns()
    if (HEAD_TO_HEAD / "run.json").exists():
        yield README, COMPARISON, small_comparison()
        yield BENCHMARKS, COMPARISON, comparison()
    if (BARE_SOCKET / "run.json").exists():
        yield REPEATING, BARE, bare_socket()


def main(arguments: list[str]) -> int:
    """Write the tables. With `--check`, return 1 if one is out of date."""
    status = 0
    for path, name, content in tables():
        text = path.read_text(encoding="utf-8")
        fresh = _filled(text, name, content)
        if arguments != ["--check"]:
            path.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            print(f"the table in {path.name} is out of date; run `make docs`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
