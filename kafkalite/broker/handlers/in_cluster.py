"""Handle Metadata 0-13, DescribeCluster 0-2 and ApiVersions 0-5 of a broker in a cluster.

Each response is computed from one metadata image. Metadata and DescribeCluster list the brokers that have an address on
the client's listener. Fenced brokers are listed only if a DescribeCluster request includes them.

DescribeTopicPartitions is handled here, too. Source: KRaftMetadataCache and AuthHelper of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base import randomness
from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.broker.cluster.image import MIGRATING, UNASSIGNED
from kafkalite.broker.cluster.lifecycle import FEATURES
from kafkalite.broker.handlers import api_versions as alone
from kafkalite.broker.handlers import describe_topic_partitions as pages
from kafkalite.broker.handlers.cluster_table import FORWARDED, ROWS
from kafkalite.broker.handlers.describe_cluster import BROKERS, CONTROLLERS
from kafkalite.broker.handlers.metadata import may_describe, may_make
from kafkalite.broker.handlers.permissions import TOPIC, cluster_operations, operations
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.log.assignment import LOST
from kafkalite.errors import ErrorCode
from kafkalite.model import INTERNAL_TOPICS, ZERO_UUID, topic_name_error
from kafkalite.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafkalite.wire.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
)
from kafkalite.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kafkalite.broker.cluster.image import Address, BrokerState, Image, PartitionState, TopicState
    from kafkalite.broker.cluster.member import Member
    from kafkalite.broker.handlers.context import RequestContext

NOBODY: Final = -1
_ALL_TOPICS_NULL_SINCE: Final = 1
_ENDPOINTS_NEEDED_BEFORE: Final = 1
_LISTENER_NOT_FOUND_SINCE: Final = 6
_NULL_NAMES_SINCE: Final = 12


class View:
    """A metadata image as the clients of one listener see it."""

    def __init__(self, image: Image, listener: str) -> None:
        self.image = image
        self.listener = listener

    def living(self) -> list[tuple[BrokerState, Address]]:
        """Return the brokers that are not fenced, with their address on the listener, in the order of their ids."""
        living = [each for _, each in sorted(self.image.brokers.items()) if not each.fenced]
        return [(each, each.addresses[self.listener]) for each in living if self.listener in each.addresses]

    def address(self, node_id: int) -> Address | None:
        """Return a registered broker's address on the listener; None if the broker does not have this listener."""
        broker = self.image.brokers.get(node_id)
        return None if broker is None else broker.addresses.get(self.listener)

    def controller_id(self) -> int:
        """Return the node id of any live broker, or NOBODY. Each broker forwards admin requests to the controller."""
        living = self.living()
        return living[randomness.below(len(living))][0].node_id if living else NOBODY

    def offline(self, partition: PartitionState) -> list[int]:
        """Return the replicas that cannot be reached on this listener, or whose directory is offline."""
        pairs = zip(partition.replicas, partition.directories, strict=True)
        return [node_id for node_id, directory in pairs if not self._online(node_id, directory)]

    def _online(self, node_id: int, directory: bytes) -> bool:
        broker = self.image.brokers.get(node_id)
        if broker is None or broker.fenced or self.listener not in broker.addresses:
            return False
        if directory in (MIGRATING, UNASSIGNED):
            return True
        return directory != LOST and (not broker.directories or directory in broker.directories)


def view_of(context: RequestContext) -> View:
    """Return the current metadata image with the addresses of this client's listener."""
    assert context.broker.member is not None, "served in a cluster alone"
    return View(context.broker.member.image, context.endpoint.name)


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    view = view_of(context)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=address.host, port=address.port, rack=each.rack)
            for each, address in view.living()
        ],
        cluster_id=context.broker.cluster.cluster_id,
        controller_id=view.controller_id(),
        topics=_topics(context, request, view),
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _topics(context: RequestContext, request: MetadataRequest, view: View) -> list[MetadataResponseTopic]:
    version = context.api_version
    with_operations = request.include_topic_authorized_operations
    if request.topics is None or (not request.topics and version < _ALL_TOPICS_NULL_SINCE):
        described = (
            each for each in checkpointed(view.image.topics.values()) if may_describe(context, each.name, probe=True)
        )
        found = [_topic(view, each, version) for each in described]
    else:
        unique = {(item.topic_id, item.name): item for item in checkpointed(request.topics)}
        found = [_asked(context, view, item, version) for item in checkpointed(unique.values())]
        if request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable:
            _ask_for(context, found)
    for each in checkpointed(found):
        if with_operations and each.name and each.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            each.topic_authorized_operations = operations(context, TOPIC, each.name)
    return found


def _ask_for(context: RequestContext, found: list[MetadataResponseTopic]) -> None:
    """Ask the controller to create the missing topics that the client may create. The client gets an error and
    retries."""
    missing = []
    for each in checkpointed(found):
        if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not each.name:
            continue
        if not may_make(context, each.name):
            each.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not each.is_internal:
            missing.append(each.name)
    assert context.broker.member is not None, "served in a cluster alone"
    if missing:
        creation = context.broker.member.creation
        creation.ask(missing, context.client_id, context.principal, context.client_host)


def _asked(context: RequestContext, view: View, item: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    if item.topic_id != ZERO_UUID:
        by_id = view.image.topics.get(item.topic_id)
        if by_id is None:
            name = None if version >= _NULL_NAMES_SINCE else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=item.topic_id)
        if not may_describe(context, by_id.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=item.topic_id
            )
        return _topic(view, by_id, version)
    if item.name is None:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=None)
    if not may_describe(context, item.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=item.name)
    by_name = view.image.topic(item.name)
    if by_name is not None:
        return _topic(view, by_name, version)
    invalid = topic_name_error(item.name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=item.name, is_internal=item.name in INTERNAL_TOPICS)


def _topic(view: View, topic: TopicState, version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(view, index, each, version) for index, each in checkpointed(sorted(topic.partitions.items()))
        ],
    )


def _partition(view: View, index: int, partition: PartitionState, version: int) -> MetadataResponsePartition:
    """Return a partition's row. If its leader has no address on the listener, the row has an error and no leader.

    The error is LEADER_NOT_AVAILABLE; from v6 on, it is LISTENER_NOT_FOUND if the leader is registered.
    """
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version < _ENDPOINTS_NEEDED_BEFORE:
        replicas, isr = ([node for node in nodes if view.address(node)] for nodes in (replicas, isr))
    code, leader = ErrorCode.NONE, partition.leader
    if view.address(leader) is None:
        registered = leader in view.image.brokers and version >= _LISTENER_NOT_FOUND_SINCE
        code = ErrorCode.LISTENER_NOT_FOUND if registered else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NOBODY
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline(partition),
    )


def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Handle DescribeTopicPartitions as a standalone broker does, but with eligible leader replicas (KIP-966)."""
    view = view_of(context)

    def describe(name: str, start: int, room: int) -> tuple[bytes, pages.Described] | None:
        topic = view.image.topic(name)
        if topic is None:
            return None
        numbers = sorted(topic.partitions)
        shown = numbers[start : start + room]
        return topic.id, ([_row(view, each, topic.partitions[each]) for each in shown], start + room < len(numbers))

    return pages.answer(context, request, view.image.topic_ids, describe)


def _row(view: View, index: int, partition: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=NOBODY if view.address(partition.leader) is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline(partition),
    )


def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener belongs to a broker, not to a controller",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"unsupported endpoint type {request.endpoint_type}",
        )
    view = view_of(context)
    brokers = view.living()
    if request.include_fenced_brokers:
        fenced = [(each, view.address(each.node_id)) for each in view.image.brokers.values() if each.fenced]
        brokers += [(each, address) for each, address in fenced if address is not None]
    return DescribeClusterResponse(
        cluster_id=context.broker.cluster.cluster_id,
        controller_id=view.controller_id(),
        brokers=[
            DescribeClusterBroker(
                broker_id=each.node_id, host=address.host, port=address.port, rack=each.rack, is_fenced=each.fenced
            )
            for each, address in brokers
        ],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    member = context.broker.member
    assert member is not None, "served in a cluster alone"
    telemetry = context.broker.client_metrics is not None
    response = versions_answer(
        member, context.api_version, request, context.broker.cluster.identity, telemetry=telemetry
    )
    if response.error_code == ErrorCode.NONE:
        context.connection.software_name = request.client_software_name
        context.connection.software_version = request.client_software_version
    return response


def versions_answer(
    member: Member, version: int, request: ApiVersionsRequest, identity: tuple[str, int], *, telemetry: bool
) -> ApiVersionsResponse:
    """Return the response, which is the same on every connection; `identity` is this broker's (cluster id, node id)."""
    keys = _api_keys(member, telemetry=telemetry)
    if version < alone.SOFTWARE_SINCE:
        return ApiVersionsResponse(api_keys=keys)
    refused = alone.refusal(version, request, identity)
    if refused is not None:
        return refused
    if alone.reads_tags_wrongly(request.client_software_name, request.client_software_version):
        return ApiVersionsResponse(api_keys=keys)
    image = member.image
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=oldest, max_version=newest)
            for name, (oldest, newest) in FEATURES.items()
            if version >= alone.SUPPORTED_SINCE or oldest > 0
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


def _api_keys(member: Member, *, telemetry: bool) -> list[ApiVersion]:
    """Return the served APIs with their versions. A forwarded API has only the versions that the controller supports,
    too."""
    controller = member.controller_apis
    keys = []
    for row in ROWS:
        if row.key in alone.TELEMETRY and not telemetry:
            continue
        low, high = controller.get(row.key, (0, -1)) if row.key in FORWARDED else (row.advertised, row.newest)
        oldest, newest = max(row.advertised, low), min(row.newest, high)
        if oldest <= newest:
            keys.append(ApiVersion(api_key=row.key, min_version=oldest, max_version=newest))
    return keys
