"""Describe the KRaft controller quorum (DescribeQuorum, KIP-595, KIP-836).

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.cluster import raise_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client.cluster import Cluster
    from kafkalite.wire.protocol.messages.describe_quorum import ReplicaState

METADATA_TOPIC: Final = "__cluster_metadata"


class QuorumReplica(NamedTuple):
    """A voter or an observer of the quorum. Times are in ms since 1970, -1 if unknown."""

    node_id: int
    end: int
    lag: int
    """Metadata records that the replica has not fetched."""
    last_fetch_ms: int
    last_caught_up_ms: int
    address: str
    """host:port; "" if unknown, as for observers."""


class Quorum(NamedTuple):
    """The quorum of the metadata log: leader (-1: none), voters, and observers (brokers)."""

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


def describe_quorum(client: Cluster) -> Quorum:
    """Describe the quorum through any broker. Raises UnsupportedApi for a ZooKeeper cluster, KafkaError."""

    def ask() -> Quorum:
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        answer = client.any_connection().request(api.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
        raise_for(answer.error_code, "the quorum", answer.error_message)
        row = answer.topics[0].partitions[0]
        raise_for(row.error_code, "the quorum", row.error_message)
        states = (*row.current_voters, *row.observers)
        end = max((state.log_end_offset for state in states if state.replica_id == row.leader_id), default=-1)
        if end < 0:
            end = max((state.log_end_offset for state in states), default=row.high_watermark)
        addresses = {
            node.node_id: f"{node.listeners[0].host}:{node.listeners[0].port}"
            for node in answer.nodes
            if node.listeners
        }

        def replicas(found: Iterable[ReplicaState]) -> tuple[QuorumReplica, ...]:
            return tuple(
                QuorumReplica(
                    state.replica_id,
                    state.log_end_offset,
                    max(end - state.log_end_offset, 0),
                    state.last_fetch_timestamp,
                    state.last_caught_up_timestamp,
                    addresses.get(state.replica_id, ""),
                )
                for state in sorted(found, key=lambda state: state.replica_id)
            )

        return Quorum(
            row.leader_id,
            row.leader_epoch,
            row.high_watermark,
            replicas(row.current_voters),
            replicas(row.observers),
        )

    return client.with_retries(ask)
