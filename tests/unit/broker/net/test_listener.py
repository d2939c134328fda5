"""What connections get from the socket that they were accepted on."""

import socket

import pytest

from kafkalite._native.base.accepting import accept
from kafkalite.broker.net.listener import bind

BUFFER_BYTES = 65536


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_have_what_their_listener_was_given(host: str) -> None:
    try:
        listening = bind(host, 0, 16, send_buffer_bytes=BUFFER_BYTES, receive_buffer_bytes=BUFFER_BYTES)
    except Exception:
        if host == "::1":
            pytest.skip("no IPv6 here")
        raise
    with listening, socket.create_connection(listening.getsockname()[:2]):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                assert accepted.getsockopt(socket.SOL_SOCKET, name) == 2 * BUFFER_BYTES  # Linux counts its own share


@pytest.mark.parametrize("host", ["", "::"])
def test_every_interface_is_of_both_address_families(host: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with bind(host, 0, 16) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port)) as client:
                while (taken := accept(listening.fileno())) is None:
                    pass
                accepted, *origin = taken
                accepted.close()
                assert tuple(origin) == client.getsockname()[:2]
