"""Who can read whom: the checker against fastavro, which reads or does not, and against the words registries use."""

import contextlib
import io
import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro.compatibility import LEVELS, PROBLEM_COUNT_MAX, can_read, check, problems
from kafkalite.avro.schema import parse
from tests.kit.harness.avro_schemas import changed, schemas, values


def record(*fields) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


A_INT = {"name": "a", "type": "int"}
B_TEXT = {"name": "b", "type": "string"}
B_DEFAULT = {**B_TEXT, "default": "x"}


@settings(max_examples=100)
@given(st.data())
def test_what_the_checker_admits_fastavro_reads(data) -> None:
    writer = data.draw(schemas)
    reader = data.draw(changed(writer))
    if not can_read(parse(json.dumps(reader)), parse(json.dumps(writer))):
        return
    value = data.draw(values(writer))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer), value)
    # Bytes that are no text, read as a string, are the value's fault, not the schemas': the handler is not for them.
    with contextlib.suppress(UnicodeDecodeError):
        fastavro.schemaless_reader(
            io.BytesIO(out.getvalue()),
            fastavro.parse_schema(writer),
            fastavro.parse_schema(reader),
            handle_unicode_errors="replace",
        )


@given(schemas)
def test_every_schema_reads_itself(schema) -> None:
    assert problems(parse(json.dumps(schema)), parse(json.dumps(schema))) == []


CHAINS = {
    "add an optional field": ([record(A_INT), record(A_INT, B_DEFAULT)], "YYYYYYY"),
    "add a required field": ([record(A_INT), record(A_INT, B_TEXT)], "YNNYYNN"),
    "remove a required field": ([record(A_INT, B_TEXT), record(A_INT)], "YYYNNNN"),
    "int to long": ([record(A_INT), record({"name": "a", "type": "long"})], "YYYNNNN"),
    "int to string": ([record(A_INT), record({"name": "a", "type": "string"})], "YNNNNNN"),
    "an earlier version counts when transitive": (
        [record(A_INT), record(), record({"name": "a", "type": "string", "default": ""})],
        "YYNYNYN",
    ),
    "a required field of long ago": (
        [record({"name": "x", "type": "int", "default": 0}), record(), record({"name": "x", "type": "string"})],
        "YNNYNNN",
    ),
    "bytes and string are each other's": (['"bytes"', '"string"'], "YYYYYYY"),
    "into a union": (['"int"', '["null","int"]'], "YYYNNNN"),
    "an alias keeps a renamed field": (
        [record(A_INT), record({"name": "z", "type": "int", "aliases": ["a"]})],
        "YYYNNNN",
    ),
    "another name": (
        ['{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"G","size":2}'],
        "YNNNNNN",
    ),
    "another name with an alias": (
        ['{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"G","size":2,"aliases":["F"]}'],
        "YYYNNNN",
    ),
    "a namespace does not count": (
        ['{"type":"fixed","name":"a.F","size":2}', '{"type":"fixed","name":"b.F","size":2}'],
        "YYYYYYY",
    ),
    "a symbol more": (
        ['{"type":"enum","name":"E","symbols":["A"]}', '{"type":"enum","name":"E","symbols":["A","B"]}'],
        "YYYNNNN",
    ),
    "a symbol more, with a default": (
        [
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}',
        ],
        "YYYYYYY",
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_levels(name: str) -> None:
    history, expected = CHAINS[name]
    *old, new = map(parse, history)
    rows = list(enumerate(old, start=1))
    assert "".join("N" if check(level, new, rows) else "Y" for level in LEVELS) == expected


@pytest.mark.parametrize(
    ("reader", "writer", "sentence"),
    [
        pytest.param(
            record(A_INT, B_TEXT),
            record(A_INT),
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'b'}",
            id="field without a default",
        ),
        pytest.param(
            record({"name": "a", "type": "boolean"}),
            record(A_INT),
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema "
            "does not match with the old schema', additionalInfo:'reader type: BOOLEAN not compatible with writer "
            "type: INT'}",
            id="another type",
        ),
        pytest.param(
            '"boolean"',
            '"int"',
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the new schema does not match "
            "with the old schema', additionalInfo:'reader type: BOOLEAN not compatible with writer type: INT'}",
            id="at the root",
        ),
        pytest.param(
            record({"name": "a", "type": ["int", "null"]}),
            record({"name": "a", "type": ["long", "null"]}),
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at "
            "path '/fields/0/type/0' in the old schema', additionalInfo:'reader union lacking writer type: LONG'}",
            id="a branch less",
        ),
        pytest.param(
            '{"type":"enum","name":"E","symbols":["A"]}',
            '{"type":"enum","name":"E","symbols":["C","A","B"]}',
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[B, C]' at path "
            "'/symbols' in the old schema', additionalInfo:'[B, C]'}",
            id="symbols less",
        ),
        pytest.param(
            '{"type":"fixed","name":"F","size":2}',
            '{"type":"fixed","name":"F","size":3}',
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/size' in the new "
            "schema does not match with the old schema', additionalInfo:'expected: 3, found: 2'}",
            id="another size",
        ),
        pytest.param(
            '{"type":"record","name":"I9","fields":[]}',
            '{"type":"record","name":"n.I1","fields":[]}',
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', "
            "additionalInfo:'expected: n.I1'}",
            id="another name",
        ),
    ],
)
def test_sentences_are_those_that_registries_use(reader: str, writer: str, sentence: str) -> None:
    reasons = check("BACKWARD", parse(reader), [(4, parse(writer))])
    assert reasons[0] == sentence
    assert reasons[-3:] == [
        "{oldSchemaVersion: 4}",
        f"{{oldSchema: '{parse(writer).text}'}}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]


def test_a_schema_that_holds_itself_is_compared_to_its_end() -> None:
    tree = '{"type":"record","name":"T","fields":[%s{"name":"l","type":["null","T"]},{"name":"r","type":["null","T"]}]}'
    plain, more = parse(tree % ""), parse(tree % '{"name":"v","type":"int"},')
    assert can_read(plain, more)
    assert {problem.kind for problem in problems(more, plain)} >= {"READER_FIELD_MISSING_DEFAULT_VALUE"}


def test_one_problem_that_is_met_in_many_places_does_not_double_with_each_level() -> None:
    def nested(innermost: str) -> str:
        text = f'{{"type":"record","name":"R40","fields":[{{"name":"x","type":"{innermost}"}}]}}'
        for level in reversed(range(40)):
            fields = f'{{"name":"a","type":{text}}},{{"name":"b","type":"R{level + 1}"}}'
            text = f'{{"type":"record","name":"R{level}","fields":[{fields}]}}'
        return text

    found = problems(parse(nested("int")), parse(nested("string")))
    assert len(found) == PROBLEM_COUNT_MAX
    assert {problem.kind for problem in found} == {"TYPE_MISMATCH"}
