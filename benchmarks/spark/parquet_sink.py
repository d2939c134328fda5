"""Copy a topic to Parquet files with Spark alone, without kafkalite, for benchmarks.spark.loads.

python -m benchmarks.spark.parquet_sink SERVERS TOPIC TARGET JARS
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(servers: str, topic: str, target: str, jars: str) -> None:
    """Load all records that exist, and end."""
    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.appName("parquet-sink").master("local[*]").config(map=settings).getOrCreate()
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    frame = spark.readStream.format("kafka").options(**options).load()
    writer = frame.writeStream.format("parquet").option("compression", "zstd").option("path", target)
    writer = writer.option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
