"""Long answers through TLS: file ranges that are sealed where they are mapped, and a file that is cut meanwhile."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.harness import wire
from tests.kit.harness.tls_broker import TIMEOUT_S, TlsBroker

SIZES = (1_000, 40_000, 70_000, 900_000, 17_000, 300_000)
"""Bytes of records in each partition: some are copied, some are not."""
PIECE = 100_000
LONG = 24 << 20
"""More than sockets hold on their way."""


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path) as broker:
        yield broker


def fill(tls: TlsBroker, topic: str, sizes: tuple[int, ...]) -> None:
    """Records of bytes that do not repeat, in batches of at most PIECE."""
    with wire.Connection(tls.broker.endpoints["PLAINTEXT"].port) as connection:
        assert connection.create_topic(topic, len(sizes)) == 0
        for partition, size in enumerate(sizes):
            for start in range(0, size, PIECE):
                record = wire.Record(None, os.urandom(min(PIECE, size - start)))
                assert connection.produce(topic, partition, wire.batch_of([record])).error == 0


def request(topic: str, partitions: int) -> bytes:
    wanted = [(partition, 0) for partition in range(partitions)]
    return wire.frame(wire.header(wire.FETCH, 11, 9) + wire.fetch_body(topic, wanted, partition_max_bytes=64 << 20))


def slow_socket(tls: TlsBroker, listener: str) -> socket.socket:
    """Return a socket with a small receive buffer, so that the broker's send buffer stays full."""
    sock = socket.socket()
    sock.settimeout(TIMEOUT_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", tls.broker.endpoints[listener].port))
    return tls.context().wrap_socket(sock, server_hostname="127.0.0.1") if listener == "SSL" else sock


def answer(sock: socket.socket) -> bytes:
    with sock.makefile("rb") as stream:
        return stream.read(struct.unpack(">i", stream.read(4))[0])


def test_answers_of_long_and_short_ranges_are_those_without_tls(tls: TlsBroker) -> None:
    fill(tls, "mixed", SIZES)
    asked = request("mixed", len(SIZES))
    with slow_socket(tls, "PLAINTEXT") as sock:
        sock.sendall(asked)
        plain = answer(sock)
    assert len(plain) > sum(SIZES)
    for connect in (lambda: slow_socket(tls, "SSL"), tls.secure):
        with connect() as sock:
            for _ in range(3):  # pieces grow while a client keeps up
                sock.sendall(asked)
                assert answer(sock) == plain


@pytest.mark.slow
def test_a_file_that_is_cut_under_an_answer_gives_nothing_that_was_not_written(tls: TlsBroker) -> None:
    fill(tls, "cut", (LONG,))
    asked = request("cut", 1)
    with tls.secure() as sock:
        sock.sendall(asked)
        whole = answer(sock)
    assert len(whole) > LONG
    (segment,) = tls.directory.glob("data/cut-0/*.log")
    found = b""
    with slow_socket(tls, "SSL") as sock:
        sock.sendall(asked)
        found += sock.recv(4096)
        os.truncate(segment, LONG // 8192 * 4096)
        try:
            while piece := sock.recv(1 << 20):
                found += piece
        except OSError:
            pass  # reset, in place of an end
    assert len(found) < len(whole)
    assert (struct.pack(">i", len(whole)) + whole).startswith(found)
