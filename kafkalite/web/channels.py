"""waitress's connections, with what it lacks: TLS, limits on how long a request and its answer may take, no HTTP/0.9.

    bytes ─▶ TlsSocket ─▶ Channel ─▶ waitress

waitress closes a connection that is silent; one that sends a byte now and then could stay for ever, and is closed here.
So is one that takes nothing of its answer. Of requests that come together the next is served when the answer before it
has left: answers to whoever does not read them would pile up, until a thread waits for him to read.
Imported by server.py alone, which knows whether waitress is there.

Threads: the I/O thread receives; the I/O thread or a worker sends.
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
"""Of TLS: a read of so much leaves nothing readable inside the library, where no selector sees it."""


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A request's head; one without a version, or with another than HTTP/1.0 or 1.1, is answered with 400.

    waitress takes a request line without a version for HTTP/0.9, whose answers have no head: whoever speaks another
    protocol to this port, or is made to by somebody else, could take for its own what it reads (RFC 9112, 2.3 and A).
    """

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.version not in VERSIONS:
            raise ParsingError("unsupported HTTP version in the request line; use HTTP/1.0 or HTTP/1.1")


class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request; its environ tells who the client is by certificate."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        certificate = self.channel.certificate
        if certificate is not None:
            environ[CERTIFICATE] = certificate
        return environ


class Channel(HTTPChannel):  # type: ignore[misc]  # as above
    """A connection."""

    parser_class = Parser
    task_class = Task
    certificate: bytes | None = None
    waits_since: float | None = None
    """Since when a request, or a handshake, is under way and not whole; by time.monotonic()."""
    postponed = False
    """Whether the next request waits until the answer before it has left. The I/O thread ends that."""

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
    """A connection through TLS."""

    socket: TlsSocket

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.waits_since = time.monotonic()

    def handle_read(self) -> None:
        """waitress takes "not yet" for an end here, and one read for all there is."""
        while True:
            try:
                data = self.recv(RECORD_SIZE)
            except BlockingIOError:
                return
            except OSError:  # no handshake that is one, a reset, records that were forged
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
    """One listener. `secure` makes a socket's TLS, if any.

    A request has `request_timeout_s` to arrive, and an answer as long to go on.
    """

    secure: Callable[[socket.socket], TlsSocket] | None = None
    request_timeout_s: float = 60.0

    def channel_class(self, _server: object, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        """What waitress calls to make a connection of an accepted socket; it keeps itself in the map."""
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
        """Called by waitress when a connection has a request to be served."""
        if task.total_outbufs_len:
            task.postponed = True
        else:
            super().add_task(task)

    def maintenance(self, now: float) -> None:
        """Called by waitress now and then; `now` is time.time()."""
        super().maintenance(now)
        limit = time.monotonic() - self.request_timeout_s
        for channel in list(self.active_channels.values()):
            if channel.waits_since is not None and channel.waits_since < limit:
                channel.will_close = True
            elif channel.total_outbufs_len and channel.last_activity < now - self.request_timeout_s:
                channel.handle_close()  # at once: its socket will not say that it can be written to
