"""Simulate a web server of the example: send visits at a given rate, in Avro, marked and counted for the audit.

  python -m kafkalite.examples.pipeline.front_end -b HOST:PORT --registry URL --server web1 --rate 1000
      --seconds 30 --ready-file FILE

Creates --ready-file once the broker has acknowledged visits. Prints the number of visits sent, as JSON. SIGTERM ends
the program early and cleanly.
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

import numpy as np

from kafkalite.audit import AuditedWriter
from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.examples.pipeline.visits import PATHS, SUBJECT, TOPIC, WINDOW_S, schema

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK_S: Final = 0.05
FLUSH_S: Final = 1.0
REPORT_INTERVAL_S: Final = 2.0
VISITORS: Final = 10_000


class Visits:
    """Creates the visits of one server as Arrow columns."""

    def __init__(self, server: str, *, old: bool) -> None:
        self._server = server
        self._old = old
        self._random = np.random.default_rng(sum(server.encode()))

    def batch(self, count: int, now_ms: int) -> Any:
        """Return `count` visits with the current time."""
        import pyarrow as pa

        random = self._random
        columns = {
            "server": pa.array([self._server] * count),
            "at": pa.array(np.full(count, now_ms), pa.timestamp("ms", tz="UTC")),
            "visitor": pa.array(random.integers(0, VISITORS, count)),
            "path": pa.array([PATHS[at] for at in random.zipf(1.6, count) % len(PATHS)]),
            "status": pa.array(np.where(random.random(count) < 0.02, 500, 200).astype(np.int32)),
            "took_ms": pa.array(random.gamma(2.0, 8.0, count)),
        }
        if not self._old:
            referred = [PATHS[at % len(PATHS)] if at % 3 else None for at in range(count)]
            columns["referrer"] = pa.array(referred, pa.string())
        return pa.record_batch(columns)


def serve(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Send visits at the requested rate. Return the number of visits sent."""
    import pyarrow as pa

    visits = Visits(arguments.server, old=arguments.old)
    sent = 0
    with (
        RegistryClient(arguments.registry) as registry,
        AuditedWriter(
            arguments.bootstrap_server,
            TOPIC,
            server=arguments.server,
            window_s=WINDOW_S,
            report_interval_s=REPORT_INTERVAL_S,
        ) as writer,
    ):
        encoder = AvroEncoder(registry, SUBJECT, schema(old=arguments.old), auto_register=False)
        total = round(arguments.rate * arguments.seconds)
        began = flushed = time.monotonic()
        while sent < total and not stop.is_set():
            due = min(int((time.monotonic() - began) * arguments.rate), total) - sent
            if due > 0:
                now_ms = time.time_ns() // 1_000_000
                batch = visits.batch(due, now_ms)
                keys = batch.column("visitor").cast(pa.string()).cast(pa.binary())
                stamps = pa.array(np.full(due, now_ms), pa.timestamp("ms", tz="UTC"))
                columns = {"key": keys, "value": encoder.encode(batch), "timestamp": stamps}
                writer.write(pa.record_batch(columns))
                sent += due
            if time.monotonic() - flushed > FLUSH_S:
                writer.flush()
                flushed = time.monotonic()
                arguments.ready_file.touch()
            stop.wait(TICK_S)
    arguments.ready_file.touch()  # a short run ends before its first flush
    return sent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--old", action="store_true", help="act as an old release, whose schema lacks a field")
    parser.add_argument("--ready-file", type=Path, required=True)
    parsed = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    json.dump({"server": parsed.server, "sent": serve(parsed, stop)}, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
