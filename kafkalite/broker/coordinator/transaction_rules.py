"""Compute the next state of a transactional id from its current state and a request, as in Kafka (KIP-98, 360, 890).

    Empty or Complete…   ─▶ Empty             InitProducerId
    Empty or Complete…   ─▶ Ongoing           the first partitions are added
    Ongoing              ─▶ Ongoing           more partitions are added
    Ongoing              ─▶ PrepareCommit     EndTxn commits
    Ongoing              ─▶ PrepareAbort      EndTxn aborts, InitProducerId, or the transaction times out
    Empty or Complete…   ─▶ PrepareAbort      EndTxn aborts, in TV2
    Prepare…             ─▶ Complete…         the markers are in the logs

A durable Prepare decides the outcome of the transaction.

Two protocols coexist; the version of each request selects one:

    TV1   The producer adds partitions explicitly. Its epoch stays the same across transactions.
    TV2   (KIP-890) A write adds its partition. Each EndTxn raises the epoch by one, so a late request has an old epoch.

Thread rule: immutable values and pure functions, without locks, clocks or I/O.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32767
EPOCH_LAST: Final = EPOCH_MAX - 1
"""The last epoch that a producer gets."""
TV1: Final = 0
"""Kafka's transaction versions 0 and 1, between which clients see no difference."""
TV2: Final = 2


class TransactionState(IntEnum):
    """A transaction's state, numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, which clients see; for example, PrepareCommit."""
        return self.name.title().replace("_", "")


EMPTY, ONGOING, DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
LABELS: Final = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The state of a transactional id. Times in ms since 1970, -1 for none."""

    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last rotation."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from Complete on."""
    last_epoch: int = NO_EPOCH
    """The producer's epoch before its last InitProducerId, which may be repeated. Not in the log, as in Kafka."""
    client_version: int = TV1
    """The client's protocol (TV1 or TV2) in the last write or end of a transaction."""

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left. The transactional id then switches to a new producer id."""
        return self.epoch >= EPOCH_LAST

    @property
    def commits(self) -> bool:
        """Whether the result of a prepared or complete transaction is commit."""
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}


class Outcome(NamedTuple):
    """The result of a request: the code of the response, and the metadata to make durable (None: no change)."""

    code: int
    next: Metadata | None = None


def initialise(now: Metadata, asked: tuple[int, int] | None, timeout_ms: int, time_ms: int, spare_id: int) -> Outcome:
    """Handle InitProducerId.

    `asked` is the (producer id, epoch) that the client has (KIP-360). `spare_id` is a new producer id, which is used if
    the present one has no epoch left.

    The outcome CONCURRENT_TRANSACTIONS with metadata means that an open transaction is aborted first, and that the
    client retries.
    """
    if now.state in PREPARED:
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
    if asked is not None and not _may_continue(now, *asked):
        return Outcome(ErrorCode.PRODUCER_FENCED)
    if now.state is ONGOING:
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS, fence(now, time_ms, spare_id))
    fresh = replace(
        now, state=EMPTY, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1, update_ms=time_ms,
        next_producer_id=NO_PRODUCER_ID,
    )  # fmt: skip
    if now.exhausted and (asked is None or asked[1] == now.epoch):
        last_epoch = NO_EPOCH if asked is None else now.epoch
        rotated = replace(
            fresh, producer_id=spare_id, previous_producer_id=now.producer_id, epoch=0, last_epoch=last_epoch
        )
        return Outcome(0, rotated)
    if asked is None:
        return Outcome(0, replace(fresh, epoch=now.epoch + 1, last_epoch=NO_EPOCH))
    if now.epoch == NO_EPOCH or asked[1] == now.epoch:
        return Outcome(0, replace(fresh, epoch=now.epoch + 1, last_epoch=now.epoch))
    if asked[1] == now.last_epoch:
        return Outcome(0, fresh)  # a retry after a lost response
    return Outcome(ErrorCode.PRODUCER_FENCED)


def _may_continue(now: Metadata, producer_id: int, epoch: int) -> bool:
    """Return whether a producer with this producer id and epoch may continue to use the transactional id."""
    if now.epoch == NO_EPOCH or producer_id == now.producer_id:
        return True
    return producer_id == now.previous_producer_id and epoch >= EPOCH_LAST


def add(
    now: Metadata,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    time_ms: int,
    count_max: int,
) -> Outcome:
    """Add partitions to the transaction; the first partitions begin it.

    If the transaction has all of them already, the outcome is 0 without metadata.
    """
    code = _identity_error(now, producer_id, epoch)
    if code:
        return Outcome(code)
    if now.state in PREPARED:
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
    if now.state is ONGOING and partitions <= now.partitions:
        return Outcome(0)
    together = partitions | now.partitions if now.state is ONGOING else partitions
    if len(together) > count_max:
        return Outcome(ErrorCode.POLICY_VIOLATION)
    return Outcome(
        0,
        replace(
            now,
            state=ONGOING,
            partitions=together,
            start_ms=now.start_ms if now.state is ONGOING else time_ms,
            update_ms=time_ms,
            client_version=client_version,
        ),
    )


def verify(now: Metadata, producer_id: int, epoch: int, partition: TopicPartition) -> int:
    """Return 0 if a partition is in the producer's open transaction, else an error code.

    The code is TRANSACTION_ABORTABLE (KIP-890) if the producer is known and the partition is not in its transaction.
    """
    code = _identity_error(now, producer_id, epoch)
    if code:
        return code
    if now.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return 0 if now.state is ONGOING and partition in now.partitions else ErrorCode.TRANSACTION_ABORTABLE


def _identity_error(now: Metadata, producer_id: int, epoch: int) -> int:
    if now.state in PREPARED and now.next_producer_id != NO_PRODUCER_ID and producer_id == now.next_producer_id:
        return 0 if epoch == 0 else ErrorCode.PRODUCER_FENCED  # the producer already has its new id
    if producer_id != now.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return 0 if epoch == now.epoch > NO_EPOCH else ErrorCode.PRODUCER_FENCED


def end(
    now: Metadata, producer_id: int, epoch: int, *, commit: bool, client_version: int, time_ms: int, spare_id: int
) -> Outcome:
    """Handle EndTxn. If the transaction is already complete with the same result, the outcome is 0 without metadata."""
    if client_version >= TV2:
        return _end_v2(now, producer_id, epoch, commit=commit, time_ms=time_ms, spare_id=spare_id)
    if producer_id != now.producer_id:
        return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if _identity_error(now, producer_id, epoch):
        return Outcome(ErrorCode.PRODUCER_FENCED)
    if now.state is ONGOING:
        return Outcome(0, _prepare(now, commit=commit, client_version=TV1, time_ms=time_ms, spare_id=spare_id))
    if now.state is EMPTY or commit != now.commits:
        return Outcome(ErrorCode.INVALID_TXN_STATE)
    return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS if now.state in PREPARED else 0)


def _end_v2(now: Metadata, producer_id: int, epoch: int, *, commit: bool, time_ms: int, spare_id: int) -> Outcome:
    """Handle EndTxn in TV2.

    A request with the current epoch ends the open transaction; if none is open, it can only abort. A request with
    the previous epoch is a retry of the last EndTxn.

    If the producer id has no epoch left, the markers of its last transaction have epoch 32767. The new producer id is
    used after Complete.
    """
    overflow = producer_id == now.previous_producer_id and epoch == EPOCH_LAST and now.epoch == 0
    retry = overflow or (producer_id == now.producer_id and now.epoch == epoch + 1)
    current = _identity_error(now, producer_id, epoch) == 0
    if producer_id not in {now.producer_id, now.next_producer_id} and not overflow:
        return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if now.state in PREPARED:
        if current:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not retry:
            return Outcome(ErrorCode.PRODUCER_FENCED)
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS if commit == now.commits else ErrorCode.INVALID_TXN_STATE)
    if now.state in COMPLETE and retry:
        return Outcome(0 if commit == now.commits else ErrorCode.INVALID_TXN_STATE)
    if not current:
        return Outcome(ErrorCode.PRODUCER_FENCED)
    if now.state is not ONGOING and commit:
        return Outcome(ErrorCode.INVALID_TXN_STATE)
    return Outcome(0, _prepare(now, commit=commit, client_version=TV2, time_ms=time_ms, spare_id=spare_id))


def _prepare(now: Metadata, *, commit: bool, client_version: int, time_ms: int, spare_id: int) -> Metadata:
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    prepared = replace(
        now,
        state=state,
        start_ms=now.start_ms if now.state is ONGOING else time_ms,
        update_ms=time_ms,
        client_version=client_version,
    )
    if client_version < TV2:
        return prepared
    rotates = now.exhausted
    return replace(
        prepared,
        epoch=now.epoch + 1,
        last_epoch=now.epoch,
        next_producer_id=spare_id if rotates else NO_PRODUCER_ID,
        partitions=now.partitions if now.state is ONGOING else frozenset(),
    )


def fence(now: Metadata, time_ms: int, spare_id: int) -> Metadata:
    """Abort an open transaction, and fence its producer by raising the epoch by one, in both protocols.

    A timeout or an InitProducerId aborts a transaction in this way.
    """
    assert now.state is ONGOING, "only an open transaction is aborted"
    rotates = now.client_version >= TV2 and now.exhausted
    return replace(
        now,
        state=TransactionState.PREPARE_ABORT,
        epoch=now.epoch + 1,
        last_epoch=NO_EPOCH,
        next_producer_id=spare_id if rotates else NO_PRODUCER_ID,
        update_ms=time_ms,
    )


def complete(now: Metadata, time_ms: int) -> Metadata:
    """Complete a transaction after all its markers were written."""
    assert now.state in PREPARED, "only a prepared transaction is completed"
    done = replace(
        now,
        state=TransactionState.COMPLETE_COMMIT if now.commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        update_ms=time_ms,
    )
    if now.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=now.next_producer_id,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )
