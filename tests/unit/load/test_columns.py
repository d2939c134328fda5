"""One schema for old and new columns, and record batches that get it."""

import pyarrow as pa
import pytest

from kafkalite.load.columns import (
    Column,
    Columns,
    Conflict,
    Listed,
    Mapped,
    Struct,
    arrow_fields,
    fits_by_cast,
    fitted,
    from_json,
    merged,
    of_arrow,
    to_json,
)


def columns(**types: object) -> Columns:
    return tuple(Column(name, kind) for name, kind in types.items())


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int8", "int16", "int16"),
        ("int64", "int32", "int64"),
        ("int64", "float", "double"),
        ("float", "double", "double"),
        ("string", "binary", "binary"),
        ("null", "string", "string"),
        ("decimal128(3, 1)", "decimal128(9, 3)", "decimal128(9, 3)"),
        ("decimal128(9, 1)", "decimal128(9, 3)", "decimal128(11, 3)"),
        (Listed("int32"), Listed("int64"), Listed("int64")),
        (Mapped("int32"), Mapped("double"), Mapped("double")),
        (Struct(columns(a="int32")), Struct(columns(b="bool")), Struct(columns(a="int32", b="bool"))),
    ],
)
def test_types_that_one_type_holds(one: object, other: object, both: object) -> None:
    for pair in ((one, other), (other, one)):
        found, conflicts = merged(columns(x=pair[0]), columns(x=pair[1]))
        assert conflicts == []
        assert {frozenset(f.type.fields) if isinstance(f.type, Struct) else f.type for f in found} == {
            frozenset(both.fields) if isinstance(both, Struct) else both
        }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int64", "string"),
        ("bool", "int32"),
        ("date32", "timestamp[us, tz=UTC]"),
        ("timestamp[us]", "timestamp[us, tz=UTC]"),
        ("decimal128(38, 0)", "decimal128(38, 10)"),
        (Listed("int32"), "int32"),
        (Struct(columns(a="int32")), Mapped("int32")),
    ],
)
def test_types_that_no_type_holds(one: object, other: object) -> None:
    found, (conflict,) = merged(columns(x=one), columns(x=other))
    assert (found, conflict.path) == (columns(x=one), "x")


def test_conflicts_say_where_they_are() -> None:
    table = columns(d=Struct(columns(items=Listed(Struct(columns(a="int32"))), tags=Mapped("bool"))))
    other = columns(d=Struct(columns(items=Listed(Struct(columns(a="bool"))), tags=Mapped("string"))))
    assert merged(table, other)[1] == [
        Conflict("d.items[].a", "int32", "bool"),
        Conflict("d.tags{}", "bool", "string"),
    ]


def test_renames() -> None:
    table = columns(a="int32", b="bool")
    renamed, conflicts = merged(table, (Column("c", "int64", ("a",)), Column("b", "bool")))
    assert (renamed, conflicts) == ((Column("c", "int64", ("a",)), Column("b", "bool")), [])
    assert merged(renamed, table) == (renamed, []), "the old name is the same column"
    again, _ = merged(renamed, (Column("d", "int64", ("c",)),))
    assert again[0] == Column("d", "int64", ("a", "c")), "and so are all older ones"
    _, (conflict,) = merged(renamed, columns(c="int64", a="string"))
    assert str(conflict) == "column a is a column here, but the old name of another column in the table"


def test_json_and_arrow_and_back() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("ms")),
            ("day", pa.date32()),
            ("price", pa.decimal128(9, 2)),
            ("digest", pa.binary(16)),
            ("ratio", pa.float32()),
            ("nothing", pa.null()),
            ("time", pa.time64("us")),
            ("who", pa.struct([("tags", pa.map_(pa.string(), pa.list_(pa.bool_())))])),
        ]
    )
    found = of_arrow(schema, {"who.tags": ["labels"]})
    assert pa.schema(arrow_fields(found)) == schema
    assert from_json(to_json(found)) == found
    assert to_json(found)[-1]["type"]["struct"][0] == {
        "name": "tags", "type": {"map": {"list": "bool"}}, "aliases": ["labels"],
    }  # fmt: skip
    assert from_json(to_json(of_arrow(pa.schema([("s", pa.large_string())]))))[0].type == "string"


@pytest.mark.parametrize("first", [0, 2])
def test_batches_get_the_columns_of_the_table(first: int) -> None:
    rows = [
        {"items": [{"a": 1}, None], "tags": {"k": {"a": 1}}, "old": 1},
        {"items": None, "tags": None, "old": None},
        {"items": [], "tags": {}, "old": 3},
        None,
        {"items": [{"a": 5}], "tags": {"k": None, "l": {"a": 6}}, "old": 5},
    ]
    inner = pa.struct([("a", pa.int32())])
    kind = pa.struct([("items", pa.list_(inner)), ("tags", pa.map_(pa.string(), inner)), ("old", pa.int32())])
    batch = pa.RecordBatch.from_arrays([pa.array(rows, kind)], names=["d"]).slice(first)
    wider = Struct(columns(b="string", a="int64"))
    fields = (Column("new", "double", ("old",)), *columns(tags=Mapped(wider), items=Listed(wider)))
    found = fitted(batch, (Column("x", "string"), Column("d", Struct(fields))))
    found.validate(full=True)
    assert found.schema.names == ["x", "d"]

    def wide(item: dict[str, int] | None) -> dict[str, object] | None:
        return None if item is None else {"b": None, "a": item["a"]}

    wanted = [
        None if row is None else {
            "new": row["old"],
            "tags": None if row["tags"] is None else [(key, wide(item)) for key, item in row["tags"].items()],
            "items": None if row["items"] is None else [wide(item) for item in row["items"]],
        }
        for row in rows
    ]  # fmt: skip
    assert found.column("d").to_pylist() == wanted[first:]


def test_files_that_any_reader_can_cast() -> None:
    table = (Column("a", "int64"), Column("b", "double", ("c",)))
    assert fits_by_cast(columns(a="int32", b="float"), table)
    assert fits_by_cast(columns(b="int32"), table)
    assert not fits_by_cast(columns(b="int64"), table), "large integers"
    assert not fits_by_cast(columns(c="double"), table), "a rename"
