"""Define the example's data: page visits, with the schemas of an old and a new release of the web server."""

from __future__ import annotations

import json
from typing import Any, Final

TOPIC: Final = "visits"
READERS: Final = "readers"
"""The group that reads visits, and its stage in the audit."""
SUBJECT: Final = f"{TOPIC}-value"
PARTITIONS: Final = 3
WINDOW_S: Final = 5.0
"""The window of the audit's counts."""
WARM_UP: Final = "web0"
"""The server whose visits warm up the pipeline."""
MASTER: Final = "local[2,4]"
"""Spark's master: two cores; a failed task is tried four times, as on a cluster."""
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for Spark's JVM: a run this short ends before the second compiler pays off."""
PATHS: Final = ("/", "/articles", "/articles/log", "/search", "/login", "/feed", "/about")
KILLED_WHILE_SENDING: Final = ("live", "offline", "registry", "mirror", "follow-up", "stream")
KILLS: Final = (*KILLED_WHILE_SENDING, "reader", "load")
"""The parts that a run can kill. A web server is not among them: visits that it has not sent end with it."""

_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "server", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "visitor", "type": "long"},
    {"name": "path", "type": "string"},
    {"name": "status", "type": "int"},
    {"name": "took_ms", "type": "double"},
]


def schema(*, old: bool = False) -> str:
    """Return the schema of a release. The new schema adds a field with a default, so that it can read old visits."""
    more = [] if old else [{"name": "referrer", "type": ["null", "string"], "default": None}]
    return json.dumps({"type": "record", "name": "Visit", "fields": [*_FIELDS, *more]})
