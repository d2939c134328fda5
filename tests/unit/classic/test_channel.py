"""A channel that is interrupted: nothing waits on it any more, for an answer, a connection, or the next attempt."""

import socket
import threading
import time

import pytest

from kafkalite.classic.channel import Channel
from kafkalite.classic.errors import ConnectionFailed, Unreachable
from tests.kit.processes.broker import free_port, wait_until

WAIT_S = 30.0
LONG_S = 600.0
NO_FAMILY = 9999


def interrupted(channel, ready):
    """Return the exception of a request on the channel that is interrupted once `ready()`; None when it
    does not end.
    """
    found = []

    def ask():
        with pytest.raises(ConnectionFailed) as caught:
            channel.request(b"\0\0\0\0")
        found.append(caught.value)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(ready, WAIT_S, "somebody waits")
    channel.interrupt()
    asking.join(WAIT_S)
    return found


def test_waiting_for_an_answer_that_does_not_come():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = Channel("127.0.0.1", silent.getsockname()[1], socket_timeout_s=LONG_S)
        assert interrupted(channel, lambda: channel.connected)


def test_waiting_to_try_again_where_nobody_listens():
    channel = Channel("127.0.0.1", free_port(), connect_timeout_s=LONG_S)
    began = time.monotonic()
    # The pauses are 1, 10, 100 ms, then seconds.
    assert interrupted(channel, lambda: time.monotonic() > began + 0.3)


def test_waiting_for_a_host_that_does_not_take_the_connection():
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    crowd = [socket.socket() for _ in range(4)]
    try:
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        channel = Channel("127.0.0.1", full.getsockname()[1], connect_timeout_s=LONG_S)
        assert interrupted(channel, lambda: channel._connecting is not None)
    finally:
        for one in (*crowd, full):
            one.close()


def test_nothing_is_connected_after_an_interruption():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        channel = Channel("127.0.0.1", listening.getsockname()[1], connect_timeout_s=LONG_S)
        channel.interrupt()
        with pytest.raises(ConnectionFailed):
            channel.send(b"x")
        assert not channel.connected


def test_interrupted_just_as_it_was_connected(monkeypatch):
    connect = Channel._connect

    def interrupted_then(channel):
        made = connect(channel)
        channel.interrupt()
        return made

    monkeypatch.setattr(Channel, "_connect", interrupted_then)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        channel = Channel("127.0.0.1", listening.getsockname()[1])
        with pytest.raises(ConnectionFailed, match="was closed"):
            channel.request(b"x")
        assert not channel.connected


def test_who_was_reached_before_has_gone_and_is_not_who_was_never_there():
    """To a command it is what failed on the way, or what it could not begin with."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        channel = Channel("127.0.0.1", listening.getsockname()[1], connect_timeout_s=0.5)
        never = Channel("127.0.0.1", listening.getsockname()[1], connect_timeout_s=0.5)
        channel.send(b"x")
        channel.close()
    for each, kind in ((channel, ConnectionFailed), (never, Unreachable)):
        with pytest.raises(ConnectionFailed, match="cannot connect to") as caught:
            each.send(b"x")
        assert type(caught.value) is kind


def test_broker_that_does_not_answer_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = Channel("127.0.0.1", silent.getsockname()[1], socket_timeout_s=0.05)
        with pytest.raises(ConnectionFailed, match=r"did not respond within 0\.05 s"):
            channel.request(b"request")
        assert not channel.connected


def test_broker_that_takes_nothing_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = Channel("127.0.0.1", silent.getsockname()[1], socket_timeout_s=0.05)
        with pytest.raises(ConnectionFailed, match=r"timed out after 0\.05 s"):
            channel.send(bytes(64 * 1024 * 1024))
        assert not channel.connected


def test_address_of_a_family_that_the_kernel_does_not_have(monkeypatch):
    """As a host's IPv6 address where IPv6 is switched off: the next one is tried."""
    plain = socket.getaddrinfo

    def with_another(*arguments, **options):
        return [(NO_FAMILY, socket.SOCK_STREAM, 0, "", ("::1", 1)), *plain(*arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", with_another)
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = Channel("127.0.0.1", server.getsockname()[1], connect_timeout_s=WAIT_S)
        channel.send(b"request")
        other, _ = server.accept()
        with other:
            assert other.recv(100) == b"request"
        channel.close()


def test_answer_that_comes_in_pieces():
    body = bytes(range(256)) * 1000
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = Channel("127.0.0.1", server.getsockname()[1])
        found = []
        asking = threading.Thread(target=lambda: found.append(bytes(channel.request(b"request"))), daemon=True)
        asking.start()
        other, _ = server.accept()
        with other:
            assert other.recv(100) == b"request"
            frame = len(body).to_bytes(4, "big") + body
            for first in range(0, len(frame), 10_007):
                other.sendall(frame[first : first + 10_007])
            asking.join(WAIT_S)
        channel.close()
    assert found == [body]


def test_answer_that_ends_early():
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = Channel("127.0.0.1", server.getsockname()[1])
        errors = []

        def ask():
            try:
                channel.request(b"request")
            except ConnectionFailed as error:
                errors.append(str(error))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        other, _ = server.accept()
        assert other.recv(100) == b"request"
        other.sendall((100).to_bytes(4, "big") + bytes(99))
        other.close()
        asking.join(WAIT_S)
    assert len(errors) == 1
    assert "closed the connection" in errors[0]
