"""Compare the responses to a cluster's clients with its logs once it is in sync again. No I/O.

A client's process writes what happens to it as events, one JSON object each:

    sent          producer, place, count, transaction (or None)   records with the next names are on their way
    acknowledged  producer, records [[place, sequence, offset]]
    failed        producer, records [[place, sequence]], error     the client gave up: they are there or not
    begun         producer, transaction
    ended         producer, transaction, outcome                   committed, aborted, unknown
    given         reader, group (or None), records [[place, offset, key in hex]]   in the order in which they came
    swept         reader                                           it has read all that is committed, to the end
    spoiled       reader, text                                     a record whose checksums do not fit
    committed     group, at, positions {place: offset}             a commit that was acknowledged at this time
    refused       id, epoch, place, sequence                       a producer's batch was out of order: it raised its
                                                                   epoch, and resent the unacknowledged records
    asked         group, at, positions {place: offset}             the positions returned to a request sent at this time

Times are seconds of the machine's monotonic clock, which all its processes share. A transaction's number is unique for
its producer. A reader is one stretch of reading, without a rebalance in it.

A record that appears twice in a log is no finding if all of this is proved: its producer has sent it under two epochs,
so that no broker could know it; it had raised its epoch on a refusal; and the refusal was right, for the record before
the refused one is not in its log. librdkafka does so with records that were not answered, in all partitions at once,
when a batch after a failed one was refused (its issue 4953, seen with Apache Kafka's brokers). They are counted.

To the findings of `tests.kit.checkers` a cluster adds:

    went back   a group's position was below one whose commit had been acknowledged before the request
    replicas    two replicas differ below the high watermark, or one ends before it
    epochs      a replica's leader epochs do not match its batches
    hanging     a transaction stayed undecided
    unseen      one who read everything was not given a record that is there
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.cluster import plan
from tests.cluster.replicas import Written
from tests.kit.checkers.ledger import EXAMPLE_COUNT_MAX, Identity, Ledger, Read, ReadRecord, Verdict, parse_record
from tests.kit.checkers.transaction_ledger import (
    Outcome,
    Transaction,
    TransactionLedger,
    judge_copy,
    judge_live,
    judge_positions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Event = dict[str, Any]


class Final(NamedTuple):
    """The records below the logs' high watermarks, by place, once nothing is in flight."""

    plain: Read
    committed: Read
    """Records of transactions that were committed, in all topics that are written so."""
    positions: Mapping[str, Mapping[int, int]]
    """Of groups, by place."""
    written: Mapping[int, Mapping[int, Written]] = {}
    """The producer and sequence number of each record of `plain`, by place and offset."""


class Refusal(NamedTuple):
    """The error that this batch's first record does not follow the producer's last one in the log."""

    producer_id: int
    producer_epoch: int
    place: int
    sequence: int


class Told(NamedTuple):
    """Positions of a group, by place: acknowledged at, or asked for since, this time."""

    at: float
    positions: dict[int, int]


class History:
    """All responses to clients. Not thread-safe."""

    def __init__(self) -> None:
        self.plain = Ledger()
        self.transactional = TransactionLedger()
        self.acknowledged = 0
        """Records: plain ones, and those of committed transactions."""
        self.renumbered: list[str] = []
        """Records that their client has sent as new ones, as judge() has found them."""
        self._refusals: list[Refusal] = []
        self._transactions: dict[tuple[int, int], Transaction] = {}
        self._given: dict[str, dict[int, list[ReadRecord]]] = defaultdict(lambda: defaultdict(list))
        self._given_to: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._committed: dict[str, list[Told]] = defaultdict(list)
        self._asked: dict[str, list[Told]] = defaultdict(list)
        self._spoiled: list[str] = []
        self._swept: list[str] = []

    def take(self, event: Event) -> None:
        """The next event of some client; those of one client in their order."""
        takers = {
            "sent": self._take_sent,
            "acknowledged": self._take_acknowledged,
            "failed": self._take_failed,
            "begun": self._take_begun,
            "ended": self._take_ended,
            "given": self._take_given,
            "swept": self._take_swept,
            "spoiled": self._take_spoiled,
            "committed": self._take_committed,
            "refused": self._take_refused,
            "asked": self._take_asked,
        }
        takers[event["event"]](event)

    @property
    def commits(self) -> dict[str, int]:
        """How many were acknowledged, by group."""
        return {group: len(told) for group, told in self._committed.items()}

    def judge(self, final: Final) -> list[str]:
        """Every way in which `final` does not fit, a sentence a kind, with examples."""
        renumbered = find_renumbered(final, self._refusals)
        self.renumbered = [str(identity) for identity in renumbered]
        found = [*sentences("plain", self.plain.judge(final.plain, renumbered=renumbered))]
        found += sentences("transactions", self.transactional.judge(_of(final.committed, plan.TRANSACTIONAL)))
        everything = {**final.plain, **final.committed}
        for reader, records in self._given.items():
            found += sentences(reader, judge_live(_keys(records), _keys(everything)))
        for reader in self._swept:
            found += sentences(reader, judge_sweep(self._given[reader], everything))
        for group in plan.GROUPS:
            positions = final.positions.get(group, {})
            found += sentences(group, judge_positions(self._given_to[group], positions))
        found += sentences(plan.COPIERS, _judge_copies(final))
        went_back: dict[str, Verdict] = defaultdict(Verdict)
        for group, told in self._committed.items():
            asked = [*self._asked[group], Told(float("inf"), {**final.positions[group]})]
            texts = judge_told(told, asked).findings["went back"]
            went_back[plan.kind_of(group)].findings["went back"] += [f"{group}: {text}" for text in texts]
        for kind, verdict in went_back.items():
            found += sentences(kind, verdict)
        spoiled = Verdict()
        for text in self._spoiled:
            spoiled.add("changed", text)
        return [*found, *sentences("readers", spoiled)]

    def _take_sent(self, event: Event) -> None:
        producer, place = event["producer"], event["place"]
        for _ in range(event["count"]):
            if event["transaction"] is None:
                self.plain.sent(producer, place)
            else:
                self.transactional.sent(self._transactions[producer, event["transaction"]], place)

    def _take_acknowledged(self, event: Event) -> None:
        for place, sequence, offset in event["records"]:
            self.plain.acknowledge(Identity(event["producer"], place, sequence), offset)
            self.acknowledged += 1

    def _take_failed(self, event: Event) -> None:
        for place, sequence in event["records"]:
            self.plain.fail(Identity(event["producer"], place, sequence), event["error"])

    def _take_begun(self, event: Event) -> None:
        producer = event["producer"]
        self._transactions[producer, event["transaction"]] = self.transactional.begin(producer)

    def _take_ended(self, event: Event) -> None:
        transaction = self._transactions[event["producer"], event["transaction"]]
        outcome = Outcome(event["outcome"])
        self.transactional.end(transaction, outcome)
        if outcome is Outcome.COMMITTED:
            self.acknowledged += len(transaction.identities)

    def _take_given(self, event: Event) -> None:
        for place, offset, key in event["records"]:
            self._given[event["reader"]][place].append(ReadRecord(offset, bytes.fromhex(key), None))
            if event["group"] is not None:
                self._given_to[event["group"]][place].add(offset)

    def _take_swept(self, event: Event) -> None:
        self._swept.append(event["reader"])

    def _take_spoiled(self, event: Event) -> None:
        self._spoiled.append(f"{event['reader']}: {event['text']}")

    def _take_committed(self, event: Event) -> None:
        self._committed[event["group"]].append(_told(event))

    def _take_refused(self, event: Event) -> None:
        self._refusals.append(Refusal(event["id"], event["epoch"], event["place"], event["sequence"]))

    def _take_asked(self, event: Event) -> None:
        self._asked[event["group"]].append(_told(event))


def _told(event: Event) -> Told:
    return Told(event["at"], {int(place): offset for place, offset in event["positions"].items()})


def _of(read: Read, topics: Iterable[str]) -> Read:
    wanted = set(plan.places(*topics))
    return {place: records for place, records in read.items() if place in wanted}


def _keys(read: Read) -> dict[int, list[ReadRecord]]:
    """The same records by their keys, which name them and what they bear."""
    return {
        place: [ReadRecord(record.offset, record.key, None) for record in records] for place, records in read.items()
    }


def _judge_copies(final: Final) -> Verdict:
    """The copies against what lies before the copiers' positions."""
    positions = final.positions.get(plan.COPIERS, {})
    source = {
        place: [record.value or b"" for record in records if record.offset < positions.get(place, 0)]
        for place, records in final.plain.items()
    }
    copies = {plan.topic_of(place)[1]: records for place, records in _of(final.committed, [plan.COPY]).items()}
    return judge_copy(source, copies, positions)


def find_renumbered(final: Final, refusals: Iterable[Refusal]) -> list[Identity]:
    """Plain records that are there more than once since their client has sent them as new ones, and had to."""
    known = {place: set(rows.values()) for place, rows in final.written.items()}
    raised = {
        (refusal.producer_id, refusal.producer_epoch)
        for refusal in refusals
        if refusal.place in known
        and refusal.sequence > 0
        and Written(refusal.producer_id, refusal.producer_epoch, refusal.sequence - 1) not in known[refusal.place]
    }

    def had_to(first: Written, second: Written) -> bool:
        epochs = range(first.producer_epoch, second.producer_epoch)
        return first.producer_id == second.producer_id and bool(epochs) and all((first[0], e) in raised for e in epochs)

    found = []
    for place, records in final.plain.items():
        copies: dict[Identity, list[Written]] = defaultdict(list)
        for record in records if place in final.written else ():
            identity = parse_record(record)
            if isinstance(identity, Identity):
                copies[identity].append(final.written[place][record.offset])
        found += [
            identity
            for identity, rows in copies.items()
            if len(rows) > 1 and all(itertools.starmap(had_to, itertools.pairwise(rows)))
        ]
    return found


def judge_sweep(given: Read, final: Read) -> Verdict:
    """Check that a client that read all topics to their ends got every record."""
    verdict = Verdict()
    for place, records in final.items():
        verdict.read_count += len(records)
        seen = {record.offset for record in given.get(place, ())}
        for record in records:
            if record.offset not in seen:
                verdict.add("unseen", f"{plan.topic_of(place)}: offset {record.offset}")
    return verdict


def judge_told(committed: Iterable[Told], asked: Iterable[Told]) -> Verdict:
    """Check that a group's positions only grow: none is below a commit acknowledged before the request."""
    verdict = Verdict()
    highest: dict[int, int] = {}
    waiting = sorted(committed, key=lambda told: told.at, reverse=True)
    for question in sorted(asked, key=lambda told: told.at):
        while waiting and waiting[-1].at < question.at:
            for place, position in waiting.pop().positions.items():
                highest[place] = max(position, highest.get(place, 0))
        for place, position in highest.items():
            verdict.read_count += 1
            if question.positions.get(place, 0) < position:
                told = question.positions.get(place)
                verdict.add("went back", f"{plan.topic_of(place)}: {told} after {position} was acknowledged")
    return verdict


def sentences(subject: str, verdict: Verdict) -> Iterator[str]:
    """A verdict's findings, one a kind."""
    for kind, texts in verdict.findings.items():
        if texts:
            yield f"{kind}: {subject}: {len(texts)}, such as {'; '.join(texts[:EXAMPLE_COUNT_MAX])}"
