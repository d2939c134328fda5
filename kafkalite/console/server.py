"""Serve the console over HTTP: addresses, sign-in, start and stop.

On loopback no sign-in is required, and changes are allowed. On other addresses the server requires users, and is
read-only by default.

Thread rule: `start` and `stop` belong to one thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Self

from kafkalite.client.security import Security
from kafkalite.console.clusters import CLUSTERS_PART, ClusterEntry, Mount
from kafkalite.console.forms import BODY_MAX
from kafkalite.console.jobs import require_room
from kafkalite.console.sampler import require_writable
from kafkalite.console.site import Site
from kafkalite.errors import StartupError
from kafkalite.web.guard import guarded_server, open_addresses
from kafkalite.web.prefix import parse_base_path, with_prefix
from kafkalite.web.server import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kafkalite.console.masks import Masks
    from kafkalite.console.sampler import Sampler
    from kafkalite.web.server import Address
    from kafkalite.web.tls import Tls
    from kafkalite.web.users import Users

logger = logging.getLogger(__name__)

LIMITS: Final = Limits(body_size=BODY_MAX)


class ConsoleServer:
    """The console's web server.

    addresses      listen addresses
    users          users who may sign in. StartupError without users if an address is not loopback
    registry       address of a schema registry, for values in Avro
    zookeeper      ZooKeeper of Kafka 0.7's brokers and groups; None: no pages about 0.7
    metrics        Prometheus addresses of the brokers, and the file with their token
    writes         whether changes are allowed; None: only if every address is loopback
    audit_topic    topic that gets an audit record of each change, in addition to the log
    state          directory for the history of the charts, created if necessary. StartupError if it is not writable.
                   None: no history after a restart
    clusters       several clusters instead of `bootstrap_servers`, each under its own address
    base_path      path prefix under which a reverse proxy publishes the console, such as /kafka
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        addresses: Iterable[Address],
        *,
        security: Security | None = None,
        tls: Tls | None = None,
        users: Users | None = None,
        allowed_hosts: Iterable[str] = (),
        masks: Masks | None = None,
        registry: str | None = None,
        zookeeper: str | None = None,
        metrics: Iterable[str] = (),
        metrics_token: Path | None = None,
        limits: Limits = LIMITS,
        timeout_s: float = 10.0,
        writes: bool | None = None,
        audit_topic: str | None = None,
        state: Path | None = None,
        clusters: Sequence[ClusterEntry] = (),
        base_path: str = "",
    ) -> None:
        listed = list(addresses)
        prefix = parse_base_path(base_path)
        strange = open_addresses(listed)
        if strange and users is None:
            raise StartupError(f"{strange[0].url} is reachable from other machines; set --users")
        self.failed = threading.Event()
        """Set when the server has failed."""
        changes = not strange if writes is None else writes
        servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        entries = list(clusters) or [
            ClusterEntry("", servers, None, registry, "", zookeeper, tuple(metrics), metrics_token)
        ]
        several = bool(clusters)
        require_room()
        places = [state / entry.name if several and state is not None else state for entry in entries]
        for place in filter(None, places):
            require_writable(place)
        self._sites = [
            Site(
                entry,
                security=security if entry.config is None else Security.from_file(entry.config),
                masks=masks,
                timeout_s=timeout_s,
                writes=changes,
                audit_topic=audit_topic,
                state=place,
                entries=entries if several else (),
                base_path=prefix,
            )
            for entry, place in zip(entries, places, strict=True)
        ]
        applications = [site.application for site in self._sites]
        own = frozenset({CLUSTERS_PART}).union(*(each.first_parts for each in applications))
        bases = [entry.base for entry in entries]
        application = Mount(dict(zip(bases, applications, strict=True))) if several else applications[0]
        served = with_prefix(application, prefix, own)
        self._web = guarded_server(served, listed, "console", limits, tls, users, allowed_hosts)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def addresses(self) -> list[Address]:
        """The bound addresses."""
        return list(self._web.addresses)

    @property
    def url(self) -> str:
        """The URL of the first address."""
        return self._web.addresses[0].url

    @property
    def sampler(self) -> Sampler:
        """The sampler of the cluster; of the first cluster if there are several."""
        return self._sites[0].reading.sampler

    def start(self) -> None:
        """Bind the addresses and serve. Raises StartupError."""
        self._web.bind()
        for site in self._sites:
            site.start()
        self._web.start(on_failure=self.failed.set)

    def stop(self, reason: str = "stop was called") -> None:
        """Stop the server, and log the reason. Idempotent."""
        if self._web.stop():
            logger.info("the console stopped: %s", reason)
        for site in self._sites:
            site.stop()
