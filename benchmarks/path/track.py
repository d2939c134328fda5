"""Measure how long a search through ten million records takes.

Values are 200 hexadecimal digits, keys have 16 bytes, and a header 36; there are twelve partitions. One record, in the
newest tenth, has the id. `kafkalite.track` searches the header with a worker per core. The comparison is a loop of
confluent-kafka that examines each record's headers. `first_hit_s` is the time until the record is found.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka
import numpy as np

from benchmarks.path.harness import Case, Kafkalite, Row, Server, run_suite
from kafkalite.client import Client
from kafkalite.track import search
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns
from kafkalite.wire.record.compression import Codec

PARTITIONS = 12
BLOCK = 4000
ID = "3f0e8c1a-5a52-4f2e-9d0e-0f6a5f7d1c11"
HEADER = "correlation-id"
STAMP = 1_700_000_000_000


def topic(codec: Codec) -> str:
    return f"track-{codec.name.lower()}"


def block(seed: int) -> RecordColumns:
    """Return BLOCK records with different ids."""
    random = np.random.default_rng(seed)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    values = BytesColumn.from_offsets(
        digits[random.integers(0, 16, 200 * BLOCK)].tobytes(), np.arange(BLOCK + 1, dtype=np.int64) * 200
    )
    keys = BytesColumn.from_offsets(random.bytes(16 * BLOCK), np.arange(BLOCK + 1, dtype=np.int64) * 16)
    ids = [((HEADER, str(uuid.UUID(bytes=random.bytes(16))).encode()),) for _ in range(BLOCK)]
    stamps = np.full(BLOCK, STAMP, np.int64)
    return RecordColumns(np.zeros(0, np.int64), stamps, keys, values, HeaderColumns.from_items(ids))


def one_with_id() -> RecordColumns:
    columns = block(10**6)
    headers = [((HEADER, ID.encode() if row == BLOCK // 2 else b"-" * 36),) for row in range(BLOCK)]
    return RecordColumns(
        columns.offsets, columns.timestamps, columns.keys, columns.values, HeaderColumns.from_items(headers)
    )


def write_case(count: int, codec: Codec) -> Case:
    def run(server: Server, repeat: int) -> Row:
        blocks = [block(seed) for seed in range(16)]
        began = time.monotonic()
        with Client(f"127.0.0.1:{server.port}") as client:
            if repeat == 0:
                client.admin.create_topic(topic(codec), PARTITIONS)
                with client.producer(acks=1, codec=codec) as producer:
                    rounds = count // BLOCK
                    for number in range(rounds):
                        special = number == rounds - rounds // 20 - 1
                        producer.send(
                            topic(codec), number % PARTITIONS, one_with_id() if special else blocks[number % 16]
                        )
        return {"count": count, "wall_s": time.monotonic() - began}

    return Case(f"write-{codec.name.lower()}", run)


def track_case(count: int, codec: Codec) -> Case:
    def run(server: Server, _repeat: int) -> Row:
        began, cpu = time.monotonic(), time.process_time()
        first = 0.0
        with search(f"127.0.0.1:{server.port}", ID, topics=topic(codec), places=f"header:{HEADER}") as found:
            hits = 0
            for _ in found:
                first = time.monotonic() - began
                hits += 1
            wall = time.monotonic() - began
            assert (hits, found.complete, sum(row.records for row in found.reach)) == (1, True, count)
        return {
            "count": count,
            "wall_s": wall,
            "rate_per_s": count / wall,
            "first_hit_s": first,
            "client_cpu_s": time.process_time() - cpu,
        }

    return Case(f"track-{codec.name.lower()}", run)


def loop_case(count: int, codec: Codec) -> Case:
    """Run a consumer that examines each record, as a program without a search does."""

    def run(server: Server, _repeat: int) -> Row:
        began, cpu = time.monotonic(), time.process_time()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": f"127.0.0.1:{server.port}", "group.id": "loop", "enable.auto.commit": False}
        )
        name = topic(codec)
        consumer.assign([confluent_kafka.TopicPartition(name, number, 0) for number in range(PARTITIONS)])
        seen = hits = 0
        wanted = (HEADER, ID.encode())
        while seen < count:
            for message in consumer.consume(10_000, 1.0):
                seen += 1
                hits += wanted in (message.headers() or ())
        consumer.close()
        wall = time.monotonic() - began
        assert hits == 1
        return {"count": count, "wall_s": wall, "rate_per_s": count / wall, "client_cpu_s": time.process_time() - cpu}

    return Case(f"loop-{codec.name.lower()}", run)


def cases(count: int, *, codecs: Sequence[Codec] = (Codec.NONE, Codec.LZ4, Codec.ZSTD)) -> Iterator[Case]:
    for codec in codecs:
        yield write_case(count, codec)
        yield track_case(count, codec)
        yield loop_case(count, codec)


def servers(folder: Path) -> Sequence[Server]:
    return [Kafkalite("kafkalite", folder / "kafkalite")]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (20 * BLOCK, 1) if small else (10_000_000, 3)
    return [run_suite("track", cases(count), servers, repeat_count)]
