"""Send one HTTP request to an untrusted server, with limits on time and size.

One deadline covers the name lookup, the connection, the headers and the body. Redirects are not followed, so no other
server receives the request's data. Error messages do not quote the URL, which may include a secret.

Thread rule: any thread. Each request runs on its own thread, because the system's name lookup cannot be interrupted.
"""

from __future__ import annotations

import io
import threading
import urllib.error
import urllib.parse
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
"""Concurrent requests, including abandoned ones whose resolver has not returned."""
_room: Final = threading.BoundedSemaphore(ASKED_AT_A_TIME_MAX)


def split_url(url: str) -> urllib.parse.SplitResult:
    """Split a URL. All parts are empty if it is invalid: the errors of `urlsplit` quote what may be a password."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises ValueError
    except ValueError:
        return urllib.parse.SplitResult("", "", "", "", "")
    return parts


class _TimedFile(io.RawIOBase):
    """A file object over a socket. Reading raises TimeoutError after a deadline on the clock of time.monotonic()."""

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
    """A socket with a deadline for reading. It has only the one method that HTTPResponse uses."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb", "a response is read"
        return io.BufferedReader(_TimedFile(self._connection, self._until))


def timed_response(until: float, connection: socket.socket, *arguments: Any, **more: Any) -> HTTPResponse:
    """Return an HTTPResponse that raises TimeoutError if it is read after the deadline `until`.

    Use it as the `response_class` of a connection.
    """
    timed: Any = _TimedSocket(connection, until)
    return HTTPResponse(timed, *arguments, **more)


class _Timed(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """A urllib handler for HTTP and HTTPS whose responses must be complete by a deadline."""

    def __init__(self, until: float, context: ssl.SSLContext | None) -> None:
        urllib.request.HTTPSHandler.__init__(self, context=context)
        self._until = until
        self._own_context = context

    def _connection(self, kind: type[HTTPConnection], host: str, **more: Any) -> HTTPConnection:
        made = kind(host, **more)
        answer: Any = partial(timed_response, self._until)  # it is only called
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
    """Send a GET, or a POST with `data`, and return the body of the response.

    `connect_s`   the time limit for the connection
    `whole_s`     the time limit for everything together
    `context`     the TLS context; None for the system's trusted certificates

    ValueError: the body is larger than `size_max` bytes, or the URL is neither http nor https. urllib.error.HTTPError:
    the status is an error or a redirect. OSError, http.client.HTTPException: the response did not arrive completely.
    Proxies come from the environment, as in urllib.
    """

    def ask() -> bytes:
        with _opened(url, data, headers, min(connect_s, whole_s), until, context) as answer:
            body = answer.read(size_max + 1)
            missing = answer.length or 0
        if len(body) > size_max:
            limit = f"larger than {size_max >> 20} MiB" if size_max >> 20 else f"over {size_max} B"
            raise ValueError(f"the response is {limit}")
        if missing:  # read() with a size does not raise this itself
            raise IncompleteRead(body, missing)
        return body

    until = time.monotonic() + whole_s
    return _in_time(ask, until)


def tell(url: str, data: bytes, *, headers: Mapping[str, str], connect_s: float, whole_s: float) -> None:
    """Send a POST with `data` and wait for the headers of a successful response. Raises the errors of `read`."""

    def ask() -> None:
        _opened(url, data, headers, min(connect_s, whole_s), until, None).close()

    until = time.monotonic() + whole_s
    _in_time(ask, until)


def _in_time(ask: Callable[[], T], until: float) -> T:
    """Run `ask` on its own thread and return its result or raise its error. TimeoutError after the deadline `until`."""
    if not _room.acquire(timeout=max(0.0, until - time.monotonic())):
        raise TimeoutError(f"{ASKED_AT_A_TIME_MAX} HTTP requests are already running, and none finished in time")
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # raised on the caller's thread
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
        request = urllib.request.Request(url, data, dict(headers))  # noqa: S310  # the scheme is checked above
        answer: HTTPResponse = opener.open(request, timeout=connect_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (InvalidURL, ValueError):  # their messages quote the URL
        raise InvalidURL("the URL or a header contains characters that HTTP does not allow") from None
    return answer
