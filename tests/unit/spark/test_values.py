"""Values that become columns in a task: which types, which rows, which errors. Without Spark."""

import json
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa
import pytest

from kafkalite.avro import AvroEncoder
from kafkalite.load.selection import OptionError
from kafkalite.model import TopicPartition
from kafkalite.spark.options import SourceOptions, ValueOptions
from kafkalite.spark.source import values as module
from kafkalite.spark.source.values import BadValue, decode_values, decoding_of, schema_of_values, type_of_values

if TYPE_CHECKING:
    from kafkalite.avro.client import RegistryClient

BASE = {"kafka.bootstrap.servers": "one:1", "subscribe": "a"}
KEY = TopicPartition("t", 3)
USER = pa.struct([("user", pa.string()), ("amount", pa.float64())])
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": {"type": "record", "name": "W", "fields": [{"name": "name", "type": "string"}]}},
        {"name": "other", "type": ["null", "W"], "default": None},
    ],
}


def options_of(**given: str) -> ValueOptions | None:
    return SourceOptions.parse({**BASE, **given}).values


def rows(decoding, columns, *values: bytes | None) -> list[dict[str, object]]:
    count = len(values)
    whole = {
        "value": pa.array(values, pa.binary()),
        "offset": pa.array(range(7, 7 + count), pa.int64()),
        "key": pa.array([b"k"] * count, pa.binary()),
    }
    names = list(decoding.sources(columns))
    batch = pa.record_batch([whole[name] for name in names], names)
    (found,) = decode_values([batch], columns, decoding, KEY)
    assert found.schema.names == list(columns)
    return found.to_pylist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value.format": "xml"}, "option value.format must be json or avro, not 'xml'"),
        ({"value.schema": "id BIGINT"}, "option value.schema needs value.format"),
        ({"value.mode": "failfast"}, "option value.mode needs value.format"),
        ({"value.format": "json", "value.mode": "dlq"}, "option value.mode must be permissive or failfast"),
        ({"value.format": "json", "value.registry": "http://r:1"}, "option value.registry is for value.format avro"),
        ({"value.format": "json", "value.subject": "s"}, "option value.subject is for value.format avro"),
        ({"value.format": "avro"}, "needs option value.registry"),
        (
            {"value.format": "avro", "value.registry": "http://r:1", "value.subject": "s", "value.schema": '"int"'},
            "set either value.schema or value.subject",
        ),
        (
            {"value.format": "avro", "value.registry": "http://r:1", "subscribe": "a,b"},
            "needs option value.subject or value.schema unless you read one topic",
        ),
        ({"value.modes": "failfast"}, "did you mean value.mode"),
    ],
)
def test_wrong_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options_of(**given)


def test_the_subject_of_one_topic() -> None:
    given = {"value.format": "avro", "value.registry": "http://r:1"}
    assert options_of(**given) == ValueOptions("avro", registry="http://r:1", subject="a-value")
    assert options_of() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ValueOptions("json"), "needs option value.schema"),
        (ValueOptions("json", "id"), "option value.schema: columns 'id': a type is missing"),
        (ValueOptions("json", "id DECIMAL(9, 2)"), "option value.schema: .* does not decode DECIMAL"),
        (ValueOptions("avro", "{", "http://r:1"), "option value.schema: the schema is not valid JSON"),
        (ValueOptions("avro", None, "r:1", "s"), "option value.registry: 'r:1' is not a schema registry URL"),
    ],
)
def test_wrong_schemas(options: ValueOptions, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        type_of_values(options, schema_of_values(options))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (pa.string(), "needs a STRUCT as column value, not string"),
        (pa.struct([("id", pa.decimal128(9, 2))]), r"does not decode decimal128\(9, 2\)"),
        (pa.struct([("ids", pa.list_(pa.binary()))]), "does not decode binary"),
    ],
)
def test_wrong_declared_types_for_json(declared: pa.DataType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        decoding_of(ValueOptions("json"), declared, None)


def test_json_values_and_bad_ones() -> None:
    decoding = decoding_of(ValueOptions("json"), USER, None)
    found = rows(
        decoding, ("value", "offset", "value_error"), b'{"user": "u", "amount": 2, "x": 1}', None, b'{"user": 1', b"{}"
    )
    reason = "the value is not JSON of the schema user string, amount double"
    assert found == [
        {"value": {"user": "u", "amount": 2.0}, "offset": 7, "value_error": None},
        {"value": None, "offset": 8, "value_error": None},
        {"value": None, "offset": 9, "value_error": reason},
        {"value": {"user": None, "amount": None}, "offset": 10, "value_error": None},
    ]


def test_failfast_names_the_record() -> None:
    decoding = decoding_of(ValueOptions("json", fails=True), USER, "user STRING, amount DOUBLE")
    assert rows(decoding, ("value",), b"{}", None) == [{"value": {"user": None, "amount": None}}, {"value": None}]
    with pytest.raises(BadValue) as caught:
        rows(decoding, ("key", "value"), b"{}", b"no", b"{")
    reason = "the value is not JSON of the schema user STRING, amount DOUBLE"
    assert str(caught.value) == f"offset 8 of t-3 cannot be decoded: {reason}"


class Registry:
    """A registry with one schema, for the decoder and the encoder."""

    def __init__(self, _urls: str = "") -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def schema(self, _schema_id: int) -> object:
        return module.parse(json.dumps(AVRO))

    def register(self, *_: object) -> int:
        return 5


def avro_messages(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr(module, "RegistryClient", Registry)
    encoder = AvroEncoder(cast("RegistryClient", Registry()), "s", json.dumps(AVRO))
    made = [{"id": n, "who": {"name": f"n{n}"}, "other": None if n else {"name": "o"}} for n in range(3)]
    return encoder.encode(pa.array(made, encoder.arrow_type)).to_pylist()


@pytest.mark.parametrize(
    ("names", "kept"),
    [(("id",), ["id"]), (("who", "id"), ["id", "who"]), (("other",), ["id", "who", "other"])],
    ids=["one", "another order", "one whose type a dropped field defines"],
)
def test_some_fields_of_avro(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], kept: list[str]) -> None:
    messages = avro_messages(monkeypatch)
    options = ValueOptions("avro", json.dumps(AVRO), "http://r:1")
    full = type_of_values(options, schema_of_values(options))
    declared = pa.struct([full.field(name) for name in names])
    decoding = decoding_of(options, declared, None)
    assert [field["name"] for field in json.loads(decoding.schema)["fields"]] == kept
    module.decoder_of.cache_clear()
    found = rows(decoding, ("value", "value_error"), *messages, None, b"bad")
    everything = [
        {"id": n, "who": {"name": f"n{n}"}, "other": None if n else {"name": "o"}} for n in range(len(messages))
    ]
    assert [row["value"] for row in found[:3]] == [{name: row[name] for name in names} for row in everything]
    assert [row["value"] for row in found[3:]] == [None, None]
    assert [row["value_error"] for row in found] == [None] * 4 + [
        "the message does not begin with 0x00 and a schema id"
    ]


def test_avro_fields_of_another_type_are_an_error() -> None:
    options = ValueOptions("avro", json.dumps(AVRO), "http://r:1")
    for declared in (pa.struct([("id", pa.int32())]), pa.struct([("more", pa.int64())]), pa.int64()):
        with pytest.raises(OptionError, match="but the Avro schema has struct"):
            decoding_of(options, declared, None)


def test_avro_that_is_no_record() -> None:
    options = ValueOptions("avro", '"string"', "http://r:1")
    assert type_of_values(options, schema_of_values(options)) == pa.string()
    assert decoding_of(options, pa.string(), None).schema == '"string"'
