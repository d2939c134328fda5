"""Decide which records a member handles next and what happens to those that fail: events in, actions out.

The session has no I/O, no clock and no threads. The runner passes events with the current time, and executes the
returned actions in order.

    Fetched              queue the records by partition ─▶ Run: the handler gets the next records
    Finished, success    the record is done ─▶ Commit, at least every second
    Finished, failure    the policy's step: retry in place, or ─▶ Transact: letter, ledger row and offset

Invariants with exactly-once moves, even if the process dies between two actions:
 1. Before an offset is committed, each record below it is done, or its letter is in the same transaction. So no record
    is lost.
 2. A record's letter, ledger row and offset are written in one transaction, so no record is duplicated.
 3. A letter in a retry partition is handled only while the ledger lists its id.
 4. If a record repeatedly ends the process, only this record becomes a dead letter.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.failures.arrivals import Arrivals
from kafkalite.failures.commits import Commits
from kafkalite.failures.events import (
    Alarm,
    Assigned,
    CommitEnded,
    Damaged,
    Decided,
    Doubt,
    Fetched,
    Finished,
    FinishedTogether,
    Goal,
    Lost,
    Pause,
    Put,
    Released,
    Resume,
    Revoked,
    Revoking,
    RunEnded,
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
)
from kafkalite.failures.moves import TooLarge
from kafkalite.failures.names import origin_text
from kafkalite.failures.outcomes import Outcomes
from kafkalite.failures.rows import OPEN_LETTERS
from kafkalite.failures.runs import Runs
from kafkalite.failures.state import SessionState
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.failures.events import Action, Commit, Event, Rows, Start
    from kafkalite.failures.moves import Flight
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.rows import Row
    from kafkalite.failures.times import Moment

CAREFUL_COUNT: Final = IN_HAND_MAX + RUN_MAX
"""Maximum number of records after the committed offset that may have been in hand when a member ended."""
FINISHED_IDS_MAX: Final = 100_000


class Session:
    """Makes the decisions of a member; see the module. The arguments are those of SessionState."""

    def __init__(
        self, policy: Policy, *, member: str, nonce: str, draw: Callable[[], float], by_partition: bool = False
    ) -> None:
        state = SessionState(policy, member=member, nonce=nonce, draw=draw, by_partition=by_partition)
        self._state = state
        self._policy = policy
        self._nonce = nonce
        self._holds = state.holds
        self._lanes = state.lanes
        self._breaker = state.breaker
        self._moves = state.moves
        self._commits = Commits(state.moves)
        self._decided = state.decided
        self._finished_ids = state.finished_ids
        self._actions = state.actions
        self._outcomes = Outcomes(state)
        self._runs = Runs(state, self._outcomes)
        self._arrivals = Arrivals(state, self._outcomes)
        self.counts = state.counts
        self.late_ms = self._runs.late_ms

    # --- events -------------------------------------------------------------------------------------------------------

    def on(self, event: Event, now: Moment) -> list[Action]:
        """Return the actions for one event, in order."""
        return self.on_all((event,), now)

    def on_all(self, events: Iterable[Event], now: Moment) -> list[Action]:
        """Return the actions for several events, in order."""
        self._state.now = now
        for event in events:
            self._hear(event)
        if not self._state.stopped:
            self._advance()
        else:
            self._transact()
        actions = self._actions.copy()
        self._actions.clear()
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
                self._arrivals.fetched(event)
            case Finished():
                self._outcomes.finished(event)
            case FinishedTogether():
                self._outcomes.finished_together(event)
            case RunEnded():
                self._outcomes.run_ended(event)
            case TransactionEnded():
                self._transaction_ended(event)
            case CommitEnded():
                self._commits.end(event, self._state.now.ms)
            case Damaged():
                self._arrivals.damaged(event)
            case Decided():
                self._decided[event.group, event.partition] = event
            case Released():
                self._released(event)
            case Tick():
                pass

    def _advance(self) -> None:
        for lane in self._lanes.values():
            if not lane.checked_lost and lane.caught_up:
                self._arrivals.check_lost(lane)
        self._look_at_doubts()
        self._runs.probe() if self._breaker.is_open else self._runs.start()
        self._transact()
        self._commit(self._commits.begin(self._lanes.values(), self._state.now.ms))
        self._flow()

    def stop(self, reason: str) -> None:
        """Start no more records. Finished records can still be written."""
        self._state.stop(reason)

    @property
    def stopped(self) -> str:
        """The reason why the session ended; "" until then."""
        return self._state.stopped

    @property
    def wake_at(self) -> float | None:
        """The latest time at which the caller has to send Tick (monotonic ms). None if Tick cannot cause an action."""
        if self._state.stopped:
            return None
        times = list(self._moves.wakes(self._state.now.ms))
        for lane in self._lanes.values():
            if self._breaker.is_open:
                times.append(self._breaker.probe_at)
            elif lane.run is None and lane.head is not None and lane.head.due > self._state.now.ms:
                times.append(lane.head.due)
            if self._commits.waits(lane):
                times.append(self._commits.due_at)
        return min(times, default=None)

    @property
    def is_busy(self) -> bool:
        """Whether any record is being handled or written, or is ready to be handled now."""
        for lane in self._lanes.values():
            head = None if self._breaker.is_open or lane.waits_for else lane.head
            if lane.run is not None or lane.moving or (head is not None and head.due <= self._state.now.ms):
                return True
        return False

    @property
    def is_closing(self) -> bool:
        """Whether partitions that are being revoked still have something to write."""
        return any(lane.closing for lane in self._lanes.values())

    @property
    def waits(self) -> dict[TopicPartition, str]:
        """The partitions whose next record waits for another group, each with that group.

        The caller has to send Decided for them.
        """
        return {lane.partition: lane.waits_for for lane in list(self._lanes.values()) if lane.waits_for}

    @property
    def holders(self) -> dict[TopicPartition, list[int]]:
        """The offsets of the dead records whose keys are held, in order, by source partition.

        The caller sends Released when the ledger no longer lists such a record as held.
        """
        found = {}
        for lane in self._lanes.values():
            if lane.is_retry and lane.chains is not None and lane.chains.written:
                found[lane.origin] = sorted(lane.chains.holders[digest] for digest in lane.chains.written)
        return found

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to read, for each partition that is neither paused nor leaving."""
        return {key: lane.position for key, lane in self._lanes.items() if not (lane.paused or lane.leaving)}

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """The next offset to read, for each partition that is not yet read up to its end offset at the assignment."""
        return {key: lane.position for key, lane in self._lanes.items() if not lane.caught_up}

    @property
    def breaker_open(self) -> bool:
        return self._breaker.is_open

    @property
    def waiting_count(self) -> int:
        """The number of letters of retry topics that were read and are not finished."""
        return sum(lane.unfinished for lane in list(self._lanes.values()) if lane.is_retry)

    @property
    def parked_keys(self) -> int:
        """The number of keys that wait for a failed record."""
        return sum(lane.chains.parked_keys for lane in list(self._lanes.values()) if lane.is_retry and lane.chains)

    @property
    def held_keys(self) -> int:
        """The number of keys that are held until the outcome of their dead record is decided."""
        return sum(len(lane.chains.holders) for lane in list(self._lanes.values()) if lane.is_retry and lane.chains)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> None:
        layout = self._policy.layout
        self._state.topic_ids.assigned(event.topic_ids)
        keyed = {key for key in event.starts if layout.by_key and layout.lane(key.topic).is_retry}
        chains = {key: KeyChains() for key in keyed}
        for key, start in sorted(event.starts.items()):
            main, is_retry, is_dead = layout.lane(key.topic)
            rows = event.rows.get(TopicPartition(main, key.partition), {})
            if is_retry:  # letters of a topic that was deleted are still retried
                self._state.topic_ids.found(TopicPartition(main, key.partition), rows)
            else:
                topic_id = event.topic_ids.get(main, "")
                rows = {offset: row for offset, row in rows.items() if row.concerns(topic_id)}
            lane = PartitionLane(
                key,
                main,
                start,
                rows,
                is_retry=is_retry,
                chains=chains.get(key),
                open_ids=open_ids(event.rows, key) if is_dead else None,
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
        """Find the records that may have crashed the partition's previous owner.

        They are the records that the previous owner can have reached. In a retry partition they must also have been
        due. After an unclean shutdown, the ledger notes records as "in hand" before they are handled, in growing
        batches. If a mark names one record of a batch, the handler had only that record, which is handled alone next.
        Without a mark, all records of the batch are handled one at a time.
        """
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
            lane.careful, lane.until, lane.came_ms = CAREFUL_COUNT, until, self._state.now.wall_ms
            self._actions.append(Doubt(lane.partition, start.position, until, suspects))

    def _look_at_doubts(self) -> None:
        """Stop noting records in partitions where every record that may have crashed the last owner has an outcome."""
        for lane in self._lanes.values():
            if lane.until >= 0 and lane.is_over and not lane.leaving:
                self._actions.append(Doubt(lane.partition, lane.first, lane.until, over=True))
                lane.careful, lane.until = 0, -1
                lane.calming = lane.opened or lane.opening
            if lane.batch.items and lane.until < 0 and lane.batch.is_over:
                lane.batch.items = []

    def _see_keys(self, lane: PartitionLane) -> None:
        """Connect a source partition to the key chains of its retry partition, which may have just been assigned."""
        partner = None if lane.is_retry else self._state.partner(lane)
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
                        lane.unnote(item)
                    elif item.noted and item.is_staying and not self._moves.is_in_flight(lane, item):
                        lane.unnote(item)

    def _close(self, partitions: Iterable[TopicPartition]) -> None:
        """Start the last transaction of revoked partitions.

        Records that do not fit into this transaction are left to the next owner.
        """
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

    # --- what is written ----------------------------------------------------------------------------------------------

    def _transact(self) -> None:
        transact = self._moves.begin(self._lanes, self._state.now, at_once=bool(self._state.stopped))
        if transact is not None:
            self._actions.append(transact)

    def _transaction_ended(self, event: TransactionEnded) -> None:
        try:
            flight = self._moves.end(event, self._state.now.ms)
        except TooLarge as error:
            flight = error.flight
            self._state.stop(str(error))
            self._give_back(flight, error.item)
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
            elif lane.leaving:
                for item in items:
                    if item.noted and item.is_staying:
                        lane.unnote(item)  # not written, so the record will not be handled here
            if key in flight.last and event.too_large is None:
                self._drop([key])
        if self.is_closing:
            self._moves.hurry()

    @staticmethod
    def _give_back(flight: Flight, item: Item) -> None:
        """Discard the outcome of a record, and of those handled in the same call. The next member handles them.

        With order by key, this includes the outcomes of later letters of their keys, which were handled after them or
        are being handled.
        """
        lane = next(flight.lanes[key] for key, items in flight.chosen.items() if item in items)
        found, waiting = set[Item](), [item]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += one.bundle
                if lane.is_retry and lane.chains is not None and one.key is not None:
                    lane.given_back[one.key] = min(one.offset, lane.given_back.get(one.key, one.offset))
                    later = [other for other in lane.moving.values() if other.offset > one.offset]
                    waiting += [other for other in later if other.key == one.key]
        for one in found:
            one.bundle = []
            if one.noted:
                lane.unnote(one)
            else:
                del lane.moving[one.offset]
                lane.push(one)

    def _written(self, lane: PartitionLane, item: Item) -> None:
        assert item.verdict is not None, "it was written"
        item.bundle = []
        if item.verdict.stays:
            lane.moving.pop(item.offset)
            if lane.leaving and item.noted:
                lane.unnote(item)
            else:
                lane.push(item)
            return
        if lane.is_retry and not self._nonce:
            lane.seen.discard(item.came_as)
            self._finished_ids[item.came_as] = item.verdict.row
            while len(self._finished_ids) > FINISHED_IDS_MAX:
                del self._finished_ids[next(iter(self._finished_ids))]
        if item.offset < 0:
            del lane.moving[item.offset]  # a lost letter: it is in no partition
        else:
            lane.finish(item)
        self._hold_or_release(lane, item, item.verdict.put)

    def _hold_or_release(self, lane: PartitionLane, item: Item, put: Put | None) -> None:
        """Hold the key of a record that is dead; release it when the record has another outcome."""
        if not item.held or lane.chains is None:
            return
        if put is None:
            self._release(lane, item.held)
        elif put.goal is Goal.DEAD:
            lane.chains.written.add(item.held)
            where = origin_text(item.origin, item.origin_offset)
            text = f"{where} is a dead letter; records with its key wait until it is redriven or resolved"
            self._actions.append(Alarm("held", text, {"record": where}))

    def _release(self, lane: PartitionLane, digest: str) -> None:
        """Release a held key, so that records which waited for a dead record continue."""
        retry = lane if lane.is_retry else self._state.partner(lane)
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
        """Pause partitions that are read too far ahead, and resume them.

        Records that only wait for a write do not count, up to IN_HAND_MAX, so that reading continues meanwhile. This
        limit is needed because unreadable records are written without being handled.

        Records whose in-hand note is being written do count, because they are still to be handled. Otherwise the
        partition would be resumed for a moment, and the client would drop its fetched records at the next pause.
        """
        for lane in self._lanes.values():
            parks = lane.is_retry and lane.chains is not None
            limit = self._policy.parked_max if parks else self._policy.ahead_max
            written = sum(not item.is_staying for item in lane.moving.values()) if lane.until >= 0 else len(lane.moving)
            count = lane.unfinished if parks else lane.unfinished - min(written, IN_HAND_MAX)
            waits = parks and lane.chains is not None and bool(lane.chains.holders)
            if not lane.paused and count >= limit and not waits:
                lane.paused = True
                self._actions.append(Pause(lane.partition))
            elif lane.paused and (waits or count <= limit // 2):
                lane.paused = False
                self._actions.append(Resume(lane.partition))


def open_ids(rows: Rows, partition: TopicPartition) -> frozenset[str]:
    """Return the ids of a partition's dead letters that the ledger lists as neither redriven nor resolved."""
    return frozenset(
        row.id
        for of_partition in rows.values()
        for row in of_partition.values()
        if row.state in OPEN_LETTERS and (row.letter_topic, row.letter_partition) == partition
    )


def stamp_of(row: Row) -> tuple[str, int]:
    """Return who wrote an in-hand note and when. All notes of a batch have the same values."""
    return row.member, row.last
