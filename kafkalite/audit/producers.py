"""`kafkalite.client`'s producers, whose messages carry marks and are counted.

    with AuditedProducer(client, server="web1") as producer:
        producer.send("logs", 0, [b"GET /", b"GET /favicon.ico"])

Counts are sent by `send` when `report_interval_s` is over, and by `flush` and the end of the `with` block in any case.
In a transaction they are part of it, so that what is aborted is not counted.

Thread rule: as Producer.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from kafkalite.audit.events import AUDIT_TOPIC
from kafkalite.audit.tally import REPORT_INTERVAL_S, WINDOW_S, SentTally
from kafkalite.client import Admin, ColumnWriter, Producer
from kafkalite.client.write.producer import stamped
from kafkalite.client.write.transactions import TransactionState
from kafkalite.errors import TopicAlreadyExists, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from kafkalite.client import Client
    from kafkalite.client.write.producer import Sendable


class AuditedProducer(Producer):
    """A Producer whose messages are audited; see the module.

    `server`             who makes the messages (default: this host's name)
    `audit_topic`        where counts go; it is created with one partition when it is not there
    `window_s`           length of a window
    `report_interval_s`  how long counts wait, at most, while the producer is used
    `mark_field`         the mark is put into this field of values, which are JSON objects, and not into a header
    `options`            those of Producer
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
        """As Producer.send. Records are counted when they are handed over: what is then not delivered is missing.

        ValueError with `mark_field`, and nothing is sent, for a value that is no JSON object.
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
        """A batch as it is cannot be given marks: ValueError."""
        del topic, partition, batch
        raise ValueError("an audited producer cannot send a ready-made batch; send its records")

    def flush(self) -> None:
        """As Producer.flush, counts included."""
        if self._transactions is None or self._manager.state == TransactionState.OPEN:
            self._report()
        super().flush()

    def abort_transaction(self) -> None:
        """As Producer.abort_transaction; what is given up is not counted."""
        self.tally.forget()
        super().abort_transaction()

    def _report(self) -> None:
        increments = self.tally.take()
        if not increments:
            return
        if not self._audit_topic_known:
            self._make_audit_topic()
        records = [increment.record() for increment in increments]
        super().send(self._audit_topic, 0, records)

    def _make_audit_topic(self) -> None:
        try:
            self._client.topic(self._audit_topic)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):
                Admin(self._client).create_topic(self._audit_topic, 1)
        self._audit_topic_known = True


class AuditedWriter(ColumnWriter):
    """A ColumnWriter whose messages are audited: Arrow or NumPy columns in. Options are AuditedProducer's."""

    def __init__(self, client: Client | str | Iterable[str], topic: str | None = None, **options: Any) -> None:
        super().__init__(client, topic)
        self.producer: AuditedProducer = AuditedProducer(self.client, **options)
