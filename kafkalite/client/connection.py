"""One blocking socket to one broker: sends requests and receives their responses in the same order.

    unconnected ──connect──▶ ApiVersions ──▶ SASL, if set ──▶ ready ──lost, timeout, invalid response──▶ closed for good

Requests may be pipelined: `send` waits for no response, and `receive` returns that of the oldest pending request.

Thread rule: one thread at a time. Record bytes of a response refer to the connection's buffer and are valid until the
next `receive`.
"""

from __future__ import annotations

import contextlib
import math
import random
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base import forks
from kafkalite.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    ProtocolError,
    RequestTimeout,
    SignInRefused,
    UnsendableRequest,
    UnsupportedApi,
)
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import header
from kafkalite.wire.protocol.api import API_VERSIONS, APIS
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client.sasl import ClientSasl
    from kafkalite.client.security import Security

API_VERSIONS_VERSION_MAX: Final = 4
"""Version 5 adds the intended cluster and node, which this client does not send, and brokers before Apache Kafka 4.4
reject it first.
"""
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 40.0
RESPONSE_SIZE_MAX: Final = 512 * 1024 * 1024
"""The connection is closed if a response is larger than this."""
OVERDUE_S: Final = 0.001
BUFFER_SIZE_MIN: Final = 64 * 1024
BUFFER_SIZE_KEPT: Final = 16 * 1024 * 1024
"""A receive buffer that grew beyond this is dropped after the response."""
SESSION_SHARE_MIN: Final = 0.85
SESSION_SHARE_SPREAD: Final = 0.1
"""Clients authenticate again at a random point in this share of the session's time."""
SOFTWARE_NAME: Final = "kafkalite"

_SIZE: Final = struct.Struct(">i")


class Sent(NamedTuple):
    """A pending request."""

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    """When its response is overdue, in time.monotonic() seconds."""


class Connection:
    """A connection to one broker. Create it with `connect`."""

    def __init__(self, host: str, port: int, sock: socket.socket, client_id: str, request_timeout_s: float) -> None:
        self.host = host
        self.port = port
        self._socket = sock
        self._secured = hasattr(sock, "pending")  # an SSLSocket; plaintext connections do not import ssl
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._correlation_id = 0
        self._under_way: deque[Sent] = deque()
        self._early: deque[tuple[Sent, Any]] = deque()  # responses received during re-authentication
        self._sasl: ClientSasl | None = None
        self._session_ends = math.inf  # when to authenticate again, in time.monotonic() seconds
        self._buffer = bytearray(BUFFER_SIZE_MIN)
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._first_id = -1  # correlation id of the first request after ApiVersions
        self.features: Mapping[str, int] = {}
        """The cluster's finalized features and their levels."""
        self.closed = False
        forks.register(self)

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
    ) -> Connection:
        """Connect, negotiate versions and authenticate. Raises BrokerUnreachable and SignInRefused."""
        try:
            sock = socket.create_connection((host, port), timeout=connect_timeout_s)
        except OSError as error:
            raise _unreachable(f"cannot connect to {host}:{port}: {error.strerror or error}", error) from error
        except UnicodeError as error:  # from the IDNA codec
            raise BrokerUnreachable(f"cannot connect to {host}:{port}: not a valid host name") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None:
            try:
                sock = security.wrap(sock, host)
            except OSError as error:
                sock.close()
                raise _unreachable(f"TLS handshake with {host}:{port} failed: {_tls_reason(error)}", error) from error
        connection = cls(host, port, sock, client_id, request_timeout_s)
        try:
            connection._negotiate(connect_timeout_s)
            if security is not None and security.sasl is not None:
                connection._sasl = security.sasl
                connection._sign_in()
        except SignInRefused:
            connection.close()
            raise
        except ClientError as error:
            connection.close()
            raise _unreachable(f"no Kafka broker responds at {host}:{port}: {error}", error) from error
        return connection

    @property
    def under_way(self) -> int:
        """Number of requests whose response `receive` has not returned yet."""
        return len(self._under_way) + len(self._early)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def overdue(self) -> bool:
        """Whether the oldest pending request has passed its deadline."""
        return bool(self._under_way) and time.monotonic() > self._under_way[0].deadline

    @property
    def stale(self) -> bool:
        """Whether the broker has closed the idle connection or sent data without a request."""
        if self.closed or self._under_way or self._early:
            return self.closed
        if self._secured:
            return self._tls_stale()
        poller = select.poll()  # unlike select, it takes descriptors above 1023
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def _tls_stale(self) -> bool:
        """Return whether the broker has closed an idle TLS connection or sent data without a request.

        The method has to read from the connection, because the broker may also have sent session tickets or new keys.
        """
        import ssl

        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except ssl.SSLWantReadError:
            return False
        except OSError:
            return True
        return True

    @property
    def buffered(self) -> bool:
        """Whether bytes of the next response have already left the socket, so that polling it does not show them."""
        return bool(self._early) or (self._secured and self._socket.pending() > 0)  # type: ignore[attr-defined]  # an SSLSocket

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection and drop pending requests. Idempotent."""
        self.closed = True
        self._under_way.clear()
        self._early.clear()
        self._socket.close()

    def leave(self) -> None:
        """Close the descriptor in a forked child without ending the parent's connection."""
        self.closed = True
        forks.abandon([self._socket.fileno()])

    def interrupt(self) -> None:
        """Make a thread that waits for bytes fail with ConnectionLost. Any thread may call it."""
        with contextlib.suppress(OSError):  # already closed
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # SSLSocket.shutdown would change its state

    def supports(self, api_key: int) -> bool:
        """Return whether both sides support some version of this request."""
        return self._range(api_key, None) is not None

    def knows(self, api_key: int, version: int) -> bool:
        """Return whether both sides support this version of a request."""
        oldest, newest = self._versions.get(api_key, (0, -1))
        return oldest <= version <= newest and APIS[api_key].oldest <= version <= APIS[api_key].newest

    def version_for(self, api_key: int, version_max: int | None = None) -> int:
        """Return the newest version of a request that both sides support, at most `version_max`.

        Raises UnsupportedApi.
        """
        found = self._range(api_key, version_max)
        if found is None:
            name = APIS[api_key].name
            if api_key not in self._versions:
                raise UnsupportedApi(f"the broker at {self.address} does not support {name}")
            oldest, newest = self._versions[api_key]
            raise UnsupportedApi(
                f"the broker at {self.address} supports {name} versions {oldest} to {newest}, "
                f"this client {APIS[api_key].oldest} to {APIS[api_key].newest}"
            )
        return found

    def _range(self, api_key: int, version_max: int | None) -> int | None:
        if api_key not in self._versions:
            return None
        oldest, newest = self._versions[api_key]
        api = APIS[api_key]
        chosen = min(newest, api.newest) if version_max is None else min(newest, api.newest, version_max)
        return chosen if chosen >= max(oldest, api.oldest) else None

    def request(
        self, api_key: int, message: object, *, version_max: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send one request and return its response. No other request may be pending."""
        assert self.under_way == 0, "requests are under way: their answers would come first"
        self.send(api_key, message, version_max=version_max, timeout_s=timeout_s)
        return self.receive()[1]

    def send(
        self,
        api_key: int,
        message: object,
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
        answered: bool = True,
    ) -> Sent:
        """Send a request. `answered` is false for a Produce with acks=0, which has no response."""
        version = self.version_for(api_key, version_max)
        return self._send(api_key, version, message, timeout_s, answered=answered)

    def _send(self, api_key: int, version: int, message: object, timeout_s: float | None, *, answered: bool) -> Sent:
        if self.closed:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if time.monotonic() >= self._session_ends:
            self._sign_in_again()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = protocol.encode_request_frame(api_key, version, self._correlation_id, self._client_id, message)
        except (protocol.EncodeError, OverflowError) as error:
            raise UnsendableRequest(f"cannot encode {APIS[api_key].name} version {version}: {error}") from error
        timeout = self._request_timeout_s if timeout_s is None else timeout_s
        sent = Sent(self._correlation_id, api_key, version, time.monotonic() + timeout)
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(frame)
        except TimeoutError as error:
            self.close()
            raise RequestTimeout(
                f"sending {len(frame)} bytes to {self.address} timed out after {timeout:g} s"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"lost the connection to {self.address}: {error.strerror or error}") from error
        except BaseException:  # such as Ctrl-C: part of a request has been sent
            self.close()
            raise
        if answered:
            self._under_way.append(sent)
        return sent

    def receive(self) -> tuple[Sent, Any]:
        """Return the oldest pending request and its response.

        Raises ConnectionLost, RequestTimeout or ProtocolError; each closes the connection.
        """
        return self._early.popleft() if self._early else self._receive()

    def _receive(self) -> tuple[Sent, Any]:
        sent = self._under_way[0]
        try:
            answer = self._decode(sent, self._receive_frame(sent))
        except protocol.CodecError as error:
            self.close()
            name = APIS[sent.api_key].name
            raise ProtocolError(
                f"cannot decode the {name} version {sent.version} response of {self.address}: {error}"
            ) from error
        except BaseException:  # such as Ctrl-C: a partly read response hides the next one
            self.close()
            raise
        self._under_way.popleft()
        return sent, answer

    def _decode(self, sent: Sent, frame: memoryview) -> Any:
        correlation_id, position = header.decode_response_header(sent.api_key, sent.version, frame)
        if correlation_id != sent.correlation_id:
            raise ProtocolError(f"{self.address} sent correlation id {correlation_id}; expected {sent.correlation_id}")
        body = frame[position:]
        if sent.api_key == API_VERSIONS and sent.version > 0 and is_refusal(body):
            # A broker that does not support the version responds in version 0 (KIP-511), or in another one.
            with contextlib.suppress(protocol.CodecError):
                return protocol.decode_response(API_VERSIONS, 0, body)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return protocol.decode_response(sent.api_key, sent.version, body, views=True)

    def _receive_frame(self, sent: Sent) -> memoryview:
        prefix = memoryview(bytearray(_SIZE.size))
        self._receive_into(prefix, sent)
        (size,) = _SIZE.unpack(prefix)
        if size < _SIZE.size or size > RESPONSE_SIZE_MAX:
            raise ProtocolError(
                f"{self.address} announced a response of {size} bytes; the limit is {RESPONSE_SIZE_MAX}"
            )
        if size > len(self._buffer) or len(self._buffer) > BUFFER_SIZE_KEPT:
            # A new buffer, because the caller may still use the bytes of the old one.
            self._buffer = bytearray(max(size, BUFFER_SIZE_MIN))
        frame = memoryview(self._buffer)[:size]
        self._receive_into(frame, sent)
        return frame

    def _receive_into(self, view: memoryview, sent: Sent) -> None:
        position = 0
        try:
            while position < len(view):
                # Zero would mean non-blocking. An overdue response may already have arrived.
                self._socket.settimeout(max(sent.deadline - time.monotonic(), OVERDUE_S))
                count = self._socket.recv_into(view[position:])
                if count == 0:
                    raise ConnectionLost(f"{self.address} closed the connection{self._known_habit(sent)}")
                position += count
        except TimeoutError as error:
            name = APIS[sent.api_key].name
            raise RequestTimeout(f"{self.address} did not respond to {name} in time") from error
        except OSError as error:
            raise ConnectionLost(f"lost the connection to {self.address}: {error.strerror or error}") from error

    def _known_habit(self, sent: Sent) -> str:
        """Return the likely reason why a broker closes the connection at this request, or "" if none is known."""
        if self._sasl is None and sent.correlation_id == self._first_id:
            return " at the first request; if its listener requires SASL, set security.protocol and sasl.mechanism"
        return ""

    def _sign_in_again(self) -> None:
        """Authenticate again before the SASL session expires (KIP-368). First keep all pending responses for
        `receive`.

        Each response read here gets a new buffer, because the caller may still use the bytes of the last one.
        """
        self._buffer = bytearray(BUFFER_SIZE_MIN)
        while self._under_way:
            self._early.append(self._receive())
            self._buffer = bytearray(BUFFER_SIZE_MIN)
        self._sign_in()

    def _sign_in(self) -> None:
        """Run the SASL exchange. Raises SignInRefused and closes the connection if it fails."""
        assert self._sasl is not None, "somebody who signs in"
        self._session_ends = math.inf  # the exchange's own requests must not start another
        try:
            lifetime_ms = self._sasl.sign_in(self._ask)
        except SignInRefused as error:
            self.close()
            raise SignInRefused(f"authentication with {self.address} failed: {error}") from None
        if lifetime_ms > 0:
            share = SESSION_SHARE_MIN + random.random() * SESSION_SHARE_SPREAD  # spreads the load of many clients
            self._session_ends = time.monotonic() + lifetime_ms / 1000 * share

    def _ask(self, api_key: int, version_max: int, message: object) -> Any:
        """Send a request of the SASL exchange and return its response. No other request may be pending."""
        self._send(api_key, self.version_for(api_key, version_max), message, None, answered=True)
        return self._receive()[1]

    def _negotiate(self, timeout_s: float) -> None:
        """Fetch the broker's API versions.

        If the broker rejects a version of ApiVersions, the request is repeated in the version that the broker names, or
        in the next lower version.
        """
        from kafkalite.version import VERSION

        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        version = API_VERSIONS_VERSION_MAX
        while True:
            self._send(API_VERSIONS, version, message, timeout_s, answered=True)
            answer = self._receive()[1]
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            offered = [row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS]
            version = max(0, min(version - 1, offered[0] if offered else version))
        if answer.error_code:
            raise ProtocolError(f"{self.address} rejected ApiVersions with error {answer.error_code}")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}
        self._first_id = self._correlation_id + 1


def _unreachable(message: str, cause: Exception) -> BrokerUnreachable:
    """Return the error for a connection that failed, and mark a timeout."""
    error = BrokerUnreachable(message)
    error.timed_out = isinstance(cause, TimeoutError | RequestTimeout)
    return error


def _tls_reason(error: OSError) -> str:
    """Describe a TLS handshake error: what is wrong with the broker's certificate, or how the handshake ended."""
    reason: str = getattr(error, "verify_message", "") or getattr(error, "reason", None) or error.strerror or str(error)
    return reason


def is_refusal(body: memoryview) -> bool:
    """Return whether an ApiVersions response starts with UNSUPPORTED_VERSION.

    Only the error code has the same position in every version.
    """
    return int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION
