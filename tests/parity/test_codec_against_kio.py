"""Our codec and kio's write the same bytes and read the same values, for every API, version and direction.

kio is written by others from the same schemas; where both agree on random valid messages, a misreading of ours would
have to be shared by them. What kio does with invalid bytes is no oracle: it trusts counts and refuses unknown tags.
"""

import dataclasses
import io
import typing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import NoneType, UnionType
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafkalite.wire.protocol.schema import ZERO_UUID
from tests.kit.harness.named_case import named_case
from tests.kit.harness.random_messages import EVERY_MESSAGE, REQUEST, MessageMaker, message_id, program
from tests.kit.harness.samples import sample

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def kio_class(key, version, direction):
    kind = EntityType.request if direction == REQUEST else EntityType.response
    module, _, name = schema_name_map[api_key_map[key]][version][kind].partition(":")
    return getattr(import_module(module), name)


def inner_type(hint):
    """The struct class or scalar type inside optional and array wrappings."""
    while typing.get_args(hint):
        if typing.get_origin(hint) in (UnionType, typing.Union):
            (hint,) = [arg for arg in typing.get_args(hint) if arg is not NoneType]
        else:
            hint = typing.get_args(hint)[0]
    return hint


def our_name(field):
    return field.name + "_ms" * field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))


KNOWN_TO_KIO = [case for case in EVERY_MESSAGE if case[1] in schema_name_map[api_key_map[case[0]]]]
LATER = {(18, 5), (28, 6), (42, 3)}
"""(API, version) of Kafka 4.4: test_golden_frames.py has what its Java client writes."""


def to_kio(cls, message):
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        value = getattr(message, our_name(field))
        inner = inner_type(hints[field.name])
        if isinstance(value, list):
            values[field.name] = tuple(scalar_to_kio(field, inner, item) for item in value)
        else:
            values[field.name] = scalar_to_kio(field, inner, value)
    return cls(**values)


def scalar_to_kio(field, inner, value):
    if value is None:
        return None
    if dataclasses.is_dataclass(inner):
        return to_kio(inner, value)
    kind = field.metadata["kafka_type"]
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else EPOCH + value * MILLISECOND
    if kind == "uuid":
        return None if value == ZERO_UUID else UUID(bytes=value)
    return value


def assert_same(ours, theirs):
    hints = typing.get_type_hints(type(theirs))
    for field in dataclasses.fields(theirs):
        value, expected = getattr(ours, our_name(field)), getattr(theirs, field.name)
        inner = inner_type(hints[field.name])
        if dataclasses.is_dataclass(inner) and isinstance(expected, tuple):
            assert len(value) == len(expected), field.name
            for item, other in zip(value, expected, strict=True):
                assert_same(item, other)
        elif dataclasses.is_dataclass(expected):
            assert_same(value, expected)
        elif isinstance(expected, tuple):
            assert [scalar_to_kio(field, inner, item) for item in value] == list(expected), field.name
        else:
            assert scalar_to_kio(field, inner, value) == expected, field.name


@pytest.mark.parametrize("seeds", sample([range(3), range(3, 8)], 1), ids=["three", "five more"])
def test_same_bytes_and_same_values(seeds: range):
    for case in KNOWN_TO_KIO:
        with named_case(message_id(case)):
            cls = kio_class(*case)
            for seed in seeds:
                message = MessageMaker(seed).make(*case)
                theirs = to_kio(cls, message)
                buffer = io.BytesIO()
                entity_writer(cls)(buffer, theirs)
                ours = program(*case).encode(message)
                assert ours == buffer.getvalue(), f"seed {seed}"
                assert program(*case).decode(ours) == message, f"seed {seed}"
                read_back, size = entity_reader(cls)(ours, 0)
                assert size == len(ours)
                assert_same(message, read_back)


def test_defaults_of_absent_fields_are_the_schemas():
    """Trap T6: a field that a version lacks reads as the default kio's newest version gives it."""
    for case in KNOWN_TO_KIO:
        with named_case(message_id(case)):
            cls = program(*case).message
            decoded = program(*case).decode(program(*case).encode(MessageMaker(1).make(*case)))
            prototype = cls()
            carried = {our_name(field) for field in dataclasses.fields(kio_class(*case))}
            for name in {row[0] for row in cls.FIELDS} - carried:
                assert getattr(decoded, name) == getattr(prototype, name)
