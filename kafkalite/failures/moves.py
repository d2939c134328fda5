"""Build a member's transactions, which contain letters, ledger rows, output records of handlers, and offsets.

    verdicts ─▶ collected, for at most LINGER_MS while records are being handled ─▶ Transact ─▶ TransactionEnded

A verdict lists what must be written for a record. Only one transaction is in progress at a time; it
writes the verdicts of at most MOVES_MAX records.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.failures.events import Goal, Message, Put, Transact
from kafkalite.failures.names import origin_text
from kafkalite.failures.rows import OPEN_PREFIX, Row, State, hand_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.failures.events import Output, TransactionEnded
    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.times import Moment
    from kafkalite.failures.topic_ids import TopicIds
    from kafkalite.model import TopicPartition

MOVES_MAX: Final = 500
"""Maximum number of records whose verdicts one transaction writes."""
LINGER_MS: Final = 50.0
"""Maximum time to collect verdicts while handlers run. A large transaction costs hardly more than a small one."""
AGAIN_MS: Final = 500.0
"""Backoff after a transaction or commit that failed."""
SHRINK_MAX: Final = 3
"""At this level a letter has no value."""


class Flight(NamedTuple):
    """A transaction in progress: its number, the records that it writes, and the offsets that it commits.

    `lanes` are the lanes of these records. They are needed because a partition that is lost and assigned again
    meanwhile has a new lane. `last` are the revoked partitions that are given up after this transaction, unless
    a record is too large.
    """

    number: int
    chosen: Mapping[TopicPartition, list[Item]]
    offsets: Mapping[TopicPartition, int]
    lanes: Mapping[TopicPartition, PartitionLane]
    last: frozenset[TopicPartition]


class TooLarge(Exception):
    """A record is too large for its topic: a handler's output, or a letter even without its value.

    `item` is the handled record, and `flight` the transaction that failed.
    """

    def __init__(self, text: str, flight: Flight, item: Item) -> None:
        super().__init__(text)
        self.flight = flight
        self.item = item


class Moves:
    """Builds the transactions of a session; see the module.

    With `by_partition`, each transaction covers one source partition. `topic_ids` are written into the rows.
    """

    def __init__(self, member: str, *, keeps_ledger: bool, by_partition: bool, topic_ids: TopicIds) -> None:
        self._member = member
        self._keeps_ledger = keeps_ledger
        self._by_partition = by_partition
        self._topic_ids = topic_ids
        self._number = 0
        self._not_before = 0.0
        self._linger_until: float | None = None
        self.flight: Flight | None = None

    def hurry(self) -> None:
        """End the backoff after a failed transaction."""
        self._not_before = 0.0

    def wakes(self, now_ms: float) -> Iterator[float]:
        """Yield the future times (monotonic ms) at which a transaction may become due."""
        for at in (self._not_before, self._linger_until or 0.0):
            if at > now_ms:
                yield at

    def concerns(self, lane: PartitionLane) -> bool:
        """Return whether the transaction in progress commits an offset of this partition."""
        return self.flight is not None and self.flight.lanes.get(lane.partition) is lane

    def is_in_flight(self, lane: PartitionLane, item: Item) -> bool:
        """Return whether the transaction in progress writes this record."""
        return self.flight is not None and item in self.flight.chosen.get(lane.partition, ())

    def begin(self, lanes: dict[TopicPartition, PartitionLane], now: Moment, *, at_once: bool) -> Transact | None:
        """Start the next transaction if one is due."""
        if self.flight is not None or now.ms < self._not_before:
            return None
        if not at_once and self._lingers(lanes, now.ms):
            return None
        if any(lane.committing and (lane.closing or lane.has_movable) for lane in lanes.values()):
            return None  # wait for the commit: a suspect's outcome must be written before the next suspect starts
        puts: list[Put] = []
        rows: list[tuple[str, Row | None]] = []
        chosen: dict[TopicPartition, list[Item]] = {}
        offsets: dict[TopicPartition, int] = {}
        for lane in lanes.values():
            if self._by_partition and chosen:
                break
            found = choose(lane, MOVES_MAX - sum(map(len, chosen.values())))
            opens = not lane.opened and not lane.leaving
            lane.calmed = lane.calming and lane.opened and not (lane.leaving or lane.committing)
            if not (found or opens or lane.calmed or lane.closing):
                continue
            assert not lane.committing, "its plain commit was waited for"
            chosen[lane.partition] = found
            lane.opening = opens
            for item in found:
                write_down(item, now.wall_ms, puts, rows, self._topic_ids)
            done = {item for item in found if item.verdict is not None and not item.verdict.stays}
            low = lane.low(done)
            offsets[lane.partition] = low  # even if unchanged: it lets the broker refuse a member that was replaced
            if opens or lane.calmed:
                if opens:
                    lane.first, lane.opened_ms = low, now.wall_ms
                row = Row(State.OPEN, member=self._member, last=lane.opened_ms, position=lane.first, until=lane.until)
                rows.append((f"{OPEN_PREFIX}{lane.partition}", row))
            elif lane.closing and lane.opened and self._keeps_ledger:
                rows.append((f"{OPEN_PREFIX}{lane.partition}", None))
            if lane.marked and (lane.calmed or lane.closing):
                rows.append((hand_key(lane.partition), None))
        if not chosen:
            return None
        for key in chosen:  # the next transaction begins with the others
            lanes[key] = lanes.pop(key)
        if all(len(chosen.get(key, ())) == len(lane.moving) for key, lane in lanes.items()):
            self._linger_until = None
        self._number += 1
        last = frozenset(key for key in chosen if lanes[key].closing)
        self.flight = Flight(self._number, chosen, offsets, {key: lanes[key] for key in chosen}, last)
        scope = next(iter(chosen)) if self._by_partition else None
        return Transact(self._number, tuple(puts), tuple(rows), offsets, scope)

    def _lingers(self, lanes: Mapping[TopicPartition, PartitionLane], now_ms: float) -> bool:
        """Return whether to wait for more verdicts.

        Do not wait if no handler is running, or if a record or partition waits for the write.
        """
        idle, count = True, 0
        for lane in lanes.values():
            if lane.hurries or not (lane.opened or lane.leaving):
                return False
            idle = idle and lane.run is None
            count += len(lane.moving)
        if idle or not count or count >= MOVES_MAX:
            return False
        if self._linger_until is None:
            self._linger_until = now_ms + LINGER_MS
        return now_ms < self._linger_until

    def end(self, event: TransactionEnded, now_ms: float) -> Flight:
        """Process the end of the transaction in progress. Raises TooLarge."""
        flight, self.flight = self.flight, None
        assert flight is not None, "it was begun"
        assert flight.number == event.number, "one transaction at a time"
        if event.too_large is not None:
            shrink(flight, event.too_large)
        elif event.failed:
            self._not_before = now_ms + AGAIN_MS
        return flight


def choose(lane: PartitionLane, count: int) -> list[Item]:
    """Return at most `count` records of a partition whose verdicts may be written now."""
    found: list[Item] = []
    if lane.moving:
        for item in lane.movable():
            if len(found) >= count:
                break
            found.append(item)
    return whole_bundles(lane, found) if any(item.bundle for item in found) else found


def whole_bundles(lane: PartitionLane, found: list[Item]) -> list[Item]:
    """Leave out a record if the same handler call handled another record that cannot be written now.

    In a source topic, also leave out all records after it.
    """
    while True:
        chosen = set(found)
        bundles = {id(item.bundle): item.bundle for item in found if item.bundle}
        broken = {key for key, bundle in bundles.items() if not chosen.issuperset(bundle)}
        if not broken:
            return found
        if lane.is_retry:
            found = [item for item in found if id(item.bundle) not in broken]
        else:
            found = found[: next(place for place, item in enumerate(found) if id(item.bundle) in broken)]


def write_down(
    item: Item,
    wall_ms: int,
    puts: list[Put],
    rows: list[tuple[str, Row | None]],
    topic_ids: TopicIds,
) -> None:
    """Add the records and the ledger row of a record's verdict to a transaction."""
    verdict = item.verdict
    assert verdict is not None, "it moves for a reason"
    if verdict.put is not None:
        puts.append(verdict.put._replace(shrink=item.shrink))
    for output in verdict.outputs:
        message = Message(output.topic, -1, -1, wall_ms, output.key, output.value, output.headers)
        puts.append(Put(Goal.OUTPUT, output.topic, output.partition, message))
    if topic_ids.writes_row(item, verdict):
        row = verdict.row
        if row is not None and not row.topic_id:
            row = row._replace(topic_id=topic_ids.of(item))
        rows.append((origin_text(item.origin, item.origin_offset), row))


def shrink(flight: Flight, place: int) -> None:
    """Make the letter at this index smaller in the next attempt. Raises TooLarge if that is impossible."""
    owners: list[tuple[Item, Output | None]] = []
    for items in flight.chosen.values():
        for item in items:
            if item.verdict is not None:
                owners += [(item, None)] if item.verdict.put is not None else []
                owners += [(item, output) for output in item.verdict.outputs]
    item, output = owners[place]
    where = origin_text(item.origin, item.origin_offset)
    if output is not None:
        raise TooLarge(
            f"the handler's output for {where} is too large for topic {output.topic}; send less, or raise its "
            "max.message.bytes",
            flight,
            item,
        )
    if item.shrink >= SHRINK_MAX:
        text = f"the retry or dead letter of {where} is too large for its topic; raise max.message.bytes"
        raise TooLarge(text, flight, item)
    item.shrink += 1
