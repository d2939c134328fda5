"""Wrap consumers of confluent-kafka, kafka-python and aiokafka so that they report processed records to the audit.

    consumer = AuditedConfluentConsumer({"bootstrap.servers": …, "group.id": "billing", "enable.auto.commit": False})
    consumer = AuditedKafkaPythonConsumer(KafkaConsumer(…, group_id="billing", enable_auto_commit=False), "billing")
    consumer = AuditedAioKafkaConsumer(AIOKafkaConsumer(…, enable_auto_commit=False), producer, "billing")

The program must commit explicitly, because each report follows a commit. A commit's metadata contains the ranges to
report, except with aiokafka. If a consumer dies before its report, the partition's next consumer sends it from there.

Thread rule: as the consumers, one thread or task at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.audit.events import AUDIT_TOPIC
from kafkalite.audit.taken import TakenTally
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from kafkalite.wire.record.columns import Record

logger = logging.getLogger(__name__)

CONNECTING: Final = ("bootstrap.servers", "client.id", "security.", "ssl.", "sasl.", "broker.", "socket.")
"""Settings of a confluent-kafka consumer that a producer on the same cluster needs."""
PYTHON_CONNECTING: Final = ("bootstrap_servers", "client_id", "security_protocol", "ssl_", "sasl_", "api_version")
SEND_TIMEOUT_S: Final = 30.0


class AuditedConfluentConsumer:
    """A confluent_kafka.Consumer that reports to the audit. `poll`, `commit` and others are as in that class.

    `config`       of that consumer; enable.auto.commit must be False
    `stage`        the name of the stage (default: the group's)
    `audit_topic`  the topic for reports; it must exist, or the broker must create topics automatically
    """

    def __init__(self, config: Mapping[str, Any], *, stage: str | None = None, audit_topic: str = AUDIT_TOPIC) -> None:
        if str(config.get("enable.auto.commit", True)).lower() != "false":
            raise ValueError(
                "an audited consumer requires enable.auto.commit=False; call commit() in the program instead"
            )
        from confluent_kafka import Consumer, Producer

        self.tally = TakenTally(stage or str(config["group.id"]))
        self._told = config.get("on_commit")
        self._consumer = Consumer({**config, "on_commit": self._on_commit})
        self._producer = Producer({key: value for key, value in config.items() if key.startswith(CONNECTING)})
        self._audit_topic = audit_topic
        self._fresh: set[TopicPartition] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def subscribe(self, topics: list[str], on_assign: Any = None, **callbacks: Any) -> None:
        """Subscribe as confluent_kafka.Consumer.subscribe does."""

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            self._fresh |= {TopicPartition(row.topic, row.partition) for row in partitions}
            if on_assign is not None:
                on_assign(consumer, partitions)

        self._consumer.subscribe(topics, on_assign=assigned, **callbacks)

    def assign(self, partitions: list[Any]) -> None:
        """Assign as confluent_kafka.Consumer.assign does."""
        self._fresh |= {TopicPartition(row.topic, row.partition) for row in partitions}
        self._consumer.assign(partitions)

    def poll(self, timeout: float = -1) -> Any:
        """Poll as confluent_kafka.Consumer.poll does."""
        message = self._consumer.poll(timeout)
        self._take([] if message is None else [message])
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Consume as confluent_kafka.Consumer.consume does."""
        messages: list[Any] = self._consumer.consume(num_messages, timeout)
        self._take(messages)
        return messages

    def commit(self, message: Any = None, offsets: list[Any] | None = None, asynchronous: bool = True) -> Any:
        """Commit as confluent_kafka.Consumer.commit does, then report the records. An asynchronous commit is reported
        after its response.
        """
        from confluent_kafka import TopicPartition as Theirs

        if message is not None:
            offsets = [Theirs(message.topic(), message.partition(), message.offset() + 1)]
        elif offsets is None:
            offsets = [row for row in self._consumer.position(self._consumer.assignment()) if row.offset >= 0]
        if not offsets:
            return None
        carrying = [
            Theirs(row.topic, row.partition, row.offset, row.metadata or self._metadata(row)) for row in offsets
        ]
        if asynchronous:
            return self._consumer.commit(offsets=carrying, asynchronous=True)
        done = self._consumer.commit(offsets=carrying, asynchronous=False)
        self._note(done)
        self._report(wait=True)
        return done

    def close(self) -> None:
        """Close as confluent_kafka.Consumer.close does; report the records of its last commits."""
        self._consumer.close()
        self._report(wait=True)

    def _metadata(self, row: Any) -> str:
        return self.tally.metadata(TopicPartition(row.topic, row.partition), row.offset)

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            if message.error() is None:
                key = TopicPartition(message.topic(), message.partition())
                if key in self._fresh:
                    self._fresh.discard(key)
                    self.tally.begin(key, self._left_behind(key))
                self.tally.took_one(key, message.offset())
        self._report(wait=False)

    def _left_behind(self, key: TopicPartition) -> str | None:
        """Return the metadata of the group's last commit, or None."""
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Theirs

        try:
            (row,) = self._consumer.committed([Theirs(*key)], SEND_TIMEOUT_S)
        except KafkaException as error:
            logger.warning("cannot read the offsets committed for %s before: %s", key, error)
            return None
        return None if row.error is not None else row.metadata

    def _on_commit(self, error: Any, rows: list[Any]) -> None:
        if error is None:
            self._note(rows)
        if self._told is not None:
            self._told(error, rows)

    def _note(self, rows: list[Any]) -> None:
        for row in rows:
            if row.error is None and row.offset >= 0:
                self.tally.committed(TopicPartition(row.topic, row.partition), row.offset)

    def _report(self, *, wait: bool) -> None:
        records = self.tally.reports()
        for at, record in enumerate(records):
            try:
                self._producer.produce(self._audit_topic, record.value, record.key, partition=0)
            except BufferError:
                self.tally.put_back(records[at:])
                break
        self._producer.poll(0)
        if wait and len(self._producer):
            self._producer.flush(SEND_TIMEOUT_S)


class AuditedKafkaPythonConsumer:
    """A kafka.KafkaConsumer that reports to the audit. `poll`, `commit` and others are as in that class.

    `consumer`     a KafkaConsumer with enable_auto_commit=False
    `stage`        the name of the stage (default: the group's)
    `audit_topic`  the topic for reports; it must exist, or the broker must create topics automatically
    """

    def __init__(self, consumer: Any, stage: str | None = None, *, audit_topic: str = AUDIT_TOPIC) -> None:
        if consumer.config["enable_auto_commit"]:
            raise ValueError("an audited consumer requires enable_auto_commit=False; the program commits")
        from kafka import KafkaProducer

        self.tally = TakenTally(stage or consumer.config["group_id"])
        self._consumer = consumer
        settings = {key: value for key, value in consumer.config.items() if key.startswith(PYTHON_CONNECTING)}
        self._producer = KafkaProducer(**settings)
        self._audit_topic = audit_topic
        self._assigned: set[Any] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def __iter__(self) -> Iterator[Any]:
        for row in self._consumer:
            self._look_at_assignment()
            self.tally.took_one(TopicPartition(row.topic, row.partition), row.offset)
            yield row

    def poll(self, **options: Any) -> dict[Any, list[Any]]:
        """Poll as kafka.KafkaConsumer.poll does."""
        found: dict[Any, list[Any]] = self._consumer.poll(**options)
        self._look_at_assignment()
        for key, rows in found.items():
            for row in rows:
                self.tally.took_one(TopicPartition(*key), row.offset)
        return found

    def commit(self, offsets: Mapping[Any, Any] | None = None, **options: Any) -> None:
        """Commit as kafka.KafkaConsumer.commit does; then report the committed records."""
        from kafka.structs import OffsetAndMetadata

        if offsets is None:
            positions = {key: self._consumer.position(key) for key in self._consumer.assignment()}
            offsets = {key: OffsetAndMetadata(at, "", -1) for key, at in positions.items() if at is not None}
        carrying = {
            key: row._replace(metadata=row.metadata or self.tally.metadata(TopicPartition(*key), row.offset))
            for key, row in offsets.items()
        }
        if carrying:
            self._consumer.commit(carrying, **options)
            for key, row in carrying.items():
                self.tally.committed(TopicPartition(*key), row.offset)
        self._report()

    def commit_async(self, *_arguments: object, **_options: object) -> None:
        """Raise ValueError: an asynchronous commit could not be reported."""
        raise ValueError("an audited consumer cannot commit asynchronously; use commit")

    def close(self, **options: Any) -> None:
        """Close as kafka.KafkaConsumer.close does, without a commit."""
        self._consumer.close(**options)
        self._producer.close(timeout=SEND_TIMEOUT_S)

    def _look_at_assignment(self) -> None:
        now = self._consumer.assignment()
        if now != self._assigned:
            for key in now - self._assigned:
                row = self._consumer.committed(key, metadata=True)
                self.tally.begin(TopicPartition(*key), None if row is None else row.metadata)
            self._assigned = set(now)
            self._report()

    def _report(self) -> None:
        records = self.tally.reports()
        sent = [self._producer.send(self._audit_topic, row.value, row.key, partition=0) for row in records]
        for future in sent:
            future.get(SEND_TIMEOUT_S)


class AuditedAioKafkaConsumer:
    """An AIOKafkaConsumer that reports to the audit. Reading, `commit` and `stop` are as in that class.

    aiokafka cannot read the metadata of a commit. So if the consumer dies before a report, the records of its last
    commit are missing in the stage.

    `consumer`     an AIOKafkaConsumer with enable_auto_commit=False
    `producer`     a started AIOKafkaProducer on the same cluster, which the caller stops
    `stage`        the name of the stage, such as the group's
    `audit_topic`  the topic for reports; it must exist, or the broker must create topics automatically
    """

    def __init__(self, consumer: Any, producer: Any, stage: str, *, audit_topic: str = AUDIT_TOPIC) -> None:
        if getattr(consumer, "_enable_auto_commit", False):
            raise ValueError("an audited consumer requires enable_auto_commit=False; the program commits")
        self.tally = TakenTally(stage)
        self._consumer = consumer
        self._producer = producer
        self._audit_topic = audit_topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for row in self._consumer:
            self.tally.took_one(TopicPartition(row.topic, row.partition), row.offset)
            yield row

    async def getone(self, *partitions: Any) -> Any:
        """Get one record as aiokafka.AIOKafkaConsumer.getone does."""
        row = await self._consumer.getone(*partitions)
        self.tally.took_one(TopicPartition(row.topic, row.partition), row.offset)
        return row

    async def getmany(self, *partitions: Any, **options: Any) -> dict[Any, list[Any]]:
        """Get records as aiokafka.AIOKafkaConsumer.getmany does."""
        found: dict[Any, list[Any]] = await self._consumer.getmany(*partitions, **options)
        for key, rows in found.items():
            for row in rows:
                self.tally.took_one(TopicPartition(*key), row.offset)
        return found

    async def commit(self, offsets: Mapping[Any, Any] | None = None) -> None:
        """Commit as aiokafka.AIOKafkaConsumer.commit does; then report the committed records."""
        if offsets is None:
            offsets = {key: await self._consumer.position(key) for key in self._consumer.assignment()}
        if offsets:
            await self._consumer.commit(offsets)
        for key, row in offsets.items():
            offset = row if isinstance(row, int) else row[0]
            self.tally.committed(TopicPartition(*key), offset)
        records: Sequence[Record] = self.tally.reports()
        for record in records:
            await self._producer.send_and_wait(self._audit_topic, record.value, record.key, partition=0)
