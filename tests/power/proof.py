"""docs/proof.md: what was tried on which commit, from the counts in proof.json here and in tests/kills/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.processes.broker import REPOSITORY

COUNTS = {
    "power": Path(__file__).with_name("proof.json"),
    "kills": REPOSITORY / "tests" / "kills" / "proof.json",
}
"""By family."""
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
KILLS = """
## kill -9 while rules, users and quotas change

`make prove FAMILY=kills` lets six clients change rules (ACLs), users and quotas, four requests of each on the way, and
kills the broker with SIGKILL; a quarter of the starts that follow are killed, too. Then it looks: every change that was
acknowledged has to be there, every other one whole or not at all, and decisions and passwords have to be those that the
broker tells.

- **in doubt**: changes that were not acknowledged when the broker died. **kept**: those of them that were there
  afterwards, whole.

"""
KILLS_TABLE = """| commit | kills | changes acknowledged | in doubt | kept | findings |
| --- | --- | --- | --- | --- | --- |
"""
NONE = "No run has been written down yet.\n"


def page(power: list[dict[str, Any]], kills: list[dict[str, Any]]) -> str:
    """The page."""
    rows = [
        f"| `{row['commit']}` | {row['seeds']} | {row['states'].get('posix', 0):,} | {row['states'].get('ext4', 0):,} "
        f"| {row['findings']} | {row['audited']:,} | {row['early']} | {row['cpu_s_per_state']:.2f} s |\n"
        for row in power
    ]
    kill_rows = [
        f"| `{row['commit']}` | {row['kills']} | {row['acknowledged']:,} | {row['in_doubt']:,} | {row['kept']:,} "
        f"| {row['findings']} |\n"
        for row in kills
    ]
    found = HEAD + (TABLE + "".join(rows) if rows else NONE)
    return found + KILLS + (KILLS_TABLE + "".join(kill_rows) if kill_rows else NONE)


def load(family: str) -> list[dict[str, Any]]:
    """The counts of a family, a row a commit."""
    return list(json.loads(COUNTS[family].read_text())) if COUNTS[family].exists() else []


def add(family: str, commit: str, summary: dict[str, Any]) -> None:
    """Writes down what was done for a commit, and the page."""
    rows = [row for row in load(family) if row["commit"] != commit]
    rows.append({"commit": commit, **summary})
    COUNTS[family].write_text(json.dumps(rows, indent=1) + "\n")
    write_page()


def write_page() -> None:
    PAGE.write_text(page(load("power"), load("kills")), encoding="utf-8")
