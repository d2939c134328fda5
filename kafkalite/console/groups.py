"""Show consumer groups: the list with lag, and one group with its members and partitions.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.chart_sets import WINDOWS
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.requests import Request

PAGE_SIZE: Final = 100


def groups_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the data of the list of groups whose names contain a text, with their lag."""
    sought, page = request.text("q"), request.number("page", 1, 1, 10**6)
    listed = [row.group_id for row in client.groups.list() if sought.lower() in row.group_id.lower()]
    shown = client.groups.progress(frozenset(listed[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]))
    ends = ends_of(client, {key for _, found in shown if found is not None for key in found})
    rows = []
    for row, found in shown:
        rows.append(
            {
                "group": row.group_id,
                "state": row.state,
                "protocol": row.kind,
                "topics": None if found is None else len({key.topic for key in found}),
                "lag": None
                if found is None
                else sum(max(ends[key] - offset, 0) for key, offset in found.items() if key in ends),
            }
        )
    return {
        "groups": rows,
        "count": len(listed),
        "q": sought,
        "page": page,
        "pages": max(1, -(-len(listed) // PAGE_SIZE)),
    }


def ends_of(client: Client, keys: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of those partitions that exist and have a leader."""
    topics = client.described({key.topic for key in keys})
    led = {
        TopicPartition(name, row.partition)
        for name, topic in topics.items()
        for row in topic.partitions
        if row.leader >= 0
    }
    try:
        return {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys & led, OFFSET_LATEST)).items()}
    except (KafkaError, ClientError):
        return {}


def group_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the data of the page about one group."""
    group = client.groups.describe(request.values[0])
    rows = [
        {
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "committed": row.committed,
            "end": row.end,
            "lag": row.lag,
            "member": None if row.member is None else row.member.member_id,
        }
        for row in client.groups.partitions(group)
    ]
    return {
        "window": request.choice("window", WINDOWS),
        "group": group.group_id,
        "state": group.state,
        "protocol": group.kind,
        "assignor": group.protocol,
        "lag": sum(row["lag"] for row in rows if isinstance(row["lag"], int)),
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": len(member.partitions),
            }
            for member in group.members
        ],
        "partitions": rows,
    }
