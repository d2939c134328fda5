"""What a broker serves in a cluster whose controllers are Apache Kafka's: rows as in `kafkalite.handlers.table`.

A client that begins here learns of the cluster's brokers, and what it asks of a controller is passed on to that; of
those APIs a client is told the versions that both sides know. This broker leads no partitions and coordinates no groups
yet, so that neither is advertised. Used by such a broker alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.handlers.forwarding import ForwardRow
from kafkalite.handlers.table import LazyFunction, Row, always, never
from kafkalite.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.worker_parts import NativeApi
    from kafkalite.handlers.context import RequestContext

_TO_CONTROLLER: Final = LazyFunction("forwarding:handle")
FORWARDED: Final = (
    api.CREATE_TOPICS,
    api.DELETE_TOPICS,
    api.CREATE_ACLS,
    api.DELETE_ACLS,
    api.ALTER_CONFIGS,
    api.CREATE_PARTITIONS,
    api.CREATE_DELEGATION_TOKEN,
    api.RENEW_DELEGATION_TOKEN,
    api.EXPIRE_DELEGATION_TOKEN,
    api.ELECT_LEADERS,
    api.INCREMENTAL_ALTER_CONFIGS,
    api.ALTER_PARTITION_REASSIGNMENTS,
    api.LIST_PARTITION_REASSIGNMENTS,
    api.ALTER_CLIENT_QUOTAS,
    api.ALTER_USER_SCRAM_CREDENTIALS,
    api.DESCRIBE_QUORUM,
    api.UPDATE_FEATURES,
    api.UNREGISTER_BROKER,
    api.ADD_RAFT_VOTER,
    api.REMOVE_RAFT_VOTER,
)
"""What the controller answers."""
_CONFIGS: Final = (api.ALTER_CONFIGS, api.INCREMENTAL_ALTER_CONFIGS)
_TOKENS: Final = (api.CREATE_DELEGATION_TOKEN, api.RENEW_DELEGATION_TOKEN, api.EXPIRE_DELEGATION_TOKEN)


def _forward_row(key: int, handler: LazyFunction, blocks: Callable[[RequestContext, Any], bool] = never) -> ForwardRow:
    return ForwardRow(key, api.APIS[key].oldest, api.APIS[key].newest, handler, blocks)


ROWS: Final[tuple[Row, ...]] = tuple(
    sorted(
        (
            Row(api.METADATA, 0, 13, LazyFunction("in_cluster:metadata")),
            Row(api.API_VERSIONS, 0, 4, LazyFunction("in_cluster:api_versions")),
            Row(api.SASL_HANDSHAKE, 0, 1, LazyFunction("sign_in:handshake")),
            Row(api.DESCRIBE_ACLS, 1, 3, LazyFunction("acls:describe"), LazyFunction("acls:needs_blocking")),
            Row(api.SASL_AUTHENTICATE, 0, 2, LazyFunction("sign_in:authenticate")),
            Row(api.DESCRIBE_CLIENT_QUOTAS, 0, 1, LazyFunction("client_quotas:describe")),
            Row(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, LazyFunction("user_credentials:describe"), always),
            Row(api.DESCRIBE_CLUSTER, 0, 2, LazyFunction("in_cluster:describe_cluster")),
            Row(
                api.DESCRIBE_CONFIGS,
                1,
                4,
                LazyFunction("describe_configs:handle"),
                LazyFunction("describe_configs:needs_blocking"),
            ),
            Row(api.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, LazyFunction("telemetry:subscriptions")),
            Row(api.PUSH_TELEMETRY, 0, 0, LazyFunction("telemetry:push"), always),
            Row(api.LIST_CONFIG_RESOURCES, 0, 1, LazyFunction("cluster_configs:list_resources")),
            Row(api.DESCRIBE_DELEGATION_TOKEN, 1, 3, LazyFunction("delegation_tokens:describe")),
            *(_forward_row(key, _TO_CONTROLLER) for key in FORWARDED if key not in (*_CONFIGS, *_TOKENS)),
            *(_forward_row(key, LazyFunction("delegation_tokens:pass_on")) for key in _TOKENS),
            *(_forward_row(key, LazyFunction("cluster_configs:alter"), always) for key in _CONFIGS),
        ),
        key=lambda row: row.key,
    )
)
_BY_KEY: Final = {row.key: row for row in ROWS}


def find(key: int) -> Row | None:
    """The row of an API key, None when it is not served."""
    return _BY_KEY.get(key)


def native_apis() -> tuple[NativeApi, NativeApi]:
    """Produce and Fetch, of which no version is served."""
    return _unserved(api.PRODUCE), _unserved(api.FETCH)


def _unserved(key: int) -> NativeApi:
    return key, 1, 0, api.APIS[key].flexible_from
