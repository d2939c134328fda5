"""Write docs/proof.md from the counts that each family of fault injection has recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.processes.broker import REPOSITORY

COUNTS = {
    "power": Path(__file__).with_name("proof.json"),
    "kills": REPOSITORY / "tests" / "kills" / "proof.json",
    "cluster": REPOSITORY / "tests" / "cluster" / "proof.json",
    "fuzz": REPOSITORY / "tests" / "fuzz" / "proof.json",
    "failures": REPOSITORY / "tests" / "simulation" / "failures.json",
}
"""By family."""
PAGE = REPOSITORY / "docs" / "proof.md"

HEAD = """# Fault-injection results

Each table shows what a fault-injection test tried at a commit, and its findings. `python -m tests.power page` generates
this page.

## Power cuts

`make prove FAMILY=power` records every file change, sync and answer of a broker under load. It then builds directories
that a power cut could leave, starts a broker on each, and compares its contents with the answers.
`tests/power/README.md` describes the method and both file system models.

- **states**: crash states per model.
- **replicas**: crash states of a broker in a cluster whose leaders change, lose data and return. The broker must
  rejoin, and its logs must match those of its leaders.
- **findings**: promised data was missing, unexpected data was present, or the broker hung or did not start.
- **answers**: acknowledged records, offsets and transactional offsets.
- **early**: answers that the broker sent before the data was durable.

"""
TABLE = """| commit | seeds | states posix | states ext4 | replicas | findings | answers | early | CPU a state |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
KILLS = """
## kill -9 during changes of ACLs, users and quotas

`make prove FAMILY=kills` runs six clients that change ACLs, users and quotas, and kills the broker. A quarter of the
following starts are killed too. Then every acknowledged change must be present, and every other change complete or
absent. Authorization and passwords must match the broker's answers.

- **in doubt**: changes in flight when the broker died. **kept**: changes in doubt that were complete after the start.

"""
KILLS_TABLE = """| commit | kills | changes acknowledged | in doubt | kept | findings |
| --- | --- | --- | --- | --- | --- |
"""
CLUSTER = """
## Faults of a replicated cluster

`make prove FAMILY=cluster BROKERS=kafkalite` runs three brokers and an Apache Kafka controller, with three replicas and
`min.insync.replicas=2`. The load is idempotent and transactional producers, groups of both protocols, and an
exactly-once copier. Brokers and the controller are killed, stopped and frozen; links fail in one or both directions.
`tests/cluster/README.md` describes the method.

- A fault is counted if at least 500 records were acknowledged since the previous fault, all replicas were in sync
  before and after it, and every client continued.
- After each fault, all replicas are compared byte by byte. After every ten faults, every answer is compared with the
  logs.
- **brokers**: `java` is the control, and `mixed` includes one Apache Kafka broker.
- **acknowledged**: records, including those of committed transactions. **commits**: offset commits.
- **findings**: an acknowledged record lost, duplicated, reordered or changed; an aborted record or part of a
  transaction visible; a group offset that moved back; replicas that differ; a client that did not continue.
- **renumbered**: duplicates that librdkafka correctly sent as new records, which a broker cannot detect. They are not
  findings.

The finding of `ff97358232`: two librdkafka groups committed nothing for three minutes after their coordinator had
moved to another broker and back within eight seconds. Nothing was lost, a Java group in the same partition continued,
and the finding has not recurred. `tests/cluster/README.md` explains a part of it.

"""
CLUSTER_TABLE = """\
| commit | brokers | faults | acknowledged | transactions | aborted | commits | renumbered | findings |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
FUZZ = """
## Mutated input before authentication

`make prove FAMILY=fuzz BUILT=asan` sends randomly mutated TLS handshakes, SASL frames and tokens, and HTTP requests to
a debug build or to one with the address sanitizer. A run is listed if the broker survived, logged no traceback or
sanitizer report, served correct clients in between, did not grow, and stopped cleanly.

"""
FUZZ_TABLE = """| commit | build | minutes | exchanges TLS | SASL | HTTP |
| --- | --- | --- | --- | --- | --- |
"""
FAILURES = """
## Failing records and members killed at any step

`make prove FAMILY=failures SEEDS=0-9999` simulates the core of `kafkalite.failures` by seed. Members are killed
between any two steps, evicted and replaced; transactions are refused and commits arrive late. The seeds cover all
strategies and options. **broken** counts seeds with a broken promise.

"""
FAILURES_TABLE = """| commit | seeds | steps | broken |
| --- | --- | --- | --- |
"""
FAILURES_KILLS = """
Real processes were killed too, on two cores with other load (November 2026):

- Three members processed 100,002 records, 2 % of which always fail, with 200 kills of members and 10 of the broker.
  Each record was processed or became a dead letter, once. With `order="key"`, 2 records that were in progress at three
  kills became dead letters too.
- A member processed 1,000 records and was killed three times, in 20 runs for five strategies and four clients. All
  records were processed, and 189 to 355 calls of the handler were repeats.
- The four programs of `examples/failures/` ran with each client and kind of handler: 69 runs of 1,800 orders, with 276
  kills of the program and 138 of the broker. Each order was processed or became a dead letter, once. One run of an
  earlier version stopped, because librdkafka never returned from a call
  ([librdkafka#5456](https://github.com/confluentinc/librdkafka/issues/5456)); members now give up such a call.
- A group waited for the retries of another group 1,000 times, with 40 kills of either group. It never processed a
  record before the other group had decided on it.
"""
NONE = "No run has been recorded yet.\n"


Rows = list[dict[str, Any]]


def posix_of(states: dict[str, int]) -> int:
    """The states that POSIX allows, aimed ones among them."""
    return states.get("posix", 0) + states.get("series", 0)


def page(power: Rows, kills: Rows, cluster: Rows, fuzz: Rows, failures: Rows) -> str:
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
    found = HEAD + (TABLE + "".join(rows) if rows else NONE)
    found += KILLS + (KILLS_TABLE + "".join(kill_rows) if kill_rows else NONE)
    found += CLUSTER + (CLUSTER_TABLE + "".join(cluster_rows) if cluster_rows else NONE)
    found += FUZZ + (FUZZ_TABLE + "".join(fuzz_rows) if fuzz_rows else NONE)
    return found + FAILURES + (FAILURES_TABLE + "".join(failure_rows) if failure_rows else NONE) + FAILURES_KILLS


def load(family: str) -> list[dict[str, Any]]:
    """The counts of a family, a row a commit, or a commit and what of it was tried."""
    return list(json.loads(COUNTS[family].read_text())) if COUNTS[family].exists() else []


def add(family: str, commit: str, summary: dict[str, Any]) -> None:
    """Writes down what was done for a commit, and the page."""
    tried = ("build", "brokers")
    key = (commit, *map(summary.get, tried))
    rows = [row for row in load(family) if (row["commit"], *map(row.get, tried)) != key]
    rows.append({"commit": commit, **summary})
    COUNTS[family].write_text(json.dumps(rows, indent=1) + "\n")
    write_page()


def write_page() -> None:
    PAGE.write_text(page(*map(load, COUNTS)), encoding="utf-8")
