"""Choose the records that the handler gets next: one run (sequence of records) per partition at a time.

The next record of a partition waits for its due time, for commits if too many outcomes are uncommitted, and for the
decisions of all groups in `Policy.after`. Then one of these actions is chosen:

    run     the handler gets the record
    note    after an unclean shutdown, the ledger first notes the record as "in hand"
    skip    the handler must not get the record
    park    the record moves to the retry topic, to wait there for earlier records of its key

While the circuit breaker is open, one record at a time runs as a probe.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.failures.events import Alarm, Failure, FailureKind, Goal, Letter, Mark, Put, Run
from kafkalite.failures.lanes import RUN_MAX, ItemState, Verdict
from kafkalite.failures.names import origin_text
from kafkalite.failures.retry_strategies import RetryTopics
from kafkalite.failures.rows import GIVEN_UP, WAITING, Row, State, hand_key
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.outcomes import Outcomes
    from kafkalite.failures.state import SessionState

RUN_FAILURES_MAX: Final = 10
"""Failures that end a run early, if the order allows more than one and a limit or alarm counts them."""
CRASHES_MAX: Final = 2
"""Number of process ends with one record in hand after which this record becomes a dead letter (`crashed`)."""
CRASHED: Final = "crashed"


class Runs:
    """Schedules the runs of a session; see the module."""

    def __init__(self, state: SessionState, outcomes: Outcomes) -> None:
        policy = state.policy
        self._state = state
        self._outcomes = outcomes
        self._policy = policy
        self._member = state.member
        self._nonce = state.nonce
        self._rotates = state.rotates
        self._goes_on = state.rotates or (policy.order == "key" and isinstance(policy.strategy, RetryTopics))
        self._run_max = max(RUN_MAX, policy.batch)
        self._counts_failures = policy.limit is not None or state.losses.counts
        self._lanes = state.lanes
        self._breaker = state.breaker
        self._decided = state.decided
        self._actions = state.actions
        self._counts = state.counts
        self.late_ms: list[float] = []
        """How late after their due times letters ran, in ms, until a reader takes the values."""

    def start(self) -> None:
        """Start a run in each partition where one may start."""
        for lane in self._free_lanes():
            if lane.run is None and self._may_start(lane):
                items = self._take_run(lane)
                if items:
                    self._run(lane, items)

    def _free_lanes(self) -> list[PartitionLane]:
        """Return the partitions that may start a run.

        While a suspect is handled, no other record is. So if the process ends again, the suspect is the cause.
        """
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
        return (
            lane.run is None and item.due <= self._state.now.ms and self._may_start(lane) and self._decides(lane, item)
        )

    @staticmethod
    def _is_suspect(lane: PartitionLane, item: Item) -> bool:
        """Return whether this record was in hand when a process ended, so that it may be the cause."""
        return lane.until >= 0 and item.doubted and item.row is not None and item.row.is_suspect

    def _may_start(self, lane: PartitionLane) -> bool:
        if lane.leaving or not lane.opened:
            return False
        if not self._policy.layout.by_key or lane.is_retry or lane.is_dead:
            return True
        partner = self._state.partner(lane)
        if partner is None or not partner.caught_up or partner.leaving:
            return False
        assert partner.chains is not None, "only with order by key"
        assert partner.chains is lane.chains, "both see the same keys"
        return partner.unfinished + partner.chains.awaited < self._policy.parked_max

    def _run(self, lane: PartitionLane, items: list[Item]) -> None:
        self._state.number += 1
        lane.run, lane.running = self._state.number, items
        if items[0].noted:
            lane.batch.run(self._state.now.ms)
        lane.reached = max(lane.reached, items[-1].offset + 1)
        for item in items:
            item.state = ItemState.RUNNING
            if lane.is_retry and item.due:
                self.late_ms.append(max(self._state.now.ms - item.due, 0.0))
        many = (self._goes_on or lane.is_retry) and not lane.is_dead
        failures_max = (RUN_FAILURES_MAX if self._counts_failures else self._run_max) if many else 1
        messages = tuple(
            [item.message._replace(attempt=item.attempt) if item.attempt else item.message for item in items]
        )
        marks = self._marks(lane, items) if lane.batch.marks and items[0].noted else ()
        by_key = self._policy.order == "key" and not lane.is_dead
        self._actions.append(Run(lane.partition, lane.run, messages, failures_max, by_key, marks))

    def _marks(self, lane: PartitionLane, items: list[Item]) -> tuple[Mark | None, ...]:
        """Return the marks of a batch. Each mark names the record that the handler gets next.

        In a source topic, a mark also covers the records of the previous mark, because a signal may end the process a
        moment late, when the handler already has the next record. In a retry partition, each mark covers one record,
        because the source offsets are not consecutive.
        """
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
        """Take the next records to handle from the queue. Skip, park or note records that must not be handled now."""
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
        while len(items) < self._run_max and len(noting) < lane.batch.size:
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
        """Return whether a record is due, not too far ahead of the commit, and decided by the groups in `after`."""
        return item.due <= self._state.now.ms and not lane.is_full(item) and self._decides(lane, item)

    def _takes(self, lane: PartitionLane, item: Item) -> bool:
        """Take a record from the queue. Return whether to handle it now; otherwise it is skipped or parked."""
        lane.take(item)
        if self._stepped_over(lane, item):
            return False
        if lane.chains is not None and not lane.is_retry and lane.chains.blocks(item):
            self._park(lane, item)
            return False
        return True

    def _decides(self, lane: PartitionLane, item: Item) -> bool:
        """Return whether all groups in `after` have decided on the record."""
        lane.waits_for = ""
        if lane.is_retry or lane.is_dead:
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
        """Skip a record that must not be handled. Return whether the record was skipped.

        The reason can be its ledger row, another group's decision, or that it is a tombstone.
        """
        if lane.is_retry:
            return False
        if lane.is_dead:
            is_over = item.row is not None and item.row.state in GIVEN_UP
            if is_over:
                lane.finish(item)
            return is_over
        given_up = [
            group
            for group in self._policy.after
            if item.offset in self._decided[group, lane.partition].dead_offsets and self._policy.on_dead == "skip"
        ]
        row, letters_only = item.row, self._policy.reprocess == "letters"
        if row is not None and row.state in WAITING and self._has_letter(row):
            lane.finish(item)  # its letter is on the way
        elif row is not None and row.state in GIVEN_UP | {State.IGNORED} and self._policy.reprocess == "skip":
            self._counts["stepped_over", row.state.value] += 1
            lane.finish(item)
        elif letters_only and (row is None or row.state not in GIVEN_UP):
            lane.finish(item)
        elif given_up:
            self._counts["stepped_over", State.SKIPPED.value] += 1
            reason = f"given up by {given_up[0]}"
            if self._policy.keeps_ledger:
                row = Row(State.SKIPPED, reason=reason, last=self._state.now.wall_ms, member=self._member)
                lane.move(item, Verdict(row=row))
            else:
                lane.finish(item)
        elif self._policy.skip_tombstones and item.message.value is None:
            lane.finish(item)
        else:
            return False
        return True

    def _has_letter(self, row: Row) -> bool:
        """Return whether the letter that a row names will still be handled.

        With transactions, this is always true. Without them, a replaced member may write a row after its letter was
        skipped. So the letter must have been read here and must not be finished.
        """
        lane = self._lanes.get(TopicPartition(row.letter_topic, row.letter_partition))
        return bool(self._nonce) or (lane is not None and row.id in lane.seen)

    def _has_crashed(self, lane: PartitionLane, item: Item) -> bool:
        """Give up a record that was in hand when CRASHES_MAX processes ended. Return whether it was given up."""
        row = item.row
        if row is None or row.tries < CRASHES_MAX or not self._policy.writes_letters:
            return False
        times = row.tries + bool(row.among)
        text = f"the process died {times} times while it processed this record"
        failure = Failure(FailureKind.FATAL, CRASHED, text=text)
        if lane.is_dead:
            item.attempt += 1
            self._outcomes.give_up_call(lane, item, failure)
            return True
        where = origin_text(item.origin, item.origin_offset)
        self._actions.append(Alarm(CRASHED, f"{where} became a dead letter: {text}", {"record": where}))
        self._outcomes.count_failure(item, failure)
        item.attempt += 1
        self._outcomes.die(lane, item)
        return True

    def _note(self, lane: PartitionLane, items: list[Item]) -> None:
        """Schedule in-hand notes for the records that are handled next: one suspect, or several other records."""
        alone = self._is_suspect(lane, items[0])
        others = 0 if alone else sum(other.noted_count for other in self._lanes.values() if other is not lane)
        count = others + len(items)
        lane.batch.begin(items, self._state.now.ms, alone=alone, marks=count > 1)
        here = (lane.partition.topic, lane.partition.partition)
        for item in items:
            row = item.row
            if row is None and lane.is_retry:
                row = Row(
                    State.RETRYING, item.id, *here, item.attempt, first=item.first, rounds=item.rounds, held=item.held
                )
            item.unnoted = row
            row = (row or Row(State.TRYING))._replace(last=self._state.now.wall_ms, member=self._member)
            item.row = row._replace(tries=row.tries + 1) if count == 1 else row._replace(among=count)
        for item in items:
            item.noted = True
            lane.move(item, Verdict(row=item.row, stays=True))

    def _park(self, lane: PartitionLane, item: Item) -> None:
        """Schedule the write of a record to the retry topic, where it waits for the earlier records of its key."""
        assert lane.chains is not None, "only with order by key"
        self._counts["moved", "parked"] += 1
        item.id = self._state.letter_id(item)
        lane.chains.send(item.key, item.id)
        topic = self._policy.layout.retry(lane.origin.topic, 0)
        last, number = self._state.now.wall_ms, lane.origin.partition
        row = Row(State.PARKED, item.id, topic, number, last=last, member=self._member, held=item.held)
        letter = Letter(item.id, self._policy.group, item.origin, item.origin_offset)
        put = Put(Goal.PARK, topic, lane.origin.partition, item.message, letter, None, self._state.now.wall_ms)
        lane.move(item, Verdict(put, row))

    def probe(self) -> None:
        """Run one record as a probe, if a probe is due. Of the records that may run, the one with the fewest probes is
        chosen.
        """
        if self._breaker.probing or self._state.now.ms < self._breaker.probe_at:
            return
        best: tuple[int, TopicPartition, int] | None = None
        for key, lane in self._lanes.items():
            if lane.run is not None or lane.is_dead or lane.is_writing_notes or not self._may_start(lane):
                continue
            head = lane.head
            candidates: Iterator[Item] = iter(() if head is None else (head,))
            if self._rotates:
                candidates = lane.ready()
            for item in candidates:
                blocked = lane.chains is not None and not lane.is_retry and lane.chains.blocks(item)
                if item.due <= self._state.now.ms and not blocked and self._decides(lane, item):
                    place = (item.probes, key, item.offset)
                    best = place if best is None else min(best, place)
        if best is None:
            self._breaker.probe_failed(self._state.now.ms)
            return
        lane = self._lanes[best[1]]
        item = lane.by_offset[best[2]]
        lane.take_out(item)
        if self._stepped_over(lane, item):
            return
        self._breaker.probing = True
        self._run(lane, [item])
