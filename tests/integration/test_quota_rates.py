"""Real clients limited to a rate: none exceeds it, none gives up, and a client with constant demand uses all of it.

By acknowledged bytes a client may have at most its rate over the elapsed time, plus one sample's worth that a new
client begins with, and the bytes in flight. Reaching nearly that much depends on the machine, so only the slow runs
check it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.testing import KafkaBroker
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.compat import node_checks, toolchains
from tests.kit.harness.quotas import Client, set_quotas
from tests.kit.processes.apache_kafka import NotAvailable, jars, run_tool
from tests.kit.processes.broker import BrokerProcess

pytestmark = pytest.mark.integration

RATE = 10_000_000
SECONDS = 30
VALUE = bytes(range(250)) * 40
IN_FLIGHT = 2_000_000
"""Bytes that a client may have sent, or the broker read, when it is looked at."""
Load = Callable[[int, int], tuple[int, float]]  # (port, seconds) → bytes acknowledged or read, seconds they took


def confluent_produces(port: int, seconds: int) -> tuple[int, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "c", "queue.buffering.max.kbytes": 2048}
    )
    done = 0

    def delivered(error: object, message: object) -> None:
        nonlocal done
        assert error is None, error
        done += len(VALUE)

    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            producer.produce("t", VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
    took = time.monotonic() - began
    counted = done
    assert producer.flush(60) == 0
    return counted, took


def confluent_consumes(port: int, seconds: int) -> tuple[int, float]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "c", "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    done, began = 0, 0.0
    while not began or time.monotonic() - began < seconds:
        for message in consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            began = began or time.monotonic()
            done += len(message.value())
    took = time.monotonic() - began
    consumer.close()
    return done, took


def kafka_python_produces(port: int, seconds: int) -> tuple[int, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", client_id="c", batch_size=200_000)
    began = time.monotonic()
    done = 0
    while time.monotonic() - began < seconds:
        sent = [producer.send("t", VALUE) for _ in range(100)]
        for future in sent:
            future.get(60)
        done += 100 * len(VALUE)
    took = time.monotonic() - began
    producer.close()
    return done, took


def kafka_python_consumes(port: int, seconds: int) -> tuple[int, float]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", client_id="c", enable_auto_commit=False)
    consumer.assign([Partition("t", 0)])
    consumer.seek_to_beginning()
    done, began = 0, 0.0
    while not began or time.monotonic() - began < seconds:
        for records in consumer.poll(100).values():
            began = began or time.monotonic()
            done += sum(len(record.value) for record in records)
    took = time.monotonic() - began
    consumer.close()
    return done, took


def aiokafka_produces(port: int, seconds: int) -> tuple[int, float]:
    from aiokafka import AIOKafkaProducer

    async def produce() -> tuple[int, float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port}", client_id="c", max_batch_size=200_000, request_timeout_ms=60_000
        )
        await producer.start()
        began = time.monotonic()
        done = 0
        while time.monotonic() - began < seconds:
            await asyncio.gather(*[await producer.send("t", VALUE, partition=0) for _ in range(100)])
            done += 100 * len(VALUE)
        took = time.monotonic() - began
        await producer.stop()
        return done, took

    return asyncio.run(produce())


def java_produces(port: int, seconds: int) -> tuple[int, float]:
    count = seconds * RATE // len(VALUE)
    properties = [f"bootstrap.servers=127.0.0.1:{port}", "client.id=c", "acks=1", "buffer.memory=2097152"]
    arguments = ["--topic", "t", "--num-records", str(count), "--record-size", str(len(VALUE)), "--throughput", "-1"]
    found = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", *arguments, "--producer-props", *properties, timeout_s=300
    )
    last = found.strip().split("\n")[-1]
    match = re.match(r"(\d+) records sent, ([\d.]+) records/sec", last)
    assert match, found[-1000:]
    assert int(match[1]) == count
    return count * len(VALUE), count / float(match[2])


def told_by(program: list[str], port: int, seconds: int) -> tuple[int, float]:
    """Return the figures that a client program of tests/compat reports as acknowledged."""
    command = [*program, f"127.0.0.1:{port}", "rate", "t", str(seconds)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-1000:] + run.stderr[-3000:]
    done, took = run.stdout.split()
    return int(done), float(took)


def franz_go_produces(port: int, seconds: int) -> tuple[int, float]:
    return told_by([str(toolchains.build_go("franz_go"))], port, seconds)


def sarama_produces(port: int, seconds: int) -> tuple[int, float]:
    return told_by([str(toolchains.build_go("sarama"))], port, seconds)


def kafkajs_produces(port: int, seconds: int) -> tuple[int, float]:
    return told_by([toolchains.any_node(), str(node_checks.installed("kafkajs", "kafkajs"))], port, seconds)


def platformatic_produces(port: int, seconds: int) -> tuple[int, float]:
    program = node_checks.installed("platformatic", "@platformatic/kafka")
    return told_by([toolchains.node(), str(program)], port, seconds)


PRODUCERS = [
    confluent_produces,
    kafka_python_produces,
    aiokafka_produces,
    java_produces,
    franz_go_produces,
    sarama_produces,
    kafkajs_produces,
    platformatic_produces,
]
PREPARATIONS: dict[Load, Callable[[], object]] = {
    java_produces: jars,
    franz_go_produces: lambda: toolchains.build_go("franz_go"),
    sarama_produces: lambda: toolchains.build_go("sarama"),
    kafkajs_produces: lambda: (toolchains.any_node(), node_checks.installed("kafkajs", "kafkajs")),
    platformatic_produces: lambda: (toolchains.node(), node_checks.installed("platformatic", "@platformatic/kafka")),
}
"""Fetch or build these first; NotAvailable where that fails."""
CONSUMERS = [confluent_consumes, kafka_python_consumes]


def fill(port: int, size: int) -> None:
    """Write at least `size` bytes for consumers."""
    with Client(port, "filler") as client:
        for _ in range(size // 900_000 + 1):
            client.put(900_000)


def held(load: Load, port: int, seconds: int, rate: int) -> float:
    """The rate that the client had; it was not above its quota."""
    done, took = load(port, seconds)
    assert done <= rate * (took + 1) + IN_FLIGHT, (done, took)
    return done / took


@pytest.mark.parametrize("load", [confluent_produces, confluent_consumes])
def test_a_client_is_held_to_its_quota(load: Load) -> None:
    with KafkaBroker(in_process=True, num_partitions=1) as broker:
        broker.create_topic("t")
        fill(broker.port, 12_000_000)
        set_quotas(broker.port, {"client-id": "c"}, producer_byte_rate=1_000_000.0, consumer_byte_rate=1_000_000.0)
        assert held(load, broker.port, 3, 1_000_000) > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python, when it is imported
@pytest.mark.parametrize("load", [*PRODUCERS, *CONSUMERS], ids=lambda load: load.__name__)
def test_a_client_has_its_quota_within_five_percent(load: Load, tmp_path: Path) -> None:
    try:
        PREPARATIONS.get(load, lambda: None)()
    except (NotAvailable, toolchains.NotAvailable) as missing:
        pytest.skip(f"{load.__name__}: NOT HELD TO A QUOTA: {missing}")
    with BrokerProcess(tmp_path, {"num.partitions": "1"}) as broker:
        with Client(broker.port, "maker") as maker:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = maker.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
            assert created.topics[0].error_code == 0
        fill(broker.port, RATE * (SECONDS + 15) if load in CONSUMERS else 1)
        set_quotas(broker.port, {"client-id": "c"}, producer_byte_rate=float(RATE), consumer_byte_rate=float(RATE))
        assert held(load, broker.port, SECONDS, RATE) == pytest.approx(RATE, rel=0.05)
