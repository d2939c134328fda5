"""Avro columns of DataFrames: several writers in a batch, bad messages aside, and the way back."""

import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.spark.avro import dead_letters, decode_avro, encode_avro

pytestmark = [pytest.mark.spark, pytest.mark.integration]

OLD = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"gone","type":"string"}]}'
NEW = (
    '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},'
    '{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"},"default":0},'
    '{"name":"raw","type":{"type":"fixed","name":"F","size":2},"default":"ab"},'
    '{"name":"tags","type":{"type":"array","items":"string"},"default":[]}]}'
)
COUNT = 2000


@pytest.fixture
def registry(kafka_broker, kafka_topic: str):
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=f"schemas-{kafka_topic}"[:249]) as server:
        yield server


def rows_of(url: str) -> list[tuple[object, ...]]:
    """key, value, topic, partition, offset, headers: old and new writers in turns, one in a hundred bad."""
    import pyarrow as pa

    numbers = range(COUNT)
    with RegistryClient(url) as client:
        old = AvroEncoder(client, "r", OLD).encode(
            pa.RecordBatch.from_pylist([{"id": n, "gone": "x"} for n in numbers])
        )
        new = AvroEncoder(client, "r", NEW)
        fresh = [{"id": n, "at": None, "raw": b"cd", "tags": [str(n)]} for n in numbers]
        columns = pa.array([{**row, "at": 1_700_000_000_000} for row in fresh], new.arrow_type)
        values = [
            pair[n % 2] for n, pair in enumerate(zip(old.to_pylist(), new.encode(columns).to_pylist(), strict=True))
        ]
    values = [b"garbage" if n % 100 == 7 else value for n, value in enumerate(values)]
    return [(b"k%d" % n, bytearray(value), "t", 0, n, [("h", b"%d" % n)]) for n, value in enumerate(values)]


SOURCE = (
    "key binary, value binary, topic string, partition int, offset long, headers array<struct<key:string,value:binary>>"
)


def test_several_writers_in_a_batch_and_bad_messages_aside(spark, registry) -> None:
    frame = spark.createDataFrame(rows_of(registry.url), SOURCE)
    decoded = decode_avro(frame, registry.url, subject="r", mode="dlq").cache()
    good = decoded.where("avro_error is null").select("offset", "schema_id", "decoded.*").orderBy("offset").collect()
    assert [row.offset for row in good] == [n for n in range(COUNT) if n % 100 != 7]
    assert all(row.id == row.offset and row.schema_id == row.offset % 2 + 1 for row in good)
    assert [(bytes(row.raw), row.tags) for row in good[:2]] == [(b"ab", []), (b"cd", ["1"])]
    assert good[1]["at"].timestamp() == 1_700_000_000
    letters = dead_letters(decoded, "dlq").collect()
    assert len(letters) == COUNT // 100
    for row in letters:
        headers = [(header.key, bytes(header.value)) for header in row.headers]
        number = int(headers[0][1])
        assert (row.topic, bytes(row.key), bytes(row.value)) == ("dlq", b"k%d" % number, b"garbage")
        assert headers == [
            ("h", b"%d" % number),
            ("dlq.topic", b"t"),
            ("dlq.partition", b"0"),
            ("dlq.offset", b"%d" % number),
            ("dlq.error", b"the message does not begin with 0x00 and a schema id"),
        ]
    decoded.unpersist()


def test_fail_fast_and_the_way_back(spark, registry) -> None:
    frame = spark.range(50).selectExpr("id", "timestamp_millis(id) as at", "unhex('6364') as raw", "array('t') as tags")
    messages = encode_avro(frame, registry.url, "r", NEW)
    assert messages.columns == ["id", "at", "raw", "tags", "value"]
    back = decode_avro(messages.select("value"), registry.url, reader_schema=NEW).select("decoded.*")
    assert sorted(back.collect()) == sorted(frame.collect())
    bad = messages.selectExpr("unhex('ff') as value")
    with pytest.raises(Exception, match="row 0: the message does not begin with 0x00"):
        decode_avro(bad, registry.url, reader_schema=NEW).collect()


def test_what_cannot_begin_is_told() -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        decode_avro(None, "http://127.0.0.1:1", subject="s", mode="x")
    with pytest.raises(ValueError, match="either subject or reader_schema"):
        decode_avro(None, "http://127.0.0.1:1")
