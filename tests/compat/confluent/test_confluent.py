"""confluent-kafka (librdkafka, current): producer, consumer by assignment, admin."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.addresses import librdkafka_at
from tests.compat.records import CODECS, EDGES, LARGE, Row, plain, read_back, stored_codecs
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until

TIMEOUT_S = 30


def produce(bootstrap: str, topic: str, rows: list[Row], **settings: object) -> list[int]:
    """Sends to partition 0; offsets as delivered."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({**librdkafka_at(bootstrap), "message.max.bytes": 4_000_000, **settings})
    for row in rows:
        producer.produce(topic, row.value, row.key, partition=0, headers=list(row.headers), on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def consumer_at(bootstrap: str, topic: str, offset: int, partition: int = 0) -> Consumer:
    consumer = Consumer(
        {**librdkafka_at(bootstrap), "group.id": "compat", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    return consumer


def take(consumer: Consumer, count: int) -> list[object]:
    found: list[object] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        found += consumer.consume(count - len(found), 0.2)
    return found


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient(librdkafka_at(bootstrap))


def results(futures: dict[object, Future]) -> list[object]:
    return [future.result(TIMEOUT_S) for future in futures.values()]


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("acks", sample(["all", "0", "1"], 1))
@pytest.mark.parametrize("codec", CODECS)
def test_produce_reads_back_with_its_codec(
    bootstrap: str, topic: str, admin: AdminClient, codec: str, acks: str
) -> None:
    rows = plain(300)
    results(admin.create_topics([NewTopic(topic, 1)]))
    produce(bootstrap, topic, rows, **{"compression.type": codec, "acks": acks, "linger.ms": 2000})
    assert read_back(bootstrap, topic, len(rows)) == rows
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


@pytest.mark.capability("produce, consume")
def test_edge_records_arrive_unharmed(bootstrap: str, topic: str) -> None:
    assert produce(bootstrap, topic, EDGES) == list(range(len(EDGES)))
    assert read_back(bootstrap, topic, len(EDGES)) == EDGES


@pytest.mark.capability("idempotent")
def test_idempotent_producer_counts_offsets_without_gap(bootstrap: str, topic: str) -> None:
    rows = plain(5000, 40)
    offsets = produce(bootstrap, topic, rows, **{"enable.idempotence": True, "linger.ms": 1})
    assert offsets == list(range(len(rows)))
    assert read_back(bootstrap, topic, len(rows)) == rows


@pytest.mark.capability("produce, consume")
def test_message_above_the_topics_limit_is_refused_by_the_broker(
    bootstrap: str, topic: str, admin: AdminClient
) -> None:
    results(admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "1000"})]))
    errors: list[KafkaError] = []
    producer = Producer(librdkafka_at(bootstrap))
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("offset", [0, 1, 137, 499])
def test_consume_from_any_offset(bootstrap: str, topic: str, offset: int) -> None:
    rows = plain(500)
    produce(bootstrap, topic, rows, **{"compression.type": "lz4", "batch.num.messages": 50})
    consumer = consumer_at(bootstrap, topic, offset)
    found = take(consumer, 500 - offset)
    assert [message.offset() for message in found] == list(range(offset, 500))
    assert [message.value() for message in found] == [row.value for row in rows[offset:]]
    consumer.close()


@pytest.mark.capability("produce, consume")
def test_consume_beyond_the_end_says_so_or_resets(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, plain(10))
    consumer = Consumer(
        {
            **librdkafka_at(bootstrap),
            "group.id": "compat",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 1000)])
    found = take(consumer, 1)[0]
    assert found.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


@pytest.mark.capability("seek by time")
def test_offsets_by_time_name_the_record_not_the_batch(bootstrap: str, topic: str) -> None:
    producer = Producer({**librdkafka_at(bootstrap), "linger.ms": 200})
    base = int(time.time() * 1000) - 100_000
    for number in range(100):
        producer.produce(topic, str(number).encode(), partition=0, timestamp=base + number * 10)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = consumer_at(bootstrap, topic, 0)
    for timestamp, expected in [(base, 0), (base + 1, 1), (base + 505, 51), (base + 990, 99), (base + 991, -1)]:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=TIMEOUT_S)[0]
        assert found.offset in (expected, 100 if expected == -1 else expected)
        assert found.error is None
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 100)
    take(consumer, 1)  # only an active partition can be sought in
    consumer.seek(consumer.offsets_for_times([TopicPartition(topic, 0, base + 505)], timeout=TIMEOUT_S)[0])
    assert [message.value() for message in take(consumer, 2)] == [b"51", b"52"]
    consumer.close()


@pytest.mark.capability("produce, consume")
def test_log_append_time_replaces_the_producers(bootstrap: str, topic: str, admin: AdminClient) -> None:
    results(admin.create_topics([NewTopic(topic, 1, config={"message.timestamp.type": "LogAppendTime"})]))
    before = int(time.time() * 1000)
    producer = Producer({**librdkafka_at(bootstrap), "compression.type": "zstd"})
    producer.produce(topic, b"v", partition=0, timestamp=before - 50_000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = consumer_at(bootstrap, topic, 0)
    kind, timestamp = take(consumer, 1)[0].timestamp()
    assert kind == 2
    assert before - 1000 <= timestamp <= int(time.time() * 1000) + 1000
    consumer.close()


@pytest.mark.capability("admin")
def test_admin_creates_describes_alters_and_deletes(bootstrap: str, topic: str, admin: AdminClient) -> None:
    results(admin.create_topics([NewTopic(topic, 3, config={"retention.ms": "1234567"})]))
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 3
    with pytest.raises(KafkaException) as raised:
        results(admin.create_topics([NewTopic(topic, 3)]))
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "1234567"
    assert not configs["retention.ms"].is_default
    assert {"cleanup.policy", "min.insync.replicas", "max.message.bytes", "message.timestamp.type"} <= set(configs)
    change = ConfigResource(ResourceType.TOPIC, topic)
    change.add_incremental_config(ConfigEntry("retention.ms", "7654321", incremental_operation=_operation("SET")))
    results(admin.incremental_alter_configs([change]))

    def retention() -> str:
        return admin.describe_configs([resource])[resource].result(TIMEOUT_S)["retention.ms"].value

    wait_until(lambda: retention() == "7654321", TIMEOUT_S, "the changed setting")
    results(admin.create_partitions([NewPartitions(topic, 5)]))

    def partition_count() -> int:
        return len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    wait_until(lambda: partition_count() == 5, TIMEOUT_S, "five partitions")
    results(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, TIMEOUT_S, "the topic gone")


@pytest.mark.capability("admin")
def test_admin_deletes_records_and_lists_offsets(bootstrap: str, topic: str, admin: AdminClient) -> None:
    produce(bootstrap, topic, plain(100), **{"batch.num.messages": 10})
    partition = TopicPartition(topic, 0, 42)
    assert results(admin.delete_records([partition]))[0].low_watermark == 42
    earliest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})
    assert results(earliest)[0].offset == 42
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert results(latest)[0].offset == 100
    largest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    assert results(largest)[0].offset <= 99  # Apache Kafka may name a deleted record here
    consumer = consumer_at(bootstrap, topic, 42)
    assert take(consumer, 1)[0].offset() == 42
    consumer.close()


@pytest.mark.capability("admin")
def test_cluster_is_described(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id
    assert len(cluster.nodes) == len(bootstrap.split(","))
    assert cluster.controller.id in {node.id for node in cluster.nodes}


@pytest.mark.capability("produce, consume")
def test_large_messages_pass_the_size_rule(bootstrap: str, topic: str) -> None:
    """KIP-74: a batch larger than the consumer's limits is still returned, one at a time."""
    produce(bootstrap, topic, [Row(None, LARGE) for _ in range(5)])
    consumer = Consumer(
        {
            **librdkafka_at(bootstrap),
            "group.id": "compat",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 1000,
            "fetch.max.bytes": 4_100_000,
            "message.max.bytes": 4_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [len(message.value()) for message in take(consumer, 5)] == [len(LARGE)] * 5
    consumer.close()


def _operation(name: str) -> object:
    from confluent_kafka.admin import AlterConfigOpType

    return AlterConfigOpType[name]
