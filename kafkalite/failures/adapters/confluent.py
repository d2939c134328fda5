"""confluent-kafka for the runner.

librdkafka's position stands behind the last record that was handed out, not behind markers of transactions; where a
partition ends it says by its end-of-partition event, so that is switched on.

Thread rule: one thread at a time, that of the runner.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as TheirPartition

from kafkalite.failures.adapters.listening import Listening
from kafkalite.failures.events import Message
from kafkalite.failures.runner import CommitRefused, Fetch, TransactionFailed
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.failures.runner import Written

RECORDS_MAX: Final = 500
TIMEOUT_S: Final = 30.0
END_WAIT_S: Final = 120.0
NO_POSITION: Final = -1
TIMESTAMP_TYPES: Final = {2: 1}
"""librdkafka's number for the broker's time → Kafka's."""

logger = logging.getLogger(__name__)


class ConfluentPort(Listening):
    """See the module. `config` is librdkafka's, for consumer and producer alike."""

    by_partition = False

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        super().__init__()
        if config.get("enable.auto.commit"):
            raise ValueError("commits are the policy's: enable.auto.commit has to be false")
        self._config = dict(config)
        self._transactional_id = transactional_id
        self._consumer: Any = None
        self._transactional: Any = None
        self._plain: Any = None
        self._positions: dict[TopicPartition, int] = {}

    def claim(self) -> None:
        self._transactional = self._producer({"transactional.id": self._transactional_id})
        self._transactional.init_transactions(TIMEOUT_S)

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self.listen(on_assigned, on_revoked, on_lost)
        self._consumer = Consumer(
            {
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                **self._config,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self.assigned(partitions),
            on_revoke=lambda _, partitions: self.revoked(partitions),
            on_lost=lambda _, partitions: self.lost(partitions),
        )

    def poll(self, timeout_s: float) -> list[Fetch]:
        found: dict[TopicPartition, list[Message]] = defaultdict(list)
        for one in self._consumer.consume(RECORDS_MAX, timeout_s):
            error = one.error()
            if error is None:
                place = TopicPartition(one.topic(), one.partition())
                found[place].append(message_of(one))
                self._positions[place] = one.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # it has no other name
                self._positions[TopicPartition(one.topic(), one.partition())] = one.offset()
            elif error.fatal():
                raise KafkaException(error)
            else:
                logger.warning("reading: %s", error)
        return [
            Fetch(place, messages, messages[-1].offset + 1) for place, messages in found.items() if place in self.owned
        ]

    def position(self, partition: TopicPartition) -> int:
        return self._positions.get(partition, NO_POSITION)

    def revoked(self, partitions: Any) -> None:
        super().revoked(partitions)
        for one in partitions:
            self._positions.pop(TopicPartition(one.topic, one.partition), None)

    def pause(self, partition: TopicPartition) -> None:
        self._consumer.pause([TheirPartition(*partition)])

    def resume(self, partition: TopicPartition) -> None:
        self._consumer.resume([TheirPartition(*partition)])

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._consumer.commit(offsets=theirs(offsets), asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(str(error)) from error

    # --- writing ------------------------------------------------------------------------------------------------------

    def transact(
        self, records: Sequence[Written], offsets: Mapping[TopicPartition, int], scope: TopicPartition | None
    ) -> None:
        assert scope is None, "group metadata says who commits"
        try:
            if self._transactional is None:
                self.claim()
            self._transactional.begin_transaction()
            self._send(self._transactional, records)
            metadata = self._consumer.consumer_group_metadata()
            self._transactional.send_offsets_to_transaction(theirs(offsets), metadata, TIMEOUT_S)
        except KafkaException as error:
            self._give_up()
            raise TransactionFailed(str(error), too_large=is_too_large(error)) from error
        self._end()

    def _end(self) -> None:
        """Asks for the end until it is known."""
        deadline = time.monotonic() + END_WAIT_S
        while True:
            try:
                self._transactional.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].retriable() and time.monotonic() < deadline:
                    continue
                if not error.args[0].txn_requires_abort() and not error.args[0].fatal():
                    raise
                self._give_up()
                raise TransactionFailed(str(error), too_large=is_too_large(error)) from error
            else:
                return

    def _give_up(self) -> None:
        producer, self._transactional = self._transactional, None
        try:
            if producer is not None:
                producer.abort_transaction(TIMEOUT_S)
        except KafkaException as error:
            logger.info("the transaction of %s was not aborted: %s", self._transactional_id, error)

    def write(self, records: Sequence[Written]) -> None:
        if self._plain is None:
            self._plain = self._producer({"acks": "all", "enable.idempotence": True})
        self._send(self._plain, records)

    def _producer(self, more: Mapping[str, Any]) -> Any:
        return Producer({"linger.ms": 0, "message.max.bytes": 100_000_000, **self._config, **more})

    @staticmethod
    def _send(producer: Any, records: Sequence[Written]) -> None:
        """Waits until all are acknowledged; TransactionFailed."""
        failures: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        for topic, partition, message in records:
            producer.produce(
                topic,
                message.value,
                message.key,
                -1 if partition is None else partition,
                on_delivery=delivered,
                timestamp=max(message.timestamp, 0),
                headers=list(message.headers),
            )
        producer.flush()
        if failures:
            raise KafkaException(failures[0])

    def close(self) -> None:
        if self._consumer is not None:
            try:
                self.leave()
            finally:
                self._consumer.close()


def message_of(one: Any) -> Message:
    """Theirs as ours."""
    kind, timestamp = one.timestamp()
    return Message(
        one.topic(),
        one.partition(),
        one.offset(),
        timestamp,
        one.key(),
        one.value(),
        tuple(one.headers() or ()),
        TIMESTAMP_TYPES.get(kind, 0),
    )


def theirs(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    """Offsets as librdkafka wants them."""
    return [TheirPartition(*place, offset) for place, offset in offsets.items()]


def is_too_large(error: KafkaException) -> bool:
    """Whether a record did not fit."""
    return bool(error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE)
