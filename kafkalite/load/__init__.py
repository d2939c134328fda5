"""Load topics into Parquet files by topic and hour, published by manifests: everything that needs no Spark.

storage     the interface to a target: local_disk, webhdfs; places maps paths, arrow_files reads them with pyarrow
manifest    the loaded files and offsets, changed together by one rename
parquet     writes rows into files
compaction  replaces many small files by few large ones
columns     one schema for all files of a topic: it merges old and new columns, and fits records to the result
contents    files and positions of a directory, by its manifests; table_schema: the columns of its topics
reading     `dataset` and `read`: the loaded data in that schema
commits     the commits of a directory, and the hours that each one changed
letters     writes records that could not be used to a dead-letter topic
positions   positions as JSON
selection   which partitions are read, and from where to where; shares: how much of each at a time
plan        what a load reads next; loading: its loop of rounds and commits; leftovers: reads ranges with losses
native      the engine in this process: columnar client to Arrow to files
decoded     columns of decoded values: avro_values, json_values
decoded     columns of decoded values: avro_values, json_values
"""

from __future__ import annotations

from kafkalite.load.reading import dataset as dataset
from kafkalite.load.reading import read as read
from kafkalite.load.storage import LoadError as LoadError

__all__ = ["LoadError", "dataset", "read"]
