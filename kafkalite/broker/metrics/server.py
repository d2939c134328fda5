"""A broker's `/metrics`, `/health/live` and `/health/ready`, on the project's HTTP server.

    web.WebServer ─▶ web.Guard ─▶ Page ─▶ sources, health

It is bound before the logs are opened, so that whoever asks while they are checked hears that the broker is alive and
not ready. Who may ask: everybody on this machine; from others whom the file of `metrics.users` lets in, without which
the broker refuses to listen there. Health tells no names, but is behind the same door.

Any thread.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.broker.metrics.health import not_alive, not_ready, notes
from kafkalite.broker.metrics.sources import Sources
from kafkalite.errors import ConfigError
from kafkalite.metrics.page import Page
from kafkalite.web.guard import Guard, is_loopback, known_names, tell_open
from kafkalite.web.server import Address, Limits, WebServer, parse_address
from kafkalite.web.signin import SignIn
from kafkalite.web.users import Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.web.tls import Tls

PORT: Final = 9644
KEY: Final = "metrics.listeners"
LIMITS: Final = Limits(threads=2, connections=16, header_size=16 * 1024, body_size=1024, request_timeout_s=15.0)


class MetricsServer:
    """Bound and serving from `start` to `stop`. `on_failure` is called when it cannot go on."""

    def __init__(self, parts: Parts) -> None:
        """ConfigError, StartupError."""
        config = parts.config
        addresses = addresses_of(config)
        tls = _tls_of(config, addresses)
        users = Users.from_file(Path(config.metrics_users)) if config.metrics_users else None
        certificate_name = None if tls is None else tls.name_of
        guard = Guard(
            Page(Sources(parts).families, partial(not_alive, parts), partial(not_ready, parts), partial(notes, parts)),
            names=known_names(addresses, config.metrics_allowed_hosts),
            sign_in=None if users is None else SignIn(users, certificate_name=certificate_name),
            realm="kafkalite metrics",
        )
        tell_open(addresses, signs_in=users is not None)
        self._tls = tls
        self._web = WebServer(guard, addresses, tls=tls, limits=LIMITS, extra="metrics")

    @property
    def urls(self) -> list[str]:
        """Where it listens, without a path."""
        return [address.url for address in self._web.addresses]

    def start(self, on_failure: Callable[[], object]) -> None:
        """StartupError."""
        self._web.bind()
        self._web.start(on_failure)

    def reload(self) -> None:
        """Reads the certificate of https again."""
        if self._tls is not None:
            self._tls.reload()

    def descriptors(self) -> list[int]:
        """Of its sockets and its connections."""
        return self._web.descriptors()

    def stop(self) -> None:
        """Idempotent."""
        self._web.stop()


def addresses_of(config: BrokerConfig) -> list[Address]:
    """Of metrics.listeners; ConfigError for what is none, and for one beyond this machine that lets in everybody."""
    try:
        addresses = [parse_address(text, PORT) for text in config.metrics_listeners]
    except ValueError as error:
        raise ConfigError(KEY, str(error)) from None
    for address in addresses:
        if not is_loopback(address.host) and not config.metrics_users:
            raise ConfigError(
                KEY, f"{address.url} is reachable from other machines; set metrics.users to require authentication"
            )
    return addresses


def _tls_of(config: BrokerConfig, addresses: Iterable[Address]) -> Tls | None:
    if not config.metrics_tls_config:
        if any(address.scheme == "https" for address in addresses):
            raise ConfigError(KEY, "https requires a certificate; set metrics.tls.config")
        return None
    from kafkalite.web.tls import Tls

    return Tls.from_file(Path(config.metrics_tls_config))
