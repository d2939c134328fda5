"""Third-party clients write lines to a topic and read them back, with the settings that a listener requires."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.kit.processes.broker import wait_until

LINES = [f"line {i}" for i in range(500)]
TIMEOUT_S = 120


def librdkafka(settings: Mapping[str, Any], topic: str) -> None:
    producer = Producer({**settings, "linger.ms": 20})
    for line in LINES:
        producer.produce(topic, line.encode())
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []

    def read() -> bool:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None
            found.append((message.value() or b"").decode())
        return len(found) >= len(LINES)

    wait_until(read, TIMEOUT_S, "the messages")
    consumer.close()
    assert found == LINES


def kcat(settings: Mapping[str, Any], topic: str) -> None:
    """By librdkafka's settings."""
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not installed (apt-get install kcat)")
    flags = [f"-X{key}={value}" for key, value in settings.items() if key != "bootstrap.servers"]
    command = [path, "-m", "60", "-b", settings["bootstrap.servers"], *flags, "-t", topic]
    sent = subprocess.run([*command, "-P"], input="\n".join(LINES), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert sent.returncode == 0, sent.stderr
    reading = [*command, "-C", "-e", "-q", "-o", "beginning"]
    done = subprocess.run(reading, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert done.stdout.splitlines() == LINES


def kafka_python(settings: Mapping[str, Any], topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(**settings)
    for line in LINES:
        producer.send(topic, line.encode())
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    found = []
    for message in consumer:
        found.append(message.value.decode())
        if len(found) == len(LINES):
            break
    consumer.close()
    assert found == LINES


def aiokafka(settings: Mapping[str, Any], topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def both() -> list[str]:
        async with AIOKafkaProducer(**settings) as producer:
            for line in LINES:
                await producer.send(topic, line.encode())
            await producer.flush()
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await consumer.getone()).value.decode() for _ in LINES]

    assert asyncio.run(asyncio.wait_for(both(), TIMEOUT_S)) == LINES
