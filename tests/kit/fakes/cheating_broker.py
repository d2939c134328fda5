"""A broker for transactions in a hundred lines with one selectable fault, which the checkers must find.

    FAULTS   forgotten-sequence    a batch that is sent again is stored again
             lso-ahead             the last stable offset is the log's end
             aborted-forgotten     a reader gets no list of aborted transactions
             half-committed        a commit marker reaches one partition, the others get an abort marker
             commit-forgotten      an acknowledged commit is an abort in truth
             lso-back              a restart forgets which transactions have ended
             pending-offset-lost   the position in a transaction is not applied by its commit
             pending-offset-kept   the position in a transaction is applied although it is aborted
             double-owner          two members of a generation are given the same partition
             position-ahead        an assignment begins at a position that was never committed

`play` runs a seeded workload against it, keeping the ledgers that the real workload keeps. One thread.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from tests.kit.checkers.ledger import Read, ReadRecord, Verdict
from tests.kit.checkers.transaction_ledger import (
    Assignment,
    Outcome,
    Transaction,
    TransactionLedger,
    by_partition,
    judge_copy,
    judge_live,
    judge_ownership,
    judge_positions,
    judge_stable_offsets,
)

PARTITION_COUNT = 3


@dataclass
class Entry:
    """A record, or a marker (transaction None)."""

    record: ReadRecord
    transaction: Transaction | None


@dataclass
class ModelBroker:
    """Partitions of one topic, and positions of one group."""

    fault: str = ""
    partitions: list[list[Entry]] = field(default_factory=lambda: [[] for _ in range(PARTITION_COUNT)])
    decided: dict[tuple[Transaction, int], bool] = field(default_factory=dict)  # (transaction, partition) → committed
    sequences: set[tuple[bytes, int]] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    pending: dict[Transaction, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    stable_floor: list[int] = field(default_factory=lambda: [0] * PARTITION_COUNT)

    def append(self, partition: int, transaction: Transaction, key: bytes, value: bytes) -> None:
        if (key, partition) in self.sequences and self.fault != "forgotten-sequence":
            return
        self.sequences.add((key, partition))
        log = self.partitions[partition]
        log.append(Entry(ReadRecord(len(log), key, value), transaction))

    def add_position(self, transaction: Transaction, partition: int, position: int) -> None:
        self.pending[transaction][partition] = position

    def end(self, transaction: Transaction, commit: bool) -> None:
        for partition, log in enumerate(self.partitions):
            if any(entry.transaction is transaction for entry in log):
                kept = commit and not (self.fault == "half-committed" and partition > 0)
                self.decided[transaction, partition] = kept and self.fault != "commit-forgotten"
                log.append(Entry(ReadRecord(len(log), None, None), None))
        pending = self.pending.pop(transaction, {})
        if (commit and self.fault != "pending-offset-lost") or (not commit and self.fault == "pending-offset-kept"):
            self.positions.update(pending)

    def restart(self) -> None:
        if self.fault == "lso-back":
            self.stable_floor = [-10] * PARTITION_COUNT

    def stable(self, partition: int) -> int:
        log = self.partitions[partition]
        if self.fault == "lso-ahead":
            return len(log)
        undecided = (
            entry.record.offset
            for entry in log
            if entry.transaction is not None and (entry.transaction, partition) not in self.decided
        )
        return max(0, min(undecided, default=len(log)) + self.stable_floor[partition])

    def fetch(self, partition: int, offset: int) -> list[ReadRecord]:
        """Committed records from an offset to the last stable one."""
        return [
            entry.record
            for entry in self.partitions[partition][offset : self.stable(partition)]
            if entry.transaction is not None
            and (self.fault == "aborted-forgotten" or self.decided.get((entry.transaction, partition), True))
        ]

    def read(self) -> Read:
        return {partition: self.fetch(partition, 0) for partition in range(PARTITION_COUNT)}


def play(fault: str, seed: int, step_count: int = 200) -> dict[str, Verdict]:
    """Producers, a reader that follows, a copy with positions, a group: the verdict on each."""
    return {
        **play_producers(ModelBroker(fault), random.Random(seed), step_count),
        "copy": play_copy(ModelBroker(fault), random.Random(seed), step_count),
        **play_group(fault, random.Random(seed), step_count),
    }


def play_producers(broker: ModelBroker, chance: random.Random, step_count: int) -> dict[str, Verdict]:
    ledger = TransactionLedger()
    running: dict[int, Transaction] = {}
    live: list[tuple[int, ReadRecord]] = []
    followed = [0] * PARTITION_COUNT
    samples: list[tuple[int, int, int]] = []
    for step in range(step_count):
        producer = chance.randrange(3)
        if producer not in running:
            running[producer] = ledger.begin(producer)
        transaction = running[producer]
        for _ in range(chance.randint(1, 4)):
            partition = chance.randrange(PARTITION_COUNT)
            _, key, value = ledger.next_record(transaction, partition, 20)
            for _ in range(chance.choice([1, 1, 1, 2])):  # now and then the answer is lost, and it is sent again
                broker.append(partition, transaction, key, value)
        if chance.random() < 0.4:
            commit = chance.random() < 0.75
            broker.end(transaction, commit)
            told = Outcome.COMMITTED if commit else Outcome.ABORTED
            ledger.end(transaction, told if chance.random() < 0.9 else Outcome.UNKNOWN)
            del running[producer]
        if step == step_count // 2:
            broker.restart()
        partition = chance.randrange(PARTITION_COUNT)
        stable = broker.stable(partition)
        samples.append((partition, stable, len(broker.partitions[partition])))
        live += [(partition, record) for record in broker.fetch(partition, followed[partition])]
        followed[partition] = max(followed[partition], stable)
    for transaction in running.values():
        broker.end(transaction, False)
        ledger.end(transaction, Outcome.ABORTED)
    final = broker.read()
    return {
        "ledger": ledger.judge(final),
        "live": judge_live(by_partition(live), final),
        "stable": judge_stable_offsets(samples),
    }


def play_copy(broker: ModelBroker, chance: random.Random, step_count: int) -> Verdict:
    """One copier that reads from its position, writes, commits both together, aborts now and then, and dies."""
    source = {partition: [b"%d/%d" % (partition, i) for i in range(step_count)] for partition in range(PARTITION_COUNT)}
    for number in range(step_count):
        behind = [part for part in source if broker.positions.get(part, 0) < len(source[part])]
        if not behind:
            break
        partition = chance.choice(behind)
        start = broker.positions.get(partition, 0)
        values = source[partition][start : start + chance.randint(1, 20)]
        transaction = Transaction(number)
        for value in values:
            key = b"%d:" % number + value
            broker.append(partition, transaction, key, value)
        broker.add_position(transaction, partition, start + len(values))
        broker.end(transaction, chance.random() < 0.75)
    return judge_copy(source, broker.read(), broker.positions)


def play_group(fault: str, chance: random.Random, step_count: int) -> dict[str, Verdict]:
    """Members join and leave; each generation reassigns the partitions and continues from the committed positions."""
    assignments: list[Assignment] = []
    given: dict[int, set[int]] = defaultdict(set)
    positions = dict.fromkeys(range(PARTITION_COUNT), 0)
    for generation in range(step_count // 10):
        members = [f"m{number}" for number in range(chance.randint(1, 4))]
        dealt: dict[str, set[int]] = defaultdict(set)
        for partition in range(PARTITION_COUNT):
            dealt[members[(partition + generation) % len(members)]].add(partition)
        if fault == "double-owner" and len(members) > 1:
            dealt[members[0]] = dealt[members[1]] = set(range(PARTITION_COUNT))
        assignments += [Assignment(generation, member, frozenset(dealt[member])) for member in members]
        for partition in range(PARTITION_COUNT):
            start = positions[partition] + (3 if fault == "position-ahead" else 0)
            read = range(start, start + chance.randint(0, 30))
            given[partition].update(read)
            if read and chance.random() < 0.8:
                positions[partition] = read[-1] + 1
    return {"owners": judge_ownership(assignments), "positions": judge_positions(given, positions)}
