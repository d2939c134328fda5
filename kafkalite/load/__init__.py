"""Parquet files by topic and hour, and the manifests that publish them: all of a load that needs no Spark.

storage     where a target is: local_disk, webhdfs; places says which a path means, arrow_files reads them as pyarrow
manifest    what is loaded: files and offsets, changed together by one rename
parquet     rows into files
compaction  few large files in place of many small ones
columns     one schema for a topic's files: what holds old and new columns, and records that fit it
contents    files and positions of a directory, by its manifests; table_schema: the columns of its topics
reading     `dataset` and `read`: what is loaded, through that schema
commits     its commits, and the hours that each one changed
letters     records that could not be used, to a topic of dead letters
positions   positions as JSON
selection   which partitions are read, and where they start and end; shares: how much of each at a time
plan        what a load reads next; loading: its loop of rounds and commits; leftovers: reading what was not lost
native      the engine in this process: columnar client to Arrow to files
decoded     columns of decoded values: avro_values, json_values
"""

from __future__ import annotations

from kafkalite.load.reading import dataset as dataset
from kafkalite.load.reading import read as read
from kafkalite.load.storage import LoadError as LoadError

__all__ = ["LoadError", "dataset", "read"]
