"""A TCP proxy between a client and the broker that delays, stalls, drops and cuts connections on command.

Each direction of each connection has its own thread. Faults are set by attribute and apply to bytes that arrive
afterwards: `delay_s` delays each piece, `drop` discards everything (the peer sees silence), `cut()` closes all
connections at once, perhaps within a frame. Faults that hit are counted.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import Self

PIECE_SIZE = 64 * 1024


class Proxy:
    """Listens on a port of 127.0.0.1 and passes everything on to `target_port`. Thread-safe."""

    def __init__(self, target_port: int, seed: int = 0) -> None:
        self.target_port = target_port
        self.delay_s = 0.0
        self.drop = False
        self.refuse = False
        self.cut_count = 0
        self.delayed_count = 0
        self.dropped_count = 0
        self._random = random.Random(seed)
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> int:
        """Resets every connection; returns how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _close(*pair)
        self.cut_count += len(pairs)
        return len(pairs)

    def close(self) -> None:
        self._closing.set()
        _close(self._listener)
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                _close(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, (client, server)), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_SIZE):
                if self.drop:
                    self.dropped_count += 1
                    continue
                if self.delay_s > 0:
                    self.delayed_count += 1
                    time.sleep(self._random.uniform(0, self.delay_s))
                sink.sendall(piece)
        with self._lock:
            self._pairs.discard(pair)
        _close(*pair)


def _close(*sockets: socket.socket) -> None:
    for end in sockets:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
