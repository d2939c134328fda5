"""Let a group member of `kafkalite.failures` read and write with confluent-kafka.

Thread rule: one thread at a time. Producers belong to the writing thread (kafkalite.failures.transaction_writer) during
a transaction, otherwise to the runner's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as TheirPartition

from kafkalite.failures.adapters.configuration import divided, require_group
from kafkalite.failures.adapters.listening import FETCH_WAIT_MS, known
from kafkalite.failures.adapters.writing import OutcomeUnknown, Writing
from kafkalite.failures.events import Message
from kafkalite.failures.runner import CommitRefused, Fetch
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures.transaction_writer import Written

RECORDS_MAX: Final = 500
TIMEOUT_S: Final = 30.0
OFFSETS_TIMEOUT_S: Final = 10.0
OFFSETS_SLACK_S: Final = 2.0
"""How long after its timeout `send_offsets_to_transaction` is abandoned."""
END_WAIT_S: Final = 120.0
MESSAGE_SIZE_MAX: Final = 100_000_000
NO_POSITION: Final = -1
CONSUMER_ONLY: Final = (
    *("auto.commit.", "check.crcs", "enable.auto.", "enable.partition.", "fetch.", "group.", "heartbeat."),
    *("max.partition.", "max.poll.", "offset.store.", "partition.assignment.", "queued.", "session."),
)
"""Prefixes of settings for which a producer of librdkafka would warn."""
TIMESTAMP_TYPES: Final = {2: 1}
"""librdkafka's number for LogAppendTime → Kafka's."""

logger = logging.getLogger(__name__)


class ConfluentPort(Writing):
    """Reads and writes with confluent-kafka; see the module.

    `config` is a consumer configuration of librdkafka, and may include settings of a producer. A Consumer object is not
    accepted, because it does not expose its settings. Raises ValueError for unsuitable settings, TypeError for an
    object that is no mapping.
    """

    _failures = (KafkaException,)

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        super().__init__(transactional_id)
        config = settings_of(config)
        self._consumer_config, self._config, self._named_group = divided(config, None, None, CONSUMER_ONLY)
        self._consumer: Any = None
        self._positions: dict[TopicPartition, int] = {}
        """Next offsets. librdkafka's own position can be lower, because it leaves out the last transaction markers."""

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        require_group(self._named_group, group)
        self.listen(on_assigned, on_revoked, on_lost)
        self._consumer = Consumer(
            {
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "check.crcs": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                **self._consumer_config,
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

    def _read(self, timeout_s: float) -> list[Fetch]:
        found: dict[TopicPartition, list[Message]] = defaultdict(list)
        epochs: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        damaged: dict[TopicPartition, int] = {}
        for one in self._consumer.consume(RECORDS_MAX, timeout_s):
            error = one.error()
            if error is None:
                place = TopicPartition(one.topic(), one.partition())
                if place in damaged:
                    continue
                found[place].append(message_of(one))
                epochs[place].append((one.offset(), known(one.leader_epoch())))
                self._positions[place] = one.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # it has no public name
                self._positions[TopicPartition(one.topic(), one.partition())] = one.offset()
            elif error.code() == KafkaError._BAD_MSG:  # noqa: SLF001  # it would skip the batch
                damaged.setdefault(TopicPartition(one.topic(), one.partition()), one.offset())
            elif error.fatal():
                raise KafkaException(error)
            else:
                logger.warning("reading: %s", error)
        for place, pairs in epochs.items():
            self.note_epochs(place, pairs)
        for place, offset in damaged.items():
            self._seek(place, offset)
        return [
            Fetch(place, messages, messages[-1].offset + 1) for place, messages in found.items() if place in self.owned
        ]

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset
        self._consumer.seek(TheirPartition(*partition, offset))

    def _position(self, partition: TopicPartition) -> int:
        return self._positions.get(partition, NO_POSITION)

    def revoked(self, partitions: Any) -> None:
        super().revoked(partitions)
        for one in partitions:
            self._positions.pop(TopicPartition(one.topic, one.partition), None)

    def _halt(self, partition: TopicPartition) -> None:
        self._consumer.pause([TheirPartition(*partition)])

    def _unhalt(self, partition: TopicPartition) -> None:
        self._consumer.resume([TheirPartition(*partition)])

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._consumer.commit(offsets=self._theirs(offsets), asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(str(error)) from error

    def _theirs(self, offsets: Mapping[TopicPartition, int]) -> list[Any]:
        """Convert offsets to librdkafka's class."""
        found = []
        for place, offset in offsets.items():
            epoch = self.epoch_before(place, offset)
            known: dict[str, Any] = {} if epoch < 0 else {"leader_epoch": epoch}
            found.append(TheirPartition(*place, offset, **known))
        return found

    def member(self) -> Any:
        return self._consumer.consumer_group_metadata()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _new_producer(self, *, transactional: bool) -> Any:
        more = {"transactional.id": self._transactional_id} if transactional else {"enable.idempotence": True}
        given = {"linger.ms": 0, "message.max.bytes": MESSAGE_SIZE_MAX, **self._config, "acks": "all", **more}
        producer = Producer(given)
        if transactional:
            producer.init_transactions(TIMEOUT_S)
        return producer

    def _add_offsets(self, producer: Any, offsets: Mapping[TopicPartition, int], member: Any) -> None:
        """Add the group's offsets to the transaction in a separate thread, and wait for the thread with a timeout.

        librdkafka ignores its own timeout while it waits for the group coordinator, and may wait forever (2.16;
        librdkafka#5456). After the timeout, the thread may still use this producer. That is safe: the next producer has
        the same transactional id, so it fences the open transaction.
        """
        ended: list[BaseException | None] = []

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(self._theirs(offsets), member, OFFSETS_TIMEOUT_S)
            except BaseException as error:  # noqa: BLE001  # raised in the mover's thread
                ended.append(error)
            else:
                ended.append(None)

        thread = threading.Thread(target=send, name="failures-offsets", daemon=True)
        thread.start()
        thread.join(OFFSETS_TIMEOUT_S + OFFSETS_SLACK_S)
        error = ended[0] if ended else KafkaException(KafkaError(KafkaError._TIMED_OUT, "offsets were not added"))  # noqa: SLF001  # it has no public name
        if error is not None:
            raise error

    def _commit(self, producer: Any) -> None:
        deadline = time.monotonic() + END_WAIT_S
        while True:
            try:
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                why = error.args[0]
                if why.retriable() and time.monotonic() < deadline:
                    continue
                if not why.txn_requires_abort() and not why.fatal():
                    raise OutcomeUnknown(str(error)) from error
                raise
            else:
                return

    def _abort(self, producer: Any) -> None:
        producer.abort_transaction(TIMEOUT_S)

    def _discard(self, producer: Any) -> None:
        producer.purge()

    def _is_too_large(self, error: Exception) -> bool:
        return bool(error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE)

    def _send(self, producer: Any, records: Sequence[Written]) -> None:
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


def settings_of(consumer: object) -> Mapping[str, Any]:
    """Return the configuration unchanged. Raises TypeError if it is no mapping."""
    if isinstance(consumer, Mapping):
        return consumer
    raise TypeError(
        "a confluent_kafka.Consumer does not show its settings: pass its configuration instead, the dict that you give "
        f"to Consumer(…), not {type(consumer).__name__}"
    )


def message_of(one: Any) -> Message:
    """Convert a record of librdkafka to a Message."""
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
