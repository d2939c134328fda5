"""Counts in windows and joins over topics in a real session: what they say is what plain Python says."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.spark.streams import join_store, join_streams, session_counts, window_counts, with_store
from kafkalite.wire.record.columns import Record, RecordColumns

pytestmark = [pytest.mark.spark, pytest.mark.integration]

START_S = 1_700_000_040
"""A whole minute."""
TIMEOUT_S = 300


@pytest.fixture
def send(kafka_broker: Broker) -> Iterator[Callable[..., None]]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:

        def produce(topic: str, seconds: list[int], key: bytes = b"a") -> None:
            """A record at each of these seconds after START_S, its value being that number."""
            sent = [Record(i, (START_S + at) * 1000, key, b"%d" % at, ()) for i, at in enumerate(seconds)]
            client.produce(topic, 0, RecordColumns.from_records(sent))

        yield produce


class Streams:
    """Frames of topics, and queries over their current content, which continue from one run to the next."""

    def __init__(self, spark, broker: Broker, folder: Path) -> None:
        self.spark = spark
        self._servers = broker.bootstrap_servers
        self._folder = folder

    def options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers, "subscribe": topic, "startingOffsets": "earliest"}

    def frame(self, topic: str, *, batch: bool = False):
        """name, at, timestamp: key and value as text and number."""
        reader = self.spark.read if batch else self.spark.readStream
        rows = reader.format("kafkalite").options(**self.options(topic)).load()
        return rows.selectExpr("cast(key as string) as name", "cast(cast(value as string) as int) as at", "timestamp")

    def run(self, frame, mode: str = "append", write=None) -> list[tuple[object, ...]]:
        """The rows that come out, in order."""
        rows: list[tuple[object, ...]] = []

        def collect(batch, number: int) -> None:
            rows.extend(tuple(row) for row in batch.collect())

        writer = frame.writeStream.outputMode(mode).foreachBatch(write or collect)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query does not end"
        finally:
            query.stop()
        return sorted(rows, key=repr)


@pytest.fixture
def streams(spark, kafka_broker: Broker, tmp_path: Path) -> Streams:
    return Streams(spark, kafka_broker, tmp_path)


def counted(rows: list[tuple[object, ...]]) -> dict[tuple[object, int, int], int]:
    """(name, first second, last second) → count."""
    return {
        (name, round(start.timestamp()) - START_S, round(end.timestamp()) - START_S): count
        for name, start, end, count in rows
    }


def test_tumbling_and_sliding_windows(streams: Streams, send, kafka_topic: str) -> None:
    seconds = {"a": [0, 1, 59, 60, 200], "b": [61, 119, 120]}
    for name, values in seconds.items():
        send(kafka_topic, values, name.encode())
    frame = window_counts(streams.frame(kafka_topic), "1 minute", late="10 minutes", by=["name"])
    assert frame.columns == ["name", "start", "end", "count"]
    tumbling = Counter((name, at // 60 * 60, at // 60 * 60 + 60) for name, ats in seconds.items() for at in ats)
    assert counted(streams.run(frame, "update")) == tumbling
    send(kafka_topic, [30])
    assert counted(streams.run(frame, "update")) == {("a", 0, 60): 4}, "what changed, with what came before"
    batch = window_counts(
        streams.frame(kafka_topic, batch=True), "1 minute", slide="20 seconds", late="0 seconds", by=["name"]
    )
    sliding = Counter(
        (name, first, first + 60)
        for name, ats in {**seconds, "a": [*seconds["a"], 30]}.items()
        for at in ats
        for first in range(-40, 260, 20)
        if first <= at < first + 60
    )
    assert counted([tuple(row) for row in batch.collect()]) == sliding


def test_sessions_end_where_nothing_came(streams: Streams, send, kafka_topic: str) -> None:
    send(kafka_topic, [0, 20, 45, 100, 110], b"a")
    send(kafka_topic, [30], b"b")
    frame = session_counts(streams.frame(kafka_topic), "30 seconds", late="10 seconds", by=["name"])
    first = streams.run(frame)
    send(kafka_topic, [1000], b"a")
    second = streams.run(frame)
    send(kafka_topic, [1001], b"a")
    third = streams.run(frame)
    assert counted([*first, *second, *third]) == {("a", 0, 75): 3, ("a", 100, 140): 2, ("b", 30, 60): 1}
    with pytest.raises(ValueError, match="by=… must contain"):
        session_counts(frame, "30 seconds", late="10 seconds")


def test_a_store_is_read_again_for_each_batch(streams: Streams, send, kafka_topic: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    rows: list[tuple[object, ...]] = []

    def save(names: list[tuple[str, str]]) -> None:
        streams.spark.createDataFrame(names, "name string, city string").write.mode("overwrite").parquet(store)

    def note(batch, number: int) -> None:
        rows.extend(tuple(row) for row in batch.select("at", "name", "city").collect())

    each = with_store(lambda spark: spark.read.parquet(store), "name", note)
    seldom = with_store(lambda spark: spark.read.parquet(store), "name", note, refresh_s=1e9, how="inner")
    save([("a", "Aachen")])
    send(kafka_topic, [1], b"a")
    send(kafka_topic, [2], b"b")
    frame = streams.frame(kafka_topic)
    streams.run(frame, write=each)
    assert sorted(rows) == [(1, "a", "Aachen"), (2, "b", None)]
    seldom(streams.frame(kafka_topic, batch=True), 0)
    assert rows[2:] == [(1, "a", "Aachen")]
    save([("a", "Aalen"), ("b", "Bonn")])
    rows.clear()
    send(kafka_topic, [3], b"a")
    send(kafka_topic, [4], b"b")
    streams.run(frame, write=each)
    assert sorted(rows) == [(3, "a", "Aalen"), (4, "b", "Bonn")]


def test_a_store_that_does_not_fit_is_reported(spark) -> None:
    left = spark.createDataFrame([(1, "x")], "id int, text string")
    store = spark.createDataFrame([(1, "y", "z")], "id int, text string, more string")
    assert [tuple(row) for row in join_store(left, store.drop("text"), "id").collect()] == [(1, "x", "z")]
    with pytest.raises(ValueError, match="both sides have text"):
        join_store(left, store, "id")
    with pytest.raises(ValueError, match="unknown column 'key'"):
        join_store(left, store, ["id", "key"])
    with pytest.raises(ValueError, match="unknown how="):
        join_store(left, store.drop("text"), "id", how="outer")


def test_two_streams_meet_within_a_time(streams: Streams, send, kafka_topic: str, kafka_broker: Broker) -> None:
    clicks = f"{kafka_topic}-clicks"
    kafka_broker.create_topic(clicks)
    shown = streams.frame(kafka_topic).selectExpr("name", "at as shown", "timestamp as shown_at")
    clicked = streams.frame(clicks).selectExpr("name", "at as clicked", "timestamp as clicked_at")
    pairs = join_streams(
        shown, clicked, "name", left_time="shown_at", right_time="clicked_at", after="1 minute", late="10 seconds",
        how="left",
    ).select("name", "shown", "clicked")  # fmt: skip
    send(kafka_topic, [0, 100], b"a")
    send(kafka_topic, [50], b"b")
    send(clicks, [5, 60, 161], b"a")
    send(clicks, [49], b"b")
    found = streams.run(pairs)
    assert [row for row in found if row[2] is not None] == [("a", 0, 5), ("a", 0, 60)], "not earlier, not too late"
    send(kafka_topic, [170], b"b")
    send(clicks, [171], b"b")
    found += streams.run(pairs)
    for later in (10_000, 10_001):  # until nothing more can come for those before
        send(kafka_topic, [later], b"z")
        send(clicks, [later - 100], b"z")
        found += streams.run(pairs)
    assert sorted(found, key=repr) == [
        ("a", 0, 5), ("a", 0, 60), ("a", 100, None), ("b", 170, 171), ("b", 50, None),
    ]  # fmt: skip


def test_streams_that_cannot_meet_are_told(spark) -> None:
    left = spark.createDataFrame([], "id int, at timestamp, x int")
    right = spark.createDataFrame([], "id int, then timestamp, x int")
    times = {"left_time": "at", "right_time": "then", "after": "1 minute", "late": "1 minute"}
    with pytest.raises(ValueError, match="both sides have x"):
        join_streams(left, right, "id", **times)
    with pytest.raises(ValueError, match="on=… must contain"):
        join_streams(left, right, [], **times)
    with pytest.raises(ValueError, match="unknown column 'then'"):
        join_streams(left, right.drop("then"), "id", **times)
    with pytest.raises(ValueError, match="unknown how="):
        join_streams(left, right, "id", how="right", **times)
