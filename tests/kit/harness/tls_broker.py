"""A broker in this process with TLS and plain listeners, certificates of our own, and sockets that speak TLS to it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Any, Self

from kafkalite.broker import Broker
from tests.kit.harness.certificates import Authority, Identity

TIMEOUT_S = 60


class TlsBroker:
    """Listeners SSL (client certificates are asked for), MUST (and demanded) and PLAINTEXT."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.authority = Authority()
        self.server = self.authority.issue("server")
        self.alice = self.authority.issue("alice", client=True)
        self.authority_file = self.authority.write_pem(directory / "authority.pem")
        self.server_file = self.server.write_pem(directory / "server.pem")
        self.alice_file = self.alice.write_pem(directory / "alice.pem")
        self.settings = {
            "listeners": "SSL://127.0.0.1:0,MUST://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": "MUST:SSL,SSL:SSL,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "listener.name.ssl.ssl.keystore.location": str(self.server_file),
            "listener.name.must.ssl.keystore.location": str(self.server_file),
            "ssl.truststore.location": str(self.authority_file),
            "ssl.client.auth": "requested",
            "listener.name.must.ssl.client.auth": "required",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.broker = Broker(self.settings)

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.broker.stop()

    def address(self, listener: str = "SSL") -> str:
        return str(self.broker.endpoints[listener])

    def connect(self, listener: str = "SSL") -> socket.socket:
        """A bare socket, which sends at once, as Kafka's clients do."""
        sock = socket.create_connection(("127.0.0.1", self.broker.endpoints[listener].port), timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def context(self, identity: Path | None = None, **attributes: Any) -> ssl.SSLContext:
        """A client's, which trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        if identity is not None:
            context.load_cert_chain(str(identity))
        for name, value in attributes.items():
            setattr(context, name, value)
        return context

    def secure(self, context: ssl.SSLContext | None = None, listener: str = "SSL", **more: Any) -> ssl.SSLSocket:
        """A socket whose handshake is done, as far as the client sees."""
        return (context or self.context()).wrap_socket(self.connect(listener), server_hostname="127.0.0.1", **more)

    def write_server(self, identity: Identity) -> None:
        """Another certificate in the listeners' file, put there as a whole."""
        temporary = self.server_file.with_suffix(".new")
        identity.write_pem(temporary)
        temporary.replace(self.server_file)


def api_versions(correlation_id: int = 7) -> bytes:
    """An ApiVersions 0 request."""
    body = struct.pack(">hhih", 18, 0, correlation_id, 1) + b"c"
    return struct.pack(">i", len(body)) + body


def answered(sock: socket.socket) -> int:
    """The correlation id of the next answer; ConnectionError when there is none to come."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return int(struct.unpack(">i", data[4:8])[0])


def ask(tls: TlsBroker, context: ssl.SSLContext, listener: str = "SSL") -> int:
    """Handshake, a request, its answer's correlation id; OSError where any of them fails (TLS 1.3 tells late)."""
    with tls.secure(context, listener) as sock:
        sock.sendall(api_versions())
        return answered(sock)


def is_closed(sock: socket.socket) -> bool:
    """Waits for the end, past alerts and what of a handshake comes before it."""
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def ends_while_bytes_trickle(sock: socket.socket, begin: bytes, seconds: float = TIMEOUT_S) -> bool:
    """Whether the other side closes while a byte comes every twentieth of a second, behind `begin`."""
    end = time.monotonic() + seconds
    sock.settimeout(0.05)
    try:
        sock.sendall(begin)
        while time.monotonic() < end:
            sock.sendall(b"\0")
            with contextlib.suppress(TimeoutError):
                if sock.recv(65536) == b"":
                    return True
    except ConnectionError:
        return True
    return False
