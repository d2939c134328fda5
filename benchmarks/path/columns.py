"""Measure how many records per second the columnar client moves between a broker and Arrow record batches.

Values have 200 bytes, keys 16, and record batches 10,000 rows. A topic is written from Arrow, then read whole: to Arrow
with all columns, with offset and value, with the offset alone, and to NumPy. There is no C yardstick. The rates are the
client's; its CPU seconds show how close it is to using one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.path.harness import Case, Kafkalite, Row, Server, run_suite
from benchmarks.rows import KEY_SIZE, VALUE_SIZE, portion
from kafkalite.client import Client, ColumnReader, ColumnWriter
from kafkalite.wire.record.compression import Codec

ROWS = 10_000
PROJECTIONS: dict[str, list[str] | None] = {
    "read-all-columns": None,
    "read-offset-and-value": ["offset", "value"],
    "read-offset": ["offset"],
}


def topic(codec: Codec, repeat: int) -> str:
    return f"columns-{codec.name.lower()}-{repeat}"


def write_case(count: int, codec: Codec) -> Case:
    def run(server: Server, repeat: int) -> Row:
        batch = portion(ROWS)
        partitions = np.zeros(ROWS, np.int32)
        with Client(f"127.0.0.1:{server.port}") as client:
            client.admin.create_topic(topic(codec, repeat), 1)
            with ColumnWriter(client, topic(codec, repeat), acks=1, codec=codec) as writer:
                wide = batch.append_column("partition", partitions)
                return timed(count, lambda: write(writer, wide, count))

    return Case(f"write-arrow-{codec.name.lower()}", run)


def write(writer: ColumnWriter, batch: Any, count: int) -> int:
    for _ in range(count // ROWS):
        writer.write(batch)
    writer.flush()
    return writer.record_count


def read_case(name: str, count: int, codec: Codec, read: Callable[[ColumnReader, str], Iterator[int]]) -> Case:
    columns = PROJECTIONS.get(name)

    def run(server: Server, repeat: int) -> Row:
        with ColumnReader(f"127.0.0.1:{server.port}", columns=columns) as reader:
            return timed(count, lambda: sum(read(reader, topic(codec, repeat))))

    return Case(f"{name}-{codec.name.lower()}", run)


def timed(count: int, work: Callable[[], int]) -> Row:
    """Return the row of one run, which must have moved `count` records."""
    wall, cpu = time.monotonic(), time.process_time()
    moved = work()
    wall_s, cpu_s = time.monotonic() - wall, time.process_time() - cpu
    assert moved == count, f"moved only {moved} of {count} records"
    rate = count / wall_s
    return {
        "count": count,
        "wall_s": wall_s,
        "rate_per_s": rate,
        "client_cpu_s": cpu_s,
        "mb_per_s": rate * (KEY_SIZE + VALUE_SIZE) / 1e6,
    }


def cases(count: int) -> Iterator[Case]:
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        yield write_case(count, codec)
        for name in PROJECTIONS:
            yield read_case(
                name, count, codec, lambda reader, t: (batch.num_rows for batch in reader.read(t, 0, 0, count))
            )
        yield read_case(
            "read-numpy", count, codec, lambda reader, t: (len(part) for part in reader.read_numpy(t, 0, 0, count))
        )


def servers(folder: Path) -> Sequence[Server]:
    return [Kafkalite("kafkalite", folder / "kafkalite")]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (20_000, 1) if small else (2_000_000, 3)
    return [run_suite("columns", cases(count), servers, repeat_count)]
