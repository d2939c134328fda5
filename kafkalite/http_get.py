"""One document over HTTP, from a server that is not trusted with anybody's time, memory or secrets.

The status line, headers and body together take so long at most, however little of them comes at a time; a body that is
too large is not read to its end; a redirect is not followed, so that a token goes to nobody but whom it is for.

Proxies are those of the environment, as urllib has them.
"""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
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

    def __init__(self, until: float) -> None:
        urllib.request.HTTPSHandler.__init__(self)
        self._until = until

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
        return self.do_open(partial(self._connection, HTTPSConnection), req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        return None


def get(url: str, *, headers: Mapping[str, str], connect_s: float, whole_s: float, size_max: int) -> bytes:
    """The body. `connect_s` is for the connection, `whole_s` for all together.

    ValueError: it is larger than `size_max`, or the URL is neither http nor https; urllib.error.HTTPError: another
    status than success, a redirect too; OSError, http.client.HTTPException: there is no whole answer.
    """
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310  # looked at here
    if request.type not in {"http", "https"}:
        raise ValueError(f"{url[:80]!r} is neither http nor https")
    opener = urllib.request.build_opener(_Timed(time.monotonic() + whole_s), _NoRedirect)
    try:
        with opener.open(request, timeout=min(connect_s, whole_s)) as answer:
            body: bytes = answer.read(size_max + 1)
            missing = answer.length or 0
    except urllib.error.HTTPError as error:
        error.close()
        raise
    if len(body) > size_max:
        raise ValueError(f"it is larger than {size_max >> 20} MiB" if size_max >> 20 else f"it is over {size_max} B")
    if missing:  # read() of so many bytes does not tell
        raise IncompleteRead(body, missing)
    return body
