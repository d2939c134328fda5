"""Mask confidential parts of records before they are shown or exported.

    [[mask]]
    topics = "payments.*"              # full names or regular expressions, separated by commas
    headers = ["authorization"]
    paths = ["$.card.number"]          # of JSON values
    pattern = "[0-9]{13,19}"           # anywhere in key, value and headers
    key = true                         # all of the key

If a mask cannot be applied, the whole value is hidden: `paths` require JSON without repeated names, and `pattern`
requires text.

Thread rule: immutable.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.regex import compiled
from kafkalite.errors import StartupError, reason_of
from kafkalite.track.document_paths import Path as DocumentPath
from kafkalite.track.document_paths import parse_path
from kafkalite.track.questions import split_names

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite.wire.record.columns import Record

MASK: Final = "•••"
MASK_BYTES: Final = MASK.encode()
KEYS: Final[dict[str, type]] = {"topics": str, "headers": list, "paths": list, "pattern": str, "key": bool}


class Mask(NamedTuple):
    """One table of the file: topics, and the parts of their records to hide."""

    topics: tuple[Any, ...]
    headers: frozenset[str]
    paths: tuple[DocumentPath, ...]
    pattern: Any
    key: bool


class Masks:
    """All masks of the file."""

    def __init__(self, masks: tuple[Mask, ...] = ()) -> None:
        self._masks = masks

    @classmethod
    def from_file(cls, path: Path) -> Masks:
        """Read the file. Raises StartupError with a description of the fault."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls(tuple(mask_of(row) for row in tables_of(document)))
        except (OSError, ValueError) as error:
            raise StartupError(f"{path}: {reason_of(error)}") from error

    def cover(self, topic: str) -> bool:
        """Return whether any mask applies to a topic."""
        return any(expression.fullmatch(topic) for mask in self._masks for expression in mask.topics)

    def masked(self, topic: str, record: Record) -> Record:
        """Return the record with the topic's masks applied. Without a mask for the topic, return the record itself."""
        for mask in self._masks:
            if any(expression.fullmatch(topic) for expression in mask.topics):
                record = applied(mask, record)
        return record


def tables_of(document: dict[str, Any]) -> list[Any]:
    """Return the tables of the file. Raises ValueError if it contains anything else."""
    found = document.get("mask", [])
    if document.keys() - {"mask"} or not isinstance(found, list):
        raise ValueError("the file must have [[mask]] tables and nothing else")
    return found


def mask_of(row: Any) -> Mask:
    """Return the mask of a table. Raises ValueError if the table is invalid."""
    if not isinstance(row, dict) or row.keys() - KEYS.keys():
        raise ValueError(f"a [[mask]] table can have only {', '.join(KEYS)}")
    for name, value in row.items():
        texts = value if isinstance(value, list) else []
        if not isinstance(value, KEYS[name]) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} = {value!r} is not valid in a mask")
    return Mask(
        tuple(compiled(part) for part in split_names(row.get("topics", ".*"))),
        frozenset(row.get("headers", ())),
        tuple(parse_path(text) for text in row.get("paths", ())),
        compiled(row["pattern"]) if "pattern" in row else None,
        row.get("key", False),
    )


def applied(mask: Mask, record: Record) -> Record:
    """Return the record with one mask applied."""
    key = MASK_BYTES if mask.key and record.key is not None else without(mask, record.key)
    headers = tuple(
        (name, MASK_BYTES if name in mask.headers and value is not None else without(mask, value))
        for name, value in record.headers
    )
    value = without_paths(mask.paths, record.value) if mask.paths else record.value
    return record._replace(key=key, value=without(mask, value), headers=headers)


def without(mask: Mask, raw: bytes | None) -> bytes | None:
    """Mask those parts of a key, value or header that match the pattern."""
    if raw is None or mask.pattern is None:
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return MASK_BYTES
    found: bytes = mask.pattern.sub(MASK_BYTES, raw)  # on text the replacement would become Latin-1
    return found


def without_paths(paths: tuple[DocumentPath, ...], raw: bytes | None) -> bytes | None:
    """Mask the paths of a JSON value. A value that has none of them keeps its bytes."""
    if raw is None:
        return None
    try:
        document = found = json.loads(raw.decode(), object_pairs_hook=unique)
        for path in paths:
            found = covered(found, path)
        return raw if found == document else json.dumps(found, ensure_ascii=False).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return MASK_BYTES


def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError if a name is repeated, since a path would mask only its last value."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a name is repeated")
    return found


def covered(value: Any, path: DocumentPath) -> Any:
    """Mask the value at the path if it exists."""
    if not path:
        return MASK
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {name: covered(inner, rest) if step is None or name == step else inner for name, inner in value.items()}
    if isinstance(value, list):
        return [covered(inner, rest) if step is None or place == step else inner for place, inner in enumerate(value)]
    return value
