"""Decode the batches of a cluster's metadata log into records of Kafka's schemas.

    value    frame version, api key and record version, an unsigned varint each; then the record at that version
    control  key: int16 version, int16 type; value: the record, which begins with its own version

A metadata record of an unknown type raises MetadataFault. If it were skipped, the image would differ from the
controllers' state. A control record of an unknown type is skipped.

Source: MetadataRecordSerde and ControlRecordUtils of Kafka 4.1; schemas of 4.4. Does no I/O; any thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite._native.wire.batch import HEADER_SIZE, BatchError, check
from kafkalite._native.wire.codec import CodecError, Program
from kafkalite.broker.cluster import control_types, metadata_types
from kafkalite.wire.record.batches import next_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite._native.wire.batch import BatchInfo

FRAME_VERSION: Final = 1
METADATA_LEVELS: Final = (7, 33)
"""The supported levels of metadata.version: the oldest is 3.3-IV3, the newest 4.4-IV2."""
NEWEST_RELEASE: Final = "4.4"
"""The release of Apache Kafka whose metadata.version is the newest of these levels."""
NOT_SERVED: Final = "--feature share.version=0 --feature streams.version=0"
"""Format options that disable features which NEWEST_RELEASE enables by default and this release does not support."""
CONTROL_TYPES: Final = {row[0]: row[1:] for row in control_types.ROWS}
"""The supported control records: type → class, oldest and newest version."""
RECORD_TYPES: Final = {row[0]: row[1:] for row in metadata_types.ROWS}
"""The supported metadata records: key → class, oldest and newest version."""
_NAMESPACES: Final = {False: vars(metadata_types), True: vars(control_types)}
_VARINT_SIZE_MAX: Final = 10
_DECOMPRESSED_SIZE_MAX: Final = 64 << 20


class MetadataFault(Exception):
    """The metadata log cannot be applied, so the broker cannot continue. The message is one sentence."""


def taken_when_formatted(off: str = NOT_SERVED) -> str:
    """Return the end of a sentence that explains how to format controllers of a later release.

    `off` has the options that disable the features which this release does not support.
    """
    return f"format the controllers with --release-version {NEWEST_RELEASE} {off}"


class Batch(NamedTuple):
    """A decoded batch of the log."""

    base_offset: int
    last_offset: int
    epoch: int
    """The quorum epoch of the leader that wrote the batch."""
    records: tuple[tuple[int, Any], ...]
    """(offset, record) pairs; a record's class is in `metadata_types` or `control_types`."""


def read_batches(data: bytes | memoryview) -> Iterator[Batch]:
    """Yield the complete batches in a piece of the log. An incomplete last batch is ignored. Raises MetadataFault.

    The batches have magic 2, like those of topics, and may be compressed. Kafka's controllers never compress them.
    """
    view = memoryview(data)
    position = 0
    try:
        while (info := next_whole(view, position)) is not None:
            batch = view[position : position + info.size]
            check(batch)
            yield Batch(info.base_offset, info.last_offset, info.leader_epoch, _records(info, batch))
            position += info.size
    except (BatchError, ValueError) as error:
        raise MetadataFault(f"invalid batch in the metadata log: {error}") from error


def whole_size(data: bytes | bytearray | memoryview) -> int:
    """Return the total size in bytes of the complete batches at the beginning of `data`. Raises MetadataFault."""
    position = 0
    try:
        while (info := next_whole(data, position)) is not None:
            position += info.size
    except BatchError as error:
        raise MetadataFault(f"invalid batch in the metadata log: {error}") from error
    return position


def decode_value(value: bytes | memoryview) -> Any:
    """Decode a record from its value in a data batch. Raises MetadataFault if this release does not support the
    record.
    """
    version, position = _unsigned(value, 0)
    if version != FRAME_VERSION:
        raise MetadataFault(
            f"a metadata record has frame version {version}, but this release supports only {FRAME_VERSION}"
        )
    key, position = _unsigned(value, position)
    version, position = _unsigned(value, position)
    row = RECORD_TYPES.get(key)
    if row is None:
        raise MetadataFault(f"this release does not support metadata record type {key}")
    cls, oldest, newest = row
    if not oldest <= version <= newest:
        raise MetadataFault(
            f"metadata record {cls.__name__} has version {version}, but this release supports {oldest} to {newest}"
        )
    return _decode(cls, version, False, memoryview(value)[position:])


def encode_value(record: object, version: int) -> bytes:
    """Encode a record in this version, as its value in a data batch."""
    (key,) = (key for key, row in RECORD_TYPES.items() if row[0] is type(record))
    assert key < 0x80 and version < 0x80, "one byte each"  # noqa: PT018  # otherwise the frame differs
    return bytes((FRAME_VERSION, key, version)) + _program(RECORD_TYPES[key][0], version, False).encode(record)


def _records(info: BatchInfo, batch: memoryview) -> tuple[tuple[int, Any], ...]:
    data = batch[HEADER_SIZE:]
    if info.codec:
        from kafkalite.wire.record.compression import decompress

        data = memoryview(decompress(info.codec, data, _DECOMPRESSED_SIZE_MAX))
    found = []
    position = 0
    for _ in range(info.record_count):
        size, position = _signed(data, position)
        end = position + size
        _, at = _signed(data, position + 1)  # skip the attributes, and then the unused timestamp
        offset_delta, at = _signed(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        if not position < at <= end <= len(data):
            raise MetadataFault(f"the record at offset {info.base_offset + offset_delta} does not match its size field")
        record = _control(key, value) if info.is_control else decode_value(value or b"")
        if record is not None:
            found.append((info.base_offset + offset_delta, record))
        position = end
    return tuple(found)


def _control(key: memoryview | None, value: memoryview | None) -> Any:
    """Decode a control record. Return None for a type that does not concern a broker."""
    if key is None or value is None or len(key) < 4 or len(value) < 2:
        raise MetadataFault("a control record of the metadata log is truncated")
    row = CONTROL_TYPES.get(int.from_bytes(key[2:4], "big"))
    if row is None:
        return None
    cls, oldest, newest = row
    version = int.from_bytes(value[:2], "big")
    if not oldest <= version <= newest:
        raise MetadataFault(
            f"control record {cls.__name__} has version {version}, but this release supports {oldest} to {newest}"
        )
    return _decode(cls, version, True, value)


def _decode(cls: type, version: int, control: bool, body: memoryview) -> Any:
    try:
        return _program(cls, version, control).decode(body)
    except CodecError as error:
        raise MetadataFault(f"invalid {cls.__name__} version {version}: {error}") from error


@lru_cache(maxsize=128)
def _program(cls: type, version: int, control: bool) -> Program:
    return Program(cls, version, True, _NAMESPACES[control])


def _bytes(data: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = _signed(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def _signed(data: memoryview, position: int) -> tuple[int, int]:
    value, position = _unsigned(data, position)
    return (value >> 1) ^ -(value & 1), position


def _unsigned(data: bytes | memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_SIZE_MAX):
        if position + index >= len(data):
            break
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise MetadataFault("a metadata record is truncated")
