"""Reassign partitions (KIP-455), elect preferred leaders (KIP-460) and unregister brokers.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.cluster import by_topic, raise_for
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite.wire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client.cluster import Cluster

PREFERRED: Final = 0
_MAY_BE_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT})
_NOTHING_TO_DO: Final = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


class Reassignment(NamedTuple):
    """An ongoing reassignment of one partition."""

    replicas: tuple[int, ...]
    """All current replicas, including those being added and removed."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class Reassignments:
    """Reassignment administration, created by `Client.reassignments`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def list_all(self) -> dict[TopicPartition, Reassignment]:
        """Return the ongoing reassignments of the cluster."""

        def ask() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None)
            answer = self._client.controller().request(api.LIST_PARTITION_REASSIGNMENTS, request)
            raise_for(answer.error_code, "reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): Reassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return self._client.with_retries(lambda: self._client.of_controller(ask))

    def alter(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> list[TopicPartition]:
        """Start to reassign partitions to these replicas, the preferred leader first; None cancels a reassignment.

        Return the partitions that had no reassignment to cancel. A partition that an earlier attempt of this call may
        have cancelled is left out. Raises KafkaError for the first rejected partition; reassignments of other
        partitions may have started.
        """
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=number,
                            replicas=None if (wanted := targets[TopicPartition(topic, number)]) is None else [*wanted],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(targets)
            ],
        )

        ours: set[TopicPartition] = set()

        def ask() -> list[TopicPartition]:
            answer = self._client.controller().request(api.ALTER_PARTITION_REASSIGNMENTS, request)
            if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
                ours.update(targets)
            raise_for(answer.error_code, "reassignments", answer.error_message)
            rows = {
                TopicPartition(topic.name, row.partition_index): row
                for topic in answer.responses
                for row in topic.partitions
            }
            ours.update(key for key, row in rows.items() if row.error_code in _MAY_BE_DONE)
            gone = {
                key
                for key, row in rows.items()
                if row.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and targets.get(key) is None
            }
            for key, row in rows.items():
                if key not in gone:
                    raise_for(row.error_code, f"the replicas of {key}", row.error_message)
            return sorted(gone - ours)

        return self._client.of_controller(ask)

    def elect_preferred(self, keys: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, str]:
        """Elect the preferred leaders of these or all partitions. Return the error of each partition that failed."""
        wanted = None
        if keys is not None:
            wanted = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(keys)]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=wanted, timeout_ms=self._timeout_ms)

        def ask() -> dict[TopicPartition, str]:
            answer = self._client.controller().request(api.ELECT_LEADERS, request)
            raise_for(answer.error_code, "elections")
            return {
                TopicPartition(topic.topic, row.partition_id): row.error_message or f"error {row.error_code}"
                for topic in answer.replica_election_results
                for row in topic.partition_result
                if row.error_code not in _NOTHING_TO_DO
            }

        return self._client.of_controller(ask)

    def unregister(self, broker: int) -> None:
        """Unregister a broker that is not running. Raises KafkaError (BROKER_ID_NOT_REGISTERED)."""

        def ask() -> None:
            request = UnregisterBrokerRequest(broker_id=broker)
            answer = self._client.controller().request(api.UNREGISTER_BROKER, request)
            raise_for(answer.error_code, f"broker {broker}", answer.error_message)

        self._client.of_controller(ask)

    @property
    def _timeout_ms(self) -> int:
        return int(self._client.request_timeout_s * 1000)
