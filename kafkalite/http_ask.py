"""One question over HTTP, to a server that is not trusted with anybody's time, memory or secrets.

The status line, headers and body together take so long at most, however little of them comes at a time; a body that is
too large is not read to its end; a redirect is not followed, so that what is sent goes to nobody but whom it is for.

Proxies are those of the environment, as urllib has them.
"""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead, InvalidURL
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping


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
            raise TimeoutError("its answer was not whole in time")
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


class _Timed(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections whose answers have to be whole by a moment."""

    def __init__(self, until: float, context: ssl.SSLContext | None) -> None:
        urllib.request.HTTPSHandler.__init__(self, context=context)
        self._until = until
        self._own_context = context

    def _response(self, connection: socket.socket, *arguments: Any, **more: Any) -> HTTPResponse:
        timed: Any = _TimedSocket(connection, self._until)
        return HTTPResponse(timed, *arguments, **more)

    def _connection(self, kind: type[HTTPConnection], host: str, **more: Any) -> HTTPConnection:
        made = kind(host, **more)
        made.response_class = self._response  # type: ignore[assignment]  # it is called, and nothing else
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
    with _opened(url, data, headers, min(connect_s, whole_s), time.monotonic() + whole_s, context) as answer:
        body = answer.read(size_max + 1)
        missing = answer.length or 0
    if len(body) > size_max:
        raise ValueError(f"it is larger than {size_max >> 20} MiB" if size_max >> 20 else f"it is over {size_max} B")
    if missing:  # read() of so many bytes does not tell
        raise IncompleteRead(body, missing)
    return body


def tell(url: str, data: bytes, *, headers: Mapping[str, str], connect_s: float, whole_s: float) -> None:
    """POSTs it, and wants nothing back but success, whose headers are whole in time. Errors are those of `read`."""
    _opened(url, data, headers, min(connect_s, whole_s), time.monotonic() + whole_s, None).close()


def _opened(
    url: str,
    data: bytes | None,
    headers: Mapping[str, str],
    connect_s: float,
    until: float,
    context: ssl.SSLContext | None,
) -> HTTPResponse:
    request = urllib.request.Request(url, data, dict(headers))  # noqa: S310  # looked at here
    if request.type not in {"http", "https"}:
        raise ValueError(f"{url[:80]!r} is neither http nor https")
    opener = urllib.request.build_opener(_Timed(until, context), _NoRedirect)
    try:
        answer: HTTPResponse = opener.open(request, timeout=connect_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except UnicodeError as error:
        raise InvalidURL(f"the address cannot be asked: {error}") from None
    return answer
