"""Connections to other nodes: what they take into memory."""

from __future__ import annotations

import socket

import pytest

from kafkalite.cluster.connection import ConnectionFailed, ControllerConnection, LargeAnswers
from kafkalite.cluster.quorum import Address

WAIT_S = 60.0


def test_large_answers_are_taken_one_at_a_time() -> None:
    large = LargeAnswers(10)
    ends, connections = [], []
    for number in range(2):
        end, sock = socket.socketpair()
        end.sendall((100).to_bytes(4, "big") + bytes(100) + (10).to_bytes(4, "big") + bytes(10))
        ends.append(end)
        connections.append(ControllerConnection(Address("node", number), sock, "test", "the broker"))
        connections[-1].large = large
    first, second = connections
    assert len(first._receive_frame(WAIT_S)) == 100
    with pytest.raises(ConnectionFailed, match="no room for an answer of 100 bytes"):
        second._receive_frame(0.01)
    first.end_answer()
    first.end_answer()
    assert not large.lock.locked()
    assert len(first._receive_frame(WAIT_S)) == 10
    assert not large.lock.locked()
    large.lock.acquire()
    for each in (first, second, *ends):
        each.close()
    assert large.lock.locked(), "it was another's"
