"""Connections to other nodes: what they take into memory."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalite.broker.cluster.connection import ConnectionFailed, ControllerConnection, LargeAnswers
from kafkalite.broker.cluster.quorum import Address
from kafkalite.wire.protocol.api import API_VERSIONS
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest

WAIT_S = 60.0


def sharing(large: LargeAnswers, count: int) -> list[tuple[socket.socket, ControllerConnection]]:
    """Connections on which an answer of 100 bytes comes, and one of 10."""
    found = []
    for number in range(count):
        end, sock = socket.socketpair()
        end.sendall((100).to_bytes(4, "big") + bytes(100) + (10).to_bytes(4, "big") + bytes(10))
        connection = ControllerConnection(Address("node", number), sock, "test", "the broker")
        connection.large = large
        found.append((end, connection))
    return found


def test_large_answers_are_taken_one_at_a_time() -> None:
    large = LargeAnswers(10)
    ends, (first, second) = zip(*sharing(large, 2), strict=True)
    assert len(first._receive_frame(WAIT_S)) == 100
    with pytest.raises(ConnectionFailed, match="for a response of 100 bytes"):
        second._receive_frame(0.01)
    first.end_answer()
    first.end_answer()
    assert not large.taken
    assert len(first._receive_frame(WAIT_S)) == 10
    assert not large.taken
    assert large.take(WAIT_S, lambda: False)
    for each in (first, second, *ends):
        each.close()
    assert large.taken, "it was another's"


def test_who_waits_for_room_goes_on_when_there_is_some_and_ends_when_he_is_told_to() -> None:
    large = LargeAnswers(10)
    ends, connections = zip(*sharing(large, 3), strict=True)
    first, waits, gone = connections
    assert len(first._receive_frame(WAIT_S)) == 100
    with ThreadPoolExecutor(2) as pool:
        patient, ended = (pool.submit(each._receive_frame, 10 * WAIT_S) for each in (waits, gone))
        gone.abort()
        with pytest.raises(ConnectionFailed, match="no memory"):
            ended.result(WAIT_S)
        assert not patient.done()
        first.end_answer()
        assert len(patient.result(WAIT_S)) == 100
    for each in (*connections, *ends):
        each.close()
    assert not large.taken


def test_the_wait_for_an_answer_ends_at_its_timeout() -> None:
    end, sock = socket.socketpair()
    connection = ControllerConnection(Address("node", 1), sock, "test", "the broker")
    with end, pytest.raises(ConnectionFailed, match="did not answer ApiVersions in time"):
        connection.request(API_VERSIONS, 3, ApiVersionsRequest(), 0.01)
    assert connection.closed


def test_a_request_that_waits_is_ended() -> None:
    end, sock = socket.socketpair()
    connection = ControllerConnection(Address("node", 1), sock, "test", "the broker")
    with end, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(connection.request, API_VERSIONS, 3, ApiVersionsRequest(), 10 * WAIT_S)
        assert end.recv(1)
        connection.abort()
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            waits.result(WAIT_S)
