"""Compare Kafka 0.7's protocol with the current one: the cost of producing and consuming a message.

Messages of 200 bytes are sent in batches of 50 to one partition. The yardstick is the current protocol (librdkafka in
C, acks=1). The other side is kafkalite's Producer, KafkaStream and SimpleConsumer in Python. Both brokers flush as
0.7's server.properties does: every 10,000 messages or every second.

Producing ends when all but the last 10,000 messages are visible, because those wait for the flush by time. Targets:
produce ≥ 1 M messages/s, consume ≥ 2 M/s.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.path.harness import CLIENT_TIMEOUT_S, ROOT, Case, Kafkalite, Row, Server, client, run_suite
from benchmarks.path.throughput import produce as produce_today
from tests.kit.processes.broker import BrokerProcess, free_port

BATCH = 50
MESSAGE_SIZE = 200
FLUSH = {"messages": "10000", "ms": "1000"}
HOW = ("stream", "simple")


@dataclass
class Classic(Kafkalite):
    """A broker that is reached over its port for Kafka 0.7."""

    def start(self) -> None:
        port, self.port = free_port(), free_port()
        listeners = f"kafka://127.0.0.1:{port},kafka07://127.0.0.1:{self.port}"
        settings = {"listeners": listeners, "num.partitions": "1", **self.settings}
        self.broker = BrokerProcess(self.directory, settings, port=port).start()


def classic_client(what: str, server: Server, topic: str, count: int, *arguments: str) -> Row:
    """Return the JSON line that benchmarks/clients/classic_bench.py prints."""
    command = [sys.executable, "-m", "benchmarks.clients.classic_bench", what, "--port", str(server.port)]
    command += ["--topic", topic, "--count", str(count), "--size", str(MESSAGE_SIZE), "--batch", str(BATCH), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with status {done.returncode}: {done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def produce_case(count: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        if isinstance(server, Classic):
            return classic_client("produce", server, f"t{repeat}", count, "--tail", FLUSH["messages"])
        return produce_today(server, f"t{repeat}", BATCH, count)

    return Case("produce-batch-50", run)


def consume_case(how: str, count: int) -> Case:
    """Read what the produce case of the same repeat wrote. On the yardstick, both reads use the current protocol."""

    def run(server: Server, repeat: int) -> Row:
        if isinstance(server, Classic):
            return classic_client("consume", server, f"t{repeat}", count, "--how", how)
        target = ["--brokers", f"127.0.0.1:{server.port}", "--topic", f"t{repeat}", "--count", count]
        return client("rdk_bench", "consume", *target)

    return Case(f"consume-{how}", run)


def servers(folder: Path) -> Sequence[Server]:
    today = {"log.flush.interval.messages": FLUSH["messages"], "log.flush.interval.ms": FLUSH["ms"]}
    classic = {"log.flush.interval": FLUSH["messages"], "log.default.flush.interval.ms": FLUSH["ms"]}
    return [
        Kafkalite("today", folder / "today", settings={"num.partitions": "1", **today}),
        Classic("classic", folder / "classic", settings=classic),
    ]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (20_000, 1) if small else (2_000_000, 5)
    cases = [produce_case(count), *(consume_case(how, count) for how in HOW)]
    return [run_suite("classic", cases, servers, repeat_count)]
