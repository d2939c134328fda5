"""Loads a topic's records into Parquet files, as `kafkalite load` publishes them, without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from kafkalite.client import Client, ColumnReader
from kafkalite.load.manifest import Target
from kafkalite.load.parquet import Writing
from tests.kit.harness.load_target import publish_batches


def load_into(folder: Path, client: Client, topic: str, rows: list[int] | None, columns: list[str]) -> None:
    """Loads these rows of partition 0, or all there are."""
    with ColumnReader(client, columns=columns) as reader:
        table = pa.Table.from_batches(reader.read(topic, 0, 0, client.end_offset(topic, 0)), reader.schema)
    target = Target(folder)
    with target.writing() as staging:
        writing = Writing(str(staging), "part", "zstd", 2**27, {}, skips=False)
        chosen = table.take(np.arange(len(table)) if rows is None else rows)
        publish_batches(target, chosen.to_batches(), writing)
