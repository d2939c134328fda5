"""Serve several clusters from one console: read the file that lists them, and give each cluster a path.

    [[cluster]]
    name = "live"                       # its pages are under /c/live/
    bootstrap = "broker-1:9093,broker-2:9093"
    config = "live.properties"          # TLS and SASL; next to this file
    registry = "http://registry:8081"
    zookeeper = "zookeeper:2181"        # for Kafka 0.7's brokers and groups
    metrics = "http://broker-1:9644,…"  # Prometheus metrics of its brokers
    metrics-token = "live.token"        # file with the token for the metrics; next to this file
    colour = "red"                      # colour of the bar above each page

    /c/live/topics ─▶ Mount ─▶ /topics in the application of the cluster "live"

The addresses of clusters come only from this file, never from a request.

Thread rule: any thread; objects are immutable.
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
"""The first path segment of a cluster's address."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS: Final = re.compile(r'((?:href|src|action|formaction|data-[a-z-]+)=")/(?!/)')


class ClusterEntry(NamedTuple):
    """One table of the file. Fields with a default are optional."""

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
        """The path prefix of the cluster's pages, without a slash at its end."""
        return f"/{CLUSTERS_PART}/{self.name}"


def read_clusters(path: Path) -> list[ClusterEntry]:
    """Read the file. Raises StartupError with a description of the fault."""
    try:
        return entries_of(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except (OSError, ValueError) as error:
        raise StartupError(f"{path}: {reason_of(error)}") from error


def entries_of(document: dict[str, Any], directory: Path) -> list[ClusterEntry]:
    """Return the entries of the file's tables. Raises ValueError if the file contains anything else."""
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
    """Return the entry of a table. Raises ValueError if it is invalid."""
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
    """Prefix the links in a template with `base`. (Templates are written for a single cluster at /.)"""
    return _ADDRESS.sub(rf"\g<1>{base}/", source)


class Mount:
    """The WSGI application that serves all clusters.

    The path `/` is redirected to the first cluster. Any other GET request without a cluster in its path goes to the
    first cluster's application. A change without a cluster is refused.
    """

    def __init__(self, applications: Mapping[str, WSGI]) -> None:
        """`applications` maps the path prefix of each cluster to its application."""
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
