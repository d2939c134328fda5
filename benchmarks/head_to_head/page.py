"""Write the tables of docs/benchmarks.md and benchmarks/README.md: medians with ratios, one table for each question.

`kafkalite bench --show FOLDER` prints the same run in full: the lowest and highest repeat of each figure, the clients'
CPU, and kafkalite's listener for Kafka 0.7.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.head_to_head.report import (
    BARE,
    DASH,
    US,
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

NULL_BROKER = "null-broker"
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


def rates(results: Results, title: str, columns: Sequence[Column]) -> Table:
    """Return the table of messages per second, with the ratio of kafkalite's rate to each other rate."""
    table = Table(title, ["messages/s (kafkalite ×)", *(heading for heading, _, _ in columns)])
    for system in results.systems:
        cells = [_rate(results, system, case, mode) for _, case, mode in columns]
        if any(cell != DASH for cell in cells):
            table.rows.append([results.title(system), *cells])
    return table


def _rate(results: Results, system: str, case: str, mode: str) -> str:
    """Return the median rate; a system without a bare client is shown with its fastest one."""
    theirs = case if results.rows(system, case, mode) else case.removesuffix(BARE)
    figure = results.figure(system, theirs, "rate_per_s", mode)
    ours = results.figure(US, case, "rate_per_s", mode)
    if figure is None:
        return DASH
    if system == US or ours is None or not figure.median:
        return number(figure.median)
    return f"{number(figure.median)} ({number(ours.median / figure.median)}×)"


def resources(results: Results) -> Table:
    """Return the table of the broker's CPU seconds per million messages, start time, idle memory and bytes."""
    head = ["CPU s/million messages:", "no acknowledgement", "acknowledged", "consume", "10,000/s"]
    table = Table("CPU, start, memory, bytes", [*head, "start, s", "idle, MB", "disk B/message", "network B/message"])
    for system in results.systems:
        cells = [
            plain(results.figure(system, case, "server_cpu_s_per_million"))
            for case in ("produce-none-50", "produce-one-50", "consume", "latency-10000")
        ]
        cells += [
            plain(results.figure(system, "start", "start_s")),
            plain(results.figure(system, "start", "idle_rss_bytes"), 1e-6),
            plain(results.figure(system, "produce-one-50", "write_bytes_per_message")),
            plain(results.figure(system, "produce-one-50", "wire_bytes_per_message")),
        ]
        table.rows.append([results.title(system), *cells])
    return table


def comparison(results: Results) -> str:
    """Return all tables of a run with other brokers, without the null broker and the notes on clients."""
    compared = results.without(NULL_BROKER)
    latency = latency_table(compared)
    latency.head, latency.rows = latency.head[:-1], [row[:-1] for row in latency.rows]
    latency.title, latency.notes = "Latency: p50 / p99 / p99.9 in ms, at fixed rates", []
    systems = about(compared)
    systems.title, systems.notes = "Systems and settings", []
    systems.head, systems.rows = systems.head[:-1], [row[:-1] for row in systems.rows]
    tables = [
        rates(compared, "Batches of 50", BATCHES),
        rates(compared, "One message at a time", SINGLE),
        latency,
        rates(compared, "The usual Python client, batches of 50, acknowledged", PYTHON),
        resources(compared),
        systems,
    ]
    return "\n".join([*(markdown(table) for table in tables), facts(results), ""])


def bare_socket(results: Results) -> str:
    """Return the table of a run without client libraries."""
    return "\n".join([*markdown_rows(rates(results, "", SOCKET)), "", facts(results), ""])
