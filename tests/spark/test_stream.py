"""`spark.readStream.format("kafkalite")` in a real session: bounded runs, restarts, a batch done twice, groups."""

import contextlib
import json
import warnings
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.restored import grow_after_backup, numbers, produce, put_back

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of deprecated standard library calls
    from kafka.admin import KafkaAdminClient, OffsetSpec

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 300


def stream(spark, broker: Broker | BrokerProcess, topic: str, **options: object):
    servers = broker.bootstrap if isinstance(broker, BrokerProcess) else broker.bootstrap_servers
    named = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("kafkalite").options(
        **named, **{name: str(value) for name, value in options.items()}
    )


def finished(writer, checkpoint: Path):
    """Runs a query over what is there now, to its end."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query does not end"
        assert query.exception() is None
    finally:
        query.stop()
    return query


@pytest.fixture
def filled(kafka_broker: Broker, kafka_topic: str) -> str:
    """3000 records in partition 0, 1000 in partition 1."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
        client.produce(kafka_topic, 0, [b"%d" % i for i in range(3000)], batch_size=5_000)
        client.produce(kafka_topic, 1, [b"%d" % i for i in range(1000)], batch_size=5_000)
    return kafka_topic


def lags(broker: Broker, group: str, capsys: pytest.CaptureFixture[str]) -> list[dict[TopicPartition, int]]:
    """What lag tools say: `kafkalite groups describe`, and kafka-python's admin client."""
    capsys.readouterr()
    assert main(["groups", "describe", group, "--json", "-b", broker.bootstrap_servers]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    ours = {TopicPartition(row["topic"], row["partition"]): row["lag"] for row in described["partitions"]}
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        committed = admin.list_group_offsets([group])[group]
        ends = admin.list_partition_offsets(dict.fromkeys(committed, OffsetSpec.LATEST))
    theirs = {TopicPartition(*key): ends[key].offset - row.offset for key, row in committed.items()}
    return [ours, theirs]


def test_a_bounded_run_and_its_restart(
    spark, kafka_broker: Broker, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    options = {"maxOffsetsPerTrigger": 1500, "kafka.group.id": f"group-of-{filled}"}

    def run():
        frame = stream(spark, kafka_broker, filled, **options).load().select("partition", "offset", "value")
        return finished(frame.writeStream.format("parquet").option("path", str(target)), tmp_path / "checkpoint")

    def rows() -> list[tuple[int, int, bytes]]:
        found = spark.read.parquet(str(target)).collect()
        return sorted((row.partition, row.offset, bytes(row.value)) for row in found)

    wanted = [(partition, i, b"%d" % i) for partition, count in ((0, 3000), (1, 1000)) for i in range(count)]
    query = run()
    assert rows() == wanted
    progress = [batch for batch in query.recentProgress if batch.numInputRows]
    assert [batch.numInputRows for batch in progress] == [1500, 1500, 1000]
    assert json.loads(progress[-1].sources[0].endOffset)[filled] == {"0": 3000, "1": 1000}
    assert json.loads(progress[0].sources[0].latestOffset)[filled] == {"0": 3000, "1": 1000}
    none_left = {TopicPartition(filled, 0): 0, TopicPartition(filled, 1): 0}
    assert lags(kafka_broker, f"group-of-{filled}", capsys) == [none_left, none_left]
    with Client(kafka_broker.bootstrap_servers) as client:
        assert [batch for batch in run().recentProgress if batch.numInputRows] == []
        client.produce(filled, 1, [b"1000", b"1001"])
    two_left = {**none_left, TopicPartition(filled, 1): 2}
    assert lags(kafka_broker, f"group-of-{filled}", capsys) == [two_left, two_left]
    run()
    assert lags(kafka_broker, f"group-of-{filled}", capsys) == [none_left, none_left]
    assert rows() == [*wanted, (1, 1000, b"1000"), (1, 1001, b"1001")]


def test_a_batch_that_was_done_is_the_same_when_done_again(
    spark, kafka_broker: Broker, filled: str, tmp_path: Path
) -> None:
    """The newest commit is missing, as after a driver's death between the sink and the checkpoint."""
    seen: list[tuple[int, list[tuple[int, int]]]] = []

    def note(batch, number: int) -> None:
        seen.append((number, sorted((row.partition, row.offset) for row in batch.collect())))

    def run() -> None:
        options = {"maxOffsetsPerTrigger": 2500, "minPartitions": 3}
        frame = stream(spark, kafka_broker, filled, **options).schema("partition INT, offset BIGINT").load()
        finished(frame.writeStream.foreachBatch(note), tmp_path / "checkpoint")

    run()
    assert [number for number, _ in seen] == [0, 1]
    everything = [(partition, i) for partition, count in ((0, 3000), (1, 1000)) for i in range(count)]
    assert sorted(row for _, rows in seen for row in rows) == everything
    for leftover in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        leftover.unlink()
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(filled, 0, [b"late"])
    run()
    assert seen[2] == seen[1], "an appending sink would have these rows twice"
    assert seen[3:] == [(2, [(0, 3000)])]


def test_what_is_gone_ends_the_query(spark, kafka_broker: Broker, filled: str, tmp_path: Path) -> None:
    def run() -> None:
        frame = stream(spark, kafka_broker, filled).schema("offset BIGINT").load()
        finished(frame.writeStream.format("noop"), tmp_path / "checkpoint")

    run()
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.delete_topic(filled)
        client.admin.create_topic(filled, 2)
    with pytest.raises(Exception, match="was deleted and recreated"):
        run()


def test_a_restored_broker_ends_the_query_until_it_may_go_back(spark, tmp_path: Path) -> None:
    target = tmp_path / "out"

    def run(**options: object) -> None:
        frame = stream(spark, live, "orders", **options).schema("value BINARY, offset BIGINT").load()
        finished(frame.writeStream.format("parquet").option("path", str(target)), tmp_path / "checkpoint")

    def rows() -> list[bytes]:
        return sorted(bytes(row.value) for row in spark.read.parquet(str(target)).collect())

    with BrokerProcess(tmp_path / "live") as live:
        grow_after_backup(live, "orders", tmp_path / "saved")
        run()
        assert rows() == sorted(numbers(0, 150))
        put_back(live, tmp_path / "saved")
        produce(live.bootstrap, "orders", numbers(100, 160, "new"))
        with pytest.raises(Exception, match="restored from a backup or truncated; set failOnDataLoss to false"):
            run()
        assert rows() == sorted(numbers(0, 150))
        run(failOnDataLoss="false")
        everything = sorted([*numbers(0, 150), *numbers(100, 160, "new")])
        assert rows() == everything
        run()
        assert rows() == everything
