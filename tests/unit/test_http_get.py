"""One document over HTTP, from servers that do what they should not."""

from __future__ import annotations

import socket
import threading
import urllib.error
from collections.abc import Callable, Iterator
from http.client import HTTPException

import pytest

from kafkalite import http_get

WHOLE_S = 60.0


class Server:
    """Hands each connection to a function, and keeps what came in."""

    def __init__(self, answer: Callable[[socket.socket, threading.Event], None]) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/metrics"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            connection, _ = self._socket.accept()
            with connection:
                if self._ended.is_set():
                    return
                self.requests.append(connection.recv(65536))
                try:
                    self._answer(connection, self._ended)
                except OSError:
                    continue  # who asked has gone

    def close(self) -> None:
        self._ended.set()
        with socket.create_connection(self._socket.getsockname()):
            pass
        self._thread.join()
        self._socket.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket, threading.Event], None]], Server]]:
    made: list[Server] = []

    def start(answer: Callable[[socket.socket, threading.Event], None]) -> Server:
        made.append(Server(answer))
        return made[-1]

    yield start
    for server in made:
        server.close()


def get(url: str, whole_s: float = WHOLE_S, size_max: int = 1 << 20) -> bytes:
    headers = {"Authorization": "Bearer secret"}
    return http_get.get(url, headers=headers, connect_s=whole_s, whole_s=whole_s, size_max=size_max)


def sent(raw: bytes) -> Callable[[socket.socket, threading.Event], None]:
    return lambda connection, _: connection.sendall(raw)


def dripping(first: bytes, drop: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Never ends, and never stops either."""

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(first)
        while not ended.wait(0.02):
            connection.sendall(drop)

    return answer


def test_a_document_comes_with_whoever_asked_told(serve: Callable[..., Server]) -> None:
    server = serve(sent(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
    assert get(server.url) == b"hello"
    (request,) = server.requests
    assert b"Authorization: Bearer secret\r\n" in request


@pytest.mark.parametrize(
    "head", [b"Content-Length: 9\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n9\r\nhell"]
)
def test_half_a_document_is_none(serve: Callable[..., Server], head: bytes) -> None:
    server = serve(sent(b"HTTP/1.1 200 OK\r\n" + head))
    with pytest.raises(HTTPException):
        get(server.url)


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"#"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n#\r\n"),
    ],
)
def test_an_answer_that_drips_is_over_at_its_time(serve: Callable[..., Server], first: bytes, drop: bytes) -> None:
    server = serve(dripping(first, drop))
    with pytest.raises((TimeoutError, HTTPException)):
        get(server.url, whole_s=0.5)


def test_a_redirect_is_not_followed_and_takes_no_token_elsewhere(serve: Callable[..., Server]) -> None:
    other = serve(sent(b"HTTP/1.1 200 OK\r\n\r\nmine now"))
    server = serve(sent(f"HTTP/1.1 302 Found\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()))
    with pytest.raises(urllib.error.HTTPError, match="302"):
        get(server.url)
    assert other.requests == []


def test_what_is_too_large_or_no_address_of_http_is_refused(serve: Callable[..., Server]) -> None:
    server = serve(sent(b"HTTP/1.1 200 OK\r\n\r\n" + b"#" * 101))
    assert len(get(server.url, size_max=101)) == 101
    with pytest.raises(ValueError, match="over 100 B"):
        get(server.url, size_max=100)
    with pytest.raises(ValueError, match="neither http nor https"):
        get("file:///etc/hostname")
    with pytest.raises(OSError, match="Connection refused"):
        get("http://127.0.0.1:1/")
