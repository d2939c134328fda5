"""List the APIs that this broker serves: key, versions, handler, and whether a request may block.

ApiVersions reports the list. Produce and Fetch have no handler here: the connection serves them in C (`native_apis`).

Each API has a function of (context, request) that returns whether a request may block: `never`, `always`, or a function
in the handler's module.

Thread rule: immutable, except for the functions that a LazyFunction loads. Two threads may load the same function, with
the same result.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.worker_parts import NativeApi
    from kafkalite.broker.handlers.context import RequestContext

API_VERSIONS_KEY: Final = api.API_VERSIONS

PARTITIONS_MAX: Final = 100_000
"""The default of request.max.partitions."""
OBJECTS_PER_PARTITION: Final = 5
"""Maximum number of objects that one partition in a valid request decodes to: its struct, its own topic with a name,
and short lists. The codec counts structs and list items, not partitions."""


INLINE_US: Final = 1_000
"""The highest estimated cost in microseconds of a request that a network thread serves. Costlier requests run on the
thread for long requests (`kafkalite.broker.limits.long_requests`). A slow machine takes twice as long as estimated."""


INLINE_SIZE: Final = 4096
"""Maximum body size in bytes that a network thread decodes; with one-byte items that takes half a millisecond."""
BYTE_US: Final = INLINE_US / 2 / INLINE_SIZE
"""Maximum cost of decoding one byte of a body."""
SHORT_SIZE: Final = 128
"""Body size in bytes up to which items are not counted: it counts as one item."""
REQUEST_US: Final = 30.0
"""Cost of a request that names nothing."""
ITEM_US: Final = 5.0
"""Default cost of one item of a request: to decode, handle, encode and free it."""


class LazyFunction:
    """The function "module:function" of this package, imported at its first call. So a start of the broker loads no
    handler.

    After the first call, the rows given to `replace_in` call the function directly.
    """

    __slots__ = ("_function", "_path", "_rows")

    def __init__(self, path: str) -> None:
        self._path = path
        self._function: Callable[[RequestContext, Any], Any] | None = None
        self._rows: list[tuple[Row, str]] = []

    def replace_in(self, row: Row, name: str) -> None:
        """Replace the row's attribute `name` by the real function when that is loaded. The row must live as long as
        the table."""
        self._rows.append((row, name))

    def __call__(self, context: RequestContext, request: Any) -> Any:
        return (self._function or self.load())(context, request)

    def load(self) -> Callable[[RequestContext, Any], Any]:
        """Import and return the function."""
        module, _, function = self._path.partition(":")
        loaded: Callable[[RequestContext, Any], Any] = getattr(
            import_module(f"kafkalite.broker.handlers.{module}"), function
        )
        self._function = loaded
        for row, name in self._rows:
            setattr(row, name, loaded)
        return loaded


def never(_context: RequestContext, _request: Any) -> bool:
    """Return False: the request is handled on a network worker."""
    return False


def always(_context: RequestContext, _request: Any) -> bool:
    """Return True: the request is handled on the I/O pool."""
    return True


def served_in_c(_context: RequestContext, _request: Any) -> Any:
    """Fail, since this function must never run: the connection serves the API in C."""
    raise AssertionError("served in C")


class Row:
    """One API as this broker serves it: its handler, and its estimated cost.

    `handler` returns the response. `blocks` returns whether a request needs the I/O pool. `item_us` is the cost in
    microseconds of each item that the request lists. `unnamed` returns the cost of the items that the request only
    implies: a null list means all items, and one name may mean many items.
    """

    __slots__ = (
        "advertised", "blocks", "handler", "in_order", "item_us", "key", "name", "newest", "oldest", "short_us",
        "unnamed",
    )  # fmt: skip

    @property
    def gated(self) -> bool:
        """Whether this broker checks the permission of the API's gate."""
        return True

    def __init__(
        self,
        key: int,
        oldest: int,
        newest: int,
        handler: Callable[[RequestContext, Any], Any],
        blocks: Callable[[RequestContext, Any], bool] = never,
        *,
        advertised: int | None = None,
        in_order: bool = False,
        item_us: float = ITEM_US,
        unnamed: Callable[[RequestContext, Any], float] | None = None,
    ) -> None:
        """Create a row.

        `oldest` is the first version that is served, `advertised` the first that ApiVersions reports. They differ only
        for Produce: this broker refuses versions 0 to 2, as Kafka 4 does. But librdkafka before 2.11.1 disables
        compression unless the reported range begins at 0 (KAFKA-18659).

        If `in_order`, later requests of the connection take effect only after a request of this API, even if it waits.
        """
        self.key = key
        self.name = api.APIS[key].name
        self.oldest = oldest
        self.newest = newest
        self.advertised = oldest if advertised is None else advertised
        self.handler = handler
        self.blocks = blocks
        self.in_order = in_order
        self.item_us = item_us
        self.short_us = REQUEST_US + item_us
        """The cost of a body of at most SHORT_SIZE bytes, without `unnamed`."""
        self.unnamed = unnamed

    def cost_us(self, context: RequestContext, request: Any) -> float:
        """Return the estimated cost of a decoded request in microseconds."""
        named = REQUEST_US + self.item_us * protocol.request_program(self.key, context.api_version).count_items(request)
        return named if self.unnamed is None else named + self.unnamed(context, request)

    def quick_cost_us(self, context: RequestContext, request: Any, size: int) -> float:
        """Return the estimated cost like `cost_us`. A body of at most SHORT_SIZE bytes counts as one item, without
        counting."""
        if size > SHORT_SIZE:
            return self.cost_us(context, request)
        return self.short_us if self.unnamed is None else self.short_us + self.unnamed(context, request)

    def serves(self, version: int) -> bool:
        return self.oldest <= version <= self.newest

    def decode(
        self,
        version: int,
        body: bytes | bytearray | memoryview,
        partitions_max: int = PARTITIONS_MAX,
        pace: Callable[[], object] | None = None,
    ) -> Any:
        """Return the request. ValueError (DecodeError) if the bytes are malformed or name far more partitions than
        allowed.

        `decode`, `encode` and `release` call `pace` between items, as `Program.decode` does.
        """
        objects_max = partitions_max * OBJECTS_PER_PARTITION
        return protocol.decode_request(self.key, version, body, objects_max=objects_max, pace=pace)

    def message(self, _version: int, response: object) -> object:
        """Return the response as a message. A subclass decodes a response that is bytes."""
        return response

    def encode(
        self, version: int, correlation_id: int, response: object, pace: Callable[[int], object] | None = None
    ) -> bytes:
        """Return the whole response frame."""
        return protocol.encode_response_frame(self.key, version, correlation_id, response, pace)

    def release(self, version: int, request: Any, response: object, pace: Callable[[], object]) -> None:
        """Free the memory of request and response in portions. Both are unusable afterwards."""
        protocol.request_program(self.key, version).release(request, pace)
        protocol.response_program(self.key, version).release(response, pace)


ROWS: Final[tuple[Row, ...]] = (
    Row(api.PRODUCE, 3, 13, served_in_c, advertised=0),
    Row(api.FETCH, 4, 18, served_in_c),
    Row(api.LIST_OFFSETS, 1, 11, LazyFunction("list_offsets:handle"), LazyFunction("list_offsets:needs_blocking")),
    Row(
        api.METADATA,
        0,
        13,
        LazyFunction("metadata:handle"),
        LazyFunction("metadata:needs_blocking"),
        unnamed=LazyFunction("costs:metadata"),
    ),
    Row(api.OFFSET_COMMIT, 2, 10, LazyFunction("group_offsets:commit")),
    Row(api.OFFSET_FETCH, 1, 10, LazyFunction("group_offsets:fetch"), unnamed=LazyFunction("costs:committed")),
    Row(api.FIND_COORDINATOR, 0, 6, LazyFunction("find_coordinator:handle")),
    Row(
        api.JOIN_GROUP,
        0,
        9,
        LazyFunction("group_membership:join"),
        LazyFunction("group_membership:needs_blocking"),
    ),
    Row(api.HEARTBEAT, 0, 4, LazyFunction("group_membership:heartbeat")),
    Row(api.LEAVE_GROUP, 0, 5, LazyFunction("group_membership:leave")),
    Row(api.SYNC_GROUP, 0, 5, LazyFunction("group_membership:sync")),
    Row(api.DESCRIBE_GROUPS, 0, 6, LazyFunction("group_admin:describe"), unnamed=LazyFunction("costs:members")),
    Row(api.LIST_GROUPS, 0, 5, LazyFunction("group_admin:list_groups"), unnamed=LazyFunction("costs:all_groups")),
    Row(api.SASL_HANDSHAKE, 0, 1, LazyFunction("sign_in:handshake")),
    Row(api.API_VERSIONS, 0, 5, LazyFunction("api_versions:handle")),
    Row(api.CREATE_TOPICS, 2, 7, LazyFunction("create_topics:handle"), always, item_us=300.0),
    Row(api.DELETE_TOPICS, 1, 6, LazyFunction("delete_topics:handle"), always, item_us=300.0),
    Row(api.DELETE_RECORDS, 0, 2, LazyFunction("delete_records:handle"), always, item_us=100.0),
    Row(api.INIT_PRODUCER_ID, 0, 5, LazyFunction("init_producer_id:handle"), always, in_order=True),
    Row(api.OFFSET_FOR_LEADER_EPOCH, 2, 4, LazyFunction("offset_for_leader_epoch:handle")),
    Row(api.ADD_PARTITIONS_TO_TXN, 0, 3, LazyFunction("transactions:add_partitions"), in_order=True),
    Row(api.ADD_OFFSETS_TO_TXN, 0, 4, LazyFunction("transactions:add_offsets"), in_order=True),
    Row(api.END_TXN, 0, 5, LazyFunction("transactions:end"), in_order=True),
    Row(api.WRITE_TXN_MARKERS, 1, 2, LazyFunction("transaction_admin:write_markers"), item_us=30.0),
    Row(api.TXN_OFFSET_COMMIT, 0, 6, LazyFunction("transactions:commit_offsets"), in_order=True),
    Row(api.DESCRIBE_ACLS, 1, 3, LazyFunction("acls:describe"), unnamed=LazyFunction("costs:all_acls")),
    Row(api.CREATE_ACLS, 1, 3, LazyFunction("acls:create"), LazyFunction("acls:changes")),
    Row(
        api.DELETE_ACLS,
        1,
        3,
        LazyFunction("acls:delete"),
        LazyFunction("acls:changes"),
        unnamed=LazyFunction("costs:each_filter_all_acls"),
    ),
    Row(api.DESCRIBE_CONFIGS, 1, 4, LazyFunction("describe_configs:handle"), item_us=50.0),
    Row(api.ALTER_CONFIGS, 0, 2, LazyFunction("alter_configs:replace"), always, item_us=100.0),
    Row(api.ALTER_REPLICA_LOG_DIRS, 1, 2, LazyFunction("log_dirs:alter"), always),
    Row(
        api.DESCRIBE_LOG_DIRS,
        1,
        5,
        LazyFunction("log_dirs:describe"),
        always,
        unnamed=LazyFunction("costs:all_partitions"),
    ),
    Row(api.SASL_AUTHENTICATE, 0, 2, LazyFunction("sign_in:authenticate")),
    Row(api.CREATE_PARTITIONS, 0, 3, LazyFunction("create_partitions:handle"), always, item_us=300.0),
    Row(api.CREATE_DELEGATION_TOKEN, 1, 3, LazyFunction("delegation_tokens:create")),
    Row(api.RENEW_DELEGATION_TOKEN, 1, 2, LazyFunction("delegation_tokens:renew")),
    Row(api.EXPIRE_DELEGATION_TOKEN, 1, 2, LazyFunction("delegation_tokens:expire")),
    Row(api.DESCRIBE_DELEGATION_TOKEN, 1, 3, LazyFunction("delegation_tokens:describe")),
    Row(api.DELETE_GROUPS, 0, 3, LazyFunction("group_admin:delete")),
    Row(
        api.ELECT_LEADERS,
        0,
        2,
        LazyFunction("elect_leaders:handle"),
        always,
        unnamed=LazyFunction("costs:all_partitions"),
    ),
    Row(api.INCREMENTAL_ALTER_CONFIGS, 0, 1, LazyFunction("alter_configs:change"), always, item_us=100.0),
    Row(api.ALTER_PARTITION_REASSIGNMENTS, 0, 1, LazyFunction("reassignments:alter"), always),
    Row(api.LIST_PARTITION_REASSIGNMENTS, 0, 0, LazyFunction("reassignments:list_all")),
    Row(api.OFFSET_DELETE, 0, 0, LazyFunction("group_offsets:delete")),
    Row(
        api.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        LazyFunction("client_quotas:describe"),
        unnamed=LazyFunction("costs:all_quotas"),
    ),
    Row(api.ALTER_CLIENT_QUOTAS, 0, 1, LazyFunction("client_quotas:alter"), always),
    Row(
        api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        LazyFunction("user_credentials:describe"),
        always,
        unnamed=LazyFunction("costs:all_users"),
    ),
    Row(api.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, LazyFunction("user_credentials:alter"), always),
    Row(api.DESCRIBE_QUORUM, 0, 2, LazyFunction("quorum:describe"), always),
    Row(api.UPDATE_FEATURES, 0, 2, LazyFunction("update_features:handle"), always),
    Row(api.DESCRIBE_CLUSTER, 0, 2, LazyFunction("describe_cluster:handle")),
    Row(
        api.DESCRIBE_PRODUCERS,
        0,
        0,
        LazyFunction("describe_producers:handle"),
        always,
        unnamed=LazyFunction("costs:producers"),
    ),
    Row(api.UNREGISTER_BROKER, 0, 0, LazyFunction("quorum:unregister")),
    Row(api.DESCRIBE_TRANSACTIONS, 0, 0, LazyFunction("transaction_admin:describe")),
    Row(
        api.LIST_TRANSACTIONS,
        0,
        2,
        LazyFunction("transaction_admin:list_all"),
        always,
        unnamed=LazyFunction("costs:all_transactions"),
    ),
    Row(
        api.CONSUMER_GROUP_HEARTBEAT,
        0,
        1,
        LazyFunction("consumer_groups:heartbeat"),
        LazyFunction("consumer_groups:needs_blocking"),
        unnamed=LazyFunction("costs:subscription"),
    ),
    Row(
        api.CONSUMER_GROUP_DESCRIBE,
        0,
        1,
        LazyFunction("consumer_groups:describe"),
        unnamed=LazyFunction("costs:members"),
    ),
    Row(api.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, LazyFunction("telemetry:subscriptions")),
    Row(api.PUSH_TELEMETRY, 0, 0, LazyFunction("telemetry:push"), always),
    Row(
        api.LIST_CONFIG_RESOURCES,
        0,
        1,
        LazyFunction("list_config_resources:handle"),
        unnamed=LazyFunction("costs:config_names"),
    ),
    Row(
        api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        LazyFunction("describe_topic_partitions:handle"),
        unnamed=LazyFunction("costs:topic_pages"),
    ),
)

_BY_KEY: Final[dict[int, Row]] = {row.key: row for row in ROWS}


def call_directly(rows: tuple[Row, ...]) -> None:
    """Let the rows call a function directly, instead of through its LazyFunction, as soon as it is loaded."""
    for row in rows:
        for name in ("handler", "blocks", "unnamed"):
            function = getattr(row, name)
            if isinstance(function, LazyFunction):
                function.replace_in(row, name)


call_directly(ROWS)


def find(key: int) -> Row | None:
    """Return the row of an API key; None if the API is not served."""
    return _BY_KEY.get(key)


def native_apis(find_row: Callable[[int], Row | None] = find) -> tuple[NativeApi, NativeApi]:
    """Return the rows of Produce and Fetch in the form that connections need to serve these APIs in C."""
    return _native_api(find_row(api.PRODUCE)), _native_api(find_row(api.FETCH))


def _native_api(row: Row | None) -> NativeApi:
    assert row is not None, "every table has these"
    return row.key, row.oldest, row.newest, api.APIS[row.key].flexible_from


def unsupported_api_versions(correlation_id: int) -> bytes:
    """Return the response frame for an ApiVersions request of an unknown version (KIP-511).

    The body has version 0, which every client can read, and one row: the versions of ApiVersions. The client then
    retries with a lower version. It would not retry after a closed connection or after a body of the requested version.
    """
    from kafkalite.wire.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

    row = _BY_KEY[API_VERSIONS_KEY]
    known = ApiVersion(api_key=row.key, min_version=row.advertised, max_version=row.newest)
    return row.encode(
        0, correlation_id, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
    )


def _check() -> None:
    """Assert that the table is sorted, has no key twice, and has only versions for which there are messages."""
    keys = [row.key for row in ROWS]
    assert keys == sorted(set(keys)), "the API table is not sorted, or has a key twice"
    for row in ROWS:
        known = api.APIS[row.key]
        assert known.oldest <= row.oldest <= row.newest <= known.newest, f"{row.name}: versions without a message"
        assert row.advertised <= row.oldest, f"{row.name}: serves versions it does not advertise"


_check()
