"""Serve one WSGI application over HTTP or HTTPS on one or more addresses.

    waitress: one thread for all sockets ─▶ whole requests ─▶ `threads` workers ─▶ the application

A slow client does not occupy a worker while at most 16 MiB of its response are unsent. `Limits` bounds connections,
sizes and times. waitress is an optional dependency, imported when a server is started.

`bind` binds the ports, and `start` serves. `stop` gives requests in progress a limited time, and closes all
connections.

Thread rule: `start` creates the I/O thread; waitress creates the workers. Any thread may call `stop`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite._native.base import native_time as time
from kafkalite.base.extras import needs_extra
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.web.tls import Tls

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
CLEANUP_S: Final = 5
"""Interval of waitress's check for connections to close, in seconds."""
LOOP_S: Final = 1.0
STOPPING_LOOP_S: Final = 0.05
STOP_TIMEOUT_S: Final = 10.0
"""Time that requests in progress get at a stop."""
OUT_BUFFER_SIZE: Final = 32 * 1024 * 1024
"""Above waitress's limit for one client's unsent output (16 MiB), so that no response is buffered in a file."""
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[A-Za-z0-9._-]*)(:(?P<port>[0-9]{1,5}))?/?"
)


class Address(NamedTuple):
    """An address to listen on. An empty host means every interface; IPv6 has no brackets."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The address as host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_address(text: str, port: int) -> Address:
    """Parse http://HOST:PORT or https://HOST:PORT. `port` is the default port. ValueError if the text is invalid."""
    found = _URL.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:80]!r} is not an address to listen on; expected one such as https://127.0.0.1:{port}")
    number = int(found["port"] or port)
    if number > 65535:
        raise ValueError(f"port {number} is not between 0 and 65535")
    return Address(found["scheme"], found["host"].strip("[]"), number)


class Limits(NamedTuple):
    """The limits of a server, for all clients together and for each client."""

    threads: int = 8
    """Concurrent requests."""
    connections: int = 500
    """Open sockets; further connections wait to be accepted."""
    header_size: int = 32 * 1024
    body_size: int = 2 * 1024 * 1024
    idle_timeout_s: int = 120
    """A connection without traffic for this time is closed."""
    request_timeout_s: float = 60.0
    """A handshake or request that is incomplete after this time, or a stalled response, ends its connection."""


class WebServer:
    """The HTTP server of one application."""

    def __init__(
        self,
        application: Callable[..., Iterable[bytes]],
        addresses: Iterable[Address],
        *,
        tls: Tls | None = None,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        extra: str = "web",
    ) -> None:
        """Create a server without binding its addresses.

        `tls` is required for https addresses; ValueError without it. `extra` is the package's extra that installs
        waitress.
        """
        self.addresses = list(addresses)
        """The bound addresses after `bind`."""
        self._application = application
        self._tls = tls
        self._limits = limits
        self._extra = extra
        self._sockets: list[socket.socket] = []
        self._servers: list[Any] = []
        self._dispatcher: Any = None
        self._map: dict[int, Any] = {}
        self._on_failure: Callable[[], object] = lambda: None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if tls is None and any(address.scheme == "https" for address in self.addresses):
            raise ValueError("https requires a certificate; set ssl.keystore.location")

    def bind(self) -> None:
        """Bind the ports. StartupError if a port cannot be bound."""
        try:
            for at, address in enumerate(self.addresses):
                listener = _bound(address)
                self._sockets.append(listener)
                self.addresses[at] = address._replace(port=listener.getsockname()[1])
        except BaseException:
            self._close_sockets()
            raise

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """Start serving. StartupError if waitress is not installed.

        `on_failure` is called if the server fails later.
        """
        self._on_failure = on_failure
        try:
            self._make_servers()
        except BaseException:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._loop, name="web", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Stop serving: give requests in progress STOP_TIMEOUT_S, then close all connections. Idempotent.

        Return whether the server was running.
        """
        if self._thread is None:
            self._close_sockets()
            return False
        self._stopping.set()
        with contextlib.suppress(OSError):  # its loop may have ended on its own
            self._servers[0].pull_trigger()
        self._thread.join()
        self._thread = None
        return True

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the listeners, the connections, and the pipe that wakes the I/O thread."""
        return [*(listener.fileno() for listener in self._sockets), *self._map]

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets.clear()

    def _make_servers(self) -> None:
        try:
            from waitress.adjustments import Adjustments
            from waitress.task import ThreadedTaskDispatcher

            from kafkalite.web.channels import Server
        except ImportError as error:
            raise StartupError(needs_extra("serving HTTP needs waitress", self._extra)) from error
        logging.getLogger("waitress").setLevel(logging.ERROR)  # it warns about its queue whenever all workers are busy
        limits = self._limits
        self._dispatcher = ThreadedTaskDispatcher()
        self._dispatcher.set_thread_count(limits.threads)
        for address, listener in zip(self.addresses, self._sockets, strict=True):
            adjustments = Adjustments(
                sockets=[listener],
                threads=limits.threads,
                connection_limit=limits.connections,
                channel_timeout=limits.idle_timeout_s,
                cleanup_interval=CLEANUP_S,
                max_request_body_size=limits.body_size,
                max_request_header_size=limits.header_size,
                url_scheme=address.scheme,
                outbuf_overflow=OUT_BUFFER_SIZE,
                ident=None,
                clear_untrusted_proxy_headers=True,
                asyncore_use_poll=True,
            )
            server = Server(
                self._application,
                self._map,
                _sock=listener,
                dispatcher=self._dispatcher,
                adj=adjustments,
                bind_socket=False,
                sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            )
            server.request_timeout_s = limits.request_timeout_s
            server.secure = self._tls.secure if self._tls is not None and address.scheme == "https" else None
            self._servers.append(server)

    def _loop(self) -> None:
        from waitress import wasyncore

        try:
            while not self._stopping.is_set():
                wasyncore.loop(timeout=LOOP_S, use_poll=True, map=self._map, count=1)
                if self._tls is not None:
                    self._tls.look()
            for server in self._servers:  # no new connections
                server.del_channel(self._map)
                server.socket.close()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self._busy() and time.monotonic() < deadline:
                wasyncore.loop(timeout=STOPPING_LOOP_S, use_poll=True, map=self._map, count=1)
        except BaseException:
            logger.exception("the HTTP server failed")
            self._on_failure()
            raise
        finally:
            self._dispatcher.shutdown(timeout=STOP_TIMEOUT_S)
            wasyncore.close_all(self._map, ignore_all=True)

    def _busy(self) -> bool:
        """Return whether a request is in progress or a response is not yet sent."""
        return any(
            channel.requests or channel.total_outbufs_len
            for server in self._servers
            for channel in list(server.active_channels.values())
        )


def _bound(address: Address) -> socket.socket:
    """Return a listening socket for an address. StartupError if it cannot be bound."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {address.authority}: {error.strerror or error}") from error
    return listener
