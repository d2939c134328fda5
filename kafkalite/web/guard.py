"""Protect a WSGI application: check Host, Origin and authentication of each request, and add security headers.

    1. Host       without sign-in, a host name must be known (else 421)
    2. Origin     a change must not be requested by a page of another site (else 403)
    3. Sign-in    if required, the request must be authenticated (else 401 or 429)
    4.            the application handles the request

A response gets the security headers that it does not set itself. The check of Host protects from DNS rebinding: an
attacker's web page could point its DNS name at this server, and send requests to it. For the check of Origin, a browser
reports which site sent a request.

Thread rule: any thread.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from kafkalite.web.server import WebServer
from kafkalite.web.signin import SignIn, TooManyFailuresError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalite.web.server import Address, Limits
    from kafkalite.web.tls import Tls
    from kafkalite.web.users import User, Users

    StartResponse = Callable[..., object]
    Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

logger = logging.getLogger(__name__)

USER: Final = "kafkalite.user"
"""The key of the authenticated User in the WSGI environ; absent without sign-in."""
LOOPBACK_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost")
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)
"""Added to every response that does not set the header itself."""
REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    421: "Misdirected Request",
    429: "Too Many Requests",
}


def known_names(addresses: Iterable[Address], allowed: Iterable[str] = ()) -> frozenset[str]:
    """Return the known host names in lower case: this machine's, those of the bound addresses, and `allowed`."""
    names = {*LOOPBACK_NAMES, socket.gethostname(), *allowed}
    names.update(address.host for address in addresses if address.host)
    return frozenset(name.lower().rstrip(".") for name in names)


def open_addresses(addresses: Iterable[Address]) -> list[Address]:
    """Return the addresses that other machines can reach."""
    return [address for address in addresses if not is_loopback(address.host)]


def guarded_server(
    application: Application,
    addresses: Sequence[Address],
    name: str,
    limits: Limits,
    tls: Tls | None = None,
    users: Users | None = None,
    allowed_hosts: Iterable[str] = (),
) -> WebServer:
    """Return a web server for an application that is protected by a Guard.

    `name` is the package's extra that installs waitress. Browsers show it as a part of the realm. Without `users`, no
    authentication is required. A warning is logged for each address that other machines can reach without TLS or
    without authentication. ValueError for an https address without `tls`.
    """
    sign_in = None if users is None else SignIn(users, certificate_name=None if tls is None else tls.name_of)
    names = known_names(addresses, allowed_hosts)
    guard = Guard(application, names=names, sign_in=sign_in, realm=f"kafkalite {name}")
    for address in open_addresses(addresses):
        if address.scheme == "http":
            logger.warning("%s is reachable over the network without TLS", address.url)
        if users is None:
            logger.warning("%s requires no authentication: anyone who can reach it has full access", address.url)
    return WebServer(guard, addresses, tls=tls, limits=limits, extra=name)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a bound address."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


class Guard:
    """A WSGI middleware that checks each request and adds security headers to each response."""

    def __init__(self, application: Application, *, names: frozenset[str], sign_in: SignIn | None, realm: str) -> None:
        """Create the middleware.

        `names` are the known host names; they matter only without `sign_in`. Browsers show `realm` when they ask for a
        password.
        """
        self._application = application
        self._names = names
        self._sign_in = sign_in
        self._realm = realm

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: object) -> object:
            given = {name.lower() for name, _ in headers}
            return start_response(status, headers + [row for row in HEADERS if row[0].lower() not in given], *rest)

        environ.pop(USER, None)
        refusal = self._refusal(environ)
        if refusal is None:
            return self._application(environ, start)
        status, message = refusal
        raw = json.dumps({"error_code": status, "message": message}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(raw)))]
        if status == 401:
            headers.append(("WWW-Authenticate", f'Basic realm="{self._realm}", charset="UTF-8"'))
        start(f"{status} {REASONS[status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else raw]

    def _refusal(self, environ: dict[str, Any]) -> tuple[int, str] | None:
        """Return the status and message with which to refuse a request; None to accept it."""
        host = str(environ.get("HTTP_HOST", ""))
        if self._sign_in is None and not self._is_known(host):
            return 421, f"host name {host[:100]!r} is not allowed; allow it with --allowed-host"
        if environ["REQUEST_METHOD"] not in READING and is_foreign(environ, host):
            return 403, "requests from pages of other sites cannot make changes"
        if self._sign_in is None:
            return None
        try:
            user = self._sign_in.user_of(environ)
        except TooManyFailuresError:
            return 429, "too many wrong passwords from this address; try again later"
        if user is None:
            return 401, "Unauthorized"
        environ[USER] = user
        return None

    def _is_known(self, host: str) -> bool:
        """Return whether a host is accepted without sign-in: a known name, an IP address or an empty host.

        The allowed name `*` accepts every host.
        """
        if "*" in self._names:
            return True
        name = name_in(host)
        return not name or name in self._names or _is_address(name)


def user_in(environ: Mapping[str, Any]) -> User | None:
    """Return the authenticated user of a request; None if no authentication is required."""
    found: User | None = environ.get(USER)
    return found


def is_foreign(environ: dict[str, Any], host: str) -> bool:
    """Return whether the browser reports that a page of another site sent the request.

    Sec-Fetch-Site counts, or else Origin. Programs send neither, so their requests are accepted.
    """
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and origin != f"{environ.get('wsgi.url_scheme', 'http')}://{host}"


def is_own(environ: Mapping[str, Any]) -> bool:
    """Return whether the browser reports that a page of this server sent the request."""
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None:
        return bool(site == "same-origin")
    return bool(
        environ.get("HTTP_ORIGIN") == f"{environ.get('wsgi.url_scheme', 'http')}://{environ.get('HTTP_HOST', '')}"
    )


def name_in(host: str) -> str:
    """Return the name or address in a Host header, in lower case, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
