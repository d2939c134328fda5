"""The writes of a Spark sink's task, without Spark: rows acknowledged, one message for those that fail."""

import pyarrow as pa
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.spark.sink import writing
from kafkalite.spark.sink.options import SinkOptions
from kafkalite.spark.sink.writing import SinkError, WriteTask, write_all

pytestmark = pytest.mark.integration


def options_for(broker: Broker, topic: str | None, **options: str) -> SinkOptions:
    named = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    columns = {"value": "binary", **({} if topic else {"topic": "string"})}
    return SinkOptions.parse(named | ({"topic": topic} if topic else {}), columns, streaming=True)


def batch_of(first: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % number for number in range(first, end)])})


def values(broker: Broker, topic: str, *, isolation: int = 0) -> list[int]:
    with Client(broker.bootstrap_servers) as client:
        return [
            int(record.value or b"")
            for partition in client.partitions(topic)
            for chunk in client.read(topic, partition, end=client.end_offset(topic, partition), isolation=isolation)
            for record in chunk.columns.records()
        ]


def test_tasks_share_a_writer_that_is_renewed_in_time(
    kafka_broker: Broker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_for(kafka_broker, kafka_topic)
    assert write_all(options, WriteTask(0), iter([batch_of(0, 10), batch_of(10, 20)])) == 20
    first = writing.writer_for(options)
    assert write_all(options, WriteTask(1, 3, "q"), iter([batch_of(20, 30)])) == 10
    assert writing.writer_for(options) is first
    monkeypatch.setattr(writing, "WRITER_AGE_S_MAX", 0.0)
    assert write_all(options, WriteTask(2), iter([batch_of(30, 40)])) == 10
    assert writing.writer_for(options) is not first
    writing.forget(options)
    assert values(kafka_broker, kafka_topic) == list(range(40))


def test_a_task_without_rows_writes_nothing(kafka_broker: Broker, kafka_topic: str) -> None:
    assert write_all(options_for(kafka_broker, kafka_topic), WriteTask(0), iter([])) == 0
    assert values(kafka_broker, kafka_topic) == []


def test_writers_are_bounded(kafka_broker: Broker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "WRITERS_MAX", 2)
    for number in range(4):
        options = options_for(kafka_broker, kafka_topic, **{"kafka.client.id": str(number)})
        write_all(options, WriteTask(0), iter([batch_of(number, number + 1)]))
        assert len(writing._kept.writers) <= 2
    assert values(kafka_broker, kafka_topic) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        (WriteTask(3, 17, "q"), {"value": [b"v"], "topic": [None]}, "task 3 of batch 17: a row has no topic"),
        (WriteTask(3), {"value": [b"v"], "topic": ["no such topic"]}, "task 3: .*no such topic"),
        (WriteTask(0), {"value": [bytes(2_000_000)], "topic": ["TOPIC"]}, "task 0: 1 records .* not acknowledged"),
    ],
)
def test_what_is_not_written_is_one_sentence(
    kafka_broker: Broker, kafka_topic: str, task: WriteTask, columns: dict[str, list], message: str
) -> None:
    topics = [kafka_topic if name == "TOPIC" else name for name in columns["topic"]]
    batch = pa.record_batch({"value": pa.array(columns["value"]), "topic": pa.array(topics, pa.string())})
    options = options_for(kafka_broker, None)
    with pytest.raises(SinkError, match=f"^{message}") as caught:
        write_all(options, task, iter([batch]))
    assert caught.value.__suppress_context__, "one sentence, and no chain of errors"
    assert options not in writing._kept.writers, "a writer that failed is not kept"
    assert write_all(options_for(kafka_broker, kafka_topic), WriteTask(0), iter([batch_of(0, 1)])) == 1


@pytest.mark.parametrize("creates", [True, False])
def test_a_missing_topic_is_created_where_the_broker_creates_topics(creates: bool) -> None:
    """As for the Java producer of Spark's own connector."""
    settings = {"auto.create.topics.enable": str(creates).lower(), "num.partitions": "3"}
    with Broker(settings) as broker, Client(broker.bootstrap_servers) as client:
        options = options_for(broker, "new")
        if creates:
            assert write_all(options, WriteTask(0), iter([batch_of(0, 1)])) == 1
            assert len(client.topic("new").partitions) == 3
            writing.forget(options)
        else:
            with pytest.raises(SinkError, match=r"^task 0: topic new: "):
                write_all(options, WriteTask(0), iter([batch_of(0, 1)]))
            assert "new" not in client.topics()


def test_what_breaks_in_the_rows_goes_through(kafka_broker: Broker, kafka_topic: str) -> None:
    def rows():
        yield batch_of(0, 5)
        raise OSError("the JVM is gone")

    options = options_for(kafka_broker, kafka_topic)
    with pytest.raises(OSError, match="the JVM is gone"):
        write_all(options, WriteTask(0), rows())
    assert options not in writing._kept.writers
