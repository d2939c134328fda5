"""One partition in the hands of a member: the records that were read and are not finished, and who comes next.

    read ─▶ READY ─▶ RUNNING ─▶ DONE                 plainly processed, or stepped over
              ▲         ├─▶ MOVING ─▶ DONE           written elsewhere, in a transaction with the offset
              └─────────┴─▶ (stays)                  tried again here: the wait is over, or its row is written

Of a topic's own partition the records run in the order of their offsets, and the first holds the others back while it
waits. In a retry topic each has its due time and they end out of order; with order by key those of a key are a chain,
of which the first alone may run. The offset to commit is that of the first record that is not done.

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
"""Records of a partition after which what became of them is committed before the time."""
RUN_MAX: Final = 64
"""Records that are given to a worker at once."""
GROWTH: Final = 16
"""By which a batch is larger than the one before it."""
BATCH_MAX: Final = 256
"""Records that are noted as in hand at once."""
EXACT_COUNT: Final = 128
SPAN_MAX: Final = 16
SPAN_MS: Final = 0.5
IN_HAND_MAX: Final = 2 * COMMIT_COUNT + RUN_MAX
"""So far behind what is committed a run begins at most: as many are handled while others are being committed."""


class ItemState(Enum):
    """Where a record is."""

    READY = "ready"
    RUNNING = "running"
    MOVING = "moving"
    DONE = "done"


class Verdict(NamedTuple):
    """What a transaction has to write for a record. With `stays` the record is READY again afterwards."""

    put: Put | None = None
    row: Row | None = None
    outputs: tuple[Output, ...] = ()
    stays: bool = False
    writes_row: bool = True


class Item:
    """A record in hand. `due` is monotonic ms; `attempt` counts failures so far; `first` is wall ms of the first."""

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
        """Of the letter that speaks for it, or will."""
        self.came_as = ""
        """The letter's id that it was read with."""
        self.rounds = 0
        self.held = ""
        """The digest of the key that waits until this record is decided."""
        self.passed = False
        """Whether the next of its key need not wait for it any more."""
        self.row: Row | None = None
        self.doubted = False
        """Whether it may be what ended the member before, and has had no outcome since."""
        self.noted = False
        self.unnoted: Row | None = None
        """Its row before it was noted."""
        self.counted = False
        """Whether its failure stands in the window of the breaker already."""
        self.old = False
        """Whether somebody was told that it is tried for long."""
        self.failure: Failure | None = None
        self.probes = 0
        self.shrink = 0
        self.verdict: Verdict | None = None
        self.bundle: list[Item] = []
        """Records that one call has handled, with outputs: they are written in one transaction."""

    @property
    def is_staying(self) -> bool:
        """Whether it is being written down that it is in hand, or is not any more."""
        return self.state is ItemState.MOVING and self.verdict is not None and self.verdict.stays


class Batch:
    """Records that are noted together as in hand before the first of them is handled, after an unclean end.

    `size` is that of the next: it grows as long as to write the notes takes longer than to handle the records, so that
    the partition keeps half of its rate at least, and no more records than that needs come under suspicion.

    Each record has a mark of its own, but for those that take less time than their marks would: behind the first
    EXACT_COUNT of these, a mark stands for up to SPAN_MAX records, and counts as a try of none.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.alone = False
        """Whether it is one record that was in hand before when a process ended: the only one of the member."""
        self.marks = False
        """Whether it is marked which of its records the handler has, as others are noted too."""
        self.size = 1
        self._exact_left = EXACT_COUNT
        self._each_ms = 0.0
        self._noting_since = self._noting_ms = 0.0
        self._running_since: float | None = None

    def begin(self, items: list[Item], now_ms: float, *, alone: bool, marks: bool) -> None:
        """These are about to be noted."""
        self.items, self.alone, self.marks = items, alone, marks
        self._noting_since = now_ms

    def run(self, now_ms: float) -> None:
        """They are noted, and about to be handled."""
        self._running_since = now_ms
        self._noting_ms = now_ms - self._noting_since

    def ended(self, now_ms: float, each_ms: float) -> None:
        """A run is over: if it was theirs, they were handled."""
        since, self._running_since = self._running_since, None
        if since is not None and not self.alone and now_ms - since <= self._noting_ms:
            self.size = min(GROWTH * self.size, BATCH_MAX)
        if since is not None:
            self._exact_left -= len(self.items)
            self._each_ms = each_ms

    def span(self, place: int) -> int:
        """How many records the mark of the one at this place stands for."""
        return 1 if place < self._exact_left or self._each_ms >= SPAN_MS else SPAN_MAX

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is noted, or being written, any more."""
        return all(
            item.state is ItemState.DONE or (item.state is ItemState.READY and not item.noted) for item in self.items
        )


class KeyChains:
    """Of a retry partition with order by key: which keys are blocked, and by how many letters.

    A key is held while what becomes of its dead record is open (after_dead="hold"): then nothing of it runs but that.
    """

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._expected: set[str] = set()
        """Letters that this member has sent and not read back."""
        self.chains: dict[bytes, deque[Item]] = {}
        self.holders: dict[str, int] = {}
        """By digest of a held key, the offset of the record that it waits for, in its own topic."""
        self.written: set[str] = set()
        """Digests of keys that the ledger says are held."""

    @property
    def awaited(self) -> int:
        """Letters on their way."""
        return len(self._expected)

    def blocks(self, item: Item) -> bool:
        """Whether a record of the topic itself has to wait. One without key never has to."""
        return item.key is not None and (self._counts[item.key] > 0 or self._is_held(item.key, item.origin_offset))

    def _is_held(self, key: bytes, offset: int) -> bool:
        """Whether the key waits for another record than this one."""
        return bool(self.holders) and self.holders.get(key_digest(key), offset) != offset

    def send(self, key: bytes | None, letter_id: str) -> None:
        """A letter with this key is on its way into the partition."""
        self._expected.add(letter_id)
        if key is not None:
            self._counts[key] += 1

    def take_back(self, key: bytes | None, letter_id: str) -> None:
        """It was not sent after all."""
        self._expected.discard(letter_id)
        self._release(key)

    def arrived(self, item: Item) -> bool:
        """A living letter was read; whether it may run: the first of its key, or what a held key waits for."""
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
        """A letter has succeeded, and is about to be written as that; the next of its key, which may run now."""
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
        """A letter is done; the next of its key, if it did not pass before. Newcomers of the key may go on from now."""
        self._release(item.key)
        return self.passed(item)

    def hold(self, digest: str, offset: int) -> None:
        """The key waits for this record."""
        self.holders[digest] = offset

    def release(self, digest: str) -> Item | None:
        """The key goes on; the first of it that was waiting."""
        first = next((chain[0] for key, chain in self.chains.items() if key_digest(key) == digest), None)
        if first is not None and first.held and first.state is ItemState.MOVING:
            return None  # what has become of the record now is about to be written
        self.written.discard(digest)
        if self.holders.pop(digest, None) is None or first is None:
            return None
        if not first.held:
            return first
        first.held = ""  # the record itself, on its way back: a letter like any other from now
        return None

    def _release(self, key: bytes | None) -> None:
        if key is not None:
            self._counts[key] -= 1
            assert self._counts[key] >= 0, "a key is released as often as it was blocked"
            if not self._counts[key]:
                del self._counts[key]

    @property
    def parked_keys(self) -> int:
        """Keys that are blocked."""
        return len(self._counts)


def key_digest(key: bytes) -> str:
    """What the ledger says of a key that is held, as the key itself may be personal."""
    return hashlib.blake2b(key, digest_size=16).hexdigest()


class PartitionLane:
    """See the module."""

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
        """Of those, the letters before `known` that were still dead when the partition came."""
        self.rows = dict(rows)
        """By the offset of the record in its own topic, as of when the partition came."""
        self.position = start.position
        self.known = start.known
        """Letters from there on are new, and need no look at their rows."""
        self.end = start.end
        """Where the partition ended when it came."""
        self.committed = start.position
        self.committing = 0
        """The number of the plain commit that is under way, if one is."""
        self.chains = chains
        self.items: deque[Item] = deque()
        self.by_offset: dict[int, Item] = {}
        self.moving: dict[int, Item] = {}
        self.run: int | None = None
        self.running: list[Item] = []
        """The records of the run."""
        self.reached = start.position
        """The offset behind what was ever given to a run."""
        self.opened = False
        self.opening = False
        self.first = start.position
        """The offset where it was opened,"""
        self.opened_ms = 0
        """and when (wall ms)."""
        self.careful = 0
        """How many records are still noted before they are handled, after an unclean end."""
        self.until = -1
        """The offset before which that is done, while it is; -1 otherwise."""
        self.doubted = 0
        """How many of these were read and have no outcome."""
        self.came_ms = 0
        """When the partition came (wall ms): a letter that was not due then was not in hand before."""
        self.calming = False
        """Whether the ledger is still to say that it is over."""
        self.calmed = False
        """Whether the transaction under way says so."""
        self.marked = False
        """Whether the ledger has a mark of one of its records."""
        self.batch = Batch()
        self.leaving = False
        self.closing = False
        self.paused = False
        self.waits_for = ""
        """The group that has to decide on the first record."""
        self.seen: set[str] = set()
        self.checked_lost = not is_retry
        self._ready: list[tuple[float, int, Item]] = []

    @property
    def caught_up(self) -> bool:
        """Whether everything that stood there when the partition came was read."""
        return self.position >= self.end

    # --- records ------------------------------------------------------------------------------------------------------

    def add(self, item: Item) -> None:
        """A record that was read; in a chain only the first is ready."""
        self.items.append(item)
        self.by_offset[item.offset] = item
        self.doubted += item.doubted
        if self.chains is None or not self.is_retry or self.chains.arrived(item):
            self.push(item)

    def push(self, item: Item) -> None:
        """It may run when it is due."""
        item.state = ItemState.READY
        item.verdict = None
        item.bundle = []
        heapq.heappush(self._ready, (item.due if self.is_retry else 0.0, item.offset, item))

    @property
    def head(self) -> Item | None:
        """The next to run."""
        while self._ready and self._ready[0][2].state is not ItemState.READY:
            heapq.heappop(self._ready)
        return self._ready[0][2] if self._ready else None

    def take(self, item: Item) -> None:
        """Takes this one out, the head or another one."""
        if self.head is item:
            heapq.heappop(self._ready)
        else:
            self.take_out(item)

    def ready(self) -> Iterator[Item]:
        """All that wait to run, in no order."""
        return (item for _, _, item in self._ready if item.state is ItemState.READY)

    def take_out(self, item: Item) -> None:
        """Takes this one out, wherever it stands."""
        self._ready = [entry for entry in self._ready if entry[2] is not item]
        heapq.heapify(self._ready)

    def move(self, item: Item, verdict: Verdict) -> None:
        """Its verdict is to be written."""
        item.state = ItemState.MOVING
        item.verdict = verdict
        self.moving[item.offset] = item

    def unnote(self, item: Item) -> None:
        """It was noted, and not handled: that it was in hand when the process ended must not be said of it."""
        item.noted, item.row = False, item.unnoted
        self.move(item, Verdict(row=item.row, stays=True))

    def finish(self, item: Item) -> None:
        """It is done; what it held back is ready."""
        item.state = ItemState.DONE
        self.clear(item)
        self.moving.pop(item.offset, None)
        self.by_offset.pop(item.offset, None)
        if self.chains is not None and self.is_retry:
            following = self.chains.finished(item)
            if following is not None:
                self.push(following)

    def step_over(self, item: Item) -> None:
        """A record that nobody has to handle; it holds nothing back."""
        item.state = ItemState.DONE
        self.items.append(item)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def low(self, done: Container[Item] = ()) -> int:
        """The offset to commit, once these are done too."""
        while self.items and self.items[0].state is ItemState.DONE:
            self.items.popleft()
        for item in self.items:
            if item.state is not ItemState.DONE and item not in done:
                return item.offset
        return self.position

    def movable(self) -> Iterator[Item]:
        """Records with a verdict that may be written now, in order.

        In a topic's own partition only those that nothing unfinished stands before: the offset goes with them, so that
        nobody who comes after meets a record that was moved. No offset goes with what stays, so that may be anywhere.
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
        """Whether a record may be written now."""
        return bool(self.moving) and (self.is_retry or next(self.movable(), None) is not None)

    @property
    def is_in_hand(self) -> bool:
        """Whether a noted record is about to run, or runs; a suspect also until it is written what became of it."""
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
        """Whether it is being written down that records are in hand, or are not any more, or what became of a suspect:
        nothing is begun before that."""
        if self.batch.alone and any(item.state is ItemState.MOVING for item in self.batch.items):
            return True
        return self.until >= 0 and any(item.is_staying for item in self.moving.values())

    @property
    def noted_ready(self) -> list[Item]:
        """Records that are noted as in hand and wait to run."""
        return [item for item in self.batch.items if item.noted and item.state is ItemState.READY]

    @property
    def noted_count(self) -> int:
        """Records that the ledger names as in hand."""
        return sum(item.noted and item.state is not ItemState.DONE for item in self.batch.items)

    def clear(self, item: Item) -> None:
        """It has an outcome: the process has lived through it."""
        self.doubted -= item.doubted
        item.doubted = False

    @property
    def is_over(self) -> bool:
        """Whether all of the records that may have ended the member before have an outcome."""
        return not self.careful or (self.position >= self.until and not self.doubted)

    @property
    def unfinished(self) -> int:
        """Records in hand."""
        return len(self.by_offset)

    def is_full(self, item: Item) -> bool:
        """Whether this one has to wait until more is committed."""
        behind = len(self.moving) if self.is_retry else item.offset - self.committed
        return behind >= IN_HAND_MAX

    @property
    def hurries(self) -> bool:
        """Whether its verdicts are to be written at once: a record waits for that, or as many are in hand behind the
        committed offset as are taken one by one after an unclean end."""
        if self.closing or self.until >= 0 or len(self.moving) >= COMMIT_COUNT:
            return True
        return bool(self.moving) and not self.is_retry and self.reached - self.committed >= COMMIT_COUNT
