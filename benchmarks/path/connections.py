"""Measure the memory of 10,000 idle connections, and their effect on another client's latency."""

from __future__ import annotations

import resource
import shutil
import tempfile
from pathlib import Path

from benchmarks.path.harness import Row, client, write_result
from tests.kit.harness import wire
from tests.kit.processes.broker import BrokerProcess


def latency(port: int, topic: str, count: int) -> Row:
    return client("raw_bench", "produce", "--port", port, "--topic", topic, "--count", count)


def main(*, small: bool) -> list[Path]:
    connection_count, request_count = (200, 2000) if small else (10_000, 50_000)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-connections-"))
    broker = BrokerProcess(folder)
    held = []
    try:
        broker.start()
        latency(broker.port, "warm", request_count)
        without = latency(broker.port, "without", request_count)
        before = broker.usage()
        for _ in range(connection_count):
            held.append(wire.Connection(broker.port))
            held[-1].call(wire.API_VERSIONS, 0, b"")
        after = broker.usage()
        beside = latency(broker.port, "beside", request_count)
    finally:
        for connection in held:
            connection.close()
        broker.close()
        shutil.rmtree(folder)
    result = {
        "connection_count": connection_count,
        "bytes_per_connection": (after.rss_bytes - before.rss_bytes) / connection_count,
        "rss_mb": after.rss_bytes / 1e6,
        "thread_count": after.thread_count,
        "latency_without": without,
        "latency_beside": beside,
    }
    print(f"{connection_count} connections: {result['bytes_per_connection']:.0f} B each, {result['rss_mb']:.0f} MB;")
    print(f"p99 {without['p99_us']:.0f} µs without, {beside['p99_us']:.0f} µs beside them")
    return [write_result("connections", result)]
