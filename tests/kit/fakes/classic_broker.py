"""A small 0.7 broker in plain Python, written from the specification alone: what clients are tested against.

In memory, everything visible at once, one thread a connection. It registers in ZooKeeper when given a client.
"""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import struct
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kazoo.client import KazooClient

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)


class ClassicBroker:
    """Serves from `start` to `stop`; logs survive a restart of the object's server."""

    def __init__(self, broker_id: int, partition_count: int = 1) -> None:
        self.broker_id = broker_id
        self.partition_count = partition_count
        self.logs: dict[tuple[str, int], bytearray] = {}
        self.requests: list[int] = []
        self._lock = threading.Lock()
        self._server: socketserver.ThreadingTCPServer | None = None
        self._connections: set[socket.socket] = set()
        self.port = 0

    def start(self) -> ClassicBroker:
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                broker._connections.add(self.request)
                try:
                    broker._serve(self.request)
                except (OSError, struct.error, ValueError):
                    pass
                finally:
                    broker._connections.discard(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def register(self, client: KazooClient, *topics: str) -> None:
        client.create(
            f"/brokers/ids/{self.broker_id}", f"test:127.0.0.1:{self.port}".encode(), ephemeral=True, makepath=True
        )
        for topic in topics:
            path = f"/brokers/topics/{topic}/{self.broker_id}"
            client.create(path, str(self.partition_count).encode(), ephemeral=True, makepath=True)

    def append(self, topic: str, partition: int, data: bytes) -> None:
        if partition == -1:
            partition = random.randrange(self.partition_count)
        if not 0 <= partition < self.partition_count:
            raise ValueError("wrong partition")
        with self._lock:
            self.logs.setdefault((topic, partition), bytearray()).extend(data)

    def _serve(self, connection: socket.socket) -> None:
        while True:
            size, kind = struct.unpack(">ih", _exact(connection, 6))
            body = _Reader(_exact(connection, size - 2))
            self.requests.append(kind)
            if kind == PRODUCE:
                self._produce(body)
            elif kind == MULTIPRODUCE:
                for _ in range(body.take(">h")):
                    self._produce(body)
            elif kind == FETCH:
                code, data = self._fetch(body)
                connection.sendall(struct.pack(">ih", len(data) + 2, code) + data)
            elif kind == MULTIFETCH:
                parts = [self._fetch(body) for _ in range(body.take(">h"))]
                answer = b"".join(struct.pack(">ih", len(data) + 2, code) + data for code, data in parts)
                connection.sendall(struct.pack(">ih", len(answer) + 2, 0) + answer)
            elif kind == OFFSETS:
                key = (body.text(), body.take(">i"))
                time_ms, count = body.take(">q"), body.take(">i")
                end = len(self.logs.get(key, b""))
                found = ([end, 0] if end else [0]) if time_ms == -1 else [0] if time_ms == -2 else []
                found = found[:count]
                answer = struct.pack(f">i{len(found)}q", len(found), *found)
                connection.sendall(struct.pack(">ih", len(answer) + 2, 0) + answer)
            else:
                return

    def _produce(self, body: _Reader) -> None:
        topic, partition = body.text(), body.take(">i")
        self.append(topic, partition, body.bytes(body.take(">i")))

    def _fetch(self, body: _Reader) -> tuple[int, bytes]:
        key = (body.text(), body.take(">i"))
        offset, size_max = body.take(">q"), body.take(">i")
        if not 0 <= key[1] < self.partition_count:
            return 3, b""
        log = self.logs.get(key)
        if log is None:
            return 0, b""
        if not 0 <= offset <= len(log):
            return 1, b""
        with self._lock:
            return 0, bytes(log[offset : offset + size_max])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += size
        if len(found) != size:
            raise ValueError("too few bytes")
        return found

    def text(self) -> str:
        return self.bytes(self.take(">h")).decode()


def _exact(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise OSError("closed")
        found += more
    return found
