"""Encode and decode the records of the registry's topic, in the format of Confluent's registry.

    a version of a subject
        key     {"keytype":"SCHEMA","subject":s,"version":v,"magic":1}
        value   {"subject":s,"version":v,"id":i,"schema":text,"deleted":false}
                and, if they are not empty, "schemaType", "references", "metadata", "ruleSet", "schemaTags";
                null: deleted permanently
    a compatibility level; the subject is null for the global level
        key     {"keytype":"CONFIG","subject":s or null,"magic":0}
        value   {"compatibilityLevel":"FULL"}; null: the default
    a mode; the subject is null for the global mode
        key     {"keytype":"MODE","subject":s or null,"magic":0}
        value   {"mode":"READONLY"}; null: the default
    a soft delete of a subject, up to version v
        key     {"keytype":"DELETE_SUBJECT","subject":s,"magic":0}
        value   {"subject":s,"version":v}
    the highest id that was ever assigned
        key     {"keytype":"NOOP","magic":0}
        value   null, or only from kafkalite: {"maxId":i}

Confluent's registry can use the same topic. Compaction compares the bytes of keys, so their attributes always have this
order and no white space.

Pure: no I/O, no state.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA, CONFIG, MODE, DELETE_SUBJECT, NOOP = "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "NOOP"
AVRO: Final = "AVRO"
CARRIED: Final = ("metadata", "ruleSet", "schemaTags")
"""Attributes of Confluent's records that are stored and returned, but have no effect."""
ID_MAX: Final = 2**31 - 1


class TopicRecord(NamedTuple):
    """The key and value of one record."""

    key: bytes
    value: bytes | None


class RecordError(ValueError):
    """A record that does not have a known format."""


class Reference(NamedTuple):
    """A reference to a version of a subject, which defines a type with this full name."""

    name: str
    subject: str
    version: int

    def json(self) -> dict[str, object]:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject, with its schema and the schema's id."""

    subject: str
    version: int
    schema_id: int
    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    carried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[object, ...]:
        """The value that identifies a schema. Equal schemas have the same id in all subjects."""
        return (self.schema_type, self.text, self.references, dumps(self.carried))


class SchemaChange(NamedTuple):
    subject: str
    version: int
    row: SchemaVersion | None


class SettingChange(NamedTuple):
    """A change of a compatibility level (CONFIG) or mode (MODE).

    `subject` is None for the global setting. `value` is None if the setting was removed.
    """

    kind: str
    subject: str | None
    value: str | None


class SubjectDeletion(NamedTuple):
    subject: str
    version: int


class Noop(NamedTuple):
    id_max: int = 0


Change = SchemaChange | SettingChange | SubjectDeletion | Noop


def dumps(value: object) -> str:
    """Return a value as JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def schema_record(row: SchemaVersion) -> TopicRecord:
    """Return the record that stores a version."""
    value: dict[str, object] = {"subject": row.subject, "version": row.version, "id": row.schema_id}
    if row.schema_type != AVRO:
        value["schemaType"] = row.schema_type
    if row.references:
        value["references"] = [reference.json() for reference in row.references]
    value |= dict(row.carried)
    value |= {"schema": row.text, "deleted": row.deleted}
    return TopicRecord(schema_key(row.subject, row.version), dumps(value).encode())


def schema_key(subject: str, version: int) -> bytes:
    return _key(SCHEMA, subject=subject, version=version, magic=1)


def tombstone(subject: str, version: int) -> TopicRecord:
    """Return the tombstone that deletes a version permanently."""
    return TopicRecord(schema_key(subject, version), None)


def setting_record(kind: str, subject: str | None, value: str | None) -> TopicRecord:
    """Return the record that sets a compatibility level (CONFIG) or mode (MODE). The value None removes the setting."""
    name = "compatibilityLevel" if kind == CONFIG else "mode"
    text = None if value is None else dumps({name: value}).encode()
    return TopicRecord(_key(kind, subject=subject, magic=0), text)


def subject_deletion(subject: str, version: int) -> TopicRecord:
    """Return the record that soft-deletes all versions of a subject up to `version`."""
    value = dumps({"subject": subject, "version": version}).encode()
    return TopicRecord(_key(DELETE_SUBJECT, subject=subject, magic=0), value)


def noop(id_max: int) -> TopicRecord:
    """Return the record that marks all ids up to `id_max` as assigned.

    So the id of a permanently deleted schema is not assigned again. Confluent's registry ignores the record's value.
    """
    return TopicRecord(_key(NOOP, magic=0), dumps({"maxId": id_max}).encode())


def _key(keytype: str, **rest: object) -> bytes:
    return dumps({"keytype": keytype, **rest}).encode()


def read(key: bytes | None, value: bytes | None) -> Change:
    """Decode a record of the topic. RecordError if its format is unknown. Unknown attributes are ignored."""
    try:
        head = json.loads(key or b"")
        body = json.loads(value) if value else None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not valid JSON: {error}") from error
    if not isinstance(head, dict) or not isinstance(body, dict | None):
        raise RecordError("not a JSON object")
    try:
        return _READERS[head["keytype"]](head, body)
    except (KeyError, TypeError) as error:
        raise RecordError(f"{str(head)[:200]}: {type(error).__name__} {error}") from error


def _read_schema(head: dict[str, Any], body: dict[str, Any] | None) -> Change:
    subject, version = text_of(head["subject"]), number_of(head["version"])
    if body is None:
        return SchemaChange(subject, version, None)
    row = SchemaVersion(
        subject,
        version,
        number_of(body["id"]),
        text_of(body["schema"]),
        body.get("schemaType") or AVRO,
        tuple(
            Reference(text_of(row["name"]), text_of(row["subject"]), number_of(row["version"]))
            for row in body.get("references") or ()
        ),
        body.get("deleted") is True,
        {name: body[name] for name in CARRIED if body.get(name)},
    )
    return SchemaChange(subject, version, row)


def _read_setting(head: dict[str, Any], body: dict[str, Any] | None) -> Change:
    subject = head.get("subject")
    name = "compatibilityLevel" if head["keytype"] == CONFIG else "mode"
    value = body.get(name) if body is not None else None
    return SettingChange(
        head["keytype"], None if subject is None else text_of(subject), None if value is None else text_of(value)
    )


def _read_deletion(head: dict[str, Any], body: dict[str, Any] | None) -> Change:
    subject = text_of(head["subject"])
    return SubjectDeletion(subject, 0 if body is None else number_of(body["version"]))


def _read_noop(_head: dict[str, Any], body: dict[str, Any] | None) -> Change:
    return Noop(number_of(body.get("maxId", 0)) if body else 0)


def _read_nothing(_head: dict[str, Any], _body: dict[str, Any] | None) -> Change:
    return Noop()


_READERS: Final = {
    SCHEMA: _read_schema,
    CONFIG: _read_setting,
    MODE: _read_setting,
    DELETE_SUBJECT: _read_deletion,
    NOOP: _read_noop,
    "CLEAR_SUBJECT": _read_nothing,
    "CONTEXT": _read_nothing,
}


def text_of(value: object) -> str:
    """Return the value if it is a string. TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def number_of(value: object) -> int:
    """Return the value if it is an integer in the range of ids and versions. TypeError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= ID_MAX:
        raise TypeError(f"{value!r} is not an id or version")
    return value
