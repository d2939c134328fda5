"""One question over HTTP, to servers that do what they should not."""

from __future__ import annotations

import socket
import threading
import traceback
import urllib.error
from collections.abc import Callable
from http.client import HTTPException

import pytest

from kafkalite.base import http_ask
from tests.kit.fakes.raw_http import DRIPS, HEADER_DRIPS, RawHttp, dripping, redirect_to, sent

WHOLE_S = 60.0


def get(url: str, whole_s: float = WHOLE_S, size_max: int = 1 << 20) -> bytes:
    headers = {"Authorization": "Bearer secret"}
    return http_ask.read(url, headers=headers, connect_s=whole_s, whole_s=whole_s, size_max=size_max)


@pytest.mark.parametrize("url", ["http://me:s3cret\uff03@host/", "http://[s3cret", "http://me:s3cret#@host/"])
def test_an_address_that_cannot_be_split_has_no_parts(url: str) -> None:
    assert set(http_ask.split_url(url)) == {""}


def tell(url: str, whole_s: float = WHOLE_S) -> None:
    http_ask.tell(url, b"news", headers={"Authorization": "Bearer secret"}, connect_s=whole_s, whole_s=whole_s)


def test_a_document_comes_with_whoever_asked_told() -> None:
    with RawHttp(sent(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")) as server:
        assert get(server.url) == b"hello"
    (request,) = server.requests
    assert b"Authorization: Bearer secret\r\n" in request


@pytest.mark.parametrize(
    "head", [b"Content-Length: 9\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n9\r\nhell"]
)
def test_half_a_document_is_none(head: bytes) -> None:
    with RawHttp(sent(b"HTTP/1.1 200 OK\r\n" + head)) as server, pytest.raises(HTTPException):
        get(server.url)


@pytest.mark.parametrize(("first", "drop"), DRIPS)
def test_an_answer_that_drips_is_over_at_its_time(first: bytes, drop: bytes) -> None:
    with RawHttp(dripping(first, drop)) as server, pytest.raises((TimeoutError, HTTPException)):
        get(server.url, whole_s=0.5)


@pytest.mark.parametrize(("first", "drop"), HEADER_DRIPS)
def test_who_is_told_has_to_say_in_time_that_he_was(first: bytes, drop: bytes) -> None:
    with RawHttp(dripping(first, drop)) as server, pytest.raises((TimeoutError, HTTPException)):
        tell(server.url, whole_s=0.5)


@pytest.mark.parametrize(("first", "drop"), DRIPS[len(HEADER_DRIPS) :])
def test_what_is_said_behind_success_is_not_waited_for(first: bytes, drop: bytes) -> None:
    with RawHttp(dripping(first, drop)) as server:
        tell(server.url)
    assert server.requests[0].startswith(b"POST /document ")


@pytest.mark.parametrize("status", ["302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"])
@pytest.mark.parametrize("ask", [get, tell])
def test_a_redirect_is_not_followed_and_takes_nothing_elsewhere(ask: Callable[[str], object], status: str) -> None:
    with (
        RawHttp(sent(b"HTTP/1.1 200 OK\r\n\r\nmine now")) as other,
        RawHttp(redirect_to(other.url, status)) as server,
        pytest.raises(urllib.error.HTTPError, match=status[:3]),
    ):
        ask(server.url)
    assert other.requests == []


def test_what_is_too_large_or_no_address_of_http_is_refused() -> None:
    with RawHttp(sent(b"HTTP/1.1 200 OK\r\n\r\n" + b"#" * 101)) as server:
        assert len(get(server.url, size_max=101)) == 101
        with pytest.raises(ValueError, match="over 100 B"):
            get(server.url, size_max=100)
    for ask in (get, tell):
        with pytest.raises(ValueError, match="must begin with http"):
            ask("file:///etc/hostname")
        with pytest.raises(OSError, match="Connection refused"):
            ask("http://127.0.0.1:1/")
        for odd in ("http://a..b/", "http://127.0.0.1:1/ü"):
            with pytest.raises(HTTPException, match="characters that HTTP does not allow"):
                ask(odd)


@pytest.mark.parametrize("ask", [get, tell])
def test_the_wait_for_an_unresolved_name_is_bounded(
    ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = threading.Event()

    def endless(*_: object, **__: object) -> list[object]:
        assert looked_up.wait(WHOLE_S)
        raise socket.gaierror("nobody knows")

    monkeypatch.setattr(socket, "getaddrinfo", endless)
    try:
        with pytest.raises(TimeoutError):
            ask("http://nobody.invalid/", whole_s=0.2)
        assert not looked_up.is_set()
    finally:
        looked_up.set()


def test_questions_that_no_thread_could_be_had_for_take_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with RawHttp(sent(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")) as server:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", none)
            for _ in range(http_ask.ASKED_AT_A_TIME_MAX):
                with pytest.raises(OSError, match="no thread could be started for the request: can't start new thread"):
                    get(server.url)
        assert get(server.url) == b"hello"


def test_the_number_of_requests_that_wait_for_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = threading.Event()
    asked = []

    def endless(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        assert looked_up.wait(WHOLE_S)
        raise socket.gaierror("nobody knows")

    monkeypatch.setattr(socket, "getaddrinfo", endless)
    try:
        for _ in range(http_ask.ASKED_AT_A_TIME_MAX):
            with pytest.raises(TimeoutError, match="not complete in time"):
                get("http://nobody.invalid/", whole_s=0.01)
        with pytest.raises(TimeoutError, match="HTTP requests are already running"):
            get("http://nobody.invalid/", whole_s=0.01)
        assert len(asked) <= http_ask.ASKED_AT_A_TIME_MAX
    finally:
        looked_up.set()
        monkeypatch.undo()
    with RawHttp(sent(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")) as server:
        assert get(server.url) == b"hello"


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/hook?token=s3cret x",
        "http://127.0.0.1:1/\x01s3cret",
        "http://127.0.0.1:s3cret/",
        "http://a:s3cret@127.0.0.1:port/",
        "http://s3cret..b/",
        "http://[s3cret/",
        "http://127.0.0.1:1/s3cretü",
        "ftp://127.0.0.1/s3cret",
        "s3cret",
    ],
)
@pytest.mark.parametrize("ask", [get, tell])
def test_an_address_that_cannot_be_asked_is_in_no_error(ask: Callable[[str], object], address: str) -> None:
    with pytest.raises((HTTPException, ValueError, OSError)) as refused:
        ask(address)
    assert "s3cret" not in f"{refused.value!r}" + "".join(traceback.format_exception(refused.value))
