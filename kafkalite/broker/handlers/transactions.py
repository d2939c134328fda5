"""Handle AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5 and TxnOffsetCommit 0-6: transactions of producers.

    AddPartitionsToTxn  v4 and v5 are for brokers in a cluster, and need the permission ClusterAction.
    EndTxn              v5 (KIP-890) raises the epoch and returns the new one.
    TxnOffsetCommit     v3 checks member and generation (KIP-447). v5 also adds the group's offsets partition to the
                        transaction (KIP-890). v6 names topics by id (UNKNOWN_TOPIC_ID), and returns STALE_MEMBER_EPOCH
                        and GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION (KIP-1319).

In v0 and v1 the first three APIs return INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED (KIP-588). A change is
durable before the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.deferred import completed, gathered
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.broker.coordinator.transaction_rules import TV1, TV2
from kafkalite.broker.handlers.group_offsets import committed_topics, merged, name_of
from kafkalite.broker.handlers.permissions import (
    CLUSTER,
    CLUSTER_ACTION,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    allowed_names,
    allows,
)
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.model import INTERNAL_TOPICS, TopicPartition
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkalite.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.transaction_coordinator import EndAnswer
    from kafkalite.broker.handlers.context import RequestContext

_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_FENCED_SINCE: Final = 2
_TV2_SINCE: Final = 5
_BROKERS_SINCE: Final = 4
_TOPIC_IDS_SINCE: Final = 6


def add_partitions(context: RequestContext, request: AddPartitionsToTxnRequest) -> Deferred[AddPartitionsToTxnResponse]:
    """Handle AddPartitionsToTxn 0-3. One bad partition fails the whole request.

    A partition of an internal topic gets TOPIC_AUTHORIZATION_FAILED, a missing one UNKNOWN_TOPIC_OR_PARTITION, and the
    good ones OPERATION_NOT_ATTEMPTED.
    """
    asked = [
        TopicPartition(topic.name, number)
        for topic in checkpointed(request.v3_and_below_topics)
        for number in checkpointed(topic.partitions)
    ]
    if not allows(context, WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return completed(_added(request, dict.fromkeys(asked, _DENIED)))
    allowed = allowed_names(context, WRITE, TOPIC, {p.topic for p in checkpointed(asked)} - INTERNAL_TOPICS)
    refusals = {partition: _refusal(context, partition, allowed) for partition in checkpointed(asked)}
    if any(refusals.values()):
        return completed(
            _added(request, {p: code or ErrorCode.OPERATION_NOT_ATTEMPTED for p, code in refusals.items()})
        )
    done = context.broker.transactions.add(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        frozenset(asked),
        TV1,
    )
    return done.map(lambda code: _added(request, dict.fromkeys(asked, ErrorCode(_told(context, code)))))


def add_partitions_in_cluster(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Deferred[AddPartitionsToTxnResponse]:
    """Handle AddPartitionsToTxn of a broker in a cluster.

    From v4 on the request comes from another broker, which verifies or adds partitions of several transactions.
    """
    if context.api_version < _BROKERS_SINCE:
        return add_partitions(context, request)
    if not allows(context, CLUSTER_ACTION, CLUSTER):
        return completed(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    answers = [_of_transaction(context, each) for each in checkpointed(request.transactions)]
    return gathered(answers).map(lambda results: AddPartitionsToTxnResponse(results_by_transaction=results))


def _of_transaction(
    context: RequestContext, asked: AddPartitionsToTxnTransaction
) -> Deferred[AddPartitionsToTxnResult]:
    transactions = context.broker.transactions
    partitions = [
        TopicPartition(topic.name, number)
        for topic in checkpointed(asked.topics)
        for number in checkpointed(topic.partitions)
    ]
    who = (asked.transactional_id, asked.producer_id, asked.producer_epoch)

    def answer(codes: dict[TopicPartition, int]) -> AddPartitionsToTxnResult:
        return AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id, topic_results=_by_topic(asked.topics, codes)
        )

    if asked.verify_only:
        abortable = context.api_version > _BROKERS_SINCE
        return completed(
            answer({each: transactions.verify(*who, each, abortable=abortable) for each in checkpointed(partitions)})
        )
    missing = [each for each in checkpointed(partitions) if not is_there(context, each)]
    if missing:
        codes = dict.fromkeys(partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
        codes.update(dict.fromkeys(missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        return completed(answer(codes))
    return transactions.add(*who, frozenset(partitions), TV2).map(lambda code: answer(dict.fromkeys(partitions, code)))


def _refusal(context: RequestContext, partition: TopicPartition, allowed: frozenset[str]) -> ErrorCode:
    """Return the error code if the client may not write to a partition in a transaction, or NONE. Internal topics are
    refused."""
    if partition.topic not in allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if is_there(context, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def is_there(context: RequestContext, partition: TopicPartition) -> bool:
    """Return whether a partition of a topic exists."""
    topic = context.broker.logs.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)


def _added(request: AddPartitionsToTxnRequest, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(request.v3_and_below_topics, codes))


def _by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the code of each requested partition, in the order of the request."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in checkpointed(topic.partitions)
            ],
        )
        for topic in topics
    ]


def add_offsets(context: RequestContext, request: AddOffsetsToTxnRequest) -> Deferred[AddOffsetsToTxnResponse]:
    if not allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return completed(AddOffsetsToTxnResponse(error_code=_DENIED))
    if not allows(context, READ, GROUP, request.group_id):
        return completed(AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    done = context.broker.transactions.offsets.add_group(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    return done.map(lambda code: AddOffsetsToTxnResponse(error_code=_told(context, code)))


def end(context: RequestContext, request: EndTxnRequest) -> Deferred[EndTxnResponse]:
    if not allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return completed(EndTxnResponse(error_code=_DENIED))
    done = context.broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        version=TV2 if context.api_version >= _TV2_SINCE else TV1,
    )
    return done.map(lambda answer: _ended(context, answer))


def _ended(context: RequestContext, answer: EndAnswer) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=_told(context, answer.code), producer_id=answer.producer_id, producer_epoch=answer.epoch
    )


def _told(context: RequestContext, code: int) -> int:
    if code == ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def commit_offsets(context: RequestContext, request: TxnOffsetCommitRequest) -> Deferred[TxnOffsetCommitResponse]:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    names = [name_of(context, topic.topic_id) if by_id else topic.name for topic in checkpointed(request.topics)]
    offsets = [
        Offset(
            TopicPartition(name or "", partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for name, topic in checkpointed(zip(names, request.topics, strict=True))
        for partition in checkpointed(topic.partitions)
    ]
    denied = _commit_refusal(context, request)
    allowed = (
        frozenset() if denied else allowed_names(context, READ, TOPIC, (name for name in checkpointed(names) if name))
    )
    codes = []
    for offset in checkpointed(offsets):
        code = ErrorCode.NONE
        if denied:
            code = denied
        elif by_id and not offset.partition.topic:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif offset.partition.topic not in allowed:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not is_there(context, offset.partition):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes.append(int(code))
    if all(codes):
        return completed(_committed(request, codes))
    done = context.broker.transactions.offsets.commit(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        (request.member_id, request.group_instance_id, request.generation_id),
        [offset for offset, code in checkpointed(zip(offsets, codes, strict=True)) if not code],
        context.api_version,
        context.holder,
    )
    return done.map(lambda found: _committed(request, merged(codes, found)))


def _commit_refusal(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return the error code if the client may not commit any offsets in this transaction, or NONE."""
    if not allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _DENIED
    if not allows(context, READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _committed(request: TxnOffsetCommitRequest, codes: list[int]) -> TxnOffsetCommitResponse:
    of_topic, of_partition = TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    return TxnOffsetCommitResponse(topics=committed_topics(request.topics, codes, of_topic, of_partition))
