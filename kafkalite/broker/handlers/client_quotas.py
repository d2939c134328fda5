"""Handle DescribeClientQuotas 0-1 and AlterClientQuotas 0-1: show and change client quotas (KIP-546).

A change is durable before the response, and applies to every later request. Each entity has its own result: an error
for one entity does not prevent the change of others.

Thread rule: changes run on the I/O pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.quota_entities import entity_of
from kafkalite.broker.handlers.permissions import ALTER_CONFIGS, CLUSTER, CODES, DESCRIBE_CONFIGS, allows, refusal
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.quotas.quotas import Alteration
from kafkalite.broker.quotas.table import Component
from kafkalite.errors import KafkaError
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from kafkalite.wire.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext


def describe(context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not allows(context, DESCRIBE_CONFIGS, CLUSTER):
        return DescribeClientQuotasResponse(error_code=CODES[CLUSTER], error_message=None, entries=None)
    components = [Component(item.entity_type, item.match_type, item.match) for item in checkpointed(request.components)]
    try:
        found = list(context.broker.quotas.table.find(components, strict=request.strict))
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ]
    )


def alter(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    if not allows(context, ALTER_CONFIGS, CLUSTER):
        return _refused(request, refusal(CLUSTER))
    alterations = [
        Alteration(
            entity_of((part.entity_type, part.entity_name) for part in checkpointed(entry.entity)),
            [(op.key, None if op.remove else op.value) for op in checkpointed(entry.ops)],
        )
        for entry in checkpointed(request.entries)
    ]
    try:
        results = context.broker.quotas.alter(alterations, validate_only=request.validate_only)
    except KafkaError as error:
        return _refused(request, error)
    return AlterClientQuotasResponse(
        entries=[_answer(entity, error) for entity, error in checkpointed(results.items())]
    )


def _refused(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """Return a response with the error for every entry of a request that changed nothing."""
    return AlterClientQuotasResponse(
        entries=[
            _answer([(part.entity_type, part.entity_name) for part in checkpointed(entry.entity)], error)
            for entry in checkpointed(request.entries)
        ]
    )


def _answer(entity: Iterable[tuple[str, str | None]], error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
