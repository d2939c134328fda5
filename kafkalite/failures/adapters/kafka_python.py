"""kafka-python for the runner.

A poll of kafka-python that ends while it joins may forget that it does (3.0.12: a member that leads its group takes the
new metadata as seen when it assigns, before the assignment is back): its heart has stopped, it asks for nothing, and
after its session the group goes on without it. So the rejoin is asked for again until it is through, and such a poll
lasts long enough to end it.

Thread rule: as kafkalite.failures.adapters.writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as TheirPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, MessageSizeTooLargeError
from kafka.structs import MemberState, OffsetAndMetadata

from kafkalite.failures.adapters.writing import Writing
from kafkalite.failures.runner import CommitRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.failures.mover import Written
    from kafkalite.failures.runner import Fetch
    from kafkalite.model import TopicPartition

RECORDS_MAX: Final = 500
TIMEOUT_S: Final = 30.0
REQUEST_SIZE_MAX: Final = 100_000_000
JOIN_S: Final = 1.0
"""How long a poll lasts at least while the member is not in its group."""


class KafkaPythonPort(Writing):
    """See the module. `config` is for consumer and producer alike: bootstrap_servers, security_protocol …"""

    _failures = (KafkaError,)

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        super().__init__(transactional_id)
        if config.get("enable_auto_commit"):
            raise ValueError("commits are the policy's: enable_auto_commit has to be False")
        self._config = {name: value for name, value in config.items() if name != "enable_auto_commit"}
        self._consumer: Any = None

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self.listen(on_assigned, on_revoked, on_lost)
        self._consumer = KafkaConsumer(
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=[RangePartitionAssignor],
            **self._config,
        )
        self._consumer.subscribe(list(topics), listener=Listener(self))

    def poll(self, timeout_s: float) -> list[Fetch]:
        state = self._consumer.group_metadata().state
        if state == MemberState.REBALANCING:
            self._consumer._coordinator.request_rejoin()  # noqa: SLF001  # it has no other name
        if state != MemberState.STABLE:
            timeout_s = max(timeout_s, JOIN_S)
        found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=RECORDS_MAX)
        return self.fetches(found)

    def position(self, partition: TopicPartition) -> int:
        if partition not in self.owned:
            return -1
        found = self._consumer.position(TheirPartition(*partition), timeout_ms=1000)
        return -1 if found is None else int(found)

    def pause(self, partition: TopicPartition) -> None:
        self._consumer.pause(TheirPartition(*partition))

    def resume(self, partition: TopicPartition) -> None:
        self._consumer.resume(TheirPartition(*partition))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._consumer.commit(theirs(offsets))
        except KafkaError as error:
            raise CommitRefused(str(error)) from error

    def member(self) -> Any:
        return self._consumer.group_metadata()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _new_producer(self, *, transactional: bool) -> Any:
        more = {"transactional_id": self._transactional_id} if transactional else {}
        producer = KafkaProducer(**{"max_request_size": REQUEST_SIZE_MAX, **self._config, "acks": "all", **more})
        if transactional:
            producer.init_transactions()
        return producer

    def _add_offsets(self, producer: Any, offsets: Mapping[TopicPartition, int], member: Any) -> None:
        producer.send_offsets_to_transaction(theirs(offsets), member)

    def _commit(self, producer: Any) -> None:
        producer.commit_transaction()  # asks by itself until it is known

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
                key=message.key,
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


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """Hands on what the consumer says of its partitions."""

    def __init__(self, port: KafkaPythonPort) -> None:
        self._port = port

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._port.revoked(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._port.assigned(assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self._port.lost(lost)


def theirs(offsets: Mapping[TopicPartition, int]) -> dict[Any, Any]:
    """Offsets as kafka-python wants them."""
    return {TheirPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
