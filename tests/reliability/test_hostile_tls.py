"""H: clients before and behind the handshake: garbage, floods, wrong certificates. Others notice nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native.tls import tls_session
from kafkalite.broker import Broker
from tests.kit.harness.certificates import Authority
from tests.kit.harness.samples import sample
from tests.kit.harness.tls_broker import (
    TlsBroker,
    answered,
    api_versions,
    ask,
    ends_while_bytes_trickle,
    is_closed,
)
from tests.kit.processes.broker import wait_until

SEED = 13
FALLBACK_SUITE = b"\x56\x00"  # TLS_FALLBACK_SCSV, RFC 7507
KEY_SHARE = 51
ALERT, FATAL_INAPPROPRIATE_FALLBACK = 21, b"\x02\x56"
pytestmark = pytest.mark.scenario("H")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls"), connection_failed_authentication_delay_ms="0") as broker:
        yield broker


@pytest.fixture(autouse=True)
def others_are_served(tls: TlsBroker) -> Iterator[None]:
    """After the test, a client from before it and one from after it are served."""
    with tls.secure() as before:
        before.sendall(api_versions(1))
        assert answered(before) == 1
        yield
        before.sendall(api_versions(2))
        assert answered(before) == 2
    with tls.secure() as after:
        after.sendall(api_versions(3))
        assert answered(after) == 3


def client_hello(tls: TlsBroker) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        tls.context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(api_versions(), id="kafka in plain text"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="ssh"),
        pytest.param(struct.pack(">i", -1) * 4, id="a negative length"),
        pytest.param(b"\x16\x03\x01\xff\xff" + bytes(70000), id="a record that is too long"),
        pytest.param(b"\x16\x03\x01\x00\x00" * 2000, id="empty handshake records"),
        pytest.param(b"\x15\x03\x01\x00\x02\x01\x00" * 2000, id="alerts"),
        pytest.param(b"\x16\x02\x00\x00\x05hello", id="ssl 2"),
        pytest.param(bytes([128, 46, 1, 3, 1]) + bytes(60), id="a hello in the form of ssl 2"),
    ],
)
def test_what_is_no_tls_is_closed(tls: TlsBroker, data: bytes) -> None:
    with tls.connect() as sock:
        sock.sendall(data)
        assert is_closed(sock)


def test_tls_on_the_plain_port_is_closed_and_named(tls: TlsBroker, caplog: pytest.LogCaptureFixture) -> None:
    with tls.connect("PLAINTEXT") as sock, pytest.raises((ssl.SSLError, OSError)):
        tls.context().wrap_socket(sock, server_hostname="localhost")
    wait_until(lambda: "TLS handshake on a listener without TLS" in caplog.text, 30, "the line in the log")


def test_mutated_hellos_end_in_an_alert_or_a_close(tls: TlsBroker) -> None:
    chance = random.Random(SEED)
    hello = client_hello(tls)
    for _ in range(300):
        data = bytearray(hello)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = chance.choice([len(data), chance.randrange(1, len(data))])
        with tls.connect() as sock:
            sock.sendall(data[:cut])
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass


def test_mutated_flights_after_a_whole_hello(tls: TlsBroker) -> None:
    chance = random.Random(SEED + 1)
    for _ in range(100):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = tls.context(tls.alice_file).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with tls.connect() as sock:
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            sock.sendall(outgoing.read())
            while True:
                incoming.write(sock.recv(65536))
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    continue
            data = bytearray(outgoing.read())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock)


def record(body: bytes) -> bytes:
    """Of a handshake, in plain text."""
    return b"\x16\x03\x01" + struct.pack(">H", len(body)) + body


def without_key_shares(hello: bytes) -> bytes:
    """A hello after which the server asks for a share of a key, in another hello (RFC 8446, 4.1.4)."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + struct.unpack_from(">H", hello, at)[0]
    at += 1 + hello[at]
    begin, extensions = at + 2, b""
    at = begin
    while at < len(hello):
        kind, size = struct.unpack_from(">HH", hello, at)
        key_share = kind == KEY_SHARE
        extensions += struct.pack(">HHH", kind, 2, 0) if key_share else hello[at : at + 4 + size]
        at += 4 + size
    body = hello[9 : begin - 2] + struct.pack(">H", len(extensions)) + extensions
    return record(b"\1" + len(body).to_bytes(3, "big") + body)


@pytest.mark.parametrize("how", ["at once", "in records of a byte", "in a second hello"])
def test_hello_that_says_it_is_huge_is_refused_at_its_first_bytes(
    tls: TlsBroker, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """libssl would take as much memory as such a message says it needs."""
    claim = b"\1" + (33_000).to_bytes(3, "big")
    with tls.connect() as sock:
        if how == "in a second hello":
            sock.sendall(without_key_shares(client_hello(tls)))
            assert sock.recv(65536)[:1] == b"\x16"
            sock.sendall(b"\x14\x03\x03\0\1\1")  # a client's message in between, for middleboxes
        sock.sendall(b"".join(record(claim[i : i + 1]) for i in range(4)) if "records" in how else record(claim))
        assert is_closed(sock)
    assert "a handshake message is larger than 32768 bytes" in caplog.text


def test_hello_that_is_long_is_answered(tls: TlsBroker) -> None:
    context = tls.context()
    context.set_alpn_protocols([f"{number:03}".rjust(200, "x") for number in range(120)])
    assert ask(tls, context) == 7


def test_hello_byte_by_byte_and_request_byte_by_byte_are_served(tls: TlsBroker) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with tls.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def say() -> None:
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))

        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                say()
                incoming.write(sock.recv(65536))
        client.write(api_versions(9))
        say()
        while True:
            try:
                assert struct.unpack(">i", client.read(65536)[4:8]) == (9,)
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))


def test_records_of_one_byte_are_served(tls: TlsBroker) -> None:
    with tls.secure() as sock:
        for byte in api_versions(5):
            sock.send(bytes([byte]))
        assert answered(sock) == 5


def received(tls: TlsBroker) -> int:
    """Bytes that all workers have received."""
    return sum(worker.io.bytes_in for worker in tls.broker._parts.workers)


@pytest.mark.parametrize("cut", sample([5, 9, 17_000, 60_000, 183_000, 202_010], 1))
@pytest.mark.parametrize("piece", sample([701, 16_384], 1))
def test_large_request_that_comes_in_pieces_is_served_and_so_is_what_follows(
    tls: TlsBroker, cut: int, piece: int
) -> None:
    """The worker does not wake for every record of a large request: what it waits for has to come."""
    names = [b"n%0199d" % i for i in range(1000)]
    body = struct.pack(">hhihi", 3, 1, 1, 0, len(names)) + b"".join(struct.pack(">h", 200) + name for name in names)
    request = struct.pack(">i", len(body)) + body
    with tls.secure() as sock:
        before = received(tls)
        for at in range(0, cut, piece):
            sock.sendall(request[at : min(at + piece, cut)])
        wait_until(lambda: received(tls) > before, 60, "the worker to know how long it is")
        for at in range(cut, len(request), piece):
            sock.sendall(request[at : at + piece])
        assert answered(sock) == 1
        sock.sendall(api_versions(2))
        assert answered(sock) == 2


@pytest.mark.parametrize(
    ("versions", "served"),
    [((ssl.TLSVersion.TLSv1_2,) * 2, "TLSv1.2"), ((ssl.TLSVersion.TLSv1_3,) * 2, "TLSv1.3")],
)
def test_versions_that_are_served(tls: TlsBroker, versions: tuple[ssl.TLSVersion, ssl.TLSVersion], served: str) -> None:
    context = tls.context(minimum_version=versions[0], maximum_version=versions[1])
    with tls.secure(context) as sock:
        assert sock.version() == served
        sock.sendall(api_versions())
        assert answered(sock) == 7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_versions_and_weak_suites_are_refused(tls: TlsBroker) -> None:
    old = tls.context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    weak = tls.context(maximum_version=ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers("NULL:3DES:RC4:EXPORT:@SECLEVEL=0")
    for context in (old, weak):
        with pytest.raises(ssl.SSLError), tls.secure(context):
            pass


def test_client_that_was_made_to_fall_back_is_told_so(tls: TlsBroker) -> None:
    """Somebody between them suppressed the newer version: a hello of the older one that says it is a second try."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    older = tls.context(maximum_version=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLWantReadError):
        older.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    hello = outgoing.read()[9:]  # behind the headers of record and message
    suites_at = 2 + 32 + 1 + hello[34]
    suites_size = struct.unpack_from(">H", hello, suites_at)[0]
    changed = (
        hello[:suites_at] + struct.pack(">H", suites_size + 2) + hello[suites_at + 2 : suites_at + 2 + suites_size]
    )
    changed += FALLBACK_SUITE + hello[suites_at + 2 + suites_size :]
    message = b"\1" + struct.pack(">I", len(changed))[1:] + changed
    for data, refused in ((message, True), (b"\1" + struct.pack(">I", len(hello))[1:] + hello, False)):
        with tls.connect() as sock:
            sock.sendall(b"\x16\3\1" + struct.pack(">H", len(data)) + data)
            answer = sock.recv(7, socket.MSG_WAITALL)
            assert (answer[0] == ALERT and answer[5:] == FATAL_INAPPROPRIATE_FALLBACK) is refused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_aes_of_128_bits_is_taken_where_a_client_leaves_the_choice(tls: TlsBroker, version: ssl.TLSVersion) -> None:
    """It takes less of the processor, and is as good: RFC 8446 demands it, and no other, of everybody."""
    with tls.secure(tls.context(minimum_version=version, maximum_version=version)) as sock:
        name, _, bits = sock.cipher()
        assert (bits, "GCM_SHA256" in name or "GCM-SHA256" in name) == (128, True)


def weak_suites(context: ssl.SSLContext) -> list[str]:
    """Those up to TLS 1.2 that a client could offer and that are without AEAD or without ephemeral keys."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    older = [suite for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    return [suite["name"] for suite in older if not suite["aead"] or suite["kea"] not in {"kx-ecdhe", "kx-dhe"}]


@pytest.mark.parametrize("bits", [0, 2048], ids=["ecdsa", "rsa"])
def test_suites_with_cbc_or_without_ephemeral_keys_are_served_only_where_they_are_asked_for(
    tmp_path: Path, bits: int
) -> None:
    asked = "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256" if bits else "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"
    tls = TlsBroker(tmp_path, listener_name_must_ssl_cipher_suites=asked)
    tls.write_server(tls.authority.issue("server", bits=bits))
    client = tls.context(tls.alice_file, maximum_version=ssl.TLSVersion.TLSv1_2)
    suites = weak_suites(client)
    assert {"AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA", "ADH-AES128-SHA"} <= {*suites}
    client.set_ciphers(":".join([*suites, "@SECLEVEL=0"]))
    with tls:
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"), tls.secure(client):
            pass
        with tls.secure(client, "MUST") as sock:
            sock.sendall(api_versions())
            assert answered(sock) == 7
            assert sock.cipher()[0] == f"ECDHE-{'RSA' if bits else 'ECDSA'}-AES128-SHA256"
        strong = tls.context(tls.alice_file, maximum_version=ssl.TLSVersion.TLSv1_2)
        assert ask(tls, strong) == 7


def test_certificates_that_are_not_good_are_refused(tls: TlsBroker, tmp_path: Path) -> None:
    strangers = {
        "other authority": Authority("other").issue("alice", client=True),
        "expired": tls.authority.issue("alice", client=True, begins_days=-9, ends_days=-1),
        "not for clients": tls.authority.issue("alice"),
    }
    for name, identity in strangers.items():
        path = identity.write_pem(tmp_path / name.replace(" ", "-"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            print(name, ask(tls, tls.context(path)))


def test_listener_that_demands_a_certificate_serves_nobody_without(tls: TlsBroker) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(tls, tls.context(), "MUST")
    assert ask(tls, tls.context(tls.alice_file), "MUST") == 7


def test_damaged_record_behind_the_handshake_closes(tls: TlsBroker) -> None:
    with tls.secure() as sock:
        raw = sock.detach()
    with socket.socket(fileno=raw) as bare:
        bare.settimeout(60)
        bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert is_closed(bare)


def test_half_open_handshakes_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    limits = {"connection_authentication_max": "20", "num_network_threads": "1"}
    with TlsBroker(tmp_path, **limits) as tls, tls.secure() as before:
        before.sendall(api_versions(1))
        assert answered(before) == 1, "only now the broker's side of the handshake is known to be done"
        waiting = [tls.connect() for _ in range(60)]
        try:
            for sock in waiting:
                sock.sendall(b"\x16\x03\x01\x02")
            wait_until(lambda: tls.broker.connection_count <= 21, 60, "the oldest to be closed")
            assert all(is_closed(sock) for sock in waiting[:40])
            before.sendall(api_versions())
            assert answered(before) == 7
        finally:
            for sock in waiting:
                sock.close()


def test_handshake_that_takes_too_long_is_closed(tmp_path: Path) -> None:
    with TlsBroker(tmp_path, connection_authentication_timeout_ms="300") as tls:
        with tls.connect() as silent, tls.connect() as slow, tls.secure() as done:
            slow.sendall(b"\x16\x03\x01")
            assert is_closed(silent)
            assert is_closed(slow)
            done.sendall(api_versions())
            assert answered(done) == 7
        wait_until(lambda: tls.broker.connection_count == 0, 30, "the connections to go")


def test_handshake_that_comes_a_byte_now_and_then_is_closed_too(tmp_path: Path) -> None:
    limits = {"connection_authentication_timeout_ms": "300", "connection_failed_authentication_delay_ms": "0"}
    with TlsBroker(tmp_path, **limits) as tls, tls.connect() as sock:
        assert ends_while_bytes_trickle(sock, b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")


def test_many_handshakes_whose_time_is_over_at_once_are_all_closed(tmp_path: Path) -> None:
    """A turn of the worker closes a part of them, and the next one does not wait for anything."""
    limits = {"connection_authentication_timeout_ms": "500", "num_network_threads": "1"}
    with TlsBroker(tmp_path, **limits) as tls, tls.secure() as before:
        before.sendall(api_versions(1))
        assert answered(before) == 1
        waiting = [tls.connect() for _ in range(300)]
        try:
            assert all(is_closed(sock) for sock in waiting)
            before.sendall(api_versions(2))
            assert answered(before) == 2
            assert tls.broker.connection_count == 1
        finally:
            for sock in waiting:
                sock.close()


def test_client_that_does_not_read_holds_one_piece_and_loses_nothing(tls: TlsBroker) -> None:
    before = tls_session.stalled()
    count = 20_000
    requests = memoryview(b"".join(map(api_versions, range(count))))
    sent = 0
    with tls.secure() as sock:
        sock.setblocking(False)  # and one thread: two may not use a session at once

        def send() -> bool:
            """As much as the socket takes; whether the broker has more to say than is taken from it."""
            nonlocal sent
            with contextlib.suppress(ssl.SSLWantWriteError):
                while sent < len(requests):
                    sent += sock.send(requests[sent : sent + 65536])
            return tls_session.stalled() > before

        wait_until(send, 60, "the sockets to be full")
        assert tls_session.stalled() - before <= 512 * 1024
        data = bytearray()
        ids: list[int] = []

        def read() -> bool:
            send()
            with contextlib.suppress(ssl.SSLWantReadError):
                while len(data) < 1 << 20:
                    data.extend(sock.recv(65536))
            at = 0
            while len(data) - at >= 4 and len(data) - at >= 4 + (size := struct.unpack_from(">i", data, at)[0]):
                ids.append(struct.unpack_from(">i", data, at + 4)[0])
                at += 4 + size
            del data[:at]
            return len(ids) >= count

        wait_until(read, 120, "the answers")
        assert ids == list(range(count))
    wait_until(lambda: tls_session.stalled() == before, 30, "what was kept to be given back")


def principals(tls: TlsBroker) -> set[str]:
    """Of the connections that are open."""
    return {connection.principal for worker in tls.broker._parts.workers for connection in worker._connections.values()}


def test_client_is_called_by_its_certificate_and_the_rules(tmp_path: Path) -> None:
    with TlsBroker(tmp_path, listener_name_must_ssl_principal_mapping_rules="RULE:CN=(.*?),.*/$1/U") as tls:
        context = tls.context(tls.alice_file)
        with tls.secure() as nobody, tls.secure(context) as alice, tls.secure(context, "MUST") as mapped:
            for sock in (nobody, alice, mapped):
                sock.sendall(api_versions())
                assert answered(sock) == 7
            assert principals(tls) == {"User:ANONYMOUS", "User:CN=alice,O=Tests", "User:ALICE"}


def test_client_whom_no_rule_names_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with TlsBroker(tmp_path, ssl_principal_mapping_rules="RULE:CN=bob,.*/bob/") as tls:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(tls, tls.context(tls.alice_file))
        assert ask(tls, tls.context()) == 7
    assert "no rule of ssl.principal.mapping.rules matches 'CN=alice,O=Tests'" in caplog.text


def test_listener_without_tls_that_others_reach_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, host in enumerate(("127.0.0.1", "[::1]", "", "0.0.0.0")):
        caplog.clear()
        with Broker(listeners=f"PLAINTEXT://{host}:0", log_dirs=str(tmp_path / str(number))):
            told = "has no TLS and is reachable from other machines" in caplog.text
        assert told == (host in {"", "0.0.0.0"}), host
