"""Fills the target of a load without Spark, by what a load's task and driver call."""

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from kafkalite.client import Client
from kafkalite.load.letters import LetterTopic
from kafkalite.load.loading import Published, publish_rows
from kafkalite.load.manifest import Change, DataFile, Target
from kafkalite.load.parquet import Writing, folder_of, write
from kafkalite.load.storage import Storage
from kafkalite.model import TopicPartition

HOUR_US = 3_600_000_000


def add(
    path: str | Path | Storage,
    offsets: range,
    *,
    hour: int = 0,
    partition: int = 0,
    more: dict[str, list[object]] | None = None,
) -> None:
    """One file of a topic, as a load's task and driver make it."""
    count = len(offsets)
    columns = {
        "topic": pa.array(["t"] * count),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([hour * HOUR_US + n for n in range(count)], pa.timestamp("us", tz="UTC")),
        **{name: pa.array(values) for name, values in (more or {}).items()},
    }
    target = Target(path)
    with target.writing() as staging:
        (told,) = write(Writing(staging, "part", "zstd", 1 << 30, {}, False), iter([pa.record_batch(columns)]))
        file = DataFile.from_json(json.loads(told.column("file")[0].as_py()))
        name = f"{folder_of(file.topic, file.date, file.hour)}/{file.path.rpartition('/')[2]}"
        reached = {TopicPartition("t", partition): offsets.stop}
        target.commit(Change("load", [file._replace(path=name)], positions=reached), {name: file.path})


def publish_batches(
    target: Target,
    batches: Iterable[pa.RecordBatch],
    writing: Writing,
    letters: tuple[Client, LetterTopic] | None = None,
) -> Published:
    """Record batches as one change, as an engine and the loop of a load publish them."""
    rows = [text for told in write(writing, iter(batches)) for text in told.column("file").to_pylist()]
    return publish_rows(target, rows, Change("load"), letters)
