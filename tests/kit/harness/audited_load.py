"""Loads a topic's records into Parquet files, as `kafkalite load` publishes them, without Spark."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from kafkalite.client import Client, ColumnReader
from kafkalite.load.manifest import Change, Target
from kafkalite.load.parquet import Writing
from kafkalite.spark.load.loading import publish


class Rows:
    """As much of a DataFrame as a load asks of one: batches, and a function over them."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self.columns = batches[0].schema.names

    def mapInArrow(self, function, schema: str):  # noqa: N802  # PySpark's name
        assert schema == "file string"
        rows = [text for batch in function(iter(self._batches)) for text in batch.column(0).to_pylist()]
        return SimpleNamespace(collect=lambda: [SimpleNamespace(file=text) for text in rows])


def load_into(folder: Path, client: Client, topic: str, rows: list[int] | None, columns: list[str]) -> None:
    """Loads these rows of partition 0, or all there are."""
    with ColumnReader(client, columns=columns) as reader:
        table = pa.Table.from_batches(reader.read(topic, 0, 0, client.end_offset(topic, 0)), reader.schema)
    target = Target(folder)
    with target.writing() as staging:
        writing = Writing(str(staging), "part", "zstd", 2**27, {}, skips=False)
        publish(
            target,
            Rows(table.take(np.arange(len(table)) if rows is None else rows).to_batches()),
            writing,
            Change("load"),
        )
