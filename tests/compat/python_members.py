"""Programs of the Python clients and kcat that run until they are stopped (members.py).

`python_members CLIENT host:port CHECK topic argument`: the argument of `written` is the number of partitions, that of
`rolled` the group's protocol: "next" for the newer one, anything else for the classic one.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

PACE_S = 0.005
GIVE_UP_S = 300
KCAT_SETTINGS = ("-X", "topic.metadata.refresh.interval.ms=1000")

ending = threading.Event()


def say(*words: object) -> None:
    print(*words, flush=True)


def rows(partitions: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    """(number, partition, key, value) of records, at their pace, until this is to end; a key stays in its partition."""
    number = 0
    while not ending.wait(PACE_S):
        yield number, number % partitions, b"key-%d" % (number % (2 * partitions)), b"%d" % number
        number += 1


# --- librdkafka -------------------------------------------------------------------------------------------------------


def confluent_written(bootstrap: str, topic: str, argument: str) -> None:
    from confluent_kafka import Producer

    failed: list[object] = []

    def delivered(error: object, number: int) -> None:
        if error is None:
            say("wrote", number)
        else:
            failed.append(error)

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": GIVE_UP_S * 1000}
    producer = Producer(settings)
    for number, partition, key, value in rows(int(argument)):
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _, number=number: delivered(error, number),  # type: ignore[misc]
        )
        producer.poll(0)
    assert producer.flush(GIVE_UP_S) == 0
    assert not failed, failed[:5]


def confluent_rolled(bootstrap: str, topic: str, argument: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    protocol = {"group.protocol": "consumer"} if argument == "next" else {"heartbeat.interval.ms": 300}
    settings = {"bootstrap.servers": bootstrap, "group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, **protocol})
    consumer.subscribe([topic])
    while not ending.is_set():
        messages = [message for message in consumer.consume(500, 0.1) if message.error() is None]
        for message in messages:
            say("took", message.partition(), message.offset())
        try:
            if messages:
                consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            say("late", error)
    consumer.close()


# --- kafka-python -----------------------------------------------------------------------------------------------------


def kafka_python_written(bootstrap: str, topic: str, argument: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        enable_idempotence=True,
        acks="all",
        delivery_timeout_ms=GIVE_UP_S * 1000,
        max_block_ms=GIVE_UP_S * 1000,
    )
    failed: list[object] = []
    for number, partition, key, value in rows(int(argument)):
        future = producer.send(topic, value, key, partition=partition)
        future.add_callback(lambda _, number=number: say("wrote", number))  # type: ignore[misc]
        future.add_errback(failed.append)
    producer.flush(GIVE_UP_S)
    producer.close()
    assert not failed, failed[:5]


def kafka_python_rolled(bootstrap: str, topic: str, _argument: str) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
    )
    assert consumer.partitions_for_topic(topic), "or its first join may be lost (FINDINGS.md)"
    while not ending.is_set():
        found = consumer.poll(timeout_ms=100)
        for key, messages in found.items():
            say("took", key.partition, *(message.offset for message in messages))
        try:
            if found:
                consumer.commit()
        except KafkaError as error:
            say("late", error)
    consumer.close()


# --- aiokafka ---------------------------------------------------------------------------------------------------------


async def aiokafka_written(bootstrap: str, topic: str, argument: str) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", request_timeout_ms=GIVE_UP_S * 1000
    )
    await producer.start()
    waiting: set[asyncio.Future[object]] = set()
    failed: list[object] = []

    def done(future: asyncio.Future[object], number: int) -> None:
        waiting.discard(future)
        if future.exception() is None:
            say("wrote", number)
        else:
            failed.append(future.exception())

    records = rows(int(argument))
    while (row := await asyncio.to_thread(next, records, None)) is not None:
        number, partition, key, value = row
        future = await producer.send(topic, value, key, partition=partition)
        waiting.add(future)
        future.add_done_callback(lambda future, number=number: done(future, number))  # type: ignore[misc]
    await producer.flush()
    await producer.stop()
    assert not waiting
    assert not failed, failed[:5]


async def aiokafka_rolled(bootstrap: str, topic: str, _argument: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        rebalance_timeout_ms=10_000,
    )
    await consumer.start()
    while not ending.is_set():
        found = await consumer.getmany(timeout_ms=100)
        for key, messages in found.items():
            say("took", key.partition, *(message.offset for message in messages))
        try:
            if found:
                await consumer.commit()
        except KafkaError as error:
            say("late", error)
    await consumer.stop()


# --- kcat -------------------------------------------------------------------------------------------------------------


def kcat_written(bootstrap: str, topic: str, argument: str) -> None:
    """Write with kcat, which reports the number delivered, and by its exit status that all are."""
    settings = [*KCAT_SETTINGS, "-X", "enable.idempotence=true", "-X", f"message.timeout.ms={GIVE_UP_S * 1000}"]
    process = subprocess.Popen(
        ["kcat", "-b", bootstrap, "-P", "-t", topic, "-K", ":", "-vvv", "-X", "acks=all", *settings],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if b"Message delivered" in line:
                say("delivered")
            else:
                sys.stderr.write(line.decode(errors="replace"))

    reader = threading.Thread(target=read)
    reader.start()
    assert process.stdin is not None
    count = 0
    for _, _, key, value in rows(int(argument)):
        process.stdin.write(key + b":" + value + b"\n")
        process.stdin.flush()
        count += 1
    process.stdin.close()
    assert process.wait(GIVE_UP_S) == 0
    reader.join()
    for number in range(count):
        say("wrote", number)


def kcat_rolled(bootstrap: str, topic: str, _argument: str) -> None:
    """It commits by itself."""
    settings = [*KCAT_SETTINGS, "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300"]
    command = ["kcat", "-b", bootstrap, *settings, "-u", "-f", "took %p %o\n", "-G", f"group-{topic}", topic]
    process = subprocess.Popen(command)
    while not ending.wait(PACE_S):
        assert process.poll() is None, f"kcat ended with {process.returncode}"
    process.terminate()
    assert process.wait(GIVE_UP_S) == 0


CHECKS: dict[str, dict[str, Callable[[str, str, str], object]]] = {
    "confluent": {"written": confluent_written, "rolled": confluent_rolled},
    "kafka_python": {"written": kafka_python_written, "rolled": kafka_python_rolled},
    "aiokafka": {"written": aiokafka_written, "rolled": aiokafka_rolled},
    "kcat": {"written": kcat_written, "rolled": kcat_rolled},
}


def main(client: str, bootstrap: str, check: str, topic: str, argument: str) -> None:
    def wait() -> None:
        sys.stdin.read(1)
        ending.set()

    threading.Thread(target=wait, daemon=True).start()
    done = CHECKS[client][check](bootstrap, topic, argument)
    if asyncio.iscoroutine(done):
        asyncio.run(done)


if __name__ == "__main__":
    main(*sys.argv[1:])
