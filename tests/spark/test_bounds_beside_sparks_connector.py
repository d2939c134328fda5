"""Bounds and topics that are not there: what fails, and what is read, beside Spark's own connector."""

import json
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.model import TopicPartition

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.usefixtures("sparks_connector"),
]

WAIT_S = 300
FORMATS = ("kafka", "kafkalite")


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """Offsets 20 to 99 in each of two partitions."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
        for partition in (0, 1):
            client.produce(kafka_topic, partition, [b"x"] * 100)
        client.admin.delete_records({TopicPartition(kafka_topic, partition): 20 for partition in (0, 1)})
    return kafka_topic


def outcome(count) -> int | str:
    """Rows, or that it failed; a message says why."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return count()
    except (PySparkException, Py4JError) as error:
        return f"failed: {error}"


def counted(spark, name: str, options: dict[str, str]) -> int | str:
    """Rows of a batch query, or that it failed."""
    return outcome(lambda: spark.read.format(name).options(**options).load().count())


def offsets(topic: str, first: int, second: int) -> str:
    return json.dumps({topic: {"0": first, "1": second}})


CASES = {
    "start after the end": ({"startingOffsets": (150, 20)}, None, None),
    "start at the end": ({"startingOffsets": (100, 20)}, 80, 80),
    "start after a given end": ({"startingOffsets": (50, 20), "endingOffsets": (40, 30)}, None, None),
    "end after the last record": ({"startingOffsets": (50, 20), "endingOffsets": (150, 30)}, None, 60),
    "both after the last record": ({"startingOffsets": (150, 20), "endingOffsets": (160, 30)}, None, 10),
    "start before the first record": ({"startingOffsets": (5, 0)}, None, 160),
    "end before the first record": ({"endingOffsets": (10, 50)}, None, None),
}
"""Options, then rows with failOnDataLoss and without; None: it fails."""


@pytest.mark.parametrize("fails", [True, False], ids=["strict", "lenient"])
@pytest.mark.parametrize("case", CASES)
def test_batch(spark, kafka_broker: Broker, topic: str, case: str, fails: bool) -> None:
    given, strict, lenient = CASES[case]
    options = {name: offsets(topic, *pair) for name, pair in given.items()}
    options |= {"failOnDataLoss": str(fails).lower(), "kafkaConsumer.pollTimeoutMs": "5000", "subscribe": topic}
    options["kafka.bootstrap.servers"] = kafka_broker.bootstrap_servers
    wanted = strict if fails else lenient
    for name in FORMATS:
        found = counted(spark, name, options)
        assert str(found).startswith("failed: ") if wanted is None else found == wanted, (name, found)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"startingOffsets": (150, 20)}, None),
        ({"startingOffsets": (150, 20), "failOnDataLoss": "false"}, 80),
        ({"startingOffsets": (5, 20)}, None),
        ({"startingOffsets": (5, 20), "failOnDataLoss": "false"}, 160),
        ({"subscribe": "no-such-topic"}, None),
        ({"subscribePattern": "no-such-topic"}, 0),
    ],
)
def test_stream(spark, kafka_broker: Broker, topic: str, tmp_path: Path, options: dict, rows: int | None) -> None:
    named = {name: offsets(topic, *text) if isinstance(text, tuple) else text for name, text in options.items()}
    named["kafka.bootstrap.servers"] = kafka_broker.bootstrap_servers
    if not {"subscribe", "subscribePattern"} & set(named):
        named["subscribe"] = topic
    for name in FORMATS:
        folder = tmp_path / name

        def run(name: str = name, folder: Path = folder) -> int:
            frame = spark.readStream.format(name).options(**named).load().select("topic", "partition", "offset")
            query = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
            query = query.option("path", str(folder / "rows")).trigger(availableNow=True).start()
            assert query.awaitTermination(WAIT_S)
            return spark.read.schema("offset LONG").parquet(str(folder / "rows")).count() if rows else 0

        found = outcome(run)
        assert str(found).startswith("failed: ") if rows is None else found == rows, (name, found)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"subscribe": "no-such-topic"}, None),
        ({"subscribe": "T,no-such-topic"}, None),
        ({"assign": '{"no-such-topic": [0]}'}, None),
        ({"subscribePattern": "no-such-topic"}, 0),
        ({"subscribePattern": "PART"}, 160),
        ({"subscribePattern": "^T$"}, 160),
    ],
)
def test_topics(spark, kafka_broker: Broker, topic: str, options: dict, rows: int | None) -> None:
    named = {name: text.replace("PART", topic[2:-2]).replace("T", topic) for name, text in options.items()}
    named["kafka.bootstrap.servers"] = kafka_broker.bootstrap_servers
    for name in FORMATS:
        found = counted(spark, name, named)
        assert str(found).startswith("failed: ") if rows is None else found == rows, (name, found)
    if rows is None:
        assert "topic no-such-topic: " in str(found)


def test_a_partition_of_assign_that_is_missing(spark, kafka_broker: Broker, topic: str) -> None:
    """Spark's own connector leaves it out, and reads less than the query says."""
    named = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "assign": json.dumps({topic: [0, 7]})}
    assert spark.read.format("kafka").options(**named).load().count() == 80
    with pytest.raises(Exception, match=f"option assign: topic {topic} has no partition 7 .partition count: 2"):
        spark.read.format("kafkalite").options(**named).load().count()
