"""Connections with TLS without a worker's thread, over socket pairs: events and turns of the loop are given by hand."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import select
import socket
import ssl
import sys
import termios
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalite._native.serve.connection import Connection, WorkerResources
from kafkalite._native.serve.fetch import FetchServer
from kafkalite._native.serve.fetch_session import FetchSessionCache
from kafkalite._native.serve.produce import ProduceServer
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Mailbox, OutBuffer
from kafkalite._native.tls.tls_context import PROTOCOLS, KeyStore, TlsContext
from kafkalite.broker.handlers.table import native_apis
from tests.kit.harness.certificates import Authority
from tests.kit.harness.tls_broker import api_versions
from tests.kit.harness.wire import frame, header

STEPS_A_TURN = 8
CROWD = 90
"""More handshakes than one turn of the loop serves, so that most of them wait."""
ANSWER = b"\0\0\0\4\0\0\0\7"
BUFFERS_MIN = 24_000
"""libssl gives one connection 30 KB of them: more than either, to receive into or to seal into, has by itself."""
NOISE_MAX = 8_000
TRIES = 20_000
"""Of asking twice within a tenth of a millisecond."""


class Mallinfo(ctypes.Structure):
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


def given_out() -> int:
    """Bytes that the C library has given out and that were not freed."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    return int(mallinfo2().uordblks)


class Server:
    """What connections of one worker share; each request is answered with ANSWER."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        identity = authority.issue("server")
        authority.write_pem(folder / "authority.pem")
        self.trusting = ssl.create_default_context(cafile=str(folder / "authority.pem"))
        keys = KeyStore.from_pem(identity.key_pem, identity.chain_pem)
        version = PROTOCOLS["TLSv1.3"]
        self.context = TlsContext(
            keys, None, asks=False, demands=False, oldest=version, newest=version, ciphers="", suites=""
        )
        self.interests: dict[Connection, int] = {}
        """The events registered with the selector, where they are not reading alone."""
        out, mailbox, table = OutBuffer(), Mailbox(), TopicTable()
        sessions = FetchSessionCache(slots_max=2, partitions_max=100, eviction_ms=1000)
        self.io = WorkerResources(
            mailbox,
            out,
            ProduceServer(table, out, None, partitions_max=100, deferred_bytes_max=1 << 20, flush_on_acks_all=True),
            FetchServer(
                table,
                out,
                mailbox,
                None,
                sessions,
                partitions_max=100,
                response_size_max=1 << 20,
                copy_size_max=1 << 15,
            ),
            lambda *_: ANSWER,
            self.interests.__setitem__,
            lambda *_: None,
            native_apis(),
            request_size_max=1 << 20,
            output_bytes_max=1 << 20,
            in_flight_max=8,
        )
        self.io.use_tls()
        self.io.use_sign_in(handshake_s_max=60, handshake_count_max=100, failing_s=0, unknown_bytes_max=1 << 20)
        self.io.now = 1.0
        self.served: list[Served] = []

    def accept(self) -> Served:
        self.served.append(Served(self))
        return self.served[-1]

    def close(self) -> None:
        for served in self.served:
            served.connection.close()
            served.socket.close()


class Served:
    """A connection and its client."""

    def __init__(self, server: Server) -> None:
        self.socket, sock = socket.socketpair()
        self.socket.settimeout(60)
        sock.setblocking(False)
        listener = SimpleNamespace(tls=SimpleNamespace(principal_of=lambda subject: "User:ANONYMOUS"))
        self.connection = Connection(server.io, sock, "127.0.0.1", 1, listener)
        self.connection.secure(server.context)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = server.trusting.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def turn(self) -> None:
        self.connection.on_event(select.EPOLLIN | select.EPOLLOUT)

    def send(self, plain: memoryview) -> None:
        self.tls.write(plain)
        self.socket.sendall(self.outgoing.read())

    def low_water(self) -> int:
        """Of the broker's socket: fewer bytes do not wake it."""
        number: int = self.connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        return number

    def unread(self) -> int:
        """Bytes that the broker has not taken, or what the kernel counts for them."""
        return int.from_bytes(fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def say_hello(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self.socket.sendall(self.outgoing.read())

    def was_answered(self) -> bool:
        """Whether something lies in the client's socket."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def shake_hands(self) -> None:
        self.say_hello()
        self.turn()
        self.incoming.write(self.socket.recv(65536))
        self.tls.do_handshake()
        self.socket.sendall(self.outgoing.read())
        self.turn()

    def ask_twice_at_once(self) -> None:
        sealed = []
        for _ in range(2):
            self.tls.write(api_versions())
            sealed.append(self.outgoing.read())
        for piece in sealed:
            self.socket.sendall(piece)
            self.turn()
        answers = b""
        while len(answers) < 2 * len(ANSWER):
            try:
                answers += self.tls.read(2 * len(ANSWER))
            except ssl.SSLWantReadError:
                self.incoming.write(self.socket.recv(65536))
        assert answers == 2 * ANSWER


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def test_handshakes_get_eight_steps_a_turn_and_the_others_their_turn_next(server: Server) -> None:
    crowd = [server.accept() for _ in range(2 * STEPS_A_TURN + 3)]
    for served in crowd:
        served.say_hello()
    for answered in (STEPS_A_TURN, 2 * STEPS_A_TURN, len(crowd)):
        for served in [served for served in crowd if not served.was_answered()]:
            served.turn()
        assert sum(served.was_answered() for served in crowd) == answered
        server.io.now += 0.001


def test_crowd_that_waits_for_its_steps_is_not_looked_at_in_each_turn(server: Server) -> None:
    crowd = [server.accept() for _ in range(CROWD)]
    for served in crowd:
        served.say_hello()
    for served in crowd:
        served.turn()
    waiting = [connection for connection, events in server.interests.items() if not events & select.EPOLLIN]
    assert len(waiting) == CROWD - STEPS_A_TURN
    late = server.accept()
    late.say_hello()
    late.turn()
    assert not late.was_answered(), "those that wait come first"
    for answered in range(2 * STEPS_A_TURN, CROWD + STEPS_A_TURN, STEPS_A_TURN):
        assert server.io.next_deadline() == server.io.now, "the worker must not sleep"
        server.io.now += 0.001
        server.io.expire_timers()
        assert sum(served.was_answered() for served in crowd) == min(answered, CROWD)
    server.io.now += 0.001
    server.io.expire_timers()
    assert late.was_answered()
    assert all(events & select.EPOLLIN for events in server.interests.values())
    assert server.io.next_deadline() is None


def test_handshake_that_waits_for_its_step_may_be_closed_meanwhile(server: Server) -> None:
    crowd = [server.accept() for _ in range(CROWD)]
    for served in crowd:
        served.say_hello()
    for served in crowd:
        served.turn()
    for served in crowd[STEPS_A_TURN:]:
        served.connection.close()
    while server.io.next_deadline() is not None:
        server.io.now += 0.001
        server.io.expire_timers()
    assert server.io.handshake_count == STEPS_A_TURN


def test_connection_that_is_closed_is_gone_though_an_older_one_still_shakes_hands(server: Server) -> None:
    server.accept()
    gone = []
    for _ in range(3):
        served = server.accept()
        served.shake_hands()
        gone.append(weakref.ref(served.connection.socket))
        server.served.remove(served)
        served.connection.close()
        served.socket.close()
    del served
    gc.collect()
    assert server.io.handshake_count == 1
    assert [ref() for ref in gone] == [None] * 3


def test_what_is_no_tls_is_closed_a_moment_later(server: Server) -> None:
    """So that trying costs time."""
    served = server.accept()
    served.socket.sendall(b"what is this")
    served.turn()
    served.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        served.socket.recv(1)
    served.turn()
    assert served.socket.recv(1) == b""


def test_last_request_that_comes_with_close_notify_is_answered_and_so_is_that(server: Server) -> None:
    """Else a client that waits for the broker's, as those on asyncio do, waits until it loses patience."""
    served = server.accept()
    served.shake_hands()
    served.tls.write(api_versions())
    with pytest.raises(ssl.SSLWantReadError):
        served.tls.unwrap()
    served.socket.sendall(served.outgoing.read())
    served.turn()
    while data := served.socket.recv(65536):
        served.incoming.write(data)
    assert served.tls.read(len(ANSWER)) == ANSWER
    with pytest.raises(ssl.SSLZeroReturnError):
        served.tls.read(1)


def test_large_request_in_small_pieces_is_waited_for_a_moment_and_no_longer(server: Server) -> None:
    """Else the client's kernel may wait for the broker's to acknowledge what it does not read."""
    served = server.accept()
    served.shake_hands()
    request = memoryview(frame(header(3, 12, 7) + bytes(100_000)))
    served.send(request[:20_000])
    served.turn()
    sent = 20_000
    pieces = ((17_000, 0.001), (1000, 0.001), (1000, 0.002), (1000, 0.004), (17_000, 0.008), (1000, 0.004))
    for piece, patience in pieces:
        assert served.low_water() > 10_000
        assert server.io.next_deadline() == pytest.approx(server.io.now + patience)
        served.send(request[sent : sent + piece])
        sent += piece
        server.io.now += patience * 0.9
        server.io.expire_timers()
        assert served.unread() > piece
        server.io.now += patience * 0.2
        server.io.expire_timers()
        assert served.unread() == 0
    server.io.now += 0.01
    server.io.expire_timers()
    assert served.low_water() == 1, "nothing came, so that each byte counts"
    assert server.io.next_deadline() is None
    served.send(request[sent:])
    served.turn()
    served.incoming.write(served.socket.recv(65536))
    assert served.tls.read(100) == ANSWER


def test_a_slow_client_keeps_no_other_waiting(server: Server) -> None:
    request = memoryview(frame(header(3, 12, 7) + bytes(100_000)))
    slow, quick = server.accept(), server.accept()
    for served in (slow, quick):
        served.shake_hands()
    slow.send(request[:20_000])
    slow.turn()
    for number in range(5):
        slow.send(request[20_000 + number : 20_001 + number])
        server.io.now += 0.04
        server.io.expire_timers()
    assert server.io.next_deadline() == pytest.approx(server.io.now + 0.032)
    quick.send(request[:20_000])
    quick.turn()
    assert server.io.next_deadline() == pytest.approx(server.io.now + 0.001)
    quick.send(request[20_000:40_000])
    server.io.now += 0.002
    server.io.expire_timers()
    assert quick.unread() == 0


@pytest.mark.slow  # what other threads of the process are given at the same time is counted too
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="it does not tell what is given out")
def test_buffers_are_kept_while_a_client_asks_at_once_and_given_back_when_it_is_still(server: Server) -> None:
    served = server.accept()
    served.shake_hands()
    served.ask_twice_at_once()
    still = 0
    for number in range(TRIES):
        if number % 100 == 0:  # somebody else may have taken something since, or given it back
            served.connection.trim(server.io.now)
            still = given_out()
        served.ask_twice_at_once()
        kept = given_out()
        if kept - still <= BUFFERS_MIN:
            continue  # the client was too slow
        served.connection.trim(server.io.now - 0.5)
        before = given_out()
        served.connection.trim(server.io.now)
        still = given_out()
        if abs(kept - before) < NOISE_MAX and before - still > BUFFERS_MIN:
            break
    else:
        pytest.fail("no buffers are kept for a client that asks at once, or they are not given back")
    served.ask_twice_at_once()
