"""Questions: places, what fits them, and that the bytes which a reader looks for never hide a record that does."""

from __future__ import annotations

import io
import json
import struct
import uuid

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.avro.client import SCHEMA_NOT_FOUND, RegistryRefused
from kafkalite.avro.documents import Documents
from kafkalite.avro.schema import Schema, parse
from kafkalite.track.questions import (
    How,
    Kind,
    Matcher,
    Place,
    Question,
    Questions,
    needles_of,
    parse_places,
    split_names,
    zigzag_varint,
)
from kafkalite.wire.record.batches import BatchReader, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec

UUID = "3f0e8c1a-5a52-4f2e-9d0e-0f6a5f7d1c11"
SCHEMAS = {
    1: {"type": "record", "name": "A", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]},
    2: {"type": "record", "name": "B", "fields": [{"name": "id", "type": ["null", "long"]}]},
    3: {
        "type": "record",
        "name": "C",
        "fields": [
            {"name": "id", "type": {"type": "fixed", "name": "F", "size": 16}},
            {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["a", "ab"]}},
            {"name": "in", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
        ],
    },
}


class Registry:
    """Of three schemas, without a server."""

    def schema(self, schema_id: int) -> Schema:
        if schema_id not in SCHEMAS:
            raise RegistryRefused(404, SCHEMA_NOT_FOUND, "Schema not found")
        return parse(json.dumps(SCHEMAS[schema_id]))


def avro(schema_id: int, value: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMAS[schema_id], value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def places_found(question: Question, record: Record) -> list[str]:
    documents = Documents(Registry())  # type: ignore[arg-type]  # it is used for schemas alone
    columns = RecordColumns.from_records([record])
    return [str(place) for _, _, places in Matcher(question, documents).found(columns) for place in places]


def found(text: str, places: str, record: Record, how: How = How.IS) -> bool:
    return bool(places_found(Question(text, parse_places(places), how), record))


def test_places_are_read_and_written() -> None:
    text = "header:correlation-id,key,value,json:$.a['b,c'].d[*],avro:order.id"
    places = parse_places(text)
    assert ",".join(map(str, places)) == text
    assert places[3] == Place(Kind.JSON, "$.a['b,c'].d[*]", ("a", "b,c", "d", None))
    assert parse_places("key, key") == (Place(Kind.KEY),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "header:",
        "header",
        "json:",
        "xml:$.a",
        "key:a",
        "json:$.a..b",
        "json:$[",
        " , ",
        "key-json",
        "key-avro:",
        "key-text:a",
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"place|path"):
        parse_places(text)


def test_a_comma_inside_brackets_is_no_separator() -> None:
    assert split_names("orders,e{1,2}, [a,b]x,(c,d)") == ["orders", "e{1,2}", "[a,b]x", "(c,d)"]


def test_a_key_and_a_header_are_the_id_as_a_whole() -> None:
    assert found("a-1", "key", Record(0, 0, b"a-1", None))
    assert not found("a-1", "key", Record(0, 0, b"a-17", b"a-1"))
    record = Record(0, 0, None, None, (("h", b"x"), ("id", b"a-1"), ("n", None)))
    assert found("a-1", "header:id", record)
    assert not found("a-1", "header:h", record)
    assert found("a-1", "header:*", record)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (UUID, uuid.UUID(UUID).bytes),
        ("4711", struct.pack(">i", 4711)),
        ("-4711", struct.pack(">q", -4711)),
        (str(2**40), struct.pack(">q", 2**40)),
    ],
)
def test_a_key_is_found_as_kafkas_serialisers_write_it(text: str, raw: bytes) -> None:
    assert found(text, "key", Record(0, 0, raw, None))
    assert found(text, "header:id", Record(0, 0, None, None, (("id", raw),)))
    assert not found(text, "key", Record(0, 0, raw + b"\0", None))


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (b"a-1", True),
        (b"order a-1, paid", True),
        (b"xa-1", False),
        (b"a-17", False),
        (b"a-17 or a-1", True),
        ("éa-1".encode(), False),
        (b"", False),
        (None, False),
    ],
)
def test_a_value_holds_the_id_as_a_word(value: bytes | None, fits: bool) -> None:
    assert found("a-1", "value", Record(0, 0, None, value)) is fits


@pytest.mark.parametrize(
    ("text", "document", "fits"),
    [
        ("a", b'{"id": "a"}', True),
        ("a", b'{"id": "\\u0061"}', True),
        ("a/b", b'{"id": "a\\/b"}', True),
        ('a"b', b'{"id": "a\\"b"}', True),
        ("12", b'{"id": 12}', True),
        ("12", b'{"id": 12.0}', False),
        ("12.0", b'{"id": 12.0}', True),
        ("12", b'{"id": -12}', False),
        ("true", b'{"id": true}', True),
        ("a", b'{"id": ["a"]}', False),
        ("a", b'{"id": null}', False),
        ("a", b'["a"]', False),
        ("a", b'{"id": "a"', False),
        ("a", b"[" * 100_000, False),
        ("é", b'{"id": "\\u00e9"}', True),
        ("é", '{"id": "é"}'.encode(), True),
    ],
)
def test_a_value_of_json(text: str, document: bytes, fits: bool) -> None:
    assert found(text, "json:$.id", Record(0, 0, None, document)) is fits


def test_values_that_are_no_json_are_counted() -> None:
    matcher = Matcher(Question("a", parse_places("json:$.id")))
    records = [Record(0, 0, None, value) for value in (b"{}", b"no", b"\xff", None)]
    assert list(matcher.found(RecordColumns.from_records(records))) == []
    assert matcher.undecodable == 2


def test_a_field_of_avro() -> None:
    assert found("a", "avro:id", Record(0, 0, None, avro(1, {"id": "a", "n": 7})))
    assert found("7", "avro:n", Record(0, 0, None, avro(1, {"id": "a", "n": 7})))
    assert not found("7", "avro:id", Record(0, 0, None, avro(1, {"id": "a", "n": 7})))
    assert found("-9", "avro:id", Record(0, 0, None, avro(2, {"id": -9})))
    assert not found("0", "avro:id", Record(0, 0, None, avro(2, {"id": None})))
    deep = {"id": uuid.UUID(UUID).bytes, "kind": "ab", "in": [{"x": "p"}, {"y": "q"}]}
    assert found(UUID, "avro:id", Record(0, 0, None, avro(3, deep)))
    assert found("q", "avro:in[*].y", Record(0, 0, None, avro(3, deep)))
    assert found("q", "avro:in[1][*]", Record(0, 0, None, avro(3, deep)))
    assert not found("q", "avro:in[0][*]", Record(0, 0, None, avro(3, deep)))


def test_what_is_inside_a_key_is_found_there_alone() -> None:
    json_key = Record(0, 0, b'{"id": "a\\/b", "n": 7}', b'{"id": "other"}')
    assert found("a/b", "key-json:$.id", json_key)
    assert found("7", "key-json:$.n", json_key)
    assert not found("a/b", "json:$.id", json_key)
    assert not found("other", "key-json:$.id", json_key)
    avro_key = Record(0, 0, avro(1, {"id": "a", "n": 7}), avro(1, {"id": "b", "n": 8}))
    assert found("a", "key-avro:id", avro_key)
    assert found("7", "key-avro:n", avro_key)
    assert not found("b", "key-avro:id", avro_key)
    assert places_found(Question("8", parse_places("key-avro:n,avro:n")), avro_key) == ["avro:n"]
    both = Question("a", parse_places("json:id,key-json:id"))
    matcher = Matcher(both)
    records = [Record(0, 0, b"no", b'{"id": "a"}'), Record(0, 0, b'{"id": "a"}', b"no"), Record(0, 0, None, b"no")]
    hits = [[str(place) for place in places] for _, _, places in matcher.found(RecordColumns.from_records(records))]
    assert (hits, matcher.undecodable) == ([["json:id"], ["key-json:id"]], 3)
    with pytest.raises(ValueError, match="schema registry"):
        Matcher(Question("a", parse_places("key-avro:id")))
    assert Questions("a", parse_places("key-avro:id")).needs_registry


def test_begins_contains_and_expressions() -> None:
    record = Record(0, 0, b"order-17", b'{"id": "x-17-y"}')
    assert found("order", "key", record, How.BEGINS)
    assert not found("rder", "key", record, How.BEGINS)
    assert found("r-1", "key", record, How.CONTAINS)
    assert found("17-", "json:id", record, How.CONTAINS)
    assert found("^x-[0-9]+", "json:id", record, How.REGEX)
    assert not found("^17", "json:id,key", record, How.REGEX)
    negated = Question("order", parse_places("key"), How.BEGINS, negated=True)
    columns = RecordColumns.from_records([record, Record(0, 0, b"other", None)])
    assert [row.key for row, _, _ in Matcher(negated).found(columns)] == [b"other"]


@pytest.mark.parametrize(("text", "how"), [("", How.IS), ("a" * 5000, How.IS), ("(", How.REGEX), ("a\\1", How.REGEX)])
def test_questions_that_are_none_are_refused(text: str, how: How) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Question(text, how=how)


def test_each_topic_has_its_own_places() -> None:
    questions = Questions("a", rules=[("orders", parse_places("key")), ("e.*", parse_places("avro:id"))])
    assert questions.of("orders").places == parse_places("key")
    assert questions.of("events").places == parse_places("avro:id")
    assert questions.of("xe").places == parse_places("header:*,key,value")
    assert questions.needs_registry


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_written_as_avro_does(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    assert zigzag_varint(number) == out.getvalue()


IDS = st.sampled_from(["a", "ab", "7", "-7", "0", "300", "a/b", 'q"', "é", "true", UUID, "a.b", "12.0", "_"])
PLAIN = st.one_of(IDS, st.text('ab7/é"_- \\', max_size=4))
BYTES = st.one_of(
    st.none(),
    PLAIN.map(str.encode),
    st.sampled_from([uuid.UUID(UUID).bytes, struct.pack(">q", 7), struct.pack(">i", 300), b"\xff\x00"]),
)
LEAVES = st.one_of(PLAIN, st.integers(-400, 400), st.booleans(), st.none(), st.sampled_from([12.0, 0.5]))
JSONS = st.builds(
    lambda leaf, other, ascii_only, slashes: (
        json.dumps({"id": leaf, "in": [other]}, ensure_ascii=ascii_only)
        .replace("/", "\\/" if slashes else "/")
        .encode()
    ),
    LEAVES,
    LEAVES,
    st.booleans(),
    st.booleans(),
)
AVROS = st.one_of(
    st.builds(lambda text, number: avro(1, {"id": text, "n": number}), PLAIN, st.integers(-400, 400)),
    st.builds(lambda number: avro(2, {"id": number}), st.one_of(st.none(), st.integers(-400, 400))),
    st.builds(
        lambda raw, kind, text: avro(3, {"id": raw, "kind": kind, "in": [{"k": text}]}),
        st.sampled_from([uuid.UUID(UUID).bytes, bytes(16)]),
        st.sampled_from(["a", "ab"]),
        PLAIN,
    ),
)
RECORD = st.builds(
    lambda key, value, headers: Record(0, 0, key, value, headers),
    st.one_of(BYTES, JSONS, AVROS),
    st.one_of(BYTES, JSONS, AVROS),
    st.lists(st.tuples(st.sampled_from(["h", "i"]), BYTES), max_size=2).map(tuple),
)
PLACES = st.lists(
    st.sampled_from(
        [
            *("key", "value", "header:h", "header:*", "json:$.id", "json:$.in[*]", "avro:id", "avro:n", "avro:kind"),
            *("key-json:$.id", "key-json:$.in[*]", "key-avro:id", "key-avro:n"),
        ]
    ),
    min_size=1,
    max_size=3,
    unique=True,
).map(",".join)


@given(
    st.lists(RECORD, min_size=1, max_size=8),
    st.sampled_from(Codec),
    IDS,
    PLACES,
    st.sampled_from(How),
    st.booleans(),
)
def test_what_readers_look_for_hides_no_record_that_fits(
    records: list[Record], codec: Codec, text: str, places: str, how: How, negated: bool
) -> None:
    """The same hits as by decoding every record."""
    question = Question(text, parse_places(places), how, negated=negated)
    raw = encode_batch(RecordColumns.from_records(records), codec=codec)[0]
    hits = []
    for needles in (needles_of([question]), None):
        matcher = Matcher(question, Documents(Registry()))  # type: ignore[arg-type]  # it is used for schemas alone
        with BatchReader(needles=needles) as reader:
            reader.read(raw, 0)
            hits.append([(record.offset, places) for record, _, places in matcher.found(reader.take())])
    assert hits[0] == hits[1]
