"""Show topics: the list, and one topic with its partitions, consumer groups and settings.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.chart_sets import WINDOWS
from kafkalite.console.settings_rows import settings_rows
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client import Client
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.console.requests import Request

PAGE_SIZE: Final = 100
GROUPS_MAX: Final = 2000
"""Groups whose offsets are read for one page."""


def topics_page(client: Client, request: Request) -> dict[str, Any]:
    """Return one page of the list of topics whose names contain a text, with counts and sizes."""
    sought, page = request.text("q"), request.number("page", 1, 1, 10**6)
    internal = request.flag("internal")
    known = request.topics(client)
    kept = [name for name, row in known.items() if internal or not row.is_internal]
    names = [name for name in kept if sought.lower() in name.lower()]
    described = client.described(names[(page - 1) * PAGE_SIZE : page * PAGE_SIZE])
    counts = counted(client, described.values())
    return {
        "topics": [{"name": name, **counts[name]} for name in sorted(described)],
        "count": len(names),
        "hidden": 0 if internal else sum(row.is_internal for row in known.values()),
        "q": sought,
        "internal": internal,
        "page": page,
        "pages": max(1, -(-len(names) // PAGE_SIZE)),
    }


def counted(client: Client, topics: Iterable[TopicDescription]) -> dict[str, dict[str, Any]]:
    """Return topic → numbers of partitions, offline partitions, records (an upper bound, from the offsets) and bytes.

    Records and bytes are None if no broker responds, if the client is not authorized, or if no partition has a leader.
    """
    listed = list(topics)
    keys = [
        TopicPartition(topic.name, row.partition) for topic in listed for row in topic.partitions if row.leader >= 0
    ]
    try:
        starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
        ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    except (KafkaError, ClientError):
        starts, ends = {}, {}
    sizes = sizes_of(client, keys)
    found: dict[str, dict[str, Any]] = {}
    for topic in listed:
        own = [key for key in keys if key.topic == topic.name]
        known = own and all(key in starts and key in ends for key in own)
        found[topic.name] = {
            "partitions": len(topic.partitions),
            "offline": sum(row.leader < 0 for row in topic.partitions),
            "records": sum(ends[key].offset - starts[key].offset for key in own) if known else None,
            "bytes": sum(sizes[key] for key in own) if own and all(key in sizes for key in own) else None,
        }
    return found


def sizes_of(client: Client, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the bytes of each partition on the disk of its leader. Empty if the client is not authorized."""
    try:
        return client.admin.partition_sizes(keys)
    except (KafkaError, ClientError):
        return {}


def topic_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the page of one topic."""
    topic = client.topic(request.values[0])
    keys = [TopicPartition(topic.name, row.partition) for row in topic.partitions if row.leader >= 0]
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    sizes = sizes_of(client, keys)
    partitions = []
    for row in topic.partitions:
        key = TopicPartition(topic.name, row.partition)
        start, end = starts.get(key), ends.get(key)
        partitions.append(
            {
                "partition": row.partition,
                "leader": row.leader if row.leader >= 0 else None,
                "replicas": list(row.replicas),
                "in_sync": list(row.in_sync),
                "start": None if start is None else start.offset,
                "end": None if end is None else end.offset,
                "bytes": sizes.get(key),
            }
        )
    groups, complete = groups_of(client, topic.name, {key: row.offset for key, row in ends.items()})
    return {
        "window": request.choice("window", WINDOWS),
        "name": topic.name,
        "id": uuid_text(topic.topic_id) if any(topic.topic_id) else "",
        "internal": topic.is_internal,
        "partitions": partitions,
        "groups": groups,
        "groups_complete": complete,
        "settings": settings_of(client, topic.name),
    }


def groups_of(client: Client, topic: str, ends: dict[TopicPartition, int]) -> tuple[list[dict[str, Any]], bool]:
    """Return (groups with committed offsets for a topic, whether all groups could be read)."""
    try:
        names = [row.group_id for row in client.groups.list()]
        listed = client.groups.progress(frozenset(names[:GROUPS_MAX]))
    except (KafkaError, ClientError):
        return [], False
    found = []
    complete = len(names) <= GROUPS_MAX
    for row, committed in listed:
        if committed is None:
            complete = False
            continue
        own = [key for key in committed if key.topic == topic]
        if own:
            lag = sum(max(ends[key] - committed[key], 0) for key in own if key in ends)
            found.append({"group": row.group_id, "state": row.state, "partitions": len(own), "lag": lag})
    return found, complete


def settings_of(client: Client, topic: str) -> list[dict[str, Any]] | None:
    """Return the topic's settings, overridden settings first. Secrets have no value.

    None if the settings cannot be read, for example without authorization.
    """
    try:
        entries = client.admin.describe_topic_configs(topic)
    except (KafkaError, ClientError):
        return None
    return settings_rows(entries)
