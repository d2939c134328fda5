"""Spark's own connector, `format("kafka")`, on this broker: what it writes and reads, and what we make of the same."""

from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, Producer
from kafkalite.wire.record.columns import Record, RecordColumns

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.usefixtures("sparks_connector"),
]

STAMP = 1_700_000_000_000
WAIT_S = 300


def servers(broker: Broker, **options: object) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers} | {name: str(value) for name, value in options.items()}


def read(spark, broker: Broker, topic: str, **options: object):
    return spark.read.format("kafka").options(**servers(broker, subscribe=topic, **options)).load()


def values(frame) -> list[int]:
    return sorted(row.value for row in frame.selectExpr("cast(cast(value as string) as int) as value").collect())


@pytest.fixture
def numbers(kafka_broker: Broker, kafka_topic: str) -> str:
    """100 records in each of two partitions, a second apart."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
        for partition in (0, 1):
            sent = [Record(0, STAMP + 1000 * i, b"k", b"%d" % (100 * partition + i)) for i in range(100)]
            client.produce(kafka_topic, partition, RecordColumns.from_records(sent))
    return kafka_topic


def test_batch_write_and_read_with_headers(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    one = "named_struct('key', 'h', 'value', cast(cast(id as string) as binary))"
    none = "named_struct('key', 'n', 'value', null)"
    frame = spark.range(100).selectExpr(
        "cast(id as string) key", "cast(id as string) value", f"array({one}, {none}) headers"
    )
    options = servers(kafka_broker, topic=kafka_topic, includeHeaders="true")
    frame.write.format("kafka").options(**options).save()
    theirs = read(spark, kafka_broker, kafka_topic, includeHeaders="true")
    options = servers(kafka_broker, subscribe=kafka_topic, includeHeaders="true")
    ours = spark.read.format("kafkalite").options(**options).load()
    assert ours.schema == theirs.schema
    rows = [sorted(map(repr, frame.collect())) for frame in (ours, theirs)]
    assert len(rows[0]) == 100
    assert rows[0] == rows[1]
    first = theirs.where("cast(value as string) = '7'").collect()[0]
    assert [(header.key, header.value) for header in first.headers] == [("h", b"7"), ("n", None)]


def test_min_partitions(spark, kafka_broker: Broker, numbers: str) -> None:
    frame = read(spark, kafka_broker, numbers, minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert values(frame) == list(range(200))


def test_bounds_by_timestamp(spark, kafka_broker: Broker, numbers: str) -> None:
    starting = f'{{"{numbers}": {{"0": {STAMP + 90_000}, "1": {STAMP + 98_500}}}}}'
    ending = f'{{"{numbers}": {{"0": {STAMP + 95_000}, "1": {STAMP + 200_000}}}}}'
    options = {"startingOffsetsByTimestamp": starting, "endingOffsetsByTimestamp": ending}
    assert values(read(spark, kafka_broker, numbers, **options)) == [90, 91, 92, 93, 94, 199]


def test_read_committed(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    with Client(kafka_broker.bootstrap_servers) as client, Producer(client, transactional_id="spark") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(kafka_topic, 0, [b"%d" % number])
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    committed = read(spark, kafka_broker, kafka_topic, **{"kafka.isolation.level": "read_committed"})
    assert values(committed) == [0, 2]
    assert values(read(spark, kafka_broker, kafka_topic)) == [0, 1, 2, 3]


def test_streaming_read_and_write(spark, kafka_broker: Broker, numbers: str, tmp_path: Path) -> None:
    copied = f"{numbers}-copy"
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.create_topic(copied, 2)
    options = servers(kafka_broker, subscribe=numbers, startingOffsets="earliest", maxOffsetsPerTrigger=60)

    def copy() -> None:
        query = (
            spark.readStream.format("kafka")
            .options(**options)
            .load()
            .selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**servers(kafka_broker, topic=copied, checkpointLocation=tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None

    copy()
    assert values(read(spark, kafka_broker, copied)) == list(range(200))
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(numbers, 1, [b"200", b"201"])
    copy()
    assert values(read(spark, kafka_broker, copied)) == list(range(202))
