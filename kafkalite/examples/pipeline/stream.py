"""Run the streaming load of the example: a Spark query from the offline broker to Parquet, until SIGTERM.

  python -m kafkalite.examples.pipeline.stream -b HOST:PORT --registry URL --to DIR --log FILE --ready-file FILE

For each change of the target directory, a line {"published_ms": …, "files": […]} is written to --log. From that time
on, readers see these files.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.examples.pipeline.visits import JAVA_OPTIONS, MASTER, SUBJECT, TOPIC
from kafkalite.spark.avro import decode_avro
from kafkalite.spark.load import stream_to
from kafkalite.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.spark.load import Published

READY_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.1
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


def start(arguments: argparse.Namespace) -> Any:
    """Start the streaming query."""
    spark = session("kafkalite-pipeline", master=MASTER, settings=SETTINGS)
    frame = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")  # the audit's marks
        .option("kafka.isolation.level", "read_committed")  # a mirror writes transactions
        .option("kafka.group.id", "visits-to-parquet")
        .load()
    )
    decoded = decode_avro(frame, arguments.registry, subject=SUBJECT).drop("value")

    def on_commit(published: Published) -> None:
        line = {"published_ms": time.time_ns() // 1_000_000, "files": [file.path for file in published.files]}
        with arguments.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    return stream_to(decoded, arguments.to, trigger_s=arguments.trigger, on_commit=on_commit)


def await_ready(query: Any, stop: threading.Event) -> None:
    """Wait until the query has started and waits for data."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while query.isActive and not stop.is_set() and time.monotonic() < deadline:
        if str(query.status["message"]).startswith("Waiting"):
            return
        stop.wait(POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--trigger", type=float, default=1.0)
    parsed = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    query = start(parsed)
    await_ready(query, stop)
    parsed.ready_file.write_text("ready\n", encoding="utf-8")
    while query.isActive and not stop.is_set():
        stop.wait(POLL_S)
    failure = query.exception()
    query.stop()
    query.sparkSession.stop()
    if failure is not None:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
