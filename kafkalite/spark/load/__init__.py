"""Load topics into Parquet files (by default, by topic and hour), each record exactly once: in batches, or as a stream.

    load(spark, path, ...)      load the records that the topics have now and `path` lacks; also `kafkalite load`
    stream_to(frame, path)      load a streaming DataFrame, batch after batch, until it is stopped
    files(path), read(spark, path), dataset(path)    the loaded data, by the manifests
    compact(path)               replace many small files by few large files

One rename publishes the files and the offsets (kafkalite.load.manifest). If a load is killed, the next load continues
after the last published change.

Thread rule: loads, streams and compactions of one directory take turns, also in different processes.
"""

from __future__ import annotations

from kafkalite.load.compaction import compact as compact
from kafkalite.load.contents import files as files
from kafkalite.load.contents import positions as positions
from kafkalite.load.loading import Published as Published
from kafkalite.load.loading import Summary as Summary
from kafkalite.load.reading import dataset as dataset
from kafkalite.load.storage import LoadError as LoadError
from kafkalite.spark.load.loading import load as load
from kafkalite.spark.load.loading import publisher as publisher
from kafkalite.spark.load.loading import read as read
from kafkalite.spark.load.loading import stream_to as stream_to

__all__ = [
    "LoadError",
    "Published",
    "Summary",
    "compact",
    "dataset",
    "files",
    "load",
    "positions",
    "publisher",
    "read",
    "stream_to",
]
