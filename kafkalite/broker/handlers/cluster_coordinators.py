"""Handle FindCoordinator 0-6 in a cluster: return the broker that coordinates a group or transactional id.

The coordinator is the leader of the id's partition of `__consumer_offsets` or `__transaction_state`. A client gets
COORDINATOR_NOT_AVAILABLE and retries until that partition exists and has a leader that the client can reach.

`kafkalite.broker.handlers.find_coordinator` describes the versions. Source: KafkaApis.getCoordinator and
AutoTopicCreationManager of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from kafkalite.broker.handlers.find_coordinator import GROUP, answered, failure, refused
from kafkalite.broker.handlers.in_cluster import view_of
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.settings.broker import BrokerConfig

_COMPACTED: Final = {"cleanup.policy": "compact"}


def find(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return answered(context, request, _coordinator)


def _coordinator(context: RequestContext, key: str, key_type: int) -> Coordinator:
    denied = refused(context, key, key_type)
    if denied is not None:
        return denied
    view = view_of(context)
    name = OFFSETS_TOPIC if key_type == GROUP else TRANSACTIONS_TOPIC
    topic = view.image.topic(name)
    if topic is None:
        _ask_for(context, name)
        return failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {name} is being created; retry")
    leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
    broker, address = view.image.brokers.get(leader), view.address(leader)
    if broker is None or broker.fenced or address is None:
        return failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's broker is not available")
    return Coordinator(key=key, node_id=leader, host=address.host, port=address.port)


def _ask_for(context: RequestContext, name: str) -> None:
    """Ask the controller to create a coordinator's topic, with the settings of this broker's configuration."""
    assert context.broker.member is not None, "served in a cluster alone"
    context.broker.member.creation.ask_internal(name, *_wanted(context.broker.config, name))


def _wanted(config: BrokerConfig, name: str) -> tuple[int, int, dict[str, str]]:
    """Return (partitions, replication factor, settings) with which to create a coordinator's topic."""
    if name == OFFSETS_TOPIC:
        settings = {
            **_COMPACTED,
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, settings
    settings = {
        **_COMPACTED,
        "compression.type": "uncompressed",
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "unclean.leader.election.enable": "false",
    }
    return config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor, settings
