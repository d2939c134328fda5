"""Several clusters at one console: the file that names them, and the addresses under which each is.

    [[cluster]]
    name = "live"                       # the address: /c/live/
    bootstrap = "broker-1:9093,broker-2:9093"
    config = "live.properties"          # how to reach it (TLS, SASL); beside this file
    registry = "http://registry:8081"
    zookeeper = "zookeeper:2181"        # where Kafka 0.7's brokers and groups are
    metrics = "http://broker-1:9644,…"  # where its brokers tell Prometheus
    metrics-token = "live.token"        # what that wants; beside this file
    colour = "red"                      # of the bar above each page

    /c/live/topics ─▶ Mount ─▶ the application of that cluster, which knows it as /topics

Addresses of clusters come from this file alone. Thread rule: any thread; immutable after it is made.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.errors import StartupError, reason_of
from kafkalite.web.prefix import call_under
from kafkalite.web.routes import raw_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    WSGI = Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]

KEYS: Final = ("name", "bootstrap", "config", "registry", "colour", "zookeeper", "metrics", "metrics-token")
COLOURS: Final = ("", "red", "amber", "green", "blue", "violet")
CLUSTERS_MAX: Final = 50
CLUSTERS_PART: Final = "c"
"""The first part of each cluster's address."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS: Final = re.compile(r'((?:href|src|action|formaction|data-[a-z-]+)=")/(?!/)')


class ClusterEntry(NamedTuple):
    """One table of the file. `config` is None where none is needed."""

    name: str
    bootstrap: str
    config: Path | None = None
    registry: str | None = None
    colour: str = ""
    zookeeper: str | None = None
    metrics: tuple[str, ...] = ()
    metrics_token: Path | None = None

    @property
    def base(self) -> str:
        """The beginning of its addresses, without a slash at the end."""
        return f"/{CLUSTERS_PART}/{self.name}"


def read_clusters(path: Path) -> list[ClusterEntry]:
    """StartupError says in a sentence what is wrong with the file."""
    try:
        return entries_of(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except (OSError, ValueError) as error:
        raise StartupError(f"{path}: {reason_of(error)}") from error


def entries_of(document: dict[str, Any], directory: Path) -> list[ClusterEntry]:
    """ValueError for a file that has anything else."""
    rows = document.get("cluster", [])
    if document.keys() - {"cluster"} or not isinstance(rows, list) or not 0 < len(rows) <= CLUSTERS_MAX:
        raise ValueError(f"the file must have 1 to {CLUSTERS_MAX} [[cluster]] tables and nothing else")
    found = [entry_of(row, directory) for row in rows]
    names = [entry.name for entry in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the cluster name {twice} is used twice")
    return found


def entry_of(row: Any, directory: Path) -> ClusterEntry:
    """ValueError for a table that is none."""
    if not isinstance(row, dict) or row.keys() - set(KEYS) or not all(isinstance(each, str) for each in row.values()):
        raise ValueError(f"a [[cluster]] table can have {', '.join(KEYS)}, each a string")
    name, colour = row.get("name", ""), row.get("colour", "")
    if not _NAME.fullmatch(name):
        raise ValueError(f"name = {name!r}: expected at most 63 letters, digits, '.', '_' and '-'")
    if not row.get("bootstrap"):
        raise ValueError(f"cluster {name} has no bootstrap; add the addresses of its brokers")
    if colour not in COLOURS:
        raise ValueError(f"colour = {colour!r} of cluster {name}: expected one of {', '.join(filter(None, COLOURS))}")
    config = directory / row["config"] if "config" in row else None
    token = directory / row["metrics-token"] if "metrics-token" in row else None
    metrics = tuple(filter(None, (url.strip() for url in row.get("metrics", "").split(","))))
    return ClusterEntry(
        name, row["bootstrap"], config, row.get("registry"), colour, row.get("zookeeper"), metrics, token
    )


def based(source: str, base: str) -> str:
    """A template whose addresses begin with `base`; templates are written as if there were one cluster, at /."""
    return _ADDRESS.sub(rf"\g<1>{base}/", source)


class Mount:
    """See the module. What is under no cluster's address leads to the first one, but nothing that changes a cluster."""

    def __init__(self, applications: Mapping[str, WSGI]) -> None:
        """By the beginning of the address."""
        self._applications = dict(applications)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        path = raw_path(environ)
        base = "/".join(path.split("/", 3)[:3])
        application = self._applications.get(base)
        if application is None:
            first = next(iter(self._applications))
            if environ["REQUEST_METHOD"] in {"GET", "HEAD"} and path in {"", "/"}:
                start_response("302 Found", [("Location", f"{first}/"), ("Content-Length", "0")])
                return [b""]
            if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
                start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
                return [b""]
            return self._applications[first](environ, start_response)
        return call_under(application, base, environ, start_response)
