"""Handle ElectLeaders 0-2 of a standalone broker, which is already the preferred leader of every partition.

    v0   elects the preferred leader
    v1   has election types (0: the preferred leader, 1: any live replica), and an error for the whole request

A partition that the request names gets ELECTION_NOT_NEEDED, unless it is missing or offline. If the request is for all
partitions (null), the response lists only the offline ones, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.handlers.error_answers import error_answer
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext

_NO_LEADER: Final = {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
"""Election type → error for an offline partition, which has no other replica as a leader."""


def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse()
    if request.election_type not in _NO_LEADER:
        text = f"unknown election type {request.election_type}"
        failed: ElectLeadersResponse = error_answer(
            context.api_key, context.api_version, request, ErrorCode.INVALID_REQUEST, text
        )
        return failed
    election = request.election_type
    if request.topic_partitions is not None:
        named = ((item.topic, item.partitions) for item in checkpointed(request.topic_partitions))
        results = [_result(context, name, indexes, election) for name, indexes in checkpointed(named)]
    else:
        topics = context.broker.logs.topics.items()
        results = [
            _result(context, name, range(len(topic.partitions)), election) for name, topic in checkpointed(topics)
        ]
        for result in checkpointed(results):
            result.partition_result = [
                row for row in result.partition_result if row.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    return ElectLeadersResponse(replica_election_results=results)


def _result(context: RequestContext, name: str, indexes: Iterable[int], election: int) -> ReplicaElectionResult:
    codes = ((index, _code(context, name, index, election)) for index in checkpointed(indexes))
    return ReplicaElectionResult(
        topic=name,
        partition_result=[
            PartitionResult(partition_id=index, error_code=code, error_message=code.text) for index, code in codes
        ],
    )


def _code(context: RequestContext, name: str, index: int, election: int) -> ErrorCode:
    topic = context.broker.logs.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _NO_LEADER[election] if topic.partitions[index].offline else ErrorCode.ELECTION_NOT_NEEDED
