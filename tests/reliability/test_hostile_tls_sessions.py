"""H: clients that bend what TLS allows behind the handshake, and chains of certificates that are too much."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.kit.harness.certificates import Authority, Identity, build_certificate, name_of, pem
from tests.kit.harness.openssl_client import (
    KEY_UPDATE_NOT_REQUESTED,
    KEY_UPDATE_REQUESTED,
    TLS_1_2,
    TLS_1_3,
    OpenSslClient,
)
from tests.kit.harness.tls_broker import TlsBroker, answered, api_versions, ask
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.scenario("H")
FLOOD_COUNT = 20_000


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls"), connection_failed_authentication_delay_ms="0") as broker:
        yield broker


@pytest.fixture(autouse=True)
def broken_pipes_are_errors() -> Iterator[None]:
    """libssl writes to sockets without MSG_NOSIGNAL."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGPIPE, before)


@pytest.fixture(autouse=True)
def others_are_served(tls: TlsBroker) -> Iterator[None]:
    with tls.secure() as before:
        yield
        before.sendall(api_versions(2))
        assert answered(before) == 2


def asked(client: OpenSslClient, number: int) -> int:
    """The correlation id of the answer to one request."""
    client.write(api_versions(number))
    size = struct.unpack(">i", client.read(4))[0]
    return int(struct.unpack(">i", client.read(size)[:4])[0])


@pytest.mark.parametrize("kind", [KEY_UPDATE_NOT_REQUESTED, KEY_UPDATE_REQUESTED])
def test_new_keys_between_requests_are_served(tls: TlsBroker, kind: int) -> None:
    with OpenSslClient(tls.connect(), TLS_1_3) as client:
        for number in range(500):
            client.update_key(kind)
            assert asked(client, number) == number


@pytest.mark.parametrize("kind", [KEY_UPDATE_NOT_REQUESTED, KEY_UPDATE_REQUESTED])
def test_flood_of_new_keys_is_closed(tls: TlsBroker, kind: int, caplog: pytest.LogCaptureFixture) -> None:
    def flood(client: OpenSslClient) -> None:
        for _ in range(FLOOD_COUNT):
            client.update_key(kind)
        asked(client, 2)

    with OpenSslClient(tls.connect(), TLS_1_3) as client:
        assert asked(client, 1) == 1
        with pytest.raises(OSError, match="failed"):
            flood(client)
    wait_until(lambda: "too many empty TLS records in a row" in caplog.text, 60, "the line in the log")


class Sealer:
    """Seals records as a client of TLS 1.3 does whose handshake is done: RFC 8446, 5.2, 5.3 and 7.3."""

    def __init__(self, key_log: Path) -> None:
        rows = [
            line.split() for line in key_log.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")
        ]
        secret = bytes.fromhex(rows[-1][2])
        self._cipher = AESGCM(self._expand(secret, b"key", 16))
        self._iv = int.from_bytes(self._expand(secret, b"iv", 12), "big")
        self._sequence = 0

    @staticmethod
    def _expand(secret: bytes, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0"
        return HKDFExpand(hashes.SHA256(), size, info).derive(secret)

    def seal(self, data: bytes) -> bytes:
        """A record of application data."""
        header = struct.pack(">BHH", 23, 0x0303, len(data) + 17)
        nonce = (self._iv ^ self._sequence).to_bytes(12, "big")
        self._sequence += 1
        return header + self._cipher.encrypt(nonce, data + bytes([23]), header)


def test_empty_records_between_requests_are_served_and_a_flood_of_them_is_closed(
    tls: TlsBroker, tmp_path: Path
) -> None:
    context = tls.context(keylog_filename=str(tmp_path / "keys"))
    with tls.secure(context) as sock:
        assert (sock.cipher() or ("",))[0] == "TLS_AES_128_GCM_SHA256"
        sealer = Sealer(tmp_path / "keys")
        sock.settimeout(60)
        with socket.socket(fileno=os.dup(sock.fileno())) as bare:
            for number in range(100):
                bare.sendall(b"".join([sealer.seal(b""), sealer.seal(api_versions(number)), sealer.seal(b"")]))
                assert answered(sock) == number
            flood = b"".join(sealer.seal(b"") for _ in range(FLOOD_COUNT))
            with contextlib.suppress(ConnectionError):
                bare.sendall(flood)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            answered(sock)


def test_second_handshake_in_a_session_is_refused(tls: TlsBroker) -> None:
    with OpenSslClient(tls.connect(), TLS_1_2) as client:
        assert asked(client, 1) == 1
        with pytest.raises(OSError, match="second handshake failed"):
            client.renegotiate()


def chained(authority: Authority, depth: int) -> bytes:
    """Return the key and certificates, as PEM, of a client with a chain of `depth` authorities."""
    issuer_name, issuer_key, between = authority.name, authority.key, b""
    for number in range(depth):
        key = ec.generate_private_key(ec.SECP256R1())
        name = name_of(f"between {number}")
        builder = build_certificate(name, issuer_name, key, -1, 30)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        between = pem(builder.sign(issuer_key, hashes.SHA256())) + between
        issuer_name, issuer_key = name, key
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = build_certificate(name_of("deep"), issuer_name, key, -1, 30).sign(issuer_key, hashes.SHA256())
    return Identity(key, leaf, authority.certificate).key_pem + pem(leaf) + between


@pytest.mark.parametrize(("depth", "served"), [(0, True), (3, True), (30, False)])
def test_depth_of_a_chain(tls: TlsBroker, tmp_path: Path, depth: int, served: bool) -> None:
    path = tmp_path / "deep.pem"
    path.write_bytes(chained(tls.authority, depth))
    if served:
        assert ask(tls, tls.context(path), "MUST") == 7
        return
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(tls, tls.context(path), "MUST")


def test_certificate_of_200_kilobytes_is_refused(tls: TlsBroker, tmp_path: Path) -> None:
    hosts = tuple(f"h{number}.{'x' * 50}.test" for number in range(3300))
    path = tls.authority.issue("large", hosts=hosts).write_pem(tmp_path / "large.pem")
    assert path.stat().st_size > 200_000
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(tls, tls.context(path), "MUST")
