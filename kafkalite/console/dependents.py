"""Find what depends on a topic or group, to show it before the topic or group is deleted.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.failures.names import DEAD, RETRY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.avro.client import RegistryClient


def topics_of_failures(topics: Iterable[str], *, group: str = "", topic: str = "") -> list[str]:
    """Return the retry and dead-letter topics whose names, such as dlq.GROUP.TOPIC, have this group or topic."""
    found = []
    for name in topics:
        kind, _, rest = name.partition(".")
        if kind not in {DEAD, RETRY}:
            continue
        if group and rest.startswith(f"{group}."):
            found.append(name)
        if topic and (rest.endswith(f".{topic}") or f".{topic}." in rest):
            found.append(name)
    return sorted(found)


def subjects_of(registry: RegistryClient | None, topic: str) -> list[str] | None:
    """Return the subjects of a topic in the registry. None without a registry, or if it does not respond."""
    if registry is None:
        return None
    try:
        listed: Any = registry.request("GET", "/subjects")
    except (RegistryRefused, RegistryUnreachable):
        return None
    return sorted(name for name in listed if name in {f"{topic}-key", f"{topic}-value"})
