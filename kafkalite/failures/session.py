"""The core: what a member of a group does about failures, as events in and actions out. No I/O, no clock, no threads.

    Fetched ─▶ lane ─▶ Run ─▶ Finished ─┬─ success ─▶ Commit, every second
                 ▲                      └─ failure ─▶ Step ─▶ Transact: letter + row of the ledger + offset
                 └── due again, or tried in place ◀────┘

    session.on(event, now) ─▶ the actions, to be carried out in order;  session.wake_at: when to send Tick at the latest

What holds whatever dies between two actions:
 1. A record is plainly committed only when it and all before it in its partition are done, so none is lost.
 2. Its letter, its row and its offset are one transaction, so none is doubled. In a topic's own partition a move waits
    for all that stands before it: nobody who comes after reads a record that was moved.
 3. A letter in a retry partition is alive only while the ledger names its id. What ended out of order, or was moved on,
    is stepped over.
 4. Of a partition that was not given up in good order, records are noted as in hand before they are handled, in growing
    batches; after another end the one that the handler had is alone in hand, or, where no mark says which that was,
    all of the batch are, one at a time. One that ends the process is a dead letter, and no other is blamed.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.failures.breaker import Breaker
from kafkalite.failures.commits import Commits
from kafkalite.failures.events import (
    Alarm,
    Assigned,
    CommitEnded,
    Damaged,
    Decided,
    Doubt,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    Goal,
    Letter,
    Lost,
    Mark,
    Message,
    Pause,
    Put,
    Released,
    Resume,
    Revoked,
    Revoking,
    Run,
    RunEnded,
    Stop,
    Tick,
    TransactionEnded,
    Withdraw,
)
from kafkalite.failures.lanes import (
    IN_HAND_MAX,
    RUN_MAX,
    Item,
    ItemState,
    KeyChains,
    PartitionLane,
    Verdict,
    key_digest,
)
from kafkalite.failures.losses import Losses
from kafkalite.failures.moves import SHRINK_MAX, Moves, TooLarge
from kafkalite.failures.names import origin_text
from kafkalite.failures.rows import GIVEN_UP, WAITING, Row, State, hand_key
from kafkalite.failures.strategies import Ignore, RetryForever, RetryTopics, StepKind
from kafkalite.failures.times import Moment, milliseconds
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.failures.events import Action, Arrival, Commit, Event, Outcome, Start
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.strategies import Step

RUN_FAILURES_MAX: Final = 10
"""Failures after which a run comes back, where the order allows more than one, and their number means something."""
CAREFUL_COUNT: Final = IN_HAND_MAX + RUN_MAX
"""As many may have been in hand behind the committed offset when a member ended."""
CRASHES_MAX: Final = 2
"""Ends of the process that find a record noted as in hand; then it is a dead letter, `crashed`."""
CRASHED: Final = "crashed"
UNREADABLE: Final = "unreadable"
FINISHED_IDS_MAX: Final = 100_000
NO_MESSAGE: Final = Message("", -1, -1, -1, None, None)


class Session:
    """See the module.

    `member`        who it is, for rows of the ledger
    `nonce`         told apart from every other session's, for ids of letters; "" where moves are at least once, and
                    ids have to be the same when something is done again
    `draw`          a number from 0 to 1 each time
    `by_partition`  a transaction is about one source partition
    """

    def __init__(
        self, policy: Policy, *, member: str, nonce: str, draw: Callable[[], float], by_partition: bool = False
    ) -> None:
        self._policy = policy
        self._member = member
        self._nonce = nonce
        self._draw = draw
        self._lanes: dict[TopicPartition, PartitionLane] = {}
        self._breaker = Breaker(policy.limit)
        self._holds = policy.after_dead == "hold"
        self._rotates = policy.order == "none" and isinstance(policy.strategy, (RetryTopics, Ignore))
        self._goes_on = self._rotates or (policy.order == "key" and isinstance(policy.strategy, RetryTopics))
        self._losses = Losses(policy.strategies)
        self._counts_failures = policy.limit is not None or self._losses.counts
        self._number = 0
        self._moves = Moves(member, keeps_ledger=policy.keeps_ledger, by_partition=by_partition)
        self._commits = Commits(self._moves)
        self._decided: dict[tuple[str, TopicPartition], Decided] = {}
        self._finished_ids: dict[str, Row | None] = {}
        """Where moves are at least once: letters that are done, and their last row."""
        self._actions: list[Action] = []
        self._now = Moment(0, 0.0)
        self.stopped = ""
        """Why the session has ended, once it has."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """By name and label; see kafkalite.failures.metrics."""
        self.late_ms: list[float] = []
        """How long after their due time letters ran since somebody took them from here."""

    # --- events -------------------------------------------------------------------------------------------------------

    def on(self, event: Event, now: Moment) -> list[Action]:
        """What is to be done about it."""
        return self.on_all((event,), now)

    def on_all(self, events: Iterable[Event], now: Moment) -> list[Action]:
        """What is to be done about all of them."""
        self._now = now
        for event in events:
            self._hear(event)
        if not self.stopped:
            self._advance()
        else:
            self._transact()
        actions, self._actions = self._actions, []
        return actions

    def _hear(self, event: Event) -> None:
        match event:
            case Assigned():
                self._assigned(event)
            case Revoking(partitions=partitions):
                self._leave(partitions)
            case Revoked(partitions=partitions):
                self._close(partitions)
            case Lost(partitions=partitions):
                self._leave(partitions)
                self._drop(partitions)
            case Fetched():
                self._fetched(event)
            case Finished():
                self._finished(event)
            case RunEnded():
                self._run_ended(event)
            case TransactionEnded():
                self._transaction_ended(event)
            case CommitEnded():
                self._commits.end(event, self._now.ms)
            case Damaged():
                self._damaged(event)
            case Decided():
                self._decided[event.group, event.partition] = event
            case Released():
                self._released(event)
            case Tick():
                pass

    def _advance(self) -> None:
        for lane in self._lanes.values():
            if not lane.checked_lost and lane.caught_up:
                self._check_lost(lane)
        self._look_at_doubts()
        self._probe() if self._breaker.is_open else self._start_runs()
        self._transact()
        self._commit(self._commits.begin(self._lanes.values(), self._now.ms))
        self._flow()

    @property
    def wake_at(self) -> float | None:
        """Monotonic ms at which Tick is wanted; None: only an event brings something new."""
        if self.stopped:
            return None
        times = list(self._moves.wakes(self._now.ms))
        for lane in self._lanes.values():
            if self._breaker.is_open:
                times.append(self._breaker.probe_at)
            elif lane.run is None and lane.head is not None and lane.head.due > self._now.ms:
                times.append(lane.head.due)
            if self._commits.waits(lane):
                times.append(self._commits.due_at)
        return min(times, default=None)

    @property
    def is_busy(self) -> bool:
        """Whether something that was read is handled or written, or is about to be, without waiting for anybody."""
        for lane in self._lanes.values():
            head = None if self._breaker.is_open or lane.waits_for else lane.head
            if lane.run is not None or lane.moving or (head is not None and head.due <= self._now.ms):
                return True
        return False

    @property
    def is_closing(self) -> bool:
        """Whether something is to be written still of partitions that are about to go."""
        return any(lane.closing for lane in self._lanes.values())

    @property
    def waits(self) -> dict[TopicPartition, str]:
        """Partitions whose next record waits for another group, which is to be asked (Decided)."""
        return {lane.partition: lane.waits_for for lane in list(self._lanes.values()) if lane.waits_for}

    @property
    def holders(self) -> dict[TopicPartition, list[int]]:
        """Dead records whose keys wait, by the partition of their topic; when the ledger says no more that they are
        held, that is Released."""
        found = {}
        for lane in self._lanes.values():
            if lane.is_retry and lane.chains is not None and lane.chains.written:
                found[lane.origin] = [lane.chains.holders[digest] for digest in lane.chains.written]
        return found

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset that is read next of each partition that is read now."""
        return {key: lane.position for key, lane in self._lanes.items() if not (lane.paused or lane.leaving)}

    @property
    def behind(self) -> list[TopicPartition]:
        """Partitions that are not read yet up to where they ended when they came."""
        return [key for key, lane in self._lanes.items() if not lane.caught_up]

    @property
    def breaker_open(self) -> bool:
        return self._breaker.is_open

    @property
    def waiting_count(self) -> int:
        """Letters in hand that are not due, or wait behind their key."""
        return sum(lane.unfinished for lane in list(self._lanes.values()) if lane.is_retry)

    @property
    def parked_keys(self) -> int:
        """Keys that wait behind a failed predecessor."""
        return sum(lane.chains.parked_keys for lane in list(self._lanes.values()) if lane.is_retry and lane.chains)

    @property
    def held_keys(self) -> int:
        """Keys that wait until somebody decides about a dead record of theirs."""
        return sum(len(lane.chains.holders) for lane in list(self._lanes.values()) if lane.is_retry and lane.chains)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> None:
        layout = self._policy.layout
        keyed = {key for key in event.starts if layout.by_key and layout.lanes[key.topic].is_retry}
        chains = {key: KeyChains() for key in keyed}
        for key, start in sorted(event.starts.items()):
            main, is_retry = layout.lanes[key.topic]
            lane = PartitionLane(
                key,
                main,
                start,
                event.rows.get(TopicPartition(main, key.partition), {}),
                is_retry=is_retry,
                chains=chains.get(key),
            )
            self._doubt(lane, start, event.opened.get(key), event.hands.get(key))
            lane.opened = not self._policy.keeps_ledger
            self._lanes[key] = lane
            if self._holds and lane.chains is not None:
                for offset, row in lane.rows.items():
                    if row.held:
                        lane.chains.hold(row.held, offset)
                        lane.chains.written.add(row.held)
        if self._policy.layout.by_key:
            for lane in self._lanes.values():
                self._see_keys(lane)

    def _doubt(self, lane: PartitionLane, start: Start, opened: Row | None, hand: Row | None) -> None:
        """Finds out which records may have ended the member that had the partition before: those that were there, up
        to where it may have come, and of a retry partition those that are due. Of those that were noted together the
        one that is marked was in hand."""
        lane.marked = hand is not None
        if lane.is_retry:
            noted = {
                offset: row
                for offset, row in lane.rows.items()
                if row.is_suspect and (row.letter_topic, row.letter_partition) == lane.partition
            }
        else:
            noted = {offset: row for offset, row in lane.rows.items() if row.is_suspect and offset >= start.position}
        if hand is not None:
            batch = {offset for offset, row in noted.items() if row.among and stamp_of(row) == stamp_of(hand)}
            in_hand = {offset for offset in batch if hand.position <= offset < max(hand.until, hand.position + 1)}
            for offset in batch if hand.tries else batch - in_hand:
                lane.rows[offset] = noted[offset]._replace(among=0, tries=noted[offset].tries + (offset in in_hand))
        suspects = sum(lane.rows[offset].is_suspect for offset in noted)
        until = start.end
        if not lane.is_retry:
            until = max(min(start.end, start.position + CAREFUL_COUNT), max(noted, default=-1) + 1)
        near = opened is not None and start.position - opened.position < CAREFUL_COUNT
        if (near or noted) and until > start.position:
            lane.careful, lane.until, lane.came_ms = CAREFUL_COUNT, until, self._now.wall_ms
            self._actions.append(Doubt(lane.partition, start.position, until, suspects))

    def _look_at_doubts(self) -> None:
        """Ends the care about partitions of which all that was doubted has an outcome."""
        for lane in self._lanes.values():
            if lane.until >= 0 and lane.is_over and not lane.leaving:
                self._actions.append(Doubt(lane.partition, lane.first, lane.until, over=True))
                lane.careful, lane.until = 0, -1
                lane.calming = lane.opened or lane.opening
            if lane.batch.items and lane.until < 0 and lane.batch.is_over:
                lane.batch.items = []

    def _see_keys(self, lane: PartitionLane) -> None:
        """A topic's own partition sees the keys of its retry partition, also of one that has just come anew."""
        partner = None if lane.is_retry else self._partner(lane)
        if partner is None or partner.chains is lane.chains:
            return
        lane.chains = partner.chains
        assert lane.chains is not None, "a retry partition has them"
        for item in lane.moving.values():
            put = None if item.verdict is None else item.verdict.put
            if put is not None and put.letter is not None and put.goal in {Goal.RETRY, Goal.PARK}:
                lane.chains.send(item.key, put.letter.id)

    def _leave(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            lane = self._lanes.get(key)
            if lane is not None:
                lane.leaving = True
                if lane.run is not None:
                    self._actions.append(Withdraw(key))
                for item in lane.batch.items:
                    if item.noted and item.state is ItemState.READY:
                        lane.take_out(item)
                        self._unnote(lane, item)
                    elif item.noted and item.is_staying and not self._moves.is_in_flight(lane, item):
                        self._unnote(lane, item)

    def _close(self, partitions: Iterable[TopicPartition]) -> None:
        """The last transaction of these; what it cannot hold the next owner does again."""
        for key in partitions:
            lane = self._lanes.get(key)
            if lane is not None:
                lane.leaving = lane.closing = True
        self._moves.hurry()
        if self._moves.flight is None and not self._policy.keeps_ledger:
            self._commit(self._commits.begin_last([lane for lane in self._lanes.values() if lane.closing]))
            self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            self._lanes.pop(key, None)
            for group in self._policy.after:
                self._decided.pop((group, key), None)

    def _partner(self, lane: PartitionLane) -> PartitionLane | None:
        """With order by key, the retry partition that says which keys of a topic's own partition are blocked."""
        return self._lanes.get(TopicPartition(self._policy.layout.retry(lane.origin.topic, 0), lane.origin.partition))

    def _check_lost(self, lane: PartitionLane) -> None:
        """Letters that the ledger tells of, and that are not there any more."""
        lane.checked_lost = True
        main = self._lanes.get(lane.origin)
        for offset, row in sorted(lane.rows.items()):
            here = (row.letter_topic, row.letter_partition) == lane.partition
            if not self._nonce and main is not None and offset >= main.committed:
                continue  # the record itself comes again
            if row.state in WAITING and here and row.id not in lane.seen:
                self.counts["lost", ""] += 1
                text = f"the letter of {origin_text(lane.origin, offset)} has gone from {lane.partition}"
                self._actions.append(Alarm("lost", text, {"record": origin_text(lane.origin, offset), "id": row.id}))
                item = Item(
                    NO_MESSAGE._replace(topic=lane.origin.topic, partition=lane.origin.partition), lane.origin, offset
                )
                item.held = row.held if self._holds else ""
                item.offset = -1 - offset  # no offset of this partition: nothing to commit hangs on it
                lane.move(item, Verdict(row=row._replace(state=State.LOST, last=self._now.wall_ms)))
        lane.rows.clear()
        if self._nonce:
            lane.seen.clear()

    # --- records ------------------------------------------------------------------------------------------------------

    def _fetched(self, event: Fetched) -> None:
        lane = self._lanes.get(event.partition)
        if lane is None or lane.leaving:
            return
        for arrival in event.arrivals:
            if arrival.message.offset < lane.position:
                continue
            item = self._letter(lane, arrival) if lane.is_retry else self._record(lane, arrival)
            if item is not None:
                lane.add(item)
        lane.position = max(lane.position, event.next_offset)

    def _damaged(self, event: Damaged) -> None:
        """Letters without value for records that nobody can read; letters in a retry topic are found to be lost."""
        lane = self._lanes.get(event.partition)
        if lane is None or lane.leaving or event.next_offset <= lane.position:
            return
        details = {"offset": event.offset, "next_offset": event.next_offset}
        self._actions.append(Alarm("damaged", f"{event.partition}: {event.text}", details))
        for offset in range(max(event.offset, lane.position), event.next_offset):
            message = NO_MESSAGE._replace(topic=lane.partition.topic, partition=lane.partition.partition, offset=offset)
            item = Item(message, lane.origin, -1 if lane.is_retry else offset)
            row = lane.rows.pop(offset, None)
            if lane.is_retry or (row is not None and row.state in GIVEN_UP | WAITING):
                lane.step_over(item)
                continue
            lane.items.append(item)
            lane.by_offset[offset] = item
            item.shrink, item.attempt = SHRINK_MAX, 1
            self._count_failure(item, Failure(FailureKind.FATAL, UNREADABLE, text=event.text))
            self._die(lane, item, State.UNREADABLE)
        lane.position = event.next_offset

    def _record(self, lane: PartitionLane, arrival: Arrival) -> Item:
        item = Item(arrival.message, lane.partition, arrival.message.offset)
        item.row = lane.rows.pop(item.offset, None)
        item.held = item.row.held if item.row is not None and self._holds else ""
        item.doubted = item.offset < lane.until
        return item

    def _letter(self, lane: PartitionLane, arrival: Arrival) -> Item | None:
        """The item of a living letter; one that is dead, or nobody's, is stepped over."""
        letter, message = arrival.letter, arrival.message
        item = Item(message, lane.origin, -1 if letter is None else letter.offset)
        if letter is None or letter.group != self._policy.group or letter.partition != lane.origin:
            self.counts["foreign", ""] += 1
            self._actions.append(
                Alarm(
                    "foreign",
                    f"{lane.partition} holds a record that is no letter of this group",
                    {"offset": message.offset},
                )
            )
            lane.step_over(item)
            return None
        row = lane.rows.get(letter.offset)
        known = message.offset < lane.known
        if self._nonce:
            alive = row is not None and row.state in WAITING and row.id == letter.id
        else:  # whoever moved the record a second time may have put an older row in the place of a newer one
            over = row is None or row.state in GIVEN_UP - {State.LOST} or row.attempt > letter.attempt
            alive = not over
        if (known and not alive) or letter.id in lane.seen:
            lane.step_over(item)
            return None
        if not lane.checked_lost or not self._nonce:
            lane.seen.add(letter.id)
        if letter.id in self._finished_ids:
            lane.items.append(item)
            lane.by_offset[item.offset] = item
            lane.move(item, Verdict(row=self._last_row(letter.id)))  # whoever sent it twice wrote its row twice
            return None
        item.id = item.came_as = letter.id
        item.first, item.rounds = letter.first, letter.rounds
        item.attempt, due = letter.attempt, letter.due
        if known and row is not None:
            item.attempt, due = max(row.attempt, letter.attempt), max(row.due, letter.due)
            item.row = row
        suspect = item.row is not None and item.row.is_suspect
        item.doubted = item.offset < lane.until and (suspect or due <= lane.came_ms)
        item.due = self._now.ms + max(0, due - self._now.wall_ms)
        return item

    def _last_row(self, letter_id: str) -> Row | None:
        """The last row of a letter that is done, and of what came of it."""
        row = self._finished_ids[letter_id]
        while row is not None and row.state in WAITING and row.id in self._finished_ids:
            row = self._finished_ids[row.id]
        return row

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _start_runs(self) -> None:
        for lane in self._free_lanes():
            if lane.run is None and self._may_start(lane):
                items = self._take_run(lane)
                if items:
                    self._run(lane, items)

    def _free_lanes(self) -> list[PartitionLane]:
        """The partitions that may begin something. A suspect, a record that was in hand before when a process ended, is
        alone in hand: what ends the process again is it, and nothing else is blamed."""
        lanes = list(self._lanes.values())
        held = [lane for lane in lanes if lane.is_in_hand]
        if any(lane.batch.alone for lane in held):
            return [lane for lane in held if lane.batch.alone]
        suspects = [lane for lane in lanes if self._has_suspect(lane)]
        if not suspects:
            return lanes
        return held if held or any(lane.run is not None for lane in lanes) else suspects[:1]

    def _has_suspect(self, lane: PartitionLane) -> bool:
        item = lane.head
        if item is None or item.noted or not self._is_suspect(lane, item):
            return False
        return lane.run is None and item.due <= self._now.ms and self._may_start(lane) and self._decides(lane, item)

    @staticmethod
    def _is_suspect(lane: PartitionLane, item: Item) -> bool:
        """Whether it was in hand before when a process ended, and may be why."""
        return lane.until >= 0 and item.doubted and item.row is not None and item.row.is_suspect

    def _may_start(self, lane: PartitionLane) -> bool:
        if lane.leaving or not lane.opened:
            return False
        if not self._policy.layout.by_key or lane.is_retry:
            return True
        partner = self._partner(lane)
        if partner is None or not partner.caught_up or partner.leaving:
            return False
        assert partner.chains is not None, "only with order by key"
        assert partner.chains is lane.chains, "both see the same keys"
        return partner.unfinished + partner.chains.awaited < self._policy.parked_max

    def _run(self, lane: PartitionLane, items: list[Item]) -> None:
        self._number += 1
        lane.run, lane.running = self._number, items
        if items[0].noted:
            lane.batch.run(self._now.ms)
        lane.reached = max(lane.reached, items[-1].offset + 1)
        for item in items:
            item.state = ItemState.RUNNING
            if lane.is_retry and item.due:
                self.late_ms.append(max(self._now.ms - item.due, 0.0))
        many = self._goes_on or lane.is_retry
        failures_max = (RUN_FAILURES_MAX if self._counts_failures else RUN_MAX) if many else 1
        messages = tuple(
            [item.message._replace(attempt=item.attempt) if item.attempt else item.message for item in items]
        )
        marks = self._marks(lane, items) if lane.batch.marks and items[0].noted else ()
        by_key = self._policy.order == "key"
        self._actions.append(Run(lane.partition, lane.run, messages, failures_max, by_key, marks))

    def _marks(self, lane: PartitionLane, items: list[Item]) -> tuple[Mark | None, ...]:
        """What says which of a batch's records the handler has, or that it has one of so many. In a retry partition
        each has its own, as their offsets do not follow one another. Elsewhere a mark also stands for what was marked
        before: the signal that ends a process may reach another thread first, and the handler's runs on meanwhile."""
        before: int | None = None
        key, lane.marked = hand_key(lane.partition), True
        marks: list[Mark | None] = []
        while len(marks) < len(items):
            item, place = items[len(marks)], len(marks)
            assert item.row is not None, "it is noted"
            span = min(1 if lane.is_retry else lane.batch.span(place), len(items) - place)
            until = items[place + span - 1].origin_offset + 1 if span > 1 else -1
            row = Row(
                State.OPEN,
                member=self._member,
                last=item.row.last,
                tries=int(span == 1),
                position=item.origin_offset,
                until=until,
            )
            if before is not None and not lane.is_retry:
                row = row._replace(position=before, until=max(until, item.origin_offset + 1))
            before = item.origin_offset
            marks += [Mark(key, row), *[None] * (span - 1)]
        return tuple(marks)

    def _take_run(self, lane: PartitionLane) -> list[Item]:
        """The next records to handle; those that nobody has to handle are dealt with on the way."""
        if lane.is_writing_notes:
            return []
        items: list[Item] = []
        noted = lane.noted_ready
        for item in noted:
            if not self._may_take(lane, item):
                break
            if self._takes(lane, item):
                items.append(item)
        if noted:
            return items
        noting: list[Item] = []
        while len(items) < RUN_MAX and len(noting) < lane.batch.size:
            head = lane.head
            if head is None or not self._may_take(lane, head):
                break
            notes, alone = lane.until >= 0 and head.doubted and not head.noted, self._is_suspect(lane, head)
            if (items and notes) or (noting and (alone or not notes)):
                break
            if not self._takes(lane, head):
                continue
            if not notes:
                items.append(head)
            elif not self._has_crashed(lane, head):
                noting.append(head)
                if alone:
                    break
        if noting:
            self._note(lane, noting)
        return items

    def _may_take(self, lane: PartitionLane, item: Item) -> bool:
        """Whether it is its time, there is room, and all have decided on it."""
        return item.due <= self._now.ms and not lane.is_full(item) and self._decides(lane, item)

    def _takes(self, lane: PartitionLane, item: Item) -> bool:
        """Takes it out, to be handled if so it has to be now."""
        lane.take(item)
        if self._stepped_over(lane, item):
            return False
        if lane.chains is not None and not lane.is_retry and lane.chains.blocks(item):
            self._park(lane, item)
            return False
        return True

    def _decides(self, lane: PartitionLane, item: Item) -> bool:
        """Whether all groups that this one waits for have decided on the record."""
        lane.waits_for = ""
        if lane.is_retry:
            return True
        for group in self._policy.after:
            found = self._decided.get((group, lane.partition))
            undecided = found is None or item.offset >= found.upto or item.offset in found.open_offsets
            if undecided or (
                self._policy.on_dead == "wait" and item.offset in self._decided[group, lane.partition].dead_offsets
            ):
                lane.waits_for = group
        return not lane.waits_for

    def _stepped_over(self, lane: PartitionLane, item: Item) -> bool:
        """Whether the record needs no handler: by its row, by another group's decision, or as it has no value."""
        if lane.is_retry:
            return False
        given_up = [
            group
            for group in self._policy.after
            if item.offset in self._decided[group, lane.partition].dead_offsets and self._policy.on_dead == "skip"
        ]
        row, letters_only = item.row, self._policy.reprocess == "letters"
        if row is not None and row.state in WAITING and self._has_letter(row):
            lane.finish(item)  # its letter is on the way
        elif row is not None and row.state in GIVEN_UP | {State.IGNORED} and self._policy.reprocess == "skip":
            self.counts["stepped_over", row.state.value] += 1
            lane.finish(item)
        elif letters_only and (row is None or row.state not in GIVEN_UP):
            lane.finish(item)
        elif given_up:
            self.counts["stepped_over", State.SKIPPED.value] += 1
            reason = f"given up by {given_up[0]}"
            if self._policy.keeps_ledger:
                lane.move(
                    item, Verdict(row=Row(State.SKIPPED, reason=reason, last=self._now.wall_ms, member=self._member))
                )
            else:
                lane.finish(item)
        elif self._policy.skip_tombstones and item.message.value is None:
            lane.finish(item)
        else:
            return False
        return True

    def _has_letter(self, row: Row) -> bool:
        """Without transactions a row may come when the letter was stepped over, from whoever was replaced meanwhile."""
        lane = self._lanes.get(TopicPartition(row.letter_topic, row.letter_partition))
        return bool(self._nonce) or (lane is not None and row.id in lane.seen)

    def _has_crashed(self, lane: PartitionLane, item: Item) -> bool:
        """Whether CRASHES_MAX ends of the process found it in hand: then it is dead."""
        row = item.row
        if row is None or row.tries < CRASHES_MAX or not self._policy.writes_letters:
            return False
        times = row.tries + bool(row.among)
        text = f"the process ended {times} times while the ledger named this record as in hand"
        failure = Failure(FailureKind.FATAL, CRASHED, text=text)
        where = origin_text(item.origin, item.origin_offset)
        self._actions.append(Alarm(CRASHED, f"{where} is a dead letter: {text}", {"record": where}))
        self._count_failure(item, failure)
        item.attempt += 1
        self._die(lane, item)
        return True

    def _note(self, lane: PartitionLane, items: list[Item]) -> None:
        """Notes that these records are about to be in hand: a suspect, or some of which none is."""
        alone = self._is_suspect(lane, items[0])
        others = 0 if alone else sum(other.noted_count for other in self._lanes.values() if other is not lane)
        count = others + len(items)
        lane.batch.begin(items, self._now.ms, alone=alone, marks=count > 1)
        here = (lane.partition.topic, lane.partition.partition)
        for item in items:
            row = item.row
            if row is None and lane.is_retry:
                row = Row(
                    State.RETRYING, item.id, *here, item.attempt, first=item.first, rounds=item.rounds, held=item.held
                )
            item.unnoted = row
            row = (row or Row(State.TRYING))._replace(last=self._now.wall_ms, member=self._member)
            item.row = row._replace(tries=row.tries + 1) if count == 1 else row._replace(among=count)
        for item in items:
            item.noted = True
            lane.move(item, Verdict(row=item.row, stays=True))

    @staticmethod
    def _unnote(lane: PartitionLane, item: Item) -> None:
        """It was noted, and not handled: that it was in hand when the process ended must not be said of it."""
        item.noted, item.row = False, item.unnoted
        lane.move(item, Verdict(row=item.row, stays=True))

    def _park(self, lane: PartitionLane, item: Item) -> None:
        """Sends a newcomer behind its predecessor."""
        assert lane.chains is not None, "only with order by key"
        self.counts["moved", "parked"] += 1
        item.id = self._letter_id(item)
        lane.chains.send(item.key, item.id)
        topic = self._policy.layout.retry(lane.origin.topic, 0)
        last, number = self._now.wall_ms, lane.origin.partition
        row = Row(State.PARKED, item.id, topic, number, last=last, member=self._member, held=item.held)
        letter = Letter(item.id, self._policy.group, item.origin, item.origin_offset)
        put = Put(Goal.PARK, topic, lane.origin.partition, item.message, letter, None, self._now.wall_ms)
        lane.move(item, Verdict(put, row))

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _finished(self, event: Finished) -> None:
        lane = self._lanes.get(event.partition)
        item = None if lane is None or lane.run != event.run else lane.by_offset.get(event.offset)
        if lane is None or item is None or item.state is not ItemState.RUNNING:
            return
        lane.careful = max(lane.careful - 1, 0)
        lane.clear(item)
        if event.outcome.failure is None:
            self._succeeded(lane, item, event.outcome)
        else:
            self._failed(lane, item, event.outcome.failure)

    def _run_ended(self, event: RunEnded) -> None:
        lane = self._lanes.get(event.partition)
        if lane is None or lane.run != event.run:
            return
        for item in lane.running:
            if item.state is ItemState.RUNNING:
                if item.noted:
                    self._unnote(lane, item)
                else:
                    lane.push(item)
        lane.run, lane.running = None, []
        lane.batch.ended(self._now.ms, event.each_ms)
        if self._breaker.probing:
            self._breaker.probe_failed(self._now.ms)  # nobody has tried

    def _succeeded(self, lane: PartitionLane, item: Item, outcome: Outcome) -> None:
        self.counts["processed", lane.origin.topic] += 1
        self._actions += self._losses.succeeded(self._now.ms)
        if self._breaker.is_open and self._breaker.probing:
            self._breaker.close()
            self._actions.append(Alarm("breaker", "the breaker is closed: all goes on", {"open": False}))
        elif not self._breaker.is_open:
            self._breaker.note(self._now.ms, failed=False)
        if lane.is_retry or item.row is not None:
            lane.move(item, Verdict(row=None, outputs=outcome.outputs))
            if lane.is_retry and lane.chains is not None and not item.held:
                following = lane.chains.passed(item)
                if following is not None:
                    lane.push(following)
        elif outcome.outputs:
            lane.move(item, Verdict(outputs=outcome.outputs, writes_row=False))
        else:
            lane.finish(item)

    def _failed(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        self._count_failure(item, failure)
        if self._breaker.is_open:
            probing, self._breaker.probing = self._breaker.probing, False
            if probing:
                self._breaker.probe_failed(self._now.ms)
            if not probing or self._rotates or failure.kind is FailureKind.OUTAGE:
                item.probes += 1
                item.counted = False
                self._again(lane, item)
                return
        elif failure.kind is FailureKind.OUTAGE:
            self._open_breaker(f"{failure.name} says that a system is down")
            self._again(lane, item)
            return
        elif not item.counted:
            item.counted = True
            if self._breaker.note(self._now.ms, failed=True):
                self._open_breaker("too much fails")
                self._again(lane, item)
                return
        item.attempt += 1
        item.first = item.first or self._now.wall_ms
        if failure.kind is FailureKind.FATAL and self._policy.writes_letters:
            self._die(lane, item)
        else:
            self._take_step(lane, item, failure, self._policy.step(failure.rule, item.attempt))

    @staticmethod
    def _again(lane: PartitionLane, item: Item) -> None:
        """It waits to be tried here again. That it was in hand is over: the process has lived on."""
        if item.noted and item.row is not None:
            item.noted, item.row = False, item.row._replace(tries=0, among=0)
            lane.move(item, Verdict(row=item.row, stays=True))
        else:
            lane.push(item)

    def _count_failure(self, item: Item, failure: Failure) -> None:
        item.failure = failure
        self.counts["failed", failure.name] += 1

    def _take_step(self, lane: PartitionLane, item: Item, failure: Failure, step: Step) -> None:
        delay_ms = step.delay_ms * (1.0 + step.jitter * self._draw()) if step.delay_ms else 0.0
        match step.kind:
            case StepKind.HERE:
                self._look_at_age(item, failure)
                item.due = self._now.ms + delay_ms
                self._again(lane, item)
            case StepKind.TOPIC:
                self._retry(lane, item, step.delay_ms, round(delay_ms))
            case StepKind.DEAD:
                self._die(lane, item)
            case StepKind.IGNORE:
                self._ignore(lane, item, failure)
            case StepKind.STOP:
                where = origin_text(item.origin, item.origin_offset)
                self.stop(f"{where} failed, and the policy says to stop: {failure.name}: {failure.text}")
                lane.push(item)

    def _look_at_age(self, item: Item, failure: Failure) -> None:
        """An alarm, once, for a record that is tried for long."""
        strategy = self._policy.strategies[failure.rule + 1]
        age_ms = self._now.wall_ms - item.first
        if isinstance(strategy, RetryForever) and not item.old and age_ms >= milliseconds(strategy.alarm_after):
            item.old = True
            where = origin_text(item.origin, item.origin_offset)
            text = f"{where} has been failing for {age_ms // 1000} s: {failure.name}: {failure.text}"
            self._actions.append(Alarm("age", text, {"record": where, "age_ms": age_ms}))

    def _retry(self, lane: PartitionLane, item: Item, topic_ms: int, delay_ms: int) -> None:
        """To the retry topic of this delay; with order by key a letter stays in the one that it is in."""
        self.counts["moved", "retry"] += 1
        now = self._now
        due = now.wall_ms + 1 + delay_ms  # the clock has cut off a part of a millisecond, and nothing may be early
        topic = self._policy.layout.retry(lane.origin.topic, topic_ms)
        stays = lane.is_retry and self._policy.layout.by_key
        if not stays:
            item.id = self._letter_id(item)
        assert item.failure is not None, "it has failed"
        row = Row(
            State.RETRYING,
            item.id,
            topic,
            lane.origin.partition,
            item.attempt,
            due,
            item.failure.name,
            first=item.first,
            last=now.wall_ms,
            member=self._member,
            rounds=item.rounds,
            held=item.held,
        )
        if stays:
            item.row, item.due, item.noted = row, now.ms + delay_ms, False
            lane.move(item, Verdict(row=row, stays=True))
            return
        if lane.chains is not None:
            lane.chains.send(item.key, item.id)
        letter = Letter(
            item.id, self._policy.group, item.origin, item.origin_offset, item.attempt, due, item.first, item.rounds
        )
        put = Put(Goal.RETRY, topic, lane.origin.partition, item.message, letter, item.failure, now.wall_ms)
        lane.move(item, Verdict(put, row))

    def _die(self, lane: PartitionLane, item: Item, state: State = State.DEAD) -> None:
        """To the dead letters."""
        assert item.failure is not None, "it has failed"
        self.counts["moved", "dead"] += 1
        now = self._now.wall_ms
        item.first = item.first or now
        item.id = self._letter_id(item)
        if self._holds and lane.chains is not None and item.key is not None:
            item.held = item.held or key_digest(item.key)
            lane.chains.hold(item.held, item.origin_offset)
        topic = self._policy.layout.dead(lane.origin.topic)
        row = Row(
            state,
            item.id,
            topic,
            lane.origin.partition,
            item.attempt,
            exception=item.failure.name,
            reason=item.failure.text[:200],
            first=item.first,
            last=now,
            member=self._member,
            rounds=item.rounds,
            held=item.held,
        )
        letter = Letter(
            item.id, self._policy.group, item.origin, item.origin_offset, item.attempt, 0, item.first, item.rounds
        )
        put = Put(Goal.DEAD, topic, lane.origin.partition, item.message, letter, item.failure, now)
        lane.move(item, Verdict(put, row))

    def _letter_id(self, item: Item) -> str:
        where = origin_text(item.origin, item.origin_offset)
        if not self._nonce:
            return f"{where}/{item.rounds}.{item.attempt}"
        self._number += 1
        return f"{where}/{item.rounds}.{item.attempt}/{self._nonce}{self._number:x}"

    # --- what is ignored ----------------------------------------------------------------------------------------------

    def _ignore(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        place = failure.rule + 1
        strategy = self._policy.strategies[place]
        alarms, then = self._losses.lost(place, failure, self._now.ms)
        self._actions += alarms
        if then == "stop":
            self.stop("too many records are lost, and the policy says to stop")
            lane.push(item)
            return
        if then == "dead letter":
            self._die(lane, item)
            return
        self.counts["ignored", lane.origin.topic] += 1
        row = None
        if isinstance(strategy, Ignore) and strategy.record:
            row = Row(
                State.IGNORED, attempt=item.attempt, exception=failure.name, last=self._now.wall_ms, member=self._member
            )
        if row is not None or lane.is_retry or item.row is not None:
            lane.move(item, Verdict(row=row))
        else:
            lane.finish(item)

    def stop(self, reason: str) -> None:
        """Starts no record from now on; what is done can be written still."""
        self.stopped = reason
        self._actions += [Alarm("stopped", reason, {}), Stop(reason)]

    # --- the breaker --------------------------------------------------------------------------------------------------

    def _open_breaker(self, why: str) -> None:
        """Nothing is moved any more: what failed and is not written yet waits with all others."""
        self._breaker.open(self._now.ms)
        self._actions.append(Alarm("breaker", f"the breaker is open: {why}", {"open": True}))
        for lane in self._lanes.values():
            if lane.run is not None:
                self._actions.append(Withdraw(lane.partition))
            for item in list(lane.moving.values()):
                put = None if item.verdict is None else item.verdict.put
                if put is not None and put.goal in {Goal.RETRY, Goal.DEAD} and not self._moves.is_in_flight(lane, item):
                    self._recall(lane, item, put)

    def _recall(self, lane: PartitionLane, item: Item, put: Put) -> None:
        del lane.moving[item.offset]
        item.attempt -= 1
        item.counted = False
        self.counts["moved", put.goal.value] -= 1
        if lane.chains is not None and not lane.is_retry and put.goal is Goal.RETRY:
            assert put.letter is not None, "what is retried is a letter"
            lane.chains.take_back(item.key, put.letter.id)
        lane.push(item)

    def _probe(self) -> None:
        """Tries one record, when it is time: the one that was tried least."""
        if self._breaker.probing or self._now.ms < self._breaker.probe_at:
            return
        best: tuple[int, TopicPartition, int] | None = None
        for key, lane in self._lanes.items():
            if lane.run is not None or not self._may_start(lane):
                continue
            head = lane.head
            candidates: Iterator[Item] = iter(() if head is None else (head,))
            if self._rotates:
                candidates = lane.ready()
            for item in candidates:
                blocked = lane.chains is not None and not lane.is_retry and lane.chains.blocks(item)
                if item.due <= self._now.ms and not blocked and self._decides(lane, item):
                    place = (item.probes, key, item.offset)
                    best = place if best is None else min(best, place)
        if best is None:
            self._breaker.probe_failed(self._now.ms)
            return
        lane = self._lanes[best[1]]
        item = lane.by_offset[best[2]]
        lane.take_out(item)
        if self._stepped_over(lane, item):
            return
        self._breaker.probing = True
        self._run(lane, [item])

    # --- what is written ----------------------------------------------------------------------------------------------

    def _transact(self) -> None:
        transact = self._moves.begin(self._lanes, self._now, at_once=bool(self.stopped))
        if transact is not None:
            self._actions.append(transact)

    def _transaction_ended(self, event: TransactionEnded) -> None:
        try:
            flight = self._moves.end(event, self._now.ms)
        except TooLarge as error:
            self.stop(str(error))
            return
        done = not event.failed and event.too_large is None
        for key, items in flight.chosen.items():
            lane = flight.lanes[key]
            if self._lanes.get(key) is not lane:
                continue
            if done:
                lane.committed = flight.offsets.get(key, lane.committed)
                lane.opened = lane.opened or lane.opening
                lane.calming = lane.calming and not lane.calmed
                for item in items:
                    self._written(lane, item)
            if key in flight.last:
                self._drop([key])
        if self.is_closing:
            self._moves.hurry()

    def _written(self, lane: PartitionLane, item: Item) -> None:
        assert item.verdict is not None, "it was written"
        if item.verdict.stays:
            lane.moving.pop(item.offset)
            if lane.leaving and item.noted:
                self._unnote(lane, item)
            else:
                lane.push(item)
            return
        if lane.is_retry and not self._nonce:
            lane.seen.discard(item.came_as)
            self._finished_ids[item.came_as] = item.verdict.row
            while len(self._finished_ids) > FINISHED_IDS_MAX:
                del self._finished_ids[next(iter(self._finished_ids))]
        if item.offset < 0:
            del lane.moving[item.offset]  # a letter that was lost: it stands in no partition
        else:
            lane.finish(item)
        self._hold_or_release(lane, item, item.verdict.put)

    def _hold_or_release(self, lane: PartitionLane, item: Item, put: Put | None) -> None:
        """A key that is held waits for this record until it is decided otherwise than dead."""
        if not item.held or lane.chains is None:
            return
        if put is None:
            self._release(lane, item.held)
        elif put.goal is Goal.DEAD:
            lane.chains.written.add(item.held)
            where = origin_text(item.origin, item.origin_offset)
            text = f"{where} is dead, and its key waits until it is redriven or resolved"
            self._actions.append(Alarm("held", text, {"record": where}))

    def _release(self, lane: PartitionLane, digest: str) -> None:
        """What waited behind a dead record goes on."""
        retry = lane if lane.is_retry else self._partner(lane)
        if retry is not None and retry.chains is not None:
            following = retry.chains.release(digest)
            if following is not None:
                retry.push(following)

    def _released(self, event: Released) -> None:
        for lane in self._lanes.values():
            if lane.is_retry and lane.origin == event.partition and lane.chains is not None:
                for digest, offset in list(lane.chains.holders.items()):
                    if offset == event.offset and digest in lane.chains.written:
                        self._release(lane, digest)

    def _commit(self, commit: Commit | None) -> None:
        if commit is not None:
            self._actions.append(commit)

    def _flow(self) -> None:
        """Reads no further ahead than there is room for. What is only to be written has been handled: the next are read
        meanwhile. IN_HAND_MAX of it, as what cannot be read needs nobody's hands and would be read for ever."""
        for lane in self._lanes.values():
            parks = lane.is_retry and lane.chains is not None
            limit = self._policy.parked_max if parks else self._policy.ahead_max
            count = lane.unfinished if parks else lane.unfinished - min(len(lane.moving), IN_HAND_MAX)
            waits = parks and lane.chains is not None and bool(lane.chains.holders)
            if not lane.paused and count >= limit and not waits:
                lane.paused = True
                self._actions.append(Pause(lane.partition))
            elif lane.paused and (waits or count <= limit // 2):
                lane.paused = False
                self._actions.append(Resume(lane.partition))


def stamp_of(row: Row) -> tuple[str, int]:
    """Whose note it is, and of when: the same for all records of a batch."""
    return row.member, row.last
