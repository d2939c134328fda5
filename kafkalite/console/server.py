"""The console as a server: addresses, sign-in, start and stop.

Bound to this machine it asks nobody who he is. Bound to anything else it does not start without users, and reads only
unless it is told otherwise. Thread rule: `start` and `stop` belong to one thread.
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
    """See the module.

    `addresses`      where to listen
    `users`          who may come in; StartupError without, where an address is not this machine's own
    `registry`       the address of a schema registry, for values in Avro
    `zookeeper`      where Kafka 0.7's brokers and groups are; None: it is not asked
    `metrics`        addresses at which brokers tell Prometheus, and the file of a token that these want
    `writes`         whether it changes anything; None: only where nobody but this machine reaches it
    `audit_topic`    where it is written, beside the log, who changed what
    `state`          the directory in which numbers are kept over restarts, made if it is not there, StartupError if it
                     cannot be written; None: nowhere
    `clusters`       several, in place of `bootstrap_servers`; each is under an address of its own
    `base_path`      the path prefix under which a reverse proxy publishes it, such as /kafka
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
        """Set when it cannot go on."""
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
        """As bound."""
        return list(self._web.addresses)

    @property
    def url(self) -> str:
        """Of the first address."""
        return self._web.addresses[0].url

    @property
    def sampler(self) -> Sampler:
        """What looks at the cluster, the first of several."""
        return self._sites[0].reading.sampler

    def start(self) -> None:
        """Binds and serves; the cluster is asked when somebody looks. StartupError."""
        self._web.bind()
        for site in self._sites:
            site.start()
        self._web.start(on_failure=self.failed.set)

    def stop(self, reason: str = "stop was called") -> None:
        """Idempotent; the log tells the reason."""
        if self._web.stop():
            logger.info("the console stopped: %s", reason)
        for site in self._sites:
            site.stop()
