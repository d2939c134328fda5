"""Avro schemas: valid ones, and the canonical form of each."""

import json

import pytest

from kafkalite.avro.schema import DEPTH_MAX, JSON_DEPTH_MAX, SchemaError, parse

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "customer",
            "type": {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]},
        },
        {"name": "again", "type": ["null", "Customer"], "default": None},
    ],
}


def rendered(document) -> str:
    return parse(json.dumps(document)).text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param('"string"', '"string"', id="a primitive"),
        pytest.param(' { "type" : "string" } ', '"string"', id="a primitive as an object"),
        pytest.param('{"type":{"type":"int"}}', '"int"', id="a type in a type"),
        pytest.param(
            '{"type":"long","logicalType":"timestamp-millis"}',
            '{"type":"long","logicalType":"timestamp-millis"}',
            id="attributes stay",
        ),
        pytest.param(
            '{"fields":[],"name":"a.b.R","type":"record"}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[]}',
            id="order and namespace",
        ),
        pytest.param(
            '{"type":"enum","symbols":["A"],"name":"E","default":"A","aliases":["F"],"doc":"d"}',
            '{"type":"enum","name":"E","doc":"d","symbols":["A"],"default":"A","aliases":["F"]}',
            id="an enum",
        ),
        pytest.param(
            '{"type":"fixed","size":3,"name":"X","namespace":"n","mine":1}',
            '{"type":"fixed","name":"X","namespace":"n","size":3,"mine":1}',
            id="a fixed",
        ),
        pytest.param(
            '{"type":"array","items":{"type":"map","values":["null","int"]}}',
            '{"type":"array","items":{"type":"map","values":["null","int"]}}',
            id="an array of maps",
        ),
        pytest.param('{"type":"string","doc":"gone"}', '"string"', id="doc of a primitive means nothing"),
    ],
)
def test_text_is_java_s(written: str, text: str) -> None:
    assert parse(written).text == text
    assert parse(text).text == text


def test_namespaces_are_inherited_and_names_referred_to_shortly() -> None:
    assert rendered(ORDER) == (
        '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
        '{"name":"customer","type":{"type":"record","name":"Customer","fields":[{"name":"name","type":"string"}]}},'
        '{"name":"again","type":["null","Customer"],"default":null}]}'
    )


def test_a_name_of_another_namespace_is_written_whole() -> None:
    inner = {"type": "fixed", "name": "other.X", "size": 1}
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "other.X"}]
    assert rendered({"type": "record", "name": "n.R", "fields": fields}).endswith(
        '{"name":"a","type":{"type":"fixed","name":"X","namespace":"other","size":1}},{"name":"b","type":"other.X"}]}'
    )


def test_normalized_text_does_not_know_the_order_of_attributes() -> None:
    first = parse('{"type":"fixed","name":"X","size":1,"b":1,"a":2,"aliases":["Z","Y"]}')
    second = parse('{"a":2,"b":1,"type":"fixed","name":"X","size":1,"aliases":["Y","Z"]}')
    assert first.text != second.text
    assert first.normalized() == second.normalized()


def test_a_referenced_type_is_named_and_stands_alone_when_asked() -> None:
    customer = parse(json.dumps({"type": "record", "name": "shop.Customer", "fields": []}))
    order = parse('{"type":"record","name":"shop.Order","fields":[{"name":"c","type":"Customer"}]}', customer.named)
    assert order.text.endswith('{"name":"c","type":"Customer"}]}')
    assert order.normalized() == order.text
    assert parse(order.standalone()).root.fields[0].type.name == "shop.Customer"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("string", "not valid JSON"),
        ("NaN", "NaN is not JSON"),
        ("3", "3 is not a schema"),
        ("{}", "type is missing"),
        ('"text"', "undefined name: text"),
        ('{"type":"record","name":"R"}', "record R has no list of fields"),
        ('{"type":"record","fields":[]}', "name of a record is missing"),
        ('{"type":"record","name":"1R","fields":[]}', "illegal name: 1R"),
        ('{"type":"record","name":"R","namespace":"a..b","fields":[]}', "illegal name"),
        ('{"type":"record","name":"int","fields":[]}', "the name of a primitive type"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "duplicate field a",
        ),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "field a of R has no type"),
        ('{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}', "illegal field name"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}', "order of field a"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":["up"]}]}', "order of field a"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999}]}',
            "too large for a number",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"R","size":1}}]}',
            "redefine",
        ),
        ('{"type":"enum","name":"E"}', "no list of symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "duplicate symbol"),
        ('{"type":"enum","name":"E","symbols":["a-b"]}', "illegal symbol"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not one of its symbols"),
        ('{"type":"fixed","name":"F","size":-1}', "must be a whole number"),
        ('{"type":"array"}', "items of an array is missing"),
        ('["int","int"]', "duplicate int in a union"),
        ('["int",["null"]]', "a union cannot contain a union"),
        ("[" * 200_000, "nested too deeply"),
        ('{"type":"int","mine":' + "[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX + "}", "nested too deeply"),
        (
            '{"type":"array","items":' * (DEPTH_MAX + 1) + '"int"' + "}" * (DEPTH_MAX + 1),
            f"more than {DEPTH_MAX} levels",
        ),
    ],
)
def test_what_is_no_schema_is_refused_in_a_sentence(written: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        parse(written)
