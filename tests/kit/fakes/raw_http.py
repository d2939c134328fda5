"""A server of HTTP, plain or over TLS, that answers what a test wants, byte by byte where it wants that."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl

DROP_S = 0.02
Answer = Callable[[socket.socket, threading.Event], None]
"""Is given a connection that has asked, and what is set when the server ends."""


class RawHttp:
    """`with RawHttp(answer) as server:` it serves one connection after the other, and keeps what came in."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._context = context
        self._ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        kind = "http" if context is None else "https"
        self.url = f"{kind}://127.0.0.1:{self._socket.getsockname()[1]}/document"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            accepted, _ = self._socket.accept()
            with accepted:
                if self._ended.is_set():
                    return
                try:
                    self._serve_one(accepted)
                except OSError:
                    continue  # who asked has gone

    def _serve_one(self, accepted: socket.socket) -> None:
        if self._context is None:
            self.requests.append(_request(accepted))
            self._answer(accepted, self._ended)
            return
        with self._context.wrap_socket(accepted, server_side=True) as connection:
            self.requests.append(_request(connection))
            self._answer(connection, self._ended)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        with socket.create_connection(self._socket.getsockname()):
            pass
        self._thread.join()
        self._socket.close()


def _request(connection: socket.socket) -> bytes:
    """All of it: a connection that is closed with something unread is reset, and what was answered with it."""
    data = b""
    while len(data) < _size(data):
        received = connection.recv(65536)
        if not received:
            raise ConnectionError("who asked has gone")
        data += received
    return data


def _size(data: bytes) -> int:
    """Return the size of the request that begins with `data`, or more than its length while the head is incomplete."""
    head, end, _ = data.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    return len(head) + len(end) + int(found[1] if found else 0) if end else len(data) + 1


def sent(raw: bytes) -> Answer:
    """All of it at once."""
    return lambda connection, _: connection.sendall(raw)


def redirect_to(url: str, status: str = "302 Found") -> Answer:
    return sent(f"HTTP/1.1 {status}\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode())


def dripping(first: bytes, drop: bytes) -> Answer:
    """Never ends, and never stops either."""

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(first)
        while not ended.wait(DROP_S):
            connection.sendall(drop)

    return answer


DRIPS = [
    (b"", b"H"),
    (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    (b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n"),
    (b"HTTP/1.1 200 OK\r\n\r\n", b"#"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n#\r\n"),
]
"""(what comes at first, what drips) in every part of an answer."""
HEADER_DRIPS = DRIPS[:3]
