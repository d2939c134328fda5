"""kafka-python 3: producer (idempotent by default), consumer by assignment, admin."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import pytest

from tests.kit.harness.samples import sample

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of deprecated standard library calls
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

from tests.compat.kafka_python.reach import kafka_python_at
from tests.compat.records import CODECS, EDGES, Row, plain, read_back, stored_codecs
from tests.kit.processes.broker import wait_until

TIMEOUT_S = 30


def produce(bootstrap: str, topic: str, rows: list[Row], **settings: object) -> list[int]:
    producer = KafkaProducer(**kafka_python_at(bootstrap), max_request_size=4_000_000, **settings)
    futures = [producer.send(topic, row.value, row.key, headers=list(row.headers), partition=0) for row in rows]
    producer.flush(TIMEOUT_S)
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close()
    return offsets


def read(bootstrap: str, topic: str, offset: int, count: int) -> list[object]:
    consumer = KafkaConsumer(**kafka_python_at(bootstrap), enable_auto_commit=False, group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    found: list[object] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        for messages in consumer.poll(timeout_ms=200).values():
            found += messages
    consumer.close()
    return found


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(**kafka_python_at(bootstrap))
    yield client
    client.close()


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("acks", sample(["all", 0, 1], 1))
@pytest.mark.parametrize("codec", CODECS)
def test_produce_reads_back_with_its_codec(
    bootstrap: str, topic: str, admin: KafkaAdminClient, codec: str, acks: object
) -> None:
    rows = plain(200)
    admin.create_topics([NewTopic(topic, 1, 1)])
    settings = {"compression_type": None if codec == "none" else codec, "acks": acks, "linger_ms": 50}
    produce(bootstrap, topic, rows, enable_idempotence=False, **settings)
    assert read_back(bootstrap, topic, len(rows)) == rows
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


@pytest.mark.capability("produce, consume")
def test_edge_records_arrive_unharmed(bootstrap: str, topic: str) -> None:
    """kafka-python itself refuses a record with neither key nor value, and headers without a value."""
    rows = [row for row in EDGES if (row.key, row.value) != (None, None)]
    rows = [row._replace(headers=tuple(item for item in row.headers if item[1] is not None)) for row in rows]
    assert produce(bootstrap, topic, rows) == list(range(len(rows)))
    assert read_back(bootstrap, topic, len(rows)) == rows
    found = [Row(row.key, row.value, tuple(row.headers)) for row in read(bootstrap, topic, 0, len(rows))]
    assert found == rows


@pytest.mark.capability("idempotent")
def test_idempotent_producer_counts_offsets_without_gap(bootstrap: str, topic: str) -> None:
    rows = plain(1000, 40)
    assert produce(bootstrap, topic, rows, enable_idempotence=True) == list(range(len(rows)))
    assert read_back(bootstrap, topic, len(rows)) == rows


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("offset", [0, 1, 137, 299])
def test_consume_from_any_offset(bootstrap: str, topic: str, offset: int) -> None:
    rows = plain(300)
    produce(bootstrap, topic, rows, compression_type="gzip", linger_ms=20)
    found = read(bootstrap, topic, offset, 300 - offset)
    assert [message.offset for message in found] == list(range(offset, 300))
    assert [message.value for message in found] == [row.value for row in rows[offset:]]


@pytest.mark.capability("seek by time")
def test_offsets_by_time_name_the_record(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(**kafka_python_at(bootstrap), linger_ms=200)
    base = int(time.time() * 1000) - 100_000
    for number in range(100):
        producer.send(topic, str(number).encode(), partition=0, timestamp_ms=base + number * 10)
    producer.flush(TIMEOUT_S)
    consumer = KafkaConsumer(**kafka_python_at(bootstrap), group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    for timestamp, expected in [(base, 0), (base + 1, 1), (base + 505, 51), (base + 990, 99)]:
        found = consumer.offsets_for_times({partition: timestamp})[partition]
        assert (found.offset, found.timestamp) == (expected, base + expected * 10)
    assert consumer.offsets_for_times({partition: base + 991})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.seek(partition, consumer.offsets_for_times({partition: base + 505})[partition].offset)
    assert next(consumer).value == b"51"
    consumer.close()


@pytest.mark.capability("admin")
def test_admin_creates_describes_and_deletes(topic: str, admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "1234567"})])
    described = admin.describe_topics([topic])
    assert topic in str(described)
    assert topic in admin.list_topics()
    admin.create_partitions({topic: 5})
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), TIMEOUT_S, "the topic gone")


@pytest.mark.capability("admin")
def test_cluster_is_described(bootstrap: str, admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert len(cluster["brokers"]) == len(bootstrap.split(","))
