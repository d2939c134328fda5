"""Where PySpark looks for `format("kafkalite")`: it imports each package `pyspark_*` and takes its DefaultSource."""

from kafkalite.spark.format import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
