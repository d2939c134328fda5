"""The acceptor: one thread that listens on every address and deals accepted sockets out to the workers.

It counts connections, in all and by address, and refuses what is over a limit. When the process runs out of descriptors
it pauses instead of spinning on a listening socket that stays readable, and tries again a moment later.

Thread rule: `start` and `stop` from the composition root; `released` from any worker.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.bell import Bell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite._native.serve.connection import Connection
    from kafkalite.net.listener import BoundListener
    from kafkalite.net.worker import Worker

logger = logging.getLogger("kafkalite.net")

PAUSE_S: Final = 0.1
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts on `listeners` and hands each socket to the worker with the fewest connections."""

    def __init__(
        self,
        listeners: Sequence[BoundListener],
        workers: Sequence[Worker],
        *,
        connections_max: int,
        connections_room: int,
        connections_per_address_max: int,
        per_address_overrides: Mapping[str, int],
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
    ) -> None:
        self._listeners = listeners
        self._workers = workers
        self._connections_max = connections_max
        self._connections_room = connections_room
        self._room_is_short = False
        self._per_address_max = connections_per_address_max
        self._per_address_overrides = per_address_overrides
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._lock = threading.Lock()
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._next = 0
        self._stop = threading.Event()
        self._bell = Bell()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="kafkalite-acceptor", daemon=True)

    def start(self) -> None:
        """Starts accepting."""
        for listener in self._listeners:
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._thread.start()

    def stop(self) -> None:
        """Stops accepting and closes the listening sockets."""
        self._stop.set()
        if self._thread.is_alive():
            self._bell.ring()
            self._thread.join()
        for listener in self._listeners:
            listener.socket.close()
        self._selector.close()
        self._bell.close()

    def released(self, connection: Connection) -> None:
        """A worker closed this connection."""
        with self._lock:
            self._total -= 1
            self._by_address[connection.client_host] -= 1
            if self._by_address[connection.client_host] <= 0:
                del self._by_address[connection.client_host]

    @property
    def connection_count(self) -> int:
        """Connections accepted and not closed yet."""
        return self._total

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select():
                if key.data is not None and not self._accept(key.data):
                    # Out of descriptors or memory: the socket stays readable, so wait instead of spinning.
                    self._stop.wait(PAUSE_S)

    def _accept(self, listener: BoundListener) -> bool:
        """Takes one waiting connection; False when the machine has no room for it now."""
        if self._is_out_of_room():
            return False
        try:
            accepted, address = listener.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return True
        except OSError as error:
            if self._stop.is_set():
                return True
            logger.warning("accepting on %s pauses: %s", listener.endpoint, error.strerror)
            return error.errno not in _OUT_OF_RESOURCES
        host = address[0].removeprefix("::ffff:")
        reason = self._refusal(host)
        if reason is not None:
            logger.warning("refused a connection from %s: %s", host, reason)
            accepted.close()
            return True
        self._prepare(accepted)
        self._pick_worker().adopt(accepted, (host, address[1]), listener)
        return True

    def _is_out_of_room(self) -> bool:
        """Whether the next connection would take a descriptor that the log needs; waiting ones stay in the backlog."""
        short = self._total >= self._connections_room
        if short != self._room_is_short:
            self._room_is_short = short
            state = "pauses" if short else "goes on"
            logger.warning(
                "accepting %s: %d connections, descriptors for %d", state, self._total, self._connections_room
            )
        return short

    def set_limits(
        self, *, connections_max: int, connections_per_address_max: int, per_address_overrides: Mapping[str, int]
    ) -> None:
        """New limits for connections to come; those that are open stay. Any thread."""
        with self._lock:
            self._connections_max = connections_max
            self._per_address_max = connections_per_address_max
            self._per_address_overrides = per_address_overrides

    def _refusal(self, host: str) -> str | None:
        """Counts the connection in, or says which limit is reached."""
        with self._lock:
            if self._total >= self._connections_max:
                return f"max.connections ({self._connections_max}) is reached"
            limit = self._per_address_overrides.get(host, self._per_address_max)
            if self._by_address[host] >= limit:
                return f"max.connections.per.ip ({limit}) is reached"
            self._total += 1
            self._by_address[host] += 1
        return None

    def _prepare(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)

    def _pick_worker(self) -> Worker:
        """The worker with the fewest connections; in turn among equals."""
        count = len(self._workers)
        order = [self._workers[(self._next + i) % count] for i in range(count)]
        self._next = (self._next + 1) % count
        return min(order, key=lambda worker: worker.connection_count)
