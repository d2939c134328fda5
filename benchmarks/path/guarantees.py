"""Measure the cost of each guarantee, with one librdkafka producer in Python and messages of 200 bytes.

The producer uses acks 0, 1 and all, then idempotence, then transactions of 1, 100 and 10,000 messages; all other
settings are defaults. The messages are then read back, all of them and only committed ones. Producing counts until the
last message is acknowledged (acks=0: sent).

Each rate includes the client. `server_cpu_s_per_million` is the broker's cost. From acks=all on in the table, a
response means that the record is on the disk.
"""

from __future__ import annotations

import functools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.path.harness import Row, cpu_seconds, write_result
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess

VALUE = bytes(range(200))
REPEAT_COUNT = 3
FLUSH_TIMEOUT_S = 120
PLAIN = {
    "acks=0": {"acks": "0"},
    "acks=1": {"acks": "1"},
    "acks=all": {"acks": "all"},
    "idempotent": {"enable.idempotence": True},
}
TRANSACTIONS = (1, 100, 10_000)


def options(broker: BrokerProcess, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5, **more}


def send(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.produce(topic, VALUE, partition=0)
        if number % 1000 == 0:
            producer.poll(0)


def produce_plain(broker: BrokerProcess, topic: str, count: int, settings: dict[str, object]) -> None:
    producer = Producer(options(broker, **settings))
    send(producer, topic, count)
    if producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError("some messages were not acknowledged")


def produce_in_transactions(broker: BrokerProcess, topic: str, count: int, size: int) -> None:
    # A transaction of a few messages must not wait for more to come: its commit flushes.
    producer = Producer(options(broker, **{"transactional.id": topic, "linger.ms": 0 if size == 1 else 5}))
    producer.init_transactions(30)
    for _ in range(count // size):
        producer.begin_transaction()
        send(producer, topic, size)
        producer.commit_transaction(60)


def consume(broker: BrokerProcess, topic: str, count: int, isolation: str) -> None:
    settings = {"group.id": "bench", "isolation.level": isolation, "enable.auto.commit": False, "fetch.min.bytes": 1}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "error", **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    deadline = time.monotonic() + FLUSH_TIMEOUT_S
    while found < count and time.monotonic() < deadline:
        found += sum(message.error() is None for message in consumer.consume(5000, 1))
    consumer.close()
    if found != count:
        raise RuntimeError(f"read only {found} of {count} messages")


def timed(broker: BrokerProcess, count: int, work: Callable[[], None]) -> Row:
    cpu_s, began = cpu_seconds(broker.pid), time.perf_counter()
    work()
    elapsed_s, cpu_s = time.perf_counter() - began, cpu_seconds(broker.pid) - cpu_s
    return {"count": count, "rate_per_s": count / elapsed_s, "server_cpu_s_per_million": cpu_s / count * 1e6}


def measure(broker: BrokerProcess, name: str, count: int, work: Callable[[str], None]) -> Row:
    """Measure each repeat with a separate topic."""
    rows = []
    for repeat in range(REPEAT_COUNT):
        topic = f"{name.replace('=', '-').replace(' ', '-').replace(',', '')}-{repeat}"
        create_topic(broker.port, topic, 1)
        rows.append(timed(broker, count, functools.partial(work, topic)))
    return report(name, rows)


def report(name: str, rows: list[Row]) -> Row:
    row: Row = {"case": name, "rows": rows}
    for key in ("rate_per_s", "server_cpu_s_per_million"):
        row[key] = statistics.median(found[key] for found in rows)
    cpu_s = row["server_cpu_s_per_million"]
    sys.stdout.write(f"{name:28} {row['rate_per_s']:10,.0f} messages/s, broker {cpu_s:8.2f} CPU s/million\n")
    return row


def read_back(broker: BrokerProcess, count: int, isolation: str) -> Row:
    """Read what the largest transactions wrote."""
    topics = [f"transactions-of-{TRANSACTIONS[-1]}-{repeat}" for repeat in range(REPEAT_COUNT)]
    rows = [timed(broker, count, functools.partial(consume, broker, topic, count, isolation)) for topic in topics]
    return report(isolation, rows)


def main(*, small: bool) -> list[Path]:
    count = 20_000 if small else 200_000
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-guarantees-"))
    cases = []
    try:
        with BrokerProcess(folder) as broker:
            for name, settings in PLAIN.items():
                plain = functools.partial(produce_plain, broker, count=count, settings=settings)
                cases.append(measure(broker, name, count, plain))
            for size in TRANSACTIONS:
                number = max(size, min(count, size * (50 if small else 200)) // size * size)
                grouped = functools.partial(produce_in_transactions, broker, count=number, size=size)
                cases.append(measure(broker, f"transactions of {size}", number, grouped))
            cases += [read_back(broker, number, isolation) for isolation in ("read_uncommitted", "read_committed")]
    finally:
        shutil.rmtree(folder)
    return [write_result("guarantees", {"cases": cases, "repeat_count": REPEAT_COUNT})]
