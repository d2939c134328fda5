"""Load topics into Parquet files by topic and hour, without Spark. Manifests publish files and offsets together.

storage     the interface to a target; local_disk and webhdfs implement it, places finds it, arrow_files is for pyarrow
manifest    the loaded files and offsets, changed together by one rename
parquet     writes rows into files
compaction  replaces many small files by few large ones
layout      folders by hour, day or a column, and flattened values
columns     one schema for all files of a topic: it merges old and new columns, and fits records to the result
contents    lists files and positions of a directory, by its manifests; table_schema: the columns of its topics
reading     `dataset` and `read`, which return the loaded data in one schema
commits     lists the commits of a directory, and the hours that each one changed
letters     writes records that could not be used to a dead-letter topic
positions   positions as JSON
selection   the partitions to read, with start and end; shares: how much of each partition per batch
plan        the next round of a load; loading: its loop of rounds and commits; leftovers: reads ranges with losses
native      the engine without Spark: from the columnar client through Arrow into files
decoded     columns of decoded values: avro_values, json_values
decoded     columns of decoded values: avro_values, json_values
"""

from __future__ import annotations

from kafkalite.load.reading import dataset as dataset
from kafkalite.load.reading import read as read
from kafkalite.load.storage import LoadError as LoadError

__all__ = ["LoadError", "dataset", "read"]
