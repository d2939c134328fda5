"""`write.format("kafkalite")` and `writeStream` in a real session: rows, options, refusals, a batch done again."""

import json
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.wire.record.columns import Record

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 300


def records_of(broker: Broker, topic: str, *, committed: bool = False) -> list[list[Record]]:
    """Return the records of each partition; `committed`: as a read_committed reader sees them."""
    with Client(broker.bootstrap_servers) as client:
        return [
            [
                record
                for chunk in client.read(
                    topic, partition, end=client.end_offset(topic, partition), isolation=int(committed)
                )
                for record in chunk.columns.records()
            ]
            for partition in client.partitions(topic)
        ]


def write(frame, broker: Broker, **options: object) -> None:
    named = {"kafka.bootstrap.servers": broker.bootstrap_servers} | {k: str(v) for k, v in options.items()}
    frame.write.format("kafkalite").options(**named).mode("append").save()


def test_rows_are_written_as_sparks_connector_writes_them(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 3)
    rows = [
        ("k", bytearray(b"v"), [("h", bytearray(b"1")), ("h", None)], kafka_topic, 2),
        (None, None, None, kafka_topic, 1),
        ("k", bytearray(b""), [], kafka_topic, None),
        ("ключ", bytearray(b"\xff"), None, kafka_topic, 0),
    ]
    kinds = "key string, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int"
    write(spark.createDataFrame(rows, kinds).coalesce(1), kafka_broker)
    found = records_of(kafka_broker, kafka_topic)
    by_key = [record for part in found for record in part if (record.key, record.value) == (b"k", b"")]
    assert len(by_key) == 1, "murmur2 of the key decides where the column does not"
    placed = [[(r.key, r.value, r.headers) for r in part if r is not by_key[0]] for part in found]
    assert placed == [
        [("ключ".encode(), b"\xff", ())],
        [(None, None, ())],
        [(b"k", b"v", (("h", b"1"), ("h", None)))],
    ]


def test_the_option_topic_beats_the_column(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    frame = spark.range(5000).selectExpr("'no-such-topic' as topic", "cast(id as string) as value")
    write(frame, kafka_broker, topic=kafka_topic, **{"kafka.compression.type": "zstd", "kafka.batch.size": 5000})
    (found,) = records_of(kafka_broker, kafka_topic)
    assert sorted(int(record.value or b"") for record in found) == list(range(5000))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id as value"], {}, "column value has type bigint; expected string or binary"),
        (["'k' as key"], {}, "column value is missing"),
        (
            ["'v' as value", "map('a', 'b') as headers"],
            {},
            "column headers has type map<string,string>; expected array",
        ),
        (["'v' as value"], {"kafka.compressions.type": "zstd"}, "did you mean kafka.compression.type"),
        (["'v' as value"], {"kafka.transactional.id": "t"}, "kafka.transactional.id cannot be set"),
        (["cast(null as string) as topic", "'v' as value"], {"topic": None}, "task 0: a row has no topic"),
        (["'v' as value", "7 as partition"], {}, "task 0: topic .* has no partition 7 .partition count: 1"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark, kafka_broker: Broker, kafka_topic: str, columns: list[str], options: dict[str, object], message: str
) -> None:
    given = {"topic": kafka_topic, **options}
    frame = spark.range(1).coalesce(1).selectExpr(*columns)
    with pytest.raises(Exception, match=message) as caught:
        write(frame, kafka_broker, **{name: value for name, value in given.items() if value is not None})
    assert "During handling of the above" not in str(caught.value)
    assert records_of(kafka_broker, kafka_topic) == [[]]


def test_overwriting_is_refused(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    frame = spark.range(1).selectExpr("'v' as value").write.format("kafkalite").option("topic", kafka_topic)
    with pytest.raises(Exception, match="use mode append"):
        frame.option("kafka.bootstrap.servers", kafka_broker.bootstrap_servers).mode("overwrite").save()


def test_a_stream_in_complete_mode_writes_every_row_of_each_batch(
    spark, kafka_broker: Broker, numbers: str, tmp_path: Path
) -> None:
    """As by Spark's own connector."""
    servers = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers}
    found = {}
    for name in ("kafkalite", "kafka"):
        target = f"{name}-{numbers}"[:249]
        kafka_broker.create_topic(target)
        frame = (
            spark.readStream.format("kafkalite")
            .options(**servers, subscribe=numbers, startingOffsets="earliest", maxOffsetsPerTrigger="1000")
            .load()
            .groupBy("topic")
            .count()
            .selectExpr("topic as key", "cast(count as string) as value", "count")
        )
        query = (
            frame.writeStream.format(name)
            .outputMode("complete")
            .options(**servers, topic=target, checkpointLocation=str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        found[name] = [record.value for part in records_of(kafka_broker, target) for record in part]
    assert found["kafkalite"] == found["kafka"] == [b"1000", b"2000", b"2500"]


def copy(spark, broker: Broker, source: str, target: str, checkpoint: Path, **options: object) -> None:
    """A bounded run of a query from topic to topic, 1000 records a batch."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    frame = (
        spark.readStream.format("kafkalite")
        .options(**servers, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="1000")
        .schema("key BINARY, value BINARY")
        .load()
    )
    query = (
        frame.writeStream.format("kafkalite")
        .options(**servers, topic=target, **{name: str(value) for name, value in options.items()})
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query does not end"
    finally:
        query.stop()


@pytest.fixture
def numbers(kafka_broker: Broker, kafka_topic: str) -> str:
    """A topic with the numbers below 2500 in two partitions."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
        client.produce(kafka_topic, 0, [b"%d" % i for i in range(1500)], batch_size=5_000)
        client.produce(kafka_topic, 1, [b"%d" % i for i in range(1500, 2500)], batch_size=5_000)
    return kafka_topic


def lose_newest_commit(checkpoint: Path) -> None:
    """Remove the newest commit, as a driver does that dies between the sink and the checkpoint."""
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(newest), commits / f".{newest}.crc"):
        path.unlink(missing_ok=True)


def values_of(broker: Broker, topic: str, *, committed: bool = False) -> list[int]:
    found = records_of(broker, topic, committed=committed)
    return sorted(int(record.value or b"") for part in found for record in part)


def test_a_stream_is_written_at_least_once(spark, kafka_broker: Broker, numbers: str, tmp_path: Path) -> None:
    target = f"to-{numbers}"[:249]
    kafka_broker.create_topic(target, 2)
    copy(spark, kafka_broker, numbers, target, tmp_path)
    assert values_of(kafka_broker, target) == list(range(2500))
    copy(spark, kafka_broker, numbers, target, tmp_path)
    assert values_of(kafka_broker, target) == list(range(2500)), "a finished query has nothing to do"
    lose_newest_commit(tmp_path)
    copy(spark, kafka_broker, numbers, target, tmp_path)
    doubled = values_of(kafka_broker, target)
    assert set(doubled) == set(range(2500))
    assert len(doubled) == 3000, "the batch of 500 was written again"


def test_a_stream_is_written_exactly_once(spark, kafka_broker: Broker, numbers: str, tmp_path: Path) -> None:
    target = f"to-{numbers}"[:249]
    kafka_broker.create_topic(target, 2)
    once = {"delivery": "exactly-once", "kafka.compression.type": "lz4"}
    copy(spark, kafka_broker, numbers, target, tmp_path, **once)
    assert values_of(kafka_broker, target, committed=True) == list(range(2500))
    lose_newest_commit(tmp_path)
    copy(spark, kafka_broker, numbers, target, tmp_path, **once)
    assert values_of(kafka_broker, target) == list(range(2500)), "nothing was even written"


def test_a_batch_divided_otherwise_fails(spark, kafka_broker: Broker, numbers: str, tmp_path: Path) -> None:
    target = f"to-{numbers}"[:249]
    kafka_broker.create_topic(target, 2)
    once = {"delivery": "exactly-once"}
    copy(spark, kafka_broker, numbers, target, tmp_path, **once)
    lose_newest_commit(tmp_path)
    with Client(kafka_broker.bootstrap_servers) as client:
        query = json.loads((tmp_path / "metadata").read_text())["id"]
        records = records_of(kafka_broker, f"kafkalite.spark.{query}", committed=True)[0]
        marker = json.loads(records[-1].value or b"")
        changed = json.dumps({**marker, "rows": marker["rows"] + 1}).encode()
        client.produce(f"kafkalite.spark.{query}", 0, [records[-1]._replace(offset=-1, value=changed)])
    with pytest.raises(Exception, match=r"of batch 2: its \d+ rows differ from the \d+ rows committed before"):
        copy(spark, kafka_broker, numbers, target, tmp_path, **once)
    assert values_of(kafka_broker, target, committed=True) == list(range(2500))
