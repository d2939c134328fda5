"""Count the instructions that the broker executes per request: `python -m benchmarks.instructions [TREE]...`

The broker runs under callgrind. A C client sends the requests of a case twice, and the second time is counted. So other
load on the machine has little effect, except that the broker's own threads execute some 150,000 instructions per
second; a slower run adds more of them to each request. `--workers` counts only the network workers. Use it when a few
percent matter and no other thread does the work.

With several trees (checkouts with a built `.venv`), each figure is printed with its ratio to the first tree's. Two runs
of one tree differ by 0.3 %; with acks=all by 10 %, because the clock decides how many requests share a flush.

    --rules 1000    counts each tree a second time, with an authorizer and 1,000 ACLs, three of which concern the client
    --metrics       the same with a metrics listener
    --quotas        the same with quotas of bytes and time for any user, which no client reaches

The ratio is then to the same tree without the option.

A fetch is one of many on its connection. The cost of the connection and its first Metadata request, which is that of a
dozen fetches, is subtracted by a shorter load. Five requests are in flight: with only one, the clock would decide how
often a worker's loop turns.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.pairs import broker_of, commit_of
from benchmarks.path.harness import ROOT, client
from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.base.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER, Change
from kafkalite.broker.log.journal import acls_change, quotas_change
from kafkalite.broker.log.offline_journal import open_journal
from kafkalite.model import ANONYMOUS
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.harness import wire

READY_TIMEOUT_S = 600
RESPONSE_SIZE = 1 << 20
BATCH_SIZE_MAX = 128_000
"""Of the batches that are fetched."""
ONE_RECORD_BATCH_SIZE = 270
"""Of a record of 200 bytes."""
SESSION_TOPIC, SESSION_PARTITIONS = "counted-session", 100
ASKED_TOPIC = "counted-asked"
TOPIC_ALREADY_EXISTS = 36
IN_FLIGHT = 5
WORKERS_OWN = "on_readable"
"""In the name of a function that network workers alone execute."""
UNREACHED = 1e12
"""Bytes a second, and percent of a thread."""

Load = Callable[[int, int], None]  # (port, count of requests)


def produce(records: int, acks: int = 1) -> Load:
    """Return a load of requests with one batch of this many records of 200 bytes."""

    def load(port: int, count: int) -> None:
        options = ["--count", count, "--size", 200, "--records", records, "--in-flight", IN_FLIGHT, "--acks", acks]
        client("raw_bench", "produce", "--port", port, "--topic", f"counted-{records}-{acks + 1}", *options)

    return load


def fetch(port: int, count: int) -> None:
    """Fetch responses of up to 1 MiB, written by the produce case with 500 records. The same bytes are read twice."""
    for _ in range(2):
        options = ["--topic", "counted-500-2", "--count", count // 2 * (RESPONSE_SIZE - BATCH_SIZE_MAX)]
        client("raw_bench", "fetch", "--port", port, *options)


def fetch_little(port: int, count: int) -> None:
    """Fetch responses of one record each, written by the produce case with one record."""
    options = ["--topic", "counted-1-2", "--max-bytes", 1, "--count", count * ONE_RECORD_BATCH_SIZE]
    client("raw_bench", "fetch", "--port", port, *options)


def fetch_nothing(port: int, count: int) -> None:
    """Ask a session over SESSION_PARTITIONS empty partitions for news, as clients do."""
    with wire.Connection(port) as connection:
        assert connection.create_topic(SESSION_TOPIC, SESSION_PARTITIONS) in (0, TOPIC_ALREADY_EXISTS)

        def asked(session: int, epoch: int, topics: bytes) -> bytes:
            limits = wire.i32(-1) + wire.i32(0) + wire.i32(1) + wire.i32(RESPONSE_SIZE) + wire.i8(0)
            return limits + wire.i32(session) + wire.i32(epoch) + topics + wire.array([]) + wire.string("")

        each = [
            wire.i32(i) + wire.i32(-1) + wire.i64(0) + wire.i64(-1) + wire.i32(RESPONSE_SIZE)
            for i in range(SESSION_PARTITIONS)
        ]
        opened = connection.call(
            wire.FETCH, 11, asked(0, 0, wire.array([wire.string(SESSION_TOPIC) + wire.array(each)]))
        )
        session = struct.unpack_from(">i", opened, 6)[0]
        assert session != 0
        for epoch in range(1, count + IN_FLIGHT + 1):
            if epoch <= count:
                connection.send(wire.FETCH, 11, asked(session, epoch, wire.array([])))
            if epoch > IN_FLIGHT:
                assert connection.receive()[1][4:6] == b"\0\0"


def metadata(port: int, count: int) -> None:
    """Ask for the only partition of a topic, as a producer does."""
    body = wire.array([wire.string(ASKED_TOPIC)]) + wire.i8(0) + wire.i8(0) + wire.i8(0)
    with wire.Connection(port) as connection:
        assert connection.create_topic(ASKED_TOPIC, 1) in (0, TOPIC_ALREADY_EXISTS)
        pipeline(connection, wire.METADATA, 8, body, count)


def offset_commit(port: int, count: int) -> None:
    """Commit one partition's offset for a group without members."""
    body = wire.offset_commit_body("counted", ASKED_TOPIC, [(0, 0)])
    with wire.Connection(port) as connection:
        assert connection.create_topic(ASKED_TOPIC, 1) in (0, TOPIC_ALREADY_EXISTS)
        pipeline(connection, wire.OFFSET_COMMIT, 2, body, count)


def pipeline(connection: wire.Connection, api_key: int, version: int, body: bytes, count: int) -> None:
    """Send a request `count` times, IN_FLIGHT at a time. Fails if a response has an error."""
    answers: set[bytes] = set()
    for sent in range(count + IN_FLIGHT):
        if sent < count:
            connection.send(api_key, version, body)
        if sent >= IN_FLIGHT:
            answers.add(connection.receive()[1])
    reference = connection.call(api_key, version, body)
    assert answers == {reference}, "all answers are the same"


def connect(port: int, count: int) -> None:
    """Open and close connections, each after the broker has closed its side of the previous one."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


@dataclass(frozen=True)
class Case:
    load: Load
    count: int
    without: int = 0
    """Requests of a shorter load, whose instructions are taken off: connections, and what comes first on them."""
    needs: str = ""
    """The case whose records it reads."""


CASES: dict[str, Case] = {
    "produce 1 record": Case(produce(1), 10_000),
    "produce 50 records": Case(produce(50), 5_000),
    "produce 500 records": Case(produce(500), 1_000),
    "fetch": Case(fetch, 400, 100, "produce 500 records"),
    "fetch 1 record": Case(fetch_little, 5_000, 1_000, "produce 1 record"),
    "fetch of 100 partitions, nothing new": Case(fetch_nothing, 500, 100),
    "metadata of one topic": Case(metadata, 3_000, 500),
    "offset commit": Case(offset_commit, 200, 50),
    "connection": Case(connect, 400),
    "produce 1 record, acks=all": Case(produce(1, -1), 1_000),
}


START = "start"
"""From the process's begin to when it is ready. Counted first, and by all threads."""


class Counted:
    """The broker of a checkout under callgrind."""

    def __init__(
        self, tree: Path, rules: int = 0, *, workers: bool = False, metrics: bool = False, quotas: bool = False
    ) -> None:
        self._workers = workers
        self.folder = Path(tempfile.mkdtemp(prefix="kafkalite-instructions-"))
        self._out = self.folder / "callgrind.out"
        prefix = (
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            f"--callgrind-out-file={self._out}",
            "--quiet",
        )
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

    def start(self) -> float:
        """Return the instructions of all threads until the broker was ready, and of its work until this call."""
        return float(self._dumped(everything=True))

    def per_request(self, case: Case) -> float:
        """Return the instructions per request of a case, whose requests were sent once before."""
        case.load(self.broker.port, case.count)
        counted = self._counted(case.load, case.count)
        if case.without:
            counted -= self._counted(case.load, case.without)
        return counted / (case.count - case.without)

    def _counted(self, load: Load, count: int) -> int:
        """Return the instructions of all threads, or only of the workers, during a load."""
        self._control("--zero")
        load(self.broker.port, count)
        return self._dumped()

    def _dumped(self, *, everything: bool = False) -> int:
        before = set(self.folder.glob("callgrind.out.*"))
        self._control("--dump")
        total = 0
        for dump in set(self.folder.glob("callgrind.out.*")) - before:
            text = dump.read_text()
            # Not its "totals": after the first --zero these still have some of what the start executed.
            found = re.search(r"^summary: (\d+)", text, re.MULTILINE)
            if found is None:
                raise RuntimeError(f"{dump} has no summary")
            if everything or not self._workers or WORKERS_OWN in text:
                total += int(found[1])
        return total

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self.broker.pid)], check=True, capture_output=True)


def write_rules(data_dir: Path, count: int, asker: str = ANONYMOUS, topics: str = "counted-") -> None:
    """Write ACLs to an unused data directory: for the client's topics, by prefix, and for other users' topics."""

    def rule(name: str, who: str, operation: AclOperation, pattern: PatternType = PatternType.LITERAL) -> Acl:
        return Acl(ResourceType.TOPIC, name, pattern, who, "*", operation, AclPermission.ALLOW)

    needed = (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE)
    acls = [rule(topics, asker, operation, PatternType.PREFIXED) for operation in needed]
    acls += [rule(f"topic-{i}", f"User:u{i % 10}", AclOperation.READ) for i in range(count - len(acls))]
    with open_journal(str(data_dir), make=True) as journal:
        journal.record(acls_change(acls, []))


def write_quotas(data_dir: Path) -> None:
    """Write quotas of any user, which no client reaches, to an unused data directory."""
    keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
    with open_journal(str(data_dir), make=True) as journal:
        journal.record(quotas_change([Change(((USER, None),), key, UNREACHED) for key in keys]))


def counts_of(tree: Path, names: list[str], scale: float, **options: Any) -> dict[str, float]:
    """Return the instructions per request of each case. `options` are those of `Counted`."""
    counted = Counted(tree, **options)
    try:
        return {
            name: counted.start() if name == START else counted.per_request(scaled(CASES[name], scale))
            for name in names
        }
    finally:
        counted.close()


def scaled(case: Case, scale: float) -> Case:
    return replace(case, count=int(case.count * scale), without=int(case.without * scale))


def variants(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variants in which each tree is counted again: (name, options of `Counted`)."""
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
    parser.add_argument("--workers", action="store_true", help="count what network workers execute, nothing else")
    parser.add_argument("--scale", type=float, default=1.0, help="of the requests of each case")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    names = arguments.only.split(";") if arguments.only else [START, *CASES]
    if unknown := set(names) - {START, *CASES}:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; choose from {START}, {', '.join(CASES)}")
    if START in names[1:]:
        parser.error(f"{START!r} is counted first; put it before the other cases")
    for i, name in enumerate(names):
        if name != START and CASES[name].needs not in ("", *names[:i]):
            parser.error(f"{name!r} reads what {CASES[name].needs!r} writes; put that case first")
    yardstick: dict[str, float] = {}
    for tree in arguments.trees:
        own: dict[str, float] = {}
        count = functools.partial(counts_of, tree.resolve(), names, arguments.scale, workers=arguments.workers)
        for name, found in count().items():
            ratio = f"  x {found / yardstick[name]:.4f}" if name in yardstick else ""
            yardstick.setdefault(name, found)
            print(f"{commit_of(tree):10} {name:36} {found:12,.0f} instructions{ratio}", flush=True)
            own[name] = found
        for what, options in variants(arguments):
            for name, found in count(**options).items():
                text = f"{found:12,.0f} with {what}  x {found / own[name]:.4f}"
                print(f"{commit_of(tree):10} {name:36} {text}", flush=True)


if __name__ == "__main__":
    main()
