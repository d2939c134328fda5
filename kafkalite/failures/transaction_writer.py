"""Writes what the core wants written, in a thread of its own: the member reads, handles and decides on meanwhile.

    Transact ─▶ begin ─▶ [thread: rendered ─▶ Port.transact, or Port.write] ─▶ bell ─▶ ended ─▶ TransactionEnded

One transaction at a time. What it needs of the group, who the member is and how large a record may be, is given to it
when it begins: what was decided in one generation is never committed in the name of a later one.

Thread rule: one thread at a time, that of the runner, but for what is marked.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.failures.events import Goal, Message
from kafkalite.failures.headers import rekeyed, rendered
from kafkalite.failures.rows import encode_row
from kafkalite.failures.topics import LEDGER_PARTITION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.failures.events import Transact
    from kafkalite.failures.policy import Policy
    from kafkalite.model import TopicPartition

SIZE_MAX: Final = 2**31
"""Of a record whose topic nobody may look at: who writes finds out."""

logger = logging.getLogger(__name__)


class TransactionFailed(Exception):
    """Nothing of a transaction is visible; it may be done again. `too_large`: a record did not fit."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class Written(NamedTuple):
    """A record to be written: key, value, headers and timestamp of the message. Partition None is chosen by key."""

    topic: str
    partition: int | None
    message: Message


class WritingPort(Protocol):
    """What a client has to do for this: in another thread than all the rest."""

    def transact(
        self,
        records: Sequence[Written],
        offsets: Mapping[TopicPartition, int],
        scope: TopicPartition | None,
        member: object,
    ) -> None:
        """Writes records and offsets as one, in the name of that `member` of the group; TransactionFailed."""

    def write(self, records: Sequence[Written]) -> None:
        """Writes records, acknowledged by all, without a transaction; TransactionFailed."""


class Move(NamedTuple):
    """A Transact, and what was so when it began: who the member was (Port.member), and the topics' largest records."""

    action: Transact
    member: object
    sizes: Mapping[str, int]


class Ended(NamedTuple):
    """A move that is over: written, or not; `largest` is the place of the put that did not fit."""

    action: Transact
    failed: bool = False
    largest: int | None = None


class Mover:
    """See the module. `bell` is rung when a move has ended."""

    def __init__(self, policy: Policy, port: WritingPort, bell: queue.SimpleQueue[None]) -> None:
        self._policy = policy
        self._port = port
        self._bell = bell
        self._jobs: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
        self.busy = False
        """Whether a move has not been heard to have ended."""
        self._thread = threading.Thread(target=self._work, name="failures-mover", daemon=True)
        self._thread.start()

    def begin(self, move: Move) -> None:
        """One at a time."""
        assert not self.busy, "one transaction at a time"
        self.busy = True
        self._jobs.put(move)

    def ended(self) -> Ended | None:
        """The move that has ended, if it has. What ended the thread with it is raised."""
        try:
            found = self._ended.get_nowait()
        except queue.Empty:
            return None
        self.busy = False
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Ends the thread behind the move that it is at."""
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
            largest = max(range(len(records)), key=lambda place: size_of(records[place].message), default=None)
            if error.too_large and largest is None:
                raise
            return Ended(action, failed=True, largest=largest if error.too_large else None)
        return Ended(action)


def ledger_message(key: str, value: bytes | None) -> Message:
    """A row as it is written."""
    return Message("", -1, -1, time.time_ns() // 1_000_000, key.encode(errors="surrogateescape"), value)


def size_of(message: Message) -> int:
    """Bytes of key and value."""
    return len(message.key or b"") + len(message.value or b"")
