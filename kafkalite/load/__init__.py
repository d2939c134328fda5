"""Parquet files by topic and hour, and the manifests that publish them: all of a load that needs no Spark.

manifest    what is loaded: files and offsets, changed together by one rename
parquet     rows into files
compaction  few large files in place of many small ones
contents    files, positions and datasets of a directory, by its manifests
positions   positions as JSON
"""
