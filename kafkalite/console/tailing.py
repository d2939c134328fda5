"""Serve the live tail of a topic: the page's script polls for the records since its last request.

    after = 0:1842,1:77 (the cursor: PARTITION:OFFSET) ─▶ wait at most a second for new records
                        ─▶ records, a new `after`, number of skipped records

The server keeps no state between requests. If there are too many records, the oldest are skipped and counted.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.console.messages import PARTITIONS_MAX, Damage, line, oldest
from kafkalite.console.requests import NUMBER_DIGITS_MAX, BadRequestError, NotFoundError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.wire.record.columns import Record

    Offsets = dict[TopicPartition, int]

ROWS_MAX: Final = 200
LOOKED_AT_MAX: Final = 5000
"""Maximum records that a filter examines per request."""
SIZE_MAX: Final = 4 * 1024 * 1024
"""Maximum bytes of keys and values, likewise."""
WAIT_S: Final = 1.0
PAUSE_S: Final = 0.1


def tail_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the data of the page. With `after`, it has the records since that cursor. `waited` is true if the request
    has waited.
    """
    name = request.values[0]
    topic = client.topic(name)
    sought, chosen = request.text("q"), request.text("partition")
    keys = [TopicPartition(name, row.partition) for row in topic.partitions if row.leader >= 0]
    if chosen:
        keys = [key for key in keys if key.partition == request.number("partition", 0, 0, 2**31 - 1)]
        if not keys:
            raise NotFoundError(f"{name} has no partition {chosen} with a leader")
    shown = keys[:PARTITIONS_MAX]
    ends = ends_of(client, shown)
    after = after_of(name, request.text("after"), ends)
    waited = ends == after and request.text("after") != "" and wait(client, request, after, ends)
    rows, looked, left_out = came(client, request, after, ends, sought)
    return {
        "name": name,
        "partitions": [row.partition for row in topic.partitions],
        "partition": chosen,
        "q": sought,
        "after": ",".join(f"{key.partition}:{offset}" for key, offset in sorted(ends.items())),
        "records": rows,
        "passed": sum(ends[key] - after[key] for key in ends),
        "looked": looked,
        "left_out": left_out,
        "partitions_left_out": len(keys) - len(shown),
        "waited": waited,
    }


def ends_of(client: Client, keys: Iterable[TopicPartition]) -> Offsets:
    """Return the offset up to which each partition can be read."""
    found = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
    return {key: row.offset for key, row in found.items()}


def after_of(topic: str, text: str, ends: Offsets) -> Offsets:
    """Parse the cursor. Raises BadRequestError if it is invalid.

    A partition begins at its end if the cursor lacks it, or if the partition is shorter than the cursor says.
    """
    named: Offsets = {}
    for part in filter(None, text.split(",")):
        number, colon, offset = part.partition(":")
        if not colon or any(not each.isdecimal() or len(each) > NUMBER_DIGITS_MAX for each in (number, offset)):
            raise BadRequestError("parameter after must contain PARTITION:OFFSET pairs, separated by commas")
        named[TopicPartition(topic, int(number))] = int(offset)
    return {key: min(named.get(key, end), end) for key, end in ends.items()}


def wait(client: Client, request: ActionRequest, after: Offsets, ends: Offsets) -> bool:
    """Wait at most a second for new records, and update `ends`. Return False if too many requests are waiting
    already, so that workers remain for other requests.
    """
    waiting = request.bench.desk.waiting
    if not waiting.acquire(blocking=False):
        return False
    try:
        deadline = time.monotonic() + WAIT_S
        while ends == after and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            ends.update(ends_of(client, after))
    finally:
        waiting.release()
    return True


def came(
    client: Client, request: ActionRequest, after: Offsets, ends: Offsets, sought: str
) -> tuple[list[dict[str, Any]], int, int]:
    """Return (newest records between two cursors, number of records examined, number of offsets skipped)."""
    behind = [key for key in ends if ends[key] > after[key]]
    if not behind:
        return [], 0, 0
    share = max((LOOKED_AT_MAX if sought else ROWS_MAX) // len(behind), 1)
    firsts = client.list_offsets(dict.fromkeys(behind, OFFSET_EARLIEST))
    needle = sought.encode()
    rows: list[dict[str, Any]] = []
    looked = left_out = size = 0
    damage = Damage()
    for key in behind:
        start = max(after[key], ends[key] - share, firsts[key].offset)
        left_out += start - after[key]
        for _, record in oldest(client, key, start, ends[key], share, damage):
            if size > SIZE_MAX:
                left_out += ends[key] - record.offset
                break
            looked += 1
            size += len(record.key or b"") + len(record.value or b"")
            if not sought or holds(request.masks.masked(key.topic, record), needle):
                rows.append(line(request, key, record))
    left_out += sum(row["last"] - row["first"] + 1 for row in damage.rows())
    rows.sort(key=lambda row: (row["timestamp"], row["offset"]))
    return rows[-ROWS_MAX:], looked, left_out + max(len(rows) - ROWS_MAX, 0)


def holds(record: Record, needle: bytes) -> bool:
    """Return whether a key, value or header contains a text."""
    return any(
        raw is not None and needle in raw
        for raw in (
            record.key,
            record.value,
            *(value for _, value in record.headers),
            *(name.encode() for name, _ in record.headers),
        )
    )
