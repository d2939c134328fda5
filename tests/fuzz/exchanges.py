"""Exchanges that a client may have with a broker before it has authenticated, corrupted at random.

Each function is one exchange, from connecting to the end of the connection. The broker's responses are read but not
checked: it has to survive, to serve others, and to authenticate no such client.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import TYPE_CHECKING

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.harness.hostile_frames import HOSTILE_INTS, mutate
from tests.kit.harness.sasl_broker import plain_token, request
from tests.kit.harness.tls_broker import api_versions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TIMEOUT_S = 60
USER = "alice"
HTTP_REQUESTS = [
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HEAD /%2e%2e/etc/passwd?a=%00&b=%ff HTTP/1.0\r\nHost: [::1]:80\r\nExpect: 100-continue\r\n\r\n",
    b"GET http://localhost/metrics?name=x HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\n continued\r\n\r\n",
]
HTTP_PIECES = [
    b"\r\n",
    b"\n",
    b"\0",
    b":",
    b" ",
    b"HTTP/1.1",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999\r\n",
]
HTTP_PIECES += [
    b"Transfer-Encoding: chunked\r\n",
    b"ffffffffffffffff\r\n",
    b"%",
    b"\xff\xfe",
    b"/" * 300,
    b"A" * 3000,
    b"\t",
]


class Doors:
    """Ports by listener, and who is trusted."""

    def __init__(self, ports: dict[str, int], authority: str) -> None:
        self.ports = ports
        self.context = ssl.create_default_context(cafile=authority)
        self.context.check_hostname = False

    def connect(self, listener: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=TIMEOUT_S)


def drain(sock: socket.socket) -> None:
    """Says that nothing follows, and reads to the end."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


def spoil(data: bytes, chance: random.Random, pieces: list[bytes]) -> bytes:
    """Bytes changed, cut out, doubled, put in."""
    found = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 6))):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(found):
            found[at] = chance.randrange(256)
        elif kind == 1:
            del found[at : at + chance.choice((1, 2, 16, 1000))]
        elif kind == 2:
            found[at:at] = chance.choice(pieces)
        elif kind == 3:
            found[at:at] = found[at : at + chance.randrange(64)]
        elif kind == 4:
            found[at:at] = chance.randbytes(chance.choice((1, 4, 200)))
        else:
            found[at : at + 4] = struct.pack(">i", chance.choice(HOSTILE_INTS))
    return bytes(found)


def say(sock: socket.socket, data: bytes, chance: random.Random) -> None:
    """In one piece, or in several."""
    size = chance.choice((1 << 30, 1 << 30, 700, 61))
    with contextlib.suppress(OSError):
        for at in range(0, len(data), size):
            sock.sendall(data[at : at + size])


TLS_PIECES = [b"\x16\x03\x01", b"\x17\x03\x03\x00\x00", b"\x15\x03\x03\x00\x02\x01\x00", b"\x14\x03\x03\x00\x01\x01"]
TLS_PIECES += [
    b"\x16\x03\x03\x40\x01",
    b"\x00\x29\xff\xff",
    b"\x18\x03\x03\x00\x03\x01\xff\xff",
    b"\x80\x2e\x01\x03\x01",
]


def tls(doors: Doors, chance: random.Random) -> None:
    """A handshake and a request, of which one flight, and what follows it, is spoiled."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = doors.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    spoiled, flight, shaken = chance.randrange(4), 0, False
    with doors.connect(chance.choice(("SSL", "SASL_SSL"))) as sock:
        while flight <= spoiled:
            try:
                if not shaken:
                    client.do_handshake()
                    shaken = True
                client.write(spoil(api_versions(flight), chance, TLS_PIECES) if spoiled == 3 else api_versions(flight))
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            data = outgoing.read()
            if flight >= min(spoiled, 2):
                data = spoil(data, chance, TLS_PIECES)
            say(sock, data, chance)
            flight += 1
            if flight > spoiled or shaken:
                continue
            try:
                answer = sock.recv(65536)
            except OSError:
                break
            if not answer:
                break
            incoming.write(answer)
        drain(sock)


def sasl_frames() -> list[bytes]:
    """Requests and tokens of an exchange, right and wrong ones, none that would sign anybody in."""
    found = [request(api.METADATA, 12, _nothing()), request(api.API_VERSIONS, 3, ApiVersionsRequest())]
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"):
        found += [request(api.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism)) for version in (0, 1)]
    tokens = [plain_token(USER, "wrong"), b"n,,n=alice,r=abcdefgh", b"y,,n=,r=", b"c=biws,r=abcdefgh,p=" + b"A" * 44]
    tokens += [b"p=tls-unique,,n=a,r=b", b"n,a=bob,n=alice,r=x", b"n,,n=a=2cb=3Dc,r=\xc3\xa9,m=ext", b"\0" * 40, b""]
    for token in tokens:
        found += [request(api.SASL_AUTHENTICATE, v, SaslAuthenticateRequest(auth_bytes=token)) for v in range(3)]
        found.append(struct.pack(">i", len(token)) + token)
    return found


def _nothing() -> object:
    from kafkalite.wire.protocol.messages.metadata import MetadataRequest

    return MetadataRequest(topics=[])


SASL_FRAMES = sasl_frames()


def sasl(doors: Doors, chance: random.Random) -> None:
    """Frames in any order, whole and spoiled."""
    data = b""
    for frame in chance.choices(SASL_FRAMES, k=chance.randint(1, 6)):
        data += mutate(frame[4:], chance) if len(frame) > 16 and chance.random() < 0.3 else frame
    if chance.random() < 0.3:
        data = spoil(data, chance, [b"\0\0\0\0", b"\x7f\xff\xff\xff", b"n,,n=", b",r=", b"\0"])
    with doors.connect("SASL_PLAINTEXT") as sock:
        say(sock, data, chance)
        drain(sock)


def http(doors: Doors, chance: random.Random) -> None:
    """Requests of HTTP, some behind each other."""
    data = b"".join(spoil(chance.choice(HTTP_REQUESTS), chance, HTTP_PIECES) for _ in range(chance.randint(1, 3)))
    with doors.connect("http") as sock:
        say(sock, data, chance)
        drain(sock)


EXCHANGES: dict[str, Callable[[Doors, random.Random], None]] = {"tls": tls, "sasl": sasl, "http": http}
