"""Extend waitress's connections with TLS, time limits, and the rejection of HTTP/0.9.

    bytes ─▶ TlsSocket ─▶ Channel ─▶ waitress

waitress limits only the time without traffic. This module also closes the connection of a client that sends a
byte now and then, or does not read its response.

This module needs waitress, so only server.py imports it, when a server is started.

Thread rule: the I/O thread receives; the I/O thread or a worker sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from kafkalite._native.base import native_time as time
from kafkalite.web.signin import CERTIFICATE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from kafkalite.web.tls import TlsSocket

VERSIONS: Final = frozenset({"1.0", "1.1"})
RECORD_SIZE: Final = 16 * 1024
"""The maximum size of a TLS record. Reading this much leaves no data inside the library, where no selector sees it."""


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A parser of request heads that rejects requests without HTTP/1.0 or HTTP/1.1 with status 400.

    waitress would treat a request line without a version as HTTP/0.9, and send a body without a response head. An
    attacker could misuse this against clients of other protocols: such a client might read the body as a response in
    its own protocol (RFC 9112, 2.3 and A).
    """

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.version not in VERSIONS:
            raise ParsingError("unsupported HTTP version in the request line; use HTTP/1.0 or HTTP/1.1")


class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request with its response. It adds the client's certificate to the WSGI environ."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        certificate = self.channel.certificate
        if certificate is not None:
            environ[CERTIFICATE] = certificate
        return environ


class Channel(HTTPChannel):  # type: ignore[misc]  # as above
    """A client connection."""

    parser_class = Parser
    task_class = Task
    certificate: bytes | None = None
    waits_since: float | None = None
    """When the incomplete request or handshake began, by time.monotonic(); None without one."""
    postponed = False
    """Whether the next request waits until the previous response is sent. The I/O thread then starts it."""

    def writable(self) -> bool:
        return self.postponed or bool(super().writable())

    def handle_write(self) -> None:
        super().handle_write()
        if self.postponed and self.connected and not self.total_outbufs_len:
            self.postponed = False
            self.server.add_task(self)

    def received(self, data: bytes) -> bool:
        taken: bool = super().received(data)
        if self.request is None:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = time.monotonic()
        return taken


class TlsChannel(Channel):
    """A client connection through TLS."""

    socket: TlsSocket

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.waits_since = time.monotonic()

    def handle_read(self) -> None:
        """Read all decrypted data.

        waitress would read only once. It would also treat missing data as the end of the connection.
        """
        while True:
            try:
                data = self.recv(RECORD_SIZE)
            except BlockingIOError:
                return
            except OSError:  # a failed handshake, a reset or a forged record
                self.handle_close()
                return
            if not data:
                self.connected = False
                return
            if self.certificate is None:
                self.certificate = self.socket.certificate()
            self.last_activity = time.time()
            self.received(data)
            if not self.socket.pending():
                return


class Server(TcpWSGIServer):  # type: ignore[misc]  # as above
    """A listener. `secure` is a function that wraps accepted sockets in TLS; None for plain HTTP.

    A request must arrive completely within `request_timeout_s`. A response must make progress within the same time.
    """

    secure: Callable[[socket.socket], TlsSocket] | None = None
    request_timeout_s: float = 60.0

    def channel_class(self, _server: object, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        """Create the connection for an accepted socket. waitress calls this method.

        The new connection registers itself in waitress's map of sockets.
        """
        if self.secure is None:
            Channel(self, sock, *arguments, **named)
            return
        try:
            secured = self.secure(sock)
        except (OSError, ValueError):
            sock.close()
            return
        TlsChannel(self, secured, *arguments, **named)

    def add_task(self, task: Channel) -> None:
        """Queue a request for the workers, or postpone it until the previous response is sent.

        Otherwise the responses for a client that does not read would fill the buffer until a worker blocks. waitress
        calls this method.
        """
        if task.total_outbufs_len:
            task.postponed = True
        else:
            super().add_task(task)

    def maintenance(self, now: float) -> None:
        """Close connections that exceed a time limit. waitress calls this method periodically; `now` is time.time()."""
        super().maintenance(now)
        limit = time.monotonic() - self.request_timeout_s
        for channel in list(self.active_channels.values()):
            if channel.waits_since is not None and channel.waits_since < limit:
                channel.will_close = True
            elif channel.total_outbufs_len and channel.last_activity < now - self.request_timeout_s:
                channel.handle_close()  # at once: will_close would wait until the socket is writable
