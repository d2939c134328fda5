"""What goes wrong between client and broker without an error code: those are kafkalite.errors.

ClientError
    BrokerUnreachable       no broker of the list could be connected to
      BrokerGone            one could not be again
    SignInRefused           a broker refused the client's credentials, or could not show that it knows them
    ConnectionLost          a connection broke, or the peer closed it; the request may or may not have been served
    RequestTimeout          no answer in time; the same doubt
    UnsupportedApi          client and broker have no version of a request in common
    UnsendableRequest       a value that the protocol has no room for
    ProtocolError           the peer sent what is not an answer
    DeliveryFailed          records were not acknowledged; says how many and why
    CommitFailed            offsets were not committed: the group gave the partitions to others, or said why not
    TransactionAborted      a transaction cannot be committed; abort it and do it again
    RangeUnavailable        a partition does not reach the end of the range that was asked for
    NoOffset                a partition has no committed offset, and nobody said where to begin then
    LogTruncated            a log has not the history any more that a position is of
    ReaderClosed            the reader was closed, by another thread maybe
    ForeignProcess          a forked child used what its parent made
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition


class ClientError(Exception):
    """Base of the client's own failures; the message is one sentence."""


class BrokerUnreachable(ClientError):
    """Nobody listens, or nobody that speaks Kafka."""


class BrokerGone(BrokerUnreachable):
    """It was there before."""


class SignInRefused(ClientError):
    """Broker and client do not believe each other. Asking again would be refused again."""


class ConnectionLost(ClientError):
    """The connection is gone; whether the broker still served what was under way is not known."""


class RequestTimeout(ClientError):
    """The broker did not answer in time; whether it served the request is not known."""


UNREACHED: Final = (ConnectionLost, RequestTimeout, BrokerUnreachable)
"""Failures on the way to a broker and back, after which it may be asked again."""


class UnsupportedApi(ClientError):
    """The broker is too old or too new, or does not serve this request at all."""


class UnsendableRequest(ClientError):
    """The request holds a value that does not fit in its field, or that this version of it cannot carry."""


class ProtocolError(ClientError):
    """An answer that cannot be read; the connection is closed."""


class ForeignProcess(ClientError):
    """A client belongs to the process that made it; a forked child makes its own."""


class DeliveryFailed(ClientError):
    """Some records were not written, or nobody can tell. `unacknowledged` counts them, `partition` is that of the first
    of them; `__cause__` says why."""

    def __init__(self, message: str, unacknowledged: int, partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.unacknowledged = unacknowledged
        self.partition = partition


class LogTruncated(ClientError):
    """A log was restored, truncated or recreated below a position that was read before.

    From the reader of one partition: `partition`, the position `offset`, and `at`, from where on its history is another
    one, None where that is not known (org.apache.kafka.clients.consumer.LogTruncationException, KIP-320).
    """

    def __init__(
        self, message: str, partition: TopicPartition | None = None, offset: int = -1, at: int | None = None
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.at = at


class CommitFailed(ClientError):
    """Offsets were not committed. `__cause__` is the broker's error; without one the reader itself knew better.

    After ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID others read these partitions already: what was
    done since the last commit will be done again by them.
    """


class TransactionAborted(ClientError):
    """Nothing of this transaction will be seen by those who read committed data. `__cause__` says why.

    Abort it (a `with producer.transaction()` block has done so already) and do its work again.
    """


class RangeUnavailable(ClientError):
    """A range of offsets was not read to its end: the partition is shorter, or a transaction is open before that."""


class NoOffset(ClientError):
    """A partition has no committed offset, and the reader was told to take none in its place."""


class ReaderClosed(ClientError):
    """The reader is closed."""
