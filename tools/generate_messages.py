"""Write kafkalite/wire/protocol/messages/*.py and kafkalite/wire/protocol/api_table.py from kio's schemas.

    python tools/generate_messages.py            write the modules
    python tools/generate_messages.py --check    exit 1 and name the files that are out of date

kio (a development dependency) has one frozen dataclass per message and version. This tool merges the versions of a
message into one mutable dataclass with all their fields, and a field table. For each field, the table has the versions
that contain it, the versions in which it may be null, and its tag. The codec compiles this table; kio is not imported
at run time.

kio renames durations and times (`throttle_time`) and gives them rich types. The tool restores the wire's name and
integer, because handlers compute in milliseconds. Two lists supply what kio lacks: MUST_FIT, and LATER for versions
newer than kio's.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import types
import typing
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = ROOT / "kafkalite" / "wire" / "protocol" / "messages"
API_TABLE = ROOT / "kafkalite" / "wire" / "protocol" / "api_table.py"

Direction = Literal[EntityType.request, EntityType.response]

API_KEYS = (
    *(0, 1, 2, 3),
    *range(8, 52),
    *(55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 71, 72, 73, 74, 75, 80, 81),
)

# Fields whose value changes what the message means: a version that cannot carry them must not silently drop a value
# that differs from the default. (Kafka marks the others "ignorable".) A struct's name, then its fields.
MUST_FIT: dict[str, frozenset[str]] = {
    struct: frozenset(fields.split())
    for struct, fields in {
        "AddPartitionsToTxnRequest": (
            "transactions v3_and_below_transactional_id v3_and_below_producer_id v3_and_below_producer_epoch "
            "v3_and_below_topics"
        ),
        "AddPartitionsToTxnResponse": "results_by_transaction results_by_topic_v3_and_below",
        "AlterPartitionReassignmentsRequest": "allow_replication_factor_change",
        "ConsumerGroupHeartbeatRequest": "subscribed_topic_regex",
        "DeleteTopicsRequest": "topics",
        "DescribeClusterBroker": "is_fenced",
        "DescribeClusterRequest": "endpoint_type include_fenced_brokers",
        "DescribeClusterResponse": "endpoint_type",
        "DescribeConfigsRequest": "include_documentation",
        "DescribeGroupsRequest": "include_authorized_operations",
        "DescribedGroup": "error_message authorized_operations",
        "ElectLeadersRequest": "election_type",
        "ElectLeadersResponse": "error_code",
        "FeatureUpdateKey": "allow_downgrade upgrade_type",
        "FetchPartition": "last_fetched_epoch",
        "FetchRequest": "replica_id forgotten_topics_data",
        "FetchResponse": "session_id",
        "FindCoordinatorRequest": "key key_type coordinator_keys",
        "FindCoordinatorResponse": "error_code node_id host port coordinators",
        "HeartbeatRequest": "group_instance_id",
        "InitProducerIdRequest": "producer_id producer_epoch enable2_pc keep_prepared_txn",
        "InitProducerIdResponse": "ongoing_txn_producer_id ongoing_txn_producer_epoch",
        "JoinGroupRequest": "group_instance_id",
        "JoinGroupResponse": "skip_assignment",
        "LeaveGroupRequest": "member_id members",
        "LeaveGroupResponse": "members",
        "ListConfigResourcesRequest": "resource_types",
        "ListGroupsRequest": "states_filter types_filter",
        "ListOffsetsPartitionResponse": "leader_epoch",
        "ListOffsetsRequest": "isolation_level",
        "ListTransactionsRequest": "duration_filter transactional_id_pattern",
        "MetadataRequest": (
            "allow_auto_topic_creation include_cluster_authorized_operations include_topic_authorized_operations"
        ),
        "MetadataResponse": "cluster_authorized_operations",
        "MetadataResponseTopic": "topic_authorized_operations",
        "OffsetCommitRequest": "group_instance_id",
        "OffsetFetchRequest": "group_id topics groups require_stable",
        "OffsetFetchResponse": "topics groups",
        "PartitionData": "preferred_read_replica",
        "SyncGroupRequest": "group_instance_id",
        "TxnOffsetCommitRequest": "generation_id member_id group_instance_id",
        "UpdateFeaturesRequest": "validate_only",
    }.items()
}

# Arrays that are null unless set; kio's classes have no default for them.
NULL_ARRAYS = {
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("ElectLeadersRequest", "topic_partitions"),
    ("ListPartitionReassignmentsRequest", "topics"),
    ("ReassignablePartition", "replicas"),
}

# Versions of Apache Kafka 4.4, which kio does not know yet: message → version → struct → (fields that the version adds
# at the struct's end, or behind those that it drops; fields that it drops). A field: name, type, default, may be null.
LATER: dict[str, dict[int, dict[str, tuple[list[tuple[str, str, str, bool]], list[str]]]]] = {
    "ApiVersionsRequest": {
        5: {"ApiVersionsRequest": ([("cluster_id", "string", "None", True), ("node_id", "int32", "-1", False)], [])}
    },
    "ApiVersionsResponse": {5: {}},
    "DeleteGroupsRequest": {3: {}},
    "DeleteGroupsResponse": {3: {"DeletableGroupResult": ([("error_message", "string", "None", True)], [])}},
    "TxnOffsetCommitRequest": {
        6: {"TxnOffsetCommitRequestTopic": ([("topic_id", "uuid", "ZERO_UUID", False)], ["name"])}
    },
    "TxnOffsetCommitResponse": {
        6: {"TxnOffsetCommitResponseTopic": ([("topic_id", "uuid", "ZERO_UUID", False)], ["name"])}
    },
}

KAFKA_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = {
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "bytes",
    "bool": "bool",
    "float64": "float",
}
ZERO = {"str": '""', "bytes": 'b""', "bool": "False", "float": "0.0", "int": "0"}
ZERO_UUID = "ZERO_UUID"


@dataclasses.dataclass
class Field:
    """One field of a struct over all versions. `versions` and `nullable` are sets of message versions."""

    name: str
    kind: str  # as in the table: "int32", "[]string", "[]MetadataResponseTopic", "Cursor"
    default: str  # a Python literal, "list" for an empty array, "struct" for a default struct
    versions: set[int]
    nullable: set[int]
    tag: int | None
    tagged: set[int]
    must_fit: bool


@dataclasses.dataclass
class Struct:
    name: str
    fields: list[Field]


@dataclasses.dataclass
class Message:
    """A request or response: its structs, innermost first, the message itself last."""

    name: str
    versions: list[int]
    flexible: set[int]
    structs: list[Struct]


def load_message(api_name: str, direction: Direction) -> Message:
    by_version: dict[int, Any] = {}
    for version, paths in sorted(schema_name_map[api_name].items()):
        if direction in paths:
            module_name, _, class_name = paths[direction].partition(":")
            by_version[version] = getattr(importlib.import_module(module_name), class_name)
    structs: dict[str, list[tuple[int, type]]] = {}
    for version, entity in by_version.items():
        collect_structs(entity, version, structs)
    name = next(iter(by_version.values())).__name__
    message = Message(
        name=name,
        versions=list(by_version),
        flexible={version for version, entity in by_version.items() if entity.__flexible__},
        structs=innermost_first([Struct(struct, merge_fields(struct, found)) for struct, found in structs.items()]),
    )
    for version, changes in LATER.get(name, {}).items():
        add_version(message, version, changes)
    return message


def add_version(
    message: Message, version: int, changes: dict[str, tuple[list[tuple[str, str, str, bool]], list[str]]]
) -> None:
    """Add a version that kio lacks: kio's newest with the changes of LATER."""
    before = message.versions[-1]
    if version != before + 1:
        raise SystemExit(f"{message.name}: version {version} of LATER does not follow kio's newest, {before}")
    message.versions.append(version)
    message.flexible |= {version} if before in message.flexible else set()
    for struct in message.structs:
        added, dropped = changes.get(struct.name, ([], []))
        for field in struct.fields:
            if field.name not in dropped:
                for versions in (field.versions, field.nullable, field.tagged):
                    versions |= {version} if before in versions else set()
        position = 1 + max(
            (index for index, field in enumerate(struct.fields) if not dropped or field.name in dropped), default=-1
        )
        struct.fields[position:position] = [
            Field(
                name=name,
                kind=kind,
                default=default,
                versions={version},
                nullable={version} if nullable else set(),
                tag=None,
                tagged=set(),
                must_fit=name in MUST_FIT.get(struct.name, ()),
            )
            for name, kind, default, nullable in added
        ]


def innermost_first(structs: list[Struct]) -> list[Struct]:
    """Sort structs so that each comes after those that its fields use."""
    by_name = {struct.name: struct for struct in structs}
    ordered: dict[str, Struct] = {}

    def place(struct: Struct) -> None:
        for field in struct.fields:
            inner = by_name.get(field.kind.removeprefix("[]"))
            if inner is not None:
                place(inner)
        ordered.setdefault(struct.name, struct)

    for struct in structs:
        place(struct)
    return list(ordered.values())


def collect_structs(entity: Any, version: int, into: dict[str, list[tuple[int, type]]]) -> None:
    hints = typing.get_type_hints(entity)
    for field in dataclasses.fields(entity):
        inner, _, _ = unwrap(hints[field.name])
        if dataclasses.is_dataclass(inner):
            collect_structs(inner, version, into)
    found = into.setdefault(entity.__name__, [])
    if (version, entity) not in found:
        found.append((version, entity))


def unwrap(hint: Any) -> tuple[Any, bool, bool]:
    """Return the innermost type, whether it is an array, and whether the field may be null."""
    nullable = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        nullable = True
        (hint,) = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if typing.get_origin(inner) in (types.UnionType, typing.Union):
            (inner,) = [arg for arg in typing.get_args(inner) if arg is not types.NoneType]
        return inner, True, nullable
    return hint, False, nullable


def merge_fields(struct: str, found: list[tuple[int, type]]) -> list[Field]:
    """Merge the fields of all versions, newest first. A field of older versions only keeps its place after its
    predecessor."""
    merged: list[Field] = []
    for version, entity in sorted(found, key=lambda item: item[0], reverse=True):
        position = 0
        hints = typing.get_type_hints(entity)
        for source in dataclasses.fields(entity):
            field = load_field(struct, source, hints[source.name], version)
            known = next((index for index, other in enumerate(merged) if other.name == field.name), None)
            if known is None:
                merged.insert(position, field)
                position += 1
                continue
            if known < position:
                raise SystemExit(f"{struct}.{field.name}: the versions disagree about the order of fields")
            position = known + 1
            absorb(struct, merged[known], field)
    return merged


def load_field(struct: str, source: dataclasses.Field[object], hint: object, version: int) -> Field:
    inner, is_array, nullable = unwrap(hint)
    name = source.name
    if dataclasses.is_dataclass(inner):
        kind = str(inner.__name__)  # type: ignore[union-attr]  # a class, not an instance
    else:
        wire = source.metadata["kafka_type"]
        if wire.startswith(("timedelta", "datetime")):
            name += "_ms"
        kind = KAFKA_TYPES.get(wire, wire)
        if wire in ("uuid", "datetime_i64") and not is_array:
            nullable = False  # kio's None is the zero UUID, or -1
    tag = source.metadata.get("tag")
    return Field(
        name=name,
        kind="[]" * is_array + kind,
        default=default_literal(struct, source, kind, is_array=is_array),
        versions={version},
        nullable={version} if nullable else set(),
        tag=tag,
        tagged={version} if tag is not None else set(),
        must_fit=name in MUST_FIT.get(struct, ()),
    )


def default_literal(struct: str, source: dataclasses.Field[object], kind: str, *, is_array: bool) -> str:
    value = source.default
    is_struct = kind[0].isupper()
    if (struct, source.name) in NULL_ARRAYS:
        return "None"
    if value is dataclasses.MISSING:
        if is_array:
            return "list"
        if is_struct:
            return "struct"
        return ZERO_UUID if kind == "uuid" else ZERO[PYTHON_TYPES.get(kind, "int")]
    if value is None:
        if kind == "uuid" and not is_array:
            return ZERO_UUID
        return "-1" if source.metadata.get("kafka_type") == "datetime_i64" else "None"
    if is_array:
        if value != ():
            raise SystemExit(f"{source.name}: an array with a default that is not empty")
        return "list"
    if is_struct:
        return "struct"
    if isinstance(value, timedelta):
        return str(value // timedelta(milliseconds=1))
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return repr(float(value))
    return str(int(value))  # type: ignore[call-overload]


def absorb(struct: str, into: Field, field: Field) -> None:
    if (into.kind, into.tag) != (field.kind, field.tag) and not (into.tag is None or field.tag is None):
        raise SystemExit(f"{struct}.{field.name}: type or tag changes between versions")
    if into.kind != field.kind:
        raise SystemExit(f"{struct}.{field.name}: {field.kind} became {into.kind}")
    if into.default != field.default:
        raise SystemExit(f"{struct}.{field.name}: default {field.default} became {into.default}")
    into.tag = field.tag if into.tag is None else into.tag
    into.versions |= field.versions
    into.nullable |= field.nullable
    into.tagged |= field.tagged


def rename_shared_names(request: Message, response: Message) -> None:
    """Prefix a struct name that request and response share with the message's name, because both are in one module."""
    shared = {struct.name for struct in request.structs} & {struct.name for struct in response.structs}
    for message in (request, response):
        for struct in message.structs:
            if struct.name in shared:
                struct.name = message.name + struct.name
            for field in struct.fields:
                inner = field.kind.removeprefix("[]")
                if inner in shared:
                    field.kind = field.kind.replace(inner, message.name + inner)


def version_range(versions: set[int], newest: int) -> str:
    """Return versions in Kafka's notation: "3+", "0-7", "4", or "" for none."""
    if not versions:
        return ""
    first, last = min(versions), max(versions)
    if versions != set(range(first, last + 1)):
        raise SystemExit(f"versions {sorted(versions)} have a gap")
    if last == newest:
        return f"{first}+"
    return str(first) if first == last else f"{first}-{last}"


def annotation(field: Field) -> str:
    kind = field.kind.removeprefix("[]")
    inner = PYTHON_TYPES.get(kind, kind if kind[0].isupper() else "int")
    if field.kind.startswith("[]"):
        inner = f"list[{inner}]"
    return f"{inner} | None" if field.nullable else inner


def render_field(field: Field) -> str:
    if field.default == "list":
        default = "field(default_factory=list)"
    elif field.default == "struct":
        default = f"field(default_factory={field.kind})"
    else:
        default = field.default
    return f"    {field.name}: {annotation(field)} = {default}"


def render_row(field: Field, message: Message) -> str:
    newest = max(message.versions)
    row = [field.name, field.kind, version_range(field.versions, newest)]
    row.append(version_range(field.nullable, newest))
    row.append(f"{field.tag}:{version_range(field.tagged, newest)}" if field.tag is not None else "")
    row.append("must fit" if field.must_fit and field.versions != set(message.versions) else "")
    while row[-1] == "":
        row.pop()
    return "        (" + ", ".join(f'"{cell}"' for cell in row) + "),"


def render_struct(struct: Struct, message: Message, *, is_message: bool) -> list[str]:
    lines = ["", "", "@dataclass(slots=True, kw_only=True)", f"class {struct.name}:"]
    if is_message:
        newest = max(message.versions)
        span = f"{min(message.versions)}-{newest}" if len(message.versions) > 1 else str(newest)
        flexible = f", flexible from {min(message.flexible)}" if message.flexible else ", never flexible"
        lines.append(f'    """Versions {span}{flexible}."""')
    elif struct.fields:
        lines.append(f'    """Part of {message.name}."""')
    if struct.fields:
        lines.append("")
        lines += [render_field(field) for field in struct.fields]
    lines += ["", "    FIELDS: ClassVar[FieldTable] = ("]
    lines += [render_row(field, message) for field in struct.fields]
    lines.append("    )")
    if len(struct.fields) < 2:  # as the formatter wants it
        row = "".join(render_row(field, message).strip() for field in struct.fields)
        lines[-2 - len(struct.fields) :] = [f"    FIELDS: ClassVar[FieldTable] = ({row})"]
    return lines


def render_module(api_key: int, api_name: str, messages: list[Message]) -> str:
    body: list[str] = []
    for message in messages:
        for struct in message.structs:
            body += render_struct(struct, message, is_message=struct.name == message.name)
    text = "\n".join(body)
    shared = [ZERO_UUID, "FieldTable"] if ZERO_UUID in text else ["FieldTable"]
    head = [
        f'"""{title(api_name)} (API key {api_key}): generated by tools/generate_messages.py, do not edit.',
        "",
        "A FIELDS row: name, type, versions, versions in which it may be null, tag and its versions, whether a version",
        "without it must refuse another value than the default.",
        '"""',
        "",
        *(["from dataclasses import field"] if "field(" in text else []),
        "from typing import ClassVar",
        "",
        "from kafkalite.base.dataclass import dataclass",
        f"from kafkalite.wire.protocol.schema import {', '.join(shared)}",
    ]
    return "\n".join(head) + text.rstrip().join(["\n", "\n"])


def title(api_name: str) -> str:
    return "".join(word.capitalize() for word in api_name.split("_"))


def render_api_table(rows: list[tuple[int, str, Message, Message]]) -> str:
    lines = [
        '"""Every API with generated messages: written by tools/generate_messages.py, do not edit.',
        "",
        "Rows: key, name, module in kafkalite.wire.protocol.messages, oldest version, newest version, first flexible",
        "version (-1: never). What the broker serves is in kafkalite/broker/handlers/table.py, not here.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "ROWS: Final[tuple[tuple[int, str, str, int, int, int], ...]] = (",
    ]
    for key, name, request, response in rows:
        if request.versions != response.versions or request.flexible != response.flexible:
            raise SystemExit(f"{name}: request and response versions differ")
        flexible = min(request.flexible, default=-1)
        lines.append(
            f'    ({key}, "{title(name)}", "{name}", {min(request.versions)}, {max(request.versions)}, {flexible}),'
        )
    return "\n".join([*lines, ")", ""])


def generate() -> dict[Path, str]:
    files: dict[Path, str] = {}
    rows = []
    used: dict[str, set[str]] = {}
    for key in API_KEYS:
        name = api_key_map[key]
        request = load_message(name, EntityType.request)
        response = load_message(name, EntityType.response)
        rename_shared_names(request, response)
        for struct in (*request.structs, *response.structs):
            used.setdefault(struct.name, set()).update(field.name for field in struct.fields)
        files[MESSAGES / f"{name}.py"] = render_module(key, name, [request, response])
        rows.append((key, name, request, response))
    for name, fields in MUST_FIT.items():
        if not fields <= used.get(name, set()):
            raise SystemExit(f"MUST_FIT names fields that {name} does not have: {fields - used.get(name, set())}")
    files[API_TABLE] = render_api_table(rows)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the message modules from kio's schemas.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file is out of date")
    files = generate()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in MESSAGES.glob("*.py") if path not in files and path.name != "__init__.py"]
    if parser.parse_args().check:
        for path in stale:
            sys.stderr.write(f"stale: {path.relative_to(ROOT)}\n")
        return 1 if stale else 0
    for path in stale:
        if path in files:
            path.write_text(files[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
