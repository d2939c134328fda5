"""The topic's format: bytes of another registry's records are read, ours are the same bytes."""

import json

import pytest

from kafkalite.schema_registry import records
from kafkalite.schema_registry.records import (
    Noop,
    RecordError,
    Reference,
    SchemaChange,
    SchemaVersion,
    SettingChange,
    SubjectDeletion,
    read,
)
from kafkalite.schema_registry.state import RegistryState

SCHEMA_KEY = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
SCHEMA_VALUE = b'{"subject":"s","version":1,"id":25,"schema":"\\"string\\"","deleted":false}'
ROW = SchemaVersion("s", 1, 25, '"string"')


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        (SCHEMA_KEY, SCHEMA_VALUE, SchemaChange("s", 1, ROW)),
        (SCHEMA_KEY, None, SchemaChange("s", 1, None)),
        (
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"NONE"}',
            SettingChange("CONFIG", None, "NONE"),
        ),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', None, SettingChange("CONFIG", "s", None)),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"READONLY"}', SettingChange("MODE", "s", "READONLY")),
        (
            b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            b'{"subject":"s","version":2}',
            SubjectDeletion("s", 2),
        ),
        (b'{"keytype":"NOOP","magic":0}', None, Noop()),
        (b'{"keytype":"NOOP","magic":0}', b'{"maxId":9}', Noop(9)),
        (b'{"magic":0,"keytype":"CONTEXT","tenant":"t","context":"c"}', b'{"tenant":"t"}', Noop()),
    ],
)
def test_records_are_read(key: bytes, value: bytes | None, change: object) -> None:
    assert read(key, value) == change


def test_records_are_written_as_they_were_read() -> None:
    assert records.schema_record(ROW) == (SCHEMA_KEY, SCHEMA_VALUE)
    assert records.tombstone("s", 1) == (SCHEMA_KEY, None)
    assert records.subject_deletion("s", 2) == (
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":2}',
    )
    assert records.setting_record("CONFIG", None, "FULL") == (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    )
    assert records.setting_record("MODE", "s", None) == (b'{"keytype":"MODE","subject":"s","magic":0}', None)
    assert records.noop(9) == (b'{"keytype":"NOOP","magic":0}', b'{"maxId":9}')


def test_what_another_registry_keeps_about_a_schema_stays_with_it() -> None:
    value = {
        "subject": "s",
        "version": 1,
        "id": 3,
        "md5": "x",
        "schemaType": "PROTOBUF",
        "references": [{"name": "n", "subject": "t", "version": 4}],
        "metadata": {"properties": {"owner": "me"}},
        "schema": "message M {}",
        "deleted": True,
    }
    change = read(SCHEMA_KEY, json.dumps(value).encode())
    assert change.row.references == (Reference("n", "t", 4),)
    again = json.loads(records.schema_record(change.row).value)
    assert again == {name: value[name] for name in value if name != "md5"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"keytype":"WHAT"}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":["FULL"]}'),
        (SCHEMA_KEY, b"{}"),
        (SCHEMA_KEY, b"[]"),
        (SCHEMA_KEY, b'{"id":"1","schema":"x"}'),
        (SCHEMA_KEY, b'{"id":-1,"schema":"x"}'),
        (SCHEMA_KEY, b'{"id":1,"schema":"x","references":[3]}'),
        (b'{"keytype":"SCHEMA","subject":1,"version":1}', SCHEMA_VALUE),
        (b"[" * 100_000, None),
    ],
)
def test_what_is_no_record_is_told(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        read(key, value)


def test_an_id_belongs_to_one_schema() -> None:
    state = RegistryState()
    assert state.apply(SchemaChange("s", 1, ROW))
    assert state.apply(SchemaChange("t", 1, SchemaVersion("t", 1, 25, '"string"')))
    assert not state.apply(SchemaChange("t", 2, SchemaVersion("t", 2, 25, '"int"')))
    assert [row.subject for row in state.places(25)] == ["s", "t"]
    assert state.apply(SchemaChange("s", 1, None))
    assert state.by_id(25).subject == "t"
