"""Queue the records that a member has read, and skip letters that its handler must not get.

A letter is a copy of a record in a retry or dead-letter topic. The group's ledger names the current letter of each
record; earlier letters are outdated. In a retry topic, the handler gets no outdated letters, and no records
that are not letters of this group.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.failures.events import Alarm, Failure, FailureKind, Message
from kafkalite.failures.lanes import Item, Verdict
from kafkalite.failures.moves import SHRINK_MAX
from kafkalite.failures.names import origin_text
from kafkalite.failures.rows import GIVEN_UP, WAITING, Row, State

if TYPE_CHECKING:
    from kafkalite.failures.events import Arrival, Damaged, Fetched
    from kafkalite.failures.lanes import PartitionLane
    from kafkalite.failures.outcomes import Outcomes
    from kafkalite.failures.state import SessionState

UNREADABLE: Final = "unreadable"
NO_MESSAGE: Final = Message("", -1, -1, -1, None, None)


class Arrivals:
    """Queues the records that a session's member has read; see the module."""

    def __init__(self, state: SessionState, outcomes: Outcomes) -> None:
        self._state = state
        self._outcomes = outcomes
        self._group = state.policy.group
        self._nonce = state.nonce
        self._holds = state.holds
        self._lanes = state.lanes
        self._topic_ids = state.topic_ids
        self._finished_ids = state.finished_ids
        self._actions = state.actions
        self._counts = state.counts

    def fetched(self, event: Fetched) -> None:
        """Queue the records of a Fetched event, except those to skip."""
        lane = self._lanes.get(event.partition)
        if lane is None or lane.leaving:
            return
        for arrival in event.arrivals:
            if arrival.message.offset < lane.position:
                continue
            if lane.is_dead and not self._is_open(lane, arrival):
                lane.step_over(Item(arrival.message, lane.partition, arrival.message.offset))
                continue
            item = self._letter(lane, arrival) if lane.is_retry else self._record(lane, arrival)
            if item is not None:
                lane.add(item)
        lane.position = max(lane.position, event.next_offset)

    def damaged(self, event: Damaged) -> None:
        """Schedule a dead letter without a value for each unreadable record of a source topic.

        Unreadable records of other topics are only skipped, as are those that the ledger lists as given up or waiting.
        `check_lost` reports the missing letters of a retry topic.
        """
        lane = self._lanes.get(event.partition)
        if lane is None or lane.leaving or event.next_offset <= lane.position:
            return
        details = {"offset": event.offset, "next_offset": event.next_offset}
        self._actions.append(Alarm("damaged", f"{event.partition}: {event.text}", details))
        for offset in range(max(event.offset, lane.position), event.next_offset):
            message = NO_MESSAGE._replace(topic=lane.partition.topic, partition=lane.partition.partition, offset=offset)
            item = Item(message, lane.origin, -1 if lane.is_retry else offset)
            row = lane.rows.pop(offset, None)
            if lane.is_retry or lane.is_dead or (row is not None and row.state in GIVEN_UP | WAITING):
                lane.step_over(item)
                continue
            lane.items.append(item)
            lane.by_offset[offset] = item
            item.shrink, item.attempt = SHRINK_MAX, 1
            self._outcomes.count_failure(item, Failure(FailureKind.FATAL, UNREADABLE, text=event.text))
            self._outcomes.die(lane, item, State.UNREADABLE)
        lane.position = event.next_offset

    def _is_open(self, lane: PartitionLane, arrival: Arrival) -> bool:
        """Return whether this is a dead letter of the group that was still open when the partition was assigned."""
        letter = arrival.letter
        if letter is None or letter.group != self._group:
            return False
        return arrival.message.offset >= lane.known or letter.id in lane.open_ids

    def _record(self, lane: PartitionLane, arrival: Arrival) -> Item:
        item = Item(arrival.message, lane.partition, arrival.message.offset)
        item.row = lane.rows.pop(item.offset, None)
        item.held = item.row.held if item.row is not None and self._holds else ""
        item.doubted = item.offset < lane.until
        return item

    def _letter(self, lane: PartitionLane, arrival: Arrival) -> Item | None:
        """Return the Item for a letter that the ledger still lists. Skip any other record, and return None.

        A letter that was already finished here is not handled again; only its last row is written.
        """
        letter, message = arrival.letter, arrival.message
        item = Item(message, lane.origin, -1 if letter is None else letter.offset)
        if letter is None or letter.group != self._group or letter.partition != lane.origin:
            self._counts["foreign", ""] += 1
            self._actions.append(
                Alarm(
                    "foreign",
                    f"{lane.partition} contains a record that is not a retry of this group",
                    {"offset": message.offset},
                )
            )
            lane.step_over(item)
            return None
        row = lane.rows.get(letter.offset)
        known = message.offset < lane.known
        if self._nonce:
            alive = row is not None and row.state in WAITING and row.id == letter.id
        else:  # a member that moved the record twice may have overwritten a newer row with an older one
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
            lane.move(item, Verdict(row=self._last_row(letter.id)))  # the member that sent it twice wrote its row twice
            return None
        item.id = item.came_as = letter.id
        item.topic_id = self._topic_ids.of_letter(letter.id)
        item.first, item.rounds = letter.first, letter.rounds
        item.attempt, due = letter.attempt, letter.due
        if known and row is not None:
            item.attempt, due = max(row.attempt, letter.attempt), max(row.due, letter.due)
            item.row = row
        suspect = item.row is not None and item.row.is_suspect
        item.doubted = item.offset < lane.until and (suspect or due <= lane.came_ms)
        item.due = self._state.now.ms + max(0, due - self._state.now.wall_ms)
        return item

    def _last_row(self, letter_id: str) -> Row | None:
        """Return the last ledger row of a letter that was handled. Rows of later letters of the same record are
        included.
        """
        row = self._finished_ids[letter_id]
        while row is not None and row.state in WAITING and row.id in self._finished_ids:
            row = self._finished_ids[row.id]
        return row

    def check_lost(self, lane: PartitionLane) -> None:
        """Report letters that the ledger lists but that are missing in the partition."""
        lane.checked_lost = True
        main = self._lanes.get(lane.origin)
        for offset, row in sorted(lane.rows.items()):
            here = (row.letter_topic, row.letter_partition) == lane.partition
            if not self._nonce and main is not None and offset >= main.committed:
                continue  # the source record is read again
            if row.state in WAITING and here and row.id not in lane.seen:
                self._counts["lost", ""] += 1
                text = f"the retry of {origin_text(lane.origin, offset)} is missing from {lane.partition}"
                self._actions.append(Alarm("lost", text, {"record": origin_text(lane.origin, offset), "id": row.id}))
                item = Item(
                    NO_MESSAGE._replace(topic=lane.origin.topic, partition=lane.origin.partition), lane.origin, offset
                )
                item.held = row.held if self._holds else ""
                item.topic_id = self._topic_ids.of_letter(row.id)
                item.offset = -1 - offset  # not an offset of this partition, so no commit depends on it
                lane.move(item, Verdict(row=row._replace(state=State.LOST, last=self._state.now.wall_ms)))
        lane.rows.clear()
        if self._nonce:
            lane.seen.clear()
