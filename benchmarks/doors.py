"""Measure the cost of SASL and 1,000 ACLs: `python -m benchmarks.doors [--pairs 15] [--rules 1000]`.

    pair 1: open, closed   pair 2: closed, open   …   (both brokers stay up; one works, the other idles)

Both brokers run this tree. The closed broker has a listener with SASL (PLAIN), an authorizer and many ACLs, three of
which concern the client. Ratios and intervals are computed as in `benchmarks.pairs`. To decide, use
`benchmarks.instructions --rules`, because instructions do not depend on the machine's other load.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.instructions import write_rules
from benchmarks.pairs import PairCase, TreeServer, compare
from benchmarks.path.harness import Row, client
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.processes.broker import BrokerProcess, free_port

USER, PASSWORD = "bench", "correct-horse"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="unused" password="unused" user_{USER}="{PASSWORD}";'
)
SETTINGS = {"num.partitions": "8", "message.max.bytes": "4194304"}


@dataclass
class Door(TreeServer):
    """A broker, open or closed, and the client flags to reach it."""

    raw: list[str] = field(default_factory=list)
    librdkafka: list[str] = field(default_factory=list)
    rules: int = 0

    def start(self) -> None:
        settings, port = SETTINGS, free_port()
        if self.rules:
            write_rules(self.directory / "data", self.rules, f"User:{USER}", "doors-")
            settings = {
                **SETTINGS,
                "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
                "authorizer.class.name": STANDARD_AUTHORIZER,
            }
            self.raw = ["--user", USER, "--password", PASSWORD]
            options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            options |= {"sasl.username": USER, "sasl.password": PASSWORD}
            self.librdkafka = [part for key, value in options.items() for part in ("-X", f"{key}={value}")]
        self.broker = BrokerProcess(self.directory, settings, port=port).start()
        self.port = port


def produce(server: Door, turn: int, *, batch: int, count: int) -> Row:
    options = [f"batch.num.messages={batch}", "linger.ms=5", "acks=1", "queue.buffering.max.messages=1000000"]
    options += ["queue.buffering.max.kbytes=1000000", "batch.size=4000000", "message.max.bytes=4000000"]
    flags = [part for option in options for part in ("-X", option)]
    target = [
        "--brokers",
        f"127.0.0.1:{server.port}",
        "--topic",
        f"doors-{batch}-{turn}",
        "--count",
        count,
        "--size",
        200,
    ]
    return client("rdk_bench", "produce", *target, *flags, *server.librdkafka)


def consume(server: Door, turn: int, *, batch: int, count: int) -> Row:
    """Consume the messages of the produce case in the same turn."""
    target = ["--brokers", f"127.0.0.1:{server.port}", "--topic", f"doors-{batch}-{turn}", "--count", count]
    return client("rdk_bench", "consume", *target, *server.librdkafka)


def one_in_flight(server: Door, turn: int, *, count: int) -> Row:
    target = ["--port", server.port, "--topic", f"doors-one-{turn}", "--count", count, "--size", 200]
    return client("raw_bench", "produce", *target, *server.raw)


def cases(scale: float) -> list[PairCase]:
    def count(full: int) -> int:
        return max(int(full * scale), 2000)

    return [
        PairCase("produce-50", functools.partial(produce, batch=50, count=count(1_000_000))),
        PairCase("consume-50", functools.partial(consume, batch=50, count=count(1_000_000))),
        PairCase("produce-10000", functools.partial(produce, batch=10_000, count=count(1_000_000))),
        PairCase("one-in-flight", functools.partial(one_in_flight, count=count(60_000))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.doors", description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages of each case")
    parser.add_argument("--out", type=Path, help="a JSON file for every ratio")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkalite-doors-") as folder:
        opened = Door("old", Path(folder) / "open")
        closed = Door("new", Path(folder) / "closed", rules=arguments.rules)
        try:
            opened.start()
            closed.start()
            rows = compare(cases(arguments.scale), opened, closed, arguments.pairs)
        finally:
            opened.stop()
            closed.stop()
    if arguments.out:
        arguments.out.write_text(json.dumps({"rules": arguments.rules, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
