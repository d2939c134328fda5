"""Show replication: partitions with problems, and the metadata quorum.

The data comes from Metadata and DescribeQuorum. The page about the quorum requires a KRaft cluster.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.admin.quorum import describe_quorum
from kafkalite.client.errors import UnsupportedApi
from kafkalite.console.requests import NotFoundError

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.client.admin.quorum import QuorumReplica
    from kafkalite.client.cluster import PartitionDescription
    from kafkalite.console.requests import Request

PAGE_SIZE: Final = 200
BEHIND: Final = "behind"
OFFLINE: Final = "offline"
MOVED: Final = "not preferred"
SHOWN: Final = (BEHIND, OFFLINE, MOVED, "all")


def replicas_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the partitions with the selected problem, or all partitions. Each request reads the metadata."""
    wanted, sought = request.choice("show", SHOWN), request.text("q")
    page = request.number("page", 1, 1, 10**6)
    counts: Counter[str] = Counter()
    found = []
    for name, topic in client.with_retries(client.topics).items():
        for row in topic.partitions:
            matters = matters_of(row)
            counts.update(matters)
            counts["all"] += 1
            if (wanted == "all" or wanted in matters) and sought.lower() in name.lower():
                found.append((name, row, matters))
    shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return {
        "q": sought,
        "show": wanted,
        "kinds": [{"name": name, "count": counts[name]} for name in SHOWN],
        "count": len(found),
        "page": page,
        "pages": max(1, -(-len(found) // PAGE_SIZE)),
        "partitions": [partition_row(name, row, matters) for name, row, matters in shown],
    }


def matters_of(row: PartitionDescription) -> tuple[str, ...]:
    """Return the problems of a partition, () if there are none."""
    found = []
    if row.leader < 0:
        found.append(OFFLINE)
    if len(row.in_sync) < len(row.replicas):
        found.append(BEHIND)
    if row.leader >= 0 and row.replicas and row.leader != row.replicas[0]:
        found.append(MOVED)
    return tuple(found)


def partition_row(topic: str, row: PartitionDescription, matters: tuple[str, ...]) -> dict[str, Any]:
    """Return a partition as plain data."""
    return {
        "topic": topic,
        "partition": row.partition,
        "leader": row.leader if row.leader >= 0 else None,
        "replicas": list(row.replicas),
        "in_sync": list(row.in_sync),
        "missing": [node for node in row.replicas if node not in row.in_sync],
        "matters": list(matters),
    }


def quorum_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the nodes of the metadata quorum and their progress."""
    del request
    try:
        quorum = describe_quorum(client)
    except UnsupportedApi as error:
        raise NotFoundError("this cluster has no KRaft quorum; its metadata is in ZooKeeper") from error
    brokers = {row.node_id for row in client.with_retries(client.brokers)}

    def rows(found: tuple[QuorumReplica, ...]) -> list[dict[str, Any]]:
        return [
            {
                **row._asdict(),
                "leader": row.node_id == quorum.leader,
                "broker": row.node_id in brokers,
            }
            for row in found
        ]

    return {
        "leader": quorum.leader if quorum.leader >= 0 else None,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "voters": rows(quorum.voters),
        "observers": rows(quorum.observers),
    }
