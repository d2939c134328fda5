"""Read topics as DataFrames in Spark.

    batch.py         the classes that PySpark calls for batch queries
    stream.py        the classes that PySpark calls for streaming queries
    plan.py          the tasks of a batch query
    stream_plan.py   the micro-batches of a streaming query
    offsets.py       offset ranges and their division
    pushdown.py      filters that narrow ranges
    reading.py       reads a task's piece of a partition
    values.py        decodes values to columns

Only batch.py and stream.py import PySpark.
"""
