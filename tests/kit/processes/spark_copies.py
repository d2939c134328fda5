"""A Spark job that copies a topic by three sinks at a time, to be killed: `python -m` this module, and JSON.

    source ─┬─▶ topic appended    format("kafkalite"), at least once
            ├─▶ topic once        format("kafkalite"), delivery=exactly-once
            └─▶ parquet files     foreachBatch, which overwrites the directory of its batch

Each query has its own checkpoint and ends at the offsets that it first found. The status is 0 when all did.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROWS_PER_BATCH = 500
QUERIES = ("appended", "once", "files")


class Places(NamedTuple):
    """Where a job reads and writes."""

    bootstrap: str
    source: str
    directory: str

    def checkpoint(self, name: str) -> Path:
        return Path(self.directory) / f"checkpoint-{name}"

    @property
    def files(self) -> Path:
        return Path(self.directory) / "files"

    def topic(self, name: str) -> str:
        return f"{self.source}-{name}"


def start(spark: Any, places: Places, name: str) -> Any:
    """One of the three queries, running."""
    servers = {"kafka.bootstrap.servers": places.bootstrap}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_BATCH)}
    frame = spark.readStream.format("kafkalite").options(**servers, **limits, subscribe=places.source)
    written = frame.schema("key BINARY, value BINARY").load().writeStream
    writer = written.option("checkpointLocation", str(places.checkpoint(name))).trigger(availableNow=True)

    def write_files(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(places.files / f"batch={number}"))

    if name == "files":
        return writer.foreachBatch(write_files).start()
    delivery = "exactly-once" if name == "once" else "at-least-once"
    return writer.format("kafkalite").options(**servers, topic=places.topic(name), delivery=delivery).start()


def main() -> None:
    """Runs the job to its end."""
    from kafkalite.spark.session import session

    places = Places(**json.loads(sys.argv[1]))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark = session("copies", master="local[2,4]", settings=settings)
    queries = []
    for name in QUERIES:
        queries.append(start(spark, places, name))
        # Spark gives a Python process ten seconds to come; on a busy machine not all of them at once.
        while queries[-1].isActive and queries[-1].lastProgress is None:
            time.sleep(0.05)
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
