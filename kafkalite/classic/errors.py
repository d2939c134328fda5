"""Define the errors of the 0.7 API: one class for each error code of the protocol and each exception of the clients.

Today's Kafka still uses the error codes of 0.7, but has renamed some of them.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kafkalite.errors import ErrorCode


class ClassicError(Exception):
    """The base class of the 0.7 API's errors."""

    code: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR
    """The protocol's error code."""


class UnknownError(ClassicError):
    """The broker failed with an error that has no code (kafka.common.UnknownException)."""


class OffsetOutOfRange(ClassicError):
    """The offset is below the log's start or above its flushed end (kafka.common.OffsetOutOfRangeException)."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class InvalidMessage(ClassicError):
    """A message's checksum is wrong (kafka.message.InvalidMessageException)."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidPartition(ClassicError):
    """The topic has no such partition on this broker (kafka.common.InvalidPartitionException)."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidMessageSize(ClassicError):
    """A message is larger than what was fetched, or its size is invalid (kafka.common.InvalidMessageSizeException)."""

    code = ErrorCode.INVALID_FETCH_SIZE


class InvalidConfig(ClassicError):
    """Settings contradict each other, or a value is invalid (kafka.common.InvalidConfigException)."""


class MessageSizeTooLarge(ClassicError):
    """A payload exceeds max.message.size and was not sent (kafka.common.MessageSizeTooLargeException)."""


class NoBrokersForPartition(ClassicError):
    """No live broker has the topic (kafka.common.NoBrokersForPartitionException)."""


class QueueFull(ClassicError):
    """The send queue has no room; the event was dropped (kafka.producer.async.QueueFullException)."""


class QueueClosed(ClassicError):
    """An event was sent after the producer was closed (kafka.producer.async.QueueClosedException)."""


class ConsumerTimeout(ClassicError):
    """No message came within consumer.timeout.ms. The program may iterate again
    (kafka.consumer.ConsumerTimeoutException)."""


class RebalanceFailed(ClassicError):
    """The group did not settle in rebalance.retries.max attempts (ConsumerRebalanceFailedException)."""


class ConnectionFailed(ClassicError):
    """The broker could not be reached, or closed the connection during a request."""


class Unreachable(ConnectionFailed):
    """No connection to the broker could be made, so nothing was sent to it."""


_BY_CODE: Final[dict[int, type[ClassicError]]] = {
    kind.code: kind for kind in (UnknownError, OffsetOutOfRange, InvalidMessage, InvalidPartition, InvalidMessageSize)
}


def error_of(code: int, what: str) -> ClassicError:
    """Return the error for a response's error code."""
    return _BY_CODE.get(code, UnknownError)(f"{what}: error {code}")
