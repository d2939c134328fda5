"""Store which batch each task of a streaming query has written last, in a topic of the target cluster.

    topic    kafkalite.spark.QUERY, one partition, cleanup.policy=compact      QUERY: the id in the query's checkpoint
    key      [task]                                                            JSON
    value    {"batch": 17, "tasks": 4, "rows": 1000, "checksum": "9f0c...", "producer": [7, 3, true]}          JSON

    batch      number of the batch that the task wrote last
    tasks      number of tasks in the batch
    rows       number of rows that this task wrote
    checksum   of the keys and values of these rows; detects a repeated batch with other rows
    producer   producer id, epoch, whether transaction protocol version 2 is used; null for a batch without rows.
               A later task uses it to abort the transaction if the driver died before the commit

Exactly-once writes (kafkalite.spark.sink.exactly_once) depend on these markers. A task's rows and its marker are
written in one transaction.

A consumer group's committed offsets could not store this, because they expire. Readers ignore unknown fields.

Thread rule: one thread at a time, that of the Client. Each thread keeps the markers that it has read.
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
"""Small segments: compaction skips the last one, and a new worker reads the topic from the start."""
KEPT_MAX: Final = 64
"""Queries whose markers a thread remembers."""
HASH_MAX: Final = 2**31 - 1

_kept = threading.local()
"""Markers read by this thread: a worker process runs many tasks of a query, and each reads only new markers."""


class Marker(NamedTuple):
    """The last batch that a task has written."""

    batch: int
    tasks: int
    """Number of tasks in the batch."""
    rows: int
    checksum: int
    producer: tuple[int, int, bool] | None = None


@dataclass(slots=True)
class RowTally:
    """A count of rows, and a checksum that does not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def add(self, batch: Any) -> None:
        """Add the rows of a pyarrow.RecordBatch. Raises ValueError as ColumnWriter.write does."""
        columns = rows_of(batch, 0).columns
        count = len(columns.values)
        products = hashes(columns.keys, count) * hashes(columns.values, count)
        self.rows += count
        self.checksum = (self.checksum + int(products.sum(dtype=np.uint64))) % 2**64


def hashes(column: BytesColumn, count: int) -> NDArray[np.uint64]:
    """Return a hash of at least 1 for each of `count` items. A missing column counts as nulls."""
    if not len(column):
        return np.ones(count, np.uint64)
    return (partitions_of(column, HASH_MAX).astype(np.int64) + 2).astype(np.uint64)


@dataclass(slots=True)
class KnownMarkers:
    """What a thread has read of one marker topic: the last marker of each task before `offset`."""

    topic_id: bytes
    offset: int
    markers: dict[int, Marker] = field(default_factory=dict)


class Markers:
    """The markers of one query. Raises ValueError for a query id that cannot be part of a topic name."""

    def __init__(self, client: Client, servers: str, query: str) -> None:
        self.topic = f"{PREFIX}{query}"
        wrong = topic_name_error(self.topic)
        if wrong is not None:
            raise ValueError(f"the query name {query!r} cannot be part of a marker topic's name: {wrong}")
        self._client = client
        self._servers = servers
        self._query = query

    def transactional_id(self, task: int) -> str:
        """Return the transactional id of a task of the query. A newer attempt fences an older one."""
        return f"{PREFIX}{self._query}-{task}"

    def create(self) -> None:
        """Create the topic if it does not exist."""
        try:
            self._client.topic(self.topic)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):
                self._client.admin.create_topic(self.topic, 1, configs=SETTINGS)

    def load(self, timeout_s: float) -> dict[int, Marker]:
        """Return the last committed marker of each task.

        Tasks call this method. A marker in an open transaction shows that the driver died before its commit, so this
        method aborts the transaction. It waits until all transactions that have written markers so far have ended.

        Raises RangeUnavailable if that takes longer than `timeout_s`.
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
        """Write a marker, into the producer's open transaction if there is one."""
        fields = {**marker._asdict(), "checksum": f"{marker.checksum:016x}"}
        value = json.dumps(fields, separators=(",", ":")).encode()
        producer.send(self.topic, 0, [Record(-1, -1, b"[%d]" % task, value)])

    def _end_open(self, end: int) -> None:
        """Abort the transactions that are still open and have markers before `end`.

        Each is aborted in the name of the producer in its marker, so a newer producer is not affected.
        """
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
        """Abort a transaction if it is open. Errors are ignored: the transaction has ended, or will time out."""
        producer = self._client.producer(transactional_id=prepared.transactional_id)
        with contextlib.closing(producer), contextlib.suppress(KafkaError, ClientError):
            producer.resume_transaction(prepared)
            producer.abort_transaction()

    def _known(self, topic_id: bytes) -> KnownMarkers:
        """Return what this thread has read of the topic with that id; nothing for a recreated topic."""
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
    """Parse a marker that `write` has written."""
    fields = json.loads(value)
    producer = fields["producer"]
    checksum = int(fields["checksum"], 16)
    return Marker(fields["batch"], fields["tasks"], fields["rows"], checksum, producer and tuple(producer))
