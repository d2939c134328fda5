"""The console as a server: addresses, sign-in, start and stop.

Bound to this machine it asks nobody who he is. Bound to anything else it does not start without users, and reads only
unless it is told otherwise. Thread rule: `start` and `stop` belong to one thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Self

from kafkalite.client import Client
from kafkalite.console.application import Application
from kafkalite.console.audit import Audit
from kafkalite.console.clients import Clients
from kafkalite.console.desk import Desk
from kafkalite.console.forms import BODY_MAX
from kafkalite.console.masks import Masks
from kafkalite.console.reading import Reading
from kafkalite.errors import StartupError
from kafkalite.web.guard import Guard, is_loopback, known_names
from kafkalite.web.server import Address, Limits, WebServer
from kafkalite.web.signin import SignIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client.security import Security
    from kafkalite.console.sampler import Sampler
    from kafkalite.web.tls import Tls
    from kafkalite.web.users import Users

logger = logging.getLogger(__name__)

LIMITS: Final = Limits(body_size=BODY_MAX)
RETRY_S: Final = 5.0
"""How long a page waits for a cluster that does not answer."""


class ConsoleServer:
    """See the module.

    `addresses`      where to listen
    `users`          who may come in; StartupError without, where an address is not this machine's own
    `registry`       the address of a schema registry, for values in Avro
    `writes`         whether it changes anything; None: only where nobody but this machine reaches it
    `audit_topic`    where it is written, beside the log, who changed what
    `state`          the directory in which numbers are kept over restarts; None: nowhere
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
        limits: Limits = LIMITS,
        timeout_s: float = 10.0,
        writes: bool | None = None,
        audit_topic: str | None = None,
        state: Path | None = None,
    ) -> None:
        listed = list(addresses)
        strange = [address.url for address in listed if not is_loopback(address.host)]
        if strange and users is None:
            raise StartupError(f"{strange[0]} is open to others: --users says who may come in")
        self.failed = threading.Event()
        """Set when it cannot go on."""
        client = Client(
            bootstrap_servers,
            client_id="kafkalite-console",
            connect_timeout_s=min(timeout_s, 5.0),
            request_timeout_s=timeout_s,
            retry_timeout_s=min(timeout_s, RETRY_S),
            security=security,
        )
        self._clients = Clients(client, opener_of(registry))
        cluster = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        self._desk = Desk(self._clients, Audit(audit_topic))
        application = Application(
            self._clients,
            masks or Masks(),
            self._desk,
            cluster=cluster,
            writes=not strange if writes is None else writes,
        )
        guard = Guard(
            application,
            names=known_names(listed, allowed_hosts),
            sign_in=None if users is None else SignIn(users, certificate_name=None if tls is None else tls.name_of),
            realm="kafkalite console",
        )
        self._web = WebServer(guard, listed, tls=tls, limits=limits, extra="console")
        self._reading = Reading(client.twin(), opener_of(registry), state=state)
        application.extend(self._reading.routes(), self._reading.names())

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
        """What looks at the cluster."""
        return self._reading.sampler

    def start(self) -> None:
        """Binds and serves; the cluster is asked when somebody looks. StartupError."""
        self._web.bind()
        self._reading.start()
        self._web.start(on_failure=self.failed.set)

    def stop(self, reason: str = "stop was called") -> None:
        """Idempotent; the log tells the reason."""
        if self._web.stop():
            logger.info("the console stopped: %s", reason)
        self._desk.close()
        self._reading.stop()
        self._clients.close()


def opener_of(registry: str | None) -> Callable[[], RegistryClient] | None:
    """What opens the schema registry; StartupError for an address that is none."""
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
