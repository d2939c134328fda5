"""List the permissions that each API needs, and check them for handlers.

A row of the table has the pairs (operation, resource type) that an API may check. Some rows have a `gate`: a permission
on the cluster for the whole request, which dispatch checks before it calls the handler.

    denied      topic 29, group 30, cluster 31, transactional id 53 (CODES)

A name is checked before it is looked up, so that a denial does not show whether the resource exists.

Produce and Fetch are checked in C (native AccessView), which does not read this table.

Source: KafkaApis, ControllerApis, AclApis and ConfigHelper of Kafka 4.1.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.acls import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType, operation_bits
from kafkalite.broker.handlers.error_answers import error_answer
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.handlers.context import RequestContext

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    AclOperation(number) for number in range(3, 13)
)
TWO_PHASE_COMMIT: Final = AclOperation.TWO_PHASE_COMMIT
TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

CODES: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Resource type → error code of a denial."""

Question = tuple[AclOperation, ResourceType]


class Permissions(NamedTuple):
    """A row of the table: the checks that an API may make, and the API's gate."""

    questions: frozenset[Question]
    gate: AclOperation | None = None
    """The operation on the cluster that the whole request requires."""
    each: bool = False
    """Whether a denial is reported for each item that the request names."""


def _asks(*questions: Question) -> Permissions:
    return Permissions(frozenset(questions))


def _gate(operation: AclOperation, *, each: bool = False) -> Permissions:
    return Permissions(frozenset({(operation, CLUSTER)}), operation, each)


_TOPIC_CREATION: Final = ((CREATE, CLUSTER), (CREATE, TOPIC))
_MEMBER: Final = _asks((READ, GROUP))
_CONFIGS: Final = ((DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, GROUP), (DESCRIBE_CONFIGS, CLUSTER))
_ALTERS_CONFIGS: Final = _asks((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER))

PERMISSIONS: Final[dict[int, Permissions]] = {
    api.PRODUCE: _asks((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)),
    api.FETCH: _asks((READ, TOPIC), (CLUSTER_ACTION, CLUSTER)),
    api.LIST_OFFSETS: _asks((DESCRIBE, TOPIC)),
    api.METADATA: _asks((DESCRIBE, TOPIC), *_TOPIC_CREATION, (DESCRIBE, CLUSTER)),
    api.OFFSET_COMMIT: _asks((READ, GROUP), (READ, TOPIC)),
    api.OFFSET_FETCH: _asks((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
    api.FIND_COORDINATOR: _asks((DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID)),
    api.JOIN_GROUP: _MEMBER,
    api.HEARTBEAT: _MEMBER,
    api.LEAVE_GROUP: _MEMBER,
    api.SYNC_GROUP: _MEMBER,
    api.DESCRIBE_GROUPS: _asks((DESCRIBE, GROUP)),
    api.LIST_GROUPS: _asks((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),
    api.SASL_HANDSHAKE: _asks(),
    api.API_VERSIONS: _asks(),
    api.CREATE_TOPICS: _asks(*_TOPIC_CREATION, (DESCRIBE_CONFIGS, TOPIC)),
    api.DELETE_TOPICS: _asks((DELETE, CLUSTER), (DELETE, TOPIC), (DESCRIBE, TOPIC)),
    api.DELETE_RECORDS: _asks((DELETE, TOPIC)),
    api.INIT_PRODUCER_ID: _asks(
        (WRITE, TRANSACTIONAL_ID), (TWO_PHASE_COMMIT, TRANSACTIONAL_ID), (IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)
    ),
    api.OFFSET_FOR_LEADER_EPOCH: _asks((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),
    api.ADD_PARTITIONS_TO_TXN: _asks((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC), (CLUSTER_ACTION, CLUSTER)),
    api.ADD_OFFSETS_TO_TXN: _asks((WRITE, TRANSACTIONAL_ID), (READ, GROUP)),
    api.END_TXN: _asks((WRITE, TRANSACTIONAL_ID)),
    api.WRITE_TXN_MARKERS: _asks((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),
    api.TXN_OFFSET_COMMIT: _asks((WRITE, TRANSACTIONAL_ID), (READ, GROUP), (READ, TOPIC)),
    api.DESCRIBE_ACLS: _gate(DESCRIBE),
    api.CREATE_ACLS: _asks((ALTER, CLUSTER)),
    api.DELETE_ACLS: _asks((ALTER, CLUSTER)),
    api.DESCRIBE_CONFIGS: _asks(*_CONFIGS),
    api.ALTER_CONFIGS: _ALTERS_CONFIGS,
    api.ALTER_REPLICA_LOG_DIRS: _gate(ALTER, each=True),
    api.DESCRIBE_LOG_DIRS: _gate(DESCRIBE),
    api.SASL_AUTHENTICATE: _asks(),
    api.CREATE_PARTITIONS: _asks((ALTER, TOPIC)),
    api.CREATE_DELEGATION_TOKEN: _asks(),
    api.RENEW_DELEGATION_TOKEN: _asks(),
    api.EXPIRE_DELEGATION_TOKEN: _asks(),
    api.DESCRIBE_DELEGATION_TOKEN: _asks(),
    api.DELETE_GROUPS: _asks((DELETE, GROUP)),
    api.ELECT_LEADERS: _gate(ALTER, each=True),
    api.INCREMENTAL_ALTER_CONFIGS: _ALTERS_CONFIGS,
    api.ALTER_PARTITION_REASSIGNMENTS: _gate(ALTER, each=True),
    api.LIST_PARTITION_REASSIGNMENTS: _gate(DESCRIBE),
    api.OFFSET_DELETE: _asks((DELETE, GROUP), (READ, TOPIC)),
    api.DESCRIBE_CLIENT_QUOTAS: _asks((DESCRIBE_CONFIGS, CLUSTER)),
    api.ALTER_CLIENT_QUOTAS: _asks((ALTER_CONFIGS, CLUSTER)),
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: _asks((DESCRIBE, CLUSTER)),
    api.ALTER_USER_SCRAM_CREDENTIALS: _asks((ALTER, CLUSTER)),
    api.DESCRIBE_QUORUM: _gate(DESCRIBE),
    api.UPDATE_FEATURES: _gate(ALTER),
    api.DESCRIBE_CLUSTER: _asks((DESCRIBE, CLUSTER)),
    api.DESCRIBE_PRODUCERS: _asks((READ, TOPIC)),
    api.UNREGISTER_BROKER: _gate(ALTER),
    api.DESCRIBE_TRANSACTIONS: _asks((DESCRIBE, TRANSACTIONAL_ID), (DESCRIBE, TOPIC)),
    api.LIST_TRANSACTIONS: _asks((DESCRIBE, TRANSACTIONAL_ID)),
    api.CONSUMER_GROUP_HEARTBEAT: _asks((READ, GROUP), (DESCRIBE, TOPIC)),
    api.CONSUMER_GROUP_DESCRIBE: _asks((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
    api.GET_TELEMETRY_SUBSCRIPTIONS: _asks(),
    api.PUSH_TELEMETRY: _asks(),
    api.LIST_CONFIG_RESOURCES: _gate(DESCRIBE_CONFIGS),
    api.DESCRIBE_TOPIC_PARTITIONS: _asks((DESCRIBE, TOPIC)),
}
"""API key → row. A test fails if a served API has no row."""


def allows(
    context: RequestContext,
    operation: AclOperation,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    probe: bool = False,
) -> bool:
    """Return whether the client may do an operation on a resource. Without an authorizer, every client may do
    everything.

    The API's row must have the pair (operation, kind). With `probe` a denial is not logged, since the client does not
    attempt the operation.
    """
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    questions = PERMISSIONS[context.api_key].questions
    assert (operation, kind) in questions, f"API {context.api_key} asks what its row does not say"
    return authorizer.allows(
        context.principal, context.client_host, operation, kind, name, api.APIS[context.api_key].name, probe=probe
    )


def check(context: RequestContext, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
    """Raise an authorization error (CODES) unless the client may do the operation."""
    if not allows(context, operation, kind, name):
        raise refusal(kind)


def refusal(kind: ResourceType) -> KafkaError:
    """Return the authorization error for a resource of this type. The error contains no resource name."""
    return error_for(CODES[kind])


def allowed_names(
    context: RequestContext, operation: AclOperation, kind: ResourceType, names: Iterable[str], *, probe: bool = False
) -> frozenset[str]:
    """Return those of the names on which the client may do the operation. Each name is checked once."""
    if context.broker.authorizer is None:
        return frozenset(names)
    return frozenset(name for name in checkpointed(set(names)) if allows(context, operation, kind, name, probe=probe))


def describer(context: RequestContext, kind: ResourceType) -> Callable[[frozenset[str]], frozenset[str]] | None:
    """Return a function that keeps only the names that the client may describe; None without an authorizer.

    The function keeps no reference to the connection, so work that continues after the request can call it.
    """
    authorizer = context.broker.authorizer
    if authorizer is None:
        return None
    principal, host, name_of_api = context.principal, context.client_host, api.APIS[context.api_key].name

    def describes(names: frozenset[str]) -> frozenset[str]:
        return frozenset(
            name for name in names if authorizer.allows(principal, host, DESCRIBE, kind, name, name_of_api, probe=True)
        )

    return describes


def allows_any(context: RequestContext, operation: AclOperation, kind: ResourceType) -> bool:
    """Return whether the client may do the operation on at least one resource of a type."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    assert (operation, kind) in PERMISSIONS[context.api_key].questions, "an API asks what its row does not say"
    return authorizer.allows_any(
        context.principal, context.client_host, operation, kind, api.APIS[context.api_key].name
    )


def operations(context: RequestContext, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the bit field of the client's authorized operations on a resource (KIP-430)."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return operation_bits(OPERATIONS[kind])
    return authorizer.operations(context.principal, context.client_host, kind, name, api.APIS[context.api_key].name)


def cluster_operations(context: RequestContext) -> int:
    """Return the bit field of the client's authorized operations on the cluster; 0 if it may not describe the
    cluster."""
    return operations(context, CLUSTER) if allows(context, DESCRIBE, CLUSTER) else 0


def refused(context: RequestContext, request: Any) -> Any:
    """Return the error response if the client lacks the permission of the API's gate; else None."""
    row = PERMISSIONS[context.api_key]
    if row.gate is None or allows(context, row.gate, CLUSTER):
        return None
    if row.each:
        code = CODES[CLUSTER]
        return error_answer(context.api_key, context.api_version, request, code, code.text)
    return closed_gate(context.api_key)


def closed_gate(api_key: int) -> Any:
    """Return the error response of an API for a client that lacks the permission of its gate."""
    known = api.APIS[api_key]
    make = getattr(import_module(f"kafkalite.wire.protocol.messages.{known.module}"), f"{known.name}Response")
    response = make(error_code=CODES[CLUSTER])
    if hasattr(response, "error_message"):
        response.error_message = CODES[CLUSTER].text
    return response
