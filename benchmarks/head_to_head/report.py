"""Turn rows into tables: medians of the repeats with their spread, and kafkalite's ratio to each system.

    rows ─▶ Results (figure of system, mode, case, key) ─▶ tables ─▶ text for the terminal, Markdown for a page

A figure is `median (lowest–highest)` of the repeats. `kafkalite ×` is kafkalite's median divided by the system's: above
1 kafkalite is faster. A figure that was not measured is a dash, and a failed one is marked. Notes say what is not
comparable.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.head_to_head.store import load_rows, load_run

Row = dict[str, Any]
US = "kafkalite"
DASH = "–"
ORDER = ("kafkalite", "null-broker", "apache-kafka", "rabbitmq", "activemq", "nats", "redis")
STALLED_US = 1e6
"""A median latency above a second: the rate is more than the system takes."""


@dataclass(frozen=True)
class Figure:
    """The median of the repeats, with the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass
class Table:
    """A title, column heads, rows of text, and notes."""

    title: str
    head: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    words: bool = False
    """No figures: a list in the terminal."""
    ends_in_words: bool = False


class Results:
    """The rows of one results folder, by system, mode and case."""

    def __init__(self, run: Row, rows: Iterable[Row]) -> None:
        self.run = run
        self.by_case: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            self.by_case.setdefault((row["system"], row["mode"], row["case"]), []).append(_derived(row))

    @classmethod
    def load(cls, folder: Path) -> Results:
        return cls(load_run(folder), load_rows(folder))

    def without(self, system: str) -> Results:
        """Return the results of the other systems."""
        others = {name: known for name, known in self.run["systems"].items() if name != system}
        results = Results({**self.run, "systems": others}, ())
        results.by_case = {key: rows for key, rows in self.by_case.items() if key[0] != system}
        return results

    @property
    def systems(self) -> list[str]:
        """Return the measured systems in the order of the tables."""
        return [name for name in ORDER if name in self.run["systems"]]

    def title(self, system: str) -> str:
        return str(self.run["systems"][system]["title"])

    def rows(self, system: str, case: str, mode: str = "asynchronous") -> list[Row]:
        """Return the repeats that did not fail."""
        return [row for row in self.by_case.get((system, mode, case), []) if "failed" not in row]

    def figure(self, system: str, case: str, key: str, mode: str = "asynchronous") -> Figure | None:
        """Return a figure, or None if it was not measured."""
        values = [row[key] for row in self.rows(system, case, mode) if key in row]
        return Figure(statistics.median(values), min(values), max(values)) if values else None

    def ratio(self, system: str, case: str, key: str, mode: str = "asynchronous") -> float | None:
        """Return kafkalite's median divided by the system's."""
        ours, theirs = self.figure(US, case, key, mode), self.figure(system, case, key, mode)
        return ours.median / theirs.median if ours and theirs and theirs.median else None

    def meaning(self, system: str, case: str, ack: str, mode: str = "asynchronous") -> str:
        """Return what this acknowledgement means for the case's driver."""
        for row in self.rows(system, case, mode):
            return str(self.run.get("drivers", {}).get(row["driver"], {}).get("acks", {}).get(ack, DASH))
        return DASH

    def failures(self) -> list[str]:
        """Return one sentence for each different failure."""
        found = {}
        for (system, mode, case), rows in self.by_case.items():
            for row in rows:
                if "failed" in row:
                    found[f"{system}, {mode}, {case}"] = row["failed"]
        return [f"{name}: {reason}" for name, reason in sorted(found.items())]


def _derived(row: Row) -> Row:
    """Add derived figures to a row: per message, per second, last quarter divided by first."""
    found = dict(row)
    messages = row.get("messages")
    if messages:
        for key in ("write_bytes", "wire_bytes"):
            if key in row:
                found[f"{key}_per_message"] = row[key] / messages
        if "write_bytes" in row and row["seconds"]:
            found["write_mb_per_s"] = row["write_bytes"] / row["seconds"] / 1e6
    progress = row.get("progress") or []
    if len(progress) >= 8:
        found["last_quarter_by_first"] = _slope(progress[-len(progress) // 4 :]) / _slope(
            progress[: len(progress) // 4]
        )
    return found


def _slope(points: Sequence[Sequence[float]]) -> float:
    """Return the messages per second between the first and the last point."""
    elapsed_s = points[-1][0] - points[0][0]
    return (points[-1][1] - points[0][1]) / elapsed_s if elapsed_s > 0 else float("nan")


# ---- cells ----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Format a number with three significant digits and thousands separators."""
    if value >= 1000:
        return f"{round(value, 3 - len(str(int(value)))):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(figure: Figure | None) -> str:
    """Format a median, with its range if there are several repeats."""
    if figure is None:
        return DASH
    if figure.low == figure.high:
        return number(figure.median)
    return f"{number(figure.median)} ({number(figure.low)}–{number(figure.high)})"


def plain(figure: Figure | None, scale: float = 1.0) -> str:
    return DASH if figure is None else number(figure.median * scale)


def times(ratio: float | None) -> str:
    return DASH if ratio is None else f"× {number(ratio)}"


# ---- tables ---------------------------------------------------------------------------------------------------------


VARIANTS = {"": "", "-classic": ", 0.7's protocol from C", "-classic-python": ", kafkalite.classic in Python"}
"""Suffix of a case → what is added to the system's title."""


def producer_table(results: Results, ack: str, title: str) -> Table:
    """Return the producer table: batch 1 and 50, their ratio, kafkalite's ratio, CPU of both sides, acknowledgement."""
    first, second = f"produce-{ack}-1", f"produce-{ack}-50"
    head = ["", "batch 1, messages/s", "kafkalite ×", "batch 50, messages/s", "kafkalite ×", "gain"]
    head += ["broker CPU s/million", "client CPU s/million", "acknowledged means"]
    table = Table(title, head, ends_in_words=True)
    for system in results.systems:
        for suffix, said in VARIANTS.items():
            one = results.figure(system, first + suffix, "rate_per_s")
            fifty = results.figure(system, second + suffix, "rate_per_s")
            if one is None and fifty is None:
                continue
            beside = [
                DASH if suffix or system == US else times(results.ratio(system, case, "rate_per_s"))
                for case in (first, second)
            ]
            table.rows.append(
                [
                    results.title(system) + said,
                    spread(one),
                    beside[0],
                    spread(fifty),
                    beside[1],
                    times(fifty.median / one.median if one and fifty else None),
                    plain(results.figure(system, second + suffix, "server_cpu_s_per_million")),
                    plain(results.figure(system, second + suffix, "client_cpu_s_per_million")),
                    results.meaning(system, second + suffix, ack),
                ]
            )
    return table


def consumer_table(results: Results, title: str) -> Table:
    """Return the consumer table of stored messages, with the broker's storage writes."""
    head = ["", "messages/s", "kafkalite ×", "broker CPU s/million", "client CPU s/million", "broker writes MB/s"]
    table = Table(title, head)
    for system in results.systems:
        for variant, said in VARIANTS.items():
            case = f"consume{variant}"
            rate = results.figure(system, case, "rate_per_s")
            if rate is None:
                continue
            table.rows.append(
                [
                    results.title(system) + said,
                    spread(rate),
                    DASH if variant or system == US else times(results.ratio(system, case, "rate_per_s")),
                    plain(results.figure(system, case, "server_cpu_s_per_million")),
                    plain(results.figure(system, case, "client_cpu_s_per_million")),
                    plain(results.figure(system, case, "write_mb_per_s")),
                ]
            )
    return table


BARE = "-bare"
"""Suffix of the cases that use no client library."""


def bare_table(results: Results) -> Table:
    """Return the table of Kafka's protocol over a bare socket. Other systems have their fastest client."""
    cases = ("produce-one-1", "produce-one-50", "consume")
    head = ["", "client", "batch 1, messages/s", "kafkalite ×", "batch 50, messages/s", "kafkalite ×"]
    head += ["consume, messages/s", "kafkalite ×", "broker CPU s/million: batch 50", "consume"]
    table = Table("Without a client library: the same tests over a bare socket, acknowledged by the broker", head)
    if not any(results.rows(US, case + BARE) for case in cases):
        return table
    for system in results.systems:
        suffix = BARE if any(results.rows(system, case + BARE) for case in cases) else ""
        rows = results.rows(system, cases[1] + suffix)
        cells = [results.title(system), str(rows[0]["driver"]) if rows else DASH]
        for case in cases:
            figure = results.figure(system, case + suffix, "rate_per_s")
            ours = results.figure(US, case + BARE, "rate_per_s")
            ratio = ours.median / figure.median if ours and figure and figure.median else None
            cells += [spread(figure), DASH if system == US else times(ratio)]
        cells += [plain(results.figure(system, case + suffix, "server_cpu_s_per_million")) for case in cases[1:]]
        if any(cell != DASH for cell in cells[2:]):
            table.rows.append(cells)
    return table


def python_table(results: Results) -> Table:
    """Return the table with the clients of Python users."""
    head = ["", "client", "produce, batch 50, messages/s", "kafkalite ×", "consume, messages/s", "kafkalite ×"]
    table = Table("With the client of a Python user, acknowledged", head)
    for system in results.systems:
        rows = results.rows(system, "produce-one-50-python")
        if not rows:
            continue
        cells = [results.title(system), str(rows[0].get("client", ""))]
        for case in ("produce-one-50-python", "consume-python"):
            cells.append(spread(results.figure(system, case, "rate_per_s")))
            cells.append(DASH if system == US else times(results.ratio(system, case, "rate_per_s")))
        table.rows.append(cells)
    return table


def latency_table(results: Results, rates: Sequence[int] = (1_000, 10_000, 50_000)) -> Table:
    """Return the latency table, from a message's due time to its receipt."""
    found = [rate for rate in rates if any(results.rows(system, f"latency-{rate}") for system in results.systems)]
    title = "Latency from the time a message was due, at fixed rates: p50 / p99 / p99.9 in ms"
    table = Table(title, ["", *(f"{rate:,}/s" for rate in found), *(["broker CPU s/million"] if found else [])])
    for system in results.systems:
        cells = [results.title(system)]
        for rate in found:
            case = f"latency-{rate}"
            three = [results.figure(system, case, key) for key in ("p50_us", "p99_us", "p999_us")]
            if too_fast := [row["too_fast"] for row in results.rows(system, case) if "too_fast" in row]:
                cells.append(f"not tried, {min(too_fast):,}/s was too fast")
            elif three[0] and three[0].median > STALLED_US:
                cells.append(f"cannot keep up ({three[0].median / 1e6:.1f} s behind)")
            else:
                cells.append(" / ".join(plain(figure, 1e-3) for figure in three) if three[0] else DASH)
        if found:
            middle = found[len(found) // 2]
            cells.append(plain(results.figure(system, f"latency-{middle}", "server_cpu_s_per_million")))
        if any(cell != DASH for cell in cells[1:]):
            table.rows.append(cells)
    if found:
        table.notes.append(f"CPU at {found[len(found) // 2]:,}/s.")
    return table


def synchronous_table(results: Results) -> Table:
    """Return the table of messages acknowledged from the disk."""
    cases = ("produce-disk-1", "produce-disk-50", "produce-disk-1-of-8")
    head = [
        "",
        "batch 1, one in flight",
        "kafkalite ×",
        "batch 50",
        "kafkalite ×",
        "8 producers, batch 1",
        "kafkalite ×",
    ]
    head.append("acknowledged means")
    table = Table("Acknowledged from the disk, messages/s", head, ends_in_words=True)
    for system in results.systems:
        figures = [results.figure(system, case, "rate_per_s", "synchronous") for case in cases]
        if not any(figures):
            continue
        cells = [results.title(system)]
        for case, figure in zip(cases, figures, strict=True):
            ratio = results.ratio(system, case, "rate_per_s", "synchronous")
            cells += [spread(figure), DASH if system == US else times(ratio)]
        table.rows.append([*cells, results.meaning(system, cases[0], "disk", "synchronous")])
    return table


def footprint_table(results: Results) -> Table:
    """Return the table of start time, memory, and bytes per message."""
    head = ["", "ready after, s", "kafkalite needs ×", "idle memory, MB", "kafkalite needs ×"]
    table = Table("Start, memory, bytes", [*head, "disk writes a message, B", "on the wire a message, B"])
    for system in results.systems:
        case = "produce-one-50"
        cells = [results.title(system), spread(results.figure(system, "start", "start_s"))]
        cells.append(DASH if system == US else times(results.ratio(system, "start", "start_s")))
        cells.append(plain(results.figure(system, "start", "idle_rss_bytes"), 1e-6))
        cells.append(DASH if system == US else times(results.ratio(system, "start", "idle_rss_bytes")))
        cells.append(plain(results.figure(system, case, "write_bytes_per_message")))
        cells.append(plain(results.figure(system, case, "wire_bytes_per_message")))
        if any(cell != DASH for cell in cells[1:]):
            table.rows.append(cells)
    table.notes.append("Bytes of 200-byte messages in batches of 50: storage writes as the kernel counts them for the")
    table.notes[-1] += " broker's process, and all of the loopback's traffic, headers and TCP's own answers included."
    return table


def cost_table(results: Results) -> Table:
    """Return the cost of each guarantee: the same load without response, with one, and with one from the disk."""
    head = ["", "no answer", "answered by the broker", "answered from the disk"]
    table = Table("The cost of each guarantee, batches of 50, messages/s", head)
    for system in results.systems:
        cells = [plain(results.figure(system, f"produce-{ack}-50", "rate_per_s")) for ack in ("none", "one")]
        cells.append(plain(results.figure(system, "produce-disk-50", "rate_per_s", "synchronous")))
        if sum(cell != DASH for cell in cells) > 1:
            table.rows.append([results.title(system), *cells])
    table.notes.append("What idempotence, transactions and read_committed cost kafkalite: docs/benchmarks.md.")
    return table


def sweep_table(results: Results, title: str, cases: Sequence[tuple[str, str, str]], scale: float = 1.0) -> Table:
    """Return a table with a column for each (heading, case, key)."""
    table = Table(title, ["", *(heading for heading, _, _ in cases)])
    for system in results.systems:
        cells = [plain(results.figure(system, case, key), scale) for _, case, key in cases]
        if any(cell != DASH for cell in cells):
            table.rows.append([results.title(system), *cells])
    return table


def sweeps(results: Results) -> list[Table]:
    """Return the tables that --full adds."""
    sizes = (100, 1_000, 10_000, 100_000)
    tables = [
        sweep_table(
            results,
            f"Message sizes, {word}, messages/s",
            [(f"{size:,} B", f"{word}-size-{size}", "rate_per_s") for size in sizes],
        )
        for word in ("produce", "consume")
    ]
    clients = [
        (f"{count} {word}rs", f"{word}-of-{count}" if count > 1 else one, "rate_per_s")
        for word, one in (("produce", "produce-one-50"), ("consume", "consume"))
        for count in (1, 2, 4)
    ]
    beside = sweep_table(results, "Several producers, several consumers: messages/s of all together", clients)
    beside.notes.append(
        "Each consumer reads every message; those of one queue of RabbitMQ or ActiveMQ would divide them."
    )
    both = [
        ("produce beside a reader", "both-at-once", "rate_per_s"),
        ("read meanwhile", "both-at-once", "consume_rate_per_s"),
        ("produce, reader far behind", "both-far-behind", "rate_per_s"),
        ("read meanwhile", "both-far-behind", "consume_rate_per_s"),
        ("growing backlog", "growing-backlog", "rate_per_s"),
        ("its last quarter by its first", "growing-backlog", "last_quarter_by_first"),
    ]
    tables += [beside, sweep_table(results, "Both at once, far behind, growing backlog: messages/s", both)]
    for table in tables[:2]:
        table.notes.append("Batches of 50, fewer where 50 would be more than half a megabyte.")
    measured = ("size", "of-2", "both", "growing")
    cases = {case for _, _, case in results.by_case}
    return [table for table in tables if table.rows and any(word in case for case in cases for word in measured)]


def all_tables(results: Results) -> list[Table]:
    """Return all tables that have a row."""
    tables = [
        producer_table(results, "none", "Producer test, as in the paper: 200-byte messages, nothing acknowledged"),
        producer_table(results, "one", "Producer test, acknowledged by the broker"),
        consumer_table(results, "Consumer test: one consumer, everything stored before"),
        bare_table(results),
        latency_table(results),
        python_table(results),
        synchronous_table(results),
        cost_table(results),
        footprint_table(results),
        *sweeps(results),
    ]
    return [table for table in tables if table.rows]


def small_table(results: Results) -> Table:
    """Return the README's table: the middle case of each experiment, without the null broker."""
    head = ["", "produce/s", "kafkalite ×", "consume/s", "kafkalite ×", "p99 at 10,000/s, ms"]
    table = Table("In short", [*head, "broker CPU s per million produced", "start, s", "idle, MB"])
    for system in results.systems:
        if system == "null-broker":
            continue
        cells = [results.title(system)]
        for case in ("produce-one-50", "consume"):
            cells.append(plain(results.figure(system, case, "rate_per_s")))
            cells.append(DASH if system == US else times(results.ratio(system, case, "rate_per_s")))
        cells.append(plain(results.figure(system, "latency-10000", "p99_us"), 1e-3))
        cells.append(plain(results.figure(system, "produce-one-50", "server_cpu_s_per_million")))
        cells.append(plain(results.figure(system, "start", "start_s")))
        cells.append(plain(results.figure(system, "start", "idle_rss_bytes"), 1e-6))
        table.rows.append(cells)
    return table


def about(results: Results) -> Table:
    """Return versions, settings and clients of the measured systems."""
    table = Table("What was measured", ["", "version", "asynchronous", "synchronous", "fastest client"], words=True)
    for system in results.systems:
        known = results.run["systems"][system]
        rows = results.rows(system, "produce-one-50") or results.rows(system, "produce-none-50")
        client = f"{rows[0]['driver']}: {rows[0]['client']}" if rows else DASH
        beside = results.run.get("drivers", {}).get(rows[0]["driver"], {}).get("not_comparable", "") if rows else ""
        if beside and (note := f"{rows[0]['driver']}: {beside}.") not in table.notes:
            table.notes.append(note)
        modes = [known.get(mode, DASH) for mode in ("asynchronous", "synchronous")]
        table.rows.append([known["title"], known["version"], *modes, client])
    return table


# ---- text -----------------------------------------------------------------------------------------------------------


def text(table: Table) -> str:
    """Format a table for the terminal: words to the left, figures to the right; a table of words as a list."""
    lines = [f"{table.title}:", ""]
    if table.words:
        for row in table.rows:
            lines.append(f"  {row[0]}")
            lines += [f"    {head}: {cell}" for head, cell in zip(table.head[1:], row[1:], strict=True) if cell != DASH]
        return "\n".join([*lines, *(f"  {note}" for note in table.notes), ""])
    rows = [list(table.head), *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.head))]
    last = len(widths) - 1 if table.ends_in_words else -1
    for row in rows:
        cells = [
            cell.ljust(width) if place in {0, last} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join([*lines, *(f"  {note}" for note in table.notes), ""])


def markdown_rows(table: Table) -> list[str]:
    """Format only the table in Markdown."""
    lines = ["| " + " | ".join(table.head) + " |", "|" + " --- |" * len(table.head)]
    return [*lines, *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table.rows)]


def markdown(table: Table) -> str:
    """Format heading, table and notes in Markdown."""
    return "\n".join([f"### {table.title}", "", *markdown_rows(table), "", *(f"{note}\n" for note in table.notes)])


def render(results: Results, form: Callable[[Table], str]) -> str:
    """Return all tables, then skipped and failed measurements."""
    tables = [about(results), *all_tables(results)]
    parts = [form(table) for table in tables]
    skipped = [f"- {name}: {reason}" for name, reason in sorted(results.run["skipped"].items())]
    failed = [f"- {line}" for line in results.failures()]
    for said, lines in (("Skipped:", skipped), ("Failed:", failed)):
        if lines:
            parts.append("\n".join([said, "", *lines, ""]))
    return "\n".join([*parts, facts(results), ""])


def facts(results: Results) -> str:
    """Return one paragraph with machine, commit, time and load."""
    machine, run = results.run["machine"], results.run
    loads = [
        row["load_average"]
        for system in results.systems
        for mode in ("asynchronous", "synchronous")
        for row in results.rows(system, "start", mode)
        if "load_average" in row
    ]
    while_it_ran = f"; median {statistics.median(loads):.1f} when each measured system was started" if loads else ""
    unfinished = "" if run["finished"] else "; not finished"
    return (
        f"Profile {run['profile']}{unfinished}; {machine['cpu']}, {machine['core_count']} cores,"
        f" {machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, {machine['time'][:10]},"
        f" commit {machine['commit'][:7]}. Load average: {machine['load_average']:.1f} before the run{while_it_ran}."
    )
