"""Dead letters: which there are, and the ways out: back to their group, resolved, or a tombstone in a compacted topic.

    dead ─ redrive ─▶ the group's own retry topic, redriven in the ledger ─▶ processed, or dead again
         ─ resolve ─▶ a marker behind them: gone for all our readers; DeleteRecords gives the space back

A redrive moves up to MOVES_MAX letters in a transaction: record and row of the ledger. A letter whose row does not name
it as dead any more was redriven already, so that a redrive that is killed and started again sends each once. Letters of
other systems have no ledger; how far they are is kept as offsets of the group `redrive.<topic>`, in the transaction.

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
from kafkalite.failures.events import Goal, Message, Put
from kafkalite.failures.headers import EDITED, REDRIVEN, found_letter, rendered
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.names import DEAD, RETRY, ledger_name, origin_text
from kafkalite.failures.reading import decided
from kafkalite.failures.rows import GIVEN_UP, Row, State, encode_row
from kafkalite.model import TopicPartition
from kafkalite.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.client import Client, Producer
    from kafkalite.failures.events import Letter
    from kafkalite.failures.headers import FoundLetter
    from kafkalite.failures.rows import Row as LedgerRow

    Keep = Callable[["Entry"], bool]
    Edit = Callable[[Message], Message]

MOVES_MAX: Final = 500
ROUNDS_MAX: Final = 3
RESOLVED_BY: Final = "dlq.resolved-by"


class Entry(NamedTuple):
    """A letter in its topic. `state` is what became of it: dead, redriven, resolved, processed."""

    partition: TopicPartition
    message: Message
    found: FoundLetter
    state: str

    @property
    def origin(self) -> str:
        """orders-3-1842"""
        return origin_text(self.found.letter.partition, self.found.letter.offset)

    @property
    def own_key(self) -> str:
        """The letter's key where no other letter has it: a tombstone under it speaks of this one alone."""
        rekeyed = self.found.rekeyed and self.message.key is not None
        return self.message.key.decode(errors="replace") if rekeyed and self.message.key is not None else ""

    @property
    def day(self) -> str:
        """UTC day on which the broker took it."""
        return datetime.fromtimestamp(self.message.timestamp / 1000, UTC).date().isoformat()


class Choice(NamedTuple):
    """Letters by what they are; None: any. `everything`: those that are no longer dead, too."""

    exception: str | None = None
    """A class's name, with or without its module."""
    day: str | None = None
    key: str | None = None
    first: int | None = None
    everything: bool = False

    def keep(self) -> Keep:
        """To be used for one pass, as it counts."""
        left = [sys.maxsize if self.first is None else self.first]

        def kept(entry: Entry) -> bool:
            name = entry.found.reason.exception
            fits = (
                (self.exception is None or self.exception in {name, name.rpartition(".")[2]})
                and (self.day is None or self.day == entry.day)
                and (self.key is None or self.key.encode() == entry.message.key)
                and (self.everything or entry.state in {"dead", "unreadable"})
            )
            if fits:
                left[0] -= 1
            return fits and left[0] >= 0

        return kept


class Redriven(NamedTuple):
    """What a redrive did, or would do."""

    sent: int
    too_often: int
    """Letters left, as they were redriven often enough."""


class LetterBox:
    """The dead letters of a group's topics, or of one topic of letters."""

    def __init__(self, client: Client, group: str, topic: str | None = None) -> None:
        self._client = client
        self.group = group
        self._topic = topic
        self._ledger = Ledger(client, group)
        self._ledger.find()  # who may not see it is told so, and not that there are no letters

    @property
    def topics(self) -> list[str]:
        """Where its letters are; by name where the group has published no policy."""
        if self._topic is not None:
            return [self._topic]
        prefix = f"{DEAD}.{self.group}."
        return sorted(name for name in self._client.with_retries(self._client.topics) if name.startswith(prefix))

    def entries(self, keep: Keep | None = None) -> Iterator[Entry]:
        """All letters, resolved ones too, in the order of partitions and offsets."""
        self._ledger.refresh()
        for topic in self.topics:
            for number in self._client.partitions(topic):
                for entry in self._of_partition(TopicPartition(topic, number))[0]:
                    if keep is None or keep(entry):
                        yield entry

    def at(self, place: TopicPartition, offset: int) -> Entry | None:
        """The letter at a place of its topic; None where there is none."""
        self._ledger.refresh()
        return next((entry for entry in self._of_partition(place)[0] if entry.message.offset == offset), None)

    def _of_partition(self, place: TopicPartition) -> tuple[list[Entry], int]:
        """All letters, and the offset before which there are no others. A marker speaks of what stands before it."""
        start, end = self._client.start_offset(*place), self._client.end_offset(*place)
        markers: dict[str, int] = {}
        found: list[tuple[Message, FoundLetter]] = []
        for chunk in decided(self._client, {place: start}, {place: end}):
            for message in messages_of(chunk):
                if RESOLVED_BY in dict(message.headers):
                    markers[(message.key or b"").decode(errors="replace")] = message.offset
                elif (letter := found_letter(message.headers)) is not None:
                    found.append((message, letter))
        entries = [Entry(place, message, letter, self._state(letter)) for message, letter in found]
        return [
            entry._replace(state="resolved")
            if max(markers.get(about, -1) for about in (entry.day, entry.origin, entry.own_key)) > entry.message.offset
            else entry
            for entry in entries
        ], end

    def _state(self, found: FoundLetter) -> str:
        """By the ledger, which names the letter that speaks for a record now."""
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
        on_sent: Callable[[int], None] | None = None,
    ) -> Redriven:
        """Sends dead letters back, each once. `rate` is letters a second at most; `to_main`: for all groups to see."""
        sent = too_often = 0
        began = time.monotonic()
        with self._client.producer(transactional_id=f"kafkalite-redrive-{self.group}") as producer:
            producer.init_transactions()
            self._ledger.refresh()
            progress = self._client.groups.committed(self._progress_group)
            batch: list[Entry] = []
            dead = [entry for entry in self.entries(keep) if entry.state == State.DEAD]
            for entry in dead:
                done = progress.get(entry.partition)
                if not entry.found.letter.id and done is not None and entry.message.offset < done.offset:
                    continue
                if entry.found.letter.rounds >= rounds_max:
                    too_often += 1
                    continue
                batch.append(entry)
                if len(batch) == MOVES_MAX:
                    sent += self._send(producer, batch, to_main, edit, on_sent)
                    batch = []
                    if rate is not None:
                        time.sleep(max(began + sent / rate - time.monotonic(), 0.0))
            sent += self._send(producer, batch, to_main, edit, on_sent)
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
    ) -> int:
        """One transaction."""
        if not batch:
            return 0
        rows: list[tuple[str, LedgerRow | None]] = []
        by_place: dict[TopicPartition, list[Message]] = {}
        offsets: dict[TopicPartition, int] = {}
        for entry in batch:
            place, message, row = self._back(entry, to_main, edit)
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

    def _back(self, entry: Entry, to_main: bool, edit: Edit | None) -> tuple[TopicPartition, Message, LedgerRow | None]:
        """Where a letter goes, what is sent, and its row."""
        letter = entry.found.letter
        message = self.original(entry)
        more: list[tuple[str, bytes | None]] = []
        if edit is not None:
            edited = edit(message)
            if edited.value != message.value:
                more.append((EDITED, hashlib.sha256(message.value or b"").hexdigest().encode()))
                message = edited
        if to_main or not letter.id:
            rounds = (REDRIVEN, str(letter.rounds + 1).encode())
            sent = message._replace(headers=(*message.headers, *more, rounds))
            return letter.partition, sent, None  # the record itself comes again
        topic = self._retry_topic(letter.partition.topic)
        fresh = letter._replace(
            id=f"{entry.origin}/{letter.rounds + 1}.0/{entry.partition}-{entry.message.offset}", attempt=0
        )
        fresh = fresh._replace(due=0, rounds=letter.rounds + 1)
        put = Put(Goal.RETRY, topic, letter.partition.partition, message, fresh)
        sent = rendered(put, 2**31, (), None)
        row = Row(
            State.REDRIVEN,
            fresh.id,
            topic,
            letter.partition.partition,
            first=letter.first,
            last=time.time_ns() // 1_000_000,
            rounds=fresh.rounds,
            held=self._held(letter),
        )
        place = TopicPartition(topic, letter.partition.partition)
        return place, sent._replace(headers=(*sent.headers, *more)), row

    def _held(self, letter: Letter) -> str:
        """The digest of the letter's key, where that waits for it."""
        row = self._ledger.rows.get(letter.partition, {}).get(letter.offset)
        return "" if row is None else row.held

    def _retry_topic(self, topic: str) -> str:
        by_key = f"{RETRY}.{self.group}.{topic}"
        if (self._ledger.policy or {}).get("order") == "key":
            return by_key
        return f"{by_key}.0s"

    def original(self, entry: Entry) -> Message:
        """The record as it was; that of a reference letter is read where it stands. UnknownTopicOrPartition."""
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
        raise UnknownTopicOrPartition(f"{entry.origin} has gone from its topic, and its letter has no value")

    # --- resolve ------------------------------------------------------------------------------------------------------

    def resolve(self, what: str | Iterable[str], by: str) -> dict[TopicPartition, int]:
        """A marker for each day (2026-11-22) or record (orders-3-1842) behind its letters; then gives up what stands
        before the first letter that is not resolved. The new start offsets."""
        keys = [what] if isinstance(what, str) else list(what)
        starts: dict[TopicPartition, int] = {}
        held = self._held_by(keys)
        for topic in self.topics:
            if self._is_compacted(topic):
                starts |= self._bury(topic, keys, by)
            else:
                starts |= self._mark(topic, keys, by)
        self._let_go(held)
        return starts

    def _held_by(self, keys: list[str]) -> list[str]:
        """The dead records of these days or names that their keys wait for."""
        self._ledger.refresh()
        if not any(row.held for _, row in self._ledger.records()):
            return []
        return [entry.origin for entry in self.entries(lambda entry: not {entry.day, entry.origin}.isdisjoint(keys))]

    def _let_go(self, origins: list[str]) -> None:
        """Their keys go on: the member looks every second or so."""
        self._ledger.refresh()
        held = {where: row for where, row in self._ledger.records() if row.held and row.state is State.DEAD}
        rows = [ledger_row(where, held[where]._replace(held="")) for where in dict.fromkeys(origins) if where in held]
        if rows:
            self._client.produce(self._ledger.topic, 0, [Record(-1, -1, row.key, row.value) for row in rows])

    def _is_compacted(self, topic: str) -> bool:
        (entry,) = self._client.admin.describe_topic_configs(topic, ["cleanup.policy"])
        return "compact" in (entry.value or "")

    def _mark(self, topic: str, keys: list[str], by: str) -> dict[TopicPartition, int]:
        starts: dict[TopicPartition, int] = {}
        numbers = self._client.partitions(topic)
        with self._client.producer() as producer:
            for number in numbers:
                markers = [
                    Message(topic, number, -1, -1, key.encode(), None, ((RESOLVED_BY, by.encode()),)) for key in keys
                ]
                producer.send(topic, number, columns_of(markers))
            producer.flush()
        for number in numbers:
            place = TopicPartition(topic, number)
            entries, end = self._of_partition(place)
            open_ones = [entry.message.offset for entry in entries if entry.state != "resolved"]
            starts |= self._client.admin.delete_records({place: min(open_ones, default=end)})
        return starts

    def _bury(self, topic: str, keys: list[str], by: str) -> dict[TopicPartition, int]:
        """A tombstone for each letter, all in one transaction: the broker gives the space back when it compacts."""
        numbers = self._client.partitions(topic)
        with self._client.producer(transactional_id=f"kafkalite-redrive-{self.group}") as producer:
            producer.init_transactions()
            with producer.transaction():
                for number in numbers:
                    entries, _ = self._of_partition(TopicPartition(topic, number))
                    buried = {entry.message.key for entry in entries if not {entry.day, entry.origin}.isdisjoint(keys)}
                    graves = [
                        Message(topic, number, -1, -1, each, None, ((RESOLVED_BY, by.encode()),))
                        for each in sorted(filter(None, buried))
                    ]
                    if graves:
                        producer.send(topic, number, columns_of(graves))
        return {TopicPartition(topic, number): self._client.start_offset(topic, number) for number in numbers}


def ledger_row(key: str, row: LedgerRow | None) -> Message:
    """A row as it is written."""
    return Message("", 0, -1, -1, key.encode(), None if row is None else encode_row(row))


# --- skip -------------------------------------------------------------------------------------------------------------


def may_skip(client: Client, group: str, where: TopicPartition, offset: int) -> tuple[str, str]:
    """Why a group cannot be told to step over a record ("": it can), and what it says of the record now.

    A member reads the ledger when a partition comes to it, so nobody may be in the group; and a record that was
    processed plainly cannot be taken back.
    """
    ledger = Ledger(client, group)
    ledger.refresh()
    if not ledger.exists:
        return f"group {group} has no ledger", ""
    if client.groups.describe(group).members:
        return f"group {group} has members, who would not hear of it: end them first", ""
    row = ledger.rows.get(where, {}).get(offset)
    if row is not None:
        given_up = f"{origin_text(where, offset)} is {row.state.value} already"
        return (given_up if row.state in GIVEN_UP else ""), row.state.value
    committed = client.groups.committed(group, require_stable=True).get(where)
    if committed is not None and committed.offset > offset:
        return f"{origin_text(where, offset)} is processed", ""
    if offset >= client.end_offset(*where):
        return f"{origin_text(where, offset)} is not there", ""
    return "", "not handled yet"


def skip(client: Client, group: str, where: TopicPartition, offset: int, reason: str) -> None:
    """Writes it down. A letter of the record that waits in a retry topic is dead by that, and its key goes on."""
    row = Row(State.SKIPPED, reason=reason, last=time.time_ns() // 1_000_000)
    record = ledger_row(origin_text(where, offset), row)
    client.produce(ledger_name(group), 0, [Record(-1, -1, record.key, record.value)])


class Tombstone(NamedTuple):
    """Whether a tombstone may be written for a record: `why_not` says what stands in the way, "" nothing."""

    why_not: str
    key: bytes | None = None
    newer: int | None = None


def may_bury(client: Client, where: TopicPartition, offset: int) -> Tombstone:
    """Looks whether a tombstone would remove this record and nothing good: the topic is compacted, the record has a
    key, and nothing with that key stands behind it."""
    (policy,) = (entry.value or "" for entry in client.admin.describe_topic_configs(where.topic, ["cleanup.policy"]))
    if "compact" not in policy:
        return Tombstone(f"{where.topic} is not compacted, so a record cannot be removed from it alone")
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
                return Tombstone(f"a newer record of its key stands at offset {number}", key, number)
    return Tombstone("", key) if seen else Tombstone(f"{origin_text(where, offset)} is not there")
