"""Write docs/proof.md from the counts that each family of fault injection has recorded."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.processes.broker import REPOSITORY


class Family(NamedTuple):
    """Campaigns of one kind. `path`: the file of its counts."""

    title: str
    path: Path
    variant: str = ""
    """The key of a row that names the variant, or nothing."""
    variants: tuple[str, ...] = ("",)
    """All variants that exist."""


BROKERS = ("kafkalite", "java", "mixed", "exchanged", "upgraded", "mixed, 3 controllers")
TESTS = REPOSITORY / "tests"
FAMILIES = {
    "power": Family("Power cuts", Path(__file__).with_name("proof.json")),
    "kills": Family("kill -9 during changes of ACLs, users and quotas", TESTS / "kills" / "proof.json"),
    "cluster": Family(
        "Faults of a replicated cluster",
        TESTS / "cluster" / "proof.json",
        "brokers",
        BROKERS,
    ),
    "fuzz": Family("Mutated input before authentication", TESTS / "fuzz" / "proof.json", "build", ("debug", "asan")),
    "failures": Family("Failing records and members killed at any step", TESTS / "simulation" / "failures.json"),
    "upgrades": Family("Upgrade and rollback under load", TESTS / "directories" / "proof.json", "older", ("0.1.0",)),
    "loads": Family(
        "kill -9 of loads",
        TESTS / "kills" / "loads.json",
        "load",
        ("native, local", "spark, local", "native, hdfs", "spark, hdfs"),
    ),
}
PAGE = REPOSITORY / "docs" / "proof.md"

HEAD = """# Fault-injection results

Each table shows how often a fault-injection test ran at a commit, and its findings. `python -m tests.power page`
generates this page.

## Power cuts

`make prove FAMILY=power` records every file change, sync and answer of a broker under load. It then builds the
directories that a power cut could leave, starts a broker on each, and compares the broker's data with the recorded
answers. `tests/power/README.md` describes the method and both file system models (posix and ext4).

- **states**: simulated power cuts, for each model.
- **replicas**: simulated power cuts of a broker in a cluster whose leaders change, lose data and return. The broker
  must rejoin, and its logs must match those of its leaders.
- **findings**: promised data was missing, unexpected data was present, or the broker hung or did not start.
- **answers**: acknowledged records, offsets and transactional offsets.
- **early**: answers that the broker sent before the data was durable.

"""
TABLE = """| commit | seeds | states posix | states ext4 | replicas | findings | answers | early | CPU a state |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
KILLS = """
## kill -9 during changes of ACLs, users and quotas

`make prove FAMILY=kills` kills the broker while six clients change ACLs, users and quotas. It also kills a quarter of
the restarted brokers during their start. Afterwards, every acknowledged change must be present. Every other change must
be complete or absent.

- **in doubt**: changes without an answer when the broker died. **kept**: those that were complete after the restart.

"""
KILLS_TABLE = """| commit | kills | changes acknowledged | in doubt | kept | findings |
| --- | --- | --- | --- | --- | --- |
"""
CLUSTER = """
## Faults of a replicated cluster

`make prove FAMILY=cluster BROKERS=kafkalite` runs three brokers and an Apache Kafka controller, with three replicas and
`min.insync.replicas=2`. The clients are idempotent and transactional producers, groups of both protocols, and an
exactly-once copier. Brokers and the controller are killed, stopped and frozen. Network links fail in one or both
directions. `tests/cluster/README.md` describes the method.

- After each fault, all replicas are compared byte by byte. After every ten faults, every answer is compared with the
  logs.
- **brokers**: `java` is the control with Apache Kafka alone, and `mixed` includes one Apache Kafka broker. `exchanged`
  switches brokers between Kafka and kafkalite on the same directories. `upgraded` switches them between an older and
  the tested commit.
- **acknowledged**: records, including those of committed transactions. **commits**: offset commits.
- **findings**: an acknowledged record was lost, duplicated, reordered or changed; an aborted record or part of a
  transaction was visible; a group offset moved back; replicas differed; a client did not continue.
- **renumbered**: duplicates that a broker cannot detect, because librdkafka sent them again as new records. They are
  not findings.

The finding of `ff97358232`: two librdkafka groups committed nothing for three minutes after their coordinator had
moved to another broker and back. No record was lost. The finding has not recurred.

"""
CLUSTER_TABLE = """\
| commit | brokers | faults | acknowledged | transactions | aborted | commits | renumbered | findings |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
FUZZ = """
## Mutated input before authentication

`make prove FAMILY=fuzz BUILT=asan` sends randomly mutated TLS handshakes, SASL frames and tokens, and HTTP requests to
a debug build or to one with the address sanitizer. A run is listed if the broker survived, logged no traceback or
sanitizer report, served valid requests in between, grew by less than 300 MiB, and stopped cleanly.

"""
FUZZ_TABLE = """| commit | build | minutes | exchanges TLS | SASL | HTTP |
| --- | --- | --- | --- | --- | --- |
"""
FAILURES = """
## Failing records and members killed at any step

`make prove FAMILY=failures SEEDS=0-9999` runs the core of `kafkalite.failures` in a simulation. Each seed is one
sequence of faults. Members are killed between any two steps, evicted and replaced. Transactions are refused, and
commits arrive late. **broken** counts the seeds in which a guarantee was broken.

"""
FAILURES_TABLE = """| commit | seeds | steps | broken |
| --- | --- | --- | --- |
"""
FAILURES_KILLS = """
Real processes were killed too (November 2026):

- Three members processed 100,002 records, of which 2 % always fail. Members were killed 200 times, the broker 10 times.
  Each record was processed or became a dead letter, exactly once. With `order="key"`, 2 records that were in progress
  at three kills became dead letters too.
- The four programs of `examples/failures/` ran with each client and kind of handler: 69 runs of 1,800 orders, with 276
  kills of the program and 138 of the broker. Each order was processed or became a dead letter, exactly once.
- A group waited for the retries of another group 1,000 times, with 40 kills of their members. The waiting group never
  processed a record before the record had an outcome in the other group.
"""
UPGRADES = """
## Upgrade and rollback under load

`make prove FAMILY=upgrades` starts an older release and the tested commit in turn on one data directory. Some turns end
with a clean stop, the others with kill -9. Producers and consumers run the whole time. At the end, both releases must
return exactly the acknowledged records, in order, and the consumer group must have received each record.

- **turns**: starts of either broker. **given again**: records that the group received a second time, because it had
  not committed them before a kill or a stop.

"""
UPGRADES_TABLE = """\
| commit | older | turns | acknowledged | read | transactions | aborted | given again | findings |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
LOADS = """
## kill -9 of loads

`make prove FAMILY=loads ENGINE=native PLACE=local KILLS=200` loads a growing topic into Parquet files, kills the load
and runs it again. Half of the kills are at chosen steps of the load, the others at random moments. After each kill,
DuckDB must find every record below the published positions exactly once. After every 20 kills, a load runs to its end.
DuckDB must then find every good record exactly once, and every bad record must have exactly one dead letter.

- **steps**: different steps at which a load died. **ended**: loads that ended before they were killed.
- **counted**: all records that DuckDB counted after kills.

"""
LOADS_TABLE = """| commit | load | kills | steps | at random | ended | counted | findings |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
NONE = "No run has been recorded yet.\n"


Rows = list[dict[str, Any]]


def posix_of(states: dict[str, int]) -> int:
    """The states that POSIX allows, aimed ones among them."""
    return states.get("posix", 0) + states.get("series", 0)


def page(power: Rows, kills: Rows, cluster: Rows, fuzz: Rows, failures: Rows, upgrades: Rows, loads: Rows) -> str:
    """The page."""
    rows = [
        f"| `{row['commit']}` | {row['seeds']} | {posix_of(row['states']):,} | {row['states'].get('ext4', 0):,} "
        f"| {sum(row.get('replicas', {}).values()):,} "
        f"| {row['findings']} | {row['audited']:,} | {row['early']} | {row['cpu_s_per_state']:.2f} s |\n"
        for row in power
    ]
    kill_rows = [
        f"| `{row['commit']}` | {row['kills']} | {row['acknowledged']:,} | {row['in_doubt']:,} | {row['kept']:,} "
        f"| {row['findings']} |\n"
        for row in kills
    ]
    cluster_rows = [
        f"| `{row['commit']}` | {row['brokers']} | {row['faults']} | {row['acknowledged']:,} | {row['transactions']:,} "
        f"| {row['aborted']:,} | {row['commits']:,} | {row.get('renumbered', 0)} | {row['findings']} |\n"
        for row in cluster
    ]
    fuzz_rows = [
        f"| `{row['commit']}` | {row['build']} | {row['minutes']:g} "
        f"| {row['tls']:,} | {row['sasl']:,} | {row['http']:,} |\n"
        for row in fuzz
    ]
    failure_rows = [
        f"| `{row['commit']}` | {row['seeds']:,} | {row['steps']:,} | {row['broken']} |\n" for row in failures
    ]
    upgrade_rows = [
        f"| `{row['commit']}` | {row['older']} | {row['turns']} | {row['acknowledged']:,} | {row['read']:,} "
        f"| {row['transactions']:,} | {row['aborted']:,} | {row['given_again']:,} | {row['findings']} |\n"
        for row in upgrades
    ]
    load_rows = [
        f"| `{row['commit']}` | {row['load']} | {row['kills']} | {row['steps']} "
        f"| {row['at_random']} | {row['completed']} | {row['checked']:,} | {row['findings']} |\n"
        for row in loads
    ]
    found = HEAD + (TABLE + "".join(rows) if rows else NONE)
    found += KILLS + (KILLS_TABLE + "".join(kill_rows) if kill_rows else NONE)
    found += CLUSTER + (CLUSTER_TABLE + "".join(cluster_rows) if cluster_rows else NONE)
    found += FUZZ + (FUZZ_TABLE + "".join(fuzz_rows) if fuzz_rows else NONE)
    found += FAILURES + (FAILURES_TABLE + "".join(failure_rows) if failure_rows else NONE) + FAILURES_KILLS
    found += UPGRADES + (UPGRADES_TABLE + "".join(upgrade_rows) if upgrade_rows else NONE)
    return found + LOADS + (LOADS_TABLE + "".join(load_rows) if load_rows else NONE)


def load(family: str) -> list[dict[str, Any]]:
    """The counts of a family, a row a commit, or a commit and what of it was tried."""
    path = FAMILIES[family].path
    return list(json.loads(path.read_text())) if path.exists() else []


def add(family: str, commit: str, summary: dict[str, Any], seeds: str) -> None:
    """Record what was done for a commit, when and on which machine, and write the page."""
    path, variant = FAMILIES[family].path, FAMILIES[family].variant
    key = (commit, summary.get(variant))
    rows = [row for row in load(family) if (row["commit"], row.get(variant)) != key]
    run = {"seeds": seeds, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}
    rows.append({"commit": commit, **summary, "run": run})
    path.write_text(json.dumps(rows, indent=1) + "\n")
    write_page()


def machine() -> str:
    """Return what matters of this machine for a result: processor, memory, Linux and Python."""
    model = re.search(r"(?m)^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    linux = ".".join(platform.release().split(".")[:2])
    processor = model[1] if model is not None else platform.machine()
    return f"{os.cpu_count()} × {processor}, {memory:.0f} GB, Linux {linux}, Python {platform.python_version()}"


def write_page() -> None:
    PAGE.write_text(page(*map(load, FAMILIES)), encoding="utf-8")
