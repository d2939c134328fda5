"""Reading topics in Spark.

batch, stream   what PySpark calls, and the only modules here that import it
plan            the tasks of a batch query          stream_plan  the micro-batches of a streaming one
reading         what a task does                    offsets      which offsets, in how many pieces
pushdown        filters that make ranges smaller
"""
