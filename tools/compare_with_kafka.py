"""Compare the generated field tables with Apache Kafka's own message specifications.

    python tools/compare_with_kafka.py KAFKA/clients/src/main/resources/common/message

The tables are generated from kio (tools/generate_messages.py). This is an independent check of names, types, versions,
nullability, tags, defaults and whether a field may be dropped. It prints one line per difference, and exits with status
1 if there is any in a version that both support. Kafka's directory is not part of this repository.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kafkalite.wire.protocol.api import APIS, Api  # noqa: E402 - the tree this file is in, not an installed one
from kafkalite.wire.protocol.schema import ZERO_UUID, covers  # noqa: E402

COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
# Names that changed without a change on the wire, where kio still has the older one.
OLDER_NAMES = {("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generation_id"}
ZERO_DEFAULTS = {"string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID, "bool": False, "float64": 0.0}


def snake_case(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def load_specification(path: Path) -> dict[str, Any]:
    specification: dict[str, Any] = json.loads(COMMENT.sub("", path.read_text()))
    return specification


def tag_of(field: dict[str, Any], version: int) -> int | None:
    return field["tag"] if "tag" in field and covers(field["taggedVersions"], version) else None


def kafka_versions(text: str) -> str:
    return "" if text == "none" else text


def expected_default(field: dict[str, Any]) -> object:
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return ...  # a default instance
    if text is None:
        return ZERO_DEFAULTS.get(kind, 0)
    if kind == "bool":
        return text in (True, "true")
    if kind == "string":
        return text
    return float(text) if kind == "float64" else int(str(text), 0)


class Comparison:
    def __init__(self, api: Api, specification: dict[str, Any]) -> None:
        self.api = api
        self.name = specification["name"]
        self.common = {struct["name"]: struct["fields"] for struct in specification.get("commonStructs", [])}
        self.differences: list[str] = []
        self.namespace = vars(import_module(f"kafkalite.wire.protocol.messages.{api.module}"))
        for version in range(api.oldest, api.newest + 1):
            self.compare_struct(self.namespace[self.name], specification["fields"], version, self.name)

    def report(self, version: int, where: str, what: str) -> None:
        self.differences.append(f"{where} v{version}: {what}")

    def compare_struct(self, cls: Any, fields: list[dict[str, Any]], version: int, where: str) -> None:
        ours = [row + ("",) * (6 - len(row)) for row in cls.FIELDS if covers(row[2], version)]
        theirs = [field for field in fields if covers(kafka_versions(field["versions"]), version)]
        names = [snake_case(field["name"]) for field in theirs]
        names = [OLDER_NAMES.get((cls.__name__, name), name) for name in names]
        if [row[0] for row in ours] != names:
            self.report(version, where, f"fields {[row[0] for row in ours]}, Kafka {names}")
            return
        for row, field in zip(ours, theirs, strict=True):
            self.compare_field(cls, row, field, version, f"{where}.{row[0]}")

    def compare_field(self, cls: Any, row: tuple[str, ...], field: dict[str, Any], version: int, where: str) -> None:
        _, kind, _, nullable, tag, must_fit = row
        inner = field["type"].removeprefix("[]")
        is_struct = inner[0].isupper()
        if not is_struct and kind != field["type"]:
            self.report(version, where, f"type {kind}, Kafka {field['type']}")
        if covers(nullable, version) != covers(kafka_versions(field.get("nullableVersions", "")), version):
            self.report(version, where, f"nullable {nullable!r}, Kafka {field.get('nullableVersions')!r}")
        number, _, versions = tag.partition(":")
        our_tag = int(number) if covers(versions, version) else None
        if our_tag != tag_of(field, version):
            self.report(version, where, f"tag {our_tag}, Kafka {tag_of(field, version)}")
        default, expected = getattr(cls(), row[0]), expected_default(field)
        if expected is not ... and default != expected:
            self.report(version, where, f"default {default!r}, Kafka {expected!r}")
        everywhere = all(covers(field["versions"], v) for v in range(self.api.oldest, self.api.newest + 1))
        if must_fit and (everywhere or field.get("ignorable")):
            self.report(version, where, "must fit, Kafka says ignorable")
        if is_struct:
            struct = self.namespace[kind.removeprefix("[]")]
            self.compare_struct(struct, field.get("fields") or self.common[inner], version, where)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the field tables with Kafka's specifications.")
    parser.add_argument(
        "directory", type=Path, help="directory clients/src/main/resources/common/message of Kafka's sources"
    )
    directory = parser.parse_args().directory
    differences: list[str] = []
    for api in APIS.values():
        for direction in ("Request", "Response"):
            specification = load_specification(directory / f"{api.name}{direction}.json")
            differences += Comparison(api, specification).differences
    sys.stdout.writelines(line + "\n" for line in differences)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
