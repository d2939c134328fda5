"""Columns to messages, against fastavro, and there and back; values that do not fit a schema are reported."""

import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro import AvroDecoder, AvroEncoder, EncodeError
from kafkalite.avro.decoder import HEADER_SIZE
from tests.kit.harness.avro_schemas import same, schemas, values
from tests.kit.processes.schema_registry import FixedRegistry
from tests.unit.avro.test_decoder import LOGICAL, ORDER, body, message, plain


def pair(schema) -> tuple[AvroDecoder, AvroEncoder]:
    registry = FixedRegistry({1: json.dumps(schema)})
    return AvroDecoder(registry, json.dumps(schema)), AvroEncoder(registry, "s", json.dumps(schema))


@settings(max_examples=50)
@given(st.data())
def test_what_was_decoded_is_encoded_to_what_fastavro_reads(data) -> None:
    schema = data.draw(schemas)
    raw = [body(schema, row) for row in data.draw(st.lists(values(schema), max_size=4))]
    decoder, encoder = pair(schema)
    column = decoder.decode(pa.array([message(1, one) for one in raw], pa.binary())).values
    again = encoder.encode(column)
    again.validate(full=True)
    assert len(again) == len(raw)
    for one, two in zip(raw, again.to_pylist(), strict=True):
        if two is None:
            assert schema == "null" or fastavro.schemaless_reader(io.BytesIO(one), schema, None) is None
            continue
        first = fastavro.schemaless_reader(io.BytesIO(one), fastavro.parse_schema(schema), None)
        second = fastavro.schemaless_reader(io.BytesIO(two[HEADER_SIZE:]), fastavro.parse_schema(schema), None)
        assert same(first, second)


def test_parts_of_columns_are_encoded_from_where_they_lie() -> None:
    nested = {
        "type": "record",
        "name": "N",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "tags", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "list", "type": {"type": "array", "items": "string"}},
            {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "double"}]}},
            {"name": "either", "type": ["null", "int", "string"]},
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        ],
    }
    rows = [
        {
            "flag": number % 3 == 0,
            "tags": {"a": number, "b": None},
            "list": [str(number)] * (number % 4),
            "inner": {"x": number / 2},
            "either": [None, number, f"t{number}"][number % 3],
            "kind": "AB"[number % 2],
        }
        for number in range(30)
    ]
    decoder, encoder = pair(nested)
    column = decoder.decode(pa.array([message(1, body(nested, row)) for row in rows])).values
    for start, count in ((0, 30), (7, 9), (29, 1), (5, 0)):
        part = column.slice(start, count)
        again = decoder.decode(encoder.encode(part)).values
        assert [plain(row, nested) for row in again.to_pylist()] == rows[start : start + count]


def test_logical_types_go_there_and_back() -> None:
    import datetime as dt
    import decimal

    decoder, encoder = pair(LOGICAL)
    moment = dt.datetime(2026, 11, 21, 10, 30, 5, 123000, dt.UTC)
    row = {
        "day": dt.date(1969, 7, 20),
        "ms": moment,
        "us": moment,
        "local": moment.replace(tzinfo=None),
        "time": dt.time(1, 2, 3, 4000),
        "utime": dt.time(1, 2, 3, 4),
        "price": decimal.Decimal("-1.29"),
        "fixed": decimal.Decimal(-(10**38) + 1),
        "uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "strange": "text",
    }
    messages = encoder.encode(pa.array([row], encoder.arrow_type))
    assert messages.to_pylist() == [message(1, body(LOGICAL, row))]
    assert decoder.decode(messages).values.to_pylist() == [row]


def test_a_row_that_is_null_is_a_tombstone_and_other_types_are_cast() -> None:
    decoder, encoder = pair(ORDER)
    column = pa.array([{"id": 1, "note": "n"}, None], pa.struct([("id", pa.int16()), ("note", pa.large_string())]))
    messages = encoder.encode(column)
    assert messages.to_pylist() == [message(1, body(ORDER, {"id": 1, "note": "n"})), None]
    batch = pa.RecordBatch.from_pylist([{"id": 2, "note": None}])
    assert decoder.decode(encoder.encode(batch)).values.to_pylist() == [{"id": 2, "note": None}]
    assert encoder.encode(pa.chunked_array([column, column])).null_count == 2


@pytest.mark.parametrize(
    ("schema", "column", "reason"),
    [
        ("int", pa.array([1, None]), None),
        ({"type": "array", "items": "int"}, pa.array([[1], [None]], pa.list_(pa.int32())), "a null where"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["A", "B"]), "not a symbol"),
        (["int", "string"], pa.array([{"member0": 1}, {"member0": 1, "member1": "x"}]), "exactly one member"),
        (["int", "string"], pa.array([{"member0": 1, "member1": None}, {}]), "exactly one member"),
        (
            {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 9, "scale": 0},
            pa.array([1, 1000]).cast(pa.decimal128(19, 0)),
            "does not fit its fixed",
        ),
    ],
)
def test_values_that_do_not_fit_are_reported(schema, column, reason: str | None) -> None:
    _, encoder = pair(schema)
    if reason is None:
        assert encoder.encode(column).to_pylist() == [message(1, b"\2"), None]
        return
    with pytest.raises(EncodeError, match=f"row 1: .*{reason}"):
        encoder.encode(column)
