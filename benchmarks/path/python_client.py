"""Find out whether the client or the broker is the limit, from Python with confluent-kafka.

The produce loop and consume(500) of 200-byte messages run against the C yardstick and kafkalite in the same run. If the
two rates agree, the client is the limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.path.harness import Case, Kafkalite, NullBroker, Row, Server, run_suite

MESSAGE = b"m" * 200
CONSUME_COUNT = 500


def produce_case(count: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": f"127.0.0.1:{server.port}", "acks": 1, "linger.ms": 5})
        wall, cpu = time.monotonic(), time.process_time()
        for _ in range(count):
            while True:
                try:
                    producer.produce(f"py-{repeat}", MESSAGE, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        left = producer.flush(60)
        assert left == 0, f"{left} messages were not acknowledged"
        return _row(count, time.monotonic() - wall, time.process_time() - cpu)

    return Case("confluent-kafka-produce", run)


def consume_case(count: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": f"127.0.0.1:{server.port}", "group.id": "bench", "enable.auto.commit": False}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(f"py-{repeat}", 0, 0)])
        wall, cpu, done, size = time.monotonic(), time.process_time(), 0, 0
        deadline = wall + 60
        while done < count:
            messages = consumer.consume(CONSUME_COUNT, 1.0)
            assert time.monotonic() < deadline, f"read only {done} of {count} messages in 60 s"
            good = [message for message in messages if message.error() is None]
            size += sum(len(message) for message in good)
            done += len(good)
        row = _row(done, time.monotonic() - wall, time.process_time() - cpu)
        row["hash"] = size
        consumer.close()
        return row

    return Case("confluent-kafka-consume-500", run)


def _row(count: int, wall_s: float, cpu_s: float) -> Row:
    return {"count": count, "wall_s": wall_s, "rate_per_s": count / wall_s, "client_cpu_s": cpu_s}


def servers(folder: Path) -> Sequence[Server]:
    return [NullBroker("null-append", folder / "append"), Kafkalite("kafkalite", folder / "kafkalite")]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (5_000, 1) if small else (1_000_000, 3)
    return [run_suite("python-client", [produce_case(count), consume_case(count)], servers, repeat_count)]
