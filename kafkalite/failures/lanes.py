"""Track the unfinished records of one assigned partition (a lane), and choose the next record to handle.

    READY ─▶ RUNNING     the handler gets the record
    RUNNING ─▶ DONE      the record succeeded, and nothing has to be written
    RUNNING ─▶ READY     the record is retried in place, or was not handled
    RUNNING ─▶ MOVING    a transaction has to write a letter, a ledger row or the handler's output
    MOVING ─▶ DONE       the record's outcome was written
    MOVING ─▶ READY      only a ledger row was written, or the breaker opened; the record still has to be handled
    READY ─▶ DONE        the record is skipped
    READY ─▶ MOVING      the record is noted as in hand, parked, or given up, or its note is deleted

In a source topic, the next record is the one with the lowest offset. In a retry topic, it is the one that is due first.
With order by key, only the first record of a key may run.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from kafkalite.failures.events import Failure, Message, Output, Put, Start
    from kafkalite.failures.rows import Row


COMMIT_COUNT: Final = 256
"""Finished records of a partition after which outcomes are committed early."""
RUN_MAX: Final = 64
"""Records that a worker gets at once."""
GROWTH: Final = 16
"""Factor by which the next batch may be larger."""
BATCH_MAX: Final = 256
"""Records that are noted as in hand together."""
EXACT_COUNT: Final = 128
SPAN_MAX: Final = 16
SPAN_MS: Final = 0.5
IN_HAND_MAX: Final = 2 * COMMIT_COUNT + RUN_MAX
"""The farthest that a run may begin after the committed offset: others are handled while the first are committed."""


class ItemState(Enum):
    """The state of a record in a lane."""

    READY = "ready"
    RUNNING = "running"
    MOVING = "moving"
    DONE = "done"


class Verdict(NamedTuple):
    """The records and the ledger row that a transaction must write for a record.

    With `stays`, the record becomes READY again after the write.
    """

    put: Put | None = None
    row: Row | None = None
    outputs: tuple[Output, ...] = ()
    stays: bool = False
    writes_row: bool = True


class Item:
    """An unfinished record. `due` is in monotonic ms.

    `attempt` is the number of its failures. `first` is the time of the first failure in ms since 1970.
    """

    __slots__ = (
        "attempt",
        "bundle",
        "came_as",
        "counted",
        "doubted",
        "due",
        "failure",
        "first",
        "held",
        "id",
        "key",
        "message",
        "noted",
        "offset",
        "old",
        "origin",
        "origin_offset",
        "passed",
        "probes",
        "rounds",
        "row",
        "shrink",
        "state",
        "topic_id",
        "unnoted",
        "verdict",
    )

    def __init__(self, message: Message, origin: TopicPartition, origin_offset: int) -> None:
        self.message = message
        self.offset = message.offset
        self.origin = origin
        self.origin_offset = origin_offset
        self.key = message.key
        self.state = ItemState.READY
        self.attempt = 0
        self.due = 0.0
        self.first = 0
        self.id = ""
        """The id of its letter, present or future."""
        self.came_as = ""
        """The id of the letter as which it was read."""
        self.rounds = 0
        self.held = ""
        """The digest of its key, which waits until this record is decided."""
        self.passed = False
        """Whether the next record of its key no longer waits for it."""
        self.row: Row | None = None
        self.topic_id = ""
        """The id of its source topic, if it is a letter of a topic that was deleted and created again."""
        self.doubted = False
        """Whether it may have ended the previous member, and has had no outcome since."""
        self.noted = False
        self.unnoted: Row | None = None
        """Its row before it was noted as in hand."""
        self.counted = False
        """Whether the breaker's window counts its failure already."""
        self.old = False
        """Whether an alarm has reported that it keeps failing."""
        self.failure: Failure | None = None
        self.probes = 0
        self.shrink = 0
        self.verdict: Verdict | None = None
        self.bundle: list[Item] = []
        """Records that one call handled and that have outputs. One transaction writes them all."""

    @property
    def is_staying(self) -> bool:
        """Whether a ledger write is scheduled after which the record is READY again, such as an in-hand note."""
        return self.state is ItemState.MOVING and self.verdict is not None and self.verdict.stays


class Batch:
    """Records that the ledger notes together as in hand, after an unclean shutdown. Then the handler gets them.

    `size` is the size of the next batch. It grows while writing the notes takes longer than handling the records. So
    throughput usually falls by half at most, and few records become suspects: records that may have crashed the
    process.

    A mark is a ledger row that names the record which the handler is about to get. Each of the first EXACT_COUNT
    records has its own mark. If handling takes less than SPAN_MS per record, one mark covers up to SPAN_MAX later
    records. Such a mark does not count as a try of any of its records.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.alone = False
        """Whether the batch is one suspect: a record that was in hand when a process ended. The member then handles
        nothing else."""
        self.marks = False
        """Whether marks name the record in hand, because several records are noted."""
        self.size = 1
        self._exact_left = EXACT_COUNT
        self._each_ms = 0.0
        self._noting_since = self._noting_ms = 0.0
        self._running_since: float | None = None

    def begin(self, items: list[Item], now_ms: float, *, alone: bool, marks: bool) -> None:
        """Begin a batch of these records. The next step is to write their notes."""
        self.items, self.alone, self.marks = items, alone, marks
        self._noting_since = now_ms

    def run(self, now_ms: float) -> None:
        """Store the time at which the notes have been written and the handler starts."""
        self._running_since = now_ms
        self._noting_ms = now_ms - self._noting_since

    def ended(self, now_ms: float, each_ms: float) -> None:
        """Process the end of a run. The next batch may be larger if handling took no longer than writing the notes."""
        since, self._running_since = self._running_since, None
        if since is not None and not self.alone and now_ms - since <= self._noting_ms:
            self.size = min(GROWTH * self.size, BATCH_MAX)
        if since is not None:
            self._exact_left -= len(self.items)
            self._each_ms = each_ms

    def span(self, place: int) -> int:
        """Return how many records the mark of the record at this index covers."""
        return 1 if place < self._exact_left or self._each_ms >= SPAN_MS else SPAN_MAX

    @property
    def is_over(self) -> bool:
        """Whether the ledger notes no record of the batch as in hand, and no such write is scheduled."""
        return all(
            item.state is ItemState.DONE or (item.state is ItemState.READY and not item.noted) for item in self.items
        )


class KeyChains:
    """The blocked keys of a retry partition with order by key, and the number of letters that block each key.

    With after_dead="hold", the key of a dead record is held until its letter is processed or resolved. Meanwhile no
    other record of the key may run.
    """

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._expected: set[str] = set()
        """Ids of letters that this member has sent and not read back."""
        self.chains: dict[bytes, deque[Item]] = {}
        self.holders: dict[str, int] = {}
        """By digest of a held key, the offset of the source record that it waits for."""
        self.written: set[str] = set()
        """Digests of keys that the ledger lists as held."""

    @property
    def awaited(self) -> int:
        """The number of letters that this member has sent and not read back."""
        return len(self._expected)

    def blocks(self, item: Item) -> bool:
        """Return whether a record of the source topic must wait for letters of its key. False for a record without a
        key.
        """
        return item.key is not None and (self._counts[item.key] > 0 or self._is_held(item.key, item.origin_offset))

    def _is_held(self, key: bytes, offset: int) -> bool:
        """Return whether the key is held for a record other than this one."""
        return bool(self.holders) and self.holders.get(key_digest(key), offset) != offset

    def send(self, key: bytes | None, letter_id: str) -> None:
        """Count a letter that is being written to the partition."""
        self._expected.add(letter_id)
        if key is not None:
            self._counts[key] += 1

    def take_back(self, key: bytes | None, letter_id: str) -> None:
        """Undo `send` for a letter that was not written."""
        self._expected.discard(letter_id)
        self._release(key)

    def arrived(self, item: Item) -> bool:
        """Add a letter that was read.

        Return whether the letter may run, because it is the first of its key or the dead record of a held key.
        """
        if item.id in self._expected:
            self._expected.discard(item.id)
        elif item.key is not None:
            self._counts[item.key] += 1
        if item.key is None:
            return True
        chain = self.chains.setdefault(item.key, deque())
        if self.holders:
            digest = key_digest(item.key)
            if self.holders.get(digest) == item.origin_offset:
                item.held = digest
                chain.appendleft(item)
                return True
        chain.append(item)
        return len(chain) == 1 and not self._is_held(item.key, item.origin_offset)

    def passed(self, item: Item) -> Item | None:
        """Remove a letter from its chain as soon as it has succeeded, before that is written to the ledger.

        Return the key's next letter if it may run.
        """
        if item.key is None or item.passed:
            return None
        item.passed = True
        chain = self.chains[item.key]
        assert chain[0] is item, "only the first of a chain may end"
        chain.popleft()
        if not chain:
            del self.chains[item.key]
            return None
        return None if self._is_held(item.key, chain[0].origin_offset) else chain[0]

    def finished(self, item: Item) -> Item | None:
        """Stop counting a letter that is done. The key is unblocked when no letter is left.

        Return the key's next letter if it may run, unless `passed` has returned it already.
        """
        self._release(item.key)
        return self.passed(item)

    def hold(self, digest: str, offset: int) -> None:
        """Hold the key until the outcome of this dead record is decided."""
        self.holders[digest] = offset

    def release(self, digest: str) -> Item | None:
        """Release a held key. Return the first waiting letter of the key if it may run now."""
        first = next((chain[0] for key, chain in self.chains.items() if key_digest(key) == digest), None)
        if first is not None and first.held and first.state is ItemState.MOVING:
            return None  # its outcome is about to be written
        self.written.discard(digest)
        if self.holders.pop(digest, None) is None or first is None:
            return None
        if not first.held:
            return first
        first.held = ""  # the dead record itself, redriven: an ordinary letter from now on
        return None

    def _release(self, key: bytes | None) -> None:
        if key is not None:
            self._counts[key] -= 1
            assert self._counts[key] >= 0, "a key is released as often as it was blocked"
            if not self._counts[key]:
                del self._counts[key]

    @property
    def parked_keys(self) -> int:
        """The number of blocked keys."""
        return len(self._counts)


def key_digest(key: bytes) -> str:
    """Return a hash of a key. The ledger names held keys by their hashes, because keys may be personal data."""
    return hashlib.blake2b(key, digest_size=16).hexdigest()


class PartitionLane:
    """An assigned partition and its unfinished records; see the module."""

    def __init__(
        self,
        partition: TopicPartition,
        main: str,
        start: Start,
        rows: Mapping[int, Row],
        *,
        is_retry: bool,
        chains: KeyChains | None,
        open_ids: frozenset[str] | None = None,
    ) -> None:
        self.partition = partition
        self.origin = TopicPartition(main, partition.partition)
        self.is_retry = is_retry
        self.is_dead = open_ids is not None
        """Whether its records are dead letters, for the dead-letter handler."""
        self.open_ids = open_ids or frozenset()
        """Ids of letters before `known` that were still dead when the partition was assigned."""
        self.rows = dict(rows)
        """Ledger rows by offset of the source record, as of the assignment."""
        self.position = start.position
        self.known = start.known
        """Letters from this offset on are new; their rows are not checked."""
        self.end = start.end
        """The end of the partition at the assignment."""
        self.committed = start.position
        self.committing = 0
        """The number of the plain commit under way; 0 if none."""
        self.chains = chains
        self.items: deque[Item] = deque()
        self.by_offset: dict[int, Item] = {}
        self.moving: dict[int, Item] = {}
        self.run: int | None = None
        self.running: list[Item] = []
        """The records of the current run."""
        self.reached = start.position
        """The offset after all records that were ever in a run."""
        self.opened = False
        self.opening = False
        self.first = start.position
        """The offset at which the partition was opened in the ledger."""
        self.opened_ms = 0
        """When it was opened (wall ms)."""
        self.careful = 0
        """How many more records are noted before they are handled, after an unclean shutdown."""
        self.until = -1
        """The offset before which records are noted first; -1 if none."""
        self.doubted = 0
        """Number of these records that were read and have no outcome."""
        self.came_ms = 0
        """When the partition was assigned (wall ms). Letters that were not due then were not in hand before."""
        self.calming = False
        """Whether the ledger must still record that the caution has ended."""
        self.calmed = False
        """Whether the transaction under way records that."""
        self.marked = False
        """Whether the ledger has a mark for one of its records."""
        self.batch = Batch()
        self.given_back: dict[bytes, int] = {}
        """By key, the offset of a letter whose outcome was discarded. Those of later letters are discarded too."""
        self.leaving = False
        self.closing = False
        self.paused = False
        self.waits_for = ""
        """The group that must decide on the next record; "" if none."""
        self.seen: set[str] = set()
        self.checked_lost = not is_retry
        self._ready: list[tuple[float, int, Item]] = []

    @property
    def caught_up(self) -> bool:
        """Whether the partition was read up to the end offset that it had when it was assigned."""
        return self.position >= self.end

    # --- records ------------------------------------------------------------------------------------------------------

    def add(self, item: Item) -> None:
        """Add a record that was read. The record becomes ready, unless it has to wait in a chain."""
        self.items.append(item)
        self.by_offset[item.offset] = item
        self.doubted += item.doubted
        if self.chains is None or not self.is_retry or self.chains.arrived(item):
            self.push(item)

    def push(self, item: Item) -> None:
        """Make a record ready to run at its due time."""
        item.state = ItemState.READY
        item.verdict = None
        item.bundle = []
        heapq.heappush(self._ready, (item.due if self.is_retry else 0.0, item.offset, item))

    @property
    def head(self) -> Item | None:
        """The next record to run."""
        while self._ready and self._ready[0][2].state is not ItemState.READY:
            heapq.heappop(self._ready)
        return self._ready[0][2] if self._ready else None

    def take(self, item: Item) -> None:
        """Remove a ready record from the queue, whether or not it is the first."""
        if self.head is item:
            heapq.heappop(self._ready)
        else:
            self.take_out(item)

    def ready(self) -> Iterator[Item]:
        """Yield all ready records, in no order."""
        return (item for _, _, item in self._ready if item.state is ItemState.READY)

    def take_out(self, item: Item) -> None:
        """Remove a ready record from the queue by searching for it."""
        self._ready = [entry for entry in self._ready if entry[2] is not item]
        heapq.heapify(self._ready)

    def move(self, item: Item, verdict: Verdict) -> None:
        """Schedule the write of a record's verdict."""
        item.state = ItemState.MOVING
        item.verdict = verdict
        self.moving[item.offset] = item

    def unnote(self, item: Item) -> None:
        """Schedule the deletion of a record's in-hand note, because the handler did not get the record.

        So the record is no suspect if the process ends.
        """
        item.noted, item.row = False, item.unnoted
        self.move(item, Verdict(row=item.row, stays=True))

    def finish(self, item: Item) -> None:
        """Mark a record as done, and make the next record of its chain ready."""
        item.state = ItemState.DONE
        self.clear(item)
        self.moving.pop(item.offset, None)
        self.by_offset.pop(item.offset, None)
        if self.chains is not None and self.is_retry:
            following = self.chains.finished(item)
            if following is not None:
                self.push(following)

    def step_over(self, item: Item) -> None:
        """Add a record that is done without being handled."""
        item.state = ItemState.DONE
        self.items.append(item)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def low(self, done: Container[Item] = ()) -> int:
        """Return the offset to commit: that of the first record that is not done. Records in `done` count as done."""
        while self.items and self.items[0].state is ItemState.DONE:
            self.items.popleft()
        for item in self.items:
            if item.state is not ItemState.DONE and item not in done:
                return item.offset
        return self.position

    def movable(self) -> Iterator[Item]:
        """Yield the records whose verdicts may be written now, in order.

        In a source topic, the write of a verdict also commits the record's offset, so that the next owner does not read
        the record again. Therefore all records before it must be done or be written with it. A verdict with `stays`
        commits no offset and may be written at any time.
        """
        if self.is_retry:
            yield from [self.moving[offset] for offset in sorted(self.moving)]
            return
        held = False
        for item in self.items:
            if item.state is ItemState.MOVING:
                held = held or item.is_staying
                if item.is_staying or not held:
                    yield item
            elif item.state is not ItemState.DONE:
                held = True
            if held and not self.batch.items:
                return

    @property
    def has_movable(self) -> bool:
        """Whether a verdict may be written now."""
        return bool(self.moving) and (self.is_retry or next(self.movable(), None) is not None)

    @property
    def is_in_hand(self) -> bool:
        """Whether the lane has a record that runs or is about to run, and that the ledger lists as in hand.

        A record that may have ended the process before is in hand until its outcome is written.
        """
        if self.leaving:
            return False
        for item in self.batch.items:
            if item.state is ItemState.MOVING and (self.batch.alone or (item.noted and item.is_staying)):
                return True
            if item.state in {ItemState.READY, ItemState.RUNNING} and item.noted and not self.waits_for:
                return True
        return False

    @property
    def is_writing_notes(self) -> bool:
        """Whether notes, or the outcome of a suspect, are being written. No record is started meanwhile."""
        if self.batch.alone and any(item.state is ItemState.MOVING for item in self.batch.items):
            return True
        if not self.is_retry and any(item.is_staying for item in self.batch.items):
            return True  # also behind `until`: later records must not overtake one that is tried again
        return self.until >= 0 and any(item.is_staying for item in self.moving.values())

    @property
    def noted_ready(self) -> list[Item]:
        """The records that are noted as in hand and ready to run."""
        return [item for item in self.batch.items if item.noted and item.state is ItemState.READY]

    @property
    def noted_count(self) -> int:
        """The number of records that the ledger notes as in hand."""
        return sum(item.noted and item.state is not ItemState.DONE for item in self.batch.items)

    def follows_given_back(self, item: Item) -> bool:
        """Return whether the outcome of an earlier letter of the same key was discarded."""
        return item.key is not None and item.offset > self.given_back.get(item.key, item.offset)

    def clear(self, item: Item) -> None:
        """Mark a record as cleared: it has an outcome, so it did not crash the process."""
        self.doubted -= item.doubted
        item.doubted = False

    @property
    def is_over(self) -> bool:
        """Whether every record that may have crashed the previous owner has an outcome."""
        return not self.careful or (self.position >= self.until and not self.doubted)

    @property
    def unfinished(self) -> int:
        """The number of unfinished records."""
        return len(self.by_offset)

    def is_full(self, item: Item) -> bool:
        """Return whether this record must wait until more offsets are committed or outcomes written."""
        behind = len(self.moving) if self.is_retry else item.offset - self.committed
        return behind >= IN_HAND_MAX

    @property
    def hurries(self) -> bool:
        """Whether to write verdicts without delay.

        True if the lane is closing, if COMMIT_COUNT handled records are not committed, or after an unclean shutdown,
        when records wait for their notes.
        """
        if self.closing or self.until >= 0 or len(self.moving) >= COMMIT_COUNT:
            return True
        return bool(self.moving) and not self.is_retry and self.reached - self.committed >= COMMIT_COUNT
