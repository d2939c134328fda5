"""List the APIs of a broker in a cluster.

The rows are like those of `kafkalite.broker.handlers.table`. There are three kinds:

    forwarded     The request is for the controller. ApiVersions reports the versions that broker and controller both
                  support.
    standalone    The request is for this broker, for a partition leader or for a coordinator. The handler is that of a
                  standalone broker. If another broker is the leader or coordinator, the client gets Kafka's error.
    clusterwide   The response describes the whole cluster. For example, Metadata lists all brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.forwarding import ForwardRow
from kafkalite.broker.handlers.table import LazyFunction, Row, always, call_directly, never, served_in_c
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.handlers.context import RequestContext

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
"""APIs that are forwarded to the controller."""
_CONFIGS: Final = (api.ALTER_CONFIGS, api.INCREMENTAL_ALTER_CONFIGS)
_TOKENS: Final = (api.CREATE_DELEGATION_TOKEN, api.RENEW_DELEGATION_TOKEN, api.EXPIRE_DELEGATION_TOKEN)


def _forward_row(key: int, handler: LazyFunction, blocks: Callable[[RequestContext, Any], bool] = never) -> ForwardRow:
    return ForwardRow(key, api.APIS[key].oldest, api.APIS[key].newest, handler, blocks)


_ALIKE: Final = (
    api.PRODUCE,
    api.LIST_OFFSETS,
    api.OFFSET_COMMIT,
    api.OFFSET_FETCH,
    api.JOIN_GROUP,
    api.HEARTBEAT,
    api.LEAVE_GROUP,
    api.SYNC_GROUP,
    api.DESCRIBE_GROUPS,
    api.LIST_GROUPS,
    api.DELETE_RECORDS,
    api.INIT_PRODUCER_ID,
    api.OFFSET_FOR_LEADER_EPOCH,
    api.ALTER_REPLICA_LOG_DIRS,
    api.DESCRIBE_LOG_DIRS,
    api.ADD_OFFSETS_TO_TXN,
    api.END_TXN,
    api.WRITE_TXN_MARKERS,
    api.TXN_OFFSET_COMMIT,
    api.DELETE_GROUPS,
    api.OFFSET_DELETE,
    api.DESCRIBE_PRODUCERS,
    api.DESCRIBE_TRANSACTIONS,
    api.LIST_TRANSACTIONS,
    api.CONSUMER_GROUP_HEARTBEAT,
    api.CONSUMER_GROUP_DESCRIBE,
    api.DESCRIBE_CONFIGS,
    api.DESCRIBE_CLIENT_QUOTAS,
    api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    api.GET_TELEMETRY_SUBSCRIPTIONS,
    api.PUSH_TELEMETRY,
    api.SASL_HANDSHAKE,
    api.SASL_AUTHENTICATE,
    api.DESCRIBE_ACLS,
)
"""APIs that this broker serves itself, as a standalone broker does."""

ROWS: Final[tuple[Row, ...]] = tuple(
    sorted(
        (
            Row(api.FETCH, 4, 18, served_in_c),  # followers send 18 and do not ask before
            Row(api.METADATA, 0, 13, LazyFunction("in_cluster:metadata"), unnamed=LazyFunction("costs:metadata")),
            Row(api.FIND_COORDINATOR, 0, 6, LazyFunction("cluster_coordinators:find")),
            Row(api.ADD_PARTITIONS_TO_TXN, 0, 5, LazyFunction("transactions:add_partitions_in_cluster"), in_order=True),
            Row(api.API_VERSIONS, 0, 5, LazyFunction("in_cluster:api_versions")),
            Row(api.DESCRIBE_CLUSTER, 0, 2, LazyFunction("in_cluster:describe_cluster")),
            Row(
                api.DESCRIBE_TOPIC_PARTITIONS,
                0,
                0,
                LazyFunction("in_cluster:describe_topic_partitions"),
                unnamed=LazyFunction("costs:topic_pages"),
            ),
            Row(
                api.LIST_CONFIG_RESOURCES,
                0,
                1,
                LazyFunction("cluster_configs:list_resources"),
                unnamed=LazyFunction("costs:config_names"),
            ),
            *(row for row in table.ROWS if row.key in _ALIKE),
            Row(api.DESCRIBE_DELEGATION_TOKEN, 1, 3, LazyFunction("delegation_tokens:describe")),
            *(_forward_row(key, _TO_CONTROLLER) for key in FORWARDED if key not in (*_CONFIGS, *_TOKENS)),
            *(_forward_row(key, LazyFunction("delegation_tokens:pass_on")) for key in _TOKENS),
            *(_forward_row(key, LazyFunction("cluster_configs:alter"), always) for key in _CONFIGS),
        ),
        key=lambda row: row.key,
    )
)
_BY_KEY: Final = {row.key: row for row in ROWS}
call_directly(ROWS)


def find(key: int) -> Row | None:
    """Return the row of an API key; None if the API is not served."""
    return _BY_KEY.get(key)
