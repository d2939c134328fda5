"""Show transactional ids with their states, and open transactions that block read_committed consumers.

A transaction hangs if it is open in a partition but not at a coordinator (KIP-664). Only an abort ends it.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.console.requests import ConflictError, Done, NotFoundError, whole
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.client.admin.transactions import TransactionDescription, TransactionListing
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.console.requests import Request
    from kafkalite.console.sampler import Sampler

SHOWN_MAX: Final = 200
DESCRIBED_MAX: Final = 50
HELD_MAX: Final = 50
OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


class Transactions:
    """The page about all transactions.

    If the cluster has many partitions, the page does not check all of them. It checks the partitions of open
    transactions, and the partitions where the sampler found an open transaction up to a minute ago. A hanging
    transaction is older.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the transactional ids, open ones first with details, and the partitions that open transactions
        block."""
        sought = request.text("q")
        listed = client.transactions.list()
        low = sought.lower()
        listed.sort(key=lambda row: (row.state not in OPEN, low not in row.transactional_id.lower()))
        known = described(client, [row.transactional_id for row in listed if row.state in OPEN][:DESCRIBED_MAX])
        found = [row for row in listed if low in row.transactional_id.lower()]
        seen = self._sampler.held
        if seen is None:
            keys = led(request.topics(client))
        else:
            wanted = {*seen.partitions, *(key for row in known.values() for key in row.partitions)}
            keys = led(client.described({key.topic for key in wanted})) & wanted
        held, complete = held_back(client, keys, {row.producer_id: row for row in listed})
        return {
            "q": sought,
            "count": len(found),
            "transactions": [details(row, known.get(row.transactional_id)) for row in found[:SHOWN_MAX]],
            "held": held,
            "held_complete": complete,
            "seen": 0 if seen is None else seen.time_ms,
        }


def led(topics: Mapping[str, TopicDescription]) -> set[TopicPartition]:
    """Return the partitions of these topics that have a leader."""
    return {
        TopicPartition(name, row.partition)
        for name, topic in topics.items()
        for row in topic.partitions
        if row.leader >= 0
    }


def described(client: Client, ids: Iterable[str]) -> dict[str, TransactionDescription]:
    """Return transactional id → description from its coordinator. Ids that cannot be described are left out."""
    found = {}
    for name in ids:
        with contextlib.suppress(KafkaError, ClientError):
            found[name] = client.transactions.describe(name)
    return found


def details(row: TransactionListing, known: TransactionDescription | None) -> dict[str, Any]:
    """Return a transactional id as plain data, with details if its transaction is open."""
    begun = known is not None and known.start_ms > 0
    return {
        "id": row.transactional_id,
        "producer": row.producer_id,
        "state": row.state,
        "open": row.state in OPEN,
        "seconds": max(time.time() - known.start_ms / 1000, 0.0) if known is not None and begun else None,
        "partitions": [] if known is None else [str(key) for key in known.partitions],
    }


def held_back(
    client: Client, keys: set[TopicPartition], by_producer: Mapping[int, TransactionListing]
) -> tuple[list[dict[str, Any]], bool]:
    """Return (open transactions, whether all partitions with open transactions were examined).

    A partition has an open transaction if its last stable offset is below its end offset.
    """
    ends = client.list_offsets(dict.fromkeys(sorted(keys), OFFSET_LATEST))
    stable = client.list_offsets(dict.fromkeys(ends, OFFSET_LATEST), isolation=READ_COMMITTED)
    behind = [key for key in ends if stable[key].offset < ends[key].offset]
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


# --- the end of one that hangs ----------------------------------------------------------------------------------------


def place_of(request: Request) -> tuple[TopicPartition, int]:
    """Parse the partition and the start offset of a transaction from the path."""
    topic, number, offset = request.values
    return TopicPartition(topic, whole(number, "partition")), whole(offset, "offset")


def abort_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the transaction to abort, and whether its producer may still end it."""
    where, start = place_of(request)
    found = next((one for one in client.transactions.open_in(where) if one.start_offset == start), None)
    if found is None:
        raise NotFoundError(
            f"no open transaction starts at offset {start} of {where}; it may have ended in the meantime"
        )
    owner = next((row for row in client.transactions.list() if row.producer_id == found.producer_id), None)
    return {
        "topic": where.topic,
        "partition": where.partition,
        "name": str(where),
        "start": start,
        "producer": found.producer_id,
        "epoch": found.producer_epoch,
        "last": found.last_timestamp,
        "id": "" if owner is None else owner.transactional_id,
        "hangs": owner is None or owner.state not in OPEN,
    }


def abort_action(client: Client, request: ActionRequest) -> Done:
    """Write the abort marker (KIP-664), if the transaction is still the one that was shown.

    The field `confirm` must be the partition's name.
    """
    where, start = place_of(request)
    request.require_name(str(where))
    shown = request.number("producer", -1, 0, 2**62)
    found = next((one for one in client.transactions.open_in(where) if one.start_offset == start), None)
    if found is None or found.producer_id != shown:
        raise ConflictError(f"the transaction at offset {start} of {where} is no longer the one shown; reload the page")
    client.transactions.abort(where, start)
    request.bench.deed.detail.update(producer=found.producer_id, epoch=found.producer_epoch)
    return Done("/transactions?done=aborted", {"aborted": str(where), "start": start, "producer": found.producer_id})
