"""Wrap confluent-kafka's Producer so that its messages are audited: each message gets a mark in a header, and is
counted.

    producer = AuditedConfluentProducer({"bootstrap.servers": "live:9092"}, server="web1")
    producer.produce("logs", value=b"GET /")
    producer.flush()

Transactions are not supported, because the audit would report aborted messages as missing.

Thread rule: any thread, as with confluent-kafka's Producer.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.audit.events import AUDIT_TOPIC
from kafkalite.audit.marks import HEADER
from kafkalite.audit.tally import REPORT_INTERVAL_S, WINDOW_S, SentTally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.audit.events import Increment

QUEUE_PAUSE_S: Final = 0.1


class AuditedConfluentProducer:
    """A confluent_kafka.Producer whose messages are audited; see the module. Other attributes are those of that class.

    `producer`           a confluent_kafka.Producer, or the configuration for one
    `server`             the origin of the messages (default: this host's name)
    `audit_topic`        the topic for counts; it must exist, or the broker must create topics automatically
    `window_s`           length of a window
    `report_interval_s`  the longest time that counts wait while the producer is used
    """

    def __init__(
        self,
        producer: Any,
        *,
        server: str | None = None,
        audit_topic: str = AUDIT_TOPIC,
        window_s: float = WINDOW_S,
        report_interval_s: float = REPORT_INTERVAL_S,
    ) -> None:
        if isinstance(producer, dict):
            if "transactional.id" in producer:
                raise ValueError("a transactional producer of confluent-kafka cannot be audited")
            from confluent_kafka import Producer

            producer = Producer(producer)
        self._producer = producer
        self._audit_topic = audit_topic
        self._report_interval_s = report_interval_s
        self.tally = SentTally(server or socket.gethostname(), window_s=window_s)
        self._lock = threading.Lock()
        """Held so that a refused message frees its sequence before another message gets one, and counts are sent in
        order.
        """
        self._unsent: deque[Increment] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.flush()

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_transaction", "_transactions")):
            raise AttributeError("an audited producer of confluent-kafka has no transactions")
        return getattr(self._producer, name)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        *arguments: Any,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Produce as confluent_kafka.Producer.produce does, including key, partition, callbacks and BufferError.

        A message is counted when librdkafka accepts it. If its delivery fails, the audit reports it as missing.
        """
        stamp = timestamp or int(time.time() * 1000)
        own = list(headers.items()) if isinstance(headers, dict) else list(headers or ())
        with self._lock:
            made = self.tally.mark_one(topic, stamp)
            try:
                self._producer.produce(
                    topic, value, *arguments, timestamp=stamp, headers=[*own, (HEADER, made)], **options
                )
            except BaseException:
                self.tally.take_back(topic, stamp)
                raise
        self._report_if_due()

    def poll(self, timeout: float = -1) -> int:
        """Poll as confluent_kafka.Producer.poll does."""
        self._report_if_due()
        return int(self._producer.poll(timeout))

    def flush(self, timeout: float = -1) -> int:
        """Flush as confluent_kafka.Producer.flush does, including counts. Return the number of messages that still
        wait.
        """
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._lock:
            self._unsent += self.tally.take()
        while not self._send_counts():
            pause = QUEUE_PAUSE_S if deadline is None else min(QUEUE_PAUSE_S, deadline - time.monotonic())
            if pause <= 0:
                return len(self._producer) + len(self._unsent)
            self._producer.flush(pause)  # poll would let messages linger
        left = timeout if deadline is None else max(deadline - time.monotonic(), 0.0)
        return int(self._producer.flush(left))

    def _report_if_due(self) -> None:
        if self.tally.due(self._report_interval_s):
            with self._lock:
                self._unsent += self.tally.take()
        if self._unsent:
            self._send_counts()

    def _send_counts(self) -> bool:
        """Send the counts; return False if librdkafka's queue is full."""
        with self._lock:
            while self._unsent:
                record = self._unsent[0].record()
                try:
                    self._producer.produce(self._audit_topic, record.value, record.key, partition=0)
                except BufferError:
                    return False
                self._unsent.popleft()
        return True
