"""A program that loads, to be killed.

    python -m tests.kit.processes.spark_loader load SERVERS TOPIC TARGET
    python -m tests.kit.processes.spark_loader stream SERVERS TOPIC TARGET CHECKPOINT
    python -m tests.kit.processes.spark_loader letters SERVERS TOPIC TARGET LETTER_TOPIC STEP NAMES LAYOUT

It loads what there is in small steps, and ends with status 0 when it is done. With `letters`, a value that begins with
"bad" is a dead letter, and the driver dies (SIGKILL) at a step of the target's storage or of the producer of dead
letters, after it has written the step's name to NAMES; STEP -1 is never. It prints LOADING once Spark has started.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.load.manifest import Target
from kafkalite.load.places import storage_of
from kafkalite.spark import load
from kafkalite.spark.session import session
from tests.kit.fakes.dying_storage import DyingStorage
from tests.kit.processes.native_loader import KINDS, count_producer_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEP_SIZE = 40_000
STEP_ROWS = 700
FILE_SIZE = 20_000
LOADING = "the load begins"


def main(mode: str, servers: str, topic: str, target: str, *more: str) -> None:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark = session("loader", master="local[2]", settings=settings)
    print(LOADING, flush=True)
    if mode == "load":
        load.load(spark, target, bootstrap_servers=servers, topics=[topic], commit_size=STEP_SIZE, file_size=FILE_SIZE)
    elif mode == "letters":
        load_with_letters(spark, servers, topic, target, *more)
    else:
        stream(spark, servers, topic, target, *more)


def stream(spark: SparkSession, servers: str, topic: str, target: str, checkpoint: str) -> None:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(STEP_ROWS),
    }
    frame = spark.readStream.format("kafkalite").options(**options).load()
    query = load.stream_to(frame, target, checkpoint=Path(checkpoint), available_now=True)
    query.awaitTermination()


def load_with_letters(
    spark: SparkSession, servers: str, topic: str, target: str, letter_topic: str, step: str, names: str, layout: str
) -> None:
    storage = DyingStorage(storage_of(target), int(step), Path(names))
    count_producer_steps(storage.step)
    load.load(
        spark,
        Target(storage),
        bootstrap_servers=servers,
        topics=[topic],
        transform=marked,
        dead_letters=letter_topic,
        commit_size=STEP_SIZE,
        file_size=FILE_SIZE,
        partition_by=layout,
        flatten="_",
    )


def marked(frame: DataFrame) -> DataFrame:
    """Mark the values that begin with "bad", and give all a field."""
    from pyspark.sql import functions as sql

    kind = (sql.col("offset") % KINDS).cast("string")
    frame = frame.withColumn("decoded", sql.struct(kind.alias("kind")))
    return frame.withColumn("avro_error", sql.when(sql.col("value").cast("string").startswith("bad"), "it is bad"))


if __name__ == "__main__":
    main(*sys.argv[1:])
