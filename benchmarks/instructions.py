"""How many instructions does the broker execute for a request? `python -m benchmarks.instructions [TREE]...`

The broker runs under callgrind; a C client sends a case's requests twice, and those of the second time are counted,
whatever else the machine does; but a broker's own threads execute some 150,000 a second, so that a busy machine, which
takes longer, adds to each request. With several trees (checkouts with a built `.venv`) each figure is printed with its
ratio to the first tree's. Two runs of one tree differ by 0.3 %; with acks=all by 10 %, since the clock decides how many
requests share a flush.

`--rules 1000` counts each tree a second time, with an authoriser and so many rules, three of which are about what the
client does; the ratio is to the same tree without. `--metrics` counts each tree a second time with a metrics listener,
`--quotas` with quotas of bytes and time for any user that no client reaches.

A fetch is one of many on its connection: what a connection costs, which is as much as five fetches, is a case of its
own, or else a change of it would look like one of fetch.

Requests are five in flight: a worker that waits for the only one in flight turns as often as the clock decides.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pairs import broker_of, commit_of
from benchmarks.path.harness import ROOT, client
from kafkalite.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.log.journal import acls_change, quotas_change
from kafkalite.log.offline_journal import open_journal
from kafkalite.model import ANONYMOUS
from kafkalite.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER, Change
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER

READY_TIMEOUT_S = 600
RESPONSE_SIZE = 1 << 20
BATCH_SIZE_MAX = 128_000
"""Of the batches that are fetched."""
UNREACHED = 1e12
"""Bytes a second, and percent of a thread."""

Load = Callable[[int, int], None]  # (port, count of requests)


def produce(records: int, acks: int = 1) -> Load:
    """Requests of one batch of so many records of 200 bytes."""

    def load(port: int, count: int) -> None:
        options = ["--count", count, "--size", 200, "--records", records, "--in-flight", 5, "--acks", acks]
        client("raw_bench", "produce", "--port", port, "--topic", f"counted-{records}-{acks + 1}", *options)

    return load


def fetch(port: int, count: int) -> None:
    """Answers of up to 1 MiB, of what the produce case with 500 records wrote: the same bytes, read twice."""
    for _ in range(2):
        options = ["--topic", "counted-500-2", "--count", count // 2 * (RESPONSE_SIZE - BATCH_SIZE_MAX)]
        client("raw_bench", "fetch", "--port", port, *options)


def connect(port: int, count: int) -> None:
    """Connections that come, are served, and go: the next one when the broker has closed its side of the last."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


CASES: dict[str, tuple[Load, int]] = {
    "produce 1 record": (produce(1), 10_000),
    "produce 50 records": (produce(50), 5_000),
    "produce 500 records": (produce(500), 1_000),
    "fetch": (fetch, 400),
    "connection": (connect, 400),
    "produce 1 record, acks=all": (produce(1, -1), 1_000),
}


class Counted:
    """The broker of a checkout under callgrind."""

    def __init__(self, tree: Path, rules: int = 0, *, metrics: bool = False, quotas: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kafkalite-instructions-"))
        self._out = self.folder / "callgrind.out"
        prefix = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={self._out}", "--quiet")
        settings = {"metrics.listeners": "http://127.0.0.1:0"} if metrics else {}
        if rules:
            settings["authorizer.class.name"] = STANDARD_AUTHORIZER
            write_rules(self.folder / "data", rules)
        if quotas:
            write_quotas(self.folder / "data")
        self.broker = replace(broker_of(tree, self.folder, settings), prefix=prefix)
        self.broker.start(timeout_s=READY_TIMEOUT_S)

    def close(self) -> None:
        self.broker.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def per_request(self, load: Load, count: int) -> float:
        """Instructions of the second of two equal loads."""
        load(self.broker.port, count)
        self._control("--zero")
        load(self.broker.port, count)
        before = set(self.folder.glob("callgrind.out.*"))
        self._control("--dump")
        (dump,) = set(self.folder.glob("callgrind.out.*")) - before
        # Not its "totals": after the first --zero these still have some of what was executed before it, at the start.
        found = re.search(r"^summary: (\d+)", dump.read_text(), re.MULTILINE)
        if found is None:
            raise RuntimeError(f"{dump} has no summary")
        return int(found[1]) / count

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self.broker.pid)], check=True, capture_output=True)


def write_rules(data_dir: Path, count: int, asker: str = ANONYMOUS, topics: str = "counted-") -> None:
    """Rules in a data directory that is not used yet: of the asker's topics, which begin so, and of others'."""

    def rule(name: str, who: str, operation: AclOperation, pattern: PatternType = PatternType.LITERAL) -> Acl:
        return Acl(ResourceType.TOPIC, name, pattern, who, "*", operation, AclPermission.ALLOW)

    needed = (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE)
    acls = [rule(topics, asker, operation, PatternType.PREFIXED) for operation in needed]
    acls += [rule(f"topic-{i}", f"User:u{i % 10}", AclOperation.READ) for i in range(count - len(acls))]
    with open_journal(str(data_dir)) as journal:
        journal.record(acls_change(acls, []))


def write_quotas(data_dir: Path) -> None:
    """Quotas of any user, which no client reaches, in a data directory that is not used yet."""
    keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
    with open_journal(str(data_dir)) as journal:
        journal.record(quotas_change([Change(((USER, None),), key, UNREACHED) for key in keys]))


def counts_of(tree: Path, names: list[str], scale: float, **options: Any) -> dict[str, float]:
    """Instructions a request of each case; the options are those of `Counted`."""
    counted = Counted(tree, **options)
    try:
        return {name: counted.per_request(CASES[name][0], int(CASES[name][1] * scale)) for name in names}
    finally:
        counted.close()


def variants(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each tree is counted with, beside nothing: (what it is called, options of `Counted`)."""
    if arguments.rules:
        yield f"{arguments.rules} rules", {"rules": arguments.rules}
    if arguments.metrics:
        yield "metrics", {"metrics": True}
    if arguments.quotas:
        yield "quotas", {"quotas": True}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.instructions", description=__doc__.split("\n\n")[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="checkouts with a .venv (default: this)")
    parser.add_argument("--only", help="cases, by semicolons")
    parser.add_argument("--rules", type=int, default=0, metavar="COUNT", help="a second time with so many")
    parser.add_argument("--metrics", action="store_true", help="a second time with metrics.listeners")
    parser.add_argument("--quotas", action="store_true", help="a second time with quotas that are not reached")
    parser.add_argument("--scale", type=float, default=1.0, help="of the requests of each case")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    names = arguments.only.split(";") if arguments.only else list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))} (of {', '.join(CASES)})")
    if "fetch" in names and "produce 500 records" not in names[: names.index("fetch")]:
        parser.error("fetch reads what 'produce 500 records' wrote: name that before")
    yardstick: dict[str, float] = {}
    for tree in arguments.trees:
        own: dict[str, float] = {}
        for name, found in counts_of(tree.resolve(), names, arguments.scale).items():
            ratio = f"  x {found / yardstick[name]:.4f}" if name in yardstick else ""
            yardstick.setdefault(name, found)
            print(f"{commit_of(tree):10} {name:28} {found:12,.0f} instructions a request{ratio}", flush=True)
            own[name] = found
        for what, options in variants(arguments):
            for name, found in counts_of(tree.resolve(), names, arguments.scale, **options).items():
                text = f"{found:12,.0f} with {what}  x {found / own[name]:.4f}"
                print(f"{commit_of(tree):10} {name:28} {text}", flush=True)


if __name__ == "__main__":
    main()
