"""Messages as JSON documents, against fastavro: each with its writer's schema, what is bad beside what is good."""

import base64
import datetime as dt
import decimal
import io
import json
import math
import struct

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro import RegistryRefused
from kafkalite.avro.decoder import NO_HEADER
from kafkalite.avro.documents import Documents
from kafkalite.wire.record.columns import BytesColumn
from tests.kit.harness.avro_schemas import schemas, values
from tests.kit.processes.schema_registry import FixedRegistry


def message(schema_id: int, schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", schema_id) + out.getvalue()


def decode(writers: dict[int, object], *messages: bytes | None) -> tuple[list[object], dict[int, str]]:
    """Decode as with pyarrow and as without it; both find the same documents in the same rows."""
    registry = FixedRegistry({number: json.dumps(writer) for number, writer in writers.items()})
    column = BytesColumn.from_items(messages)
    (found, failed), (one_by_one, failed_too) = (
        Documents(registry, columns=columns).decode(column) for columns in (True, False)
    )
    assert json.dumps(one_by_one) == json.dumps(found)
    assert failed_too.keys() == failed.keys()
    return one_by_one, failed_too


def shown(value: object) -> object:
    """What fastavro reads, as a document shows it: leaves as JSON has them."""
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def alike(found: object, expected: object) -> bool:
    """Equal, but that times and decimals may be written in more than one way."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(alike(found[key], item) for key, item in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(expected, decimal.Decimal):
        return decimal.Decimal(str(found)) == expected
    if isinstance(expected, dt.datetime):
        return dt.datetime.fromisoformat(str(found)) == expected
    if isinstance(expected, dt.date):
        return dt.date.fromisoformat(str(found)) == expected
    if isinstance(expected, dt.time):
        return dt.time.fromisoformat(str(found)) == expected
    return bool(found == expected)


@settings(max_examples=100)
@given(st.data())
def test_documents_are_what_fastavro_reads(data) -> None:
    schema = data.draw(schemas)
    rows = data.draw(st.lists(values(schema), max_size=4))
    raw = [message(7, schema, row) for row in rows]
    expected = [fastavro.schemaless_reader(io.BytesIO(one[5:]), fastavro.parse_schema(schema), None) for one in raw]
    found, failed = decode({7: schema}, *raw)
    assert failed == {}
    json.dumps(found, allow_nan=False)
    assert all(alike(one, shown(other)) for one, other in zip(found, expected, strict=True)), (found, expected)


def test_each_message_is_read_with_the_schema_that_wrote_it() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "b", "type": ["null", "string"]}]}
    rows = [message(1, old, {"a": 1}), message(2, new, {"b": "x"}), None, message(1, old, {"a": 2})]
    assert decode({1: old, 2: new}, *rows) == ([{"a": 1}, {"b": "x"}, None, {"a": 2}], {})


def test_bad_values_are_reported_by_row_and_affect_no_other() -> None:
    rows = [b"text", message(1, "int", 5), message(9, "int", 5), message(1, "int", 5) + b"more", b"", None]
    found, failed = decode({1: "int"}, *rows)
    assert found == [None, 5, None, None, None, None]
    assert list(failed) == [0, 2, 3, 4]
    assert "does not begin with 0x00" in failed[0]
    assert "no schema with id 9" in failed[2]
    assert failed[3].startswith("schema 1: ")


def logical(kind: str, name: str, **more: int) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


def test_leaves_in_json() -> None:
    moment = dt.datetime(2026, 11, 21, 18, tzinfo=dt.UTC)
    fields = {
        "bytes": ("bytes", b"\xff\x00", "/wA="),
        "decimal": (logical("bytes", "decimal", precision=6, scale=2), decimal.Decimal("12.50"), "12.50"),
        "nan": ("double", math.nan, "NaN"),
        "infinite": ("float", -math.inf, "-Infinity"),
        "date": (logical("int", "date"), dt.date(2026, 11, 21), "2026-11-21"),
        "time": (logical("int", "time-millis"), dt.time(18, 0, 0, 5000), "18:00:00.005"),
        "stamp": (logical("long", "timestamp-millis"), moment, "2026-11-21T18:00:00.000Z"),
        "local": (logical("long", "local-timestamp-micros"), moment.replace(tzinfo=None), "2026-11-21T18:00:00.000000"),
        "beyond": (logical("long", "timestamp-millis"), 2**60, 2**60),
        "late": (logical("int", "date"), 2**30, 2**30),
        "never": (logical("int", "time-millis"), -5, -5),
        "map": ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, {"a": 1, "b": None}),
        "union": (["null", "int", "string"], "x", "x"),
        "none": (["null", "int", "string"], None, None),
    }
    schema = {
        "type": "record",
        "name": "L",
        "fields": [{"name": name, "type": kind} for name, (kind, _, _) in fields.items()],
    }
    bare = json.loads(json.dumps(schema))
    for field in bare["fields"]:
        if field["name"] in {"beyond", "late", "never"}:
            field["type"].pop("logicalType")  # the numbers as they are stored
    value = {name: value for name, (_, value, _) in fields.items()}
    found, failed = decode({1: schema}, message(1, bare, value))
    assert failed == {}
    assert found == [{name: expected for name, (_, _, expected) in fields.items()}]


def test_a_registry_that_refuses_us_is_not_the_messages_fault() -> None:
    class Refusing(FixedRegistry):
        def schema(self, schema_id: int) -> object:
            raise RegistryRefused(401, 40101, "who are you?")

    with pytest.raises(RegistryRefused, match="who are you"):
        Documents(Refusing({})).decode(BytesColumn.from_items([message(1, "int", 1)]))


def test_a_schema_that_holds_itself_is_read_value_by_value() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "raw", "type": ["null", "bytes", {"type": "map", "values": "double"}]},
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            {"name": "children", "type": {"type": "array", "items": "Tree"}},
        ],
    }
    moment = dt.datetime(2026, 11, 21, 18, tzinfo=dt.UTC)

    def node(number: int, *children: object, raw: object = None) -> dict[str, object]:
        price = decimal.Decimal("-12.50")
        return {"id": number, "at": moment, "price": price, "raw": raw, "kind": "B", "children": list(children)}

    def expected(number: int, *children: object, raw: object = None) -> dict[str, object]:
        at = "2026-11-21T18:00:00.000Z"
        return {"id": number, "at": at, "price": "-12.50", "raw": raw, "kind": "B", "children": list(children)}

    whole = message(1, tree, node(1, node(2, node(3, raw={"x": math.inf})), node(4, raw=b"\1")))
    found, failed = decode({1: tree}, whole, None, whole[:-1], whole + b"x", b"bad")
    assert found[0] == expected(1, expected(2, expected(3, raw={"x": "Infinity"})), expected(4, raw="AQ=="))
    assert found[1:] == [None] * 4
    assert failed == {2: "schema 1: it is truncated", 3: "schema 1: trailing bytes after the record", 4: NO_HEADER}


def test_hostile_bodies_of_a_schema_that_holds_itself_end_in_a_sentence() -> None:
    chain = {"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"]}]}
    nulls = {"type": "record", "name": "N", "fields": [{"name": "n", "type": {"type": "array", "items": "null"}},
                                                      {"name": "next", "type": ["null", "N"]}]}  # fmt: skip
    deep = b"\0\0\0\0\1" + b"\2" * 500 + b"\0"
    wide = b"\0\0\0\0\2" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\0\0"
    overlong = b"\0\0\0\0\1" + b"\xff" * 11
    _, failed = decode({1: chain, 2: nulls}, deep, wide, overlong)
    assert failed == {
        0: "schema 1: it is nested too deeply",
        1: "schema 2: an array or map has more items than bytes",
        2: "schema 1: a number has too many bytes",
    }
