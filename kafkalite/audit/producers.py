"""Wrap `kafkalite.client`'s producers so that their messages are audited: each message gets a mark, and is counted.

    with AuditedProducer(client, server="web1") as producer:
        producer.send("logs", 0, [b"GET /", b"GET /favicon.ico"])

The counts of a transaction's messages are sent in the same transaction, so aborted messages are not counted.

Thread rule: that of Producer.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from kafkalite.audit.events import AUDIT_TOPIC
from kafkalite.audit.tally import REPORT_INTERVAL_S, WINDOW_S, SentTally
from kafkalite.client import Admin, ColumnWriter, Producer
from kafkalite.client.write.producer import stamped
from kafkalite.client.write.transactions import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from kafkalite.client import Client
    from kafkalite.client.write.producer import Sendable


class AuditedProducer(Producer):
    """A Producer whose messages are audited; see the module.

    `server`             the origin of the messages (default: this host's name)
    `audit_topic`        the topic for counts; created with one partition if missing
    `window_s`           length of a window
    `report_interval_s`  the longest time that counts wait while the producer is used
    `mark_field`         put the mark into this field of the values, which are JSON objects, instead of a header
    `options`            those of Producer

    `flush` and the end of a `with` block send the counts at once, unless an exception ends the block.
    """

    def __init__(
        self,
        client: Client,
        *,
        server: str | None = None,
        audit_topic: str = AUDIT_TOPIC,
        window_s: float = WINDOW_S,
        report_interval_s: float = REPORT_INTERVAL_S,
        mark_field: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client, **options)
        self._mark_field = mark_field
        self.tally = SentTally(server or socket.gethostname(), window_s=window_s)
        self._audit_topic = audit_topic
        self._report_interval_s = report_interval_s
        self._audit_topic_known = False

    def send(
        self,
        topic: str,
        partition: int,
        records: Sendable,
        *,
        timestamp: int | None = None,
        codec: int | None = None,
    ) -> None:
        """Send records as Producer.send does. They are counted at once, so the audit reports an undelivered record as
        missing.

        With `mark_field`, a value that is not a JSON object raises ValueError, and nothing is sent.
        """
        self._prepare(topic, partition)
        columns, now = stamped(records, timestamp)
        if self._mark_field is None:
            marked = self.tally.mark_columns(topic, columns, now)
        else:
            marked = self.tally.mark_values(topic, columns, now, self._mark_field)
        super().send(topic, partition, marked, timestamp=now, codec=codec)
        if self.tally.due(self._report_interval_s):
            self._report()

    def send_batch(self, topic: str, partition: int, batch: Buffer) -> int:
        """Raise ValueError, because a ready-made batch cannot be marked."""
        del topic, partition, batch
        raise ValueError("an audited producer cannot send a ready-made batch; send its records")

    def flush(self) -> None:
        """Flush as Producer.flush does, including counts."""
        if self._transactions is None or self._manager.state == TransactionState.OPEN:
            self._report()
        super().flush()

    def abort_transaction(self) -> None:
        """Abort as Producer.abort_transaction does; the aborted messages are not counted."""
        self.tally.forget()
        super().abort_transaction()

    def _report(self) -> None:
        increments = self.tally.take()
        if not increments:
            return
        if not self._audit_topic_known:
            Admin(self._client).create_topic_if_missing(self._audit_topic, 1)
            self._audit_topic_known = True
        records = [increment.record() for increment in increments]
        super().send(self._audit_topic, 0, records)


class AuditedWriter(ColumnWriter):
    """A ColumnWriter whose messages are audited. It takes Arrow or NumPy columns, and has AuditedProducer's options."""

    def __init__(self, client: Client | str | Iterable[str], topic: str | None = None, **options: Any) -> None:
        super().__init__(client, topic)
        self.producer: AuditedProducer = AuditedProducer(self.client, **options)
