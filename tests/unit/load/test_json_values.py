"""JSON values as columns, by pyarrow at once or each by itself: the same either way."""

import datetime as dt

import pyarrow as pa
import pytest

from kafkalite.load.json_values import RUN_COUNT, ColumnsError, JsonValues, OnlySpark, parse_columns
from kafkalite.load.storage import LoadError

COLUMNS = "id BIGINT, name STRING, ratio DOUBLE, sizes ARRAY<INT>, who STRUCT<ok: BOOLEAN>"


def batch_of(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    columns = [pa.array(["t"] * count), pa.array([0] * count, pa.int32()), pa.array(range(5, 5 + count), pa.int64())]
    return pa.record_batch([*columns, pa.array(values, pa.binary())], ["topic", "partition", "offset", "value"])


def decoded(columns: str, *values: bytes | None, mode: str = "permissive") -> list[object]:
    """What each value became: a row, or the reason why it is none."""
    found = JsonValues(columns, mode).decoded(batch_of(list(values)))
    rows = found.select(["decoded", "json_error", "value"]).to_pylist()
    assert [row["value"] for row in rows] == list(values)
    return [row["json_error"] or row["decoded"] for row in rows]


@pytest.mark.parametrize("other", [[], [b"bad"], [None]], ids=["at once", "with a bad one", "with a null"])
def test_values(other: list[bytes | None]) -> None:
    values = [
        b'{"id": 1, "name": "n", "ratio": 2, "sizes": [1, null], "who": {"ok": true, "more": 1}, "rest": {}}',
        b'{"id": null, "who": null}',
        b"{}",
        '{"id": -9223372036854775808, "name": "é\\u00e9\\"", "ratio": -1.5e300}'.encode(),
    ]
    nothing = dict.fromkeys(("id", "name", "ratio", "sizes", "who"))
    assert decoded(COLUMNS, *values, *other)[: len(values)] == [
        {"id": 1, "name": "n", "ratio": 2.0, "sizes": [1, None], "who": {"ok": True}},
        nothing,
        nothing,
        nothing | {"id": -(2**63), "name": 'éé"', "ratio": -1.5e300},
    ]


@pytest.mark.parametrize(
    "values",
    [
        [b'{"id": 1} {"id": 2}', b'{"who": {}', b"{}}"],
        [b'{"id": 1}\n{"id": 2}', b'{"name": "}', b'{"}'],
        [b'{"id": 1}{"id": 2}', b'{"name": "}\n{"}', b"{}{}"],
    ],
)
def test_values_do_not_make_up_for_each_other(values: list[bytes]) -> None:
    found = decoded(COLUMNS, b'{"id": 1}', *values, b'{"id": 2}')
    assert found[1:-1] == [f"the value is not JSON of the schema {COLUMNS}"] * len(values)
    assert [row["id"] for row in (found[0], found[-1])] == [1, 2]


def test_an_object_may_have_several_lines() -> None:
    lines = [b'{\n "id": %d,\r\n "who": {\n"ok": true\n}\n}' % number for number in range(3)]
    rows = decoded(COLUMNS, *lines)
    assert [(row["id"], row["who"]) for row in rows] == [(number, {"ok": True}) for number in range(3)]


def test_many_values_with_bad_ones_and_nulls() -> None:
    values = [b'{"id": %d}' % number for number in range(3 * RUN_COUNT)]
    values[10] = values[-1] = None
    values[RUN_COUNT + 7] = b'{"id": "x"}'
    found = decoded("id BIGINT", *values)
    assert found[RUN_COUNT + 7] == "the value is not JSON of the schema id BIGINT"
    assert [place for place, row in enumerate(found) if row is None] == [10, len(values) - 1]
    rest = [(place, row) for place, row in enumerate(found) if isinstance(row, dict)]
    assert len(rest) == len(values) - 3
    assert all(row == {"id": place} for place, row in rest)


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"null", b"[]", b"3", b'"x"', b"{", b'{"id": 1} {"id": 2}', b'{"id": 1}\n{"id": 2}', b'{"id": "1"}',
        b'{"id": 1.0}', b'{"id": true}', b'{"id": 9223372036854775808}', b'{"sizes": [2147483648]}', b'{"sizes": 1}',
        b'{"who": []}', b'{"ratio": "x"}', b'{"id": 1,}',
    ],
)  # fmt: skip
def test_bad_values(value: bytes) -> None:
    reason = f"the value is not JSON of the schema {COLUMNS}"
    good = b'{"id": 7}'
    alone, beside = decoded(COLUMNS, value), decoded(COLUMNS, good, value, good)
    assert (alone, beside[1]) == ([reason], reason)
    assert [row["id"] for row in (beside[0], beside[2])] == [7, 7]


def test_other_values() -> None:
    assert decoded("id INT", b'{"id": 1}', b"\xff", None) == [{"id": 1}, "the value is not valid UTF-8", None]
    assert decoded("s STRING", b'{"s": {"a": [1, true]}}', b'{"s": 5}') == [{"s": '{"a":[1,true]}'}, {"s": "5"}]
    assert decoded("id INT", b'{\n"id": 1}\n', b' {"id": 2}') == [{"id": 1}, {"id": 2}]
    infinite = [{"x": float("inf")}, {"x": float("-inf")}]
    assert decoded("x DOUBLE", b'{"x": "Infinity"}', b'{"x": -Infinity}') == infinite
    assert decoded("x DOUBLE", b'{"x": Infinity}', b'{"x": -Infinity}') == infinite
    when = dt.datetime(2026, 11, 21, 19, 30, tzinfo=dt.UTC)
    assert decoded("at TIMESTAMP, day DATE, m MAP<STRING, ARRAY<INT>>",
        b'{"at": "2026-11-21T20:30:00+01:00", "day": "2026-11-21", "m": {"a": [1]}}', b'{"at": "2026-11-21 19:30:00"}',
    ) == [
        {"at": when, "day": when.date(), "m": [("a", [1])]}, {"at": when, "day": None, "m": None},
    ]  # fmt: skip
    assert decoded("id INT") == []


def test_a_load_ends_at_the_first_bad_value() -> None:
    with pytest.raises(
        LoadError, match=r"^offset 6 of t-0 cannot be decoded: the value is not JSON of the schema id INT$"
    ):
        decoded("id INT", b'{"id": 1}', b"bad", b"worse", mode="failfast")
    assert JsonValues("id INT", "dlq").aside == {"json_error": "json.JSONDecodeError"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a name is missing"),
        ("id", "a type is missing"),
        ("id INT,", "a name is missing"),
        ("id INT name STRING", "unexpected 'name'"),
        ("a INT, a INT", "'a' occurs twice"),
        ("a ARRAY<INT", "'>' is missing"),
        ("a MAP<STRING>", "',' is missing"),
        ("a INT )", r"unexpected '\)'"),
        ("a BIGNIT", "unknown type 'bignit'; expected one of boolean"),
        ("a INT; b INT", "cannot parse '; b INT'"),
    ],
)
def test_columns_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ColumnsError, match=message):
        parse_columns(text)


@pytest.mark.parametrize("text", ["a DECIMAL(9, 2)", "a ARRAY<BINARY>", "m MAP<INT, INT>"])
def test_columns_that_only_spark_has(text: str) -> None:
    with pytest.raises(OnlySpark):
        parse_columns(text)


def test_columns() -> None:
    text = "`a b` INT NOT NULL COMMENT 'it''s', c: struct<d: string, e: array<map<string, double>>>"
    found = parse_columns(text.replace("it''s", "its"))
    assert [column.name for column in found] == ["a b", "c"]
    assert str(JsonValues(text.replace("it''s", "its"), "dlq").decoded(batch_of([])).schema.field("decoded").type) == (
        "struct<a b: int32, c: struct<d: string, e: list<item: map<string, double>>>>"
    )
