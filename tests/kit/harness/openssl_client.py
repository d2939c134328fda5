"""A TLS client by libssl itself, for what Python's ssl cannot do: new keys (TLS 1.3) and renegotiation (TLS 1.2)."""

from __future__ import annotations

import ctypes
import socket
from typing import Self

TLS_1_2, TLS_1_3 = 0x0303, 0x0304
KEY_UPDATE_NOT_REQUESTED, KEY_UPDATE_REQUESTED = 0, 1
_SET_MIN_VERSION, _SET_MAX_VERSION = 123, 124


def _library() -> ctypes.CDLL:
    found = ctypes.CDLL("libssl.so.3")
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(found, name).restype = ctypes.c_void_p
    return found


class OpenSslClient:
    """A client that signs nothing and checks nothing; it raises OSError where the session ends."""

    def __init__(self, sock: socket.socket, version: int) -> None:
        self._socket = sock
        self._ssl = _library()
        self._context = ctypes.c_void_p(self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method())))
        for which in (_SET_MIN_VERSION, _SET_MAX_VERSION):
            self._ssl.SSL_CTX_ctrl(self._context, which, ctypes.c_long(version), None)
        self._session = ctypes.c_void_p(self._ssl.SSL_new(self._context))
        sock.settimeout(None)  # libssl reads and writes the descriptor itself
        self._ssl.SSL_set_fd(self._session, sock.fileno())
        self._expect(self._ssl.SSL_connect(self._session), "the handshake")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ssl.SSL_free(self._session)
        self._ssl.SSL_CTX_free(self._context)
        self._socket.close()

    def write(self, data: bytes) -> None:
        self._expect(self._ssl.SSL_write(self._session, data, len(data)), "writing")

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        data = b""
        piece = ctypes.create_string_buffer(size)
        while len(data) < size:
            taken = self._ssl.SSL_read(self._session, piece, size - len(data))
            self._expect(taken, "reading")
            data += piece.raw[:taken]
        return data

    def update_key(self, kind: int) -> None:
        """Tells the server that new keys are used from here on; asks it, by `kind`, for the same."""
        self._expect(self._ssl.SSL_key_update(self._session, kind), "a new key")
        self._expect(self._ssl.SSL_do_handshake(self._session), "sending the new key")

    def renegotiate(self) -> None:
        self._expect(self._ssl.SSL_renegotiate(self._session), "a second handshake")
        self._expect(self._ssl.SSL_do_handshake(self._session), "the second handshake")

    def _expect(self, result: int, what: str) -> None:
        if result <= 0:
            code = self._ssl.SSL_get_error(self._session, result)
            self._ssl.ERR_clear_error()  # else Python's ssl would take a leftover error of this thread for its own
            raise OSError(f"{what} failed: {code}")
