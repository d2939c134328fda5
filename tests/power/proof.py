"""docs/proof.md: what was tried on which commit, from the counts in tests/power/proof.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.processes.broker import REPOSITORY

COUNTS = Path(__file__).with_name("proof.json")
PAGE = REPOSITORY / "docs" / "proof.md"

HEAD = """# What is proved, by counts

`make prove FAMILY=power` records a broker under load (every change of its files, every sync, every answer it sends),
builds directories that a power cut at some moment may leave, starts a broker on each, and compares what it has with
what had been answered. `tests/power/README.md` says how, and what the two models of file systems are. This page is
written by `python -m tests.power page`; a state that fails prints how to see it again.

- **states**: crash states judged, by model. **findings**: states in which something promised was missing, something was
  there that should not be, or the broker did not start or hung.
- **answers**: acknowledgements of records, offsets and transactions' offsets compared with what was durable when the
  broker sent them. **early**: those that were not.

## Power cuts

"""
TABLE = """| commit | seeds | states posix | states ext4 | findings | answers | early | CPU a state |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
NONE = "No run has been written down yet.\n"


def page(counts: list[dict[str, Any]]) -> str:
    """The page."""
    rows = [
        f"| `{row['commit']}` | {row['seeds']} | {row['states'].get('posix', 0):,} | {row['states'].get('ext4', 0):,} "
        f"| {row['findings']} | {row['audited']:,} | {row['early']} | {row['cpu_s_per_state']:.2f} s |\n"
        for row in counts
    ]
    return HEAD + (TABLE + "".join(rows) if rows else NONE)


def load() -> list[dict[str, Any]]:
    return list(json.loads(COUNTS.read_text())) if COUNTS.exists() else []


def add(commit: str, summary: dict[str, Any]) -> None:
    """Writes down what was done for a commit, and the page."""
    rows = [row for row in load() if row["commit"] != commit]
    rows.append({"commit": commit, **summary})
    COUNTS.write_text(json.dumps(rows, indent=1) + "\n")
    write_page()


def write_page() -> None:
    PAGE.write_text(page(load()), encoding="utf-8")
