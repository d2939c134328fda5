"""Checkpoints between `format("kafka")` and `format("kafkalite")`: in which direction a streaming query may change."""

import json
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.usefixtures("sparks_connector"),
]

WAIT_S = 300


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
    fill(kafka_broker, kafka_topic)
    return kafka_topic


def fill(broker: Broker, topic: str) -> None:
    """50 records for each of two partitions."""
    with Client(broker.bootstrap_servers) as client:
        for partition in (0, 1):
            client.produce(topic, partition, [b"x"] * 50)


def run(spark, name: str, broker: Broker, topic: str, folder: Path, **more: str) -> list[tuple[int, int]]:
    """Runs the query up to the end; all that it has written, as partition and offset."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format(name)
        .options(**{**options, "maxOffsetsPerTrigger": "30", **more})
        .load()
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    rows = spark.read.parquet(str(folder / "rows")).collect()
    return sorted((row.partition, row.offset) for row in rows)


def lose_newest_commit(checkpoint: Path) -> None:
    """Remove the newest commit, as a driver does that dies between the sink and the checkpoint."""
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(newest), commits / f".{newest}.crc"):
        path.unlink(missing_ok=True)


def newest_offsets(checkpoint: Path) -> dict[str, dict[str, object]]:
    newest = max((int(path.name), path) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())[1]
    return json.loads(newest.read_text().splitlines()[-1])


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_checkpoint_of_sparks_connector_is_taken(
    spark, kafka_broker: Broker, topic: str, tmp_path: Path, unfinished: bool
) -> None:
    """Each record once, a batch that was not finished by the other included."""
    first = [(partition, offset) for partition in (0, 1) for offset in range(50)]
    assert run(spark, "kafka", kafka_broker, topic, tmp_path) == first
    if unfinished:
        lose_newest_commit(tmp_path / "checkpoint")
    fill(kafka_broker, topic)
    every = [(partition, offset) for partition in (0, 1) for offset in range(100)]
    assert run(spark, "kafkalite", kafka_broker, topic, tmp_path) == every
    assert run(spark, "kafkalite", kafka_broker, topic, tmp_path) == every


def test_the_way_back_is_a_new_checkpoint(spark, kafka_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spark's connector refuses a checkpoint with ids; its offsets, without what begins with @, are startingOffsets."""
    run(spark, "kafkalite", kafka_broker, topic, tmp_path)
    fill(kafka_broker, topic)
    with pytest.raises(Exception, match=r'Expected e[.]g[.] [{]"topicA"'):
        run(spark, "kafka", kafka_broker, topic, tmp_path)
    at = {name: row for name, row in newest_offsets(tmp_path / "checkpoint").items() if not name.startswith("@")}
    assert at == {topic: {"0": 50, "1": 50}}
    rest = [(partition, offset) for partition in (0, 1) for offset in range(50, 100)]
    assert run(spark, "kafka", kafka_broker, topic, tmp_path / "new", startingOffsets=json.dumps(at)) == rest
