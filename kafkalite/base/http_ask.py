"""One question over HTTP, to a server that is not trusted with anybody's time, memory or secrets.

Looking up its name, connecting, status line, headers and body together take so long at most, however little comes at a
time; a body that is too large is not read to its end; a redirect is not followed, so that what is sent goes to nobody
but whom it is for. No error's text has anything of the address, in which a secret may stand.

A question is asked on a thread of its own: the system's resolver takes as long as it likes, and cannot be stopped.

Proxies are those of the environment, as urllib has them.
"""

from __future__ import annotations

import io
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead, InvalidURL
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Mapping

T = TypeVar("T")
ASKED_AT_A_TIME_MAX: Final = 64
"""Questions, those counted whose resolver has not come back though nobody waits for it any more."""
_room: Final = threading.BoundedSemaphore(ASKED_AT_A_TIME_MAX)


class _TimedFile(io.RawIOBase):
    """What a socket gives, until a moment by time.monotonic(); TimeoutError after it."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the response was not complete in time")
        self._connection.settimeout(left_s)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedSocket:
    """As much of a socket as an HTTPResponse uses."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb", "a response is read"
        return io.BufferedReader(_TimedFile(self._connection, self._until))


def timed_response(until: float, connection: socket.socket, *arguments: Any, **more: Any) -> HTTPResponse:
    """A connection's `response_class`, once it is given `until`: an answer that is whole by then, or a TimeoutError."""
    timed: Any = _TimedSocket(connection, until)
    return HTTPResponse(timed, *arguments, **more)


class _Timed(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections whose answers have to be whole by a moment."""

    def __init__(self, until: float, context: ssl.SSLContext | None) -> None:
        urllib.request.HTTPSHandler.__init__(self, context=context)
        self._until = until
        self._own_context = context

    def _connection(self, kind: type[HTTPConnection], host: str, **more: Any) -> HTTPConnection:
        made = kind(host, **more)
        answer: Any = partial(timed_response, self._until)  # it is called, and nothing else
        made.response_class = answer
        return made

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPSConnection, context=self._own_context), req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        return None


def read(
    url: str,
    data: bytes | None = None,
    *,
    headers: Mapping[str, str],
    connect_s: float,
    whole_s: float,
    size_max: int,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """The body of the answer to a GET, or with `data` to a POST of it. `connect_s` is for the connection, `whole_s` for
    all together; `context` says whom to trust, None whom the system does.

    ValueError: it is larger than `size_max`, or the URL is neither http nor https; urllib.error.HTTPError: another
    status than success, a redirect too; OSError, http.client.HTTPException: there is no whole answer.
    """

    def ask() -> bytes:
        with _opened(url, data, headers, min(connect_s, whole_s), until, context) as answer:
            body = answer.read(size_max + 1)
            missing = answer.length or 0
        if len(body) > size_max:
            limit = f"larger than {size_max >> 20} MiB" if size_max >> 20 else f"over {size_max} B"
            raise ValueError(f"the response is {limit}")
        if missing:  # read() of so many bytes does not tell
            raise IncompleteRead(body, missing)
        return body

    until = time.monotonic() + whole_s
    return _in_time(ask, until)


def tell(url: str, data: bytes, *, headers: Mapping[str, str], connect_s: float, whole_s: float) -> None:
    """POSTs it, and wants nothing back but success, whose headers are whole in time. Errors are those of `read`."""

    def ask() -> None:
        _opened(url, data, headers, min(connect_s, whole_s), until, None).close()

    until = time.monotonic() + whole_s
    _in_time(ask, until)


def _in_time(ask: Callable[[], T], until: float) -> T:
    """What it returns or raises, if that is soon enough; TimeoutError."""
    if not _room.acquire(timeout=max(0.0, until - time.monotonic())):
        raise TimeoutError(f"{ASKED_AT_A_TIME_MAX} HTTP requests are already running, and none finished in time")
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # it is raised where it was asked
            outcome.set_exception(error)
        finally:
            _room.release()

    try:
        threading.Thread(target=work, name="kafkalite-http", daemon=True).start()
    except RuntimeError as error:
        _room.release()
        raise OSError(f"no thread could be started for the request: {error}") from None
    try:
        return outcome.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        raise TimeoutError("the response was not complete in time") from None


def _opened(
    url: str,
    data: bytes | None,
    headers: Mapping[str, str],
    connect_s: float,
    until: float,
    context: ssl.SSLContext | None,
) -> HTTPResponse:
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError("the URL must begin with http:// or https://")
    opener = urllib.request.build_opener(_Timed(until, context), _NoRedirect)
    try:
        request = urllib.request.Request(url, data, dict(headers))  # noqa: S310  # looked at above
        answer: HTTPResponse = opener.open(request, timeout=connect_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (InvalidURL, ValueError):  # their texts quote what is wrong
        raise InvalidURL("the URL or a header contains characters that HTTP does not allow") from None
    return answer
