"""Write dead letters for the records of a batch that could not be decoded, for example by the Avro decoder.

    decoded = decoder.decode(chunk.columns.values)          # mode "dlq"
    letters.send(producer, chunk.columns, decoded, chunk.partition)

The caller's producer sends the letters and their ledger rows, in its transaction if it has one. If a batch is read
again, its letters get the same ids, so that readers can drop duplicates.

Thread rule: one thread at a time, that of the Client and of the producer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.errors import StartupError
from kafkalite.failures.adapters.columnar import columns_of, message_of
from kafkalite.failures.events import Failure, FailureKind, Goal, Letter, Message, Put
from kafkalite.failures.headers import rendered
from kafkalite.failures.names import origin_text
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryHere
from kafkalite.failures.rows import Row, State, encode_row
from kafkalite.failures.topics import LEDGER_PARTITION, ensure, publish, size_max

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from kafkalite.client import Client, Producer
    from kafkalite.model import TopicPartition
    from kafkalite.wire.record.columns import RecordColumns

NOT_DECODED: Final = "kafkalite.avro.DecodeError"


class Undecoded(Protocol):
    """A decoder's failures: the indexes of the records in the batch, and a reason for each.

    `kafkalite.avro.Decoded` implements this interface.
    """

    @property
    def failed(self) -> NDArray[np.int64]: ...

    @property
    def reasons(self) -> Sequence[str]: ...


class Batch(NamedTuple):
    """The dead letters of one partition's batch, in order, and their ledger rows."""

    letters: RecordColumns
    rows: RecordColumns


class BatchLetters:
    """Writes a group's dead letters for records that could not be decoded; see the module.

    Creates the group's topics. Raises StartupError if a missing topic cannot be created.

    `group`, `topics`   the consumer group, and the topics that it reads
    `compat`, `scrub`   as in Policy
    `exception`         class name to write in the letters
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        *,
        compat: Sequence[str] = ("spring",),
        scrub: Callable[[str], str] | None = None,
        exception: str = NOT_DECODED,
    ) -> None:
        self.policy = Policy(group=group, topics=topics, strategy=RetryHere(1), compat=compat, scrub=scrub)
        missing = ensure(self.policy, client)
        if missing:
            raise StartupError("missing topics could not be created; create them with: " + "; ".join(missing))
        publish(self.policy, client)
        self._exception = exception
        self._sizes = {topic: size_max(client, self.policy.layout.dead(topic)) for topic in topics}

    def of(self, columns: RecordColumns, undecoded: Undecoded, source: TopicPartition) -> Batch:
        """Return letters and rows for the failed records of a batch.

        Raises KeyError for a topic that is not in `topics`.
        """
        size = self._sizes[source.topic]
        letters: list[Message] = []
        rows: list[Message] = []
        for place, reason in zip(undecoded.failed.tolist(), undecoded.reasons, strict=True):
            message = message_of(columns, source, place)
            origin, now_ms = origin_text(source, message.offset), time.time_ns() // 1_000_000
            letter = Letter(f"{origin}/0.1", self.policy.group, source, message.offset, 1, first=now_ms)
            failure = Failure(FailureKind.FATAL, self._exception, text=reason)
            topic = self.policy.layout.dead(source.topic)
            put = Put(Goal.DEAD, topic, source.partition, message, letter, failure, now_ms)
            letters.append(rendered(put, size, self.policy.compat, self.policy.scrub))
            row = Row(
                State.DEAD,
                letter.id,
                topic,
                source.partition,
                1,
                exception=self._exception,
                reason=self.policy.reason(reason),
                first=now_ms,
                last=now_ms,
            )
            rows.append(Message("", 0, -1, now_ms, origin.encode(), encode_row(row)))
        return Batch(columns_of(letters), columns_of(rows))

    def send(self, producer: Producer, columns: RecordColumns, undecoded: Undecoded, source: TopicPartition) -> int:
        """Send the letters and rows of a batch with the producer; return the number of letters."""
        batch = self.of(columns, undecoded, source)
        if len(batch.letters):
            producer.send(self.policy.layout.dead(source.topic), source.partition, batch.letters)
            producer.send(self.policy.layout.ledger, LEDGER_PARTITION, batch.rows)
        return len(batch.letters)
