"""Build everything that the console has for one cluster: clients, shared state, sampler and web application.

Thread rule: `start` and `stop` belong to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.client import Client
from kafkalite.console.application import Application
from kafkalite.console.audit import Audit
from kafkalite.console.clients import Clients
from kafkalite.console.cluster_view import Reading
from kafkalite.console.console_state import ConsoleState
from kafkalite.console.masks import Masks
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client.security import Security
    from kafkalite.console.clusters import ClusterEntry
    from kafkalite.console.latencies import Latencies

RETRY_S: Final = 5.0
"""Seconds that a page waits for a cluster that does not answer."""


class Site:
    """The clients, shared state, sampler and application of one cluster.

    `entries` are all clusters if the console has several. `base_path` is the path prefix of the whole console.
    """

    def __init__(
        self,
        entry: ClusterEntry,
        *,
        security: Security | None,
        masks: Masks | None,
        timeout_s: float,
        writes: bool,
        audit_topic: str | None,
        state: Path | None,
        entries: Sequence[ClusterEntry] = (),
        base_path: str = "",
    ) -> None:
        client = Client(
            entry.bootstrap,
            client_id="kafkalite-console",
            connect_timeout_s=min(timeout_s, 5.0),
            request_timeout_s=timeout_s,
            retry_timeout_s=min(timeout_s, RETRY_S),
            security=security,
        )
        self._clients = Clients(client, opener_of(entry.registry))
        self._desk = ConsoleState(self._clients, Audit(audit_topic))
        self.application = Application(
            self._clients, masks or Masks(), self._desk, cluster=entry.name or entry.bootstrap, writes=writes
        )
        self.reading = Reading(
            client.twin(),
            opener_of(entry.registry),
            state=state,
            zookeeper=entry.zookeeper,
            latencies=latencies_of(entry),
        )
        base = base_path + (entry.base if entries else "")
        names = {
            **self.reading.names(),
            "colour": entry.colour,
            "base": base,
            "bootstrap": entry.bootstrap,
            "clusters": [
                (each.name, f"{base_path}{each.base}/", each.colour, each.name == entry.name) for each in entries
            ],
        }
        self.application.extend(self.reading.routes(), names, self.reading.sampler, base=base)

    def start(self) -> None:
        """Start sampling the cluster."""
        self.reading.start()

    def stop(self) -> None:
        """Stop sampling and close the clients. Idempotent."""
        self._desk.close()
        self.reading.stop()
        self._clients.close()


def latencies_of(entry: ClusterEntry) -> Latencies | None:
    """Return the object that scrapes the brokers' metrics; None without their addresses. Raises StartupError."""
    if not entry.metrics:
        return None
    from kafkalite.console.latencies import Latencies

    try:
        token = None if entry.metrics_token is None else entry.metrics_token.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StartupError(f"--metrics-token-file {entry.metrics_token}: {error.strerror}") from error
    return Latencies(entry.metrics, token)


def opener_of(registry: str | None) -> Callable[[], RegistryClient] | None:
    """Return a function that opens a registry client. Raises StartupError if the address is invalid."""
    if registry is None:
        return None
    from kafkalite.avro.client import RegistryClient

    def opened() -> RegistryClient:
        return RegistryClient(registry, timeout_s=5.0, retry_timeout_s=5.0)

    try:
        opened().close()
    except ValueError as error:
        raise StartupError(f"--registry: {error}") from error
    return opened
