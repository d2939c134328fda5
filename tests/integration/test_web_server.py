"""The HTTP server over real sockets: TLS, client certificates, reload, slow and hostile clients."""

import contextlib
import http.client
import itertools
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from kafkalite.errors import StartupError
from kafkalite.web.guard import Guard, known_names
from kafkalite.web.server import Address, Limits, WebServer, parse_address
from kafkalite.web.signin import CERTIFICATE
from kafkalite.web.tls import Tls
from tests.kit.harness.certificates import Authority, Identity
from tests.kit.processes.broker import wait_until

LARGE = 3_000_000
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECURE = [Address("https", "127.0.0.1", 0)]


class Site:
    """An authority, a server's certificate and a client's, as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.ca = self.authority.write_pem(directory / "ca.pem")
        self.key_store = directory / "server.pem"
        self.write_server(self.authority.issue("server"))

    def write_server(self, identity: Identity) -> None:
        new = self.directory / "new.pem"
        identity.write_pem(new)
        new.replace(self.key_store)

    def tls(self, **settings: str) -> Tls:
        texts = {"ssl.keystore.location": str(self.key_store)}
        if settings:
            texts["ssl.truststore.location"] = str(self.ca)
        return Tls(texts | {key.replace("_", "."): value for key, value in settings.items()})

    def context(self, identity: Identity | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if identity is not None:
            context.load_cert_chain(identity.write_pem(self.directory / "client.pem"))
        return context


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/endless":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return itertools.repeat(b"x" * 65536)
    size = len(environ["wsgi.input"].read())
    certificate = environ.get(CERTIFICATE)
    about = {"scheme": environ["wsgi.url_scheme"], "size": size, "certificate": certificate is not None}
    body = b"x" * LARGE if environ["PATH_INFO"] == "/large" else json.dumps(about).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


class Running:
    """A server on separate ports, for a with statement."""

    def __init__(self, addresses: list[Address], tls: Tls | None = None, limits: Limits = Limits()) -> None:  # noqa: B008
        guard = Guard(application, names=known_names(addresses), sign_in=None, realm="test")
        self.web = WebServer(guard, addresses, tls=tls, limits=limits)

    def __enter__(self) -> list[Address]:
        self.web.bind()
        self.web.start()
        return self.web.addresses

    def __exit__(self, *exception: object) -> None:
        self.web.stop()


def ask(address: Address, context: ssl.SSLContext | None, path: str = "/", body: bytes | None = None) -> bytes:
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    else:
        connection = http.client.HTTPSConnection(address.host, address.port, timeout=60, context=context)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()
    finally:
        connection.close()


def answers(address: Address, context: ssl.SSLContext | None) -> bool:
    """Whether one answer comes in time: where little is given, a starved machine may need several."""
    try:
        return bool(ask(address, context))
    except (OSError, http.client.HTTPException):
        return False


def test_one_server_speaks_plainly_and_through_tls(site: Site) -> None:
    with Running([Address("http", "127.0.0.1", 0), *SECURE], site.tls()) as (plain, secure):
        assert json.loads(ask(plain, None))["scheme"] == "http"
        assert json.loads(ask(secure, site.context()))["scheme"] == "https"


def test_large_bodies_go_both_ways_through_tls(site: Site) -> None:
    with Running(SECURE, site.tls(), Limits(body_size=LARGE + 1)) as (secure,):
        assert len(ask(secure, site.context(), "/large")) == LARGE
        assert json.loads(ask(secure, site.context(), body=b"y" * LARGE))["size"] == LARGE


def test_many_clients_at_once_through_tls(site: Site) -> None:
    found: list[int] = []
    with Running(SECURE, site.tls()) as (secure,):
        threads = [
            threading.Thread(target=lambda: found.append(len(ask(secure, site.context(), "/large")))) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert found == [LARGE] * 12


def test_requests_that_arrive_together_are_all_answered(site: Site) -> None:
    with Running(SECURE, site.tls()) as (secure,):
        raw = socket.create_connection((secure.host, secure.port), timeout=60)
        with site.context().wrap_socket(raw, server_hostname="localhost") as client:
            client.sendall(REQUEST * 19 + REQUEST.replace(b"1.1", b"1.0"))
            received = b""
            while data := client.recv(65536):
                received += data
    assert received.count(b"200 OK") == 20


def test_a_client_certificate_is_asked_for_believed_and_handed_on(site: Site) -> None:
    own, other = site.authority.issue("app", client=True), Authority().issue("app", client=True)
    with Running(SECURE, site.tls(ssl_client_auth="required")) as (secure,):
        assert json.loads(ask(secure, site.context(own)))["certificate"] is True
        for identity in (None, other):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                ask(secure, site.context(identity))
        assert json.loads(ask(secure, site.context(own)))["certificate"] is True
    with Running(SECURE, site.tls(ssl_client_auth="requested")) as (secure,):
        assert json.loads(ask(secure, site.context()))["certificate"] is False


def test_cbc_suites_are_served_only_if_configured(site: Site) -> None:
    client = site.context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("ECDHE-ECDSA-AES256-SHA384")
    with Running(SECURE, site.tls()) as (address,), pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        ask(address, client)
    asked = site.tls(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384")
    with Running(SECURE, asked) as (address,):
        assert ask(address, client)


def test_a_revoked_certificate_is_refused(site: Site) -> None:
    good, bad = site.authority.issue("good", client=True), site.authority.issue("bad", client=True)
    (site.directory / "crl.pem").write_bytes(site.authority.revocations(bad))
    with Running(SECURE, site.tls(ssl_client_auth="required", ssl_crl_location=str(site.directory / "crl.pem"))) as (
        secure,
    ):
        assert ask(secure, site.context(good))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(secure, site.context(bad))


def test_a_name_of_a_certificate_is_what_its_rules_say(site: Site) -> None:
    tls = site.tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=([^,]+),.*$/$1/L")
    der = site.authority.issue("App", client=True).certificate.public_bytes(serialization.Encoding.DER)
    assert tls.name_of(der) == "app"
    with pytest.raises(ValueError, match=r"DER|certificate"):
        tls.name_of(der[:40])


def test_a_certificate_is_changed_without_a_restart_and_a_bad_one_is_not_taken(site: Site) -> None:
    def shown(address: Address) -> bytes | None:
        raw = socket.create_connection((address.host, address.port), timeout=60)
        with site.context().wrap_socket(raw, server_hostname="localhost") as client:
            return client.getpeercert(binary_form=True)

    tls = site.tls()
    with Running(SECURE, tls) as (secure,):
        first = shown(secure)
        site.write_server(site.authority.issue("server"))
        tls.reload()
        second = shown(secure)
        assert second != first
        site.key_store.write_text("nothing")
        tls.reload()
        assert shown(secure) == second


@pytest.mark.parametrize(
    "garbage",
    [REQUEST, b"\x00" * 300, b"\x16\x03\x01\xff\xff" + b"z" * 70000, b"SSH-2.0-x\r\n"],
)
def test_what_is_no_tls_is_closed_and_others_are_served(site: Site, garbage: bytes) -> None:
    with Running(SECURE, site.tls()) as (secure,):
        with socket.create_connection((secure.host, secure.port), timeout=60) as client:
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
            except TimeoutError:
                raise
            except OSError:
                pass  # it is gone already
        assert ask(secure, site.context())


def test_who_sends_too_slowly_is_closed_and_keeps_nobody_out(site: Site) -> None:
    limits = Limits(threads=1, request_timeout_s=0.5)
    with Running([Address("http", "127.0.0.1", 0), *SECURE], site.tls(), limits) as (plain, secure):
        where = [plain] * 20 + [secure] * 20
        clients = [socket.create_connection((at.host, at.port), timeout=60) for at in where]
        for client in clients[:20]:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        wait_until(lambda: answers(plain, None), 120, "an answer in plain text")
        wait_until(lambda: answers(secure, site.context()), 120, "an answer through TLS")
        for client in clients:
            with client:
                assert _ends(client)


@pytest.mark.parametrize("secured", [False, True])
def test_who_asks_much_at_once_and_reads_nothing_holds_up_nobody(site: Site, secured: bool) -> None:
    addresses = SECURE if secured else [Address("http", "127.0.0.1", 0)]
    context = site.context() if secured else None
    requests = REQUEST.replace(b"GET /", b"GET /large") * 30  # in one piece, and more than a client is kept
    with Running(addresses, site.tls(), Limits(threads=2)) as (at,), contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(socket.create_connection((at.host, at.port), timeout=60))
            if context is not None:
                client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
            client.sendall(requests)
        for _ in range(50):
            assert ask(at, context)


def test_an_answer_of_which_nothing_is_taken_ends(site: Site) -> None:
    limits = Limits(threads=1, request_timeout_s=0.5)
    with (
        Running([Address("http", "127.0.0.1", 0)], None, limits) as (plain,),
        socket.create_connection((plain.host, plain.port), timeout=60) as client,
    ):
        client.sendall(REQUEST.replace(b"GET /", b"GET /endless"))
        assert client.recv(1)  # the one thread is at it
        wait_until(lambda: answers(plain, None), 120, "an answer to somebody else")


def _ends(client: socket.socket) -> bool:
    """Whether the server closes, though a byte comes every now and then."""
    deadline = time.monotonic() + 120
    client.settimeout(0.2)
    while time.monotonic() < deadline:
        try:
            client.sendall(b"x")
            if not client.recv(4096):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_requests_beyond_limits_are_refused(site: Site) -> None:
    with Running([Address("http", "127.0.0.1", 0)], None, Limits(header_size=4096, body_size=1000)) as (plain,):
        connection = http.client.HTTPConnection(plain.host, plain.port, timeout=60)
        connection.request("GET", "/", headers={"X-Large": "x" * 100_000})
        assert connection.getresponse().status in {400, 431}
        connection.close()
        connection.request("POST", "/", b"x" * 2000)
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", id="two hosts"),
        pytest.param(b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", id="a whole address"),
        pytest.param(b"GET /\r\n\r\n", id="http 0.9"),
        pytest.param(b"GET / \r\nHost: localhost\r\n\r\n", id="no version"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", id="http 2"),
        pytest.param(b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n", id="http 0.9 by name"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", id="a negative size"),
    ],
)
def test_requests_that_can_be_read_in_two_ways_reach_no_application(request_: bytes) -> None:
    with Running([Address("http", "127.0.0.1", 0)]) as (plain,):
        with socket.create_connection((plain.host, plain.port), timeout=60) as client:
            client.sendall(request_)
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1."), answer
        assert b'"scheme"' not in answer, answer
        assert b"200 OK" not in answer, answer


def test_a_port_in_use_and_https_without_a_certificate_are_reported() -> None:
    with Running([Address("http", "127.0.0.1", 0)]) as (plain,):
        taken = WebServer(application, [Address("http", "127.0.0.1", 0), plain])
        with pytest.raises(StartupError, match="cannot listen on"):
            taken.bind()
    with pytest.raises(ValueError, match=r"ssl\.keystore\.location"):
        WebServer(application, SECURE)


def test_addresses_are_read() -> None:
    assert parse_address("https://0.0.0.0:8443", 1) == Address("https", "0.0.0.0", 8443)
    assert parse_address("http://[::1]", 8081) == Address("http", "::1", 8081)
    assert parse_address("http://:9000/", 1) == Address("http", "", 9000)
    for text in ("ftp://x:1", "localhost:8081", "http://a b:1", "http://x:99999", "http://x:y", "http://x/y"):
        with pytest.raises(ValueError, match=r"address|port"):
            parse_address(text, 1)
