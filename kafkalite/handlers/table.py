"""THE table of APIs: key, versions, handler, and whether it may block. ApiVersions is answered from it.

`advertised` is the range clients are told, `oldest` the first version really served. They differ for Produce alone:
librdkafka before 2.11.1 turns compression off unless the range begins at 0 (KAFKA-18659), while Kafka 4 and this broker
refuse 0 to 2. Produce and Fetch are served in C by the connection, which is given their rows (`native_apis`).

Blocking is True, False, or "module:function" of (context, request) that decides for one request. Handlers are imported
when first called, so that starting loads none of them.

Thread rule: immutable but for the lazily filled `_handle` and `_decide`, which two threads may both fill with the same.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkalite import protocol
from kafkalite.errors import ErrorCode
from kafkalite.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.connection import NativeApi
    from kafkalite.handlers.context import RequestContext

API_VERSIONS_KEY: Final = api.API_VERSIONS

PARTITIONS_MAX: Final = 100_000
"""request.max.partitions where nobody says otherwise."""
OBJECTS_PER_PARTITION: Final = 5
"""What one partition may decode to at most in an honest request: its struct, a topic of its own, the topic's name, and
room for short lists. The codec counts structs and list items, not partitions."""


class Row:
    """One API as this broker serves it."""

    __slots__ = ("_blocking", "_decide", "_handle", "_path", "advertised", "key", "name", "newest", "oldest")

    def __init__(
        self, key: int, oldest: int, newest: int, path: str, blocking: bool | str = False, advertised: int | None = None
    ) -> None:
        self.key = key
        self.name = api.APIS[key].name
        self.oldest = oldest
        self.newest = newest
        self.advertised = oldest if advertised is None else advertised
        self._path = path
        self._blocking = blocking
        self._handle: Callable[[RequestContext, Any], Any] | None = None
        self._decide: Callable[[RequestContext, Any], bool] | None = None

    def serves(self, version: int) -> bool:
        return self.oldest <= version <= self.newest

    def blocks(self, context: RequestContext, request: Any) -> bool:
        """Whether this request has to run on the I/O pool."""
        if isinstance(self._blocking, bool):
            return self._blocking
        if self._decide is None:
            self._decide = _load(self._blocking)
        return bool(self._decide(context, request))

    def decode(self, version: int, body: bytes | bytearray | memoryview, partitions_max: int = PARTITIONS_MAX) -> Any:
        """The request; ValueError (DecodeError) if the bytes are not one, or name far more partitions than allowed."""
        return protocol.decode_request(self.key, version, body, objects_max=partitions_max * OBJECTS_PER_PARTITION)

    def handler(self, context: RequestContext, request: Any) -> Any:
        """The response to a request."""
        if self._handle is None:
            self._handle = _load(self._path)
        return self._handle(context, request)

    def encode(self, version: int, correlation_id: int, response: object) -> bytes:
        """The whole response frame."""
        return protocol.encode_response_frame(self.key, version, correlation_id, response)


def _load(path: str) -> Any:
    module, _, function = path.partition(":")
    return getattr(import_module(f"kafkalite.handlers.{module}"), function)


IN_C: Final = ""

ROWS: Final[tuple[Row, ...]] = (
    Row(api.PRODUCE, 3, 13, IN_C, advertised=0),
    Row(api.FETCH, 4, 17, IN_C),
    Row(api.LIST_OFFSETS, 1, 11, "list_offsets:handle", "list_offsets:needs_blocking"),
    Row(api.METADATA, 0, 13, "metadata:handle", "metadata:needs_blocking"),
    Row(api.OFFSET_COMMIT, 2, 10, "group_offsets:commit"),
    Row(api.OFFSET_FETCH, 1, 10, "group_offsets:fetch"),
    Row(api.FIND_COORDINATOR, 0, 6, "find_coordinator:handle"),
    Row(api.JOIN_GROUP, 0, 9, "group_membership:join"),
    Row(api.HEARTBEAT, 0, 4, "group_membership:heartbeat"),
    Row(api.LEAVE_GROUP, 0, 5, "group_membership:leave"),
    Row(api.SYNC_GROUP, 0, 5, "group_membership:sync"),
    Row(api.DESCRIBE_GROUPS, 0, 6, "group_admin:describe"),
    Row(api.LIST_GROUPS, 0, 5, "group_admin:list_groups"),
    Row(api.SASL_HANDSHAKE, 0, 1, "sign_in:handshake"),
    Row(api.API_VERSIONS, 0, 4, "api_versions:handle"),
    Row(api.CREATE_TOPICS, 2, 7, "create_topics:handle", blocking=True),
    Row(api.DELETE_TOPICS, 1, 6, "delete_topics:handle", blocking=True),
    Row(api.DELETE_RECORDS, 0, 2, "delete_records:handle", blocking=True),
    Row(api.INIT_PRODUCER_ID, 0, 5, "init_producer_id:handle", blocking=True),
    Row(api.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch:handle"),
    Row(api.ADD_PARTITIONS_TO_TXN, 0, 3, "transactions:add_partitions"),
    Row(api.ADD_OFFSETS_TO_TXN, 0, 4, "transactions:add_offsets"),
    Row(api.END_TXN, 0, 5, "transactions:end"),
    Row(api.WRITE_TXN_MARKERS, 1, 2, "transaction_admin:write_markers"),
    Row(api.TXN_OFFSET_COMMIT, 0, 5, "transactions:commit_offsets"),
    Row(api.DESCRIBE_ACLS, 1, 3, "acls:describe", "acls:needs_blocking"),
    Row(api.CREATE_ACLS, 1, 3, "acls:create", "acls:changes"),
    Row(api.DELETE_ACLS, 1, 3, "acls:delete", "acls:changes"),
    Row(api.DESCRIBE_CONFIGS, 1, 4, "describe_configs:handle", "describe_configs:needs_blocking"),
    Row(api.ALTER_CONFIGS, 0, 2, "alter_configs:replace", blocking=True),
    Row(api.DESCRIBE_LOG_DIRS, 1, 4, "describe_log_dirs:handle", blocking=True),
    Row(api.SASL_AUTHENTICATE, 0, 2, "sign_in:authenticate"),
    Row(api.CREATE_PARTITIONS, 0, 3, "create_partitions:handle", blocking=True),
    Row(api.CREATE_DELEGATION_TOKEN, 1, 3, "delegation_tokens:create"),
    Row(api.RENEW_DELEGATION_TOKEN, 1, 2, "delegation_tokens:renew"),
    Row(api.EXPIRE_DELEGATION_TOKEN, 1, 2, "delegation_tokens:expire"),
    Row(api.DESCRIBE_DELEGATION_TOKEN, 1, 3, "delegation_tokens:describe"),
    Row(api.DELETE_GROUPS, 0, 2, "group_admin:delete"),
    Row(api.INCREMENTAL_ALTER_CONFIGS, 0, 1, "alter_configs:change", blocking=True),
    Row(api.LIST_PARTITION_REASSIGNMENTS, 0, 0, "list_partition_reassignments:handle"),
    Row(api.OFFSET_DELETE, 0, 0, "group_offsets:delete"),
    Row(api.DESCRIBE_CLIENT_QUOTAS, 0, 1, "client_quotas:describe"),
    Row(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "user_credentials:describe", blocking=True),
    Row(api.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "user_credentials:alter", blocking=True),
    Row(api.DESCRIBE_CLUSTER, 0, 2, "describe_cluster:handle"),
    Row(api.DESCRIBE_PRODUCERS, 0, 0, "describe_producers:handle", blocking=True),
    Row(api.DESCRIBE_TRANSACTIONS, 0, 0, "transaction_admin:describe"),
    Row(api.LIST_TRANSACTIONS, 0, 2, "transaction_admin:list_all", blocking=True),
    Row(api.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_groups:heartbeat", "consumer_groups:needs_blocking"),
    Row(api.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_groups:describe"),
    Row(api.LIST_CONFIG_RESOURCES, 0, 1, "list_config_resources:handle"),
    Row(api.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions:handle"),
)

_BY_KEY: Final[dict[int, Row]] = {row.key: row for row in ROWS}


def find(key: int) -> Row | None:
    """The row of an API key, None when it is not served."""
    return _BY_KEY.get(key)


def native_apis() -> tuple[NativeApi, NativeApi]:
    """Produce and Fetch, for the connections that serve them in C: these versions they serve, others come here."""
    return _native_api(api.PRODUCE), _native_api(api.FETCH)


def _native_api(key: int) -> NativeApi:
    return key, _BY_KEY[key].oldest, _BY_KEY[key].newest, api.APIS[key].flexible_from


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The whole frame that answers an ApiVersions request of an unknown version (KIP-511).

    The oldest body, which every client can read, with the one row that tells it which version to ask in. Neither a
    closed connection nor a body of the version asked for would do: clients do not step down from either.
    """
    from kafkalite.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

    row = _BY_KEY[API_VERSIONS_KEY]
    known = ApiVersion(api_key=row.key, min_version=row.advertised, max_version=row.newest)
    return row.encode(
        0, correlation_id, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
    )


def _check() -> None:
    """The table is sorted, unique, and inside what the messages know."""
    keys = [row.key for row in ROWS]
    assert keys == sorted(set(keys)), "the API table is not sorted, or has a key twice"
    for row in ROWS:
        known = api.APIS[row.key]
        assert known.oldest <= row.oldest <= row.newest <= known.newest, f"{row.name}: versions without a message"
        assert row.advertised <= row.oldest, f"{row.name}: serves versions it does not advertise"


_check()
