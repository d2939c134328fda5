"""Make PySpark find the data source `format("kafkalite")`.

PySpark imports each installed package `pyspark_*` and registers its class DefaultSource.
"""

from kafkalite.spark.format import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
