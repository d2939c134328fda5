"""The client matrix: its rows and columns, what a run found in each cell, and the page that is written from it.

A client is a folder beside this file, a capability a marker on a test: `@pytest.mark.capability("groups")`. A run with
KAFKALITE_COMPAT_RECORD=FILE (`make clients`) writes what happened there:

    {"broker": "kafkalite 1.0", "clients": {"kcat": {"version": "1.7.1", "runtime": "librdkafka 2.0.2", "cells": {
        "groups": {"state": "works", "tests": 2}, "idempotent": {"state": "not run", "tests": 1, "why": "..."}}}}}

`python -m tests.compat.matrix` puts the record's table into docs/clients.md; `--check` only compares.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "clients.md"
RECORD = Path(__file__).resolve().parent / "matrix.json"
BLOCK = re.compile(r"(<!-- matrix: make clients -->\n).*?(<!-- /matrix -->)", re.DOTALL)

AUTHENTICATED = "the tests of TLS, with this authentication (SCRAM with SHA-256 and SHA-512)"
CAPABILITIES = {
    "produce, consume": "every codec of the client, acks 0, 1 and all, keys, headers, nulls, empty and large records,"
    " reading from any offset",
    "idempotent": "the idempotent producer leaves no gap and no duplicate",
    "transactions": "a committed and an aborted transaction with a consumer's offsets, and a `read_committed` reader",
    "groups": "a second member joins and leaves, and committed offsets are found again",
    "seek by time": "the consumer reads from the first record at or after a time",
    "admin": "topics, settings, partitions, records, groups, offsets, as far as the client supports them",
    "KIP-848": "groups with the consumer protocol of Kafka 4",
    "TLS": "idempotent writes, a transaction and a group over TLS, with the broker's certificate verified",
    "client certificates": AUTHENTICATED,
    "PLAIN": AUTHENTICATED,
    "SCRAM": AUTHENTICATED,
    "OAUTHBEARER": AUTHENTICATED,
}
"""Column → what its tests show."""

WORKS, FAILS, NOT_RUN, ABSENT = "works", "fails", "not run", "—"


@dataclass(frozen=True)
class Client:
    """A row. `absent`: capability → why the client has no such thing; `partly`: capability → what of it it lacks."""

    name: str
    absent: Mapping[str, str] = field(default_factory=dict)
    partly: Mapping[str, str] = field(default_factory=dict)


CLASSIC_ALONE = "groups support only the classic protocol"

CLIENTS = {
    "confluent": Client("confluent-kafka"),
    "kafka_python": Client("kafka-python", {"KIP-848": CLASSIC_ALONE}),
    "aiokafka": Client("aiokafka", {"KIP-848": CLASSIC_ALONE}),
    "kcat": Client(
        "kcat",
        {
            "admin": "kcat produces, consumes and lists metadata",
            "KIP-848": "librdkafka 2.0.2 predates it",
        },
        {"transactions": "kcat cannot commit a consumer's offsets in a transaction"},
    ),
    "java": Client("Java kafka-clients"),
    "kafkajs": Client(
        "KafkaJS",
        {"KIP-848": CLASSIC_ALONE},
        {
            "produce, consume": "only gzip; the other codecs are third-party packages",
            "seek by time": "KafkaJS returns the end if there is no such record",
        },
    ),
    "platformatic": Client("@platformatic/kafka"),
    "franz_go": Client("franz-go"),
    "sarama": Client("sarama", {"KIP-848": CLASSIC_ALONE}),
}
"""Folder → client, in the page's order."""


@dataclass
class Cell:
    """What became of the tests of one cell."""

    passed: int = 0
    failed: int = 0
    not_run: int = 0
    why: str = ""

    @property
    def state(self) -> str:
        if self.failed:
            return FAILS
        return WORKS if self.passed and not self.not_run else NOT_RUN

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {"state": self.state, "tests": self.passed + self.failed + self.not_run}
        return {**found, "why": self.why} if self.state == NOT_RUN and self.why else found


def expected_cells() -> set[tuple[str, str]]:
    """(folder, capability) of each cell that must have a test."""
    return {(folder, name) for folder, client in CLIENTS.items() for name in CAPABILITIES if name not in client.absent}


def states(record: Mapping[str, Any], folder: str) -> list[str]:
    """The row's cells in the order of the columns; a cell without a record was not run."""
    cells = record["clients"].get(folder, {}).get("cells", {})
    absent = CLIENTS[folder].absent
    return [ABSENT if name in absent else cells.get(name, {}).get("state", NOT_RUN) for name in CAPABILITIES]


def reasons(record: Mapping[str, Any]) -> Iterator[str]:
    """Explain empty cells, once per client and reason, and partial support."""
    classic = [client.name for client in CLIENTS.values() if CLASSIC_ALONE in client.absent.values()]
    yield f"- {', '.join(classic)} (KIP-848): {CLASSIC_ALONE}."
    for folder, client in CLIENTS.items():
        for capability, why in client.absent.items():
            if why != CLASSIC_ALONE:
                yield f"- {client.name} ({capability}): {why}."
        for capability, what in client.partly.items():
            yield f"- {client.name} ({capability}): {what}."
        cells = record["clients"].get(folder, {}).get("cells", {})
        for why in sorted({cell["why"] for cell in cells.values() if "why" in cell}):
            yield f"- {client.name}: not run: {why}."


def table(record: Mapping[str, Any]) -> str:
    """The page's generated part."""
    lines = [
        f"| Client | Version | {' | '.join(CAPABILITIES)} |",
        f"| --- | --- |{' --- |' * len(CAPABILITIES)}",
    ]
    for folder, client in CLIENTS.items():
        row = record["clients"].get(folder, {})
        version = ", ".join(filter(None, [row.get("version"), row.get("runtime")]))
        lines.append(f"| {client.name} | {version} | {' | '.join(states(record, folder))} |")
    count = sum(cell["tests"] for row in record["clients"].values() for cell in row["cells"].values())
    lines += [
        "",
        f"{count} tests, run against {record['broker']}. A cell is `{WORKS}` if all of its tests passed,",
    ]
    lines += [
        f"`{FAILS}` if one failed, `{NOT_RUN}` if one did not run, and — if the client lacks the feature.",
        "",
    ]
    for text, names in groupby(CAPABILITIES, CAPABILITIES.__getitem__):
        lines.append(f"- {', '.join(f'**{name}**' for name in names)}: {text}.")
    return "\n".join([*lines, "", *reasons(record), ""])


def page(text: str, record: Mapping[str, Any]) -> str:
    """docs/clients.md with its table as recorded."""
    if not record["broker"].startswith("kafkalite "):
        raise SystemExit(f"recorded against {record['broker']}: no page of ours")
    found, count = BLOCK.subn(lambda match: match[1] + table(record) + match[2], text)
    assert count == 1, "docs/clients.md has one place for the table"
    return found


def main(arguments: list[str]) -> int:
    """Write the page, or with --check report whether it is up to date."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = page(text, json.loads(RECORD.read_text(encoding="utf-8")))
    if "--check" in arguments:
        return 0 if text == fresh else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
