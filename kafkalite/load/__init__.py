"""Parquet files by topic and hour, and the manifests that publish them: all of a load that needs no Spark.

storage     where a target is: local_disk, webhdfs; places says which a path means, arrow_files reads them as pyarrow
manifest    what is loaded: files and offsets, changed together by one rename
parquet     rows into files
compaction  few large files in place of many small ones
contents    files, positions and datasets of a directory, by its manifests; table_schema: the columns of its topics
commits     its commits, and the hours that each one changed
letters     records that could not be used, to a topic of dead letters
positions   positions as JSON
selection   which partitions are read, and where they start and end; shares: how much of each at a time
plan        what a load reads next; loading: its loop of rounds and commits; leftovers: reading what was not lost
native      the engine in this process: columnar client to Arrow to files; avro_values decodes Avro for it
"""
