"""Fills the target of a load without Spark, by what a load's task and driver call."""

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from kafkalite.client import Client
from kafkalite.load.letters import LetterTopic
from kafkalite.load.loading import Published, publish_rows
from kafkalite.load.manifest import MANIFESTS, Change, Target
from kafkalite.load.parquet import Writing, write
from kafkalite.load.storage import Storage
from kafkalite.load.table_schema import tables

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
        known = tables(target.storage, target.state, strict=False)
        writing = Writing(staging, "part", "zstd", 1 << 30, {}, False, {}, known)
        publish_batches(target, [pa.record_batch(columns)], writing)


def forget_schemas(path: Path) -> None:
    """Take the tables' columns out of the manifests, which older releases wrote without them."""
    for manifest in (path / MANIFESTS).glob("*[0-9].json"):
        value = json.loads(manifest.read_text())
        del value["schemas"]
        manifest.write_text(json.dumps(value))


def publish_batches(
    target: Target,
    batches: Iterable[pa.RecordBatch],
    writing: Writing,
    letters: tuple[Client, LetterTopic] | None = None,
    change: Change | None = None,
) -> Published:
    """Record batches as one change, as an engine and the loop of a load publish them."""
    rows = [text for told in write(writing, iter(batches)) for text in told.column("file").to_pylist()]
    return publish_rows(target, rows, change or Change("load"), letters)
