"""Records of the metadata log: frames, versions, what is refused. Kafka's own bytes: tests/integration."""

import dataclasses

import pytest

from kafkalite._native.wire.columns import seal
from kafkalite.broker.cluster import control_types, metadata_types
from kafkalite.broker.cluster.records import MetadataFault, decode_value, encode_value, read_batches
from kafkalite.wire.record.batches import encode_batch
from kafkalite.wire.record.columns import BytesColumn, RecordColumns
from tests.kit.fakes.controller import control_batch, data_batch

EVERY = [(cls, version) for _, cls, oldest, newest in metadata_types.ROWS for version in range(oldest, newest + 1)]
TOPIC_ID = bytes(range(16))


def filled(cls: type, version: int) -> object:
    """A record with a value that is no default in each field that this version carries."""
    record = cls()
    for name, kind, versions, *_ in cls.FIELDS:
        first, _, last = versions.rstrip("+").partition("-")
        if version < int(first) or (last and version > int(last)):
            continue
        setattr(record, name, value_of(kind, version))
    return record


def value_of(kind: str, version: int) -> object:
    if kind.startswith("[]"):
        return [value_of(kind[2:], version)]
    if kind[0].isupper():
        return filled(getattr(metadata_types, kind), version)
    return {"string": "név", "bytes": b"\0\xff", "uuid": TOPIC_ID, "bool": True, "float64": -1.5}.get(kind, 7)


@pytest.mark.parametrize(("cls", "version"), EVERY, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_record_comes_back_as_it_went(cls: type, version: int) -> None:
    record = filled(cls, version)
    value = encode_value(record, version)
    assert decode_value(value) == record
    assert encode_value(decode_value(value), version) == value


def test_known_bytes_of_a_feature_level() -> None:
    value = bytes.fromhex("010c00") + bytes((17,)) + b"metadata.version" + b"\x00\x1b\x00"
    assert decode_value(value) == metadata_types.FeatureLevelRecord(name="metadata.version", feature_level=27)
    assert encode_value(metadata_types.FeatureLevelRecord(name="metadata.version", feature_level=27), 0) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x02\x0c\x00", "frame version 2"),
        (b"\x01\x1e\x00", "record type 30"),
        (b"\x01\x06\x00", "record type 6"),
        (b"\x01\x03\x03", "PartitionRecord has version 3"),
        (b"\x01", "truncated"),
        (b"", "truncated"),
        (b"\x01\x14\x00", "invalid NoOpRecord version 0"),
        (b"\x01\x14\x00\x00\x00", "invalid NoOpRecord version 0"),
        (b"\x01" + b"\xff" * 12, "truncated"),
    ],
)
def test_record_that_is_not_known_is_a_fault_in_words(value: bytes, why: str) -> None:
    with pytest.raises(MetadataFault, match=why):
        decode_value(value)


def test_unknown_tags_are_stepped_over() -> None:
    record = metadata_types.TopicRecord(name="a", topic_id=TOPIC_ID)
    value = encode_value(record, 0)
    assert value[-1] == 0  # no tags
    assert decode_value(value[:-1] + b"\x01\x63\x02\xab\xcd") == record


def test_batches_tell_offsets_epoch_and_records() -> None:
    topic = metadata_types.TopicRecord(name="a", topic_id=TOPIC_ID)
    data = data_batch(5, 3, topic, metadata_types.NoOpRecord()) + data_batch(7, 4, metadata_types.NoOpRecord())
    first, second = read_batches(data + data_batch(8, 4, topic)[:-1])  # the last is cut off
    assert (first.base_offset, first.last_offset, first.epoch) == (5, 6, 3)
    assert first.records == ((5, topic), (6, metadata_types.NoOpRecord()))
    assert (second.base_offset, second.epoch) == (7, 4)


def test_flipped_byte_is_a_fault() -> None:
    data = bytearray(data_batch(0, 1, metadata_types.TopicRecord(name="abc", topic_id=TOPIC_ID)))
    data[-3] ^= 1
    with pytest.raises(MetadataFault, match="invalid batch"):
        list(read_batches(bytes(data)))


def test_control_records_are_read_and_what_tells_nothing_is_passed_over() -> None:
    voters = control_types.VotersRecord(voters=[control_types.Voter(voter_id=3, voter_directory_id=TOPIC_ID)])
    (batch,) = read_batches(control_batch(0, 1, (2, b"\0\0ignored"), (6, voters)))
    assert batch.records == ((1, voters),)
    assert batch.last_offset == 1


def test_record_that_contradicts_its_size_is_a_fault() -> None:
    draft = bytearray(encode_batch(columns(encode_value(metadata_types.NoOpRecord(), 0)))[0])
    draft[61] -= 6  # the record's own length
    seal(draft, attributes=0, count=1, base_timestamp=0, max_timestamp=0)
    with pytest.raises(MetadataFault):
        list(read_batches(bytes(draft)))


def columns(value: bytes) -> RecordColumns:
    return dataclasses.replace(RecordColumns.from_records([]), values=BytesColumn.from_items([value]))
