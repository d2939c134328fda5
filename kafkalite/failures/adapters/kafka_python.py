"""Let a group member of `kafkalite.failures` read and write with kafka-python.

Thread rule: one thread at a time. Producers belong to the writing thread (kafkalite.failures.transaction_writer) during
a transaction, otherwise to the runner's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as TheirPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CorruptRecordError, KafkaError, MessageSizeTooLargeError
from kafka.serializer import Serializer
from kafka.structs import MemberState, OffsetAndMetadata

from kafkalite.failures.adapters.configuration import NEEDED, divided, require_group, require_no_topics
from kafkalite.failures.adapters.writing import Writing
from kafkalite.failures.runner import CommitRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures.runner import Fetch
    from kafkalite.failures.transaction_writer import Written
    from kafkalite.model import TopicPartition

RECORDS_MAX: Final = 500
TIMEOUT_S: Final = 30.0
REQUEST_SIZE_MAX: Final = 100_000_000
NO_KEY: Final = object()
JOIN_S: Final = 1.0
"""Minimum time of a poll while the member has not joined its group."""

logger = logging.getLogger(__name__)


class KafkaPythonPort(Writing):
    """Reads and writes with kafka-python; see the module.

    `config` is the configuration of a KafkaConsumer, and may include settings of a KafkaProducer.

    `config` can also be a KafkaConsumer without a subscription. It needs the policy's group, enable_auto_commit=False,
    isolation_level="read_committed" and auto_offset_reset="earliest". The member closes it.

    Raises ValueError for unsuitable settings, TypeError for an unknown setting or another object.
    """

    _failures = (KafkaError,)

    def __init__(self, config: Mapping[str, Any] | KafkaConsumer, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self._consumer: Any = None
        if isinstance(config, KafkaConsumer):
            require_no_topics(config)
            self._consumer = config
        given = divided(settings_of(config), KafkaConsumer.DEFAULT_CONFIG, KafkaProducer.DEFAULT_CONFIG)
        if self._consumer is not None and given.group is None:
            raise ValueError("the consumer has no group_id: make it with the policy's group")
        self._consumer_config, self._config, self._named_group = given

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
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                **{"partition_assignment_strategy": [RangePartitionAssignor], **self._consumer_config},
            )
        self._consumer.subscribe(list(topics), listener=Listener(self))

    def _read(self, timeout_s: float) -> list[Fetch]:
        """Poll the consumer. Until it has joined, the poll's timeout is at least JOIN_S.

        During a rebalance, each poll first requests the join again. Otherwise kafka-python 3.0.12 may forget the join
        when a poll ends. Then it sends neither heartbeats nor fetches until the session times out.
        """
        state = self._consumer.group_metadata().state
        if state == MemberState.REBALANCING:
            self._consumer._coordinator.request_rejoin()  # noqa: SLF001  # it has no public name
        if state != MemberState.STABLE:
            timeout_s = max(timeout_s, JOIN_S)
        self._let_parked_back()
        try:
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=RECORDS_MAX)
        except CorruptRecordError as error:  # it does not name the batch; the runner finds it
            logger.info("reading: %s", error)
            return []
        return self.fetches(found)

    def _let_parked_back(self) -> None:
        """Drop an empty response that would hide the records of a resumed partition.

        kafka-python keeps the fetched records of a paused partition. After the resume, it returns them only if no other
        response is queued. An empty response stays in the queue, so the partition would never be read again.
        """
        fetcher = self._consumer._fetcher  # noqa: SLF001  # it has no public name
        if fetcher._next_partition_records is not None and not fetcher._next_partition_records:  # noqa: SLF001
            fetcher._next_partition_records = None  # noqa: SLF001

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(TheirPartition(*partition), offset)

    def _position(self, partition: TopicPartition) -> int:
        if partition not in self.owned:
            return -1
        found = self._consumer.position(TheirPartition(*partition), timeout_ms=1000)
        return -1 if found is None else int(found)

    def _halt(self, partition: TopicPartition) -> None:
        self._consumer.pause(TheirPartition(*partition))

    def _unhalt(self, partition: TopicPartition) -> None:
        self._consumer.resume(TheirPartition(*partition))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._consumer.commit(self._theirs(offsets))
        except KafkaError as error:
            raise CommitRefused(str(error)) from error

    def _theirs(self, offsets: Mapping[TopicPartition, int]) -> dict[Any, Any]:
        """Convert offsets to kafka-python's class."""
        return {
            TheirPartition(*place): OffsetAndMetadata(offset, "", self.epoch_before(place, offset))
            for place, offset in offsets.items()
        }

    def member(self) -> Any:
        return self._consumer.group_metadata()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _new_producer(self, *, transactional: bool) -> Any:
        more = {"transactional_id": self._transactional_id} if transactional else {}
        given = {"max_request_size": REQUEST_SIZE_MAX, **self._config, "acks": "all", "key_serializer": Keys(), **more}
        producer = KafkaProducer(**given)
        if transactional:
            producer.init_transactions()
        return producer

    def _add_offsets(self, producer: Any, offsets: Mapping[TopicPartition, int], member: Any) -> None:
        producer.send_offsets_to_transaction(self._theirs(offsets), member)

    def _commit(self, producer: Any) -> None:
        producer.commit_transaction()  # retries until the outcome is known

    def _abort(self, producer: Any) -> None:
        try:
            producer.abort_transaction()
        finally:
            producer.close(timeout=TIMEOUT_S)

    def _discard(self, producer: Any) -> None:
        producer.close(timeout=TIMEOUT_S)

    def _is_too_large(self, error: Exception) -> bool:
        return isinstance(error, MessageSizeTooLargeError)

    def _send(self, producer: Any, records: Sequence[Written]) -> None:
        futures = [
            producer.send(
                topic,
                value=message.value,
                key=NO_KEY if message.key is None else message.key,
                headers=list(message.headers),
                partition=partition,
                timestamp_ms=message.timestamp if message.timestamp >= 0 else None,
            )
            for topic, partition, message in records
        ]
        producer.flush()
        for future in futures:
            future.get(timeout=TIMEOUT_S)

    def close(self) -> None:
        try:
            if self._consumer is not None:
                self.leave()
                self._consumer.close(autocommit=False)
        finally:
            for producer in (self._transactional, self._plain):
                if producer is not None:
                    producer.close(timeout=TIMEOUT_S)


class Keys(Serializer):  # type: ignore[misc]  # untyped
    """A serializer that returns keys unchanged.

    If a serializer is set, kafka-python accepts a record whose key and value are both None.
    """

    def serialize(self, _topic: str, _headers: object, data: object) -> Any:
        return None if data is NO_KEY else data


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """Passes the consumer's rebalance callbacks to the KafkaPythonPort."""

    def __init__(self, port: KafkaPythonPort) -> None:
        self._port = port

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._port.revoked(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._port.assigned(assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self._port.lost(lost)


def settings_of(consumer: object) -> Mapping[str, Any]:
    """Return a configuration unchanged, or the settings of a KafkaConsumer. Raises TypeError."""
    if isinstance(consumer, Mapping):
        return consumer
    if not isinstance(consumer, KafkaConsumer):
        raise TypeError(
            f"consumer must be a KafkaConsumer or a dict with its configuration, not a {type(consumer).__name__}"
        )
    return own_settings(consumer)


def own_settings(consumer: KafkaConsumer) -> dict[str, Any]:
    """Return a consumer's settings that differ from the defaults, and always the settings on which a member depends."""
    defaults = KafkaConsumer.DEFAULT_CONFIG
    found = {name: value for name, value in consumer.config.items() if value != defaults.get(name)}
    return {**found, **{name: consumer.config[name] for name in NEEDED}}
