"""A started broker as the judge sees it: asked over a socket, without a client library.

A partition is read from its start to its end once, batch by batch, each checksum checked; what checks ask for after
that comes from there.
"""

from __future__ import annotations

import re
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.harness.typed import TypedConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.base.clock import StoredTime

TOKEN = re.compile(rb"q(\d{8})q")
HEADER = struct.Struct(">qiibIhiqqqhii")
CONTROL, TRANSACTIONAL = 0x20, 0x10
PATIENCE_S = 20.0
LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
Key = tuple[str, int]


@dataclass(slots=True)
class Log:
    """A partition as it was read."""

    start: int = 0
    end: int = 0
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    """(offset, token or -1, producer id) of each record that is not a marker."""
    tokens: dict[int, int] = field(default_factory=dict)  # offset → token
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    """(first offset, offset behind, bytes) of each batch."""
    keys: dict[int, bytes | None] = field(default_factory=dict)  # offset → key, of compacted topics
    aborted: list[tuple[int, int]] = field(default_factory=list)  # (producer id, first offset)
    markers: list[tuple[int, int]] = field(default_factory=list)  # (offset, producer id)
    faults: list[str] = field(default_factory=list)

    @property
    def visible(self) -> set[int]:
        """The tokens that a read_committed consumer is given; for what was read to the last stable offset."""
        waiting = sorted(self.aborted, key=lambda entry: entry[1])
        hidden: set[int] = set()
        shown = set()
        events: list[tuple[int, int, int]] = [(offset, -1, producer) for offset, producer in self.markers]
        events += [(offset, token, producer) for offset, token, producer in self.rows]
        for offset, token, producer in sorted(events):
            while waiting and waiting[0][1] <= offset:
                hidden.add(waiting.pop(0)[0])
            if token < 0:
                hidden.discard(producer)
            elif producer not in hidden:
                shown.add(token)
        return shown


@dataclass(slots=True)
class Topic:
    """A topic as Metadata tells it."""

    name: str
    id: str
    partition_count: int
    internal: bool


class Look:
    """One connection to a broker that was started on a crash state."""

    def __init__(self, port: int, classic_port: int = 0) -> None:
        self.connection = TypedConnection(port, timeout_s=PATIENCE_S)
        self.classic_port = classic_port
        self.topics: dict[str, Topic] = {}
        self.logs: dict[Key, Log] = {}
        self.stored: StoredTime | None = None
        """The expiry time that the state has."""
        self.expiry_ms = 0
        """The broker's expiry time, which began at the stored one and has advanced since."""

    def close(self) -> None:
        self.connection.close()

    def ask(self, key: int, version: int, message: object) -> Any:
        """A request and its answer."""
        return self.connection.ask(key, version, message)

    def patiently(self, key: int, version: int, message: object, code: Callable[[Any], int], busy: set[int]) -> Any:
        """The answer, once it is not one of the codes that ask to come again; the last one when it stays so."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(key, version, message)
            if code(answer) not in busy or time.monotonic() > deadline:
                return answer
            time.sleep(0.002)

    def read_topics(self) -> None:
        """Which topics there are."""
        answer = self.ask(api.METADATA, 12, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        self.topics = {
            topic.name: Topic(topic.name, topic.topic_id.hex(), len(topic.partitions), topic.is_internal)
            for topic in answer.topics
        }

    def offsets(self, keys: Iterable[Key], timestamp: int, isolation: int = READ_UNCOMMITTED) -> dict[Key, int]:
        """Start or end of many partitions; an error code as a negative number below -100."""
        request = ListOffsetsRequest(isolation_level=isolation, topics=[])
        for topic, partitions in _by_topic(keys).items():
            parts = [ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in partitions]
            request.topics.append(ListOffsetsTopic(name=topic, partitions=parts))
        return {
            (topic.name, part.partition_index): part.offset if part.error_code == 0 else -100 - part.error_code
            for topic in self.ask(api.LIST_OFFSETS, 7, request).topics
            for part in topic.partitions
        }

    def read(
        self, keys: Iterable[Key], *, isolation: int = READ_UNCOMMITTED, keyed: Iterable[str] = ()
    ) -> dict[Key, Log]:
        """Reads partitions from start to end, or to the last stable offset."""
        wanted = list(keys)
        starts, ends = self.offsets(wanted, EARLIEST), self.offsets(wanted, LATEST, isolation)
        logs = {key: Log(starts[key], ends[key]) for key in wanted}
        at = {}
        for key, log in logs.items():
            if log.start < 0 or log.end < 0:
                log.faults.append(f"{_name(key)}: its start and end are {log.start} and {log.end}")
            elif log.start < log.end:
                at[key] = log.start
        with_keys = set(keyed)
        while at:
            for key, part in self.fetch(at, isolation=isolation):
                log = logs[key]
                _take(log, key, part, at[key], with_keys)
                behind = log.spans[-1][1] if part.records and log.spans else at[key]
                if log.faults or behind >= log.end:
                    del at[key]
                elif behind <= at[key]:
                    log.faults.append(
                        f"{_name(key)}: a consumer at {at[key]} gets nothing and the log ends at {log.end}"
                    )
                    del at[key]
                else:
                    at[key] = behind
        return logs

    def fetch(
        self, at: dict[Key, int], *, isolation: int = READ_UNCOMMITTED, size_max: int = 4 << 20
    ) -> Iterator[tuple[Key, Any]]:
        """One fetch of many partitions."""
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=64 << 20, isolation_level=isolation, topics=[])
        for topic, partitions in _by_topic(at).items():
            parts = [
                FetchPartition(partition=p, fetch_offset=at[topic, p], partition_max_bytes=size_max) for p in partitions
            ]
            request.topics.append(FetchTopic(topic=topic, partitions=parts))
        for topic in self.ask(api.FETCH, 11, request).responses:
            for part in topic.partitions:
                yield (topic.topic, part.partition_index), part

    def check_positions(self, keys: Iterable[Key], choose: Callable[[Key, Log], int]) -> Iterator[str]:
        """A consumer at an offset below the end is given a batch that ends behind it."""
        at = {key: choose(key, self.logs[key]) for key in keys}
        for key, part in self.fetch(at, size_max=1 << 16) if at else ():
            data = part.records or b""
            behind = -1
            if len(data) >= HEADER.size:
                fields = HEADER.unpack_from(data)
                behind = fields[0] + fields[6] + 1
            if part.error_code or behind <= at[key]:
                yield (
                    f"{_name(key)}: a consumer at {at[key]} gets error {part.error_code} and {len(data)} bytes, "
                    f"the log ends at {self.logs[key].end}"
                )

    def produce(self, batches: dict[Key, bytes], *, acks: int = -1) -> dict[Key, tuple[int, int]]:
        """One Produce of many partitions: (error, base offset) of each."""
        data = [
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=p, records=batches[topic, p]) for p in partitions],
            )
            for topic, partitions in _by_topic(batches).items()
        ]
        answer = self.ask(api.PRODUCE, 9, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data))
        return {
            (topic.name, part.index): (part.error_code, part.base_offset)
            for topic in answer.responses
            for part in topic.partition_responses
        }


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in keys:
        found.setdefault(topic, []).append(partition)
    return found


def _take(log: Log, key: Key, part: Any, offset: int, with_keys: set[str]) -> None:
    """Takes the batches of a fetched partition in."""
    if part.error_code:
        log.faults.append(f"{_name(key)}@{offset}: fetching gives error {part.error_code}")
        return
    data = part.records or b""
    log.aborted += [(entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ()]
    position = 0
    while position < len(data):
        fields = HEADER.unpack_from(data, position)
        base, length, crc, attributes, delta, producer, count = *fields[:2], *fields[4:7], fields[9], fields[12]
        end = position + 12 + length
        if crc32c(data[position + 21 : end]) != crc:
            log.faults.append(f"{_name(key)}@{base}: the checksum of a batch is wrong")
            return
        log.spans.append((base, base + delta + 1, end - position))
        if attributes & CONTROL:
            log.markers.append((base, producer))
        else:
            _take_records(log, data, position, end, base, count, producer, keyed=key[0] in with_keys)
        position = end


def _take_records(
    log: Log, data: bytes, position: int, end: int, base: int, count: int, producer: int, *, keyed: bool
) -> None:
    found = TOKEN.findall(data, position + HEADER.size, end)
    if len(found) == count and not keyed:
        for offset, digits in enumerate(found, base):
            log.rows.append((offset, int(digits), producer))
            log.tokens[offset] = int(digits)
        return
    for offset, record_key, value in wire.decode_records(wire.split_batches(data[position:end])[0]):
        digits = TOKEN.findall(value or b"")
        if value is None and count == 1:
            digits = found  # a tombstone has its token in a header
        token = int(digits[0]) if digits else -1
        log.rows.append((offset, token, producer))
        log.tokens[offset] = token
        log.keys[offset] = record_key
