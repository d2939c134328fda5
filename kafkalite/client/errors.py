"""Define the client's exceptions for failures without an error code. Those with a code are in kafkalite.errors.

ClientError
    BrokerUnreachable       no connection to a broker could be set up
      BrokerGone            the same, for a broker that was reached before
    SignInRefused           client and broker could not authenticate each other
    ConnectionLost          the connection was lost; the request may or may not have been processed
    RequestTimeout          no response in time; the request may or may not have been processed
    UnsupportedApi          client and broker have no common version of a request
    UnsendableRequest       a value does not fit into the request
    ProtocolError           a response is invalid or incomplete
    DeliveryFailed          records were not acknowledged; the error has their number and the cause
    CommitFailed            offsets were not committed
    TransactionAborted      the transaction cannot be committed; abort and repeat it
    RangeUnavailable        a range cannot be read to its end
    NoOffset                a partition has no committed offset, and there is no reset policy
    LogTruncated            the log was truncated, restored or recreated below a position already read
    ReaderClosed            the reader was closed, possibly by another thread
    ForeignProcess          a forked child used a client of its parent
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition


class ClientError(Exception):
    """Base of the client's failures. The message is one sentence."""


class BrokerUnreachable(ClientError):
    """No connection to a broker could be set up: the connect, the TLS handshake or the first request failed."""

    timed_out = False
    """Whether a connection timed out, so that a busy broker may accept a later one."""


class BrokerGone(BrokerUnreachable):
    """A broker that was reached before cannot be reached."""


class SignInRefused(ClientError):
    """Client and broker could not authenticate each other. The client does not retry by itself."""


class ConnectionLost(ClientError):
    """The connection was lost. The broker may or may not have processed the pending requests."""


class RequestTimeout(ClientError):
    """The broker did not respond in time. It may or may not have processed the request."""


UNREACHED: Final = (ConnectionLost, RequestTimeout, BrokerUnreachable)
"""Connection failures after which a request may be retried."""


class UnsupportedApi(ClientError):
    """The broker supports no version of this request that the client supports."""


class UnsendableRequest(ClientError):
    """A value does not fit into its field, or this version of the request cannot carry it."""


class ProtocolError(ClientError):
    """A response cannot be decoded, or does not fit its request."""


class ForeignProcess(ClientError):
    """A forked child used its parent's client. Create one in the child."""


class DeliveryFailed(ClientError):
    """Some records were not written, or their state is unknown. `__cause__` is the reason.

    `unacknowledged` is the number of these records; `partition` is the partition of the first.
    """

    def __init__(self, message: str, unacknowledged: int, partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.unacknowledged = unacknowledged
        self.partition = partition


class LogTruncated(ClientError):
    """A log was restored, truncated or recreated below a position that was already read.

    A Reader sets `partition`, its position `offset`, and `at`: the offset where the two histories diverge (None:
    unknown). See org.apache.kafka.clients.consumer.LogTruncationException (KIP-320).
    """

    def __init__(
        self, message: str, partition: TopicPartition | None = None, offset: int = -1, at: int | None = None
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.at = at


class CommitFailed(ClientError):
    """Offsets were not committed. `__cause__` is the broker's error, if one was received.

    After ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID, other members own these partitions and read
    everything after the last commit again.
    """


class TransactionAborted(ClientError):
    """The transaction was aborted or must be aborted. No read_committed consumer sees its records.

    `__cause__` is the reason. Abort the transaction and repeat its work. A block `with producer.transaction()` has
    already aborted it.
    """


class RangeUnavailable(ClientError):
    """A range cannot be read to its end: the partition is shorter, or a transaction is open before the end."""


class NoOffset(ClientError):
    """A partition has no committed offset, and the reader has no reset policy."""


class ReaderClosed(ClientError):
    """The reader is closed."""
