"""Producers that keep a ledger, and independent readers: the load of the reliability tests.

`Producers` runs librdkafka producers in threads of this process, paced, through restarts of the broker, until
`stop()`; each delivery goes into the ledger. `read_all` fetches raw batches, checks their CRC, unpacks them with
libraries other than the broker's, and returns every record with its offset.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import logging
import random
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import Producer

from tests.kit.checkers.ledger import Identity, Read, ReadRecord
from tests.kit.harness import wire

XERIAL_MAGIC = b"\x82SNAPPY\0"
GIVE_UP_MS = 120_000
DRAIN_TIMEOUT_S = 90.0

quiet = logging.getLogger("tests.load")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False  # librdkafka reports every lost connection, which here is the point


RECONNECTING = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 10_000,
}
"""How librdkafka finds a broker again that was killed."""


@dataclass
class Load:
    """Threads that produce to `topic` until `stop()`, which raises the error of any of them."""

    bootstrap: str
    topic: str
    ledger: Any
    partition_count: int = 8
    producer_count: int = 3
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    logger: logging.Logger = quiet
    """Which gets what librdkafka logs."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _problems: list[str] = field(default_factory=list)

    def start(self) -> Self:
        for number in range(self.producer_count):
            thread = threading.Thread(target=self._guarded, args=(number,), name=f"load-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> None:
        """Begins nothing new; returns when everything that was begun has ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(DRAIN_TIMEOUT_S + 30)
            assert not thread.is_alive(), f"{thread.name} did not end"
        assert not self._problems, self._problems

    def _guarded(self, number: int) -> None:
        try:
            self._run(number, random.Random(f"{self.seed}/{number}"))
        except Exception as error:  # noqa: BLE001 - stop() reports it
            self._problems.append(f"producer {number}: {error!r}")

    def _run(self, number: int, chance: random.Random) -> None:
        raise AssertionError("each load says what it does")


@dataclass
class Producers(Load):
    """Single records, each of which goes into the ledger with its answer; rates are per producer."""

    rate_per_s: int = 2000
    sizes: Sequence[int] = (100,)

    def _run(self, number: int, chance: random.Random) -> None:
        options = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": GIVE_UP_MS,
            "message.max.bytes": 4_000_000,
            "queue.buffering.max.messages": 5000,
            **RECONNECTING,
            **self.settings,
        }
        producer = Producer(options, logger=self.logger)
        began, sent = time.monotonic(), 0
        while not self._stopping.is_set():
            for _ in range(20):
                partition = chance.randrange(self.partition_count)
                identity, key, value = self.ledger.next_record(number, partition, chance.choice(self.sizes))
                self._send(producer, identity, key, value)
            sent += 20
            producer.poll(0)
            while (ahead_s := began + sent / self.rate_per_s - time.monotonic()) > 0:
                producer.poll(ahead_s)
            if ahead_s < -0.5:  # the broker was away: continue at the rate, do not catch up
                began, sent = time.monotonic(), 0
        left = producer.flush(DRAIN_TIMEOUT_S)
        if left:
            self._problems.append(f"producer {number}: {left} records unanswered after {DRAIN_TIMEOUT_S} s")

    def _send(self, producer: Producer, identity: Identity, key: bytes, value: bytes) -> None:
        report = functools.partial(self._delivered, identity)
        while True:
            with contextlib.suppress(BufferError):
                producer.produce(self.topic, value, key, identity.partition, on_delivery=report)
                return
            producer.poll(0.01)

    def _delivered(self, identity: Identity, error: object, message: Any) -> None:
        if error is None:
            self.ledger.acknowledge(identity, message.offset())
        else:
            self.ledger.fail(identity, str(error))


def unpack(batch: wire.Batch) -> wire.Batch:
    """The batch with its records uncompressed, by libraries that the broker does not use."""
    import cramjam
    import lz4.frame
    import zstandard

    codec = batch.attributes & 7
    if codec == 0:
        return batch
    data = batch.payload
    if codec == 1:
        data = gzip.decompress(data)
    elif codec == 2 and data.startswith(XERIAL_MAGIC):
        parts, position = [], 16
        while position < len(data):
            size = struct.unpack_from(">i", data, position)[0]
            parts.append(bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size])))
            position += 4 + size
        data = b"".join(parts)
    elif codec == 2:
        data = bytes(cramjam.snappy.decompress_raw(data))
    elif codec == 3:
        data = lz4.frame.decompress(data)
    elif codec == 4:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    else:
        raise ValueError(f"codec {codec}")
    return batch._replace(payload=data, attributes=batch.attributes & ~7)


def read_partition(connection: wire.Connection, topic: str, partition: int) -> list[ReadRecord]:
    """Every record from log start to the end; a wrong CRC, a standstill or an error raises."""
    offset = connection.list_offset(topic, partition, -2)[2]
    error, _, end = connection.list_offset(topic, partition, -1)
    assert error == 0, f"ListOffsets of {topic}-{partition}: error {error}"
    records: list[ReadRecord] = []
    while offset < end:
        answer = connection.fetch(topic, partition, offset, partition_max_bytes=8 << 20)
        assert answer.error == 0, f"{topic}-{partition}@{offset}: error {answer.error}"
        assert answer.records, f"{topic}-{partition}@{offset}: nothing, the end is {end}"
        for batch in wire.split_batches(answer.records):
            assert batch.crc_is_right, f"{topic}-{partition}@{batch.base_offset}: CRC differs"
            rows = [ReadRecord(*row) for row in wire.decode_records(unpack(batch))]
            records += [row for row in rows if row.offset >= offset]
            offset = batch.next_offset
    return records


def read_all(port: int, topic: str, partition_count: int) -> Read:
    """All partitions of a topic."""
    with wire.Connection(port) as connection:
        return {partition: read_partition(connection, topic, partition) for partition in range(partition_count)}


def create_topic(port: int, topic: str, partition_count: int, configs: dict[str, str] | None = None) -> None:
    with wire.Connection(port) as connection:
        error = connection.create_topic(topic, partition_count, configs)
    assert error == 0, f"CreateTopics {topic}: error {error}"
