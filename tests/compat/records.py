"""The records every client has to carry unharmed, and a neutral reader for what arrived."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.compat.addresses import plain_of
from tests.kit.harness import wire

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LARGE = bytes(range(256)) * 4096  # 1 MiB


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


EDGES = [
    Row(b"key", b"value"),
    Row(None, b"no key"),
    Row(b"no value", None),
    Row(None, None),
    Row(b"", b""),
    Row(b"\0\xff", "grüße, мир, 世界".encode()),
    Row(b"one header", b"v", (("name", b"value"),)),
    Row(b"headers", b"v", (("same", b"1"), ("same", b"2"), ("empty", b""), ("null", None), ("ü", b"\0\1"))),
    Row(b"large", LARGE),
]


def plain(count: int, size: int = 100) -> list[Row]:
    """`count` compressible records that differ."""
    return [Row(f"key-{number}".encode(), f"{number};".encode() * (size // 5)) for number in range(count)]


def read_back(bootstrap: str, topic: str, count: int, timeout_s: float = 30.0) -> list[Row]:
    """The first `count` records of partition 0, read by librdkafka with CRC checks, in offset order from 0."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": plain_of(bootstrap),
        "group.id": "reader",
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    deadline = time.monotonic() + timeout_s
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} records of {topic} in {timeout_s} s"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            assert message.offset() == len(rows)
            headers = tuple((name, value) for name, value in message.headers() or [])
            rows.append(Row(message.key(), message.value(), headers))
    consumer.close()
    return rows


def values_to_end(bootstrap: str, topic: str, isolation: str, timeout_s: float = 30.0) -> list[str]:
    """Values of partition 0 up to the end that readers of this isolation level have, read by librdkafka."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": plain_of(bootstrap),
        "group.id": "reader",
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + timeout_s
    while True:
        assert time.monotonic() < deadline, f"no end of {topic} in {timeout_s} s"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return values
        values.append(message.value().decode())


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int | None:
    """Return the group's committed offset for the partition, fetched by librdkafka; None: no offset."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
    admin = AdminClient({"bootstrap.servers": plain_of(bootstrap)})
    (found,) = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    return found.offset if found.offset >= 0 else None


def leader_port(bootstrap: str, topic: str, timeout_s: float = 30.0) -> int:
    """Return the port of the leader of partition 0, once there is one."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": plain_of(bootstrap)})
    deadline = time.monotonic() + timeout_s
    while True:
        seen = admin.list_topics(topic, timeout=timeout_s)
        partition = seen.topics[topic].partitions.get(0)
        if partition is not None and partition.leader in seen.brokers:
            return int(seen.brokers[partition.leader].port)
        assert time.monotonic() < deadline, f"nobody leads {topic} within {timeout_s} s"


def stored_codecs(bootstrap: str, topic: str) -> set[int]:
    """Return the codec numbers of the stored batches: they must be the client's."""
    with wire.Connection(leader_port(bootstrap, topic)) as connection:
        offset, found = 0, set()
        while records := connection.fetch(topic, 0, offset, partition_max_bytes=16 << 20).records:
            for batch in wire.split_batches(records):
                assert batch.crc_is_right
                found.add(batch.attributes & 7)
                offset = batch.next_offset
    return found
