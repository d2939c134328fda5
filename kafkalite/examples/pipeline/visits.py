"""What the pipeline carries: visits of pages, written by an old and by a new release of the web server."""

from __future__ import annotations

import json
from typing import Any, Final

TOPIC: Final = "visits"
READERS: Final = "readers"
"""The group that reads visits, and its stage in the audit."""
SUBJECT: Final = f"{TOPIC}-value"
PARTITIONS: Final = 3
WINDOW_S: Final = 5.0
"""Of the audit's counts."""
WARM_UP: Final = "web0"
"""The server whose visits come before the others'."""
MASTER: Final = "local[2,4]"
"""Of Spark: two cores; a task that fails is tried four times, as on a cluster."""
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Spark: a run this short is over before the second compiler has paid off."""
PATHS: Final = ("/", "/articles", "/articles/log", "/search", "/login", "/feed", "/about")

_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "server", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "visitor", "type": "long"},
    {"name": "path", "type": "string"},
    {"name": "status", "type": "int"},
    {"name": "took_ms", "type": "double"},
]


def schema(*, old: bool = False) -> str:
    """The schema of a release. The new one has a field more, with a default, so it reads what the old one wrote."""
    more = [] if old else [{"name": "referrer", "type": ["null", "string"], "default": None}]
    return json.dumps({"type": "record", "name": "Visit", "fields": [*_FIELDS, *more]})
