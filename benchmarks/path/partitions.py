"""Measure the cost of 10,000 partitions: creation, one message each, memory, a clean restart, and one after kill -9.

Target: all are served; clean restart ≤ 10 s.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.path.harness import Row, write_result
from tests.kit.harness import wire
from tests.kit.processes.broker import BrokerProcess

PER_TOPIC = 100
TIMEOUT_S = 300.0


def create(connection: wire.Connection, topic_count: int) -> None:
    for number in range(topic_count):
        error = connection.create_topic(f"topic-{number}", PER_TOPIC)
        assert error == 0, f"topic-{number}: error {error}"


def write_each(connection: wire.Connection, topic_count: int) -> None:
    """Write one message to each partition, with a request per topic."""
    batch = wire.batch_of([wire.Record(None, b"v" * 200)])
    for number in range(topic_count):
        body = wire.produce_body(f"topic-{number}", [(partition, batch) for partition in range(PER_TOPIC)])
        answers = wire.parse_produce(connection.call(wire.PRODUCE, 7, body))
        assert not [answer for answer in answers if answer.error]


def read_each(connection: wire.Connection, topic_count: int) -> None:
    for number in range(topic_count):
        body = wire.fetch_body(f"topic-{number}", [(partition, 0) for partition in range(PER_TOPIC)])
        answers = wire.parse_fetch(connection.call(wire.FETCH, 11, body))
        assert all(answer.error == 0 and answer.records for answer in answers)


def timed(result: Row, name: str, began: float) -> None:
    result[name] = time.monotonic() - began
    print(f"{name} {result[name]:.2f}", flush=True)


def main(*, small: bool) -> list[Path]:
    topic_count = 2 if small else 100
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-partitions-"))
    broker = BrokerProcess(folder)
    result: Row = {"partition_count": topic_count * PER_TOPIC}
    try:
        broker.start()
        result["idle_rss_mb"] = broker.usage().rss_bytes / 1e6
        for name, step in (("create_s", create), ("write_each_s", write_each), ("read_each_s", read_each)):
            with wire.Connection(broker.port, timeout_s=TIMEOUT_S) as connection:
                began = time.monotonic()
                step(connection, topic_count)
                timed(result, name, began)
        result["full_rss_mb"] = broker.usage().rss_bytes / 1e6
        result["stop_s"] = broker.stop()
        broker.start(timeout_s=TIMEOUT_S)
        result["clean_restart_s"] = broker.ready_s
        result["restarted_rss_mb"] = broker.usage().rss_bytes / 1e6
        with wire.Connection(broker.port, timeout_s=TIMEOUT_S) as connection:
            write_each(connection, topic_count)
        broker.kill()
        broker.start(timeout_s=TIMEOUT_S)
        result["restart_after_kill_s"] = broker.ready_s
        with wire.Connection(broker.port, timeout_s=TIMEOUT_S) as connection:
            read_each(connection, topic_count)
    finally:
        broker.close()
        shutil.rmtree(folder)
    print({key: round(value, 2) for key, value in result.items()})
    return [write_result("partitions", result)]
