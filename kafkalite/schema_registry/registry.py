"""Implement the operations of the schema registry: register, look up, delete, and check compatibility.

    register ─▶ mode? ─▶ parse ─▶ exists already? ─▶ compatible? ─▶ its id, or a new one ─▶ [records]
    delete   ─▶ mode? ─▶ referenced? ─▶ soft: marked · permanent: tombstones ─▶ [records]

An operation that writes is a decision: a function from the state to records and a result. A `Store` keeps the state and
writes the records. It calls the function again if another registry has written in the meantime.

Results and error codes are those of Confluent's registry. Only Avro schemas can be registered. Contexts (subjects
such as ":.name:subject") are not supported.

Thread rule: any thread; the Store guards the state.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkalite.avro.compatibility import LEVELS, check
from kafkalite.avro.logical import differences
from kafkalite.avro.schema import SchemaError, parse
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.schema_registry import errors
from kafkalite.schema_registry.records import (
    AVRO,
    CONFIG,
    ID_MAX,
    MODE,
    Reference,
    SchemaVersion,
    TopicRecord,
    noop,
    schema_record,
    setting_record,
    subject_deletion,
    tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.avro.schema import Schema
    from kafkalite.schema_registry.state import RegistryState

logger = logging.getLogger(__name__)

T = TypeVar("T")

LATEST: Final = -1
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
READ_ONLY: Final = frozenset({"READONLY", "READONLY_OVERRIDE"})
SCHEMA_SIZE_MAX: Final = 512 * 1024
"""Maximum bytes of a schema's text: with its other attributes, its record fits in a batch of Kafka's default size."""
SUBJECT_LENGTH_MAX: Final = 1000
VERSION_COUNT_MAX: Final = 10_000
"""Maximum number of versions of a subject, including deleted ones."""


class Store(Protocol):
    """The storage of a registry: it provides the state and writes records."""

    def read(self, look: Callable[[RegistryState], T]) -> T:
        """Return `look(state)`."""

    def write(self, decide: Callable[[RegistryState], tuple[Sequence[TopicRecord], T]]) -> T:
        """Call `decide(state)`, write all of the records that it returns or none, and return its result.

        Returns when the records are durable.
        """


@dataclass(frozen=True, slots=True)
class OfferedSchema:
    """A schema that a client has sent."""

    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    schema_id: int = -1
    version: int = -1
    normalize: bool = False


class Registry:
    """The operations of a schema registry. RegistryError for an error response."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # --- register, look up --------------------------------------------------------------------------------------------

    def register(self, subject: str, offered: OfferedSchema) -> SchemaVersion:
        """Register a schema under a subject and return its version.

        If the subject already has the schema, the existing version is returned.
        """
        check_subject(subject)
        changes: list[str] = []  # of the last call of `decide`

        def decide(state: RegistryState) -> tuple[list[TopicRecord], SchemaVersion]:
            mode = state.mode(subject)
            if mode in READ_ONLY:
                raise errors.not_permitted(f"Subject {subject} is in read-only mode")
            row, schema = canonical(state, subject, offered)
            live = state.versions(subject)
            added = self._import(state, row, offered) if mode == "IMPORT" else self._add(state, row, schema, offered)
            changes[:] = self._changes_of_meaning(state, schema, live[-1:]) if added[0] else []
            return added

        registered = self._store.write(decide)
        for change in changes:
            logger.warning(
                "a new version changes the meaning of its values; readers that ignore logical types (most do) "
                "will be off by a factor",
                extra=fields(subject=subject, version=registered.version, change=change),
            )
        return registered

    @staticmethod
    def _changes_of_meaning(state: RegistryState, schema: Schema, before: Sequence[SchemaVersion]) -> list[str]:
        """Return sentences about units and scales of logical types that differ from previous versions.

        [] if there are none, or if the schemas cannot be compared.
        """
        try:
            return [
                text
                for row in before
                if row.schema_type == AVRO
                for text in differences(schema.root, state.parsed(row).root)
            ]
        except (RecursionError, SchemaError):
            return []

    def _add(
        self, state: RegistryState, row: SchemaVersion, schema: Schema, offered: OfferedSchema
    ) -> tuple[list[TopicRecord], SchemaVersion]:
        if offered.schema_id >= 0:
            raise errors.not_permitted(f"Subject {row.subject} is not in import mode")
        live = state.versions(row.subject)
        for other in reversed(live):
            if other.identity == row.identity:
                return [], other
        reasons = self._reasons(state, state.level(row.subject), schema, live)
        if reasons:
            raise errors.incompatible(row.subject, reasons)
        taken = state.id_of(row)
        row = replace(
            row, version=next_version(state, row.subject), schema_id=new_id(state) if taken is None else taken
        )
        # As in Confluent's registry: registering a schema again removes a soft-deleted version of it.
        gone = [
            tombstone(other.subject, other.version)
            for other in state.versions(row.subject, deleted=True)
            if other.deleted and other.identity == row.identity
        ]
        return [schema_record(row), *gone], row

    def _import(
        self, state: RegistryState, row: SchemaVersion, offered: OfferedSchema
    ) -> tuple[list[TopicRecord], SchemaVersion]:
        """Register a schema with the id and version that it has in another registry (mode IMPORT)."""
        if not 0 < offered.schema_id <= ID_MAX:
            raise errors.not_permitted(f"Subject {row.subject} is in import mode")
        version = offered.version if offered.version > 0 else next_version(state, row.subject)
        row = replace(row, schema_id=offered.schema_id, version=version)
        owner = state.by_id(row.schema_id)
        before = state.subjects.get(row.subject, {}).get(version)
        if (owner is not None and owner.identity != row.identity) or (
            before is not None and not before.deleted and before.schema_id != row.schema_id
        ):
            raise errors.not_permitted(f"Overwrite new schema with id {row.schema_id} is not permitted.")
        return ([] if before == row else [schema_record(row)]), row

    def look_up(self, subject: str, offered: OfferedSchema, *, deleted: bool = False) -> SchemaVersion:
        """Return the version of a subject that has this schema."""
        check_subject(subject)

        def look(state: RegistryState) -> SchemaVersion:
            rows = state.versions(subject, deleted=deleted)
            if not rows:
                raise errors.subject_not_found(subject)
            row, _ = canonical(state, subject, offered)
            for other in reversed(rows):
                if other.identity == row.identity:
                    return other
            raise errors.schema_not_found()

        return self._store.read(look)

    # --- queries ------------------------------------------------------------------------------------------------------

    def subjects(self, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Return the subjects that have versions. `deleted` includes subjects whose versions are all deleted."""

        def look(state: RegistryState) -> list[str]:
            found = []
            for subject in sorted(state.subjects):
                live = any(not row.deleted for row in state.subjects[subject].values())
                if subject.startswith(prefix) and (not live if deleted_only else live or deleted):
                    found.append(subject)
            return found

        return self._store.read(look)

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Return the version numbers of a subject."""

        def look(state: RegistryState) -> list[int]:
            rows = state.versions(subject, deleted=deleted or deleted_only)
            found = [row.version for row in rows if row.deleted or not deleted_only]
            if not found:
                raise errors.subject_not_found(subject)
            return found

        return self._store.read(look)

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion:
        """Return a version of a subject. LATEST selects the highest version."""
        return self._store.read(lambda state: find_version(state, subject, version, deleted=deleted))

    def schema(self, schema_id: int) -> SchemaVersion:
        """Return a version that has this schema id. It may be deleted, because records may still refer to the id."""

        def look(state: RegistryState) -> SchemaVersion:
            row = state.by_id(schema_id)
            if row is None:
                raise errors.schema_not_found(schema_id)
            return row

        return self._store.read(look)

    def places(self, schema_id: int, *, subject: str | None = None, deleted: bool = False) -> list[SchemaVersion]:
        """Return all versions that have this schema id."""

        def look(state: RegistryState) -> list[SchemaVersion]:
            if state.by_id(schema_id) is None:
                raise errors.schema_not_found(schema_id)
            rows = state.places(schema_id)
            return [row for row in rows if (deleted or not row.deleted) and subject in {None, row.subject}]

        return self._store.read(look)

    def schemas(self, *, prefix: str = "", deleted: bool = False, latest_only: bool = False) -> list[SchemaVersion]:
        """Return all versions, ordered by subject and version."""

        def look(state: RegistryState) -> list[SchemaVersion]:
            found = []
            for subject in sorted(state.subjects):
                if subject.startswith(prefix):
                    rows = state.versions(subject, deleted=deleted)
                    found += rows[-1:] if latest_only else rows
            return found

        return self._store.read(look)

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """Return the ids of the schemas that refer to a version."""

        def look(state: RegistryState) -> list[int]:
            return state.referenced_by(subject, find_version(state, subject, version).version)

        return self._store.read(look)

    @property
    def id_max(self) -> int:
        return self._store.read(lambda state: state.id_max)

    # --- delete -------------------------------------------------------------------------------------------------------

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject. Return their numbers."""

        def decide(state: RegistryState) -> tuple[list[TopicRecord], list[int]]:
            check_writable(state, subject)
            rows, live = state.versions(subject, deleted=True), state.versions(subject)
            if not rows:
                raise errors.subject_not_found(subject)
            if permanent and live:
                raise errors.subject_not_soft_deleted(subject)
            if not permanent and not live:
                raise errors.subject_soft_deleted(subject)
            for row in live:
                check_unreferenced(state, row)
            settings = [
                setting_record(kind, subject, None)
                for kind, values in ((CONFIG, state.levels), (MODE, state.modes))
                if subject in values
            ]
            if permanent:
                gone = [tombstone(subject, row.version) for row in rows]
                return [noop(state.id_max), *gone, *settings], [row.version for row in rows]
            return [subject_deletion(subject, live[-1].version), *settings], [row.version for row in live]

        return self._store.write(decide)

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Delete one version of a subject. Return its number."""

        def decide(state: RegistryState) -> tuple[list[TopicRecord], int]:
            check_writable(state, subject)
            row = find_version(state, subject, version, deleted=True)
            if permanent and not row.deleted:
                raise errors.version_not_soft_deleted(subject, row.version)
            if not permanent and row.deleted:
                raise errors.version_soft_deleted(subject, row.version)
            check_unreferenced(state, row)
            if permanent:
                return [noop(state.id_max), tombstone(subject, row.version)], row.version
            return [schema_record(replace(row, deleted=True))], row.version

        return self._store.write(decide)

    # --- compatibility ------------------------------------------------------------------------------------------------

    def problems(self, subject: str, offered: OfferedSchema, version: int | None) -> list[str]:
        """Return the reasons why a schema is incompatible with a version of a subject; [] if it is compatible.

        If `version` is None, the schema is compared with all versions that the subject's compatibility level requires.
        """
        check_subject(subject)

        def look(state: RegistryState) -> list[str]:
            level = state.level(subject)
            if version is None:
                rows = state.versions(subject)
            else:
                try:
                    rows = [find_version(state, subject, version)]
                except errors.RegistryError:
                    if version != LATEST:
                        raise errors.version_not_found(version) from None
                    rows = []  # without versions, any schema is compatible
            _, schema = canonical(state, subject, offered)
            return self._reasons(state, level, schema, rows)

        return self._store.read(look)

    def _reasons(self, state: RegistryState, level: str, schema: Schema, rows: Sequence[SchemaVersion]) -> list[str]:
        if level == "NONE":
            return []
        if not level.endswith("_TRANSITIVE"):
            rows = rows[-1:]
        for row in reversed(rows):
            if row.schema_type != AVRO:
                return [
                    f"{{errorType:'TYPE_MISMATCH', description:'version {row.version} is of type {row.schema_type}'}}"
                ]
        try:
            return check(level, schema, [(row.version, state.parsed(row)) for row in rows])
        except RecursionError as error:
            raise errors.invalid_schema("the schema is nested too deeply for a comparison") from error
        except SchemaError as error:
            raise errors.invalid_schema(f"cannot compare with an earlier version: {error}") from error

    # --- levels and modes ---------------------------------------------------------------------------------------------

    def level(self, subject: str | None, *, or_default: bool = False) -> str:
        """Return the compatibility level of a subject, or of the registry for None.

        If the subject sets no level, return the effective one with `or_default`, else raise RegistryError.
        """
        return self._setting(CONFIG, subject, or_default=or_default)

    def set_level(self, subject: str | None, level: str) -> str:
        """Set the compatibility level of a subject, or of the registry for None. Return the level."""
        name = level.upper()
        if name not in LEVELS:
            raise errors.invalid_level()

        def decide(state: RegistryState) -> tuple[list[TopicRecord], str]:
            check_settable(state, subject)
            return [setting_record(CONFIG, subject, name)], name

        return self._store.write(decide)

    def unset_level(self, subject: str | None) -> str:
        """Remove the compatibility level of a subject, or of the registry for None. Return the previous level."""
        return self._unset(CONFIG, subject)

    def mode(self, subject: str | None, *, or_default: bool = False) -> str:
        """Return the mode of a subject, or of the registry for None.

        If the subject sets no mode, return the effective one with `or_default`, else raise RegistryError.
        """
        return self._setting(MODE, subject, or_default=or_default)

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        """Set the mode of a subject, or of the registry for None. Return the mode.

        The mode IMPORT is refused if the subject, or the registry, has schemas, unless `force` is set.
        """
        name = mode.upper()
        if name not in MODES:
            raise errors.invalid_mode()
        if subject is not None:
            check_subject(subject)

        def decide(state: RegistryState) -> tuple[list[TopicRecord], str]:
            if name == "IMPORT" and not force and state.mode(subject or "") != "IMPORT":
                there = state.versions(subject) if subject else [s for s in state.subjects if state.versions(s)]
                if there:
                    raise errors.not_permitted("Cannot import since found existing subjects")
            return [setting_record(MODE, subject, name)], name

        return self._store.write(decide)

    def unset_mode(self, subject: str | None) -> str:
        """Remove the mode of a subject, or of the registry for None. Return the previous mode."""
        return self._unset(MODE, subject)

    def _setting(self, kind: str, subject: str | None, *, or_default: bool) -> str:
        def look(state: RegistryState) -> str:
            settings, effective = settings_of(state, kind, subject)
            if subject is not None and subject not in settings and not or_default:
                raise (errors.level_not_configured if kind == CONFIG else errors.mode_not_configured)(subject)
            return effective

        return self._store.read(look)

    def _unset(self, kind: str, subject: str | None) -> str:
        def decide(state: RegistryState) -> tuple[list[TopicRecord], str]:
            settings, before = settings_of(state, kind, subject)
            if kind == CONFIG:
                check_settable(state, subject)
            if subject in settings:
                return [setting_record(kind, subject, None)], before
            if subject is not None:
                raise errors.subject_not_found(subject)
            return [], before

        return self._store.write(decide)


def settings_of(state: RegistryState, kind: str, subject: str | None) -> tuple[dict[str | None, str], str]:
    """Return all compatibility levels (CONFIG) or modes (MODE) by subject, and the effective one of `subject`.

    None is the whole registry.
    """
    if kind == CONFIG:
        return state.levels, state.level(subject or "")
    return state.modes, state.mode(subject or "")


# --- checks -----------------------------------------------------------------------------------------------------------


def check_subject(subject: str) -> None:
    """Raise RegistryError if a name is not a valid subject."""
    plain = subject.isprintable() and 0 < len(subject) <= SUBJECT_LENGTH_MAX
    if not plain or subject.startswith(":") or subject in {"__GLOBAL", "__EMPTY"}:
        raise errors.invalid_subject(subject[:SUBJECT_LENGTH_MAX])


def check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in READ_ONLY:
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")


def check_settable(state: RegistryState, subject: str | None) -> None:
    if subject is not None:
        check_subject(subject)
        check_writable(state, subject)
    elif state.mode("") in READ_ONLY:
        raise errors.not_permitted("Subject null is in read-only mode")


def check_unreferenced(state: RegistryState, row: SchemaVersion) -> None:
    if state.referenced_by(row.subject, row.version):
        raise errors.reference_exists(row.subject, row.version)


def canonical(state: RegistryState, subject: str, offered: OfferedSchema) -> tuple[SchemaVersion, Schema]:
    """Parse a client's schema. Return it as a version with canonical text, without id and version number.

    RegistryError if the schema is invalid or too large.
    """
    size = len(offered.text.encode("utf-8", "surrogatepass"))
    if size > SCHEMA_SIZE_MAX:
        raise errors.schema_too_large(size, SCHEMA_SIZE_MAX)
    try:
        schema = parse_offered(state, offered)
        text = schema.normalized() if offered.normalize else schema.text
        text.encode()
    except (SchemaError, UnicodeEncodeError) as error:
        shown: dict[str, Any] = {
            "subject": subject,
            "version": 0,
            "id": -1,
            "schemaType": offered.schema_type,
            "references": [reference.json() for reference in offered.references],
            "schema": offered.text[:1000],
        }
        inside = ",".join(f"{key}={value}" for key, value in shown.items())
        raise errors.invalid_schema(
            f"Invalid schema {{{inside}}} of type {offered.schema_type}, details: {error}"
        ) from error
    return SchemaVersion(subject, 0, 0, text, references=offered.references), schema


def parse_offered(state: RegistryState, offered: OfferedSchema) -> Schema:
    if offered.schema_type != AVRO:
        raise SchemaError(f"schema type {offered.schema_type} is not supported; only {AVRO} is")
    return parse(offered.text, state.named_types(offered.references))


def find_version(state: RegistryState, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion:
    """Return a version of a subject. LATEST selects the highest version. RegistryError if it does not exist."""
    rows = state.versions(subject, deleted=deleted)
    if not rows:
        raise errors.subject_not_found(subject)
    if version == LATEST:
        return rows[-1]
    for row in rows:
        if row.version == version:
            return row
    raise errors.version_not_found(version)


def next_version(state: RegistryState, subject: str) -> int:
    """Return the version number after the highest one, including deleted versions.

    RegistryError if there are too many.
    """
    versions = state.subjects.get(subject, {})
    if len(versions) >= VERSION_COUNT_MAX:
        raise errors.not_permitted(f"Subject {subject} has {VERSION_COUNT_MAX} versions; delete some permanently")
    return max(versions, default=0) + 1


def new_id(state: RegistryState) -> int:
    """Return the id after the highest one ever assigned. RegistryError if no id is left."""
    if state.id_max >= ID_MAX:
        raise errors.store_failed("no schema id is left")
    return state.id_max + 1
