"""The paths: `/metrics`, `/health/live`, `/health/ready`, on the project's HTTP server.

    web.WebServer ─▶ web.Guard ─▶ Application ─▶ sources, health

It is bound before the logs are opened, so that whoever asks while they are checked hears that the broker is alive and
not ready. Who may ask: everybody on this machine; from others whom the file of `metrics.users` lets in, without which
the broker refuses to listen there. Health tells no names, but is behind the same door.

Nothing can be changed here, so there is nothing but GET and HEAD. Any thread.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import ConfigError
from kafkalite.metrics.health import not_alive, not_ready
from kafkalite.metrics.sources import Sources
from kafkalite.metrics.text import OPENMETRICS, PROMETHEUS, compressed, render, wants_openmetrics
from kafkalite.web.guard import Guard, is_loopback, known_names, tell_open
from kafkalite.web.routes import NoSuchMethodError, NoSuchPathError, Routes
from kafkalite.web.server import Address, Limits, WebServer, parse_address
from kafkalite.web.signin import SignIn
from kafkalite.web.users import Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.metrics.parts import Parts
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.web.tls import Tls

logger = logging.getLogger(__name__)

PORT: Final = 9644
KEY: Final = "metrics.listeners"
LIMITS: Final = Limits(threads=2, connections=16, header_size=16 * 1024, body_size=1024, request_timeout_s=15.0)
REASONS: Final = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Answer = tuple[int, list[tuple[str, str]], list[bytes]]


class Application:
    """WSGI."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sources = Sources(parts)
        self._scraping = threading.Lock()
        self._routes: Routes[Callable[[Mapping[str, Any]], Answer]] = Routes(
            [
                ("/metrics", {"GET": self._metrics}),
                ("/health/live", {"GET": self._live}),
                ("/health/ready", {"GET": self._ready}),
            ]
        )

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        try:
            handler, _ = self._routes.find(environ)
            status, headers, pieces = handler(environ)
        except NoSuchPathError:
            status, headers, pieces = _json(404, {"error_code": 404, "message": "there is /metrics and /health/…"})
        except NoSuchMethodError as error:
            status, headers, pieces = _json(405, {"error_code": 405, "message": "Method Not Allowed"})
            headers.append(("Allow", str(error)))
        except Exception:
            logger.exception("a request for metrics failed")
            status, headers, pieces = _json(500, {"error_code": 500, "message": "Internal Server Error"})
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
        start_response(f"{status} {REASONS[status]}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else pieces

    def _metrics(self, environ: Mapping[str, Any]) -> Answer:
        openmetrics = wants_openmetrics(str(environ.get("HTTP_ACCEPT", "")))
        headers = [("Content-Type", OPENMETRICS if openmetrics else PROMETHEUS), ("Vary", "Accept, Accept-Encoding")]
        with self._scraping:  # one after the other, so that askers cannot pile up work
            pieces: Iterable[bytes] = render(self._sources.families(), openmetrics=openmetrics)
            if takes_gzip(str(environ.get("HTTP_ACCEPT_ENCODING", ""))):
                headers.append(("Content-Encoding", "gzip"))
                pieces = compressed(pieces)
            return 200, headers, list(pieces)

    def _live(self, _environ: Mapping[str, Any]) -> Answer:
        return _verdict(not_alive(self._parts))

    def _ready(self, _environ: Mapping[str, Any]) -> Answer:
        return _verdict(not_ready(self._parts))


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
            Application(parts),
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
            raise ConfigError(KEY, f"{address.url} is open to other machines, so metrics.users has to say who may ask")
    return addresses


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header has gzip, and not with q=0."""
    for part in accept_encoding.split(","):
        name, _, rest = part.partition(";")
        if name.strip().lower() in {"gzip", "*"}:
            return rest.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _tls_of(config: BrokerConfig, addresses: Iterable[Address]) -> Tls | None:
    if not config.metrics_tls_config:
        if any(address.scheme == "https" for address in addresses):
            raise ConfigError(KEY, "https needs a certificate: metrics.tls.config")
        return None
    from kafkalite.web.tls import Tls

    return Tls.from_file(Path(config.metrics_tls_config))


def _verdict(reasons: list[str]) -> Answer:
    if reasons:
        return _json(503, {"status": "down", "reasons": reasons})
    return _json(200, {"status": "up"})


def _json(status: int, body: Mapping[str, object]) -> Answer:
    return status, [("Content-Type", "application/json")], [json.dumps(body).encode() + b"\n"]
