"""Remembers transactions and how they ended, and judges what readers saw of them.

Records name themselves as in `tests.kit.checkers.ledger`. To the ways in which a plain log can be wrong (lost, doubled,
reordered, changed, moved, invented) transactions add:

    aborted    a record of an aborted transaction was given to a reader of committed ones
    part       some records of a transaction are there, others are not
    early      a reader saw a record that no later read has at that place: it was not decided yet
    skipped    a reader missed a record that a later read has before one that the reader saw
    backwards  the last stable offset went back
    ahead      the last stable offset lies beyond the log's end
    offset     the position committed with the output is not where the input ends
    owners     a partition had two owners in one generation of a group
    unread     a position was committed beyond a record that no member had been given

Ledgers are thread-safe; the judging functions are pure.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.kit.checkers.ledger import Identity, Read, ReadRecord, Verdict, make_key, make_value, parse_record


class Outcome(Enum):
    """The outcome that the client saw."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # it died, or got no response: all of it is there, or none


@dataclass(eq=False)
class Transaction:
    """Records that are visible together or never."""

    producer: int
    identities: list[Identity] = field(default_factory=list)
    outcome: Outcome = Outcome.OPEN


class TransactionLedger:
    """What transactional producers sent to one topic, and how each transaction ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Counter[tuple[int, int]] = Counter()
        self._transactions: list[Transaction] = []

    def begin(self, producer: int) -> Transaction:
        transaction = Transaction(producer)
        with self._lock:
            self._transactions.append(transaction)
        return transaction

    def next_record(self, transaction: Transaction, partition: int, size: int) -> tuple[Identity, bytes, bytes]:
        """Identity, key and value of the next record to send in a transaction."""
        identity = self.sent(transaction, partition)
        value = make_value(identity, size)
        return identity, make_key(identity, value), value

    def sent(self, transaction: Transaction, partition: int) -> Identity:
        """The next record, of which no more is wanted than its name: another process has sent it."""
        with self._lock:
            sequence = self._next[transaction.producer, partition]
            self._next[transaction.producer, partition] += 1
            identity = Identity(transaction.producer, partition, sequence)
            transaction.identities.append(identity)
        return identity

    def end(self, transaction: Transaction, outcome: Outcome) -> None:
        with self._lock:
            transaction.outcome = outcome

    def count(self, outcome: Outcome) -> int:
        """Transactions that ended so."""
        with self._lock:
            return sum(transaction.outcome is outcome for transaction in self._transactions)

    def committed_now(self) -> set[Transaction]:
        """Those that have been committed up to now."""
        with self._lock:
            return {transaction for transaction in self._transactions if transaction.outcome is Outcome.COMMITTED}

    def at(self, committed: set[Transaction]) -> TransactionLedger:
        """The same transactions, of which no more is sure than was committed at some moment (`committed_now`)."""
        ledger = TransactionLedger()
        with self._lock:
            ledger._next = Counter(self._next)
            for each in self._transactions:
                unsure = each.outcome is Outcome.COMMITTED and each not in committed
                ledger._transactions.append(
                    Transaction(each.producer, list(each.identities), Outcome.UNKNOWN if unsure else each.outcome)
                )
        return ledger

    def judge(self, read: Read) -> Verdict:
        """Judges a read of committed records, from the log's start to its end, taken when nothing was open any more."""
        with self._lock:
            transactions = list(self._transactions)
            sent = sum(self._next.values())
        owner = {identity: transaction for transaction in transactions for identity in transaction.identities}
        verdict = Verdict(sent_count=sent, read_count=sum(map(len, read.values())))
        verdict.acknowledged_count = sum(len(t.identities) for t in transactions if t.outcome is Outcome.COMMITTED)
        places = _places(verdict, read, owner)
        for transaction in transactions:
            _judge_transaction(verdict, transaction, places)
        _judge_order(verdict, places)
        return verdict


def _places(
    verdict: Verdict, read: Read, owner: Mapping[Identity, Transaction]
) -> dict[Identity, list[tuple[int, int]]]:
    """(partition, offset) of every record that is one of ours; what is none is a finding."""
    places: dict[Identity, list[tuple[int, int]]] = defaultdict(list)
    for partition, records in read.items():
        for record in records:
            identity = parse_record(record)
            if isinstance(identity, str):
                verdict.add("changed", f"{partition}@{record.offset}: {identity}")
            elif identity not in owner:
                verdict.add("invented", f"{partition}@{record.offset}: {identity}")
            else:
                places[identity].append((partition, record.offset))
                if partition != identity.partition:
                    verdict.add("moved", f"{identity} in partition {partition} at {record.offset}")
    return places


def _judge_transaction(
    verdict: Verdict, transaction: Transaction, places: Mapping[Identity, list[tuple[int, int]]]
) -> None:
    found = [identity for identity in transaction.identities if places.get(identity)]
    missing = [identity for identity in transaction.identities if not places.get(identity)]
    for identity in found:
        if len(places[identity]) > 1:
            verdict.add("doubled", f"{identity} at {places[identity]}")
    if transaction.outcome is Outcome.COMMITTED:
        for identity in missing:
            verdict.add("lost", f"{identity} of a committed transaction")
    elif transaction.outcome is Outcome.ABORTED:
        for identity in found:
            verdict.add("aborted", f"{identity} at {places[identity]}")
    if found and missing:
        verdict.add("part", f"{found[0]} is there, {missing[0]} is not ({len(found)}, {len(missing)} of each)")


def _judge_order(verdict: Verdict, places: Mapping[Identity, list[tuple[int, int]]]) -> None:
    by_source: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for identity, found in places.items():
        by_source[identity.producer, identity.partition].append((identity.sequence, found[0][1]))
    for (producer, partition), pairs in by_source.items():
        pairs.sort()
        for (sequence, offset), (later, later_offset) in itertools.pairwise(pairs):
            if later_offset <= offset:
                verdict.add("reordered", f"producer {producer} partition {partition}: {later} before {sequence}")


def judge_live(live: Read, final: Read) -> Verdict:
    """Check what a read-committed reader got during the run against a read at the end.

    For each partition `live` must be a contiguous part of `final`.
    """
    verdict = Verdict(read_count=sum(map(len, live.values())))
    for partition, records in live.items():
        by_offset = {record.offset: record for record in final.get(partition, ())}
        for record in records:
            if by_offset.get(record.offset) != record:
                verdict.add("early", f"partition {partition} offset {record.offset}: {parse_record(record)}")
        if records:
            seen = {record.offset for record in records}
            between = range(records[0].offset, records[-1].offset + 1)
            for offset in sorted(by_offset):
                if offset in between and offset not in seen:
                    verdict.add("skipped", f"partition {partition} offset {offset}")
        for before, after in itertools.pairwise(records):
            if after.offset <= before.offset:
                verdict.add("reordered", f"partition {partition}: {after.offset} after {before.offset}")
    return verdict


def judge_stable_offsets(samples: Iterable[tuple[int, int, int]]) -> Verdict:
    """(partition, last stable offset, high watermark) as seen one after the other, over restarts."""
    verdict = Verdict()
    last: dict[int, int] = {}
    for partition, stable, high in samples:
        verdict.read_count += 1
        if stable < last.get(partition, 0):
            verdict.add("backwards", f"partition {partition}: {stable} after {last[partition]}")
        if stable > high:
            verdict.add("ahead", f"partition {partition}: {stable}, the log ends at {high}")
        last[partition] = max(stable, last.get(partition, 0))
    return verdict


def judge_copy(source: Mapping[int, Sequence[bytes]], copy: Read, positions: Mapping[int, int]) -> Verdict:
    """A copy made with transactions: values of `copy` must be those of `source`, one for one, in order.

    `positions` are the offsets committed with the output, where offset i of a partition is its value i.
    """
    verdict = Verdict(read_count=sum(map(len, copy.values())), sent_count=sum(map(len, source.values())))
    for partition, values in source.items():
        records = copy.get(partition, ())
        copies, known = Counter(record.value for record in records), Counter(values)
        for value, count in copies.items():
            if value is None or not known[value]:
                verdict.add("invented", f"partition {partition}: {value!r}")
            elif count > known[value]:
                verdict.add("doubled", f"partition {partition}: {value!r}, {count} times")
        for value, count in known.items():
            if copies[value] < count:
                verdict.add("lost", f"partition {partition}: {value!r}")
        if verdict and [record.value for record in records] != list(values):
            verdict.add("reordered", f"partition {partition}: the right records in another order")
        if positions.get(partition, 0) != len(values):
            verdict.add("offset", f"partition {partition}: {positions.get(partition)} of {len(values)}")
    return verdict


@dataclass(frozen=True)
class Assignment:
    """The partitions assigned to a member in a generation."""

    generation: int
    member: str
    partitions: frozenset[int]


def judge_ownership(assignments: Iterable[Assignment]) -> Verdict:
    """Each partition has one owner a generation."""
    verdict = Verdict()
    owner: dict[tuple[int, int], str] = {}
    for assignment in assignments:
        verdict.read_count += 1
        for partition in assignment.partitions:
            other = owner.setdefault((assignment.generation, partition), assignment.member)
            if other != assignment.member:
                verdict.add(
                    "owners", f"generation {assignment.generation} partition {partition}: {other}, {assignment.member}"
                )
    return verdict


def judge_positions(given: Mapping[int, set[int]], positions: Mapping[int, int]) -> Verdict:
    """Every offset below a committed position was given to some member (at least once)."""
    verdict = Verdict()
    for partition, position in positions.items():
        verdict.read_count += position
        for offset in range(position):
            if offset not in given.get(partition, set()):
                verdict.add("unread", f"partition {partition} offset {offset}, committed {position}")
    return verdict


def by_partition(records: Iterable[tuple[int, ReadRecord]]) -> dict[int, list[ReadRecord]]:
    """Groups what a reader got in the order in which it got it."""
    found: dict[int, list[ReadRecord]] = defaultdict(list)
    for partition, record in records:
        found[partition].append(record)
    return found
