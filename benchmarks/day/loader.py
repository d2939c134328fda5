"""Load the topic into Parquet files, each record once, without Spark, and delete the oldest files above a total size.

  python -m benchmarks.day.loader --bootstrap HOST:PORT --to DIR --keep BYTES

This does in one process what the driver and tasks of `kafkalite load` do. Positions are those of the manifests; files
and positions are published together, by one rename. SIGTERM ends it between two changes.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from benchmarks.day.shape import PARTITIONS, TOPIC
from kafkalite.client import READ_COMMITTED, Client, ColumnReader
from kafkalite.load.manifest import Change, DataFile, Target
from kafkalite.load.parquet import Writing, write
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS: Final = ["topic", "partition", "offset", "timestamp", "value", "headers"]
CHANGE_ROWS: Final = 1_000_000
"""Offsets of a partition in one change, at most."""
PAUSE_S: Final = 2.0
FILE_SIZE: Final = 128 * 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--keep", type=int, required=True, help="bytes of loaded files")
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    target = Target(arguments.to)
    with Client(arguments.bootstrap) as client:
        while not stop.is_set():
            if not load(client, target):
                stop.wait(PAUSE_S)
            remove_oldest(target, arguments.keep)


def load(client: Client, target: Target) -> int:
    """Load one change; return its number of records."""
    with target.writing() as staging:
        state = target.state
        reached: dict[TopicPartition, int] = {}
        ranges = []
        for partition in range(PARTITIONS):
            key = TopicPartition(TOPIC, partition)
            start = state.positions.get(key, 0)
            end = min(client.end_offset(TOPIC, partition, isolation=READ_COMMITTED), start + CHANGE_ROWS)
            if start < end:
                ranges.append((partition, start, end))
                reached[key] = end
        if not ranges:
            return 0

        def batches() -> Iterator[Any]:
            for partition, start, end in ranges:
                with ColumnReader(client, isolation_level="read_committed", columns=COLUMNS) as reader:
                    yield from reader.read(TOPIC, partition, start, end)

        writing = Writing(staging, f"part-{state.number + 1:08d}", "zstd", FILE_SIZE, {}, skips=False)
        added, staged = [], {}
        for told in write(writing, batches()):
            for text in told.column("file").to_pylist():
                file = DataFile.from_json(json.loads(text))
                name = f"{file.folder}/{file.path.rpartition('/')[2]}"
                staged[name] = file.path
                added.append(file._replace(path=name))
        target.commit(Change("load", added, positions=reached), staged)
        return sum(file.rows for file in added)


def remove_oldest(target: Target, keep: int) -> None:
    """Delete the oldest files above `keep` bytes. The audit counted them long before."""
    files = list(target.state.files.values())
    excess = sum(file.size for file in files) - keep
    removed = []
    for file in files:
        if excess <= 0:
            break
        removed.append(file.path)
        excess -= file.size
    if removed:
        with target.writing():
            target.commit(Change("compaction", [], removed), {})


if __name__ == "__main__":
    main()
