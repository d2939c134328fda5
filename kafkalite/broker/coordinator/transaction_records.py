"""Encode and decode the records of `__transaction_state`, in Kafka's own schemas.

    key      int16 0, then the transactional id
    value    int16 version, then the transaction after its last change; null (a tombstone) deletes the id

Version 1 is written. Its fields of KIP-890 (next and previous producer id, the client's version) are tagged, so older
readers skip them. Version 0, without these fields, is read as well.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from kafkalite._native.wire.codec import CodecError, Program
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator.transaction_rules import Metadata, TransactionState
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.wire.protocol.schema import FieldTable

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
FLEXIBLE_FROM: Final = 1


@dataclass(slots=True, kw_only=True)
class TransactionLogKey:
    """The key: a transactional id."""

    transactional_id: str = ""

    FIELDS: ClassVar[FieldTable] = (("transactional_id", "string", "0+"),)


@dataclass(slots=True, kw_only=True)
class TransactionPartitions:
    """Part of TransactionLogValue: the partitions of one topic that are in the transaction."""

    topic: str = ""
    partition_ids: list[int] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("topic", "string", "0+"),
        ("partition_ids", "[]int32", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class TransactionLogValue:
    """The state of a transactional id. Versions 0-1, flexible from 1. Times in ms."""

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[TransactionPartitions] | None = None
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("producer_id", "int64", "0+"),
        ("previous_producer_id", "int64", "1+", "", "0:1+"),
        ("next_producer_id", "int64", "1+", "", "1:1+"),
        ("producer_epoch", "int16", "0+"),
        ("next_producer_epoch", "int16", "1+", "", "3:1+"),
        ("transaction_timeout_ms", "int32", "0+"),
        ("transaction_status", "int8", "0+"),
        ("transaction_partitions", "[]TransactionPartitions", "0+", "0+"),
        ("transaction_last_update_timestamp_ms", "int64", "0+"),
        ("transaction_start_timestamp_ms", "int64", "0+"),
        ("client_transaction_version", "int16", "1+", "", "2:1+"),
    )


@lru_cache(maxsize=8)
def _program(message: type, version: int) -> Program:
    return Program(message, version, message is TransactionLogValue and version >= FLEXIBLE_FROM, globals())


def transaction_record(transactional_id: str, metadata: Metadata | None) -> Record:
    """Return the record of a transactional id's state. If `metadata` is None, return its tombstone."""
    key = KEY_VERSION.to_bytes(2, "big") + _program(TransactionLogKey, KEY_VERSION).encode(
        TransactionLogKey(transactional_id=transactional_id)
    )
    if metadata is None:
        return key, None
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else _grouped(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return key, VALUE_VERSION.to_bytes(2, "big") + _program(TransactionLogValue, VALUE_VERSION).encode(value)


def _grouped(partitions: frozenset[TopicPartition]) -> list[TransactionPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [TransactionPartitions(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]


def read_key(data: bytes) -> str:
    """Decode a key: the transactional id. CodecError if the key is malformed."""
    if int.from_bytes(data[:2], "big", signed=True) != KEY_VERSION or len(data) < 2:
        raise CodecError("the key is not that of a transactional id")
    key: TransactionLogKey = _program(TransactionLogKey, KEY_VERSION).decode(data[2:])
    return key.transactional_id


def read_value(data: bytes) -> Metadata:
    """Decode a value: the id's state. CodecError if the value is malformed."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if not 0 <= version <= VALUE_VERSION or len(data) < 2:
        raise CodecError(f"unsupported transaction record version {version}")
    value: TransactionLogValue = _program(TransactionLogValue, version).decode(data[2:])
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise CodecError(str(error)) from error
    return Metadata(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(row.topic, number)
            for row in value.transaction_partitions or ()
            for number in row.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
