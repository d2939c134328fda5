"""Load driver classic: kafkalite's own client for Kafka 0.7 (Producer and SimpleConsumer), as a program uses it.

A batch is the messages of one send, which is one PRODUCE request. Nothing is acknowledged. The consumer fetches 1 MB at
a time. At the end of the log it fetches again after a pause, because a fetch of 0.7 cannot wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import kafkalite
from benchmarks.head_to_head.drivers.common import Run, guarded
from kafkalite.classic import Producer, ProducerConfig, ProducerData, SimpleConsumer

NAME = "classic"
FETCH_SIZE = 1 << 20
PAUSE_S = 0.0001
NEVER = 2**31 - 1


def open_producer(run: Run) -> Producer:
    """Open a producer that never reconnects, because messages of two connections have no order."""
    config = ProducerConfig(
        broker_list=f"0:{run.host}:{run.port}",
        max_message_size=max(1_000_000, run.size),
        reconnect_interval=NEVER,
        reconnect_time_interval_ms=-1,
    )
    return Producer(config)


def produce(run: Run) -> None:
    producer, payload = open_producer(run), run.payload()
    whole = ProducerData(run.topic, [payload] * run.batch)
    run.begin()
    while run.count < run.messages:
        left = run.messages - run.count
        producer.send(whole if left >= run.batch else ProducerData(run.topic, [payload] * left))
        run.advance(run.count + min(left, run.batch))
    run.end()
    producer.close()


def read(run: Run, take: Callable[[list[bytes]], None], done: Callable[[], bool]) -> None:
    """Pass the messages of each fetch of partition 0 on, from the first message until `done`."""
    consumer, offset = SimpleConsumer(run.host, run.port), 0
    while not done():
        found = consumer.fetch(run.topic, 0, offset, FETCH_SIZE)
        if len(found) == 0:
            time.sleep(PAUSE_S)
            continue
        take([message.payload for message, _ in found])
        offset += found.valid_size


def consume(run: Run) -> None:
    run.begin()
    read(run, run.receive, lambda: run.count == run.messages)
    run.end()


def latency(run: Run) -> None:
    producer = open_producer(run)

    def take(payloads: list[bytes]) -> None:
        for payload in payloads:
            run.receive_stamped(payload)

    run.latency(
        lambda payload: producer.send(ProducerData(run.topic, [payload])),
        None,
        lambda: read(run, take, lambda: run.received == run.total),
    )


def main() -> None:
    run = Run.open(NAME, acks=("none",))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"kafkalite.classic {kafkalite.__version__}")


if __name__ == "__main__":
    main()
