"""Show a schema registry: subjects, versions, changes between versions, and the groups that read a subject's topic.

The pages work with any registry that has Confluent's interface.

Thread rule: any thread. Each request gets its own registry client.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.console.rendering import visible
from kafkalite.console.requests import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.console.requests import Request

PAGE_SIZE: Final = 100
DIFF_MAX: Final = 2000
"""Lines."""
SUFFIXES: Final = ("-value", "-key")


class Subjects:
    """The pages about the schema registry."""

    def __init__(self, open_registry: Callable[[], RegistryClient]) -> None:
        self._open_registry = open_registry

    @contextlib.contextmanager
    def _registry(self) -> Iterator[RegistryClient]:
        """Open a registry client during a `with` block.

        An error of the registry becomes a BadRequestError, or a NotFoundError for status 404.
        """
        try:
            with self._open_registry() as registry:
                yield registry
        except RegistryUnreachable as error:
            raise BadRequestError(f"cannot reach the schema registry: {error}") from error
        except RegistryRefused as error:
            if error.status == 404:
                raise NotFoundError(str(error)) from error
            raise BadRequestError(f"the schema registry rejected the request: {error}") from error

    def list_page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the subjects whose names contain a text."""
        sought, page = request.text("q"), request.number("page", 1, 1, 10**6)
        with self._registry() as registry:
            names = [name for name in sorted(registry.request("GET", "/subjects")) if sought.lower() in name.lower()]
            level = registry.request("GET", "/config").get("compatibilityLevel", "")
        topics = request.topics(client)
        shown = names[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        return {
            "q": sought,
            "level": level,
            "subjects": [{"name": name, "topic": topic_of(name, topics)} for name in shown],
            "count": len(names),
            "page": page,
            "pages": max(1, -(-len(names) // PAGE_SIZE)),
        }

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the page of one version of a subject, with its changes since the previous version."""
        name = request.values[0]
        path = f"/subjects/{quote(name, safe='')}"
        with self._registry() as registry:
            versions: list[int] = registry.request("GET", f"{path}/versions")
            version = request.number("version", versions[-1], 1, 2**31 - 1)
            before = request.number("before", previous(versions, version), 0, 2**31 - 1)
            found = registry.request("GET", f"{path}/versions/{version}")
            older = registry.request("GET", f"{path}/versions/{before}") if before else None
            level = ""
            with contextlib.suppress(RegistryRefused):
                level = registry.request("GET", f"/config/{quote(name, safe='')}").get("compatibilityLevel", "")
            used: list[int] = []
            with contextlib.suppress(RegistryRefused):
                used = registry.request("GET", f"{path}/versions/{version}/referencedby")
        text = pretty(found["schema"])
        topic = topic_of(name, client.described(name.removesuffix(suffix) for suffix in SUFFIXES))
        return {
            "subject": name,
            "versions": versions,
            "number": version,
            "before": before,
            "id": found["id"],
            "kind": found.get("schemaType", "AVRO"),
            "level": level,
            "schema": visible(text),
            "references": [
                {"name": visible(str(row.get("name", ""))), "subject": row["subject"], "version": row["version"]}
                for row in found.get("references", ())
            ],
            "referenced_by": used,
            "topic": topic,
            "groups": readers_of(client, topic) if topic else [],
            "diff": [] if older is None else changes(pretty(older["schema"]), text),
        }


def previous(versions: list[int], version: int) -> int:
    """Return the previous version; 0 if there is none."""
    return max((each for each in versions if each < version), default=0)


def topic_of(subject: str, topics: Container[str]) -> str:
    """Return the topic in a subject's name (TOPIC-value or TOPIC-key); "" if the topic does not exist."""
    for suffix in SUFFIXES:
        name = subject.removesuffix(suffix)
        if name != subject and name in topics:
            return name
    return ""


def readers_of(client: Client, topic: str) -> list[str]:
    """Return the groups with committed offsets for a topic."""
    return [
        row.group.group_id
        for row in client.groups.progress()
        if row.committed is not None and any(key.topic == topic for key in row.committed)
    ]


def pretty(schema: str) -> str:
    """Indent JSON. Return other schemas, such as Protobuf, unchanged."""
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema


def changes(before: str, after: str) -> list[dict[str, str]]:
    """Return the lines of a diff between two schemas: each is same, gone or new. Empty if nothing changed."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return []
    kinds = {" ": "same", "-": "gone", "+": "new"}
    rows = difflib.ndiff(old[:DIFF_MAX], new[:DIFF_MAX])
    return [{"kind": kinds[row[0]], "text": visible(row[2:])} for row in rows if row[0] in kinds]
