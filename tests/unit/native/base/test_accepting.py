"""Connections as they are taken from a listening socket."""

import os
import socket
from collections.abc import Iterator

import pytest

from kafkalite._native.base.accepting import AcceptedSocket, accept
from kafkalite.broker.net.listener import bind

WAIT_S = 60


def taken(listening: socket.socket) -> tuple[AcceptedSocket, str, int]:
    """The connection that was just begun: the handshake of TCP is done, but not always where it is taken from."""
    while (found := accept(listening.fileno())) is None:
        pass
    return found


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with bind("127.0.0.1", 0, 16) as found:
        yield found


def test_a_connection_is_non_blocking_is_not_inherited_and_says_where_it_is_from(listening: socket.socket) -> None:
    assert accept(listening.fileno()) is None
    with socket.create_connection(listening.getsockname(), WAIT_S) as client:
        accepted, host, port = taken(listening)
        assert (host, port) == client.getsockname()
        assert not os.get_blocking(accepted.fileno())
        assert not os.get_inheritable(accepted.fileno())
        assert accept(listening.fileno()) is None
        accepted.close()
        assert client.recv(1) == b""
        assert accepted.fileno() == -1
        accepted.close()


def test_an_unreferenced_connection_is_closed(listening: socket.socket) -> None:
    with socket.create_connection(listening.getsockname(), WAIT_S) as client:
        found = [taken(listening)]
        found.clear()
        assert client.recv(1) == b""


def test_one_that_was_never_accepted_has_no_descriptor() -> None:
    assert AcceptedSocket().fileno() == -1


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_an_ipv4_address_is_shown_as_such_on_a_dual_stack_listener(host: str, told: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with bind("", 0, 16) as both:
        try:
            client = socket.create_connection((host, both.getsockname()[1]), WAIT_S)
        except OSError:
            pytest.skip(f"nothing of {host} here")
        with client:
            accepted, found, port = taken(both)
            accepted.close()
            assert (found, port) == (told, client.getsockname()[1])


def test_what_the_system_refuses_is_raised() -> None:
    with socket.socket() as unbound:
        unbound.setblocking(False)
        with pytest.raises(OSError, match="Invalid argument"):
            accept(unbound.fileno())
