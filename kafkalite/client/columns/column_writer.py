"""Write Arrow record batches or NumPy columns to the partitions of topics.

    write ─▶ rows by topic ─▶ rows by partition ─▶ Producer

The partition of a row is chosen in this order:

1. The row's value in the partition column, if there is one.
2. The murmur2 hash of the key.
3. Without a key, one partition for all such rows of a record batch and topic. The next batch uses the next one.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kafkalite._native.wire.lines import partitions_of
from kafkalite.client.client import Client
from kafkalite.client.columns.arrow import pyarrow, rows_of
from kafkalite.client.write.producer import Producer
from kafkalite.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from kafkalite.client.columns.arrow import Rows
    from kafkalite.wire.record.columns import RecordColumns


class ColumnWriter:
    """Writes rows to topics; see the module. A context manager that flushes at its end.

    `client`    a Client, or bootstrap servers from which to create a Client; `close` then closes it
    `topic`     default topic, for batches without a topic column and for nulls in that column
    `ignore_keys`     keys do not determine the partition (KIP-794, partitioner.ignore.keys)
    `create_topics`   lets a broker with auto.create.topics.enable create a missing topic, as for a Java producer
    `options`   options of Producer such as codec, acks, transactional_id; default: idempotent, acks=all
    """

    def __init__(
        self,
        client: Client | str | Iterable[str],
        topic: str | None = None,
        *,
        ignore_keys: bool = False,
        create_topics: bool = False,
        **options: Any,
    ) -> None:
        self._owns_client = not isinstance(client, Client)
        self.client = client if isinstance(client, Client) else Client(client)
        self._topic = topic
        self._ignores_keys = ignore_keys
        self._creates_topics = create_topics
        self._turn = 0
        self.producer = Producer(self.client, **options)
        """The Producer, for deliveries, transactions and group offsets."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.producer.__exit__(kind, *rest)
        finally:
            self.close()

    def close(self) -> None:
        """Drop undelivered records and close the Client if this writer created it. Call `flush` first. Idempotent."""
        self.producer.close()
        if self._owns_client:
            self.client.close()

    def write(self, batch: Any, *, topic: str | None = None) -> None:
        """Send the rows of a pyarrow RecordBatch or Table, in order within each partition.

        Each call starts new batches. Write thousands of rows at a time: a hundred rows make small batches.

        The column value (binary or string) is required. These columns are optional:

        `key`         binary or string
        `headers`     a list of structs of key and value, or a map
        `timestamp`   of type timestamp, or int64 in ms; default: now
        `partition`   integers; null: the key selects the partition
        `topic`       not used with the argument `topic`; null: the writer's topic

        Raises ValueError for other columns and for a partition that does not exist, before anything is sent. Raises
        DeliveryFailed as Producer.send does.
        """
        pa = pyarrow()
        batches = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        now_ms = int(time.time() * 1000)
        portions = [
            (name, columns, self._targets(name, columns, partitions))
            for part in batches
            for name, columns, partitions in self._by_topic(rows_of(part, now_ms), topic)
        ]
        for name, columns, targets in portions:
            self._send(name, columns, targets, now_ms)

    def write_columns(
        self, columns: RecordColumns, *, topic: str | None = None, partitions: NDArray[np.int64] | None = None
    ) -> None:
        """Send NumPy columns without pyarrow.

        `partitions` has one item per record, -1 where the key determines the partition.
        """
        name = self._require_topic(topic or self._topic)
        targets = self._targets(name, columns, partitions)
        self._send(name, columns, targets, int(time.time() * 1000))

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises DeliveryFailed and KafkaError."""
        self.producer.flush()

    def transaction(self) -> AbstractContextManager[Producer]:
        """Return a transaction as a context manager (needs a `transactional_id`); see Producer.transaction."""
        return self.producer.transaction()

    @property
    def record_count(self) -> int:
        """Records acknowledged so far."""
        return self.producer.record_count

    # --- partitioning -------------------------------------------------------------------------------------------------

    def _by_topic(self, rows: Rows, topic: str | None) -> Iterator[tuple[str, RecordColumns, NDArray[np.int64] | None]]:
        """Yield the rows of each topic in order. A topic passed to `write` applies to all rows."""
        count = len(rows.columns.values)
        if not count:
            return
        if topic is not None or rows.topics is None:
            yield self._require_topic(topic or self._topic), rows.columns, rows.partitions
            return
        encoded = rows.topics.fill_null(self._topic or "").dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            picked = np.flatnonzero(codes == code)
            partitions = None if rows.partitions is None else rows.partitions[picked]
            whole = len(picked) == count
            yield self._require_topic(name), rows.columns if whole else rows.columns.chosen(picked), partitions

    def _require_topic(self, name: str | None) -> str:
        if not name:
            raise ValueError("a row has no topic; pass topic to the writer or fill the topic column")
        return name

    def _partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises UnknownTopicOrPartition."""
        try:
            return self.client.partitions(topic)
        except UnknownTopicOrPartition:
            if not self._creates_topics:
                raise
        self.client.topic(topic, create=True)
        return self.client.partitions(topic)

    def _targets(self, topic: str, columns: RecordColumns, wanted: NDArray[np.int64] | None) -> NDArray[np.int64] | int:
        """Return one partition per record, or one partition for all.

        All records of this call that have no key go to the same partition. The next call uses the next partition.
        """
        partitions = self._partitions(topic)
        turn = partitions[self._turn % len(partitions)]
        self._turn += 1
        if wanted is not None and len(wanted) != len(columns.values):
            raise ValueError(f"got {len(wanted)} partitions for {len(columns.values)} records; expected one each")
        keyed = len(columns.keys) and not self._ignores_keys
        if wanted is None and (not keyed or len(partitions) == 1):
            return turn
        if keyed:
            targets = partitions_of(columns.keys, len(partitions)).astype(np.int64)
            targets[targets < 0] = turn
        else:
            targets = np.full(len(columns.values), turn, np.int64)
        if wanted is not None:
            targets = np.where(wanted >= 0, wanted, targets)
            largest = int(targets.max(initial=0))
            if largest >= len(partitions):
                raise ValueError(f"topic {topic} has no partition {largest} (partition count: {len(partitions)})")
        return targets

    def _send(self, topic: str, columns: RecordColumns, targets: NDArray[np.int64] | int, now_ms: int) -> None:
        if isinstance(targets, int):
            self.producer.send(topic, targets, columns, timestamp=now_ms)
            return
        order = np.argsort(targets, kind="stable")
        found = targets[order]
        starts = np.flatnonzero(np.diff(found, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(found)], strict=True):
            picked = order[start:end]
            part = columns if len(picked) == len(targets) else columns.chosen(picked)
            self.producer.send(topic, int(found[start]), part, timestamp=now_ms)
