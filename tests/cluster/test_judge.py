"""The judge itself: an honest history has no findings, and each planted fault has its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.cluster import plan
from tests.cluster.judge import Event, Final, History
from tests.cluster.replicas import Written
from tests.kit.checkers.ledger import Identity, ReadRecord, make_key, make_value
from tests.kit.checkers.transaction_ledger import judge_copy

SIZE = 60


@dataclass
class Play:
    """A cluster in memory: partitions are lists, and clients get correct responses."""

    seed: int
    events: list[Event] = field(default_factory=list)
    logs: dict[int, list[ReadRecord]] = field(default_factory=dict)
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.logs = {place: [] for place in plan.places(*plan.TOPICS)}
        for round_number in range(20):
            self.produce(0, chance)
            self.transact(round_number, chance)
            for group in plan.GROUPS:
                self.read(group, chance)
            self.copy(chance)

    def tell(self, event: str, **fields: object) -> None:
        self.events.append({"event": event, **fields})

    def write(self, producer: int, place: int, sequence: int) -> ReadRecord:
        identity = Identity(producer, place, sequence)
        value = make_value(identity, SIZE)
        log = self.logs[place]
        log.append(ReadRecord(log[-1].offset + 1 if log else 0, make_key(identity, value), value))
        return log[-1]

    def produce(self, producer: int, chance: random.Random) -> None:
        for place in plan.places(plan.PLAIN):
            count = chance.randrange(1, 5)
            self.tell("sent", producer=producer, place=place, count=count, transaction=None)
            begin = len(self.logs[place])
            found = [self.write(producer, place, begin + number) for number in range(count)]
            told = [[place, record.offset, record.offset] for record in found]
            self.tell("acknowledged", producer=producer, records=told)

    def transact(self, number: int, chance: random.Random) -> None:
        producer, commit = 7, number % 3 != 2
        self.tell("begun", producer=producer, transaction=number)
        for place in plan.places(*plan.TRANSACTIONAL):
            self.tell("sent", producer=producer, place=place, count=2, transaction=number)
            if commit:
                for sequence in (2 * number, 2 * number + 1):
                    self.write(producer, place, sequence)
        outcome = "committed" if commit else chance.choice(["aborted", "unknown"])
        self.tell("ended", producer=producer, transaction=number, outcome=outcome)

    def read(self, group: str, chance: random.Random) -> None:
        positions = self.positions.setdefault(group, {})
        self.ask(group)
        for place in plan.places(plan.PLAIN):
            log = self.logs[place]
            upto = chance.randrange(positions.get(place, 0), len(log)) + 1
            records = log[positions.get(place, 0) : upto]
            keyed = [[place, record.offset, (record.key or b"").hex()] for record in records]
            self.tell("given", reader=f"{group}/0", group=group, records=keyed)
            positions[place] = upto
        self.commit(group)

    def copy(self, chance: random.Random) -> None:
        positions = self.positions.setdefault(plan.COPIERS, {})
        for partition, place in enumerate(plan.places(plan.PLAIN)):
            upto = chance.randrange(positions.get(place, 0), len(self.logs[place])) + 1
            target = self.logs[plan.place_of(plan.COPY, partition)]
            for record in self.logs[place][positions.get(place, 0) : upto]:
                target.append(record._replace(offset=len(target)))
            positions[place] = upto
        self.commit(plan.COPIERS)

    def commit(self, group: str) -> None:
        self.now += 1
        told = {str(place): offset for place, offset in self.positions[group].items()}
        self.tell("committed", group=group, at=self.now, positions=told)

    def ask(self, group: str) -> None:
        self.now += 1
        told = {str(place): offset for place, offset in self.positions[group].items()}
        self.tell("asked", group=group, at=self.now, positions=told)

    def sweep(self) -> None:
        everything = [[place, r.offset, (r.key or b"").hex()] for place, log in self.logs.items() for r in log]
        self.tell("given", reader="sweep", group=None, records=everything)
        self.tell("swept", reader="sweep")

    def judge(self, written: dict[int, dict[int, Written]] | None = None) -> list[str]:
        self.history = history = History()
        for event in self.events:
            history.take(event)
        plain = {place: self.logs[place] for place in plan.places(plan.PLAIN)}
        committed = {place: self.logs[place] for place in plan.places(*plan.TRANSACTIONAL, plan.COPY)}
        return history.judge(Final(plain, committed, self.positions, written or {}))


PLAIN_PLACE = plan.place_of(plan.PLAIN, 1)
LEFT_PLACE = plan.place_of(plan.TRANSACTIONAL[0], 2)
COPY_PLACE = plan.place_of(plan.COPY, 1)
READERS = next(iter(plan.GROUPS))


def renumbered(records: list[ReadRecord]) -> list[ReadRecord]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def forgotten(play: Play) -> None:
    play.logs[PLAIN_PLACE] = renumbered(play.logs[PLAIN_PLACE][:-1])


def twice(play: Play) -> None:
    log = play.logs[PLAIN_PLACE]
    play.logs[PLAIN_PLACE] = renumbered([*log, log[-1]])


def swapped(play: Play) -> None:
    log = play.logs[PLAIN_PLACE]
    play.logs[PLAIN_PLACE] = renumbered([*log[:4], log[5], log[4], *log[6:]])


def elsewhere(play: Play) -> None:
    log = play.logs[PLAIN_PLACE]
    play.logs[PLAIN_PLACE] = [record._replace(offset=record.offset + 1) for record in log]


def spoiled(play: Play) -> None:
    log = play.logs[PLAIN_PLACE]
    log[3] = log[3]._replace(value=b"x" * SIZE)


def abort_shown(play: Play) -> None:
    aborted = {e["transaction"] for e in play.events if e["event"] == "ended" and e["outcome"] == "aborted"}
    play.write(7, LEFT_PLACE, 2 * aborted.pop())


def half_shown(play: Play) -> None:
    del play.logs[LEFT_PLACE][1:]


def shown_too_early(play: Play) -> None:
    """A reader got a record that its log lost later; no client had an acknowledgement of it."""
    play.tell("sent", producer=3, place=PLAIN_PLACE, count=1, transaction=None)
    offset = len(play.logs[PLAIN_PLACE])
    key = make_key(Identity(3, PLAIN_PLACE, 0), b"")
    play.tell("given", reader="r/1", group=None, records=[[PLAIN_PLACE, offset, key.hex()]])


def passed_over(play: Play) -> None:
    records = [[PLAIN_PLACE, r.offset, (r.key or b"").hex()] for r in play.logs[PLAIN_PLACE] if r.offset != 2]
    play.tell("given", reader="r/2", group=None, records=records)


def commit_forgotten(play: Play) -> None:
    play.positions[READERS][PLAIN_PLACE] -= 1


def told_of_less(play: Play) -> None:
    play.ask(READERS)
    play.events[-1]["positions"][str(PLAIN_PLACE)] = 1


def unread(play: Play) -> None:
    for event in play.events:
        if event["event"] == "given":
            event["records"] = [row for row in event["records"] if row[:2] != [PLAIN_PLACE, 0]]


def copied_twice(play: Play) -> None:
    log = play.logs[COPY_PLACE]
    play.logs[COPY_PLACE] = renumbered([*log, log[0]])


def copy_lost(play: Play) -> None:
    play.logs[COPY_PLACE] = renumbered(play.logs[COPY_PLACE][1:])


def swept_past(play: Play) -> None:
    play.sweep()
    del play.events[-2]["records"][-1]


def unsound_when_read(play: Play) -> None:
    play.tell("spoiled", reader="r/3", text="value differs")


FAULTS: dict[Callable[[Play], None], str] = {
    forgotten: "lost: plain",
    twice: "doubled: plain",
    swapped: "reordered: plain",
    elsewhere: "moved: plain",
    spoiled: "changed: plain",
    abort_shown: "aborted: transactions",
    half_shown: "part: transactions",
    shown_too_early: "early: r/1",
    passed_over: "skipped: r/2",
    commit_forgotten: f"went back: {READERS}",
    told_of_less: f"went back: {READERS}",
    unread: f"unread: {READERS}",
    copied_twice: f"doubled: {plan.COPIERS}",
    copy_lost: f"lost: {plan.COPIERS}",
    swept_past: "unseen: sweep",
    unsound_when_read: "changed: readers",
}


@pytest.mark.parametrize("number", range(3))
def test_honest_history_has_no_findings(number: int) -> None:
    play = Play(number)
    play.sweep()
    assert sum(map(len, play.logs.values())) > 200, "a history that shows nothing"
    assert play.judge() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_fault_is_found(fault: Callable[[Play], None]) -> None:
    play = Play(1)
    fault(play)
    assert any(text.startswith(FAULTS[fault]) for text in play.judge()), play.judge()


def test_commit_counts_only_for_those_who_ask_after_its_answer() -> None:
    play = Play(1)
    play.ask(READERS)
    play.events[-1].update(at=play.now - 1.5, positions={})  # it began to ask before the last commit's answer …
    found = play.judge()
    assert len(found) == 1  # … but after the one before
    play.events[-1].update(at=0.5)
    assert play.judge() == []


def test_transaction_of_unknown_outcome_is_there_whole_or_not_at_all() -> None:
    play = Play(1)
    unknown = next(e["transaction"] for e in play.events if e["event"] == "ended" and e["outcome"] == "unknown")
    for place in plan.places(*plan.TRANSACTIONAL):
        log = play.logs[place]
        later = [record for record in log if make_key(Identity(7, place, 2 * unknown), b"")[10:18] < record.key[10:18]]
        begin = len(log) - len(later)
        named = [
            ReadRecord(0, make_key(identity, value), value)
            for sequence in (2 * unknown, 2 * unknown + 1)
            for identity in [Identity(7, place, sequence)]
            for value in [make_value(identity, SIZE)]
        ]
        play.logs[place] = renumbered([*log[:begin], *named, *later])
    assert play.judge() == []
    play.logs[LEFT_PLACE] = renumbered([r for r in play.logs[LEFT_PLACE] if f"/{2 * unknown};".encode() not in r.value])
    assert any(text.startswith("part: ") for text in play.judge())


def sent_anew(play: Play, **changed: int) -> dict[int, dict[int, Written]]:
    """The last record of a partition appears twice, under two epochs of its producer, or as `changed` gives it."""
    place = PLAIN_PLACE
    twice(play)
    written = {
        each: {record.offset: Written(5, 0, record.offset) for record in play.logs[each]}
        for each in plan.places(plan.PLAIN)
    }
    written[place][len(play.logs[place]) - 1] = Written(changed.get("id", 5), changed.get("epoch", 1), 0)
    return written


def refused(play: Play, beyond: int) -> None:
    """In epoch 0 the producer got an out-of-order error for a batch `beyond` records past the end of
    another partition.
    """
    other = plan.place_of(plan.PLAIN, 2)
    play.tell("refused", id=5, epoch=0, place=other, sequence=len(play.logs[other]) + beyond)


def test_record_that_its_client_had_to_send_as_a_new_one_is_counted_and_no_finding() -> None:
    play = Play(1)
    written = sent_anew(play)
    refused(play, 1)
    assert play.judge(written) == []
    assert len(play.history.renumbered) == 1


@pytest.mark.parametrize(
    ("changed", "beyond"),
    [({}, None), ({}, 0), ({"epoch": 0}, 1), ({"epoch": 2}, 1), ({"id": 6}, 1)],
    ids=["nothing was refused", "it was in order", "same epoch", "an epoch between", "another producer"],
)
def test_record_that_is_there_twice_is_found_unless_all_is_proved(changed: dict[str, int], beyond: int | None) -> None:
    play = Play(1)
    written = sent_anew(play, **changed)
    if beyond is not None:
        refused(play, beyond)
    assert any(text.startswith("doubled: plain") for text in play.judge(written)), play.judge(written)
    assert play.history.renumbered == []


@pytest.mark.parametrize(("copied", "kinds"), [("aba", set()), ("ab", {"lost"}), ("abaa", {"doubled"})])
def test_copy_has_what_its_source_has_twice_as_often(copied: str, kinds: set[str]) -> None:
    records = [ReadRecord(offset, b"", letter.encode()) for offset, letter in enumerate(copied)]
    verdict = judge_copy({0: [b"a", b"b", b"a"]}, {0: records}, {0: 3})
    assert verdict.kinds - {"reordered"} == kinds
