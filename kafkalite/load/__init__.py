"""Load topics into Parquet files, and publish the files together with their offsets.

A manifest lists new files and the offsets that they reach, so each record is loaded exactly once.

    native          a load without Spark
    loading         the loop of any load: read, write files, commit
    plan            what the next commit reads
    selection       the partitions to read, and where to start and end
    shares          the size of each partition's part of a batch
    leftovers       reads a range from which records are missing
    parquet         writes rows to files
    layout          folders by hour, day or a column; flattened values
    columns         one schema for all files of a topic, as its columns change
    avro_values     decodes Avro values; json_values decodes JSON
    decoded         finds decoded values that do not fit into their columns
    letters         dead letters: records that cannot be loaded
    manifest        the published files and offsets
    compaction      merging of small files
    storage         the interface to a directory; local_disk and webhdfs implement it
    places          selects the storage for a path
    reading         `dataset` and `read`: the loaded data for pyarrow
    arrow_files     access to files that pyarrow cannot read itself
    contents        the files and positions of a directory
    table_schema    the columns of each topic in a directory
    commits         the commits of a directory, and the hours that they changed
    positions       offsets by partition as JSON
    status          metrics of a continuous load
"""

from __future__ import annotations

from kafkalite.load.reading import dataset as dataset
from kafkalite.load.reading import read as read
from kafkalite.load.storage import LoadError as LoadError

__all__ = ["LoadError", "dataset", "read"]
