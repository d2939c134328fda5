"""Loads topics into Parquet files by topic and hour, each record exactly once: in batches, or as a stream.

    load(spark, path, ...)      all that there is now, from where the manifests end: `kafkalite load`
    stream_to(frame, path)      a streaming DataFrame, batch after batch, until it is stopped
    files(path), read(spark, path), dataset(path)    what is loaded, by the manifests
    compact(path)               few large files in place of many small ones

What was read and how far are published by one rename (kafkalite.load.manifest), so a load that is killed at any
moment, and started again, goes on where the last change ended. `python -m kafkalite.spark.load` is `kafkalite load`.

Thread rule: functions; several loads, streams and compactions of one directory take turns, whatever processes they
are in.
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
