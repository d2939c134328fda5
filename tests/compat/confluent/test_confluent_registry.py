"""confluent-kafka's schema registry client, Avro serializer and deserializer, unmodified, on `kafkalite registry`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kafkalite.avro import AvroDecoder, RegistryClient
from kafkalite.schema_registry.server import RegistryServer

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
NEWER = json.dumps(
    {**json.loads(ORDER), "fields": [*json.loads(ORDER)["fields"], {"name": "n", "type": "int", "default": 1}]}
)
WORSE = json.dumps({**json.loads(ORDER), "fields": [{"name": "id", "type": "string"}]})


@pytest.fixture
def registry(kafka_broker, kafka_topic: str) -> Iterator[RegistryServer]:
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=f"schemas-{kafka_topic}"[:249]) as server:
        yield server


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def code_of(call, *arguments: object, **named: object) -> int:
    with pytest.raises(SchemaRegistryError) as refused:
        call(*arguments, **named)
    return refused.value.error_code


def test_subjects_versions_and_ids(client: SchemaRegistryClient) -> None:
    assert client.register_schema("orders-value", Schema(ORDER, "AVRO")) == 1
    assert client.register_schema("orders-value", Schema(NEWER, "AVRO"), normalize_schemas=True) == 2
    assert client.get_subjects() == ["orders-value"]
    assert client.get_versions("orders-value") == [1, 2]
    latest = client.get_latest_version("orders-value")
    assert (latest.schema_id, latest.version, latest.subject) == (2, 2, "orders-value")
    assert json.loads(client.get_schema(1).schema_str) == json.loads(ORDER)
    assert client.get_version("orders-value", 1).schema_id == 1
    assert client.lookup_schema("orders-value", Schema(ORDER, "AVRO")).version == 1
    assert client.get_schema_types() == ["AVRO"]
    assert client.get_subjects_by_schema_id(1) == ["orders-value"]
    assert [(row.subject, row.version) for row in client.get_schema_versions(2)] == [("orders-value", 2)]
    assert client.get_contexts() == ["."]
    assert client.delete_version("orders-value", 2) == 2
    assert client.delete_version("orders-value", 2, permanent=True) == 2
    assert client.delete_subject("orders-value") == [1]
    assert client.delete_subject("orders-value", permanent=True) == [1]
    assert client.get_subjects(deleted=True) == []


def test_refusals(client: SchemaRegistryClient) -> None:
    client.register_schema("s", Schema(ORDER, "AVRO"))
    assert code_of(client.register_schema, "s", Schema(WORSE, "AVRO")) == 409
    assert code_of(client.register_schema, "s", Schema("{}", "AVRO")) == 42201
    assert code_of(client.register_schema, "s", Schema('{"type":"object"}', "JSON")) == 42201
    assert code_of(client.get_version, "none", 1) == 40401
    assert code_of(client.get_version, "s", 9) == 40402
    assert code_of(client.get_schema, 99) == 40403
    assert code_of(client.get_mode, "s") == 40409
    assert code_of(client.get_config, "s") == 40408


def test_levels_modes_and_compatibility(client: SchemaRegistryClient) -> None:
    client.register_schema("s", Schema(ORDER, "AVRO"))
    assert client.test_compatibility("s", Schema(NEWER, "AVRO"))
    assert not client.test_compatibility("s", Schema(WORSE, "AVRO"))
    assert not client.test_compatibility_all_versions("s", Schema(WORSE, "AVRO"))
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("s", "NONE")
    assert client.get_compatibility("s") == "NONE"
    assert client.test_compatibility("s", Schema(WORSE, "AVRO"))
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("s").compatibility_level == ConfigCompatibilityLevel.FULL
    assert client.delete_config("s").compatibility_level == ConfigCompatibilityLevel.FULL
    assert client.get_global_mode() == "READWRITE"
    client.update_mode("s", "READONLY")
    assert client.get_mode("s") == "READONLY"
    assert code_of(client.register_schema, "s", Schema(NEWER, "AVRO")) == 42205
    client.delete_mode("s")
    client.register_schema("s", Schema(NEWER, "AVRO"))


def test_references(client: SchemaRegistryClient) -> None:
    customer = '{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"name","type":"string"}]}'
    basket = '{"type":"record","name":"Basket","namespace":"shop","fields":[{"name":"c","type":"shop.Customer"}]}'
    client.register_schema("customer", Schema(customer, "AVRO"))
    reference = SchemaReference("shop.Customer", "customer", 1)
    assert client.register_schema("basket-value", Schema(basket, "AVRO", [reference])) == 2
    assert client.get_schema(2).references == [reference]
    assert client.get_referenced_by("customer", 1) == [2]
    context = SerializationContext("basket", MessageField.VALUE)
    raw = AvroSerializer(client, Schema(basket, "AVRO", [reference]))({"c": {"name": "Ann"}}, context)
    assert AvroDeserializer(client)(raw, context) == {"c": {"name": "Ann"}}


def test_their_serializer_and_deserializer_and_our_columns(kafka_broker, registry, client, kafka_topic: str) -> None:
    import datetime as dt

    context = SerializationContext(kafka_topic, MessageField.VALUE)
    moment = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
    rows = [{"id": number, "at": moment, "note": None if number % 2 else f"n{number}"} for number in range(10)]
    older, newer = AvroSerializer(client, ORDER), AvroSerializer(client, NEWER)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number, row in enumerate(rows):
        value = older(row, context) if number < 5 else newer({**row, "n": number}, context)
        producer.produce(kafka_topic, value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(kafka_topic, 0, 0)])
    raw = [message.value() for message in consumer.consume(10, 60)]
    consumer.close()
    read = AvroDeserializer(client, NEWER)
    expected = [{**row, "n": 1 if number < 5 else number} for number, row in enumerate(rows)]
    assert [read(value, context) for value in raw] == expected
    with RegistryClient(registry.url) as ours:
        decoded = AvroDecoder.of_subject(ours, f"{kafka_topic}-value").decode(pa.array(raw))
        assert decoded.values.to_pylist() == expected
        assert decoded.schema_ids.tolist() == [1] * 5 + [2] * 5
        assert ours.request_count == 3
