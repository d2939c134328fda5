"""Generate kafkalite/broker/cluster/metadata_types.py and control_types.py from the schemas inside Kafka's jars.

    python -m tools.generate_metadata_records FOLDER           write the modules
    python -m tools.generate_metadata_records FOLDER --check   exit 1 and name the files that are out of date

FOLDER contains two jars of one release: kafka-metadata, with the records of a cluster's metadata log, which kio lacks;
and kafka-clients, with the control records that the quorum writes there. The output has the form of the protocol's
messages (tools.generate_messages).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from tools.generate_messages import (
    PYTHON_TYPES,
    ZERO,
    ZERO_UUID,
    Field,
    Message,
    Struct,
    innermost_first,
    render_struct,
)

ROOT = Path(__file__).resolve().parent.parent
METADATA_TYPES = ROOT / "kafkalite" / "broker" / "cluster" / "metadata_types.py"
CONTROL_TYPES = ROOT / "kafkalite" / "broker" / "cluster" / "control_types.py"
CONTROL = {
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
"""Types of control records, with their schema's name; 2, a change of the quorum's leader, tells a broker nothing."""


def schemas(folder: Path, jar: str, path: str) -> list[dict[str, Any]]:
    """Return the schemas below a path of a jar."""
    (found,) = [each for each in folder.glob(f"{jar}-[0-9]*.jar") if "sources" not in each.name]
    with zipfile.ZipFile(found) as archive:
        names = [name for name in archive.namelist() if name.startswith(path) and name.endswith(".json")]
        texts = [archive.read(name).decode() for name in names]
    return [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]


def load(schema: dict[str, Any]) -> Message:
    """Return a schema as a Message of tools.generate_messages."""
    versions = numbers(schema["validVersions"], range(100))
    flexible = set(numbers(schema["flexibleVersions"], versions))
    structs = load_structs(schema["name"], schema["fields"], versions)
    return Message(schema["name"], versions, flexible, innermost_first(structs))


def load_structs(name: str, fields: list[dict[str, Any]], versions: list[int]) -> list[Struct]:
    """Return a struct and those inside it."""
    found = [Struct(name, [load_field(field, versions) for field in fields])]
    for field in fields:
        if "fields" in field:
            found += load_structs(field["type"].removeprefix("[]"), field["fields"], versions)
    return found


def load_field(field: dict[str, Any], versions: list[int]) -> Field:
    """Return a field of a schema."""
    return Field(
        name=snake(field["name"]),
        kind=field["type"],
        default=default(field),
        versions=set(numbers(field["versions"], versions)),
        nullable=set(numbers(field.get("nullableVersions", ""), versions)),
        tag=field.get("tag"),
        tagged=set(numbers(field.get("taggedVersions", ""), versions)),
        must_fit=False,
    )


def default(field: dict[str, Any]) -> str:
    """Return a default as a Python literal, as in tools.generate_messages."""
    kind, given = field["type"], str(field.get("default", ""))
    if given == "null":
        return "None"
    if kind.startswith("[]"):
        return "list"
    if kind[0].isupper():
        return "struct"
    if kind == "uuid":
        return ZERO_UUID
    if given and kind == "string":
        return f'"{given}"'
    return given.capitalize() if given else ZERO[PYTHON_TYPES.get(kind, "int")]


def numbers(text: str, known: list[int] | range) -> list[int]:
    """Return the versions in Kafka's "1+", "0-2", "1" or nothing, within the existing versions."""
    if text in ("", "none"):
        return []
    first, _, last = text.rstrip("+").partition("-")
    end = known[-1] if text.endswith("+") else int(last or first)
    return [version for version in known if int(first) <= version <= end]


def snake(name: str) -> str:
    """Convert BrokerId to broker_id, and KRaftVersion to kraft_version."""
    spelled = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spelled).lower()


def render(about: str, messages: list[tuple[int, Message]], release: str) -> str:
    """Return a module with all these records, followed by their table."""
    names: set[str] = set()
    lines: list[str] = []
    for _, message in messages:
        for struct in message.structs:
            if struct.name in names:
                raise SystemExit(f"two structs are named {struct.name}")
            names.add(struct.name)
            lines += render_struct(struct, message, is_message=struct.name == message.name)
    text = "\n".join(lines)
    shared = [name for name in (ZERO_UUID, "FieldTable") if name in text]
    head = [
        f'"""{about}, from the schemas of Apache Kafka {release}.',
        "",
        "Written by tools/generate_metadata_records.py, do not edit.",
        "",
        "A FIELDS row: name, type, versions, versions in which it may be null, tag and its versions.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(["from dataclasses import field"] if "field(" in text else []),
        "from typing import ClassVar, Final",
        "",
        "from kafkalite.base.dataclass import dataclass",
        f"from kafkalite.wire.protocol.schema import {', '.join(shared)}",
    ]
    table = ["", "", "ROWS: Final[tuple[tuple[int, type, int, int], ...]] = ("]
    table += [f"    ({key}, {each.name}, {min(each.versions)}, {max(each.versions)})," for key, each in messages]
    table += [")", '"""Key of a record, its class, oldest and newest version."""', ""]
    return "\n".join([*head, text, *table])


def generate(folder: Path) -> dict[Path, str]:
    """Return the text of each module."""
    (jar,) = [each for each in folder.glob("kafka-metadata-[0-9]*.jar") if "sources" not in each.name]
    release = jar.stem.removeprefix("kafka-metadata-")
    records = sorted(
        (schema["apiKey"], load(schema)) for schema in schemas(folder, "kafka-metadata", "common/metadata/")
    )
    named = {schema["name"]: schema for schema in schemas(folder, "kafka-clients", "common/message/")}
    control = [(key, load(named[name])) for key, name in CONTROL.items()]
    return {
        METADATA_TYPES: render("Records of a cluster's metadata", records, release),
        CONTROL_TYPES: render("Control records of the metadata log", control, release),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the records of Kafka's metadata log from its jars.")
    parser.add_argument("folder", type=Path, help="directory of Kafka's jars")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file is out of date")
    arguments = parser.parse_args()
    files = generate(arguments.folder)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if arguments.check:
            sys.stderr.write(f"stale: {path.relative_to(ROOT)}\n")
        else:
            path.write_text(files[path])
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
