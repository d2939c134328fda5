"""confluent-kafka on a topic of Kafka 0.7's messages: it stops, commits and resumes at every one, wrappers too."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_STORED, Consumer, Message, TopicPartition

from tests.compat.classic_topics import END, OFFSETS, PAYLOADS, classic_broker, plant

TIMEOUT_S = 60.0


def next_message(reader: Consumer) -> Message:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            return message
    raise AssertionError("no message in time")


def test_resumed_at_every_message_where_it_committed(topic: str) -> None:
    found = []
    with classic_broker() as broker:
        plant(broker, topic)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "check.crcs": True, "fetch.wait.max.ms": 50,
        }  # fmt: skip
        for _ in PAYLOADS:
            reader = Consumer(settings)
            reader.assign([TopicPartition(topic, 0, OFFSET_STORED)])
            message = next_message(reader)
            found.append((message.offset(), message.value()))
            reader.commit(message=message, asynchronous=False)
            reader.close()
        end = Consumer(settings)
        assert end.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, END)
        end.close()
    assert found == list(zip(OFFSETS, PAYLOADS, strict=True))
