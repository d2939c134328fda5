"""Parse Avro schemas from JSON, and render them as text, by version 1.11 of the Avro specification.

A registry identifies a schema by its text, so the same schema must always have the same text. The text is that of
Java's Avro library, because Confluent's registry may use the same topic. As in Java, the defaults of fields are not
checked.

Thread rule: immutable after parsing; may be shared between threads.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
DEPTH_MAX: Final = 100
"""Maximum nesting of types; deeper schemas are rejected before the stack is exhausted."""
TYPES_MAX: Final = 10_000
"""Maximum types in one schema."""
JSON_DEPTH_MAX: Final = 500
"""Maximum nesting of JSON in a schema's text, including other attributes and defaults."""
FIXED_SIZE_MAX: Final = 1 << 24
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

COMMON: Final = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "items", "values", "symbols", "size"}
)
FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


class SchemaError(ValueError):
    """A text that is not a valid Avro schema. The message is one sentence."""


class _Missing:
    """The type of MISSING, which marks a field without a default. None is a valid default: null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(slots=True, eq=False)
class Field:
    """One field of a record."""

    name: str
    type: Type
    default: object = MISSING
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Type:
    """An Avro type. `kind` decides which of the other attributes are used."""

    kind: str
    """A primitive's name, record, enum, fixed, array, map or union."""
    name: str = ""
    """The full name of a named type."""
    aliases: tuple[str, ...] = ()
    """Full names."""
    doc: str | None = None
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    default: object = MISSING
    """An enum's default: replaces a symbol that the reader does not know."""
    items: Type | None = None
    """The type of an array's elements or a map's values."""
    branches: tuple[Type, ...] = ()
    size: int = 0
    props: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def logical(self) -> str | None:
        """The name of the logical type, or None. Callers check whether it is valid for the type."""
        value = self.props.get("logicalType")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A parsed schema. `root` contains the types of fields, items and branches."""

    root: Type
    text: str
    """The rendering that identifies the schema.

    It has Java's order of attributes, no white space, and a namespace only if it differs from the enclosing one. Custom
    attributes and logical types are kept.
    """
    named: Mapping[str, Type]
    """The types that the schema defines or was given, by full name."""

    def normalized(self) -> str:
        """Return the text with custom attributes and aliases sorted, so that their order makes no difference."""
        return render(self.root, external=self._external(), ordered=True)

    def standalone(self) -> str:
        """Return the text with the referenced types included, each where it is first used."""
        return render(self.root)

    def _external(self) -> frozenset[str]:
        return frozenset(self.named) - _defined_in(self.text)


def parse(text: str, named: Mapping[str, Type] | None = None) -> Schema:
    """Parse a schema from JSON text. SchemaError if it is invalid.

    `named` has the types of referenced schemas by full name, so those schemas must be parsed first.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error
    except ValueError as error:
        raise SchemaError(f"the schema is not valid JSON: {error}") from error
    return parse_json(document, named)


def parse_json(document: object, named: Mapping[str, Type] | None = None) -> Schema:
    """Parse a schema from a decoded JSON value. SchemaError if it is invalid.

    `named` has the types of referenced schemas by full name.
    """
    _require_flat(document)
    parser = _Parser(dict(named or {}))
    root = parser.type_of(document, "", 0)
    external = frozenset(named or ())
    return Schema(root, render(root, external=external), parser.named)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """Parse a JSON number. ValueError if it is too large for a float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _require_flat(document: object) -> None:
    """Raise SchemaError if JSON has more than JSON_DEPTH_MAX levels, because recursion would exhaust the stack."""
    level = [document]
    for _ in range(JSON_DEPTH_MAX):
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                inner += node.values()
            elif isinstance(node, list):
                inner += node
        if not inner:
            return
        level = inner
    raise SchemaError("the schema is nested too deeply")


class _Parser:
    """The state of parsing one schema: the named types and the number of types."""

    def __init__(self, named: dict[str, Type]) -> None:
        self.named = named
        self.count = 0

    def type_of(self, node: object, space: str, depth: int) -> Type:
        self.count += 1
        if depth > DEPTH_MAX or self.count > TYPES_MAX:
            raise SchemaError(f"the schema has more than {DEPTH_MAX} levels or {TYPES_MAX} types")
        if isinstance(node, str):
            return self._by_name(node, space)
        if isinstance(node, list):
            return self._union(node, space, depth)
        if not isinstance(node, dict):
            raise SchemaError(f"{_shown(node)} is not a schema")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f"type is missing: {_shown(node)}")
        if kind in {"record", "error", "enum", "fixed"}:
            return self._named(node, kind, space, depth)
        if kind in PRIMITIVES:
            return Type(kind, props=_props(node, COMMON))
        if kind in {"array", "map"}:
            part = "items" if kind == "array" else "values"
            if part not in node:
                raise SchemaError(f"{part} of an {kind} is missing: {_shown(node)}")
            return Type(kind, items=self.type_of(node[part], space, depth + 1), props=_props(node, COMMON))
        return self._by_name(kind, space)

    def _by_name(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = self.named.get(full)
        if found is None:
            raise SchemaError(f"undefined name: {_shown(full)}")
        return found

    def _union(self, nodes: list[object], space: str, depth: int) -> Type:
        branches = tuple(self.type_of(node, space, depth + 1) for node in nodes)
        seen = set()
        for branch in branches:
            if branch.kind == "union":
                raise SchemaError("a union cannot contain a union")
            key = branch.name or branch.kind
            if key in seen:
                raise SchemaError(f"duplicate {key} in a union")
            seen.add(key)
        return Type("union", branches=branches)

    def _named(self, node: dict[str, Any], kind: str, space: str, depth: int) -> Type:
        name = full_name(_text(node, "name", kind), node.get("namespace"), space)
        inner = name.rpartition(".")[0]
        if name in PRIMITIVES:
            raise SchemaError(f"{name} is the name of a primitive type")
        if name in self.named:
            raise SchemaError(f"can't redefine: {name}")
        made = Type("record" if kind == "error" else kind, name=name, is_error=kind == "error")
        made.aliases = tuple(full_name(alias, None, inner) for alias in _texts(node, "aliases"))
        made.doc = node["doc"] if isinstance(node.get("doc"), str) else None
        made.props = _props(node, COMMON | {"default"} if kind == "enum" else COMMON)
        self.named[name] = made
        if kind == "enum":
            _fill_enum(made, node)
        elif kind == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_SIZE_MAX:
                raise SchemaError(
                    f"the size of {name} must be a whole number from 0 to {FIXED_SIZE_MAX}, not {_shown(size)}"
                )
            made.size = size
        else:
            made.fields = self._fields(node, name, inner, depth)
        return made

    def _fields(self, node: dict[str, Any], name: str, space: str, depth: int) -> tuple[Field, ...]:
        rows = node.get("fields")
        if not isinstance(rows, list):
            raise SchemaError(f"record {name} has no list of fields")
        made = []
        seen: set[str] = set()
        for row in rows:
            if not isinstance(row, dict):
                raise SchemaError(f"a field of {name} must be an object, not {_shown(row)}")
            own = _text(row, "name", f"field of {name}")
            if not NAME.match(own):
                raise SchemaError(f"illegal field name in {name}: {_shown(own)}")
            if own in seen:
                raise SchemaError(f"duplicate field {own} in {name}")
            seen.add(own)
            if "type" not in row:
                raise SchemaError(f"field {own} of {name} has no type")
            order = row.get("order", "ascending")
            if order not in ("ascending", "descending", "ignore"):
                raise SchemaError(
                    f"the order of field {own} of {name} must be ascending, descending or ignore, not {_shown(order)}"
                )
            made.append(
                Field(
                    own,
                    self.type_of(row["type"], space, depth + 1),
                    row.get("default", MISSING),
                    row["doc"] if isinstance(row.get("doc"), str) else None,
                    order,
                    tuple(_texts(row, "aliases")),
                    _props(row, FIELD_RESERVED),
                )
            )
        return tuple(made)


def full_name(name: str, namespace: object, space: str) -> str:
    """Return the full name of a named type. SchemaError if the name is illegal.

    The namespace is the one in `name`, or else `namespace`, or else the enclosing namespace `space`.
    """
    if "." not in name:
        if namespace is not None and not isinstance(namespace, str):
            raise SchemaError(f"the namespace of {name} must be a string, not {_shown(namespace)}")
        around = space if namespace is None else namespace
        name = f"{around}.{name}" if around else name
    if not all(NAME.match(part) for part in name.split(".")):
        raise SchemaError(f"illegal name: {_shown(name)}")
    return name


def _fill_enum(made: Type, node: dict[str, Any]) -> None:
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise SchemaError(f"enum {made.name} has no list of symbols")
    for symbol in symbols:
        if not NAME.match(symbol):
            raise SchemaError(f"illegal symbol in {made.name}: {_shown(symbol)}")
    if len(set(symbols)) != len(symbols):
        raise SchemaError(f"duplicate symbol in {made.name}")
    made.symbols = tuple(symbols)
    if "default" in node:
        if node["default"] not in symbols:
            raise SchemaError(f"the default of {made.name} is not one of its symbols: {_shown(node['default'])}")
        made.default = node["default"]


def _text(node: dict[str, Any], key: str, what: str) -> str:
    value = node.get(key)
    if not isinstance(value, str) or not value:
        raise SchemaError(f"{key} of a {what} is missing: {_shown(node)}")
    return value


def _texts(node: dict[str, Any], key: str) -> list[str]:
    values = node.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SchemaError(f"{key} must be a list of names, not {_shown(values)}")
    return values


def _props(node: dict[str, Any], reserved: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in reserved}


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- rendering --------------------------------------------------------------------------------------------------------


def render(root: Type, *, external: frozenset[str] = frozenset(), ordered: bool = False) -> str:
    """Return the JSON text of a type.

    The names in `external` are not defined in the text, only referred to. `ordered` sorts custom attributes and
    aliases.
    """
    return json.dumps(_Renderer(set(external), ordered).node(root, ""), ensure_ascii=False, separators=(",", ":"))


class _Renderer:
    def __init__(self, known: set[str], ordered: bool) -> None:
        self.known = known
        self.ordered = ordered

    def node(self, made: Type, space: str) -> object:
        """Return a type as a JSON value. `space` is the enclosing namespace."""
        if made.kind == "union":
            return [self.node(branch, space) for branch in made.branches]
        if made.kind in NAMED:
            return self._named(made, space)
        if made.items is not None:
            part = "items" if made.kind == "array" else "values"
            return {"type": made.kind, part: self.node(made.items, space), **self._props(made.props)}
        return {"type": made.kind, **self._props(made.props)} if made.props else made.kind

    def _named(self, made: Type, space: str) -> object:
        inner, _, short = made.name.rpartition(".")
        if made.name in self.known:
            return short if inner == space else made.name
        self.known.add(made.name)
        out: dict[str, object] = {"type": "error" if made.is_error else made.kind, "name": short}
        if inner != space:
            out["namespace"] = inner
        if made.doc is not None:
            out["doc"] = made.doc
        if made.kind == "record":
            out["fields"] = [self._field(row, inner) for row in made.fields]
        elif made.kind == "enum":
            out["symbols"] = list(made.symbols)
            if made.default is not MISSING:
                out["default"] = made.default
        else:
            out["size"] = made.size
        out |= self._props(made.props)
        if made.aliases:
            names = [_relative(alias, inner) for alias in made.aliases]
            out["aliases"] = sorted(names) if self.ordered else names
        return out

    def _field(self, row: Field, space: str) -> dict[str, object]:
        out: dict[str, object] = {"name": row.name, "type": self.node(row.type, space)}
        if row.doc is not None:
            out["doc"] = row.doc
        if row.default is not MISSING:
            out["default"] = row.default
        if row.order != "ascending":
            out["order"] = row.order
        if row.aliases:
            out["aliases"] = sorted(row.aliases) if self.ordered else list(row.aliases)
        return out | self._props(row.props)

    def _props(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self.ordered else dict(props)


def _relative(name: str, space: str) -> str:
    inner, _, short = name.rpartition(".")
    return short if inner == space else name


def _defined_in(text: str) -> frozenset[str]:
    """Return the full names of the types that a rendered schema defines."""
    found: set[str] = set()

    def walk(node: object, space: str) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item, space)
        elif isinstance(node, dict):
            if node["type"] in {"record", "error", "enum", "fixed"}:
                name = full_name(node["name"], node.get("namespace"), space)
                found.add(name)
                space = name.rpartition(".")[0]
                for row in node.get("fields", ()):
                    walk(row["type"], space)
            else:
                walk(node.get("items", node.get("values")), space)

    walk(json.loads(text), "")
    return frozenset(found)
