"""Listening sockets, and what acceptor and workers know of the listener that a connection came by."""

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
    """What a listener with TLS knows. Any thread."""

    @property
    def context(self) -> TlsContext:
        """What new connections shake hands with."""

    @property
    def expires(self) -> int:
        """When its certificate ends, seconds since 1970."""

    def principal_of(self, subject: bytes | None) -> str:
        """The principal of a client whose certificate has this subject, None without one; ValueError: refuse it."""


class Sasl(Protocol):
    """What a listener with SASL knows. Any thread."""

    @property
    def receive_size_max(self) -> int:
        """The longest frame of a client that has not signed in."""

    def begin(self, connection: SaslConnection) -> object:
        """What the frames of a new connection go to until its client has signed in."""


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listening socket and what clients are told of it."""

    name: str
    socket: socket.socket
    endpoint: Endpoint
    classic: bool = False
    """Whether Kafka 0.7's protocol is spoken there."""
    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def is_open(self) -> bool:
        """Whether other machines reach it without TLS."""
        host = str(self.socket.getsockname()[0]).partition("%")[0]
        return self.tls is None and not ipaddress.ip_address(host).is_loopback

    @property
    def port(self) -> int:
        """The port that was bound, the chosen one for port 0."""
        return int(self.socket.getsockname()[1])


def bind(
    host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
) -> socket.socket:
    """A listening socket on host:port; an empty host is every interface, of both address families where there are.

    What connections are to have (no delay, keep-alive, buffers unless they are -1) is set here: Linux gives an accepted
    socket its listener's options, which spares four calls for each.
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
    """The same, not listening: a port that is kept, while whoever listens there comes and goes."""
    # As with Java, [::] serves IPv4 too: the advertised host name may resolve to an address of either kind.
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
