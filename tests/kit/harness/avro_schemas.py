"""Hypothesis strategies for Avro: schemas, values of them, and schemas that a schema may become.

Schemas are JSON as `json.loads` gives it, values what fastavro takes. A schema's changes are of all kinds, compatible
or not: the code under test decides.
"""

from __future__ import annotations

import copy
import math
from itertools import count

from hypothesis import strategies as st

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
SYMBOLS = ["A", "B", "C", "D"]
numbers = count()


def unique(prefix: str) -> str:
    return f"{prefix}{next(numbers)}"


def named_enum(symbols):
    return {"type": "enum", "name": unique("E"), "symbols": symbols}


enums = st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True).map(named_enum)
fixeds = st.integers(0, 5).map(lambda size: {"type": "fixed", "name": unique("X"), "size": size})
primitives = st.sampled_from(PRIMITIVES)
leaves = st.one_of(primitives, primitives, enums, fixeds)


def kind_of(schema) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else schema["type"]


def unions(inner):
    """Different kinds, and one of each named kind, so that a value determines its branch."""
    return st.lists(inner.filter(lambda schema: kind_of(schema) != "union"), min_size=1, max_size=3, unique_by=kind_of)


def records(inner):
    def made(types):
        fields = [{"name": f"f{number}", "type": schema} for number, schema in enumerate(types)]
        return {"type": "record", "name": unique("R"), "fields": fields}

    return st.lists(inner, max_size=4).map(made)


schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        records(inner),
        unions(inner),
        inner.map(lambda schema: ["null", schema] if kind_of(schema) not in {"null", "union"} else schema),
        inner.map(lambda schema: {"type": "array", "items": schema}),
        inner.map(lambda schema: {"type": "map", "values": schema}),
    ),
    max_leaves=8,
)
record_schemas = records(schemas)


def values(schema):
    """Values that fastavro writes with a schema."""
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    kind = kind_of(schema)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    return {
        "null": st.none,
        "boolean": st.booleans,
        "int": lambda: st.integers(-(2**31), 2**31 - 1),
        "long": lambda: st.integers(-(2**63), 2**63 - 1),
        "float": lambda: st.floats(width=32, allow_nan=False),
        "double": lambda: st.floats(allow_nan=False),
        "bytes": lambda: st.binary(max_size=8),
        "string": lambda: text,
        "enum": lambda: st.sampled_from(schema["symbols"]),
        "fixed": lambda: st.binary(min_size=schema["size"], max_size=schema["size"]),
        "array": lambda: st.lists(values(schema["items"]), max_size=3),
        "map": lambda: st.dictionaries(text, values(schema["values"]), max_size=3),
    }[kind]()


DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": -7,
    "long": 2**40,
    "float": 1.5,
    "double": -2.25,
    "bytes": "\u00ff\u0001",
    "string": "a text",
}


def default_of(schema):
    """A default of a schema, as JSON."""
    if isinstance(schema, list):
        return default_of(schema[0])
    kind = kind_of(schema)
    if kind == "record":
        return {field["name"]: default_of(field["type"]) for field in schema["fields"]}
    if kind == "enum":
        return schema["symbols"][-1]
    if kind == "fixed":
        return "\u00fe" * schema["size"]
    if kind == "array":
        return [default_of(schema["items"])]
    if kind == "map":
        return {"k": default_of(schema["values"])}
    return DEFAULTS[kind]


@st.composite
def changed(draw, schema):
    """A schema after some time: each part may stay, or become something else."""
    schema = copy.deepcopy(schema)
    if isinstance(schema, list):
        return _changed_union(draw, schema)
    kind = kind_of(schema)
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return draw(leaves)
    if choice == 1 and kind != "null":
        return ["null", schema]
    if kind == "record":
        return _changed_record(draw, schema)
    if kind == "enum":
        schema["symbols"] = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        if draw(st.booleans()):
            schema["default"] = schema["symbols"][0]
    elif kind == "array":
        schema["items"] = draw(changed(schema["items"]))
    elif kind == "map":
        schema["values"] = draw(changed(schema["values"]))
    elif kind in {"int", "long", "float"} and choice < 6:
        return draw(st.sampled_from(["long", "float", "double"]))
    elif kind in {"bytes", "string"} and choice < 4:
        return draw(st.sampled_from(["bytes", "string"]))
    return schema


def _changed_union(draw, schema):
    made = [draw(changed(branch)) for branch in schema]
    flat = [inner for branch in made for inner in (branch if isinstance(branch, list) else [branch])]
    extra = draw(st.lists(primitives, max_size=1))
    return list({kind_of(branch): branch for branch in draw(st.permutations([*flat, *extra]))}.values())


def _changed_record(draw, schema):
    fields = []
    for field in schema["fields"]:
        fate = draw(st.integers(0, 7))
        if fate == 0:
            continue
        field["type"] = draw(changed(field["type"]))
        if fate == 1:
            field["aliases"], field["name"] = [field["name"]], unique("g")
        fields.append(field)
    for inner in draw(st.lists(schemas, max_size=1)):
        field = {"name": unique("n"), "type": inner}
        if draw(st.integers(0, 3)):
            field["default"] = default_of(inner)
        fields.append(field)
    schema["fields"] = draw(st.permutations(fields))
    return schema


def same(first, second) -> bool:
    """Whether two readings of one message are the same: numbers as floats hold them, bytes as the text they are."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, bool) or isinstance(second, bool) or first is None or second is None:
        return first is second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first == second or math.isclose(first, second, rel_tol=1e-6)
    if isinstance(first, bytes) != isinstance(second, bytes):
        return as_bytes(first) == as_bytes(second)
    return first == second


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value
