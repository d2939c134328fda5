"""Judge how a 0.7 group handled messages while brokers and consumers died: a pure function over a log of events.

    Stored      a message found in the logs afterwards, in the order of its partition
    Claimed     an owner node came         Released   it went: by its owner's hand, or with a session
    Committed   an offset was stored       Given      a message was handed out to the application
    Stalled     a process did not run      Killed     a consumer was killed, perhaps with a message in its hands

`judge` finds every way in which they do not fit:

    lost      stored, never handed out, nor in the hands of a consumer that was killed
    twice     stored twice, although it was sent once
    vanished  handed out, and not in the logs afterwards
    owners    an owner node over another session's, or taken away by somebody else
    unowned   handed out of a partition that the consumer never claimed
    overlap   handed out for too long after the partition was another's to claim
    skipped   what a consumer was given does not follow what it was given before, or the offset stored at its claim
    repeated  more messages are delivered again than were since the last stored offset
    offset    a stored offset that is not the end of a message delivered to its writer
    beyond    a stored offset past the messages delivered to its writer

A message counts as handed out when its consumer wrote so, which it does a moment later: at any time each partition has
one message whose offset may be stored already. An overlap is measured in the time in which both the consumer and
ZooKeeper ran, so that a loaded machine, or SIGSTOP, does not make it longer; the wall clock's figure is kept, too.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.kit.checkers.ledger import Verdict

CLOCK_STEP_S = 0.001
"""ZooKeeper's times are whole milliseconds, cut off."""
GRACE_S = 2.0
"""Beyond the session timeout, in which an overlap has to end."""
ZOOKEEPER = ""
"""Who stalled, in a Stalled of ZooKeeper's."""


class Stored(NamedTuple):
    partition: str
    name: str
    start: int
    """Of its entry: messages of one wrapper share it."""
    end: int
    """Where to fetch after it."""


class Claimed(NamedTuple):
    time_s: float
    partition: str
    consumer: str
    session: int


class Released(NamedTuple):
    time_s: float
    partition: str
    session: int
    with_session: bool


class Committed(NamedTuple):
    time_s: float
    partition: str
    consumer: str
    offset: int


class Given(NamedTuple):
    time_s: float
    consumer: str
    name: str


class Stalled(NamedTuple):
    time_s: float
    consumer: str
    length_s: float


class Killed(NamedTuple):
    time_s: float
    consumer: str


Event = Stored | Claimed | Released | Committed | Given | Stalled | Killed
"""Claims, releases and commits are in ZooKeeper's order; a consumer's messages are in its own order."""


@dataclass
class Stretch:
    """One ownership."""

    start_s: float
    offsets: set[int]
    """Where it may begin: what was stored at the claim, or by others since."""
    end_s: float = math.inf
    with_session: bool = False
    late_count: int = 0


class Place(NamedTuple):
    time_s: float
    index: int


@dataclass
class ClassicVerdict(Verdict):
    """Also counts what is allowed, to be reported."""

    given_count: int = 0
    repeated_count: int = 0
    backward_count: int = 0
    in_hand: set[str] = field(default_factory=set)
    overlaps: list[tuple[float, float]] = field(default_factory=list)
    """(running, wall) seconds of each stretch that continued after its end."""

    def __str__(self) -> str:
        running, wall = max(self.overlaps, default=(0.0, 0.0))
        return (
            f"{self.read_count} stored, {self.given_count} handed out, {self.repeated_count} of them again, "
            f"{len(self.in_hand)} in the hands of killed consumers, {self.backward_count} offsets stored back, "
            f"{len(self.overlaps)} overlaps up to {running:.3f} s ({wall:.3f} s by the clock) | "
            + super().__str__().partition(" | ")[2]
        )


def running_s(start_s: float, end_s: float, stalls: Sequence[Stalled]) -> float:
    """The length of a span without what falls into stalls."""
    covered, reached = 0.0, start_s
    for stall in sorted(stalls):
        begin, end = max(stall.time_s, reached), min(stall.time_s + stall.length_s, end_s)
        if end > begin:
            covered += end - begin
            reached = end
    return max(0.0, end_s - start_s - covered)


class History:
    """The events, by what is asked of them."""

    def __init__(self, events: Iterable[Event], verdict: ClassicVerdict) -> None:
        self.verdict = verdict
        self.log: dict[str, list[Stored]] = defaultdict(list)
        self.where: dict[str, tuple[str, int]] = {}
        self.given: dict[tuple[str, str], list[Place]] = defaultdict(list)
        self.ends: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)  # offset → the first place that ends there
        self.given_names: set[str] = set()
        self.stretches: dict[tuple[str, str], list[Stretch]] = defaultdict(list)
        self.commits: list[Committed] = []
        self.stalls: dict[str, list[Stalled]] = defaultdict(list)
        self.killed: set[str] = set()
        self.owner: dict[str, tuple[Claimed, Stretch]] = {}
        self.stored: dict[str, int] = {}
        rest: list[Event] = []
        for event in events:
            if isinstance(event, Stored):
                self._store(event)
            else:
                rest.append(event)
        for event in rest:
            self._take(event)

    def _store(self, event: Stored) -> None:
        if event.name in self.where:
            self.verdict.add("twice", f"{event.name} in {self.where[event.name][0]} and {event.partition}")
            return
        self.where[event.name] = event.partition, len(self.log[event.partition])
        self.log[event.partition].append(event)
        self.verdict.read_count += 1

    def _take(self, event: Event) -> None:
        match event:
            case Claimed():
                self._claim(event)
            case Released():
                self._release(event)
            case Committed():
                self.verdict.backward_count += event.offset < self.stored.get(event.partition, -1)
                self.stored[event.partition] = event.offset
                self.commits.append(event)
                owner = self.owner.get(event.partition)
                if owner is not None and owner[0].consumer != event.consumer:
                    owner[1].offsets.add(event.offset)
            case Given():
                self._give(event)
            case Stalled():
                self.stalls[event.consumer].append(event)
            case Killed():
                self.killed.add(event.consumer)

    def _claim(self, event: Claimed) -> None:
        before = self.owner.get(event.partition)
        if before is not None and before[0].session != event.session:
            self.verdict.add("owners", f"{event.partition}: {event.consumer} beside {before[0].consumer}")
        stretch = Stretch(event.time_s, {max(self.stored.get(event.partition, 0), 0)})
        self.stretches[event.consumer, event.partition].append(stretch)
        self.owner[event.partition] = event, stretch

    def _release(self, event: Released) -> None:
        claim, stretch = self.owner.pop(event.partition, (None, None))
        if claim is None or stretch is None:
            return
        if claim.session != event.session:
            self.verdict.add("owners", f"{event.partition}: taken from {claim.consumer} by session {event.session:x}")
        stretch.end_s, stretch.with_session = event.time_s + CLOCK_STEP_S, event.with_session

    def _give(self, event: Given) -> None:
        self.verdict.given_count += 1
        self.verdict.repeated_count += event.name in self.given_names
        self.given_names.add(event.name)
        place = self.where.get(event.name)
        if place is None:
            self.verdict.add("vanished", f"{event.name}, which {event.consumer} was given")
            return
        partition, index = place
        places = self.given[event.consumer, partition]
        self.ends[event.consumer, partition].setdefault(self.log[partition][index].end, len(places))
        places.append(Place(event.time_s, index))


def judge(events: Iterable[Event], session_s: float) -> ClassicVerdict:
    """Every way in which the events do not fit; what is counted beside that is allowed."""
    verdict = ClassicVerdict()
    history = History(events, verdict)
    for key, places in history.given.items():
        _judge_order(history, key, places)
        _judge_ownership(history, key, places, session_s)
    for commit in history.commits:
        _judge_offset(history, commit)
    for partition, messages in history.log.items():
        for message in messages:
            if message.name not in history.given_names and message.name not in verdict.in_hand:
                verdict.add("lost", f"{message.name} in {partition} at {message.start}")
    return verdict


def _first_at(history: History, partition: str, offset: int) -> int:
    """The index of the message that a consumer gets first that begins at an offset."""
    return bisect.bisect_left(history.log[partition], offset, key=lambda message: message.start)


def _judge_order(history: History, key: tuple[str, str], places: list[Place]) -> None:
    """The messages a consumer gets from a partition follow the log; it seeks only with a new claim."""
    consumer, partition = key
    stretches = history.stretches[key]
    used = 0
    wanted = -1
    for place in places:
        if place.index != wanted:
            starts = [
                (number, {_first_at(history, partition, offset) for offset in stretch.offsets})
                for number, stretch in enumerate(stretches[used:], start=used)
                if stretch.start_s <= place.time_s
            ]
            fitting = next((number for number, indexes in starts if place.index in indexes), None)
            if fitting is None:
                expected = max((max(indexes) for _, indexes in starts), default=wanted)
                kind = "skipped" if place.index > max(expected, wanted) else "repeated"
                name = history.log[partition][place.index].name
                history.verdict.add(
                    kind, f"{consumer} got {name} of {partition}, index {place.index} after {wanted - 1}"
                )
            else:
                used = fitting + 1
        wanted = place.index + 1


def _judge_ownership(history: History, key: tuple[str, str], places: list[Place], session_s: float) -> None:
    """Nothing is handed out of a partition that is not owned, but for a while after its session ended."""
    consumer, partition = key
    stretches = history.stretches[key]
    stalls = history.stalls[consumer] + history.stalls[ZOOKEEPER]
    starts = [stretch.start_s for stretch in stretches]
    overlaps: dict[int, tuple[float, float]] = {}
    for place in places:
        number = bisect.bisect_right(starts, place.time_s) - 1
        name = history.log[partition][place.index].name
        if number < 0:
            history.verdict.add("unowned", f"{name} of {partition} to {consumer}")
            continue
        stretch = stretches[number]
        if place.time_s <= stretch.end_s:
            continue
        stretch.late_count += 1
        if not stretch.with_session:
            if stretch.late_count > 1:  # one may have been in its hands
                history.verdict.add("overlap", f"{name} of {partition} to {consumer}, which had given it back")
            continue
        late_s = running_s(stretch.end_s, place.time_s, stalls)
        overlaps[number] = late_s, place.time_s - stretch.end_s
        if late_s > session_s + GRACE_S:
            history.verdict.add("overlap", f"{name} of {partition} to {consumer} {late_s:.3f} s after its session")
    history.verdict.overlaps += overlaps.values()


def _judge_offset(history: History, commit: Committed) -> None:
    """A stored offset is where its writer's claim began, or where something ends that it was given."""
    key = commit.consumer, commit.partition
    log = history.log[commit.partition]
    places = history.given[key]
    claims = [stretch for stretch in history.stretches[key] if stretch.start_s <= commit.time_s]
    if commit.offset <= 0 or any(commit.offset in stretch.offsets for stretch in claims):
        return
    written = bisect.bisect_right(places, commit.time_s + CLOCK_STEP_S, key=lambda place: place.time_s)
    if history.ends[key].get(commit.offset, math.inf) <= written:
        return
    following = {_first_at(history, commit.partition, offset) for stretch in claims for offset in stretch.offsets}
    following |= {places[-1].index + 1} if places else set()
    if written == len(places) and commit.consumer in history.killed:
        for index in following:
            if index < len(log) and log[index].end == commit.offset:
                history.verdict.in_hand.add(log[index].name)
                return
    reached = max((log[place.index].end for place in places[: written + 1]), default=0)
    kind = "beyond" if commit.offset > reached else "offset"
    history.verdict.add(kind, f"{commit.offset} of {commit.partition} by {commit.consumer}, given up to {reached}")
