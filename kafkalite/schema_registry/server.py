"""Run a schema registry in this process, with its HTTP server.

    web.WebServer ─▶ web.Guard ─▶ rest.Application ─▶ topic

`start` reads the topic and serves. `stop` accepts no more connections, lets requests in progress finish, and closes all
connections.

Thread rule: any thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self

from kafkalite.client import Client
from kafkalite.schema_registry.registry import Registry
from kafkalite.schema_registry.rest import BODY_SIZE_MAX, ROUTES, Application
from kafkalite.schema_registry.status import RegistryStatus
from kafkalite.schema_registry.topic import TOPIC, TopicStore
from kafkalite.web.guard import guarded_server
from kafkalite.web.prefix import parse_base_path, with_prefix
from kafkalite.web.server import Address, Limits

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from kafkalite.client.security import Security
    from kafkalite.web.tls import Tls
    from kafkalite.web.users import Users

logger = logging.getLogger(__name__)

PORT: Final = 8081
LIMITS: Final = Limits(body_size=BODY_SIZE_MAX)


class RegistryServer:
    """A schema registry with its HTTP server. A context manager that starts and stops it.

    `host`, `port`      the address to listen on; port 0 selects a free port
    `addresses`         several addresses, or https addresses, instead of `host` and `port`
    `topic`             the topic with the schemas
    `limits`            limits of the HTTP server
    `timeout_s`         how long a request waits for the broker
    `security`          TLS and SASL for connections to the broker; None for plaintext
    `tls`               certificates, for https addresses
    `users`             the users file; None for no authentication
    `allowed_hosts`     host names to accept in addition to this machine's; `*` accepts any
    `base_path`         the path prefix under which a reverse proxy publishes the registry, such as /registry
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        addresses: Iterable[Address] = (),
        topic: str = TOPIC,
        limits: Limits = LIMITS,
        timeout_s: float = 15.0,
        security: Security | None = None,
        tls: Tls | None = None,
        users: Users | None = None,
        allowed_hosts: Iterable[str] = (),
        base_path: str = "",
    ) -> None:
        prefix = parse_base_path(base_path)
        self._client = Client(
            bootstrap_servers, client_id="kafkalite-registry", request_timeout_s=timeout_s, security=security
        )
        self.store = TopicStore(self._client, topic, timeout_s=timeout_s)
        self._application = Application(Registry(self.store), refresh=self.store.refresh)
        served = with_prefix(self._application, prefix, ROUTES.first_parts)
        self.status = RegistryStatus(self.store, self._application)
        """Metrics and readiness."""
        addresses = list(addresses) or [Address("http", host, port)]
        self._web = guarded_server(served, addresses, "registry", limits, tls, users, allowed_hosts)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def addresses(self) -> list[Address]:
        """The addresses; after `start` with the bound ports."""
        return list(self._web.addresses)

    @property
    def address(self) -> str:
        """The first address as host:port."""
        return self._web.addresses[0].authority

    @property
    def url(self) -> str:
        """The URL of the first address."""
        return self._web.addresses[0].url

    @property
    def failed(self) -> threading.Event:
        """An event that is set when the registry cannot continue."""
        return self.store.failed

    def start(self) -> None:
        """Bind the addresses, read the topic to its end, and serve.

        StartupError, KafkaError, ClientError or OSError.
        """
        self._web.bind()
        try:
            self.store.start()
            self._application.cluster_id = self._client.cluster_id or ""
            self._web.start(on_failure=self.store.failed.set)
        except BaseException:
            self._web.stop()
            self.store.close()
            self._client.close()
            raise

    def stop(self, reason: str = "stop was called") -> None:
        """Stop serving and following the topic. Idempotent. The log contains `reason`."""
        if self._web.stop():
            logger.info("the registry stopped: %s", reason)
        self.store.close()
        self._client.close()
