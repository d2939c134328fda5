"""List a group's dead letters, redrive them (send them back to the group), resolve them, or skip records.

    redrive   sends a letter to a retry or source topic; in a retry topic it is redriven, then processed, or dead again
    resolve   sends a resolve marker to the letter's topic; its state becomes resolved; DeleteRecords frees the space

A resolve marker is a record in the dead-letter topic. Its key is a day or a source record, and it resolves the earlier
letters of that day or record. In a compacted topic, tombstones replace markers and DeleteRecords.

A redrive sends each letter once, even if the command is killed and repeated.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import hashlib
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.committed import GroupMetadata
from kafkalite.errors import UnknownTopicOrPartition
from kafkalite.failures.adapters.columnar import columns_of, messages_of
from kafkalite.failures.committed_reading import OPEN_S_MAX, decided, ends_of
from kafkalite.failures.dead_topics import published
from kafkalite.failures.events import Goal, Message, Put
from kafkalite.failures.headers import EDITED, REDRIVEN, found_letter, rendered
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.names import DEAD, RETRY, ledger_name, origin_text
from kafkalite.failures.policy import AT_LEAST_ONCE
from kafkalite.failures.rows import GIVEN_UP, OPEN_LETTERS, Row, State, encode_row
from kafkalite.failures.times import UNITS_MS, milliseconds
from kafkalite.failures.topics import topic_ids
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from kafkalite.client import Client, Producer
    from kafkalite.failures.headers import FoundLetter
    from kafkalite.failures.rows import Row as LedgerRow
    from kafkalite.failures.times import Duration

    Keep = Callable[["Entry"], bool]
    Edit = Callable[[Message], Message]

MOVES_MAX: Final = 500
REDRIVE_DELAY_MS_MAX: Final = UNITS_MS["d"]
"""Far below the retention of the retry topic, in which the letters wait."""
ROUNDS_MAX: Final = 3
RESOLVED_BY: Final = "dlq.resolved-by"


class Entry(NamedTuple):
    """A dead letter in its topic.

    `state` is dead, redriven, resolved, processed or another state; it follows from the ledger and the resolve markers.
    """

    partition: TopicPartition
    message: Message
    found: FoundLetter
    state: str

    @property
    def origin(self) -> str:
        """The source record, such as orders-3-1842."""
        return origin_text(self.found.letter.partition, self.found.letter.offset)

    @property
    def own_key(self) -> str:
        """The letter's key if it is not the record's own key, else "". In a compacted topic, it names this letter."""
        rekeyed = self.found.rekeyed and self.message.key is not None
        return self.message.key.decode(errors="replace") if rekeyed and self.message.key is not None else ""

    @property
    def names(self) -> tuple[str, str, str]:
        """The keys of all resolve markers that can cover the letter."""
        return self.day, self.origin, self.own_key

    @property
    def day(self) -> str:
        """The UTC day on which the broker stored the letter."""
        return day_of(self.message.timestamp)


class Choice(NamedTuple):
    """Selects letters by exception, day, key and count; None selects any.

    `everything` includes letters that are no longer dead.
    """

    exception: str | None = None
    """A class's name, with or without its module."""
    day: str | None = None
    key: str | None = None
    first: int | None = None
    everything: bool = False

    def keep(self) -> Keep:
        """Return the filter function. Use it for one pass only: it counts letters to stop after `first` of them."""
        left = [sys.maxsize if self.first is None else self.first]

        def kept(entry: Entry) -> bool:
            name = entry.found.reason.exception
            fits = (
                (self.exception is None or self.exception in {name, name.rpartition(".")[2]})
                and (self.day is None or self.day == entry.day)
                and (self.key is None or self.key.encode() == entry.message.key)
                and (self.everything or entry.state in OPEN_LETTERS)
            )
            if fits:
                left[0] -= 1
            return fits and left[0] >= 0

        return kept


class Redriven(NamedTuple):
    """The result of a redrive."""

    sent: int
    too_often: int
    """Letters left alone because they were redriven too often."""


class Resolved(NamedTuple):
    """The result of a resolve. `left` is the number of remaining dead letters, `starts` the new log start offsets."""

    letters: int
    records: tuple[str, ...]
    """The source records of these letters, and of named letters that retention has deleted."""
    left: int
    starts: dict[TopicPartition, int]


class PartitionLetters(NamedTuple):
    """The letters in one partition, the offsets of its resolve markers by key, and the end offset of the read."""

    entries: list[Entry]
    markers: dict[str, list[int]]
    end: int
    others: list[int]
    """Timestamps of records without letter headers of any family."""

    @staticmethod
    def is_named(entry: Entry, keys: frozenset[str]) -> bool:
        """Return whether a resolve marker with one of these keys covers the letter."""
        return not keys.isdisjoint(entry.names)

    def was_open(self, entry: Entry, before: int) -> bool:
        """Return whether no resolve marker below offset `before` covers the letter."""
        offset = entry.message.offset
        return not any(offset < each < before for name in entry.names for each in self.markers.get(name, ()))


class DelayRefused(ValueError):
    """A redrive to a source topic cannot be delayed, or the delay is out of range."""


class LetterBox:
    """The dead letters of a group, or of one dead-letter topic: lists, redrives and resolves them."""

    def __init__(self, client: Client, group: str, topic: str | None = None, *, open_s_max: float = OPEN_S_MAX) -> None:
        """Prepare the group's dead letters, or those of one topic.

        After `open_s_max` seconds of waiting for an open transaction, reads raise RangeUnavailable.
        """
        self._client = client
        self.group = group
        self._topic = topic
        self._open_s_max = open_s_max
        self._ledger = Ledger(client, group)
        self._ledger.find()  # without permission this raises; otherwise there would seem to be no letters

    @property
    def topics(self) -> list[str]:
        """The dead-letter topics: those with the group's name, those of the group's policy, and those in
        ledger rows.
        """
        if self._topic is not None:
            return [self._topic]
        self._ledger.refresh()
        named = {row.letter_topic for _, row in self._ledger.records() if row.state in OPEN_LETTERS}
        named |= published(self._ledger.policy)
        return sorted(name for name in self._names() if self._is_own(name) or name in named)

    def has_topics(self) -> bool:
        """Return whether there is a dead-letter topic.

        Topic names are checked first; the ledger is read only if none contains the group's name. A killed redrive can
        leave a transaction open, which hides the rest of the ledger until the transaction ends.
        """
        return self._topic is not None or any(self._is_own(name) for name in self._names()) or bool(self.topics)

    def _names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._client.with_retries(self._client.topics)

    def _is_own(self, topic: str) -> bool:
        """Return whether this is the name of one of the group's dead-letter topics."""
        return topic.startswith(f"{DEAD}.{self.group}.")

    def entries(self, keep: Keep | None = None) -> Iterator[Entry]:
        """Yield the letters that `keep` selects (default: all, also resolved ones), ordered by partition and offset."""
        self._ledger.refresh()
        for topic in self.topics:
            for number in self._client.partitions(topic):
                for entry in self._of_partition(TopicPartition(topic, number)).entries:
                    if (self._topic is not None or not self._is_foreign(entry)) and (keep is None or keep(entry)):
                        yield entry

    def _is_foreign(self, entry: Entry) -> bool:
        """Return whether this letter belongs to another group whose policy chose the same topic."""
        return bool(entry.found.letter.id) and entry.found.letter.group != self.group

    def count_open(self, starts: Mapping[TopicPartition, int], since_ms: int = 0) -> dict[TopicPartition, int]:
        """Count dead letters by partition, from these start offsets on, that the broker stored at or after `since_ms`.

        Records without letter headers are included, because they are in a dead-letter topic.
        """
        self._ledger.refresh(self._open_s_max)
        counts = {}
        for place, start in starts.items():
            found = self._of_partition(place, start)
            young = [entry for entry in found.entries if entry.message.timestamp >= since_ms]
            counts[place] = sum(entry.state in OPEN_LETTERS for entry in young)
            counts[place] += sum(stamp >= since_ms for stamp in found.others)
        return counts

    def at(self, place: TopicPartition, offset: int) -> Entry | None:
        """Return the letter at this offset of a dead-letter topic, or None."""
        self._ledger.refresh()
        return next((entry for entry in self._of_partition(place).entries if entry.message.offset == offset), None)

    def _of_partition(self, place: TopicPartition, start: int | None = None) -> PartitionLetters:
        """Read the letters of a partition and its end offset. A resolve marker covers the letters before it."""
        start = self._client.start_offset(*place) if start is None else start
        end = self._client.end_offset(*place)
        markers: dict[str, list[int]] = {}
        found: list[tuple[Message, FoundLetter]] = []
        others: list[int] = []
        for chunk in decided(self._client, {place: start}, {place: end}, self._open_s_max):
            for message in messages_of(chunk):
                if RESOLVED_BY in dict(message.headers):
                    markers.setdefault((message.key or b"").decode(errors="replace"), []).append(message.offset)
                elif (letter := found_letter(message.headers)) is not None:
                    found.append((message, letter))
                else:
                    others.append(message.timestamp)
        entries = [Entry(place, message, letter, self._state(letter)) for message, letter in found]
        found_here = PartitionLetters(entries, markers, end, others)
        marked = [
            entry if found_here.was_open(entry, end) else entry._replace(state=State.RESOLVED.value)
            for entry in entries
        ]
        return found_here._replace(entries=marked)

    def _state(self, found: FoundLetter) -> str:
        """Return a letter's state as listed in the ledger, which names the current letter of each source record."""
        letter = found.letter
        if not letter.id:
            return State.DEAD
        row = self._ledger.rows.get(letter.partition, {}).get(letter.offset)
        if row is None:
            return "processed" if self._ledger.exists else State.DEAD
        if row.id == letter.id:
            return row.state.value
        return State.REDRIVEN.value if row.rounds > letter.rounds else "processed"

    # --- redrive ------------------------------------------------------------------------------------------------------

    def redrive(
        self,
        keep: Keep | None = None,
        *,
        to_main: bool = False,
        edit: Edit | None = None,
        rounds_max: int = ROUNDS_MAX,
        rate: float | None = None,
        delay: Duration = 0,
        on_sent: Callable[[int], None] | None = None,
    ) -> Redriven:
        """Send dead letters back to the group, each once.

        `keep`        filter; default: all
        `to_main`     send to the source topic instead, so that all groups read the record
        `edit`        function that returns the edited record
        `rounds_max`  skip letters that were redriven this many times
        `rate`        maximum number of letters per second
        `delay`       time before the group handles them, at most 1 day
        `on_sent`     called with the number of letters after each transaction

        Raises DelayRefused for a delay out of range, or for any delay of letters that are sent to a source topic.
        Letters of other frameworks are always sent to a source topic. They have no ledger row, so the transaction
        commits the redrive's progress as offsets of the group `redrive.<topic>`, or `redrive.<group>` without a topic.
        A transaction has up to MOVES_MAX letters, with their ledger rows. Only letters in the state dead are sent.
        """
        sent = too_often = 0
        delay_ms = milliseconds(delay)
        if not 0 <= delay_ms <= REDRIVE_DELAY_MS_MAX:
            raise DelayRefused(f"the delay of a redrive must be at most 1 day, not {delay!r}")
        size = MOVES_MAX if rate is None else max(1, min(MOVES_MAX, int(rate)))
        began = time.monotonic()
        with self._client.producer(transactional_id=f"kafkalite-redrive-{self.group}") as producer:
            producer.init_transactions()
            self._ledger.refresh()
            progress = self._client.groups.committed(self._progress_group)
            batch: list[Entry] = []
            dead = [entry for entry in self.entries(keep) if entry.state == State.DEAD]
            if delay_ms and (to_main or any(not entry.found.letter.id for entry in dead)):
                raise DelayRefused(
                    "only redrives to the group's retry topic can be delayed; these dead letters go to another topic"
                )
            for entry in dead:
                done = progress.get(entry.partition)
                if not entry.found.letter.id and done is not None and entry.message.offset < done.offset:
                    continue
                if entry.found.letter.rounds >= rounds_max:
                    too_often += 1
                    continue
                batch.append(entry)
                if len(batch) == size:
                    sent += self._send(producer, batch, to_main, edit, on_sent, delay_ms)
                    batch = []
                    if rate is not None:
                        time.sleep(max(began + sent / rate - time.monotonic(), 0.0))
            sent += self._send(producer, batch, to_main, edit, on_sent, delay_ms)
        return Redriven(sent, too_often)

    @property
    def _progress_group(self) -> str:
        return f"redrive.{self._topic or self.group}"

    def _send(
        self,
        producer: Producer,
        batch: list[Entry],
        to_main: bool,
        edit: Edit | None,
        on_sent: Callable[[int], None] | None,
        delay_ms: int,
    ) -> int:
        """Send one batch in one transaction, and return its size."""
        if not batch:
            return 0
        rows: list[tuple[str, LedgerRow | None]] = []
        by_place: dict[TopicPartition, list[Message]] = {}
        offsets: dict[TopicPartition, int] = {}
        for entry in batch:
            place, message, row = self._back(entry, to_main, edit, delay_ms)
            by_place.setdefault(place, []).append(message)
            if entry.found.letter.id:
                rows.append((entry.origin, row))
            else:
                offsets[entry.partition] = entry.message.offset + 1
        with producer.transaction():
            for place, messages in by_place.items():
                producer.send(*place, columns_of(messages))
            if rows:
                producer.send(self._ledger.topic, 0, columns_of([ledger_row(key, row) for key, row in rows]))
            if offsets:
                producer.send_offsets_to_transaction(offsets, GroupMetadata(self._progress_group))
        if on_sent is not None:
            on_sent(len(batch))
        return len(batch)

    def _back(
        self, entry: Entry, to_main: bool, edit: Edit | None, delay_ms: int
    ) -> tuple[TopicPartition, Message, LedgerRow | None]:
        """Return the partition to which a letter is sent, the record to send, and the letter's new ledger row."""
        letter = entry.found.letter
        message = self.original(entry)
        more: list[tuple[str, bytes | None]] = []
        if edit is not None:
            edited = edit(message)
            edited = edited._replace(headers=tuple(edited.headers))
            if edited != message:
                more.append((EDITED, hashlib.sha256(message.value or b"").hexdigest().encode()))
                message = edited
        if to_main or not letter.id:
            rounds = (REDRIVEN, str(letter.rounds + 1).encode())
            sent = message._replace(headers=(*message.headers, *more, rounds))
            return letter.partition, sent, None  # the row ends: the record is read again from its source topic
        topic = self._retry_topic(letter.partition.topic)
        fresh = letter._replace(
            id=f"{entry.origin}/{letter.rounds + 1}.0/{entry.partition}-{entry.message.offset}", attempt=0
        )
        now_ms = time.time_ns() // 1_000_000
        fresh = fresh._replace(due=now_ms + 1 + delay_ms if delay_ms else 0, rounds=letter.rounds + 1)
        put = Put(Goal.RETRY, topic, letter.partition.partition, message, fresh)
        sent = rendered(put, 2**31, (), None)
        known = self._ledger.rows.get(letter.partition, {}).get(letter.offset)
        row = Row(
            State.REDRIVEN,
            fresh.id,
            topic,
            letter.partition.partition,
            due=fresh.due,
            first=letter.first,
            last=now_ms,
            rounds=fresh.rounds,
            held="" if known is None else known.held,  # if its key is held until this letter is decided
            topic_id="" if known is None else known.topic_id,
        )
        place = TopicPartition(topic, letter.partition.partition)
        return place, sent._replace(headers=(*sent.headers, *more)), row

    def _retry_topic(self, topic: str) -> str:
        by_key = f"{RETRY}.{self.group}.{topic}"
        if (self._ledger.policy or {}).get("order") == "key":
            return by_key
        return f"{by_key}.0s"

    def original(self, entry: Entry) -> Message:
        """Return the original record. For a letter without a value, read the record from the source topic.

        Raises UnknownTopicOrPartition if it no longer exists.
        """
        message = entry.message._replace(headers=entry.found.headers)
        if entry.found.rekeyed:
            message = message._replace(key=entry.found.key)
        letter = entry.found.letter
        if not entry.found.truncated:
            return message
        where = letter.partition
        for chunk in self._client.read(*where, letter.offset, letter.offset + 1):
            for there in messages_of(chunk):
                if there.offset == letter.offset:
                    return there
        raise UnknownTopicOrPartition(f"the original record {entry.origin} is gone, and its dead letter has no value")

    # --- resolve ------------------------------------------------------------------------------------------------------

    def resolve(self, what: str | Iterable[str], by: str) -> Resolved:
        """Resolve the letters of these days (2026-11-22) or source records (orders-3-1842).

        Resolve markers are written after the letters, and the ledger rows get the state resolved. Then the records
        before the first unresolved letter are deleted. `by` is the user that the markers name.
        """
        keys = frozenset([what] if isinstance(what, str) else what)
        ends: dict[TopicPartition, int] = {}
        compacted = {topic: self._is_compacted(topic) for topic in self.topics}
        for topic, is_compacted in compacted.items():
            ends |= ends_of(self._client, [TopicPartition(topic, each) for each in self._client.partitions(topic)])
            if not is_compacted:
                self._mark(topic, keys, by)
        self._ledger.refresh()
        found = {place: self._of_partition(place) for place in ends}
        for topic in (topic for topic, is_compacted in compacted.items() if is_compacted):
            self._bury({place: one for place, one in found.items() if place.topic == topic}, keys, by)
        named = [
            (place, entry)
            for place, one in found.items()
            for entry in one.entries
            if one.is_named(entry, keys) and (compacted[place.topic] or entry.state == State.RESOLVED)
        ]
        fresh = [entry for place, entry in named if self._is_open(entry) and found[place].was_open(entry, ends[place])]
        rows = self._rows_to_resolve([entry for _, entry in named], found.values(), compacted, keys)
        self._write_resolved(rows)
        origins = tuple(dict.fromkeys([*(entry.origin for entry in fresh), *rows]))
        left = sum(entry.state in OPEN_LETTERS for one in found.values() for entry in one.entries)
        left -= sum(entry.state in OPEN_LETTERS for _, entry in named)  # compacted topics: read before their tombstones
        return Resolved(len(fresh), origins, left, self._give_back(found, compacted))

    def _is_open(self, entry: Entry) -> bool:
        return self._state(entry.found) in OPEN_LETTERS

    def _rows_to_resolve(
        self,
        named: list[Entry],
        found: Iterable[PartitionLetters],
        topics: Collection[str],
        keys: frozenset[str],
    ) -> dict[str, LedgerRow]:
        """Return the ledger rows of these letters, and of named letters that retention has deleted."""
        there = {entry.found.letter.id for one in found for entry in one.entries}
        ids = {entry.found.letter.id for entry in named} - {""}
        return {
            where: row
            for where, row in self._ledger.records()
            if row.state in OPEN_LETTERS
            and (
                row.id in ids
                or (
                    row.id not in there
                    and row.letter_topic in topics
                    and not keys.isdisjoint((where, day_of(row.last)))
                )
            )
        }

    def _write_resolved(self, rows: dict[str, LedgerRow]) -> None:
        """Write the ledger rows of resolved letters.

        Records that wait for a held key continue after the member's next check, in about a second.

        The transactional id is the same as that of a redrive, so a concurrent redrive is fenced. Otherwise a stale row
        could resolve a letter that the redrive has just sent. With at-least-once moves nothing is fenced.
        """
        if not rows:
            return
        if (self._ledger.policy or {}).get("moves") == AT_LEAST_ONCE:
            for part in self._resolved_rows(rows):
                self._client.produce(self._ledger.topic, 0, [Record(-1, -1, row.key, row.value) for row in part])
            return
        with self._client.producer(transactional_id=f"kafkalite-redrive-{self.group}") as producer:
            producer.init_transactions()
            self._ledger.refresh()
            for part in self._resolved_rows(rows):
                with producer.transaction():
                    producer.send(self._ledger.topic, 0, columns_of(part))

    def _resolved_rows(self, rows: dict[str, LedgerRow]) -> Iterator[list[Message]]:
        """Yield the new rows in parts of MOVES_MAX. Rows that have changed in the ledger since then are left out."""
        now_ms = time.time_ns() // 1_000_000
        written = [
            ledger_row(where, row._replace(state=State.RESOLVED, held="", last=now_ms))
            for where, row in self._ledger.records()
            if rows.get(where) == row
        ]
        for first in range(0, len(written), MOVES_MAX):
            yield written[first : first + MOVES_MAX]

    def _give_back(
        self, found: dict[TopicPartition, PartitionLetters], compacted: dict[str, bool]
    ) -> dict[TopicPartition, int]:
        """Delete the records before each partition's first unresolved letter.

        In compacted topics the broker frees the space.
        """
        starts: dict[TopicPartition, int] = {}
        for place, one in found.items():
            if compacted[place.topic]:
                starts[place] = self._client.start_offset(*place)
            else:
                kept = [
                    entry.message.offset
                    for entry in one.entries
                    if entry.state != State.RESOLVED or self._is_foreign(entry)
                ]
                starts |= self._client.admin.delete_records({place: min(kept, default=one.end)})
        return starts

    def _is_compacted(self, topic: str) -> bool:
        (entry,) = self._client.admin.describe_topic_configs(topic, ["cleanup.policy"])
        return "compact" in (entry.value or "")

    def _mark(self, topic: str, keys: Iterable[str], by: str) -> None:
        with self._client.producer() as producer:
            for number in self._client.partitions(topic):
                markers = [
                    Message(topic, number, -1, -1, key.encode(), None, ((RESOLVED_BY, by.encode()),))
                    for key in sorted(keys)
                ]
                producer.send(topic, number, columns_of(markers))
            producer.flush()

    def _bury(self, found: dict[TopicPartition, PartitionLetters], keys: frozenset[str], by: str) -> None:
        """Write tombstones for the letters in one transaction. The broker frees the space when it compacts."""
        graves = {
            place: sorted({entry.message.key or b"" for entry in one.entries if one.is_named(entry, keys)} - {b""})
            for place, one in found.items()
        }
        if not any(graves.values()):
            return
        with self._client.producer(transactional_id=f"kafkalite-redrive-{self.group}") as producer:
            producer.init_transactions()
            with producer.transaction():
                for place, buried in graves.items():
                    if buried:
                        messages = [Message(*place, -1, -1, key, None, ((RESOLVED_BY, by.encode()),)) for key in buried]
                        producer.send(*place, columns_of(messages))


def day_of(time_ms: int) -> str:
    """Return the UTC day of a time in ms, such as 2026-11-22."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def ledger_row(key: str, row: LedgerRow | None) -> Message:
    """Return the ledger record to write for a row; a tombstone for None."""
    return Message("", 0, -1, -1, key.encode(), None if row is None else encode_row(row))


# --- skip -------------------------------------------------------------------------------------------------------------


def may_skip(client: Client, group: str, where: TopicPartition, offset: int) -> tuple[str, str]:
    """Return the reason why a group cannot skip a record ("" if it can), and the record's current state.

    Members read a record's row only when its partition is assigned, so the group must have no members. A record that
    was processed cannot be skipped.
    """
    ledger = Ledger(client, group)
    ledger.refresh()
    if not ledger.exists:
        return f"group {group} has no ledger", ""
    if client.groups.describe(group).members:
        return f"group {group} has members, which would not see the change; stop them first", ""
    row = ledger.rows.get(where, {}).get(offset)
    if row is not None and row.concerns(topic_ids(client, [where.topic]).get(where.topic, "")):
        given_up = f"{origin_text(where, offset)} is already {row.state.value}"
        return (given_up if row.state in GIVEN_UP else ""), row.state.value
    committed = client.groups.committed(group, require_stable=True).get(where)
    if committed is not None and committed.offset > offset:
        return f"{origin_text(where, offset)} was already processed", ""
    if offset >= client.end_offset(*where):
        return f"{origin_text(where, offset)} does not exist", ""
    return "", "not handled yet"


def skip(client: Client, group: str, where: TopicPartition, offset: int, reason: str) -> None:
    """Write a ledger row that makes the group skip a record and its letter in a retry topic.

    Later records of the same key no longer wait for it.
    """
    topic_id = topic_ids(client, [where.topic]).get(where.topic, "")
    row = Row(State.SKIPPED, reason=reason, last=time.time_ns() // 1_000_000, topic_id=topic_id)
    record = ledger_row(origin_text(where, offset), row)
    client.produce(ledger_name(group), 0, [Record(-1, -1, record.key, record.value)])


class Tombstone(NamedTuple):
    """The result of checking whether to write a tombstone for a record.

    `why_not` is the reason against it; "" if there is none.
    """

    why_not: str
    key: bytes | None = None
    newer: int | None = None


def may_bury(client: Client, where: TopicPartition, offset: int) -> Tombstone:
    """Check whether a tombstone would remove this record and no valid record.

    That is the case if the topic is compacted, the record has a key, and no later record has the same key.
    """
    (policy,) = (entry.value or "" for entry in client.admin.describe_topic_configs(where.topic, ["cleanup.policy"]))
    if "compact" not in policy:
        return Tombstone(f"{where.topic} is not compacted, so a tombstone would not remove the record")
    key: bytes | None = None
    seen = False
    for chunk in decided(client, {where: offset}, {where: client.end_offset(*where)}):
        keys = chunk.columns.keys
        for place, number in enumerate(chunk.columns.offsets.tolist()):
            if number == offset:
                seen, key = True, keys[place]
                if key is None:
                    return Tombstone(f"{origin_text(where, offset)} has no key")
            elif seen and keys[place] == key:
                return Tombstone(f"offset {number} has a newer record with the same key", key, number)
    return Tombstone("", key) if seen else Tombstone(f"{origin_text(where, offset)} does not exist")
