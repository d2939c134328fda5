"""Measure how many records of one partition a consumer gets in a row: `python -m benchmarks.run_lengths [--tree
TREE]...`

    12,288 requests of one record, acks=all, to partitions 0 1 2 0 1 2 … over one connection, none of which waits for an
    answer ─▶ broker ─▶ a consumer of all three (librdkafka), which reads meanwhile

A run is the records of one partition between two records of others, as the consumer gets them. A client that hands
partitions to parallel workers keeps only one of them busy during a run.

Each tree (a checkout with a built .venv) is measured with and without the flush of acks=all. Apache Kafka 4.1, which
does not flush, comes last, unless `--no-kafka` is given.

The figure "bulk" shows what a limit on responses would cost: a new consumer's records per second over 3 × 50,000
batches of one record. Results are written to benchmarks/results/run-lengths.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.pairs import broker_of, commit_of
from benchmarks.path.harness import ROOT, Row, write_result
from tests.kit.harness import wire
from tests.kit.processes.apache_kafka import HEAP, ApacheKafka
from tests.kit.processes.broker import BrokerProcess

PARTITIONS = 3
COUNT = 12_288
BULK_COUNT = 150_000
BULK_READS = 5
WAIT_S = 120
RETRY_S = 0.05
FLUSH_SETTING = "flush.on.acks.all"
Server = BrokerProcess | ApacheKafka


class Producer:
    """Writes requests of one record to each partition in turn, and reads the responses."""

    def __init__(self, port: int, topic: str, count: int) -> None:
        self._frames = b"".join(self._frame(topic, number) for number in range(count))
        self._count = count
        self._connection = wire.Connection(port, timeout_s=WAIT_S)

    def run(self) -> float:
        """Write all; return the seconds until the last response."""
        began = time.perf_counter()
        sender = threading.Thread(target=self._connection.send_bytes, args=(self._frames,), daemon=True)
        sender.start()
        for _ in range(self._count):
            answer = wire.parse_produce(self._connection.receive()[1])
            if answer[0].error:
                raise RuntimeError(f"the broker rejected a record: error {answer[0].error}")
        sender.join()
        self._connection.close()
        return time.perf_counter() - began

    @staticmethod
    def _frame(topic: str, number: int) -> bytes:
        batch = wire.batch_of([wire.Record(None, b"%d" % number)])
        body = wire.produce_body(topic, [(number % PARTITIONS, batch)], acks=-1)
        return wire.frame(wire.header(wire.PRODUCE, 7, number) + body)


class Reader:
    """A consumer of all partitions from the beginning, on a separate thread."""

    def __init__(self, bootstrap: str, topic: str, count: int, *, first: int = 0) -> None:
        self.partitions: list[int] = []
        """Of the records, in the order in which they came."""
        self.seconds = 0.0
        self._count = count
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        )
        self._consumer.assign([TopicPartition(topic, each, first) for each in range(PARTITIONS)])
        self._consumer.poll(1.0 if first else 0.0)  # it is connected before the producer begins
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> list[int]:
        self._thread.join()
        self._consumer.close()
        if len(self.partitions) != self._count:
            raise RuntimeError(f"only {len(self.partitions)} of {self._count} records arrived")
        return self.partitions

    def _run(self) -> None:
        began = time.perf_counter()
        while len(self.partitions) < self._count and time.perf_counter() < began + WAIT_S:
            self.partitions.extend(m.partition() for m in self._consumer.consume(1000, 0.1) if m.error() is None)
        self.seconds = time.perf_counter() - began


def run_lengths(partitions: list[int]) -> list[int]:
    return [len(list(group)) for _, group in itertools.groupby(partitions)]


def measure_runs(server: Server, round_number: int) -> Row:
    """Return the runs of one round."""
    topic = f"runs-{round_number}"
    with wire.Connection(server.port) as connection:
        connection.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):  # its files are there before the others come
            while connection.produce(topic, partition, wire.batch_of([wire.Record()])).error:
                time.sleep(RETRY_S)  # Apache Kafka's leader takes a moment
    reader = Reader(server.bootstrap, topic, COUNT, first=1)
    seconds = Producer(server.port, topic, COUNT).run()
    return {"runs": run_lengths(reader.join()), "produced_per_s": COUNT / seconds}


def measure_bulk(server: Server) -> list[float]:
    """Return the records per second of consumers that find all records stored."""
    with wire.Connection(server.port) as connection:
        connection.create_topic("bulk", PARTITIONS)
    Producer(server.port, "bulk", BULK_COUNT).run()
    rates = []
    for _ in range(BULK_READS):
        reader = Reader(server.bootstrap, "bulk", BULK_COUNT)
        reader.join()
        rates.append(BULK_COUNT / reader.seconds)
    return rates


def summary(rows: list[Row]) -> Row:
    runs = sorted(length for row in rows for length in row["runs"])
    return {
        "mean": statistics.mean(runs),
        "mean_of_rounds": [statistics.mean(row["runs"]) for row in rows],
        "median": statistics.median(runs),
        "p99": runs[len(runs) * 99 // 100],
        "longest": runs[-1],
        "longest_of_rounds": [max(row["runs"]) for row in rows],
        "produced_per_s": statistics.median(row["produced_per_s"] for row in rows),
    }


def measure(name: str, server: Server, rounds: int, *, bulk: bool) -> Row:
    """Return a row of the table."""
    server.start()
    try:
        measure_runs(server, rounds)  # a round before any counts: Java compiles what it runs often
        found = {"server": name, **summary([measure_runs(server, number) for number in range(rounds)])}
        if bulk:
            found["bulk_per_s"] = measure_bulk(server)
    finally:
        server.close()
    means, bulk_rates = found["mean_of_rounds"], found.get("bulk_per_s")
    sys.stdout.write(
        f"{name:32} mean {found['mean']:6.1f} ({min(means):.1f} to {max(means):.1f})  median {found['median']:4.0f}"
        f"  p99 {found['p99']:4}  longest {found['longest']:4}  produced {found['produced_per_s']:8,.0f}/s"
        + (f"  bulk {statistics.median(bulk_rates):9,.0f}/s" if bulk_rates else "")
        + "\n"
    )
    sys.stdout.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.run_lengths", description=__doc__.split("\n\n")[0])
    parser.add_argument("--tree", type=Path, action="append", help="a checkout with a built .venv (default: this)")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--no-kafka", action="store_true", help="without Apache Kafka")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as folder:
        for number, tree in enumerate(arguments.tree or [ROOT]):
            for flush in ("true", "false"):
                broker = broker_of(tree.resolve(), Path(folder) / f"{number}-{flush}", {FLUSH_SETTING: flush})
                name = f"{commit_of(tree)}{'' if flush == 'true' else ', no flush'}"
                rows.append(measure(name, broker, arguments.rounds, bulk=flush == "true"))
        if not arguments.no_kafka:
            kafka = ApacheKafka(Path(folder) / "kafka", java_options=(HEAP,))
            rows.append(measure("Apache Kafka 4.1", kafka, arguments.rounds, bulk=False))
    write_result("run-lengths", {"rows": rows, "rounds": arguments.rounds, "records": COUNT})


if __name__ == "__main__":
    main()
