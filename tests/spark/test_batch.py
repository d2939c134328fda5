"""`spark.read.format("kafkalite")` in a real session against a real broker: found, rows, projection, tasks, errors."""

import datetime as dt

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record, RecordColumns

pytestmark = [pytest.mark.spark, pytest.mark.integration]

STAMP = 1_700_000_000_123


def reader(spark, broker: Broker, topic: str, **options: object):
    named = {name: str(value) for name, value in options.items()}
    servers = broker.bootstrap_servers
    return spark.read.format("kafkalite").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic} | named)


@pytest.fixture
def filled(kafka_broker: Broker, kafka_topic: str) -> str:
    """A topic with five records that are all different."""
    sent = [
        Record(0, STAMP, b"k", b"v", (("h", b"1"), ("h", b"2"), ("", None))),
        Record(1, STAMP + 1, None, b"w", ()),
        Record(2, STAMP + 2, b"", None, (("x", b""),)),
        Record(3, -5, b"\xff\x00", b"x" * 1_000_000, ()),
        Record(4, 0, "ключ".encode(), b"", ()),
    ]
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(kafka_topic, 0, RecordColumns.from_records(sent), codec=4)
    return kafka_topic


def test_rows_are_those_of_sparks_connector(spark, kafka_broker: Broker, filled: str) -> None:
    frame = reader(spark, kafka_broker, filled, includeHeaders="true").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.orderBy("offset").collect()
    assert [row.key and bytes(row.key) for row in rows] == [b"k", None, b"", b"\xff\x00", "ключ".encode()]
    assert [row.value and bytes(row.value) for row in rows] == [b"v", b"w", None, b"x" * 1_000_000, b""]
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(filled, 0, 0)}
    assert [row.offset for row in rows] == [0, 1, 2, 3, 4]
    stamps = [row.timestamp.astimezone(dt.UTC) for row in rows]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert [(stamp - epoch) / dt.timedelta(milliseconds=1) for stamp in stamps] == [
        STAMP, STAMP + 1, STAMP + 2, -5, 0,
    ]  # fmt: skip
    headers = [row.headers and [(h.key, h.value and bytes(h.value)) for h in row.headers] for row in rows]
    assert headers == [[("h", b"1"), ("h", b"2"), ("", None)], None, [("x", b"")], None, None]
    assert "headers" not in reader(spark, kafka_broker, filled).load().columns


def test_a_schema_is_the_projection(spark, kafka_broker: Broker, filled: str) -> None:
    frame = reader(spark, kafka_broker, filled).schema("offset BIGINT, partition INT").load()
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(number, 0) for number in range(5)]


def test_many_tasks_read_everything_once(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 3)
        for partition, count in ((0, 20_000), (2, 100)):
            client.produce(kafka_topic, partition, [b"%d" % i for i in range(count)], batch_size=10_000)
    frame = reader(spark, kafka_broker, kafka_topic, maxBytesPerPartition=50_000, minPartitions=8).load()
    assert frame.rdd.getNumPartitions() >= 8
    found = frame.selectExpr("partition", "offset", "cast(cast(value as string) as bigint) as number")
    assert found.where("offset != number").count() == 0
    counted = found.groupBy("partition").agg({"offset": "count", "number": "sum"}).collect()
    assert {row.partition: (row["count(offset)"], row["sum(number)"]) for row in counted} == {
        0: (20_000, 20_000 * 19_999 // 2),
        2: (100, 100 * 99 // 2),
    }


def test_nothing_to_read_is_an_empty_frame(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    assert reader(spark, kafka_broker, kafka_topic).load().count() == 0


def test_sql_finds_it_too(spark, kafka_broker: Broker, filled: str) -> None:
    servers = kafka_broker.bootstrap_servers
    spark.sql(
        f"CREATE TEMPORARY VIEW answers USING kafkalite "
        f"OPTIONS (`kafka.bootstrap.servers` '{servers}', subscribe '{filled}')"
    )
    try:
        assert spark.sql("SELECT count(*) AS n FROM answers WHERE key IS NOT NULL").collect()[0].n == 4
    finally:
        spark.catalog.dropTempView("answers")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingTimestamp": 4_000_000_000_000}, "startingOffsetsByTimestampStrategy"),
    ],
)
def test_a_wrong_option_is_said(spark, kafka_broker: Broker, filled: str, options: dict, message: str) -> None:
    with pytest.raises(Exception, match=message):
        reader(spark, kafka_broker, filled, **options).load().count()


def test_data_loss_fails_the_query_or_is_left_out(spark, kafka_broker: Broker, filled: str) -> None:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.delete_records({TopicPartition(filled, 0): 2})
    options = {"startingOffsets": f'{{"{filled}": {{"0": 0}}}}'}
    with pytest.raises(Exception, match=r"offsets 0 to 2 of .* have aged out"):
        reader(spark, kafka_broker, filled, **options).load().count()
    rows = reader(spark, kafka_broker, filled, **options, failOnDataLoss="false").load().orderBy("offset").collect()
    assert [row.offset for row in rows] == [2, 3, 4]
