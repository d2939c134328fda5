"""What does TLS cost? `python -m benchmarks.tls`: librdkafka through both listeners of one broker, in turns.

Each round produces and consumes the same records in plain text and through TLS; medians of the rounds are compared. The
client encrypts and decrypts on the same machine, so the ratios are lower bounds; the broker's own CPU is counted apart.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer

from benchmarks.path.harness import ROOT
from tests.kit.harness.certificates import Authority
from tests.kit.processes.broker import BrokerProcess, free_port, usage_of

SIZE = 1000
LISTENERS = ("PLAINTEXT", "SSL")


def settings(directory: Path, ports: dict[str, int], listener: str) -> dict[str, object]:
    """librdkafka's."""
    found: dict[str, object] = {"bootstrap.servers": f"127.0.0.1:{ports[listener]}", "security.protocol": listener}
    return found | ({"ssl.ca.location": str(directory / "authority.pem")} if listener == "SSL" else {})


def produce(client: dict[str, object], topic: str, count: int, records: int) -> None:
    producer = Producer({**client, "linger.ms": 50, "batch.num.messages": records, "batch.size": 1_000_000, "acks": 1})
    value = bytes(SIZE)
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError("records were not delivered")


def consume(client: dict[str, object], topic: str, count: int) -> None:
    consumer = Consumer({**client, "group.id": f"{topic}-{time.monotonic_ns()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    left = count
    while left > 0:
        left -= len(consumer.consume(10_000, 10.0))
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300_000, help=f"records of {SIZE} bytes a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-tls-"))
    authority = Authority()
    authority.write_pem(directory / "authority.pem")
    authority.issue("server").write_pem(directory / "server.pem")
    ports = {listener: free_port() for listener in LISTENERS}
    listeners = ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items())
    broker = {"listeners": listeners, "ssl.keystore.location": str(directory / "server.pem")}
    took: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with BrokerProcess(directory / "broker", settings=broker, port=ports["PLAINTEXT"]) as process:
        for number in range(arguments.rounds):
            for listener in LISTENERS[:: 1 if number % 2 else -1]:
                client = settings(directory, ports, listener)
                cases = {
                    "produce, batches of 1000": lambda c=client, n=number, x=listener: produce(
                        c, f"large-{x}-{n}", arguments.count, 1000
                    ),
                    "produce, batches of 50": lambda c=client, n=number, x=listener: produce(
                        c, f"small-{x}-{n}", arguments.count, 50
                    ),
                    "consume": lambda c=client, n=number, x=listener: consume(c, f"large-{x}-{n}", arguments.count),
                }
                for name, run in cases.items():
                    cpu, began = usage_of(process.pid).cpu_s, time.monotonic()
                    run()
                    took[name, listener].append((time.monotonic() - began, usage_of(process.pid).cpu_s - cpu))
    gigabytes = arguments.count * SIZE / 1e9
    print(f"{'':26} {'plain s':>8} {'TLS s':>8} {'ratio':>6} {'broker CPU s/GB: plain':>24} {'TLS':>6}  ({ROOT.name})")
    for name in ("produce, batches of 1000", "produce, batches of 50", "consume"):
        wall = {x: statistics.median(s for s, _ in took[name, x]) for x in LISTENERS}
        cpu_of = {x: statistics.median(c for _, c in took[name, x]) / gigabytes for x in LISTENERS}
        ratio = wall["PLAINTEXT"] / wall["SSL"]
        figures = f"{wall['PLAINTEXT']:8.2f} {wall['SSL']:8.2f} {ratio:6.2f}"
        print(f"{name:26} {figures} {cpu_of['PLAINTEXT']:24.2f} {cpu_of['SSL']:6.2f}")


if __name__ == "__main__":
    main()
