"""Keep the content of the registry's topic in memory: subjects, versions, ids, compatibility levels and modes.

    subjects        {subject: {version: SchemaVersion}}
    by_id           returns the schema that has an id
    levels, modes   {subject or None: text}
    id_max          the highest id ever assigned

Only `apply` changes the state, by the topic's records in order. So registries that have read up to the same offset have
the same state. `apply` rejects a record that gives the id of a schema to another schema.

Thread rule: the lock of the TopicStore (`kafkalite.schema_registry.topic`) guards the state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalite.avro.schema import Schema, SchemaError, parse
from kafkalite.schema_registry.records import (
    AVRO,
    CONFIG,
    Change,
    Noop,
    Reference,
    SchemaChange,
    SchemaVersion,
    SettingChange,
    SubjectDeletion,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.avro.schema import Type

LEVEL_DEFAULT: Final = "BACKWARD"
MODE_DEFAULT: Final = "READWRITE"
REFERENCE_DEPTH_MAX: Final = 20
"""The maximum depth of references."""
PARSED_COUNT_MAX: Final = 5000
"""Parsed schemas in the cache. When it is full, it is cleared."""


class RegistryState:
    """The state of a schema registry, built from the records of its topic."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaVersion]] = {}
        self.levels: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.id_max = 0
        self._ids: dict[int, set[tuple[str, int]]] = {}
        """Id → the (subject, version) pairs that use it."""
        self._identities: dict[tuple[object, ...], int] = {}
        self._parsed: dict[tuple[object, ...], Schema] = {}

    # --- changes ------------------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> bool:
        """Apply a record. If it gives the id of a schema to another schema, return False and change nothing."""
        match change:
            case SchemaChange(subject, version, row):
                return self._put(subject, version, row)
            case SettingChange(kind, subject, value):
                settings = self.levels if kind == CONFIG else self.modes
                if value is None:
                    settings.pop(subject, None)
                else:
                    settings[subject] = value
            case SubjectDeletion(subject, until):
                for version, row in self.subjects.get(subject, {}).items():
                    if version <= until:
                        self.subjects[subject][version] = replace(row, deleted=True)
            case Noop(id_max):
                self.id_max = max(self.id_max, id_max)
        return True

    def _put(self, subject: str, version: int, row: SchemaVersion | None) -> bool:
        if row is not None:
            owner = self.by_id(row.schema_id)
            if owner is not None and owner.identity != row.identity:
                return False
        versions = self.subjects.setdefault(subject, {})
        before = versions.pop(version, None)
        if before is not None:
            self._forget(before)
        if row is not None:
            versions[version] = row
            self.subjects[subject] = dict(sorted(versions.items()))
            self._ids.setdefault(row.schema_id, set()).add((subject, version))
            self._identities.setdefault(row.identity, row.schema_id)
            self.id_max = max(self.id_max, row.schema_id)
        elif not versions:
            del self.subjects[subject]
        return True

    def _forget(self, row: SchemaVersion) -> None:
        places = self._ids[row.schema_id]
        places.discard((row.subject, row.version))
        if not places:
            del self._ids[row.schema_id]
            if self._identities.get(row.identity) == row.schema_id:
                del self._identities[row.identity]

    # --- looking ------------------------------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject in order. `deleted` includes soft-deleted versions."""
        rows = self.subjects.get(subject, {}).values()
        return [row for row in rows if deleted or not row.deleted]

    def by_id(self, schema_id: int) -> SchemaVersion | None:
        """Return a version with this schema id, which may be soft-deleted; None if there is none."""
        for subject, version in sorted(self._ids.get(schema_id, ())):
            return self.subjects[subject][version]
        return None

    def places(self, schema_id: int) -> Iterator[SchemaVersion]:
        """Yield all versions with this schema id."""
        for subject, version in sorted(self._ids.get(schema_id, ())):
            yield self.subjects[subject][version]

    def id_of(self, row: SchemaVersion) -> int | None:
        """Return the id that this schema has in any subject; None if the schema is new."""
        return self._identities.get(row.identity)

    def level(self, subject: str) -> str:
        """Return the effective compatibility level of a subject."""
        return self.levels.get(subject) or self.levels.get(None) or LEVEL_DEFAULT

    def mode(self, subject: str) -> str:
        """Return the effective mode of a subject."""
        return self.modes.get(subject) or self.modes.get(None) or MODE_DEFAULT

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """Return the ids of schemas that refer to this version. Soft-deleted versions do not count."""
        return sorted(
            {
                row.schema_id
                for versions in self.subjects.values()
                for row in versions.values()
                if not row.deleted
                for reference in row.references
                if (reference.subject, reference.version) == (subject, version)
            }
        )

    # --- parsed schemas -----------------------------------------------------------------------------------------------

    def parsed(self, row: SchemaVersion) -> Schema:
        """Return the parsed schema of a version. SchemaError if it is invalid or not Avro."""
        found = self._parsed.get(row.identity)
        if found is None:
            if row.schema_type != AVRO:
                raise SchemaError(f"its type is {row.schema_type}")
            found = parse(row.text, self.named_types(row.references))
            if len(self._parsed) >= PARSED_COUNT_MAX:
                self._parsed.clear()
            self._parsed[row.identity] = found
        return found

    def named_types(self, references: tuple[Reference, ...]) -> dict[str, Type]:
        """Return the types that references define, by full name. SchemaError if a reference does not exist."""
        return self._named_types(references, 0, {})

    def _named_types(
        self, references: tuple[Reference, ...], depth: int, seen: dict[tuple[str, int], Mapping[str, Type]]
    ) -> dict[str, Type]:
        """Return the types that references define, and those that the referenced schemas use.

        `seen` caches the types of each (subject, version) during one call.
        """
        if depth > REFERENCE_DEPTH_MAX:
            raise SchemaError(f"references are nested deeper than {REFERENCE_DEPTH_MAX}")
        named: dict[str, Type] = {}
        for reference in references:
            place = (reference.subject, reference.version)
            if place not in seen:
                row = self.subjects.get(reference.subject, {}).get(reference.version)
                if row is None or row.deleted:
                    raise SchemaError(
                        f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
                    )
                seen[place] = parse(row.text, self._named_types(row.references, depth + 1, seen)).named
            named = {**seen[place], **named}
            if reference.name not in named:
                raise SchemaError(f"the referenced schema {reference.name} does not define this type")
        return named
