"""Write a member's transactions in a separate thread, while the member continues to read and handle records.

    Transact ─▶ begin ─▶ [thread: build records ─▶ Port.transact or Port.write] ─▶ bell ─▶ ended ─▶ TransactionEnded

A move is a transaction or, with at-least-once moves, plain writes. Only one is in progress at a time. A transaction
contains the member's group metadata from the time when the move began. So the broker rejects it if the group has a
newer generation. With aiokafka, the transactional id fences the member instead (kafkalite.failures.adapters.aio).

Thread rule: everything belongs to the runner's thread, except the methods in the section "the thread".
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.failures.events import Goal, Message
from kafkalite.failures.headers import RECORD_OVERHEAD, rekeyed, rendered
from kafkalite.failures.headers import size_of as headers_size
from kafkalite.failures.rows import encode_row
from kafkalite.failures.topics import LEDGER_PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.failures.events import Transact
    from kafkalite.failures.policy import Policy
    from kafkalite.model import TopicPartition

SIZE_MAX: Final = 2**31
"""Size limit for a topic whose settings may not be read. The write itself then fails if a record is too large."""

logger = logging.getLogger(__name__)


class TransactionFailed(Exception):
    """A transaction or a plain write failed, and may be repeated. No record of a failed transaction is visible.

    `too_large` says that a record did not fit into its topic. `topic` is that topic; "" if the client does not name it.
    """

    def __init__(self, message: str, *, too_large: bool = False, topic: str = "") -> None:
        super().__init__(message)
        self.too_large = too_large
        self.topic = topic


class Written(NamedTuple):
    """A record to write, with the key, value, headers and timestamp of `message`.

    If `partition` is None, the key determines it.
    """

    topic: str
    partition: int | None
    message: Message


class WritingPort(Protocol):
    """The client interface that the Mover needs. It is called in the Mover's thread."""

    def transact(
        self,
        records: Sequence[Written],
        offsets: Mapping[TopicPartition, int],
        scope: TopicPartition | None,
        member: object,
    ) -> None:
        """Write records and offsets atomically, as this `member` of the group. Raises TransactionFailed."""

    def write(self, records: Sequence[Written]) -> None:
        """Write records without a transaction, with acks=all. Raises TransactionFailed."""


class Move(NamedTuple):
    """A Transact with the group membership (Port.member) and the size limits of its letters' topics at its start."""

    action: Transact
    member: object
    sizes: Mapping[str, int]


class Ended(NamedTuple):
    """A finished move. `error` is set if it failed. If a record was too large, `sizes` are the Puts' maximum sizes."""

    action: Transact
    error: TransactionFailed | None = None
    sizes: tuple[int, ...] = ()


class Mover:
    """Runs one move at a time; see the module. At the end of a move, `bell` wakes the runner."""

    def __init__(self, policy: Policy, port: WritingPort, bell: queue.SimpleQueue[None]) -> None:
        self._policy = policy
        self._port = port
        self._bell = bell
        self._jobs: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
        self.busy = False
        """Whether a move is under way, or has ended and `ended` was not called."""
        self._thread = threading.Thread(target=self._work, name="failures-mover", daemon=True)
        self._thread.start()

    def begin(self, move: Move) -> None:
        """Start a move. The previous move must have ended."""
        assert not self.busy, "one transaction at a time"
        self.busy = True
        self._jobs.put(move)

    def ended(self) -> Ended | None:
        """Return the move that has ended, or None. Raise the exception that the move raised."""
        try:
            found = self._ended.get_nowait()
        except queue.Empty:
            return None
        self.busy = False
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the thread after its current move."""
        self._jobs.put(None)
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (move := self._jobs.get()) is not None:
            try:
                self._ended.put(self._carry_out(move))
            except BaseException as error:  # noqa: BLE001  # raised by `ended`
                self._ended.put(error)
            self._bell.put(None)

    def _carry_out(self, move: Move) -> Ended:
        policy, action = self._policy, move.action
        records: list[Written] = []
        for put in action.puts:
            message = rendered(put, move.sizes.get(put.topic, SIZE_MAX), policy.compat, policy.scrub)
            if put.goal is Goal.DEAD and policy.letter_kind != "original":
                message = rekeyed(message, put, policy.letter_kind)
            records.append(Written(put.topic, put.partition, message))
        rows = [
            Written(
                policy.layout.ledger, LEDGER_PARTITION, ledger_message(key, None if row is None else encode_row(row))
            )
            for key, row in action.rows
        ]
        try:
            if policy.moves == "exactly once":
                self._port.transact([*records, *rows], action.offsets, action.scope, move.member)
            else:
                for written in (records, rows):
                    if written:
                        self._port.write(written)
        except TransactionFailed as error:
            logger.warning("group %s: the transaction that moves records failed: %s", policy.group, error)
            return Ended(action, error, tuple([size_of(one.message) for one in records]) if error.too_large else ())
        return Ended(action)


def ledger_message(key: str, value: bytes | None) -> Message:
    """Return the ledger record to write for a row."""
    return Message("", -1, -1, time.time_ns() // 1_000_000, key.encode(errors="surrogateescape"), value)


def size_of(message: Message) -> int:
    """Return an upper bound of a record's size in a batch of its own, in bytes."""
    return len(message.key or b"") + len(message.value or b"") + headers_size(message.headers) + RECORD_OVERHEAD


def refused(ended: Ended, limit_of: Callable[[str], int]) -> int:
    """Return the index of the Put that was too large for its topic. Raises the move's error if that is unknown.

    If the client does not name the topic, it is the Put that exceeds the limit of its topic most, or else one whose
    limit is unknown: an output rather than a letter, which would lose its value. A letter that fits is never chosen.
    """
    assert ended.error is not None, "it failed"
    puts, sizes = ended.action.puts, ended.sizes
    if ended.error.topic:
        places = [place for place, put in enumerate(puts) if put.topic == ended.error.topic]
    else:
        limits = {topic: limit_of(topic) for topic in dict.fromkeys(put.topic for put in puts)}
        above = {place: sizes[place] - limits[put.topic] for place, put in enumerate(puts)}
        if above and max(above.values()) > 0:
            return max(above, key=above.__getitem__)
        places = [place for place, put in enumerate(puts) if limits[put.topic] == SIZE_MAX]
        places = [place for place in places if puts[place].goal is Goal.OUTPUT] or places
    if not places:
        raise ended.error
    return max(places, key=sizes.__getitem__)
