"""Load driver kafka-python-user: confluent-kafka as a Python program uses it, for all brokers with Kafka's protocol.

The settings are those of kafka_c.c. The difference is a Python call for each produced message, and for each 500
consumed. While producing, it polls as confluent-kafka's documentation does, with reports of failures only.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.head_to_head.drivers.common import Failure, Run, guarded

NAME = "kafka-python-user"
ACKS = {"one": "1", "none": "0", "disk": "all"}
CONSUME_COUNT = 500
POLL_EVERY = 100
METADATA_TIMEOUT_S = 10.0


def client_settings(run: Run) -> dict[str, Any]:
    return {"bootstrap.servers": f"{run.host}:{run.port}", "log_level": 0}


def on_delivery(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise Failure(f"a message was not delivered: {error}")


def open_producer(run: Run, batch: int, wait_ms: float, in_flight: int) -> Producer:
    settings = {
        **client_settings(run),
        "acks": ACKS[run.ack],
        "batch.num.messages": batch,
        "linger.ms": wait_ms,
        "max.in.flight.requests.per.connection": in_flight,
        "delivery.report.only.error": True,
        "retries": 0,
        "on_delivery": on_delivery,
    }
    producer = Producer(settings)
    while True:  # the watchdog ends it
        topic = producer.list_topics(run.topic, METADATA_TIMEOUT_S).topics[run.topic]
        if topic.error is None and topic.partitions and topic.partitions[0].error is None:
            return producer


def produce(run: Run) -> None:
    producer = open_producer(run, run.batch, 5 if run.batch > 1 else 0, run.in_flight)
    topic, payload, send, poll = run.topic, run.payload(), producer.produce, producer.poll
    sent = 0
    run.begin()
    while sent < run.messages:
        for _ in range(min(POLL_EVERY, run.messages - sent)):
            while True:
                try:
                    send(topic, payload, partition=0)
                    break
                except BufferError:
                    poll(0.001)
            sent += 1
        poll(0)
        run.advance(sent - len(producer))
    while left := producer.flush(0.05):
        run.advance(run.messages - left)
    run.advance(run.messages)
    run.end()


def open_consumer(run: Run) -> Consumer:
    settings = {"group.id": "load", "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({**client_settings(run), **settings})


def payloads(messages: list[Message]) -> list[bytes]:
    """Return the values of messages. Raises Failure for the first error."""
    for message in messages:
        if message.error() is not None:
            raise Failure(f"fetching failed: {message.error()}")
    return [message.value() or b"" for message in messages]


def consume(run: Run) -> None:
    consumer = open_consumer(run)
    run.begin()
    consumer.assign([TopicPartition(run.topic, 0, OFFSET_BEGINNING)])
    while run.count < run.messages:
        run.receive(payloads(consumer.consume(min(CONSUME_COUNT, run.messages - run.count), 0.1)))
    run.end()


def latency(run: Run) -> None:
    producer, consumer = open_producer(run, 10000, 0, 5), open_consumer(run)
    _, end = consumer.get_watermark_offsets(TopicPartition(run.topic, 0), METADATA_TIMEOUT_S)
    consumer.assign([TopicPartition(run.topic, 0, end)])

    def receive() -> None:
        while run.received < run.total:
            message = consumer.poll(0.1)
            if message is not None:
                run.receive_stamped(payloads([message])[0])

    def send(payload: bytes) -> None:
        producer.produce(run.topic, payload, partition=0)

    run.latency(send, lambda: producer.poll(0), receive)


def main() -> None:
    run = Run.open(NAME, acks=tuple(ACKS))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"confluent-kafka {confluent_kafka.version()[0]}, librdkafka {confluent_kafka.libversion()[0]}")


if __name__ == "__main__":
    main()
