"""JSON that people write, as Avro values: what `documents` gives comes back, and what does not fit is said."""

import base64
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro import single
from kafkalite.avro.from_documents import Unfit, body
from kafkalite.avro.schema import parse
from tests.kit.harness.avro_schemas import schemas, values


def back(document: object, schema: object) -> object:
    """The document, through its bytes."""
    root = parse(json.dumps(schema)).root
    return single.document(root, body(document, root))


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("int", [0, -(2**31), 2**31 - 1]),
        ("long", [2**63 - 1]),
        ("double", [1.5, "NaN", "-Infinity"]),
        ("float", [0.5]),
        ("boolean", [True, False]),
        ("string", ["", "ü\0"]),
        ("bytes", ["", "AAE="]),
        ({"type": "fixed", "name": "F", "size": 2}, [base64.b64encode(b"xy").decode()]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B"]),
        (["null", "long"], [None, 7]),
        (["string", "null", "long", record(x="double")], [None, "s", 7, {"x": 1.5}]),
        ({"type": "array", "items": ["null", "int"]}, [[], [1, None]]),
        ({"type": "map", "values": "boolean"}, [{}, {"a": True}]),
        (record(a="int", b=["null", record(c="string") | {"name": "S"}]), [{"a": 1, "b": {"c": "x"}}]),
        (logical("bytes", "decimal", precision=6, scale=2), ["12.50", "-0.01", "0.00", "1.28", "-1.28"]),
        (logical("bytes", "decimal", precision=38, scale=2), ["123456789012345678901234567890123456.78"]),
        (logical("fixed", "decimal", precision=4, scale=1) | {"name": "D", "size": 3}, ["-12.5"]),
        (logical("int", "date"), ["2026-11-22", "1969-12-31"]),
        (logical("int", "time-millis"), ["18:00:00.001"]),
        (logical("long", "time-micros"), ["23:59:59.999999"]),
        (logical("long", "timestamp-millis"), ["2026-11-22T18:00:00.123Z", "1969-12-31T23:59:59.999Z"]),
        (logical("long", "local-timestamp-nanos"), ["2026-11-22T18:00:00.123456789"]),
    ],
)
def test_what_documents_gives_comes_back(schema: object, values: list[object]) -> None:
    for value in values:
        assert back(value, schema) == value


def test_times_with_a_zone_or_as_numbers_are_the_same_moment() -> None:
    stamp = logical("long", "timestamp-millis")
    assert back("2026-11-22T20:00:00+02:00", stamp) == "2026-11-22T18:00:00.000Z"
    assert back(0, stamp) == "1970-01-01T00:00:00.000Z"


def test_a_field_left_out_gets_its_default() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "bytes", "default": "\u00ff"},
            {"name": "b", "type": ["null", "int"], "default": None},
            {"name": "c", "type": {"type": "array", "items": "bytes"}, "default": ["\u0001"]},
            {"name": "d", "type": logical("bytes", "decimal", precision=4, scale=2), "default": "\u0001"},
            {"name": "e", "type": {"type": "map", "values": "int"}, "default": {"x": 1}},
            {"name": "f", "type": record(x="bytes") | {"name": "S"}, "default": {"x": "\u0002"}},
        ],
    }
    assert back({}, schema) == {"a": "/w==", "b": None, "c": ["AQ=="], "d": "0.01", "e": {"x": 1}, "f": {"x": "Ag=="}}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("int", 2**31, "does not fit int"),
        ("int", True, "not a whole number"),
        ("int", 1.0, "not a whole number"),
        ("string", None, "must not be null"),
        ("string", 1, "not a string"),
        ("boolean", 1, "not true or false"),
        ("double", "x", "not a number"),
        ("double", 10**400, "too large"),
        ("float", 1e39, "too large for float"),
        ("null", 0, "not null"),
        ("string", "\ud800", "surrogate"),
        ({"type": "map", "values": "int"}, {"\ud800": 1}, "surrogate"),
        ("bytes", "?", "not base64"),
        ({"type": "fixed", "name": "F", "size": 2}, "AA==", "has 1 bytes"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "not one of A"),
        (["string", "int"], [], "matches none of string, int"),
        ({"type": "array", "items": "int"}, {}, "not a list"),
        ({"type": "map", "values": "int"}, {"a": "x"}, r"\$\.a is str"),
        (record(a="int"), {}, "lacks field 'a'"),
        (record(a="int"), {"a": 1, "b": 2}, "has field 'b', which is not in R"),
        (record(a={"type": "array", "items": "int"}), {"a": [1, "x"]}, r"\$\.a\[1\] is str"),
        (logical("bytes", "decimal", precision=4, scale=2), "1.234", "does not fit"),
        (logical("bytes", "decimal", precision=4, scale=2), "100", "does not fit"),
        (logical("bytes", "decimal", precision=4, scale=2), "x", "not a decimal"),
        (logical("bytes", "decimal", precision=4, scale=2), "NaN", "does not fit"),
        (logical("bytes", "decimal", precision=4, scale=2), "1e999999999", "does not fit"),
        (logical("bytes", "decimal", precision=4, scale=2), "1e-999999999", "does not fit"),
        (logical("bytes", "decimal", precision=4, scale=2), "1.5" + "0" * 60 + "1", "does not fit"),
        (logical("int", "date"), "22.11.2026", "not a date"),
        (logical("int", "time-millis"), "25:00:00", "not a time-millis"),
        (logical("long", "timestamp-nanos"), "9999-01-01T00:00:00Z", "does not fit long"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(schema: object, value: object, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        back(value, schema)


@settings(max_examples=100)
@given(st.data())
def test_fastavro_reads_the_document_that_was_encoded(data) -> None:
    schema = data.draw(schemas)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data.draw(values(schema)))
    root = parse(json.dumps(schema)).root
    document = single.document(root, out.getvalue())
    encoded = io.BytesIO(body(document, root))
    fastavro.schemaless_reader(encoded, fastavro.parse_schema(schema), None)
    assert encoded.read() == b""
    assert single.document(root, encoded.getvalue()) == document


def test_a_schema_that_contains_itself_is_encoded_up_to_a_depth() -> None:
    chain = {"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"], "default": None}]}
    assert back({"next": {"next": {}}}, chain) == {"next": {"next": {"next": None}}}
    document: dict[str, object] = {}
    for _ in range(200):
        document = {"next": document}
    with pytest.raises(Unfit, match="levels deep"):
        back(document, chain)
