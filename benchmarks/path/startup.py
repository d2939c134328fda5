"""Measure the time from starting the process in an empty directory to the first acknowledged message, and idle memory.

The clock starts before the interpreter. It stops when a bare socket, which tries to connect all the time, has the
response to its Produce request. So a client's start is not included. Target: ≤ 0.5 s, idle ≤ 60 MB.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.path.harness import write_result
from tests.kit.harness import wire
from tests.kit.processes.broker import BrokerProcess

IDLE_S = 2.0


def first_message_s(broker: BrokerProcess) -> float:
    """Return the seconds until a message is acknowledged. Its topic is created on the way."""
    began = time.monotonic()
    broker.launch()
    while True:
        with contextlib.suppress(OSError), wire.Connection(broker.port, timeout_s=10) as connection:
            connection.call(wire.METADATA, 4, wire.array([wire.string("first")]) + b"\1")
            answer = connection.produce("first", 0, wire.batch_of([wire.Record(None, b"v")]), acks=-1)
            assert answer.error == 0, answer
            return time.monotonic() - began
        if time.monotonic() - began > 30:
            raise TimeoutError(broker.log())
        time.sleep(0.002)


def main(*, small: bool) -> list[Path]:
    first, again, memory, stop = [], [], [], []
    for _ in range(1 if small else 7):
        folder = Path(tempfile.mkdtemp(prefix="kafkalite-startup-"))
        broker = BrokerProcess(folder)
        first.append(first_message_s(broker))
        time.sleep(0.1 if small else IDLE_S)
        memory.append(broker.usage().rss_bytes / 1e6)
        stop.append(broker.stop())
        again.append(first_message_s(broker))
        broker.close()
        shutil.rmtree(folder)
    result = {
        "first_message_s": statistics.median(first),
        "first_message_after_restart_s": statistics.median(again),
        "idle_rss_mb": statistics.median(memory),
        "stop_s": statistics.median(stop),
        "rows": {"first": first, "again": again, "memory": memory, "stop": stop},
    }
    print({key: round(value, 3) for key, value in result.items() if key != "rows"})
    return [write_result("startup", result)]
