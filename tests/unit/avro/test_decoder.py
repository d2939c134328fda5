"""Messages to columns, against fastavro: schemas of all kinds, several writers in a batch, garbage of all kinds."""

import datetime as dt
import decimal
import io
import json
import struct

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro import AvroDecoder, DecodeError, RegistryRefused
from kafkalite.avro import decoder as decoder_module
from kafkalite.avro.layout import UnsupportedSchema
from kafkalite.wire.record.columns import BytesColumn
from tests.kit.harness.avro_schemas import changed, record_schemas, same, schemas, values
from tests.kit.processes.schema_registry import FixedRegistry


def body(schema, value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def message(schema_id: int, raw: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + raw


def plain(value, schema):
    """A row of ours as fastavro has it: a union's struct is the member that is there."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if value is None:
            return None
        if len(others) == 1:
            return plain(value, others[0])
        (number,) = [number for number in range(len(others)) if value[f"member{number}"] is not None] or [None]
        return None if number is None else plain(value[f"member{number}"], others[number])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {field["name"]: plain(value[field["name"]], field["type"]) for field in schema["fields"]}
    if kind == "array":
        return [plain(item, schema["items"]) for item in value]
    if kind == "map":
        return {key: plain(item, schema["values"]) for key, item in value}
    return value


def decoder(writers: dict[int, object], reader: object, mode: str = "failfast") -> AvroDecoder:
    registry = FixedRegistry({number: json.dumps(writer) for number, writer in writers.items()})
    return AvroDecoder(registry, json.dumps(reader), mode=mode)


# A column of Arrow's holds a null in a union apart from other values, so an array of nothing but nulls in a union of
# several is the one thing that reads differently; `plain` says None for both.
@settings(max_examples=50)
@given(st.data())
def test_what_was_written_is_read_as_fastavro_reads_it(data) -> None:
    schema = data.draw(schemas)
    rows = data.draw(st.lists(values(schema), max_size=4))
    raw = [body(schema, row) for row in rows]
    expected = [fastavro.schemaless_reader(io.BytesIO(one), fastavro.parse_schema(schema), None) for one in raw]
    decoded = decoder({7: schema}, schema).decode(pa.array([message(7, one) for one in raw], pa.binary()))
    decoded.values.validate(full=True)
    found = [plain(row, schema) for row in decoded.values.to_pylist()]
    assert len(found) == len(expected)
    assert all(map(same, found, expected)), (found, expected)


@settings(max_examples=50)
@given(st.data())
def test_other_writers_are_resolved_as_fastavro_resolves_them(data) -> None:
    reader = data.draw(record_schemas)
    writers = {number: data.draw(changed(reader)) for number in (1, 2)}
    rows = [
        (number, data.draw(values(writers[number])))
        for number in data.draw(st.lists(st.sampled_from([1, 2]), max_size=4))
    ]
    raw = [body(writers[number], value) for number, value in rows]
    batch = pa.array([message(number, one) for (number, _), one in zip(rows, raw, strict=True)], pa.binary())
    decoded = decoder(writers, reader, "permissive").decode(batch)
    decoded.values.validate(full=True)
    failed = set(decoded.failed.tolist())
    for row, ((number, _), one) in enumerate(zip(rows, raw, strict=True)):
        try:
            expected = fastavro.schemaless_reader(
                io.BytesIO(one), fastavro.parse_schema(writers[number]), fastavro.parse_schema(reader)
            )
        except Exception:  # noqa: BLE001, S112  # whatever fastavro cannot resolve; the checker's own test says what it must
            continue
        assert row not in failed, decoded.reasons
        assert same(plain(decoded.values[row].as_py(), reader), expected)


@settings(max_examples=50)
@given(st.data())
def test_garbage_fails_or_is_a_value_and_spoils_no_other_row(data) -> None:
    schema = data.draw(record_schemas)
    good = data.draw(values(schema))
    raw = body(schema, good)
    rows = [message(1, raw)]
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.integers(0, 3))
        if kind == 0:
            rows.append(message(1, raw[: data.draw(st.integers(0, max(0, len(raw) - 1)))]))
        elif kind == 1:
            rows.append(message(1, data.draw(st.binary(max_size=40))))
        elif kind == 2:
            rows.append(data.draw(st.binary(max_size=10)))
        else:
            flipped = bytearray(message(1, raw))
            flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            rows.append(bytes(flipped))
    rows.append(message(1, raw))
    decoded = decoder({1: schema}, schema, "permissive").decode(pa.array(rows, pa.binary()))
    decoded.values.validate(full=True)
    expected = fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(schema), None)
    for row in (0, len(rows) - 1):
        assert same(plain(decoded.values[row].as_py(), schema), expected)
    assert len(decoded.values) == len(rows)
    for row in decoded.failed.tolist():
        assert decoded.values[row].as_py() is None


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
OLD_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}


def test_a_new_writer_needs_no_restart_and_is_requested_once() -> None:
    registry = FixedRegistry({1: json.dumps(ORDER)})
    reading = AvroDecoder(registry, json.dumps(ORDER))
    assert reading.decode(pa.array([message(1, body(ORDER, {"id": 1, "note": "n"}))])).values.to_pylist() == [
        {"id": 1, "note": "n"}
    ]
    registry.register("s", json.dumps(OLD_ORDER))
    batch = [message(2, body(OLD_ORDER, {"id": 5, "gone": "x"})), message(1, body(ORDER, {"id": 2, "note": None}))]
    for _ in range(2):
        decoded = reading.decode(pa.array(batch * 3))
        assert decoded.values.to_pylist() == [{"id": 5, "note": None}, {"id": 2, "note": None}] * 3
        assert decoded.schema_ids.tolist() == [2, 1] * 3
    assert registry.asked == [1, 2]


def test_a_full_cache_of_programs_changes_no_row_of_a_batch(monkeypatch) -> None:
    monkeypatch.setattr(decoder_module, "PROGRAM_COUNT_MAX", 2)
    registry = FixedRegistry({number: json.dumps({**ORDER, "doc": f"{number}"}) for number in range(1, 6)})
    reading = AvroDecoder(registry, json.dumps(ORDER))
    for first in (1, 3, 2):
        numbers = [*range(first, 6), *range(1, first)]
        rows = [{"id": number, "note": f"of {number}"} for number in numbers]
        batch = [message(number, body(ORDER, row)) for number, row in zip(numbers, rows, strict=True)]
        assert reading.decode(pa.array(batch)).values.to_pylist() == rows
    assert registry.asked == [1, 2, 3, 4, 5] * 3, "each batch began with a full cache"


BAD = [
    pytest.param(b"", "does not begin", id="nothing"),
    pytest.param(b"\0\0\0\0", "does not begin", id="too short for a header"),
    pytest.param(b"\1" + message(1, b"\2\0")[1:], "does not begin", id="another first byte"),
    pytest.param(message(9, b"\2\0"), "no schema with this id", id="unknown id"),
    pytest.param(message(1, b""), "is truncated", id="no body"),
    pytest.param(message(1, b"\2"), "is truncated", id="half a body"),
    pytest.param(message(1, b"\2\0!"), "bytes after the record", id="more than a body"),
    pytest.param(message(1, b"\2\4"), "no such branch", id="a branch that is not there"),
    pytest.param(message(1, b"\2\1"), "no such branch", id="a negative branch"),
    pytest.param(message(1, b"\2\2\5"), "negative", id="a negative length"),
    pytest.param(message(1, b"\2\2\xfe\xff\xff\xff\x0f"), "is truncated", id="a length of 2 GiB"),
    pytest.param(message(1, b"\2\2\4\xc3\x28"), "not UTF-8", id="no UTF-8"),
    pytest.param(message(1, b"\xff" * 11), "too many bytes", id="a number without end"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_message_is_named_with_its_reason(bad: bytes, reason: str) -> None:
    good = message(1, body(ORDER, {"id": 1, "note": "n"}))
    decoded = decoder({1: ORDER}, ORDER, "dlq").decode(pa.array([good, bad, good]))
    assert decoded.failed.tolist() == [1]
    assert reason in decoded.reasons[0]
    assert decoded.values.to_pylist() == [{"id": 1, "note": "n"}, None, {"id": 1, "note": "n"}]
    assert [text is not None for text in decoded.errors().to_pylist()] == [False, True, False]
    with pytest.raises(DecodeError, match=f"row 1.*{reason}"):
        decoder({1: ORDER}, ORDER).decode(pa.array([good, bad, good]))


def test_a_message_without_value_is_null_and_no_error() -> None:
    decoded = decoder({1: ORDER}, ORDER).decode(pa.array([None, message(1, body(ORDER, {"id": 1, "note": None}))]))
    assert decoded.values.to_pylist() == [None, {"id": 1, "note": None}]
    assert decoded.failed.tolist() == []


def test_every_kind_of_binary_column_is_taken() -> None:
    rows = [message(1, body(ORDER, {"id": number, "note": None})) for number in range(4)]
    whole = pa.array(rows, pa.binary())
    for column in (
        whole,
        whole.cast(pa.large_binary()),
        pa.chunked_array([whole[:1], whole[1:]]),
        BytesColumn.from_items(rows),
        pa.array([b"before", *rows, b"behind"]).slice(1, 4),
    ):
        decoded = decoder({1: ORDER}, ORDER).decode(column)
        assert [row["id"] for row in decoded.values.to_pylist()] == [0, 1, 2, 3]
    assert len(decoder({1: ORDER}, ORDER).decode(pa.array([], pa.binary())).values) == 0
    with pytest.raises(TypeError, match="int64; expected binary"):
        decoder({1: ORDER}, ORDER).decode(pa.array([1]))


LOGICAL = {
    "type": "record",
    "name": "L",
    "fields": [
        {"name": name, "type": {"type": kind, "logicalType": logical}}
        for name, kind, logical in [
            ("day", "int", "date"),
            ("ms", "long", "timestamp-millis"),
            ("us", "long", "timestamp-micros"),
            ("local", "long", "local-timestamp-micros"),
            ("time", "int", "time-millis"),
            ("utime", "long", "time-micros"),
        ]
    ]
    + [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {
            "name": "fixed",
            "type": {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0},
        },
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "strange", "type": {"type": "string", "logicalType": "date"}},
    ],
}


def test_logical_types_are_arrow_s() -> None:
    moment = dt.datetime(2026, 11, 21, 10, 30, 5, 123000, dt.UTC)
    row = {
        "day": dt.date(1969, 7, 20),
        "ms": moment,
        "us": moment,
        "local": moment.replace(tzinfo=None),
        "time": dt.time(1, 2, 3, 4000),
        "utime": dt.time(1, 2, 3, 4),
        "price": decimal.Decimal("-1234567.89"),
        "fixed": decimal.Decimal(-(10**38) + 1),
        "uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "strange": "text",
    }
    decoded = decoder({1: LOGICAL}, LOGICAL).decode(pa.array([message(1, body(LOGICAL, row))]))
    assert decoded.values.to_pylist() == [row]
    assert decoded.values.type.field("us").type == pa.timestamp("us", "UTC")


def test_a_decimal_with_too_many_digits_is_bad() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    rows = [b"\2\x63", b"\2\x64", b"\2\x9c", b"\2\x9d", b"\0", b"\x22" + b"\0" * 16 + b"\5", b"\x22" + b"\1" * 17]
    decoded = decoder({1: schema}, schema, "permissive").decode(pa.array([message(1, raw) for raw in rows]))
    assert [None if v is None else int(v) for v in decoded.values.to_pylist()] == [99, None, None, -99, 0, 5, None]


def test_items_without_bytes_are_counted() -> None:
    schema = {"type": "array", "items": "null"}
    bombs = [b"\xfe\xff\xff\xff\xff\x0f\0", b"\x80\x80\x80\x10\0", b"\x01\x00\0"]
    decoded = decoder({1: schema}, schema, "permissive").decode(pa.array([message(1, raw) for raw in bombs]))
    assert decoded.failed.tolist()[:2] == [0, 1]
    assert "more items than bytes" in decoded.reasons[0]


def test_a_writer_that_holds_itself_is_stepped_over_to_a_depth() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    writer = {"type": "record", "name": "R", "fields": [{"name": "t", "type": tree}, {"name": "a", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    reading = decoder({1: writer}, reader, "permissive")
    decoded = reading.decode(pa.array([message(1, b"\2" * 5 + b"\0" + b"\6"), message(1, b"\2" * 5000)]))
    assert decoded.values.to_pylist() == [{"a": 3}, None]
    assert "nested too deeply" in decoded.reasons[0]
    with pytest.raises(UnsupportedSchema, match="T is recursive"):
        decoder({1: writer}, writer)


def test_a_branch_that_cannot_be_resolved_fails_only_where_it_comes() -> None:
    writer, reader = ["int", "string"], ["null", "int"]
    decoded = decoder({1: writer}, reader, "permissive").decode(pa.array([message(1, b"\0\6"), message(1, b"\2\2a")]))
    assert decoded.values.to_pylist() == [3, None]
    assert "no place for this type" in decoded.reasons[0]


def test_modes_are_three() -> None:
    with pytest.raises(ValueError, match="failfast, permissive, dlq"):
        decoder({}, "int", "lenient")


@pytest.mark.parametrize(("status", "reason"), [(401, 401), (404, 404), (429, -1), (500, 50001)])
def test_what_a_registry_refuses_us_is_no_fault_of_a_message(status: int, reason: int) -> None:
    class Refusing(FixedRegistry):
        def schema(self, schema_id: int):
            raise RegistryRefused(status, reason, "not you")

    reading = AvroDecoder(Refusing({1: '"int"'}), '"int"', mode="dlq")
    with pytest.raises(RegistryRefused, match="not you"):
        reading.decode(pa.array([message(1, b"\2")]))
