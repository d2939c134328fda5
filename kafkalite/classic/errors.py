"""Errors of the 0.7 API: a class for each error code of its protocol, and for each exception of its clients.

The codes of 0.7's protocol are the first of today's table, some under another name.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kafkalite.errors import ErrorCode


class ClassicError(Exception):
    """Whatever the 0.7 API raises, apart from wrong arguments and operating system errors."""

    code: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR
    """The protocol's error code."""


class UnknownError(ClassicError):
    """The broker failed in a way that has no code of its own (kafka.common.UnknownException)."""


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
    """A message is larger than what was fetched, or its size is nonsense (kafka.common.InvalidMessageSizeException)."""

    code = ErrorCode.INVALID_FETCH_SIZE


class InvalidConfig(ClassicError):
    """Settings that do not fit together, or a value that cannot be (kafka.common.InvalidConfigException)."""


class MessageSizeTooLarge(ClassicError):
    """A payload beyond max.message.size, not sent (kafka.common.MessageSizeTooLargeException)."""


class NoBrokersForPartition(ClassicError):
    """No live broker has the topic (kafka.common.NoBrokersForPartitionException)."""


class QueueFull(ClassicError):
    """The send queue has no room; the event was dropped (kafka.producer.async.QueueFullException)."""


class QueueClosed(ClassicError):
    """The producer was closed (kafka.producer.async.QueueClosedException)."""


class ConsumerTimeout(ClassicError):
    """No message came within consumer.timeout.ms; read on at will (kafka.consumer.ConsumerTimeoutException)."""


class RebalanceFailed(ClassicError):
    """The group found no agreement in rebalance.retries.max attempts (ConsumerRebalanceFailedException)."""


class ConnectionFailed(ClassicError):
    """The broker could not be reached, or went away in the middle of a request."""


class Unreachable(ConnectionFailed):
    """The broker could not be reached, and has not been yet: nothing was sent to it."""


_BY_CODE: Final[dict[int, type[ClassicError]]] = {
    kind.code: kind for kind in (UnknownError, OffsetOutOfRange, InvalidMessage, InvalidPartition, InvalidMessageSize)
}


def error_of(code: int, what: str) -> ClassicError:
    """The error that a response's code stands for."""
    return _BY_CODE.get(code, UnknownError)(f"{what}: error {code}")
