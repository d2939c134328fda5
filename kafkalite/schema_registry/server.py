"""The registry as a process has it: topic, application and HTTP server, started and stopped together.

    waitress: one thread for all sockets ─▶ whole requests ─▶ `threads` workers ─▶ rest.Application ─▶ topic

waitress reads and writes for every client in one thread, so a slow one holds a connection and no worker; connections,
bodies, headers and idle time have limits. It is pure Python without dependencies, and is imported here alone.

`stop` takes no new connections, lets the requests that are here be answered, and closes the rest.

Threads: `start` makes the I/O thread; waitress makes the workers. `stop` may be called from any thread.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.client import Client
from kafkalite.errors import StartupError
from kafkalite.schema_registry.registry import Registry
from kafkalite.schema_registry.rest import BODY_SIZE_MAX, Application
from kafkalite.schema_registry.topic import TOPIC, TopicStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client.security import Security

logger = logging.getLogger(__name__)

PORT: Final = 8081
THREADS: Final = 8
CONNECTIONS_MAX: Final = 500
HEADER_SIZE_MAX: Final = 32 * 1024
IDLE_TIMEOUT_S: Final = 120
"""A connection without a byte for so long is closed."""
STOP_TIMEOUT_S: Final = 10.0
"""What requests under way are given at the end."""
BACKLOG: Final = 128
LOOP_S: Final = 1.0
STOPPING_LOOP_S: Final = 0.05


class RegistryServer:
    """See the module. A context manager: `start` on entering, `stop` on leaving.

    `host`, `port`      where to listen; port 0 takes a free one
    `topic`             where schemas are kept
    `threads`           requests served at a time
    `connections_max`   sockets open at a time; more wait to be accepted
    `timeout_s`         what a request waits for the broker
    `security`          how connections to the broker are made secure; None: they are not
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        topic: str = TOPIC,
        threads: int = THREADS,
        connections_max: int = CONNECTIONS_MAX,
        timeout_s: float = 15.0,
        security: Security | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._threads = threads
        self._connections_max = connections_max
        self._client = Client(
            bootstrap_servers, client_id="kafkalite-registry", request_timeout_s=timeout_s, security=security
        )
        self.store = TopicStore(self._client, topic, timeout_s=timeout_s)
        self._map: dict[int, Any] = {}
        self._server: Any = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """host:port as bound."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def failed(self) -> threading.Event:
        """Set when the registry cannot go on."""
        return self.store.failed

    def start(self) -> None:
        """Binds, reads the topic to its end, serves. StartupError, KafkaError, ClientError, OSError."""
        server = _waitress_server()
        listener = self._bind()
        try:
            self._port = listener.getsockname()[1]
            self.store.start()
            cluster_id = self._client.cluster_id or ""
            application = Application(Registry(self.store), refresh=self.store.refresh, cluster_id=cluster_id)
            self._server = server(
                application,
                map=self._map,
                sockets=[listener],
                threads=self._threads,
                connection_limit=self._connections_max,
                channel_timeout=IDLE_TIMEOUT_S,
                max_request_body_size=BODY_SIZE_MAX,
                max_request_header_size=HEADER_SIZE_MAX,
                ident=None,
                clear_untrusted_proxy_headers=True,
                asyncore_use_poll=True,
            )
        except BaseException:
            listener.close()
            self.store.close()
            self._client.close()
            raise
        self._thread = threading.Thread(target=self._loop, name="schemas-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """See the module. Idempotent."""
        if self._thread is None:
            return
        self._stopping.set()
        self._server.pull_trigger()
        self._thread.join()
        self._thread = None
        self.store.close()
        self._client.close()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise StartupError(f"cannot listen on {self.address}: {error.strerror or error}") from error
        return listener

    def _loop(self) -> None:
        from waitress import wasyncore

        server = self._server
        try:
            while not self._stopping.is_set():
                wasyncore.loop(timeout=LOOP_S, use_poll=True, map=self._map, count=1)
            server.del_channel(self._map)  # takes no more
            server.socket.close()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self._busy() and time.monotonic() < deadline:
                wasyncore.loop(timeout=STOPPING_LOOP_S, use_poll=True, map=self._map, count=1)
        except BaseException:
            logger.exception("the HTTP server failed")
            self.failed.set()
            raise
        finally:
            server.task_dispatcher.shutdown(timeout=STOP_TIMEOUT_S)
            wasyncore.close_all(self._map, ignore_all=True)

    def _busy(self) -> bool:
        """Whether a request is being served, or its answer is not sent yet."""
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)


def _waitress_server() -> Any:
    try:
        from waitress.server import create_server
    except ImportError as error:
        raise StartupError("the registry needs waitress: pip install 'kafkalite[registry]'") from error
    logging.getLogger("waitress").setLevel(logging.ERROR)  # it warns of a queue whenever all workers are busy
    return create_server
