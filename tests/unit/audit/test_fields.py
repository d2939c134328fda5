"""Marks in fields of payloads: JSON and Avro, with a registry's id and without; what only looks like one is none."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.audit.fields import MarkFields, with_field
from kafkalite.audit.marks import HEADER, mark, mark_text
from kafkalite.audit.tally import SentTally
from kafkalite.avro.encoder import AvroEncoder
from kafkalite.avro.schema import Schema, SchemaError, parse
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, Record, RecordColumns

pa = pytest.importorskip("pyarrow")

TEXT = mark_text(7, 5, 1000, b"web1")


def found(fields: MarkFields, values: list[bytes | None], topic: str = "t") -> list[tuple[int, int, int, int, str]]:
    marks = fields.marks(topic, None, BytesColumn.from_items(values))
    return [
        (*row, marks.server(at))
        for at, row in enumerate(
            zip(
                marks.records.tolist(),
                marks.runs.tolist(),
                marks.sequences.tolist(),
                marks.timestamps.tolist(),
                strict=True,
            )
        )
    ]


@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "audit"), st.none() | st.text(max_size=5)))
def test_json_objects_get_the_mark_as_one_more_field(document: dict[str, str | None]) -> None:
    marked = with_field(json.dumps(document, indent=1).encode() + b"\n", "audit", TEXT)
    assert json.loads(marked) == {**document, "audit": TEXT}
    again = with_field(marked, "audit", mark_text(8, 6, 1001, "wéb:2".encode()))
    assert found(MarkFields({None: "audit"}), [marked, again]) == [(0, 7, 5, 1000, "web1"), (1, 8, 6, 1001, "wéb:2")]


@pytest.mark.parametrize("value", [None, b"", b"[1]", b"hello", b'"{}"'])
def test_what_is_no_object_takes_no_mark(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        with_field(value, "audit", TEXT)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b'{"audit": 5}',
        b'{"audit": "1:zz:1:2:s"}',
        b'{"audit": "2:0000000000000007:5:1000:web1"}',
        b'{"audit": "1:0000000000000007:99999999999999999999:1000:web1"}',
        b'{"audit": "1:0000000000000007:5:1000:"}',
        b'["audit"]',
        b'{"audit": "' + TEXT.encode(),
        b'{"inner": {"audit": "' + TEXT.encode() + b'"}}',
        b'{"text": "\\"audit\\": \\"' + TEXT.encode() + b'\\""}',
        b"\x00\x00\x00\x00\x01audit",
        b"[" * 100_000 + b'"audit"',
    ],
)
def test_what_only_looks_like_a_mark_is_none(value: bytes | None) -> None:
    assert found(MarkFields({None: "audit"}), [value]) == []


def test_each_topic_has_its_own_field_and_a_header_goes_before_it() -> None:
    fields = MarkFields({"a": "one", None: "two"})
    value = json.dumps({"one": mark_text(1, 0, 0, b"s"), "two": mark_text(2, 0, 0, b"s")}).encode()
    assert [row[1] for row in found(fields, [value], "a")] == [1]
    assert [row[1] for row in found(fields, [value], "b")] == [2]
    headers = HeaderColumns.from_items([(), ((HEADER, mark(3, 0, 0, b"h")),)])
    marks = fields.marks("b", headers, BytesColumn.from_items([value, value]))
    assert (marks.records.tolist(), marks.runs.tolist(), marks.server(1)) == ([0, 1], [2, 3], "h")


class Registry:
    """Schemas by id, as they were registered."""

    def __init__(self, *texts: str) -> None:
        self.schemas = dict(enumerate(map(parse, texts), 1))

    def schema(self, schema_id: int) -> Schema:
        return self.schemas[schema_id]

    def register(self, _subject: str, text: str, _references: object = ()) -> int:
        return next(number for number, one in self.schemas.items() if one.text == parse(text).text)


def record_schema(kind: object) -> str:
    fields = [{"name": "page", "type": "string"}, {"name": "audit", "type": kind}, {"name": "n", "type": "long"}]
    return json.dumps({"type": "record", "name": "Visit", "namespace": "x", "fields": fields})


@pytest.mark.parametrize("kind", ["string", "bytes", ["null", "string"]])
def test_avro_records_of_a_registry_and_bare_ones(kind: object) -> None:
    text = record_schema(kind)
    registry = Registry(json.dumps({"type": "record", "name": "Other", "fields": []}), text)
    texts = SentTally("web1").mark_texts("t", [1000, 2000, 3000])
    cells = [one.encode() for one in texts] if kind == "bytes" else texts
    batch = pa.record_batch({"page": ["/a", "/b", "/c"], "audit": cells, "n": [1, 2, 3]})
    encoder = AvroEncoder(registry, "t-value", text)  # type: ignore[arg-type]
    framed = [bytes(value) for value in encoder.encode(batch).to_pylist()]
    with_registry = MarkFields({None: "audit"}, registry=registry)  # type: ignore[arg-type]
    bare = MarkFields({None: "audit"}, schemas={"t": parse(text)})
    other = b"\x00\x00\x00\x00\x01"
    wanted = [(0, 1000), (1, 2000), (2, 3000)]
    assert [(row[2], row[3]) for row in found(with_registry, [None, *framed, other, b"\x00\x00"])] == wanted
    assert [(row[2], row[3]) for row in found(bare, [value[5:] for value in framed])] == wanted
    assert [row[0] for row in found(bare, [None, b"\x01", framed[0][5:]])] == [2]


def test_values_whose_schema_is_not_avro_have_no_mark() -> None:
    class OtherTypes(Registry):
        def schema(self, schema_id: int) -> Schema:
            raise SchemaError(f"the schema has type JSON; expected AVRO: {schema_id}")

    fields = MarkFields({None: "audit"}, registry=OtherTypes())  # type: ignore[arg-type]  # all of a registry that it uses
    document = json.dumps({"audit": TEXT}).encode()
    assert [row[0] for row in found(fields, [b"\x00\x00\x00\x00\x07" + document, document])] == [1]


def test_a_tally_counts_what_it_puts_into_values_and_nothing_that_is_refused() -> None:
    tally = SentTally("web1")
    good = RecordColumns.from_records([Record(-1, 60_000 * at, None, b'{"n": 1}') for at in range(3)])
    with pytest.raises(ValueError, match="not a JSON object"):
        tally.mark_values(
            "t", RecordColumns.from_records([Record(-1, 0, None, b"{}"), Record(-1, 0, None, b"x")]), 0, "m"
        )
    marked = tally.mark_values("t", good, 0, "m")
    assert [row[2] for row in found(MarkFields({None: "m"}), list(marked.values))] == [0, 1, 2]
    (increment,) = tally.take()
    assert increment.counts == ((0, 1), (60_000, 1), (120_000, 1))
    assert np.array_equal(marked.timestamps, good.timestamps)
