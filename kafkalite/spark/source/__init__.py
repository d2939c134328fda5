"""Read topics as DataFrames in Spark.

batch, stream   the classes that PySpark calls; the only modules here that import PySpark
plan            the tasks of a batch query          stream_plan  the micro-batches of a streaming query
reading         reads a task's piece               offsets      offset ranges and their division
pushdown        filters that narrow ranges          values       decodes values to columns
"""
