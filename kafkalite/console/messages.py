"""Show messages: the records of a topic from a position on, and a single record.

Records are masked before they are shown.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.base.times import time_ms
from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.read.damage import next_readable
from kafkalite.console.rendering import SIZE_MAX, cell, shown, visible
from kafkalite.console.requests import BadRequestError, NotFoundError, Request, whole
from kafkalite.console.rows import rows_of
from kafkalite.errors import CorruptMessage, OffsetOutOfRange
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.wire.record.columns import BytesColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite.client import Client
    from kafkalite.console.rendering import Shown
    from kafkalite.wire.record.columns import Record

COUNT_DEFAULT, COUNT_MAX = 50, 200
FETCH_SIZE: Final = 1024 * 1024
PARTITIONS_MAX: Final = 64
"""Partitions read for one page; with more, the user selects one."""
LOOKS_MAX: Final = 6
"""Number of times a page of newest records reads further back, if compaction left few."""
FROM: Final = ("newest", "oldest", "offset", "time")
KINDS: Final = ("auto", "text", "json", "hex", "avro")


def messages_page(client: Client, request: Request) -> dict[str, Any]:
    """Return records of a topic or partition: the newest, the oldest, or those from an offset or time on."""
    name = request.values[0]
    topic = client.topic(name)
    count = request.number("count", COUNT_DEFAULT, 1, COUNT_MAX)
    start = request.choice("from", FROM)
    keys = [TopicPartition(name, row.partition) for row in topic.partitions if row.leader >= 0]
    chosen = request.text("partition")
    left_out = 0 if chosen else max(len(keys) - PARTITIONS_MAX, 0)
    if chosen:
        keys = [key for key in keys if key.partition == request.number("partition", 0, 0, 2**31 - 1)]
        if not keys:
            raise NotFoundError(f"{name} has no partition {chosen} with a leader")
    keys = keys[:PARTITIONS_MAX]
    firsts = {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST)).items()}
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
    lasts = {key: row.offset for key, row in ends.items()}
    damage = Damage()
    if start == "newest":
        before = request.number("before", 2**62, 0, 2**62)
        rows = [
            row
            for key in keys
            for row in newest(client, request, key, firsts[key], min(lasts[key], before), count, damage)
        ]
        rows.sort(key=lambda row: (row["timestamp"], row["offset"]), reverse=True)
    else:
        begins = begin_offsets(client, request, keys, start, firsts, lasts)
        found = (pair for key in keys for pair in oldest(client, key, begins[key], lasts[key], count, damage))
        rows = sorted((line(request, *pair) for pair in found), key=lambda row: (row["timestamp"], row["offset"]))
    rows = rows[:count]
    return {
        "name": name,
        "partitions": [row.partition for row in topic.partitions],
        "partition": chosen,
        "start_from": start,
        "value": request.text("value"),
        "count": count,
        "records": rows,
        "left_out": left_out,
        "damaged": damage.rows(),
        "older": older_link(request, rows, firsts[keys[0]]) if chosen else "",
        "newer": newer_link(request, rows, lasts[keys[0]]) if chosen else "",
    }


def older_link(request: Request, rows: list[dict[str, Any]], first: int) -> str:
    """Return the query of the page with the next older records; "" if there are none."""
    if not rows:
        return ""
    lowest = min(row["offset"] for row in rows)
    return request.query(**{"from": "newest", "before": lowest, "value": ""}) if lowest > first else ""


def newer_link(request: Request, rows: list[dict[str, Any]], last: int) -> str:
    """Return the query of the page with newer records."""
    if not rows:
        return ""
    following = max(row["offset"] for row in rows) + 1
    if following >= last:
        return ""
    return request.query(**{"from": "offset", "value": following, "before": ""})


def begin_offsets(
    client: Client,
    request: Request,
    keys: Iterable[TopicPartition],
    start: str,
    firsts: dict[TopicPartition, int],
    lasts: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition."""
    if start == "oldest":
        return firsts
    if start == "offset":
        offset = request.number("value", 0, 0, 2**62)
        return {key: max(offset, firsts[key]) for key in keys}
    found = client.list_offsets(dict.fromkeys(keys, time_of(request.text("value"))))
    return {key: row.offset if row.offset >= 0 else lasts[key] for key, row in found.items()}


def time_of(text: str) -> int:
    """Parse a time into ms since 1970, as kafkalite.base.times does. Raises BadRequestError."""
    try:
        return time_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise BadRequestError(str(error)) from None


class Damage:
    """Collects the damaged offsets that a page could not read."""

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, list[tuple[int, int]]] = {}

    def end_of(self, client: Client, key: TopicPartition, offset: int, end: int) -> int:
        """Return the first readable offset after a damaged offset, but at most `end`."""
        ranges = self._ranges.setdefault(key, [])
        for first, following in ranges:
            if first <= offset < following:
                return following
        following = next_readable(client, key, offset, end)
        ranges.append((offset, following))
        return following

    def rows(self) -> list[dict[str, int]]:
        """Return the damaged ranges of offsets, in order and without overlaps."""
        rows: list[dict[str, int]] = []
        for key, ranges in sorted(self._ranges.items()):
            reached = -1
            for first, following in sorted(ranges):
                if first < reached:
                    rows[-1]["last"] = max(following, reached) - 1
                else:
                    rows.append({"partition": key.partition, "first": first, "last": following - 1})
                reached = max(following, reached)
        return rows


def newest(
    client: Client, request: Request, key: TopicPartition, first: int, end: int, count: int, damage: Damage
) -> list[dict[str, Any]]:
    """Return the last `count` records before the offset `end`, as table rows. At most `count` records are in memory."""
    length = count
    rows: deque[dict[str, Any]] = deque()
    for _ in range(LOOKS_MAX):
        start = max(end - length, first)
        rows = deque((line(request, *pair) for pair in oldest(client, key, start, end, length, damage)), maxlen=count)
        if len(rows) >= count or start == first:
            break
        length *= 4
    return list(rows)


def oldest(
    client: Client, key: TopicPartition, start: int, end: int, count: int, damage: Damage | None = None
) -> Iterator[tuple[TopicPartition, Record]]:
    """Return the first `count` records from the offset `start` up to, but not including, `end`.

    Damaged records are recorded in `damage`. Without `damage`, CorruptMessage is raised.
    """
    left = count
    while start < end:
        try:
            with client.reader(
                {key: start},
                ends={key: end},
                isolation=READ_COMMITTED,
                fetch_size=FETCH_SIZE,
                chunk_count=count,
                retry_damage=False,
            ) as reader:
                for chunk in reader:
                    for record in chunk.records():
                        if left == 0:
                            return
                        left -= 1
                        yield key, record
        except OffsetOutOfRange:
            return  # retention has deleted it meanwhile
        except CorruptMessage as error:
            if damage is None or error.partition is None:
                raise
            start = damage.end_of(client, key, error.offset, end)
        else:
            return


def line(request: Request, key: TopicPartition, record: Record) -> dict[str, Any]:
    """Return a record as a table row."""
    record = request.masks.masked(key.topic, record)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": cell(record.key)._asdict(),
        "value": cell(record.value)._asdict(),
        "headers": [visible(name) for name, _ in record.headers],
    }


def message_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the data of the page about one record, with its whole key, value and headers."""
    topic, number, offset = request.values[0], whole(request.values[1], "partition"), whole(request.values[2], "offset")
    kind = request.choice("as", KINDS)
    key = TopicPartition(topic, number)
    first, end = client.start_offset(*key), client.end_offset(*key, isolation=READ_COMMITTED)
    rows = list(oldest(client, key, offset, min(offset + 1, end), 1)) if first <= offset < end else []
    if not rows:
        raise NotFoundError(f"{key} has no record at offset {offset}; its offsets are {first} to {end - 1}")
    record = request.masks.masked(topic, rows[0][1])
    return {
        "topic": topic,
        "partition": number,
        "offset": offset,
        "timestamp": record.timestamp,
        "key": value_of(request, record.key, kind)._asdict(),
        "value": value_of(request, record.value, kind)._asdict(),
        "headers": [{"name": visible(name), "value": shown(value, "auto")._asdict()} for name, value in record.headers],
        "shown_as": kind,
        "kinds": [name for name in KINDS if name != "avro" or request.documents is not None],
        "older": offset - 1 if offset > first else None,
        "newer": offset + 1 if offset + 1 < end else None,
        "row": rows_of([(key, record)], request.documents)[0] if size_of(record) <= SIZE_MAX else None,
        "origin": request.origin,
    }


def size_of(record: Record) -> int:
    """Return the size of a record in bytes."""
    pairs = [(name.encode(), value) for name, value in record.headers]
    return sum(len(raw or b"") for raw in (record.key, record.value, *(raw for pair in pairs for raw in pair)))


def value_of(request: Request, raw: bytes | None, kind: str) -> Shown:
    """Render a value: as JSON decoded from Avro if a registry has the schema, otherwise as `rendering.shown` does."""
    if raw is not None and raw[:1] == b"\0" and kind in {"auto", "avro"} and request.documents is not None:
        try:
            documents, failed = request.documents.decode(BytesColumn.from_items([raw]))
        except (RegistryRefused, RegistryUnreachable):
            failed = {0: "the registry is not available"}
        if not failed:
            text = json.dumps(documents[0], ensure_ascii=False, indent=2)
            return shown(text.encode(errors="surrogatepass"), "text")._replace(kind="avro", size=len(raw))
    return shown(raw, "auto" if kind == "avro" else kind)
