"""What the tasks of a streaming query have written, kept on the cluster that they write to: exactly once rests on it.

    topic    kafkalite.spark.QUERY, one partition, cleanup.policy=compact      QUERY: the id in the query's checkpoint
    key      [task]                                                            JSON
    value    {"batch": 17, "tasks": 4, "rows": 1000, "checksum": "9f0c...", "producer": [7, 3, true]}          JSON

A value tells of the last batch that the task wrote: how many tasks it had, how many rows this one, and by which
producer (id, epoch, whether the second protocol of transactions is spoken; null for a batch without rows). It is
written in the transaction of the rows that it speaks of, so both are there or neither is. The checksum is that of the
rows' keys and values, whatever their order, so that a batch done again with other rows is noticed.

A marker is the last thing in its transaction, written by the driver when no task runs. So what a task finds open here
was left by a driver that died right then, and may be aborted: its producer is named, and a newer one is not touched.

A topic and not a group's offsets, since those expire when a query rests for a week. Version 1. A value may get more
fields; a reader ignores those that it does not know.

Thread rule: one thread at a time, that of the Client; what was read before is kept a thread.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite._native.wire.lines import partitions_of
from kafkalite.base.dataclass import dataclass
from kafkalite.client import READ_COMMITTED, ClientError, ColumnReader, PreparedTransaction
from kafkalite.client.columns.arrow import rows_of
from kafkalite.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import topic_name_error
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalite.client import Client, Producer
    from kafkalite.wire.record.columns import BytesColumn

PREFIX: Final = "kafkalite.spark."
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
"""Small segments: compaction leaves the last one alone, and a new worker reads the topic from its start."""
KEPT_MAX: Final = 64
"""Queries of which a thread remembers what it has read."""
HASH_MAX: Final = 2**31 - 1

_kept = threading.local()
"""A worker process runs many tasks of a query one after the other, and each reads only what is new."""


class Marker(NamedTuple):
    """What a task has written last."""

    batch: int
    tasks: int
    """Tasks that the batch had."""
    rows: int
    checksum: int
    producer: tuple[int, int, bool] | None = None


@dataclass(slots=True)
class RowTally:
    """Counts rows, and adds up a checksum in which their order means nothing."""

    rows: int = 0
    checksum: int = 0

    def add(self, batch: Any) -> None:
        """The rows of a pyarrow.RecordBatch. ValueError as ColumnWriter.write."""
        columns = rows_of(batch, 0).columns
        count = len(columns.values)
        products = hashes(columns.keys, count) * hashes(columns.values, count)
        self.rows += count
        self.checksum = (self.checksum + int(products.sum(dtype=np.uint64))) % 2**64


def hashes(column: BytesColumn, count: int) -> NDArray[np.uint64]:
    """A number from 1 on for each of `count` items; a column that is not there has nulls."""
    if not len(column):
        return np.ones(count, np.uint64)
    return (partitions_of(column, HASH_MAX).astype(np.int64) + 2).astype(np.uint64)


@dataclass(slots=True)
class KnownMarkers:
    """What a thread has read of a marker topic: its id, up to where, and the markers by task."""

    topic_id: bytes
    offset: int
    markers: dict[int, Marker] = field(default_factory=dict)


class Markers:
    """See the module. ValueError for a query whose id no topic can have in its name."""

    def __init__(self, client: Client, servers: str, query: str) -> None:
        self.topic = f"{PREFIX}{query}"
        wrong = topic_name_error(self.topic)
        if wrong is not None:
            raise ValueError(f"the query name {query!r} cannot be part of a marker topic's name: {wrong}")
        self._client = client
        self._servers = servers
        self._query = query

    def transactional_id(self, task: int) -> str:
        """Of all that a task of the query writes: a newer attempt fences an older one."""
        return f"{PREFIX}{self._query}-{task}"

    def create(self) -> None:
        """Makes the topic, unless it is there."""
        try:
            self._client.topic(self.topic)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):
                self._client.admin.create_topic(self.topic, 1, configs=SETTINGS)

    def load(self, timeout_s: float) -> dict[int, Marker]:
        """The last marker of each task, as of all transactions that have written here until now.

        For tasks: ends what a dead driver left open, and waits until each has ended, RangeUnavailable when that takes
        longer than `timeout_s`.
        """
        known = self._known(self._client.topic(self.topic).topic_id)
        start = max(known.offset, self._client.start_offset(self.topic, 0))
        end = self._client.end_offset(self.topic, 0)
        self._end_open(end)
        reader = ColumnReader(
            self._client, isolation_level="read_committed", columns=["key", "value"], stall_timeout_s=timeout_s
        )
        for columns in reader.read_numpy(self.topic, 0, start, end):
            for key, value in zip(columns.keys, columns.values, strict=True):
                if key is not None and value is not None:
                    known.markers[json.loads(key)[0]] = from_json(value)
        known.offset = end
        return dict(known.markers)

    def write(self, producer: Producer, task: int, marker: Marker) -> None:
        """Into the producer's open transaction, if it has one."""
        fields = {**marker._asdict(), "checksum": f"{marker.checksum:016x}"}
        value = json.dumps(fields, separators=(",", ":")).encode()
        producer.send(self.topic, 0, [Record(-1, -1, b"[%d]" % task, value)])

    def _end_open(self, end: int) -> None:
        """Aborts the transactions whose markers stand before `end` and that are neither committed nor aborted."""
        stable = self._client.end_offset(self.topic, 0, isolation=READ_COMMITTED)
        if stable >= end:
            return
        reader = ColumnReader(self._client, columns=["key", "value"])
        for columns in reader.read_numpy(self.topic, 0, stable, end):
            for key, value in zip(columns.keys, columns.values, strict=True):
                marker = None if key is None or value is None else from_json(value)
                if marker is not None and marker.producer is not None:
                    self.abort(PreparedTransaction(self.transactional_id(json.loads(key or b"")[0]), *marker.producer))

    def abort(self, prepared: PreparedTransaction) -> None:
        """Aborts a transaction if it is open. Whatever stands against it: it times out, or has ended."""
        producer = self._client.producer(transactional_id=prepared.transactional_id)
        with contextlib.closing(producer), contextlib.suppress(KafkaError, ClientError):
            producer.resume_transaction(prepared)
            producer.abort_transaction()

    def _known(self, topic_id: bytes) -> KnownMarkers:
        """What this thread has read of the topic of that id, begun again for a topic that was recreated."""
        kept: dict[tuple[str, str], KnownMarkers] = _kept.__dict__.setdefault("topics", {})
        name = (self._servers, self.topic)
        found = kept.pop(name, None)
        if found is None or found.topic_id != topic_id:
            found = KnownMarkers(topic_id, 0)
        while len(kept) >= KEPT_MAX:
            kept.pop(next(iter(kept)))
        kept[name] = found
        return found


def from_json(value: bytes) -> Marker:
    """What `write` wrote."""
    fields = json.loads(value)
    producer = fields["producer"]
    checksum = int(fields["checksum"], 16)
    return Marker(fields["batch"], fields["tasks"], fields["rows"], checksum, producer and tuple(producer))
