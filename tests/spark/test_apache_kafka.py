"""`format("kafkalite")` reads Apache Kafka as well, and as Spark's own connector does."""

from pathlib import Path

import pytest

from kafkalite.client import Client, Producer
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.processes.apache_kafka import ApacheKafka

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.usefixtures("sparks_connector"),
]

STAMP = 1_700_000_000_000
WAIT_S = 300


@pytest.fixture(scope="module")
def topic(apache_kafka: ApacheKafka) -> str:
    """Two partitions, with times of years ago: every codec, headers, nulls, a committed and an aborted transaction."""
    with Client(apache_kafka.bootstrap) as client:
        client.admin.create_topic("rows", 2, configs={"retention.ms": "-1"})
        for number, codec in enumerate(Codec):
            sent = [
                Record(0, STAMP + i, None if i % 3 else b"k%d" % i, b"%d" % i * 20, (("h", b"x"),) if i % 2 else ())
                for i in range(number * 100, number * 100 + 100)
            ]
            client.produce("rows", number % 2, RecordColumns.from_records(sent), codec=codec)
        with Producer(client, transactional_id="rows") as producer:
            producer.init_transactions()
            for commit in (True, False):
                producer.begin_transaction()
                producer.send("rows", 0, [b"committed" if commit else b"aborted"])
                producer.commit_transaction() if commit else producer.abort_transaction()
    return "rows"


def options(kafka: ApacheKafka, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "includeHeaders": "true"} | more


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_batch(spark, apache_kafka: ApacheKafka, topic: str, isolation: str) -> None:
    chosen = options(apache_kafka, topic, **{"kafka.isolation.level": isolation})
    found = [
        sorted(map(repr, spark.read.format(name).options(**chosen).load().collect())) for name in ("kafkalite", "kafka")
    ]
    assert len(found[0]) == len(Codec) * 100 + (2 if isolation == "read_uncommitted" else 1)
    assert found[0] == found[1]


def test_cut_into_tasks_and_pushed_down(spark, apache_kafka: ApacheKafka, topic: str) -> None:
    chosen = options(apache_kafka, topic, maxBytesPerPartition="500", minPartitions="6", pushdown="true")
    frame = spark.read.format("kafkalite").options(**chosen).load()
    assert frame.rdd.getNumPartitions() >= 6
    assert frame.where("partition = 1 AND offset >= 50").count() == frame.where("partition = 1").count() - 50


def test_stream(spark, apache_kafka: ApacheKafka, topic: str, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("kafkalite")
        .options(**options(apache_kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="150"))
        .option("kafka.group.id", "spark")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert query.exception() is None
    stored = spark.read.parquet(str(tmp_path / "rows"))
    assert stored.count() == stored.select("partition", "offset").distinct().count() == len(Codec) * 100 + 2
