"""Logical types that differ between writer and reader: converted exactly or refused, never wrong by a factor."""

import datetime as dt
import decimal
import io
import itertools
import json
import logging
import struct
from typing import Any

import fastavro
import pytest

from kafkalite.avro.decoder import AvroDecoder
from kafkalite.avro.logical import differences
from kafkalite.avro.schema import parse
from kafkalite.schema_registry.records import read
from kafkalite.schema_registry.registry import OfferedSchema, Registry
from kafkalite.wire.record.columns import BytesColumn
from tests.kit.harness.named_case import named_case
from tests.kit.processes.schema_registry import FixedRegistry

UNITS = {"millis": 10**6, "micros": 10**3, "nanos": 1}
TYPES: dict[str, tuple[Any, int]] = {
    "date": ({"type": "int", "logicalType": "date"}, 0),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, 10**6),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, 10**3),
    **{
        f"{zone}timestamp-{unit}": ({"type": "long", "logicalType": f"{zone}timestamp-{unit}"}, nanoseconds)
        for zone in ("", "local-")
        for unit, nanoseconds in UNITS.items()
    },
    "long": ("long", 0),
    "int": ("int", 0),
    "decimal(5,2)": ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, 2),
    "decimal(7,2)": ({"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2}, 2),
    "decimal(5,4)": ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 4}, 4),
    "decimal(50,4)": ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 4}, 4),
    "bytes": ("bytes", 0),
}
NUMBER = 1234


def body(schema: Any) -> bytes:
    """Return 1234 in the encoding of any of these schemas."""
    plain = schema["type"] if isinstance(schema, dict) else schema
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain, NUMBER.to_bytes(2, "big") if plain == "bytes" else NUMBER)
    return out.getvalue()


def decoded(writer: Any, reader: Any, raw: bytes, mode: str = "permissive") -> tuple[Any, list[str]]:
    decoder = AvroDecoder(FixedRegistry({1: json.dumps(writer)}), json.dumps(reader), mode=mode)
    found = decoder.decode(BytesColumn.from_items([b"\0" + struct.pack(">I", 1) + raw]))
    return found.values, found.reasons


def family(name: str) -> str:
    return name.removeprefix("local-").partition("(")[0].partition("-")[0]


def expected_factor(writer: str, reader: str) -> int | None:
    """What 1234 is multiplied by; None: it is refused. The rules once more, by name."""
    plain = {"long", "int", "bytes"}
    if writer in plain or reader in plain:
        return 1
    if family(writer) != family(reader):
        return None
    written, wanted = TYPES[writer][1], TYPES[reader][1]
    if family(writer) == "decimal":
        return 1 if written == wanted else None
    if written == wanted:
        return 1
    return written // wanted if written > wanted else None


def stored(values: Any) -> int:
    import pyarrow as pa

    if pa.types.is_decimal(values.type):
        return int(values[0].as_py().scaleb(values.type.scale))
    if pa.types.is_binary(values.type):
        return int.from_bytes(values[0].as_py(), "big")
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())[0].as_py()


def test_every_pair_is_converted_or_refused() -> None:
    for writer, reader in itertools.product(TYPES, TYPES):
        with named_case((writer, reader)):
            assert_converted_or_refused(writer, reader)


def assert_converted_or_refused(writer: str, reader: str) -> None:
    kinds = [made["type"] if isinstance(made, dict) else made for made in (TYPES[writer][0], TYPES[reader][0])]
    values, reasons = decoded(TYPES[writer][0], TYPES[reader][0], body(TYPES[writer][0]))
    factor = expected_factor(writer, reader)
    if kinds[0] != kinds[1] and kinds != ["int", "long"]:
        assert (values.to_pylist(), len(reasons)) == ([None], 1)
    elif factor is None:
        assert (values.null_count, reasons) == (
            1,
            ["its logical type has another unit or scale than the reader's, which is not converted"],
        )
    else:
        assert (stored(values), reasons) == (NUMBER * factor, [])


def test_a_moment_is_the_same_moment_in_a_finer_unit() -> None:
    moment = dt.datetime(2026, 11, 21, 18, 0, 0, 5000, tzinfo=dt.UTC)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, TYPES["timestamp-millis"][0], moment)
    values, reasons = decoded(TYPES["timestamp-millis"][0], TYPES["timestamp-micros"][0], out.getvalue())
    assert (values.to_pylist(), reasons) == ([moment], [])


@pytest.mark.parametrize("number", [2**62, -(2**62)])
def test_a_moment_that_the_finer_unit_cannot_hold_is_refused(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    values, reasons = decoded(TYPES["timestamp-millis"][0], TYPES["timestamp-nanos"][0], out.getvalue())
    assert (values.null_count, reasons) == (1, ["a time does not fit the reader's unit"])


def test_only_the_field_that_differs_fails_its_message() -> None:
    def record(price: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "p", "type": ["null", price]}]}

    writer, reader = record(TYPES["decimal(5,2)"][0]), record(TYPES["decimal(5,4)"][0])
    rows = []
    for value in ({"p": None}, {"p": decimal.Decimal("1.50")}):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(writer), value)
        rows.append(out.getvalue())
    assert decoded(writer, reader, rows[0])[0].to_pylist() == [{"p": None}]
    assert decoded(writer, reader, rows[1])[0].to_pylist() == [None]


def test_changes_of_meaning_are_named_by_their_place() -> None:
    def schema(stamp: str, price: str, more: str = "") -> Any:
        fields = [
            {"name": "at", "type": ["null", TYPES[stamp][0]]},
            {"name": "items", "type": {"type": "array", "items": {
                "type": "record", "name": "Item", "fields": [
                    {"name": "price", "type": TYPES[price][0]}, {"name": "next", "type": ["null", "Item"]}],
            }}},
        ]  # fmt: skip
        return parse(json.dumps({"type": "record", "name": "Order", "fields": fields})).root

    old = schema("timestamp-millis", "decimal(5,2)")
    assert list(differences(schema("timestamp-millis", "decimal(7,2)"), old)) == []
    assert list(differences(schema("timestamp-micros", "decimal(5,4)"), old)) == [
        "at is timestamp-micros, but was timestamp-millis",
        "items[].price is decimal(5, 4), but was decimal(5, 2)",
    ]


class OneState:
    """A store whose state is kept in memory."""

    def __init__(self) -> None:
        from kafkalite.schema_registry.state import RegistryState

        self.state = RegistryState()

    def write(self, decide: Any) -> Any:
        records, found = decide(self.state)
        for record in records:
            self.state.apply(read(record.key, record.value))
        return found


def test_registering_another_unit_warns(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(OneState())  # type: ignore[arg-type]
    for unit in ("millis", "millis", "micros"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            text = json.dumps(TYPES[f"timestamp-{unit}"][0])
            registry.register("t-value", OfferedSchema(text))
    (line,) = caplog.records
    assert "another" not in line.getMessage()
    assert "off by a factor" in line.getMessage()
