"""Bind listening sockets, and define what the acceptor and the workers know about a listener."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Protocol

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from kafkalite._native.serve.sasl_connection import SaslConnection
    from kafkalite._native.tls.tls_context import TlsContext
    from kafkalite.model import Endpoint


class Tls(Protocol):
    """The TLS configuration of a listener. Any thread."""

    @property
    def context(self) -> TlsContext:
        """The context for the handshakes of new connections."""

    @property
    def expires(self) -> int:
        """The time at which the listener's certificate expires, in seconds since 1970."""

    def principal_of(self, subject: bytes | None) -> str:
        """Return the principal for the subject of a client certificate (None: no certificate). ValueError if the client
        is refused."""


class Sasl(Protocol):
    """The SASL configuration of a listener. Any thread."""

    @property
    def receive_size_max(self) -> int:
        """Maximum frame size in bytes before authentication."""

    def begin(self, connection: SaslConnection) -> object:
        """Return the object that handles a new connection's frames until its client is authenticated."""


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listener: its bound socket, its advertised endpoint, and its TLS and SASL."""

    name: str
    socket: socket.socket
    endpoint: Endpoint
    classic: bool = False
    """Whether the listener serves Kafka 0.7's protocol."""
    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach the listener without TLS."""
        host = str(self.socket.getsockname()[0]).partition("%")[0]
        return self.tls is None and not ipaddress.ip_address(host).is_loopback

    @property
    def port(self) -> int:
        """The bound port; if port 0 was requested, the port that the system chose."""
        return int(self.socket.getsockname()[1])


def bind(
    host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
) -> socket.socket:
    """Return a listening socket on host:port. An empty host means all interfaces, with IPv4 and IPv6 if available.

    The socket also gets the options of connections (no delay, keep-alive, buffer sizes unless -1). Linux copies them to
    accepted sockets, which saves four calls for each connection.
    """
    listening = bind_only(host, port)
    try:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from error
    listening.setblocking(False)
    return listening


def bind_only(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen. It reserves the port, even if all other sockets on the port are
    closed."""
    # As in Java, [::] serves IPv4, too: the advertised host name may resolve to an address of either kind.
    dual = host in {"", "::"} and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from error
    return listening


def _refused(host: str, port: int, error: OSError) -> StartupError:
    return StartupError(f"cannot listen on {host or '*'}:{port}: {error.strerror or error}")
