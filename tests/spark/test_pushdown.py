"""Filters that make ranges smaller: with `pushdown` a query reads less, and never gives other rows."""

import datetime as dt

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record, RecordColumns

pytestmark = [pytest.mark.spark, pytest.mark.integration]

STAMP = 1_700_000_000_000


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """Three partitions of 40 records in batches of 10, a second apart."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 3)
        for partition in range(3):
            for first in range(0, 40, 10):
                sent = [Record(0, STAMP + 1000 * i, None, b"%d" % i) for i in range(first, first + 10)]
                client.produce(kafka_topic, partition, RecordColumns.from_records(sent))
    return kafka_topic


def reader(spark, broker: Broker, topic: str, pushdown: bool):
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return spark.read.format("kafkalite").options(**options).option("pushdown", pushdown).load()


def at(seconds: int) -> str:
    return f"timestamp'{dt.datetime.fromtimestamp(STAMP / 1000 + seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC'"


@pytest.mark.parametrize(
    ("condition", "tasks", "rows"),
    [
        ("partition = 1", 1, 40),
        ("partition IN (0, 2) AND offset >= 35", 2, 10),
        ("offset < 0", 0, 0),
        ("offset = 17 OR offset = 3", 3, 6),
        ("topic = 'another'", 0, 0),
        (f"timestamp >= {at(30)}", 3, 30),
        (f"timestamp > {at(39)}", 0, 0),
        (f"partition < 1 AND timestamp < {at(5)}", 3, 5),
        ("cast(value as string) = '7'", 3, 3),
    ],
)
def test_rows_are_the_same(spark, kafka_broker: Broker, topic: str, condition: str, tasks: int, rows: int) -> None:
    plain = reader(spark, kafka_broker, topic, pushdown=False).where(condition)
    pushed = reader(spark, kafka_broker, topic, pushdown=True).where(condition)
    assert pushed.count() == plain.count() == rows
    assert sorted(pushed.select("partition", "offset").collect()) == sorted(
        plain.select("partition", "offset").collect()
    )
    assert pushed.rdd.getNumPartitions() == max(tasks, 1)


def test_what_is_filtered_away_is_not_missed(spark, kafka_broker: Broker, topic: str) -> None:
    """The ranges really are smaller: offsets that are gone do not matter to a query that asks for others."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.delete_records({TopicPartition(topic, 0): 20})
    starting = f'{{"{topic}": {{"0": 0, "1": 0, "2": 0}}}}'
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("kafkalite").options(**options, startingOffsets=starting)
    with pytest.raises(Exception, match="have aged out"):
        frame.load().where("offset >= 25").count()
    assert frame.option("pushdown", "true").load().where("offset >= 25").count() == 45


def test_it_needs_sparks_setting(spark, kafka_broker: Broker, topic: str) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        with pytest.raises(Exception, match=name):
            reader(spark, kafka_broker, topic, pushdown=True).where("partition = 1").count()
    finally:
        spark.conf.set(name, "true")
