"""Write the tables of docs/benchmarks.md: medians with ratios, one table for each question.

`kafkalite bench --show FOLDER` prints the same run in full, with the lowest and highest repeat of each figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.head_to_head.report import (
    BARE,
    DASH,
    US,
    VARIANTS,
    Results,
    Table,
    about,
    facts,
    latency_table,
    markdown,
    markdown_rows,
    number,
    plain,
)

Column = tuple[str, str, str]
"""Heading, case and mode."""

BATCHES: tuple[Column, ...] = (
    ("no acknowledgement", "produce-none-50", "asynchronous"),
    ("acknowledged", "produce-one-50", "asynchronous"),
    ("from the disk", "produce-disk-50", "synchronous"),
    ("consume", "consume", "asynchronous"),
)
SINGLE: tuple[Column, ...] = (
    ("no acknowledgement", "produce-none-1", "asynchronous"),
    ("acknowledged", "produce-one-1", "asynchronous"),
    ("from the disk", "produce-disk-1", "synchronous"),
    ("from the disk, 8 producers", "produce-disk-1-of-8", "synchronous"),
)
PYTHON: tuple[Column, ...] = (
    ("produce", "produce-one-50-python", "asynchronous"),
    ("consume", "consume-python", "asynchronous"),
)
SOCKET: tuple[Column, ...] = (
    ("batch of 50", "produce-one-50-bare", "asynchronous"),
    ("one message", "produce-one-1-bare", "asynchronous"),
    ("consume", "consume-bare", "asynchronous"),
    ("from the disk, batch of 50", "produce-disk-50", "synchronous"),
    ("one message", "produce-disk-1", "synchronous"),
    ("one message, 8 producers", "produce-disk-1-of-8", "synchronous"),
)


def rates(results: Results, title: str, columns: Sequence[Column], *, variants: bool = False) -> Table:
    """Return the table of messages per second, with kafkalite's rate as a multiple of each other one."""
    table = Table(title, ["messages/s (kafkalite ×)", *(heading for heading, _, _ in columns)])
    for system in results.systems:
        for suffix, said in VARIANTS.items() if variants else [("", "")]:
            cells = [_rate(results, system, case, mode, suffix) for _, case, mode in columns]
            if any(cell != DASH for cell in cells):
                table.rows.append([results.title(system) + said, *cells])
    return table


def _rate(results: Results, system: str, case: str, mode: str, suffix: str) -> str:
    """Return the median rate; a system without a bare client is shown with its fastest one."""
    theirs = case if results.rows(system, case, mode) or suffix else case.removesuffix(BARE)
    figure = results.figure(system, theirs + suffix, "rate_per_s", mode)
    ours = results.figure(US, case, "rate_per_s", mode)
    if figure is None:
        return DASH
    if system == US or ours is None or not figure.median:
        return number(figure.median)
    return f"{number(figure.median)} ({number(ours.median / figure.median)}×)"


def cpu(results: Results) -> Table:
    """Return the table of CPU seconds per million messages, of the broker and of its client."""
    head = ["CPU s/million", "produce, no acknowledgement", "acknowledged", "consume", "10,000/s", "client: produce"]
    table = Table("CPU", [*head, "consume"])
    for system in results.systems:
        cells = [
            plain(results.figure(system, case, "server_cpu_s_per_million"))
            for case in ("produce-none-50", "produce-one-50", "consume", "latency-10000")
        ]
        cells += [
            plain(results.figure(system, case, "client_cpu_s_per_million")) for case in ("produce-one-50", "consume")
        ]
        table.rows.append([results.title(system), *cells])
    return table


def footprint(results: Results) -> Table:
    """Return the table of start time, idle memory and bytes per message."""
    table = Table("Start, memory, bytes", ["", "start, s", "idle, MB", "disk B/message", "network B/message"])
    for system in results.systems:
        table.rows.append(
            [
                results.title(system),
                plain(results.figure(system, "start", "start_s")),
                plain(results.figure(system, "start", "idle_rss_bytes"), 1e-6),
                plain(results.figure(system, "produce-one-50", "write_bytes_per_message")),
                plain(results.figure(system, "produce-one-50", "wire_bytes_per_message")),
            ]
        )
    return table


def comparison(results: Results) -> str:
    """Return all tables of a run, without the notes on its clients."""
    latency = latency_table(results)
    latency.head, latency.rows = latency.head[:-1], [row[:-1] for row in latency.rows]
    latency.title, latency.notes = "Latency: p50 / p99 / p99.9 in ms, at fixed rates", []
    systems = about(results)
    systems.title, systems.notes = "Systems and settings", []
    python = rates(results, "The usual Python client, batches of 50, acknowledged", PYTHON)
    tables = [
        rates(results, "Batches of 50", BATCHES, variants=True),
        rates(results, "One message at a time", SINGLE),
        latency,
        python,
        cpu(results),
        footprint(results),
        systems,
    ]
    return "\n".join([*(markdown(table) for table in tables), facts(results), ""])


def bare_socket(results: Results) -> str:
    """Return the table of a run without client libraries."""
    return "\n".join([*markdown_rows(rates(results, "", SOCKET)), "", facts(results), ""])
