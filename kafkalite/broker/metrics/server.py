"""Serve a broker's `/metrics`, `/health/live` and `/health/ready` on the project's HTTP server.

    web.WebServer ─▶ web.Guard ─▶ Page ─▶ sources, health

The server binds before the logs are opened, so that during recovery the broker is reported as alive and not ready.

With `metrics.users`, clients must authenticate as one of these users. Without this setting, any client on this machine
has access, and the broker refuses to listen on addresses that other machines can reach. The health pages have the same
access control.

Any thread.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.broker.metrics.health import not_alive, not_ready, notes
from kafkalite.broker.metrics.sources import Sources
from kafkalite.errors import ConfigError
from kafkalite.metrics.page import LIMITS, Page
from kafkalite.web.guard import guarded_server, open_addresses
from kafkalite.web.server import parse_address
from kafkalite.web.users import Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.web.server import Address
    from kafkalite.web.tls import Tls

PORT: Final = 9644
KEY: Final = "metrics.listeners"


class MetricsServer:
    """The HTTP server, from `start` to `stop`. It calls `on_failure` when it has to stop serving."""

    def __init__(self, parts: Parts) -> None:
        """Create the server, which `start` starts. Raises ConfigError, StartupError."""
        config = parts.config
        addresses = addresses_of(config)
        self._tls = tls = _tls_of(config, addresses)
        users = Users.from_file(Path(config.metrics_users)) if config.metrics_users else None
        page = Page(
            Sources(parts).families, partial(not_alive, parts), partial(not_ready, parts), partial(notes, parts)
        )
        self._web = guarded_server(page, addresses, "metrics", LIMITS, tls, users, config.metrics_allowed_hosts)

    @property
    def urls(self) -> list[str]:
        """The URLs of the server's addresses, without a path."""
        return [address.url for address in self._web.addresses]

    def start(self, on_failure: Callable[[], object]) -> None:
        """Bind and start serving. StartupError."""
        self._web.bind()
        self._web.start(on_failure)

    def reload(self) -> None:
        """Read the certificate for HTTPS again."""
        if self._tls is not None:
            self._tls.reload()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the server's sockets and connections."""
        return self._web.descriptors()

    def stop(self) -> None:
        """Stop serving. Idempotent."""
        self._web.stop()


def addresses_of(config: BrokerConfig) -> list[Address]:
    """Return the addresses in metrics.listeners.

    ConfigError for an invalid address, or, if metrics.users is not set, for an address that other machines can reach.
    """
    try:
        addresses = [parse_address(text, PORT) for text in config.metrics_listeners]
    except ValueError as error:
        raise ConfigError(KEY, str(error)) from None
    strange = open_addresses(addresses)
    if strange and not config.metrics_users:
        raise ConfigError(
            KEY, f"{strange[0].url} is reachable from other machines; set metrics.users to require authentication"
        )
    return addresses


def _tls_of(config: BrokerConfig, addresses: Iterable[Address]) -> Tls | None:
    if not config.metrics_tls_config:
        if any(address.scheme == "https" for address in addresses):
            raise ConfigError(KEY, "https requires a certificate; set metrics.tls.config")
        return None
    from kafkalite.web.tls import Tls

    return Tls.from_file(Path(config.metrics_tls_config))
