"""Send requests to a broker's 0.7 port, and receive responses, through one blocking socket.

The protocol has no correlation ids, so a channel is closed if a request fails halfway. The socket timeout limits the
wait for the next bytes, not the time of a whole request.

Thread rule: one thread at a time, so threads that share a channel need a lock. Only `interrupt` may be called from
another thread.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Final

from kafkalite.base import forks
from kafkalite.classic.errors import ConnectionFailed, Unreachable

CONNECT_TIMEOUT_S: Final = 5.0
SOCKET_TIMEOUT_S: Final = 30.0
SOCKET_BUFFER_SIZE: Final = 102_400
RESPONSE_SIZE_MAX: Final = 512 * 1024 * 1024
"""The largest response that is accepted."""
_PAUSE_S_FIRST: Final = 0.001
_PAUSE_S_MAX: Final = 60.0
_SIZE: Final = struct.Struct(">i")
_TIMEVAL: Final = struct.Struct("@ll")


class Channel:
    """A connection to one broker, which is opened at its first use.

    Since the kernel enforces the timeouts, a request takes one system call and a response two. Each call releases the
    GIL once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        socket_timeout_s: float = SOCKET_TIMEOUT_S,
        send_buffer_size: int = SOCKET_BUFFER_SIZE,
        receive_buffer_size: int | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._connect_timeout_s = connect_timeout_s
        self._socket_timeout_s = socket_timeout_s
        self._send_buffer_size = send_buffer_size
        self._receive_buffer_size = receive_buffer_size
        self._socket: socket.socket | None = None
        self._connecting: socket.socket | None = None
        self._interrupted = threading.Event()
        self._reached = False
        self._origin = forks.Origin()
        forks.register(self)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def send(self, frame: bytes) -> None:
        """Send a request that has no response. Raises ConnectionFailed after it has closed the channel."""
        try:
            self._connection().sendall(frame)
        except BlockingIOError as error:
            self.close()
            raise ConnectionFailed(f"sending to {self.address} timed out after {self._socket_timeout_s:g} s") from error
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"sending to {self.address} failed: {error}") from error

    def request(self, frame: bytes) -> memoryview:
        """Send a request and return its response without the size field."""
        self.send(frame)
        try:
            return self._receive(self._answer_size())
        except BlockingIOError as error:
            self.close()
            raise ConnectionFailed(f"{self.address} did not respond within {self._socket_timeout_s:g} s") from error
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"receiving from {self.address} failed: {error}") from error
        except ConnectionFailed:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket. The next use of the channel connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def leave(self) -> None:
        """Release the socket in a forked child, since it belongs to the parent."""
        if self._socket is not None:
            forks.abandon([self._socket.fileno()])

    def interrupt(self) -> None:
        """End another thread's wait on this channel, also while it connects. The channel never connects again."""
        self._interrupted.set()
        for current in (self._socket, self._connecting):
            if current is not None:
                with contextlib.suppress(OSError):  # closed already
                    current.shutdown(socket.SHUT_RDWR)

    def _connection(self) -> socket.socket:
        if not self._origin.is_here:
            raise ConnectionFailed(self._origin.refusal("channel"))
        if self._socket is None:
            self._socket = self._connect()
            if self._interrupted.is_set():  # checked once `interrupt` can find the socket
                self.close()
                raise ConnectionFailed(f"the channel to {self.address} was closed")
        return self._socket

    def _connect(self) -> socket.socket:
        """Connect to the broker.

        A failed attempt is repeated after 1, 10, 100 ... ms, as in 0.7, for at most `connect_timeout_s` seconds.
        """
        deadline = time.monotonic() + self._connect_timeout_s
        pause_s = _PAUSE_S_FIRST
        while True:
            try:
                made = self._open()
            except OSError as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._interrupted.wait(min(pause_s, left_s, _PAUSE_S_MAX)):
                    kind = ConnectionFailed if self._reached else Unreachable
                    raise kind(f"cannot connect to {self.address}: {error.strerror or error}") from error
                pause_s *= 10
                continue
            self._reached = True
            made.settimeout(None)
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                made.setsockopt(socket.SOL_SOCKET, option, _timeval(self._socket_timeout_s))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_size)
            if self._receive_buffer_size is not None:  # otherwise the kernel adapts it to the reader
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_size)
            return made

    def _open(self) -> socket.socket:
        """Return a socket that is connected to the first address of the host that accepts. Raises OSError if none
        accepts."""
        failure = OSError("the host has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:  # an address family that the kernel does not support
                failure = error
                continue
            self._connecting = made
            try:
                if self._interrupted.is_set():  # checked once `interrupt` can find the socket
                    raise OSError("interrupted")  # noqa: TRY301
                made.settimeout(self._connect_timeout_s)
                made.connect(address)
            except OSError as error:
                made.close()
                failure = error
            else:
                return made
            finally:
                self._connecting = None
        raise failure

    def _answer_size(self) -> int:
        size: int
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 < size <= RESPONSE_SIZE_MAX:
            raise ConnectionFailed(
                f"{self.address} announced a response of {size} bytes; the limit is {RESPONSE_SIZE_MAX}"
            )
        return size

    def _receive(self, size: int) -> memoryview:
        """Receive exactly `size` bytes into a new buffer. The buffer is not reused, since message sets wait in
        queues."""
        current = self._connection()
        target = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = current.recv_into(target[filled:], 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionFailed(f"{self.address} closed the connection")
            filled += count
        return target


def _timeval(timeout_s: float) -> bytes:
    """Encode seconds as the kernel's struct timeval, in which 0 means no limit."""
    microseconds = max(1, round(timeout_s * 1_000_000))
    return _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)
