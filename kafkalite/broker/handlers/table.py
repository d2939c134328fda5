"""THE table of APIs: key, versions, handler, and whether it may block. ApiVersions is answered from it.

`advertised` is the range clients are told, `oldest` the first version really served. They differ for Produce alone:
librdkafka before 2.11.1 turns compression off unless the range begins at 0 (KAFKA-18659), while Kafka 4 and this broker
refuse 0 to 2. Produce and Fetch are served in C by the connection, which is given their rows (`native_apis`).

Whether a request may block is said by a function of (context, request), as it is answered by one: `never`, `always`, or
one of the handler's module. Handlers are imported when first called, so that starting loads none of them.

Thread rule: immutable but for what a LazyFunction has loaded, which two threads may both load, and find the same.
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
"""request.max.partitions where nobody says otherwise."""
OBJECTS_PER_PARTITION: Final = 5
"""What one partition may decode to at most in an honest request: its struct, a topic of its own, the topic's name, and
room for short lists. The codec counts structs and list items, not partitions."""


INLINE_US: Final = 1_000
"""What a request may cost a network thread by the estimate of its row; one that costs more runs on the thread for long
requests (`kafkalite.broker.limits.long_requests`). A slow machine takes twice as long as the estimates say."""


INLINE_SIZE: Final = 4096
"""The most bytes of a body that a network thread decodes: of one-byte items that takes half a millisecond."""
BYTE_US: Final = INLINE_US / 2 / INLINE_SIZE
"""What a byte of a body costs to decode at most."""
SHORT_SIZE: Final = 128
"""The bytes of a body whose items are not counted: it counts as one item."""
REQUEST_US: Final = 30.0
"""What a request costs that names nothing."""
ITEM_US: Final = 5.0
"""What an item of a request costs where its row says nothing else: decoding, handling, encoding and freeing it."""


class LazyFunction:
    """The function of "module:function" in this room, imported when first called. The rows of `replace_in` call the
    function itself from then on."""

    __slots__ = ("_function", "_path", "_rows")

    def __init__(self, path: str) -> None:
        self._path = path
        self._function: Callable[[RequestContext, Any], Any] | None = None
        self._rows: list[tuple[Row, str]] = []

    def replace_in(self, row: Row, name: str) -> None:
        """Stores the function in this attribute of a row when it is loaded. For rows that live as long as the table."""
        self._rows.append((row, name))

    def __call__(self, context: RequestContext, request: Any) -> Any:
        return (self._function or self.load())(context, request)

    def load(self) -> Callable[[RequestContext, Any], Any]:
        """Imports it."""
        module, _, function = self._path.partition(":")
        loaded: Callable[[RequestContext, Any], Any] = getattr(
            import_module(f"kafkalite.broker.handlers.{module}"), function
        )
        self._function = loaded
        for row, name in self._rows:
            setattr(row, name, loaded)
        return loaded


def never(_context: RequestContext, _request: Any) -> bool:
    """A request that is answered on a network worker."""
    return False


def always(_context: RequestContext, _request: Any) -> bool:
    """A request that runs on the I/O pool."""
    return True


def served_in_c(_context: RequestContext, _request: Any) -> Any:
    """Of APIs whose requests the connection answers: none comes here."""
    raise AssertionError("served in C")


class Row:
    """One API as this broker serves it: `handler` gives the response, `blocks` says whether it needs the I/O pool.


    `item_us` and `unnamed` estimate what a request costs in microseconds: for each item that it names, and for what it
    does not name, because a null list means everything, or one name stands for a lot.
    """

    __slots__ = (
        "advertised", "blocks", "handler", "in_order", "item_us", "key", "name", "newest", "oldest", "short_us",
        "unnamed",
    )  # fmt: skip

    @property
    def gated(self) -> bool:
        """Whether this broker's authoriser is asked who may come through the API's gate."""
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
        """`in_order`: what its connection sends after a request takes effect after it, even where it waits."""
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
        """What a body of at most SHORT_SIZE costs, without what it does not name."""
        self.unnamed = unnamed

    def cost_us(self, context: RequestContext, request: Any) -> float:
        """Microseconds that a decoded request is expected to take."""
        named = REQUEST_US + self.item_us * protocol.request_program(self.key, context.api_version).count_items(request)
        return named if self.unnamed is None else named + self.unnamed(context, request)

    def quick_cost_us(self, context: RequestContext, request: Any, size: int) -> float:
        """`cost_us`, without a look at the items of a body of so few bytes that they cannot be many."""
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
        """The request; ValueError (DecodeError) if the bytes are not one, or name far more partitions than allowed.

        `pace` is called in between, as in `Program.decode`, and in `encode` and `release`.
        """
        objects_max = partitions_max * OBJECTS_PER_PARTITION
        return protocol.decode_request(self.key, version, body, objects_max=objects_max, pace=pace)

    def message(self, _version: int, response: object) -> object:
        """The response as a message, whatever the handler gave."""
        return response

    def encode(
        self, version: int, correlation_id: int, response: object, pace: Callable[[int], object] | None = None
    ) -> bytes:
        """The whole response frame."""
        return protocol.encode_response_frame(self.key, version, correlation_id, response, pace)

    def release(self, version: int, request: Any, response: object, pace: Callable[[], object]) -> None:
        """Frees both, which are of no use afterwards, in portions."""
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
    """Has the rows of a table call their functions without the LazyFunction in between, once these are loaded."""
    for row in rows:
        for name in ("handler", "blocks", "unnamed"):
            function = getattr(row, name)
            if isinstance(function, LazyFunction):
                function.replace_in(row, name)


call_directly(ROWS)


def find(key: int) -> Row | None:
    """The row of an API key, None when it is not served."""
    return _BY_KEY.get(key)


def native_apis(find_row: Callable[[int], Row | None] = find) -> tuple[NativeApi, NativeApi]:
    """Produce and Fetch, for the connections that serve them in C: these versions they serve, others come here."""
    return _native_api(find_row(api.PRODUCE)), _native_api(find_row(api.FETCH))


def _native_api(row: Row | None) -> NativeApi:
    assert row is not None, "every table has these"
    return row.key, row.oldest, row.newest, api.APIS[row.key].flexible_from


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The whole frame that answers an ApiVersions request of an unknown version (KIP-511).

    The oldest body, which every client can read, with the one row that tells it which version to ask in. Neither a
    closed connection nor a body of the version asked for would do: clients do not step down from either.
    """
    from kafkalite.wire.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

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
