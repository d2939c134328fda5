"""Control records of the metadata log, from the schemas of Apache Kafka 4.4.0.

Written by tools/generate_metadata_records.py, do not edit.

A FIELDS row: name, type, versions, versions in which it may be null, tag and its versions.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.wire.protocol.schema import ZERO_UUID, FieldTable


@dataclass(slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """Versions 0, flexible from 0."""

    version: int = 0
    last_contained_log_timestamp: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("version", "int16", "0+"),
        ("last_contained_log_timestamp", "int64", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class SnapshotFooterRecord:
    """Versions 0, flexible from 0."""

    version: int = 0

    FIELDS: ClassVar[FieldTable] = (("version", "int16", "0+"),)


@dataclass(slots=True, kw_only=True)
class KRaftVersionRecord:
    """Versions 0, flexible from 0."""

    version: int = 0
    kraft_version: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("version", "int16", "0+"),
        ("kraft_version", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """Part of VotersRecord."""

    name: str = ""
    host: str = ""
    port: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("host", "string", "0+"),
        ("port", "uint16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class KRaftVersionFeature:
    """Part of VotersRecord."""

    min_supported_version: int = 0
    max_supported_version: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("min_supported_version", "int16", "0+"),
        ("max_supported_version", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class Voter:
    """Part of VotersRecord."""

    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    endpoints: list[Endpoint] = field(default_factory=list)
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)

    FIELDS: ClassVar[FieldTable] = (
        ("voter_id", "int32", "0+"),
        ("voter_directory_id", "uuid", "0+"),
        ("endpoints", "[]Endpoint", "0+"),
        ("kraft_version_feature", "KRaftVersionFeature", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class VotersRecord:
    """Versions 0, flexible from 0."""

    version: int = 0
    voters: list[Voter] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("version", "int16", "0+"),
        ("voters", "[]Voter", "0+"),
    )


ROWS: Final[tuple[tuple[int, type, int, int], ...]] = (
    (3, SnapshotHeaderRecord, 0, 0),
    (4, SnapshotFooterRecord, 0, 0),
    (5, KRaftVersionRecord, 0, 0),
    (6, VotersRecord, 0, 0),
)
"""Key of a record, its class, oldest and newest version."""
