"""Check whether data written with one Avro schema can be read with another.

    problems(reader, writer) ─▶ [], or the reasons, each with its kind and its path in the reader's schema
    check(level, new, old)   ─▶ [], or a registry's messages for a compatibility level

The rules are those of schema resolution in the Avro specification. Named types match as in `SchemaCompatibility` of
Avro's Java library. Problems also have that library's kinds, paths ("/fields/2/type") and texts, because registry
clients display them.

Pure: no I/O, no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.avro.schema import MISSING, Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""Reader's kind → writer's kinds that can be promoted to it."""
PROBLEM_COUNT_MAX: Final = 100
"""Maximum problems of one type: otherwise repeated ones could double with each level of nesting."""
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class Problem(NamedTuple):
    """One reason why a reader's schema cannot read data of a writer's schema."""

    kind: str
    """A kind such as TYPE_MISMATCH."""
    place: str
    """The place in the reader's schema (for a missing union branch: the writer's branch)."""
    detail: str

    def sentence(self, reader: str, writer: str) -> str:
        """Return the problem as a registry's message.

        `reader` and `writer` are what the message calls the two schemas: "new" and "old", or "old" and "new".
        """
        description = {
            "FIXED_SIZE_MISMATCH": (
                f"The size of FIXED type field at path '{self.place}' in the {reader} schema does not match with the "
                f"{writer} schema"
            ),
            "TYPE_MISMATCH": (
                f"The type (path '{self.place}') of a field in the {reader} schema does not match with the "
                f"{writer} schema"
            ),
            "NAME_MISMATCH": f"The name of the schema has changed (path '{self.place}')",
            "MISSING_ENUM_SYMBOLS": (
                f"The {reader} schema is missing enum symbols '{self.detail}' at path '{self.place}' in the "
                f"{writer} schema"
            ),
            "MISSING_UNION_BRANCH": (
                f"The {reader} schema is missing a type inside a union field at path '{self.place}' in the "
                f"{writer} schema"
            ),
            "READER_FIELD_MISSING_DEFAULT_VALUE": (
                f"The field '{self.detail}' at path '{self.place}' in the {reader} schema has no default value and is "
                f"missing in the {writer} schema"
            ),
        }[self.kind]
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.detail}'}}"


def problems(reader: Schema | Type, writer: Schema | Type) -> list[Problem]:
    """Return the reasons why schema `reader` cannot read data of schema `writer`; [] if it can.

    Returns at most PROBLEM_COUNT_MAX reasons.
    """
    first = reader.root if isinstance(reader, Schema) else reader
    second = writer.root if isinstance(writer, Schema) else writer
    return _Checker().compare(first, second, "")


def can_read(reader: Schema | Type, writer: Schema | Type) -> bool:
    """Return whether schema `reader` can read all data of schema `writer`."""
    return not problems(reader, writer)


def check(level: str, new: Schema, old: Sequence[tuple[int, Schema]]) -> list[str]:
    """Return messages that say why schema `new` is incompatible with the previous versions; [] if it is compatible.

    `old` has the previous versions in order, as (version number, schema). The transitive levels compare `new` with all
    of them, the other levels only with the last. The messages describe the latest incompatible version.
    """
    if level == "NONE" or not old:
        return []
    direction, _, transitive = level.partition("_")
    for version, before in reversed(old) if transitive else [old[-1]]:
        found = []
        if direction in {"FORWARD", "FULL"}:
            found += [problem.sentence("old", "new") for problem in problems(before, new)]
        if direction in {"BACKWARD", "FULL"}:
            found += [problem.sentence("new", "old") for problem in problems(new, before)]
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {version}}}",
                f"{{oldSchema: '{before.text}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            ]
    return []


class _Checker:
    """One comparison of two schemas. It caches the problems of each pair of types.

    In a recursive schema, a pair can be reached while it is being compared. The inner comparison then assumes that the
    pair is compatible; the outer comparison finds the problems.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], list[Problem]] = {}

    def compare(self, reader: Type, writer: Type, place: str) -> list[Problem]:
        key = (id(reader), id(writer))
        found = self.known.get(key)
        if found is None:
            before = len(self.known)
            self.known[key] = []  # assume compatibility for the recursion
            found = self.known[key] = self._compare(reader, writer, place)[:PROBLEM_COUNT_MAX]
            if found:  # results found under the failed assumption are void
                for later in list(self.known)[before:]:
                    if not self.known[later]:
                        del self.known[later]
        return found

    def _compare(self, reader: Type, writer: Type, place: str) -> list[Problem]:
        if writer.kind == "union":
            return self._all_branches(reader, writer, place)
        if reader.kind == "union":
            if any(not self._fresh(branch, writer) for branch in reader.branches):
                return []
            return [_lacking(writer, place)]
        if reader.kind != writer.kind:
            if writer.kind in PROMOTIONS.get(reader.kind, ()):
                return []
            detail = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
            return [Problem("TYPE_MISMATCH", place or "/", detail)]
        if reader.kind in PRIMITIVES:
            return []
        if reader.items is not None and writer.items is not None:
            part = "items" if reader.kind == "array" else "values"
            return self.compare(reader.items, writer.items, f"{place}/{part}")
        return _names(reader, writer, place) + self._named(reader, writer, place)

    def _all_branches(self, reader: Type, writer: Type, place: str) -> list[Problem]:
        """Return the problems of each branch of the writer's union."""
        found = []
        for number, branch in enumerate(writer.branches):
            inner = self._fresh(reader, branch)
            if inner and reader.kind == "union":
                found.append(_lacking(branch, f"{place}/{number}"))
            else:
                found += inner
        return found

    def _fresh(self, reader: Type, writer: Type) -> list[Problem]:
        return self.compare(reader, writer, "")

    def _named(self, reader: Type, writer: Type, place: str) -> list[Problem]:
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            detail = f"expected: {writer.size}, found: {reader.size}"
            return [Problem("FIXED_SIZE_MISMATCH", f"{place}/size", detail)]
        if reader.kind == "enum":
            missing = sorted(set(writer.symbols) - set(reader.symbols))
            if not missing or reader.default is not MISSING:
                return []
            return [Problem("MISSING_ENUM_SYMBOLS", f"{place}/symbols", f"[{', '.join(missing)}]")]
        found = []
        for number, row in enumerate(reader.fields):
            partner = writer_field(row, writer)
            if partner is not None:
                found += self.compare(row.type, partner.type, f"{place}/fields/{number}/type")
            elif row.default is MISSING:
                found.append(Problem("READER_FIELD_MISSING_DEFAULT_VALUE", f"{place}/fields/{number}", row.name))
        return found


def writer_field(row: Field, writer: Type) -> Field | None:
    """Return the writer's field that matches a reader's field by name or by one of the reader's aliases; else None."""
    by_name = {field.name: field for field in writer.fields}
    for name in (row.name, *row.aliases):
        if name in by_name:
            return by_name[name]
    return None


def same_name(reader: Type, writer: Type) -> bool:
    """Return whether two named types match.

    They match if their names without namespaces are equal, or if the reader has the writer's full name as an alias.
    """
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _names(reader: Type, writer: Type, place: str) -> list[Problem]:
    if same_name(reader, writer):
        return []
    return [Problem("NAME_MISMATCH", f"{place}/name", f"expected: {writer.name}")]


def _lacking(writer: Type, place: str) -> Problem:
    return Problem("MISSING_UNION_BRANCH", place or "/", f"reader union lacking writer type: {writer.kind.upper()}")
