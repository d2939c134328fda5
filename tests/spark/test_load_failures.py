"""What `kafkalite load` says and leaves when records or topics are bad: one sentence, status 2, letters, the others."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.broker import Broker
from kafkalite.cli import EXIT_USAGE, main
from kafkalite.client import Client
from kafkalite.failures.headers import found_letter
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.spark import load
from kafkalite.spark.json_values import decode_json
from kafkalite.spark.load.loading import LetterTopic
from tests.integration.test_load_letters import letters_of

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        yield client


@pytest.fixture
def command(spark, kafka_broker: Broker, tmp_path: Path, monkeypatch, capsys):
    """Runs `kafkalite load` in this process and session; status, stdout, lines of stderr."""

    monkeypatch.setattr("kafkalite.spark.session.session", lambda *_given, **_named: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _self: None)
    where = ["-b", kafka_broker.bootstrap_servers, "--to", str(tmp_path / "loaded"), "-q"]

    def run(*words: str) -> tuple[int, str, list[str]]:
        capsys.readouterr()
        status = main(["load", *where, *words])
        out, err = capsys.readouterr()
        return status, out, [line for line in err.splitlines() if line.startswith("kafkalite: ")]

    return run


def rows_of(folder: Path, topic: str, *columns: str) -> list[tuple[object, ...]]:
    table = load.dataset(folder, topic).to_table(columns=["offset", *columns])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


JSON_VALUES = [b'{"id": 1}', b'{"id": "x"}', b"{", b"[1]", b"\xff\xfe", b'{"id": 2, "more": 3}', None, b"{}"]
JSON_GOOD = {0: 1, 5: 2, 7: None}
JSON_BAD = [1, 2, 3, 4]


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_bad_json_value(command, client: Client, kafka_topic: str, tmp_path: Path, engine: str) -> None:
    client.produce(kafka_topic, 0, JSON_VALUES)
    words = ["-t", kafka_topic, "--engine", engine, "--json-schema", "id BIGINT"]
    status, out, err = command(*words)
    assert (status, out) == (EXIT_USAGE, "")
    wanted = f"kafkalite: offset 1 of {kafka_topic}-0 cannot be decoded: the value is not JSON of the schema id BIGINT"
    assert err == [wanted]
    letters = f"{kafka_topic}-bad"
    status, out, err = command(
        "-t", kafka_topic, "--engine", engine, "--json-schema", "id BIGINT", "--dead-letters", letters
    )
    assert (status, err) == (0, [])
    assert out.startswith(f"{len(JSON_VALUES) - len(JSON_BAD)} records in 1 files of ")
    assert f"; {len(JSON_BAD)} bad records were sent to {letters}\n" in out
    found = rows_of(tmp_path / "loaded", kafka_topic, "decoded")
    assert found == [(n, {"id": JSON_GOOD[n]} if n in JSON_GOOD else None) for n in (0, 5, 6, 7)]
    there = letters_of(client, letters)
    assert [message.value for message in there] == [JSON_VALUES[n] for n in JSON_BAD]
    told = [found_letter(message.headers) for message in there]
    assert [(each.letter.partition, each.letter.offset, each.reason.text) for each in told if each] == [
        (
            TopicPartition(kafka_topic, 0),
            n,
            "the value is not valid UTF-8" if n == 4 else "the value is not JSON of the schema id BIGINT",
        )
        for n in JSON_BAD
    ]
    assert command(*words, "--dead-letters", letters)[0] == 0
    assert len(letters_of(client, letters)) == len(JSON_BAD), "once"


def test_json_columns_of_any_frame(spark) -> None:
    frame = spark.createDataFrame([(b'{"id": 1}',), (b"x",), (None,)], "value binary")
    rows = decode_json(frame, "id INT", mode="permissive").collect()
    assert [(row.decoded and row.decoded.id, row.json_error) for row in rows] == [
        (1, None),
        (None, "the value is not JSON of the schema id INT"),
        (None, None),
    ]
    with pytest.raises(Exception, match="a value cannot be decoded: the value is not JSON"):
        decode_json(frame, "id INT").collect()
    with pytest.raises(ValueError, match="mode must be one of"):
        decode_json(frame, "id INT", mode="x")


def test_bad_avro_values_of_several_topics(
    command, client: Client, kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    """Each with a schema of its own; failing, one does not stop the other."""
    import pyarrow as pa

    topics = [f"{kafka_topic}-{name}" for name in ("a", "b")]
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=f"schemas-{kafka_topic}"[:249]) as registry:
        with RegistryClient(registry.url) as schemas:
            for topic, field in zip(topics, ("id", "number"), strict=True):
                encoder = AvroEncoder(schemas, f"{topic}-value", SCHEMA.replace('"id"', f'"{field}"'))
                good = encoder.encode(pa.RecordBatch.from_pylist([{field: n} for n in range(4)])).to_pylist()
                client.admin.create_topic(topic)
                client.produce(topic, 0, [*good[:3], b"garbage", good[3]] if topic == topics[0] else good)
        options = ["-t", topics[0], "-t", topics[1], "--avro", registry.url]
        status, out, err = command(*options, "--json")
        said = f"offset 3 of {topics[0]}-0 cannot be decoded: the message does not begin with 0x00 and a schema id"
        assert status == EXIT_USAGE
        assert err == [
            f"kafkalite: could not load {topics[0]}: {said}",
            f"kafkalite: 1 of 2 topics were not loaded completely: {topics[0]}",
        ]
        told = json.loads(out)["by_topic"]
        assert [(told[topic]["status"], told[topic]["records"], told[topic]["error"]) for topic in topics] == [
            ("failed", 0, said),
            ("loaded", 4, ""),
        ]
        letters = f"dlq.kafkalite-load.{topics[0]}"
        status, out, err = command(*options, "--dead-letters", letters)
        assert (status, err) == (0, [])
        assert [row.split()[1:] for row in out.splitlines()[1:3]] == [
            ["4", "1", "0", "loaded"],
            ["0", "0", "0", "loaded"],
        ]
    assert [row[1] for row in rows_of(tmp_path / "loaded", topics[0], "decoded")] == [{"id": n} for n in range(4)]
    assert [row[1] for row in rows_of(tmp_path / "loaded", topics[1], "decoded")] == [{"number": n} for n in range(4)]
    assert [message.value for message in letters_of(client, letters)] == [b"garbage"]


def test_a_topic_that_fails_does_not_stop_the_others(command, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    topics = [f"{kafka_topic}-{name}" for name in ("a", "b", "c")]
    for topic in topics:
        client.admin.create_topic(topic)
        client.produce(topic, 0, [b"x"] * 5)
    pattern = f"{kafka_topic}-.*"
    status, out, err = command("--topics", pattern)
    assert (status, err) == (0, [])
    for topic in topics:
        client.produce(topic, 0, [b"x"] * 5)
    client.admin.delete_records({TopicPartition(topics[1], 0): 7})
    status, out, err = command("--topics", pattern, "-t", f"{kafka_topic}-none")
    said = f"offsets 5 to 7 of {topics[1]}-0 have aged out"
    assert status == EXIT_USAGE
    assert [line for line in err if said in line and line.startswith(f"kafkalite: could not load {topics[1]}: ")]
    assert err[-1] == f"kafkalite: 2 of 4 topics were not loaded completely: {topics[1]}, {kafka_topic}-none"
    assert [row.split()[1:] for row in out.splitlines()[1:5]] == [
        ["5", "0", "0", "loaded"],
        ["0", "0", "-", "failed"],
        ["5", "0", "0", "loaded"],
        ["0", "0", "-", "failed"],
    ]
    assert load.positions(tmp_path / "loaded") == {
        TopicPartition(topic, 0): 5 if topic == topics[1] else 10 for topic in topics
    }
    assert command("--topics", pattern, "--on-data-loss", "skip")[0] == 0
    assert load.positions(tmp_path / "loaded")[TopicPartition(topics[1], 0)] == 10


def test_a_registry_that_is_not_there_is_one_sentence(command, client: Client, kafka_topic: str) -> None:
    client.produce(kafka_topic, 0, [b"x"])
    status, out, err = command("-t", kafka_topic, "--avro", "http://127.0.0.1:9")
    assert (status, out, len(err)) == (EXIT_USAGE, "", 1)
    assert "127.0.0.1:9" in err[0]


def test_a_schema_that_spark_refuses_is_one_sentence_before_there_is_a_record(command, kafka_topic: str) -> None:
    status, out, err = command("-t", kafka_topic, "--engine", "spark", "--json-schema", "id NOTHING AT ALL")
    assert (status, out, len(err)) == (EXIT_USAGE, "", 1)
    assert "Traceback" not in err[0]
    assert "at org." not in err[0]


def test_letters_of_a_stream(spark, kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    client.produce(kafka_topic, 0, [b'{"id": 1}', b"bad", b'{"id": 2}', b"worse"])
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers}
    frame = (
        spark.readStream.format("kafkalite")
        .options(**options, subscribe=kafka_topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        .load()
    )
    topic = LetterTopic(f"{kafka_topic}-bad", "my-stream")
    for _ in range(2):
        query = load.stream_to(
            decode_json(frame, "id INT", mode="dlq"),
            tmp_path / "loaded",
            available_now=True,
            dead_letters=topic,
            options=options,
        )
        assert query.awaitTermination(300)
    assert rows_of(tmp_path / "loaded", kafka_topic, "decoded") == [(0, {"id": 1}), (2, {"id": 2})]
    there = letters_of(client, topic.name)
    assert [(message.value, message.key) for message in there] == [(b"bad", None), (b"worse", None)]
    assert {found.letter.group for found in (found_letter(message.headers) for message in there) if found} == {
        "my-stream"
    }
    assert load.positions(tmp_path / "loaded") == {TopicPartition(kafka_topic, 0): 4}
    with pytest.raises(ValueError, match="needs a transform that marks bad rows"):
        load.load(
            spark,
            tmp_path / "other",
            bootstrap_servers=kafka_broker.bootstrap_servers,
            topics=[kafka_topic],
            dead_letters="x",
        )
