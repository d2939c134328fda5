"""Transactions: ids and their states, and what holds back readers of committed records, with what hangs among it.

A transaction hangs when a partition has it open and its coordinator knows nothing of it (KIP-664): nothing ends it by
itself. Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client import Client
    from kafkalite.client.admin.transactions import TransactionListing
    from kafkalite.console.requests import Request

SHOWN_MAX: Final = 200
DESCRIBED_MAX: Final = 50
HELD_MAX: Final = 50
OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


def transactions_page(client: Client, request: Request) -> dict[str, Any]:
    """Ids, those that are open first and with details; partitions that one holds back."""
    sought = request.text("q")
    listed = client.transactions.list()
    found = sorted(
        (row for row in listed if sought.lower() in row.transactional_id.lower()),
        key=lambda row: (row.state not in OPEN, row.transactional_id),
    )
    held, complete = held_back(client, {row.producer_id: row for row in listed})
    return {
        "q": sought,
        "count": len(found),
        "transactions": [details(client, row, place) for place, row in enumerate(found[:SHOWN_MAX])],
        "held": held,
        "held_complete": complete,
    }


def details(client: Client, row: TransactionListing, place: int) -> dict[str, Any]:
    """One id; what is open is described."""
    found: dict[str, Any] = {
        "id": row.transactional_id,
        "producer": row.producer_id,
        "state": row.state,
        "open": row.state in OPEN,
        "seconds": None,
        "partitions": [],
    }
    if row.state not in OPEN or place >= DESCRIBED_MAX:
        return found
    try:
        known = client.transactions.describe(row.transactional_id)
    except (KafkaError, ClientError):
        return found
    found["partitions"] = [str(key) for key in known.partitions]
    if known.start_ms > 0:
        found["seconds"] = max(time.time() - known.start_ms / 1000, 0.0)
    return found


def held_back(client: Client, by_producer: Mapping[int, TransactionListing]) -> tuple[list[dict[str, Any]], bool]:
    """Partitions whose last stable offset is not their end, with who holds it; and whether these are all."""
    topics = client.with_retries(client.topics)
    keys = [
        TopicPartition(name, row.partition)
        for name, topic in topics.items()
        for row in topic.partitions
        if row.leader >= 0
    ]
    stable = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    behind = [key for key in keys if stable[key].offset < ends[key].offset]
    rows = []
    for key in behind[:HELD_MAX]:
        try:
            opened = client.transactions.open_in(key)
        except (KafkaError, ClientError):
            continue
        for one in opened:
            owner = by_producer.get(one.producer_id)
            rows.append(
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "start": one.start_offset,
                    "waiting": ends[key].offset - one.start_offset,
                    "producer": one.producer_id,
                    "id": "" if owner is None else owner.transactional_id,
                    "hangs": owner is None or owner.state not in OPEN,
                    "seconds": max(time.time() - one.last_timestamp / 1000, 0.0) if one.last_timestamp > 0 else None,
                }
            )
    return rows, len(behind) <= HELD_MAX
