"""A program that loads, to be killed.

    python -m tests.kit.processes.spark_loader load|stream SERVERS TOPIC TARGET CHECKPOINT

It loads what there is in small steps, and ends with status 0 when it is done.
"""

import sys
from pathlib import Path

from kafkalite.spark import load
from kafkalite.spark.session import session

STEP_SIZE = 40_000
STEP_ROWS = 700


def main(mode: str, servers: str, topic: str, target: str, checkpoint: str) -> None:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark = session("loader", master="local[2]", settings=settings)
    if mode == "load":
        load.load(spark, target, bootstrap_servers=servers, topics=[topic], commit_size=STEP_SIZE, file_size=20_000)
        return
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(STEP_ROWS),
    }
    frame = spark.readStream.format("kafkalite").options(**options).load()
    query = load.stream_to(frame, target, checkpoint=Path(checkpoint), available_now=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
