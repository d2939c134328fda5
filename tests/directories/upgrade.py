"""Upgrade and rollback under load: `python -m tests.directories.upgrade [COMMIT] --turns 5 --records 20000`.

The brokers of COMMIT and of this tree serve one data directory in turn, the older one first. Each turn lasts until
clients have made enough progress; then the broker stops or is killed. Idempotent and transactional producers, a reader
of committed records and a group run the whole time, and the ledgers judge what the directory holds at the end. The
counts go to docs/proof.md. Ends with status 1 if anything is found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.directories.__main__ import COMMIT, ENDS, Directory, tree_of
from tests.kills.campaign import commit
from tests.kit.checkers.ledger import Ledger, Verdict, compare_reads
from tests.kit.checkers.transaction_ledger import Outcome, TransactionLedger, by_partition, judge_live
from tests.kit.harness.load import RECONNECTING, Producers, create_topic, quiet, read_all
from tests.kit.harness.transactional_load import Follower, TransactionalProducers, read_committed
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.power import proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kit.checkers.ledger import Read

PLAIN, TRANSACTIONAL = "upgraded", "upgraded-transactions"
PARTITIONS = 4
GROUP = "upgraded-readers"
TOPIC_SETTINGS = {"segment.bytes": "200000", "retention.ms": "-1"}
PROGRESS_S = 300.0
"""How long clients may take for a turn's progress."""


class Reader(threading.Thread):
    """Members of a classic group, one after the other: what they were given, and which commits were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.given: Counter[tuple[int, int]] = Counter()
        """By (partition, offset)."""
        self.acknowledged: dict[int, int] = defaultdict(int)
        """The highest committed position, by partition."""
        self.problems: list[str] = []
        self.compared = 0
        """How often a new member's start was compared with the acknowledged commits."""
        self.stopping = threading.Event()
        self.next_member = threading.Event()
        self._options = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **RECONNECTING,
        }
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.next_member.clear()
            consumer = Consumer(self._options, logger=quiet)
            consumer.subscribe([PLAIN], on_assign=self._assigned)
            while not self.stopping.is_set() and not self.next_member.is_set():
                messages = [each for each in consumer.consume(500, 0.1) if each.error() is None]
                self.given.update((each.partition(), each.offset()) for each in messages)
                if messages:
                    self._commit(consumer)
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException:
            return  # the broker is away: the next commit includes this one
        for part in committed or ():
            if part.error is None:
                self.acknowledged[part.partition] = max(self.acknowledged[part.partition], part.offset)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """A broker that took over must not know an older position than the group was promised."""
        self.compared += 1
        for part in consumer.committed(partitions, 60):
            if max(part.offset, 0) < self.acknowledged[part.partition]:
                promised = self.acknowledged[part.partition]
                self.problems.append(f"partition {part.partition}: {part.offset}, acknowledged were {promised}")

    def close(self) -> None:
        """Stop, and leave the group."""
        self.stopping.set()
        self.join(60)


@dataclass
class Result:
    """Counts and findings of a run."""

    turns: list[str] = field(default_factory=list)
    """The tree of each turn."""
    acknowledged: int = 0
    read: int = 0
    transactions: int = 0
    aborted: int = 0
    given: int = 0
    """Records that the group was given, each counted once."""
    given_again: int = 0
    """How often it was given one more than once: it had not committed its position."""
    findings: list[str] = field(default_factory=list)

    def note(self, what: str, verdict: Verdict) -> None:
        """Keep a verdict's findings."""
        if not verdict:
            self.findings.append(f"{what}: {verdict}")


@dataclass
class Clients:
    """The load on one address, from `start` to `finish`."""

    bootstrap: str
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    transactions: TransactionLedger = field(default_factory=TransactionLedger)

    def start(self) -> None:
        """Start all clients."""
        self.producers = Producers(
            self.bootstrap, PLAIN, self.ledger, PARTITIONS, seed=self.seed, sizes=(40, 400), rate_per_s=700
        )
        self.transactional = TransactionalProducers(
            self.bootstrap, TRANSACTIONAL, self.transactions, PARTITIONS, producer_count=2, seed=self.seed
        )
        self.producers.start()
        self.transactional.start()
        self.reader = Reader(self.bootstrap)
        self.follower = Follower(self.bootstrap, TRANSACTIONAL, PARTITIONS)

    def progress(self) -> tuple[int, int, int, int]:
        """Acknowledged records, committed transactions, records given to the group and to the follower."""
        committed = self.transactions.count(Outcome.COMMITTED)
        return self.ledger.acknowledged_count, committed, len(self.reader.given), len(self.follower.found)

    def wait_progress(self, records: int) -> None:
        """Return when `records` more are acknowledged and given, and a tenth as many transactional ones."""
        share = max(1, records // 10)
        more = (records, max(1, share // 20), records, share)
        wanted = [now + each for now, each in zip(self.progress(), more, strict=True)]

        def missing() -> list[int]:
            return [each - now for now, each in zip(self.progress(), wanted, strict=True) if now < each]

        wait_until(lambda: not missing(), PROGRESS_S, "progress of all clients", 0.1)

    def finish_writing(self) -> None:
        """Return when everything that was sent has been answered."""
        self.producers.stop()
        self.transactional.stop()

    def close(self) -> None:
        """End the readers."""
        self.reader.close()
        self.follower.close()


def run(path: Path, trees: Sequence[Path], ends: Sequence[str], records: int, seed: int = 1) -> Result:
    """Serve one directory by each tree in turn. `ends`: how two turns end, then the next two, `stop` or `kill`."""
    result = Result([tree.name if tree != REPOSITORY else "this tree" for tree in trees])
    directory = Directory(path)
    clients = Clients(f"127.0.0.1:{directory.port}", seed)
    broker = directory.broker(trees[0])
    try:
        for topic in (PLAIN, TRANSACTIONAL):
            create_topic(directory.port, topic, PARTITIONS, TOPIC_SETTINGS)
        clients.start()
        clients.wait_progress(records)
        for number, tree in enumerate(trees[1:]):
            getattr(broker, ends[number // 2 % len(ends)])()
            broker = directory.broker(tree)
            clients.reader.next_member.set()
            clients.wait_progress(records)
        clients.finish_writing()
        plain, committed = _reads(directory.port)
        _wait_for_readers(clients, plain, committed)
        clients.close()
        _judge(result, clients, plain, committed)
        _judge_positions(result, clients, plain)
        broker.stop()
        for tree in dict.fromkeys(trees):
            broker = directory.broker(tree)
            for first, second in zip((plain, committed), _reads(directory.port), strict=True):
                result.note(f"read again by {tree.name}", compare_reads(first, second))
            broker.stop()
        assert "Traceback" not in broker.log(), broker.log()[-4000:]
    finally:
        broker.close()
    return result


def _reads(port: int) -> tuple[Read, Read]:
    return read_all(port, PLAIN, PARTITIONS), read_committed(port, TRANSACTIONAL, PARTITIONS)


def _wait_for_readers(clients: Clients, plain: Read, committed: Read) -> None:
    """Wait until both readers have been given the last record of each partition."""
    last = {(partition, rows[-1].offset) for partition, rows in committed.items() if rows}

    def at_the_end() -> bool:
        seen = {(partition, record.offset) for partition, record in list(clients.follower.found)}
        there = all((partition, rows[-1].offset) in clients.reader.given for partition, rows in plain.items() if rows)
        return there and last <= seen

    wait_until(at_the_end, PROGRESS_S, "the readers' end", 0.2)


def _judge(result: Result, clients: Clients, plain: Read, committed: Read) -> None:
    """Compare the logs with the answers that clients got."""
    result.acknowledged, result.read = clients.ledger.acknowledged_count, sum(map(len, plain.values()))
    result.transactions = clients.transactions.count(Outcome.COMMITTED)
    result.aborted = clients.transactions.count(Outcome.ABORTED)
    result.note("records", clients.ledger.judge(plain))
    result.note("transactions", clients.transactions.judge(committed))
    result.note("committed records, live", judge_live(by_partition(clients.follower.found), committed))


def _judge_positions(result: Result, clients: Clients, plain: Read) -> None:
    """The group was given every record, and its positions never went back."""
    reader = clients.reader
    there = {(partition, record.offset) for partition, rows in plain.items() for record in rows}
    result.given, result.given_again = len(reader.given), sum(reader.given.values()) - len(reader.given)
    if reader.compared < len(result.turns):
        result.findings.append(f"{reader.compared} starts of members in {len(result.turns)} turns")
    result.findings += [f"the group's position went back: {text}" for text in reader.problems]
    if unread := sorted(there - reader.given.keys()):
        result.findings.append(f"{len(unread)} records were not given to the group, such as {unread[0]}")
    if strange := sorted(reader.given.keys() - there):
        result.findings.append(f"{len(strange)} records were given to the group alone, such as {strange[0]}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.directories.upgrade", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("commit", nargs="?", default=COMMIT, help=f"the older commit (default: {COMMIT})")
    parser.add_argument("--turns", type=int, default=5, help="how often a broker serves the directory (default: 5)")
    parser.add_argument("--records", type=int, default=20_000, help="acknowledged in each turn (default: 20,000)")
    parser.add_argument("--end", choices=ENDS, help="one way for a broker to end (default: both)")
    parser.add_argument("--seed", type=int, default=1, help="of the producers' choices (default: 1)")
    given = parser.parse_args(arguments)
    older, tried = tree_of(given.commit), commit()
    trees = [REPOSITORY if number % 2 else older for number in range(given.turns)]
    with tempfile.TemporaryDirectory(prefix="kafkalite-upgrade-") as folder:
        result = run(Path(folder), trees, [given.end] if given.end else ENDS, given.records, given.seed)
    print(result, flush=True)
    if not tried.endswith("+"):
        older_name = "0.1.0" if given.commit == COMMIT else given.commit
        proof.add("upgrades", tried, {"older": older_name, **counts(result)}, str(given.seed))
    return 1 if result.findings else 0


def counts(result: Result) -> dict[str, Any]:
    """Return a row of docs/proof.md."""
    names = ("acknowledged", "read", "transactions", "aborted", "given", "given_again")
    numbers = {name: getattr(result, name) for name in names}
    return {"turns": len(result.turns), **numbers, "findings": len(result.findings)}


if __name__ == "__main__":
    sys.exit(main())
