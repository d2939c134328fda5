"""Build the response to a request that fails as a whole: its items get the same error code.

    request ─▶ its lists of topics, partitions, groups ... ─▶ the same lists in the response, each item with the code

The table LISTS maps the lists of a response to the lists of its request. Items keep the fields that identify them
(topic, partition, group). The top-level error code is the same, too, but NONE in a Fetch response with topics and in a
Metadata response with a `view`. A Produce request with acks=0 gets no response. Pure functions, any thread. Source:
AbstractRequest.getErrorResponse of Kafka.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.schema import covers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.model import Endpoint

_TOPICS: Final = {"topics": ("topics",), "partitions": ("partitions", "partition_indexes")}
LISTS: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = {
    api.PRODUCE: {"responses": ("topic_data",), "partition_responses": ("partition_data",)},
    api.FETCH: {"responses": ("topics",), "partitions": ("partitions",)},
    api.LIST_OFFSETS: _TOPICS,
    api.METADATA: {"topics": ("topics",)},
    api.OFFSET_COMMIT: _TOPICS,
    api.OFFSET_FETCH: {"groups": ("groups",), **_TOPICS},
    api.FIND_COORDINATOR: {"coordinators": ("coordinator_keys",)},
    api.DESCRIBE_GROUPS: {"groups": ("groups",)},
    api.CREATE_TOPICS: {"topics": ("topics",)},
    api.DELETE_TOPICS: {"responses": ("topics", "topic_names")},
    api.DELETE_RECORDS: _TOPICS,
    api.OFFSET_FOR_LEADER_EPOCH: _TOPICS,
    api.ADD_PARTITIONS_TO_TXN: {
        "results_by_topic_v3_and_below": ("v3_and_below_topics",),
        "results_by_partition": ("partitions",),
    },
    api.WRITE_TXN_MARKERS: {"markers": ("markers",), **_TOPICS},
    api.TXN_OFFSET_COMMIT: _TOPICS,
    api.CREATE_ACLS: {"results": ("creations",)},
    api.DELETE_ACLS: {"filter_results": ("filters",)},
    api.DESCRIBE_CONFIGS: {"results": ("resources",)},
    api.ALTER_CONFIGS: {"responses": ("resources",)},
    api.ALTER_REPLICA_LOG_DIRS: {"results": ("topics",), "partitions": ("partitions",)},
    api.CREATE_PARTITIONS: {"results": ("topics",)},
    api.DELETE_GROUPS: {"results": ("groups_names",)},
    api.ELECT_LEADERS: {"replica_election_results": ("topic_partitions",), "partition_result": ("partitions",)},
    api.INCREMENTAL_ALTER_CONFIGS: {"responses": ("resources",)},
    api.ALTER_PARTITION_REASSIGNMENTS: {"responses": ("topics",), "partitions": ("partitions",)},
    api.ALTER_CLIENT_QUOTAS: {"entries": ("entries",), "entity": ("entity",)},
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"results": ("users",)},
    api.ALTER_USER_SCRAM_CREDENTIALS: {"results": ("upsertions", "deletions")},
    api.DESCRIBE_PRODUCERS: _TOPICS,
    api.DESCRIBE_TRANSACTIONS: {"transaction_states": ("transactional_ids",)},
    api.CONSUMER_GROUP_DESCRIBE: {"groups": ("group_ids",)},
    api.DESCRIBE_TOPIC_PARTITIONS: {"topics": ("topics",)},
}
"""API → list in its response → lists of the request with the same items. Other lists of the response are empty."""

_NAMES: Final = {
    **{
        name: (name,)
        for name in ("name", "topic", "topic_id", "index", "partition", "group_id", "key", "transactional_id")
    },
    "partition_index": ("partition_index", "partition"),
    "partition_id": ("partition_id",),
    "topic_name": ("name",),
    "user": ("name",),
    "producer_id": ("producer_id",),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
    "entity_type": ("entity_type",),
    "entity_name": ("entity_name",),
}
"""Field that identifies an item of the response → the request's fields for it."""
_NAMED_BY_VALUE: Final = frozenset({"name", "partition_index", "partition_id", "group_id", "key", "transactional_id"})
"""Fields whose value is the request's list item itself if the item is a number or text instead of a struct."""
_UNKNOWN: Final = {"base_offset": -1, "high_watermark": -1, "node_id": -1}
"""Values of fields that are unknown in an error response, if they differ from the message's defaults."""


class MetadataView(NamedTuple):
    """The facts about this broker that a Metadata response reports even with an error."""

    node_id: int
    cluster_id: str
    endpoint: Endpoint
    topics: Iterable[str]


def error_answer(key: int, version: int, request: Any, code: int, text: str, view: MetadataView | None = None) -> Any:
    """Return the response message for an error; None for Produce with acks=0, whose error must close the connection.

    Without a `view` a Metadata response has only the error.
    """
    known = api.APIS[key]
    namespace = vars(import_module(f"kafkalite.wire.protocol.messages.{known.module}"))
    if key == api.PRODUCE and request.acks == 0:
        return None
    if key == api.ALTER_REPLICA_LOG_DIRS:
        request = SimpleNamespace(topics=[topic for directory in request.dirs for topic in directory.topics])
    builder = _Builder(namespace, LISTS.get(key, {}), code, text, version)
    response = builder.make(namespace[f"{known.name}Response"], request, top=True)
    if key == api.METADATA and view is not None:
        _complete_metadata(response, namespace, request, view, code)
    elif key == api.FETCH:
        response.session_id = request.session_id
        if response.responses:
            response.error_code = ErrorCode.NONE
    elif key == api.DESCRIBE_LOG_DIRS:
        response.results = [namespace["DescribeLogDirsResult"](error_code=code)]
    return response


class _Builder:
    def __init__(
        self, namespace: Mapping[str, Any], lists: Mapping[str, tuple[str, ...]], code: int, text: str, version: int
    ) -> None:
        self._namespace = namespace
        self._lists = lists
        self._code = code
        self._text = text
        self._version = version

    def make(self, kind: Any, source: Any, *, top: bool = False) -> Any:
        made = kind()
        for name, type_, versions, *_ in kind.FIELDS:
            if not covers(versions, self._version):
                continue
            if name in {"error_code", "partition_error_code"}:
                setattr(made, name, self._code)
            elif name == "error_message":
                setattr(made, name, self._text)
            elif name in _UNKNOWN:
                setattr(made, name, _UNKNOWN[name])
            elif type_.startswith("[]") and name in self._lists:
                item = self._namespace[type_.removeprefix("[]")]
                setattr(made, name, [self.make(item, one) for one in checkpointed(self._named(source, name))])
            elif not top and name in _NAMES:
                self._name(made, name, source)
        return made

    def _named(self, source: Any, name: str) -> list[Any]:
        found = (getattr(source, other, None) for other in self._lists[name])
        return next((items for items in found if items), [])

    @staticmethod
    def _name(made: Any, name: str, source: Any) -> None:
        if isinstance(source, int | str):
            if name in _NAMED_BY_VALUE:
                setattr(made, name, source)
            return
        for other in _NAMES[name]:
            if hasattr(source, other):
                setattr(made, name, getattr(source, other))
                return


def _complete_metadata(
    response: Any, namespace: Mapping[str, Any], request: Any, view: MetadataView, code: int
) -> None:
    """Add this broker to a Metadata response. If the request names no topics, add all topics with the error."""
    broker = namespace["MetadataResponseBroker"]
    response.brokers = [broker(node_id=view.node_id, host=view.endpoint.host, port=view.endpoint.port)]
    response.cluster_id = view.cluster_id
    response.controller_id = view.node_id
    if not request.topics:
        topic = namespace["MetadataResponseTopic"]
        response.topics = [topic(error_code=code, name=name) for name in view.topics]
    response.error_code = ErrorCode.NONE
