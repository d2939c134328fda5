"""Convert the groups and transactions of a standalone broker that becomes a member of a cluster.

In the cluster, the topics have other topic ids:

- A committed offset is written again without its topic id. With the old id, it would belong to a deleted topic.
- The members of consumer groups (KIP-848) are removed, as if they had timed out, because assignments contain topic ids.
  They rejoin. The groups keep their epochs and offsets.
- Classic groups refer to topics by name only. They do not change.

Everything here blocks. The two topics must have no other writer meanwhile.
"""

from __future__ import annotations

import contextlib
from dataclasses import field
from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.codec import CodecError
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator import consumer_records, records, transaction_records
from kafkalite.broker.coordinator.consumer_records import kind_of
from kafkalite.broker.coordinator.state_log import NO_PRODUCER, Marker, append_records, entries_of
from kafkalite.broker.coordinator.transaction_rules import TransactionState
from kafkalite.errors import StartupError
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.log.partition_log import PartitionLog

MEMBERSHIP: Final = (consumer_records.CURRENT, consumer_records.TARGET_MEMBER, consumer_records.MEMBER)
"""Kinds of records about one member, in the order in which Kafka deletes them."""
UNDER_WAY: Final = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
)


@dataclass(slots=True)
class Groups:
    """The groups and committed offsets in the logs of `__consumer_offsets`."""

    names: set[str] = field(default_factory=set)
    positions: int = 0
    """Number of committed offsets."""


@dataclass(slots=True)
class Transactions:
    """The transactional ids in the logs of `__transaction_state`."""

    ids: int = 0
    """Number of transactional ids."""
    producer_ids: set[int] = field(default_factory=set)
    under_way: list[str] = field(default_factory=list)
    """Transactional ids whose transaction is not complete."""


def look_at_groups(partitions: Iterable[PartitionLog]) -> Groups:
    """Return the groups and the number of offsets. KafkaError or StartupError if a log cannot be read."""
    found = Groups()
    for log in partitions:
        with _readable(log):
            for key in _latest(log):
                _count(found, key)
    return found


def fit_groups(partitions: Iterable[PartitionLog], now_ms: int) -> None:
    """Convert the groups, durably, in the logs of `__consumer_offsets`. A second call writes nothing. KafkaError,
    StartupError.
    """
    for log in partitions:
        with _readable(log):
            changes = _changes(_latest(log))
        if changes:
            append_records(log, changes, now_ms)
        log.flush()


def look_at_transactions(partitions: Iterable[PartitionLog]) -> Transactions:
    """Count the transactional ids, and collect their producer ids and unfinished transactions.

    KafkaError or StartupError if a log cannot be read.
    """
    found = Transactions()
    for log in partitions:
        with _readable(log):
            for key, value in _latest(log).items():
                metadata = transaction_records.read_value(value)
                found.ids += 1
                found.producer_ids.add(metadata.producer_id)
                if metadata.state in UNDER_WAY:
                    found.under_way.append(transaction_records.read_key(key))
    found.under_way.sort()
    return found


@contextlib.contextmanager
def _readable(log: PartitionLog) -> Iterator[None]:
    try:
        yield
    except CodecError as error:
        raise StartupError(f"{log.name} has a record that this release cannot read: {error}") from error


def _latest(log: PartitionLog) -> dict[bytes, bytes]:
    """Return the newest committed value of each key."""
    present: dict[bytes, bytes] = {}
    pending: dict[int, list[Record]] = {}
    for entry in entries_of(log):
        if isinstance(entry, Marker):
            written = pending.pop(entry.producer_id, [])
            for key, value in written if entry.commit else ():
                _put(present, key, value)
        elif entry.producer_id == NO_PRODUCER:
            _put(present, entry.key, entry.value)
        else:
            pending.setdefault(entry.producer_id, []).append((entry.key, entry.value))
    return present


def _put(present: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        present.pop(key, None)
    else:
        present[key] = value


def _count(found: Groups, key: bytes) -> None:
    kind = kind_of(key)
    about = records.read_key(key)
    if about is not None:
        found.names.add(about.group)
        found.positions += kind in records.OFFSET_KINDS
    elif kind == consumer_records.GROUP:
        found.names.add(consumer_records.read_key(key)[0])


def _changes(present: dict[bytes, bytes]) -> list[Record]:
    changes: list[Record] = []
    for key, value in present.items():
        if kind_of(key) in records.OFFSET_KINDS:
            position = records.read_offset(value)
            if position.topic_id != ZERO_UUID:
                position.topic_id = ZERO_UUID
                changes.append((key, records.offset_record("", "", 0, position)[1]))
    for kind in MEMBERSHIP:
        changes += [(key, None) for key in present if kind_of(key) == kind]
    return changes
