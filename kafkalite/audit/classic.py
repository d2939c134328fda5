"""Wrap Kafka 0.7's producer so that its messages are audited: each message gets a mark in its payload, and is counted.

    producer = AuditedClassicProducer({"broker.list": "0:live:9093"}, mark_field="audit", server="web1")
    producer.send(ProducerData("clicks", [b'{"page": "/"}']))

Messages of 0.7 have no headers, so the mark is in the payload. If the payload is a JSON object, the mark becomes the
field `mark_field`. For other formats, pass a function `put` that inserts the mark.

Thread rule: that of kafkalite.classic.Producer.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from kafkalite.audit.events import AUDIT_TOPIC, classic_topic
from kafkalite.audit.fields import with_field
from kafkalite.audit.tally import REPORT_INTERVAL_S, WINDOW_S, SentTally
from kafkalite.classic import Producer, ProducerData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.classic import ProducerConfig


class AuditedClassicProducer:
    """A producer for Kafka 0.7 whose messages are audited; see the module.

    `producer`           a kafkalite.classic.Producer with the default encoder, or the configuration for one
    `mark_field`         the field of JSON objects that gets the mark
    `put`                instead: a function that returns the bytes to send, such as an Avro record, for an event and a
                         mark (text)
    `server`             the origin of the messages (default: this host's name)
    `audit_topic`        the topic of counts of current producers; the name of 0.7's topic is derived from it
    `window_s`           length of a window
    `report_interval_s`  the longest time that counts wait while the producer is used
    """

    def __init__(
        self,
        producer: Producer | ProducerConfig | Mapping[str, str],
        *,
        mark_field: str | None = None,
        put: Callable[[Any, str], bytes] | None = None,
        server: str | None = None,
        audit_topic: str = AUDIT_TOPIC,
        window_s: float = WINDOW_S,
        report_interval_s: float = REPORT_INTERVAL_S,
    ) -> None:
        if (mark_field is None) == (put is None):
            raise ValueError("pass either mark_field or put; it stores the mark in the payload")
        if put is None:
            field = str(mark_field)

            def put(event: Any, mark: str) -> bytes:
                return with_field(event, field, mark)

        self._put = put
        self._producer = producer if isinstance(producer, Producer) else Producer(producer)
        self._audit_topic = classic_topic(audit_topic)
        self._report_interval_s = report_interval_s
        self.tally = SentTally(server or socket.gethostname(), window_s=window_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, *data: ProducerData) -> None:
        """Send as Producer.send does, with the current time.

        A message is counted at once, because 0.7 has no acknowledgements. `send` also sends the counts once
        `report_interval_s` has passed.

        If `put` refuses a message, raise ValueError and send nothing.
        """
        now = time.time_ns() // 1_000_000
        for item in data:
            for event in item.data:
                self._put(event, "")  # check all before counting one
        marked = []
        for item in data:
            texts = self.tally.mark_texts(item.topic, [now] * len(item.data))
            marked.append(replace(item, data=[self._put(*pair) for pair in zip(item.data, texts, strict=True)]))
        self._producer.send(*marked)
        if self.tally.due(self._report_interval_s):
            self.flush()

    def flush(self) -> None:
        """Send the counts."""
        values = [increment.record().value for increment in self.tally.take()]
        if values:
            self._producer.send(ProducerData(self._audit_topic, values))

    def close(self) -> None:
        """Send counts and queued messages, and close the producer."""
        self.flush()
        self._producer.close()
