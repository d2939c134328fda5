"""Find the tables and columns that an SQL statement names, from DuckDB's syntax tree of the statement.

    text ─▶ json_serialize_sql ─▶ tree ─▶ Statement(tables, columns)

Both sets may contain too many names. A column is listed without its table. A name that WITH defines is listed as a
table; the engine ignores names that are not topics.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Statement(NamedTuple):
    """The names of tables and columns in one SELECT.

    Column names are in lower case; `columns` is None for all columns.
    """

    tables: frozenset[tuple[str, ...]]
    """Table names, split into parts: `from a.b` is ("a", "b"), `from "a.b"` is ("a.b",)."""
    columns: frozenset[str] | None


class NoStatementError(ValueError):
    """A text that is not exactly one SELECT. The message says why."""


def parse(connection: Any, text: str) -> Statement:
    """Find the names in one SELECT statement. NoStatementError for other statements and invalid SQL."""
    asked = "select json_serialize_sql(?, skip_null := true, skip_empty := true)"
    [(tree,)] = connection.execute(asked, [text]).fetchall()
    found = json.loads(tree)
    if found["error"]:
        if found["error_type"] == "parser":
            raise NoStatementError(_located(text, found))
        raise NoStatementError("only SELECT is supported (including WITH, FROM, VALUES, DESCRIBE and SUMMARIZE)")
    if len(found["statements"]) != 1:
        raise NoStatementError(f"{len(found['statements'])} statements; give one at a time")
    tables: set[tuple[str, ...]] = set()
    columns: set[str] = set()
    everything = False
    for node in _nodes(found["statements"][0]):
        match node.get("type"):
            case "BASE_TABLE":
                tables.add(_path_of(node))
            case "COLUMN_REF":
                columns.update(name.lower() for name in node["column_names"])
            case "STAR":
                everything = True
    return Statement(frozenset(tables), None if everything else frozenset(columns))


def _path_of(table: dict[str, Any]) -> tuple[str, ...]:
    """Return the parts of a table's name: catalog, schema and table.

    DuckDB 2 has them in one list, earlier versions in three fields.
    """
    if "qualified_name" in table:
        return tuple(table["qualified_name"]["path"])
    parts = (table.get("catalog_name"), table.get("schema_name"), table["table_name"])
    return tuple(part for part in parts if part)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON tree. Works without recursion, because statements may be deeply nested."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _located(text: str, error: dict[str, Any]) -> str:
    """Return the parser's error with its line and column.

    If the statement contains the word OFFSET, a hint explains that it is a keyword of SQL.
    """
    message = str(error["error_message"])
    position = error.get("position", "")
    if position.isdigit():
        lines = text.encode()[: int(position)].decode(errors="replace").split("\n")
        message = f"line {len(lines)}, column {len(lines[-1]) + 1}: {message}"
    if "offset" in text.lower():
        message += '; OFFSET is a keyword of SQL: write the column as t.offset or "offset"'
    return message
