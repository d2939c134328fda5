"""Loads in a real session against a real broker: each record once, in its hour, whatever was done before."""

import datetime as dt
import functools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkalite.broker import Broker
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.model import TopicPartition
from kafkalite.spark import load
from kafkalite.spark.load.arrow_batches import ROWS, rows_for
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.restored import grow_after_backup, numbers, produce, put_back

pytestmark = [pytest.mark.spark, pytest.mark.integration]

STAMP = 1_700_000_000_000
"""2023-11-14 22:13:20."""
TIMEOUT_S = 300


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        yield client


@pytest.fixture
def filled(client: Client, kafka_topic: str) -> str:
    """1000 records in each of two partitions, ten seconds apart: from 22:13 to 1 o'clock of the next day."""
    client.admin.add_partitions(kafka_topic, 2)
    for partition in range(2):
        sent = [Record(i, STAMP + i * 10_000, b"%d" % i, b"v" * 100, (("h", b"%d" % i),)) for i in range(1000)]
        client.produce(kafka_topic, partition, RecordColumns.from_records(sent), batch_size=5_000)
    return kafka_topic


def offsets_of(path: Path, topic: str | None = None) -> list[tuple[str, int, int]]:
    rows = load.dataset(path, topic).to_table(columns=["topic", "partition", "offset"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_everything_once_by_topic_and_hour(spark, kafka_broker, client, filled: str, tmp_path: Path) -> None:
    commits: list[load.Published] = []

    def run(**options: object) -> load.Summary:
        servers = kafka_broker.bootstrap_servers
        return load.load(
            spark, tmp_path, bootstrap_servers=servers, topics=[filled], on_commit=commits.append, **options
        )

    summary = run(commit_size=50_000)
    assert (summary.rows, summary.lag, summary.losses) == (2000, 0, [])
    assert summary.commits == len(commits) > 1, "published in steps"
    assert sum(commit.rows for commit in commits) == 2000
    files = load.files(tmp_path)
    assert summary.files == len(files)
    assert summary.size == sum(file.size for file in files)
    assert {(file.date, file.hour) for file in files} == {
        ("2023-11-14", 22), ("2023-11-14", 23), ("2023-11-15", 0),
    }  # fmt: skip
    again = run()
    assert (again.rows, again.files, again.commits) == (0, 0, 0)
    client.produce(filled, 1, [b"late"])
    assert run().rows == 1
    wanted = [(filled, partition, offset) for partition in range(2) for offset in range(1000 + partition)]
    assert offsets_of(tmp_path) == wanted
    assert load.positions(tmp_path) == {TopicPartition(filled, 0): 1000, TopicPartition(filled, 1): 1001}
    rows = load.read(spark, tmp_path, filled).where("partition = 0").orderBy("offset").collect()
    for offset, row in enumerate(rows):
        assert (bytes(row.key), bytes(row.value), row.topic) == (b"%d" % offset, b"v" * 100, filled)
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"%d" % offset)]
        when = dt.datetime.fromtimestamp((STAMP + offset * 10_000) / 1000, dt.UTC)
        assert (row.timestamp.astimezone(dt.UTC), row.date, row.hour) == (when, when.date(), when.hour)
    assert spark.read.parquet(str(tmp_path)).count() == 2001, "plain Spark reads it"
    assert ds.dataset(tmp_path, partitioning="hive").count_rows() == 2001, "and plain pyarrow"


def test_what_is_gone_fails_the_load_or_is_left_out(spark, kafka_broker, client, filled: str, tmp_path: Path) -> None:
    def run(**options: object) -> load.Summary:
        servers = kafka_broker.bootstrap_servers
        return load.load(spark, tmp_path, bootstrap_servers=servers, pattern=filled, **options)

    run()
    client.produce(filled, 0, [b"%d" % i for i in range(10)])
    client.admin.delete_records({TopicPartition(filled, 0): 1004})
    with pytest.raises(load.LoadError, match=r"offsets 1000 to 1004 of .*-0 have aged out.*on_data_loss"):
        run()
    summary = run(on_data_loss="skip")
    assert (summary.rows, len(summary.losses)) == (6, 1)
    client.admin.delete_topic(filled)
    client.admin.create_topic(filled, 2)
    client.produce(filled, 0, [b"new"])
    with pytest.raises(load.LoadError, match="was deleted and recreated"):
        run()
    assert run(on_data_loss="skip").rows == 1
    assert load.positions(tmp_path) == {TopicPartition(filled, 0): 1, TopicPartition(filled, 1): 0}
    client.produce(filled, 1, [b"new"])
    assert run().rows == 1, "the other partition is a new one too"


def stream(spark, broker: Broker, topic: str, **options: object):
    named = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    more = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("kafkalite").options(**named, **more).load()


def ended(query) -> None:
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query does not end"
    finally:
        query.stop()


def test_a_stream_loads_each_batch_once(spark, kafka_broker, client, filled: str, tmp_path: Path) -> None:
    """The newest commit of the checkpoint is removed: what a driver leaves that ends just before it."""
    target, checkpoint = tmp_path / "loaded", tmp_path / "checkpoint"
    rows: list[int] = []

    def run(**options: object) -> None:
        frame = stream(spark, kafka_broker, filled, maxOffsetsPerTrigger=800)
        commit = {"on_commit": lambda published: rows.append(published.rows)}
        ended(load.stream_to(frame, target, checkpoint=checkpoint, available_now=True, **commit, **options))

    run()
    assert rows == [800, 800, 400]
    for leftover in (checkpoint / "commits").glob("*2*"):
        leftover.unlink()
    client.produce(filled, 0, [b"late"])
    run()
    assert rows == [800, 800, 400, 1], "the third batch was done before"
    wanted = [(filled, partition, offset) for partition in range(2) for offset in range(1001 - partition)]
    assert offsets_of(target) == wanted
    load.compact(target)
    assert offsets_of(target) == wanted
    summary = load.load(spark, target, bootstrap_servers=kafka_broker.bootstrap_servers, topics=[filled])
    assert summary.rows == 0, "a batch goes on where the stream was"
    checkpoint.rename(tmp_path / "lost")
    with pytest.raises(Exception, match=r"offset 0 of .*-[01] arrived again .loaded up to 100[01]"):
        run()
    checkpoint.rename(tmp_path / "lost too")
    client.produce(filled, 1, [b"later"])
    run(on_overlap="skip")
    assert offsets_of(target) == [*wanted, (filled, 1, 1000)]


def test_a_stream_whose_source_connects_late_is_started_again(
    spark, kafka_broker, filled: str, late_source: Path, tmp_path: Path
) -> None:
    query = load.stream_to(stream(spark, kafka_broker, filled), tmp_path, available_now=True)
    assert not late_source.exists(), "the first process was not late"
    ended(query)
    assert query.exception() is None
    assert offsets_of(tmp_path) == [(filled, partition, offset) for partition in range(2) for offset in range(1000)]


def test_a_stream_loads_a_restored_log_again_where_that_is_wanted(spark, tmp_path: Path) -> None:
    """The source refuses first, then the target: each names its choice. A load in the same directory refuses too."""
    target, checkpoint = tmp_path / "loaded", tmp_path / "checkpoint"

    def run(on_data_loss: str = "true", **options: object) -> None:
        named = {"kafka.bootstrap.servers": live.bootstrap}
        reading = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": on_data_loss}
        frame = spark.readStream.format("kafkalite").options(**named, **reading).load()
        ended(load.stream_to(frame, target, checkpoint=checkpoint, available_now=True, options=named, **options))

    def values() -> list[bytes]:
        return sorted(load.dataset(target).to_table(columns=["value"]).column("value").to_pylist())

    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved")
        run()
        assert values() == sorted(numbers(0, 150))
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", numbers(100, 160, "new"))
        with pytest.raises(Exception, match="restored from a backup or truncated; set failOnDataLoss to false"):
            run()
        with pytest.raises(load.LoadError, match="restored or truncated"):
            load.load(spark, target, bootstrap_servers=live.bootstrap, topics=["orders"])
        with pytest.raises(Exception, match=r"offset 100 of orders-0 arrived again .loaded up to 150.*on_overlap"):
            run("false")
        assert values() == sorted(numbers(0, 150))
        run("false", on_overlap="load")
        everything = sorted([*numbers(0, 150), *numbers(100, 160, "new")])
        assert values() == everything
        run()
        assert load.load(spark, target, bootstrap_servers=live.bootstrap, topics=["orders"]).rows == 0
        assert values() == everything
        assert load.positions(target) == {TopicPartition("orders", 0): 160}


def test_a_stream_keeps_up(spark, kafka_broker, client, kafka_topic: str, tmp_path: Path) -> None:
    """What arrives while the query runs is loaded while it runs."""
    import threading

    published = threading.Condition()
    loaded = 0

    def note(change: load.Published) -> None:
        nonlocal loaded
        with published:
            loaded += change.rows
            published.notify_all()

    query = load.stream_to(stream(spark, kafka_broker, kafka_topic), tmp_path, trigger_s=0.1, on_commit=note)
    try:
        for count in (10, 20):
            client.produce(kafka_topic, 0, [b"x"] * 10)
            with published:
                assert published.wait_for(lambda wanted=count: loaded == wanted, TIMEOUT_S)
            assert len(offsets_of(tmp_path)) == count
    finally:
        query.stop()


def test_a_frame_may_be_changed_but_needs_its_offsets(spark, kafka_broker, filled: str, tmp_path: Path) -> None:
    def run(transform) -> load.Summary:
        servers = kafka_broker.bootstrap_servers
        return load.load(spark, tmp_path, bootstrap_servers=servers, topics=[filled], transform=transform)

    with pytest.raises(load.LoadError, match="lack column offset"):
        run(lambda frame: frame.drop("offset"))
    summary = run(lambda frame: frame.where("partition = 1").selectExpr("*", "length(value) as size").drop("value"))
    assert summary.rows == 1000
    assert load.dataset(tmp_path).schema.names == [
        "key", "partition", "offset", "timestamp", "timestampType", "headers", "size", "topic", "date", "hour",
    ]  # fmt: skip
    assert run(None).rows == 0, "what was left out counts as loaded"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "lzma"}, "codec must be one of zstd"),
        ({"file_size": 0}, "file_size must be at least 1 byte"),
        ({"on_data_loss": "ignore"}, "on_data_loss must be"),
        ({"topics": []}, "set either topics or pattern"),
        ({"starting": "now"}, "option startingOffsets"),
        ({"options": {"startingTimestamp": "5"}}, "option startingTimestamp cannot be set"),
        ({"options": {"minPartitons": "5"}}, "did you mean minPartitions"),
    ],
)
def test_a_wrong_setting_is_said(spark, kafka_broker, kafka_topic: str, tmp_path: Path, options, message: str) -> None:
    given = {"bootstrap_servers": kafka_broker.bootstrap_servers, "topics": [kafka_topic], **options}
    with pytest.raises(ValueError, match=message):
        load.load(spark, tmp_path, **given)


def test_a_load_may_begin_at_the_end(spark, kafka_broker, client, filled: str, tmp_path: Path) -> None:
    def run() -> load.Summary:
        servers = kafka_broker.bootstrap_servers
        return load.load(spark, tmp_path, bootstrap_servers=servers, topics=[filled], starting="latest")

    assert run().rows == 0
    client.produce(filled, 0, [b"new"])
    assert run().rows == 1


@pytest.mark.slow
@pytest.mark.compat
def test_apache_kafka_is_loaded_alike(spark, apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """Two partitions, one with a committed and an aborted transaction, whose markers are offsets without records."""

    def run(**options: object) -> load.Summary:
        committed = {"kafka.isolation.level": "read_committed"}
        servers = apache_kafka.bootstrap
        return load.load(
            spark,
            tmp_path,
            bootstrap_servers=servers,
            topics=["loaded"],
            options=committed,
            commit_size=4_000,
            **options,
        )

    with Client(apache_kafka.bootstrap) as client:
        client.admin.create_topic("loaded", 2)
        for _ in range(5):
            client.produce("loaded", 0, [b"x" * 1000] * 3)
        with client.producer(transactional_id="loads") as producer:
            producer.init_transactions()
            for commit in (True, False):
                producer.begin_transaction()
                producer.send("loaded", 1, [b"committed" if commit else b"aborted"])
                producer.commit_transaction() if commit else producer.abort_transaction()
        committed_end = functools.partial(client.end_offset, "loaded", 1, isolation=READ_COMMITTED)
        wait_until(lambda: committed_end() == 4, TIMEOUT_S, "the markers, which come after the answer")
        summary = run()
        assert (summary.rows, summary.lag) == (16, 0)
        assert summary.commits >= 2
        assert load.positions(tmp_path) == {TopicPartition("loaded", 0): 15, TopicPartition("loaded", 1): 4}
        assert run().rows == 0
        client.produce("loaded", 1, [b"late"])
        client.admin.delete_records({TopicPartition("loaded", 0): 15})
        assert run().rows == 1
    values = load.dataset(tmp_path).to_table(columns=["value"]).column("value").to_pylist()
    assert sorted(values) == sorted([*[b"x" * 1000] * 15, b"committed", b"late"])


# --- rows of Spark's Arrow batches ------------------------------------------------------------------------------------


def with_batch_rows(frame):
    """The frame with the number of rows that came together to a Python worker."""

    def counted(batches):
        for batch in batches:
            yield batch.append_column("rows", pa.array([batch.num_rows] * batch.num_rows, pa.int32()))

    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = [*frame.schema.fields, StructField("rows", IntegerType())]
    return frame.mapInArrow(counted, StructType(fields))


def rows_of_batches(path: Path) -> set[int]:
    return set(load.dataset(path).to_table(columns=["rows"]).column("rows").to_pylist())


def test_large_records_come_in_batches_of_few_rows(
    spark, kafka_broker, client, kafka_topic: str, tmp_path: Path
) -> None:
    """With Spark's own limits, all of them would be one batch; what the user sets is left alone."""
    client.produce(kafka_topic, 0, [b"%06d" % n * 10_000 for n in range(300)])
    servers = kafka_broker.bootstrap_servers
    before = spark.conf.getAll

    def run(folder: str) -> set[int]:
        summary = load.load(
            spark,
            tmp_path / folder,
            bootstrap_servers=servers,
            topics=[kafka_topic],
            codec="none",
            transform=with_batch_rows,
        )
        assert summary.rows == 300
        return rows_of_batches(tmp_path / folder)

    rows = run("chosen")
    assert 10 < max(rows) < rows_for(60_000) < 300
    assert spark.conf.getAll == before, "only during the load"
    spark.conf.set(ROWS, "50")
    try:
        assert run("set") == {50}
        assert spark.conf.get(ROWS) == "50"
    finally:
        spark.conf.unset(ROWS)


def test_a_stream_learns_the_size_of_records(spark, kafka_broker, client, kafka_topic: str, tmp_path: Path) -> None:
    publish = load.publisher(tmp_path, name="learns", codec="none")

    def batch(number: int) -> None:
        client.produce(kafka_topic, 0, [b"%06d" % n * 10_000 for n in range(400)])
        query = (
            with_batch_rows(stream(spark, kafka_broker, kafka_topic))
            .writeStream.foreachBatch(lambda frame, _: publish(frame, number))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        ended(query.trigger(availableNow=True).start())

    batch(0)
    assert rows_of_batches(tmp_path) == {400}, "Spark's limits"
    batch(1)
    assert len(offsets_of(tmp_path)) == 800
    assert min(rows_of_batches(tmp_path)) <= rows_for(60_000)
