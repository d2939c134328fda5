"""`value.format`: values arrive as columns, in batch queries and streams, and wrong ones as their mode says."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.spark.sentences import sentence_of

pytestmark = [pytest.mark.spark, pytest.mark.integration]

COUNT = 3000
SCHEMA = (
    "user STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<city STRING>, more MAP<STRING, INT>"
)
OLD = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
NEW = (
    '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"user","type":"string","default":"?"},'
    '{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"},"default":0}]}'
)


def reader(spark, broker: Broker, topic: str, **options: object):
    return given(spark.read, broker, topic, **options)


def given(reading, broker: Broker, topic: str, **options: object):
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return reading.format("kafkalite").options(**base | named)


@pytest.fixture
def orders(kafka_broker: Broker, kafka_topic: str) -> str:
    """Orders in JSON in two partitions, with a tombstone and a bad value."""
    values: list[bytes | None] = [
        json.dumps({"user": f"u{n % 5}", "amount": n, "place": {"city": "c"}, "rest": [1]}).encode()
        for n in range(COUNT)
    ]
    values[10], values[20] = None, b'{"user": 1,'
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.add_partitions(kafka_topic, 2)
        client.produce(kafka_topic, 0, values, batch_size=1000)
        client.produce(kafka_topic, 1, [b'{"user":"u9","amount":0.5,"at":"2026-01-02T03:04:05Z","tags":["a",null]}'])
    return kafka_topic


def test_json_fields_are_columns(spark, kafka_broker: Broker, orders: str) -> None:
    frame = reader(spark, kafka_broker, orders, value_format="json", value_schema=SCHEMA).load()
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "value_error",
    ]  # fmt: skip
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<user:string,amount:double,at:timestamp,tags:array<string>,place:struct<city:string>,"
        "more:map<string,int>>"
    )
    sums = {
        row.user: row.total
        for row in frame.groupBy("value.user").agg({"value.amount": "sum"}).toDF("user", "total").collect()
    }
    good = [n for n in range(COUNT) if n not in (10, 20)]
    assert sums == {
        None: None, "u9": 0.5, **{f"u{user}": sum(n for n in good if n % 5 == user) for user in range(5)},
    }  # fmt: skip
    bad = frame.where("value_error IS NOT NULL").select("offset", "value", "value_error").collect()
    assert [tuple(row) for row in bad] == [(20, None, f"the value is not JSON of the schema {SCHEMA}")]
    (last,) = frame.where("partition = 1").selectExpr("unix_timestamp(value.at) AS at", "value.tags").collect()
    assert (last["at"], last["tags"]) == (1767323045, ["a", None])


def test_a_declared_schema_selects_fields(spark, kafka_broker: Broker, orders: str) -> None:
    frame = reader(spark, kafka_broker, orders, value_format="JSON").schema(
        "offset BIGINT, value STRUCT<amount DOUBLE>"
    )
    rows = frame.load().where("value IS NOT NULL AND offset > 8").orderBy("offset").limit(3).collect()
    assert [(row["offset"], row["value"]["amount"]) for row in rows] == [(9, 9.0), (11, 11.0), (12, 12.0)]
    errors = reader(spark, kafka_broker, orders, value_format="json", value_schema=SCHEMA)
    assert errors.schema("value_error STRING").load().where("value_error IS NOT NULL").count() == 1
    offsets = reader(spark, kafka_broker, orders, value_format="json", value_mode="failfast")
    assert offsets.schema("offset BIGINT").load().count() == COUNT + 1  # nothing is decoded


def test_failfast_names_the_record(spark, kafka_broker: Broker, orders: str) -> None:
    frame = reader(spark, kafka_broker, orders, value_format="json", value_schema=SCHEMA, value_mode="failfast").load()
    with pytest.raises(Exception, match="cannot be decoded") as caught:
        frame.write.format("noop").mode("overwrite").save()
    assert sentence_of(caught.value) == (
        f"offset 20 of {orders}-0 cannot be decoded: the value is not JSON of the schema {SCHEMA}"
    )


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"value_format": "json"}, None, "value.format json needs option value.schema"),
        ({"value_schema": "id BIGINT"}, None, "option value.schema needs value.format"),
        ({"value_format": "json", "value_schema": "id DECIMAL"}, None, "does not decode DECIMAL"),
        ({"value_format": "json"}, "value STRING", "needs a STRUCT as column value"),
        ({"value_format": "json"}, "value STRUCT<id INT NOT NULL>", "the fields of column value cannot be NOT NULL"),
        ({"value_format": "json"}, "user STRING", "unknown column 'user' in the schema; choose from .*value_error"),
        ({}, "value STRUCT<id INT>", "not struct<id:int>; set option value.format"),
        ({}, "value_error STRING", "unknown column 'value_error'"),
        ({"value_format": "avro"}, None, "needs option value.registry"),
    ],
)
def test_wrong_options(
    spark, kafka_broker: Broker, orders: str, options: dict, schema: str | None, message: str
) -> None:
    reading = reader(spark, kafka_broker, orders, **options)
    with pytest.raises(Exception, match=message):
        (reading if schema is None else reading.schema(schema)).load().count()


@pytest.fixture
def registry(kafka_broker: Broker, kafka_topic: str):
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=f"schemas-{kafka_topic}"[:249]) as server:
        yield server


@pytest.fixture
def avro_topic(kafka_broker: Broker, kafka_topic: str, registry) -> str:
    """Records by two writers' schemas, and a bad one."""
    subject = f"{kafka_topic}-value"
    with RegistryClient(registry.url) as client:
        old = AvroEncoder(client, subject, OLD)
        first = old.encode(pa.array([{"id": n} for n in range(COUNT)], old.arrow_type)).to_pylist()
        new = AvroEncoder(client, subject, NEW)
        rows = [{"id": n, "user": f"u{n % 3}", "at": 1_700_000_000_000} for n in range(COUNT, 2 * COUNT)]
        second = new.encode(pa.array(rows, new.arrow_type)).to_pylist()
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(kafka_topic, 0, [*first, b"bad", *second])
    return kafka_topic


def test_avro_fields_are_columns(spark, kafka_broker: Broker, registry, avro_topic: str) -> None:
    frame = reader(spark, kafka_broker, avro_topic, value_format="avro", value_registry=registry.url).load()
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,user:string,at:timestamp>"
    counts = {row["user"]: row["count"] for row in frame.groupBy("value.user").count().collect()}
    assert counts == {"?": COUNT, None: 1, "u0": COUNT // 3, "u1": COUNT // 3, "u2": COUNT // 3}
    (bad,) = frame.where("value_error IS NOT NULL").select("offset", "value_error").collect()
    assert tuple(bad) == (COUNT, "the message does not begin with 0x00 and a schema id")
    assert frame.where("value.id != IF(offset < 3000, offset, offset - 1)").count() == 0
    some = reader(spark, kafka_broker, avro_topic, value_format="avro", value_registry=registry.url)
    assert some.schema("value STRUCT<user STRING>").load().where("value.user = 'u1'").count() == COUNT // 3
    with pytest.raises(Exception, match="but the Avro schema has struct"):
        some.schema("value STRUCT<user BIGINT>").load().count()


def test_an_unknown_subject_is_an_error(spark, kafka_broker: Broker, registry, kafka_topic: str) -> None:
    with pytest.raises(Exception, match="not found"):
        reader(spark, kafka_broker, kafka_topic, value_format="avro", value_registry=registry.url).load()


def test_a_stream_decodes_and_keeps_its_schema(
    spark, kafka_broker: Broker, registry, avro_topic: str, tmp_path: Path
) -> None:
    options = {"value_format": "avro", "value_registry": registry.url, "startingOffsets": "earliest"}
    frame = given(spark.readStream, kafka_broker, avro_topic, **options, maxOffsetsPerTrigger=2000).load()
    wider = NEW.replace("]}", ',{"name":"later","type":"int","default":0}]}')
    with RegistryClient(registry.url) as client:
        client.register(f"{avro_topic}-value", wider)  # after `load`, which fixes the columns
    query = (
        frame.select("offset", "value.*", "value_error")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "files"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    found = spark.read.parquet(str(tmp_path / "files"))
    assert found.columns == ["offset", "id", "user", "at", "value_error"]
    assert (found.count(), found.where("id IS NULL").count(), found.where("user LIKE 'u%'").count()) == (
        2 * COUNT + 1, 1, COUNT,
    )  # fmt: skip
