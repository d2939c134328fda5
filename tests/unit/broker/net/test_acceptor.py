"""To whom the acceptor deals what it takes."""

from __future__ import annotations

import contextlib
import queue
import socket
from typing import TYPE_CHECKING, Any

from kafkalite.broker.net.acceptor import Acceptor
from kafkalite.broker.net.listener import BoundListener, bind
from kafkalite.broker.net.rates import UNBOUNDED, ConnectionRates
from kafkalite.model import Endpoint

if TYPE_CHECKING:
    from kafkalite._native.base.accepting import AcceptedSocket

WAIT_S = 60


class Owner:
    """A fake worker with a given number of connections."""

    def __init__(self, name: str, count: int, dealt: queue.SimpleQueue[str]) -> None:
        self.name = name
        self.connection_count = count
        self._dealt = dealt
        self._sockets: list[AcceptedSocket] = []

    def adopt(self, sock: AcceptedSocket, _address: tuple[str, int], _listener: BoundListener) -> None:
        self._sockets.append(sock)
        self.connection_count += 1
        self._dealt.put(self.name)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def test_a_connection_goes_to_whom_has_the_fewest_and_in_turn_among_equals() -> None:
    dealt: queue.SimpleQueue[str] = queue.SimpleQueue()
    owners: list[Any] = [Owner("a", 2, dealt), Owner("b", 0, dealt), Owner("c", 0, dealt)]
    listener = BoundListener("PLAINTEXT", bind("127.0.0.1", 0, 16), Endpoint("PLAINTEXT", "127.0.0.1", 0))
    acceptor = Acceptor(
        [listener],
        owners,
        connections_max=100,
        connections_room=100,
        connections_per_address_max=100,
        per_address_overrides={},
        per_listener_max={},
        rates=ConnectionRates(window_s=1.0, samples=11),
    )
    acceptor.rates.set_rates(UNBOUNDED, {})
    with contextlib.ExitStack() as stack:
        for owner in owners:
            stack.callback(owner.close)
        stack.callback(acceptor.stop)
        port = listener.port
        acceptor.start()
        found = []
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            found.append(dealt.get(timeout=WAIT_S))
    assert sorted(found[:4]) == ["b", "b", "c", "c"]
    assert found[0] != found[1]
    assert sorted(found[4:7]) == sorted(found[7:]) == ["a", "b", "c"]
