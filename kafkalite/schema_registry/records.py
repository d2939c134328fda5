"""The records of the registry's topic, in Confluent's format, so that a topic can be moved between the two.

    key                                                              value
    {"keytype":"SCHEMA","subject":s,"version":v,"magic":1}           {"subject":s,"version":v,"id":i,"schema":text,
                                                                      "deleted":false} and, where they say something,
                                                                      "schemaType", "references", "metadata", "ruleSet";
                                                                      null: gone for good
    {"keytype":"CONFIG","subject":s or null,"magic":0}               {"compatibilityLevel":"FULL"}; null: as the default
    {"keytype":"MODE","subject":s or null,"magic":0}                 {"mode":"READONLY"}; null: as the default
    {"keytype":"DELETE_SUBJECT","subject":s,"magic":0}               {"subject":s,"version":v}: all up to v soft deleted
    {"keytype":"NOOP","magic":0}                                     null, or ours: {"maxId":i}

The bytes of a key decide what compaction keeps, so its attributes stand in this order, without white space. The value
of a NOOP is not looked at by Confluent's registry; ours holds the highest id that was ever given away, so that an id
whose last schema is deleted for good is not given to another.

Pure: bytes and objects.
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
"""Attributes of Confluent's records that are kept and shown, and mean nothing here."""
ID_MAX: Final = 2**31 - 1


class TopicRecord(NamedTuple):
    """One record as it stands in the topic."""

    key: bytes
    value: bytes | None


class RecordError(ValueError):
    """A record that is none of these."""


class Reference(NamedTuple):
    """A type of another schema that a schema uses by its full name."""

    name: str
    subject: str
    version: int

    def json(self) -> dict[str, object]:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject."""

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
        """What is the same for the same schema: it has the same id in every subject."""
        return (self.schema_type, self.text, self.references, dumps(self.carried))


class SchemaChange(NamedTuple):
    subject: str
    version: int
    row: SchemaVersion | None


class SettingChange(NamedTuple):
    """A level (CONFIG) or a mode, of a subject or (None) of all; None: no longer set."""

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
    """JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def schema_record(row: SchemaVersion) -> TopicRecord:
    """A version as it is now."""
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
    """A version that is gone for good."""
    return TopicRecord(schema_key(subject, version), None)


def setting_record(kind: str, subject: str | None, value: str | None) -> TopicRecord:
    """A level (CONFIG) or mode (MODE); None takes it back."""
    name = "compatibilityLevel" if kind == CONFIG else "mode"
    text = None if value is None else dumps({name: value}).encode()
    return TopicRecord(_key(kind, subject=subject, magic=0), text)


def subject_deletion(subject: str, version: int) -> TopicRecord:
    """All versions up to this one are soft deleted."""
    value = dumps({"subject": subject, "version": version}).encode()
    return TopicRecord(_key(DELETE_SUBJECT, subject=subject, magic=0), value)


def noop(id_max: int) -> TopicRecord:
    """Ids up to this one are taken."""
    return TopicRecord(_key(NOOP, magic=0), dumps({"maxId": id_max}).encode())


def _key(keytype: str, **rest: object) -> bytes:
    return dumps({"keytype": keytype, **rest}).encode()


def read(key: bytes | None, value: bytes | None) -> Change:
    """What a record of the topic says; RecordError for one that says nothing known. Unknown attributes are ignored."""
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
    """A text; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def number_of(value: object) -> int:
    """A whole number that fits an id; TypeError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= ID_MAX:
        raise TypeError(f"{value!r} is not an id or version")
    return value
