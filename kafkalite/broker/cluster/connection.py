"""Connect to a controller or another broker, and send one request at a time.

`version` chooses the newest version that both sides support. If the listener requires it, the connection uses TLS and
authenticates with SASL. A request late in the session re-authenticates first (KIP-368).

Thread rule: a connection belongs to one thread. Any other thread may abort it, which ends the request in flight.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time
from kafkalite.security.sasl import Refused
from kafkalite.version import VERSION
from kafkalite.wire import protocol
from kafkalite.wire.protocol import header
from kafkalite.wire.protocol.api import API_VERSIONS, APIS
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.broker.cluster.quorum import Address
    from kafkalite.broker.cluster.security import Security

CONNECT_TIMEOUT_S: Final = 10.0
NEGOTIATED_IN: Final = 3
"""The version of ApiVersions that every release since Kafka 2.4 supports."""
RESPONSE_SIZE_MAX: Final = 1 << 30
"""Responses come from the cluster itself. Memory for them is allocated only as bytes arrive."""
SESSION_PART: Final = 0.85
"""The fraction of a session after which the broker authenticates again; Kafka's clients take 85 to 95 %."""
_SIZE: Final = struct.Struct(">i")
_TIMEVAL: Final = struct.Struct("@ll")
_PIECE: Final = 1 << 20
_FRONT: Final = 1 << 16
"""The most bytes of the first read of a response, so that a small response is read at once."""


class LargeAnswers:
    """Lets several connections receive large responses one after another, so that these take little memory in total.

    A response may be larger than requested, since a leader never splits a batch. Only the connection that has the turn
    receives a response larger than `size` bytes. Any thread.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._taken = False  # guarded by _changed

    @property
    def taken(self) -> bool:
        """Whether a connection has the turn."""
        return self._taken

    def take(self, timeout_s: float, given_up: Callable[[], bool]) -> bool:
        """Take the turn; return whether the connection got it.

        Wait at most `timeout_s`, or until `given_up` returns True (see `look`).
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._taken or given_up(), timeout_s) or given_up():
                return False
            self._taken = True
            return True

    def end(self) -> None:
        """End the turn: the response is no longer needed."""
        with self._changed:
            self._taken = False
            self._changed.notify_all()

    def look(self) -> None:
        """Make waiting connections call their function `given_up` again."""
        with self._changed:
            self._changed.notify_all()


class ConnectionFailed(OSError):
    """A node could not be reached or sent no valid response; the connection is closed. The message is one sentence."""


class NotServed(ConnectionFailed):
    """The node supports no usable version of an API."""


class ControllerConnection:
    """A connection to a controller or another broker. `connect` creates it."""

    def __init__(self, address: Address, sock: socket.socket, client_id: str, whose: str) -> None:
        self.address = address
        self._node = f"{whose} at {address}"
        self.closed = False
        self._socket = sock
        self._wait_s = math.nan  # the timeout that the socket has
        self._front = bytearray(_FRONT)
        self._front_size = 0  # received bytes in it
        self._client_id = client_id
        self._correlation_id = 0
        self._security: Security | None = None
        self.large: LargeAnswers | None = None
        """The turn for large responses that this connection shares with others; None if it takes no turns."""
        self._has_large = False
        self._sign_in_at = math.inf  # when to authenticate again, by time.monotonic()
        self.versions: Mapping[int, tuple[int, int]] = {}
        """API → oldest and newest version that the node supports."""

    @classmethod
    def connect(
        cls,
        address: Address,
        client_id: str,
        timeout_s: float = CONNECT_TIMEOUT_S,
        security: Security | None = None,
        *,
        whose: str = "the controller",
    ) -> ControllerConnection:
        """Open a connection that is ready for use. Raises ConnectionFailed; `whose` describes the node in its
        message.
        """
        try:
            sock = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {whose} at {address}: {error.strerror or error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None:
            try:
                sock = security.wrap(sock, address.host)
            except OSError as error:
                sock.close()
                why = getattr(error, "reason", None) or error.strerror or error
                raise ConnectionFailed(f"TLS handshake with {whose} at {address} failed: {why}") from error
        connection = cls(address, sock, client_id, whose)
        asked = ApiVersionsRequest(client_software_name="kafkalite", client_software_version=VERSION)
        answer = connection._exchange(API_VERSIONS, NEGOTIATED_IN, asked, timeout_s)
        if answer.error_code:
            connection.close()
            raise ConnectionFailed(f"{connection._node} refused ApiVersions with error {answer.error_code}")
        connection.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        if security is not None and security.mechanism is not None:
            connection._security = security
            connection._sign_in(timeout_s)
        return connection

    def _sign_in(self, timeout_s: float) -> None:
        assert self._security is not None, "there are security settings"
        try:
            lasts_ms = self._security.sign_in(lambda key, version, ask: self._exchange(key, version, ask, timeout_s))
        except Refused as error:
            self.close()
            raise ConnectionFailed(f"{self._node} refused this broker's authentication: {error}") from error
        self._sign_in_at = time.monotonic() + SESSION_PART * lasts_ms / 1000 if lasts_ms else math.inf

    def version(self, api_key: int, oldest: int = 0, newest: int = 32767) -> int:
        """Return the newest version of an API from `oldest` to `newest` that both sides support. Raises NotServed."""
        known = APIS[api_key]
        served = self.versions.get(api_key, (0, -1))
        chosen = min(newest, known.newest, served[1])
        if chosen < max(oldest, known.oldest, served[0]):
            self.close()
            raise NotServed(f"{self._node} and this broker support no common version of {known.name}")
        return chosen

    def request(self, api_key: int, version: int, message: object, timeout_s: float, *, views: bool = False) -> Any:
        """Return the response to a request. With `views`, records in it are memoryviews. Raises ConnectionFailed."""
        if time.monotonic() >= self._sign_in_at:
            self._sign_in(timeout_s)
        return self._exchange(api_key, version, message, timeout_s, views=views)

    def end_answer(self) -> None:
        """End the use of the last response and the views into it. The next request and `close` also do this."""
        if self._has_large and self.large is not None:
            self._has_large = False
            self.large.end()

    def abort(self) -> None:
        """End the request in flight at once. Any thread."""
        self.closed = True
        with contextlib.suppress(OSError):  # it is closed already
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # an SSLSocket's own would change its state
        if self.large is not None:
            self.large.look()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.closed = True
        self.end_answer()
        self._socket.close()

    def _exchange(self, api_key: int, version: int, message: object, timeout_s: float, *, views: bool = False) -> Any:
        self.end_answer()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = protocol.encode_request_frame(api_key, version, self._correlation_id, self._client_id, message)
        name = APIS[api_key].name
        try:
            if timeout_s != self._wait_s:
                self._use_timeout(timeout_s)
            self._socket.sendall(frame)
            data = self._receive_frame(timeout_s)
            correlation_id, position = header.decode_response_header(api_key, version, data)
            if correlation_id == self._correlation_id:
                return protocol.decode_response(api_key, version, memoryview(data)[position:], views=views)
        except protocol.CodecError as error:
            self.close()
            raise ConnectionFailed(f"{self._node} sent an invalid {name} response: {error}") from error
        except ConnectionFailed:
            self.close()
            raise
        except OSError as error:
            self.close()
            why = "in time" if isinstance(error, (TimeoutError, BlockingIOError)) else f"({error.strerror or error})"
            raise ConnectionFailed(f"{self._node} did not answer {name} {why}") from error
        self.close()
        raise ConnectionFailed(f"{self._node} sent a response that does not belong to the {name} request")

    def _use_timeout(self, timeout_s: float) -> None:
        """Set the socket's timeout.

        Without TLS, the kernel's timeout is used: Python's would poll the socket before each read and write.
        """
        self._wait_s = timeout_s
        if type(self._socket) is not socket.socket:
            self._socket.settimeout(timeout_s)
            return
        self._socket.settimeout(None)
        wait = _TIMEVAL.pack(int(timeout_s), max(1, int(timeout_s % 1 * 1e6)))  # 0 would mean no timeout
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, wait)

    def _receive_frame(self, timeout_s: float) -> bytearray:
        front = self._front
        with memoryview(front) as view:
            while self._front_size < _SIZE.size:
                self._front_size += self._receive_some(view[self._front_size :])
        (size,) = _SIZE.unpack_from(front)
        if not _SIZE.size <= size <= RESPONSE_SIZE_MAX:
            raise ConnectionFailed(f"{self._node} announced a response of {size} bytes, which is out of range")
        if self.large is not None and size > self.large.size:
            self._has_large = self.large.take(timeout_s, lambda: self.closed)
            if not self._has_large:
                raise ConnectionFailed(
                    f"no memory became free in time for a response of {size} bytes from {self._node}"
                )
        end = min(self._front_size, _SIZE.size + size)
        data, filled = bytearray(min(size, _PIECE)), end - _SIZE.size
        data[:filled] = front[_SIZE.size : end]
        self._front_size -= end
        front[: self._front_size] = front[end : end + self._front_size]
        while filled < size:
            if filled == len(data):  # at most about twice of what has arrived
                data += bytes(min(size - filled, filled))
            with memoryview(data) as view:
                filled += self._receive_some(view[filled:])
        return data

    def _receive_some(self, room: memoryview) -> int:
        count = self._socket.recv_into(room)
        if not count:
            raise ConnectionFailed(f"{self._node} closed the connection")
        return count
