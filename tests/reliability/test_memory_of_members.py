"""E6: members that say more of themselves than can be written down, and go: the broker holds none of it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.hostile.families import join
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
MIB = 1 << 20
MEMBERS = 20
METADATA_SIZE = 40 * MIB
HELD_MAX = 200 * MIB
"""A quarter of what the members would make it hold, and more than an idle broker takes."""


def anonymous_size(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def answer_of(port: int, group: str, size: int) -> int:
    """The error code of a first join (version 3: after the correlation id comes the throttle time)."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as answers:
        connection.sendall(join(group, size))
        (length,) = struct.unpack(">i", answers.read(4))
        return int(struct.unpack_from(">h", answers.read(length), 8)[0])


@pytest.mark.slow
@pytest.mark.scenario("E6")
def test_metadata_that_cannot_be_written_down_is_not_held(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"group.initial.rebalance.delay.ms": "0"}).start()
    for number in range(MEMBERS):
        assert answer_of(broker.port, f"group-{number}", METADATA_SIZE) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer_of(broker.port, "small", 1000) == 0
    wait_until(lambda: anonymous_size(broker.pid) < HELD_MAX, 60, "what they said of themselves is let go")
    assert broker.log().count("does not fit into a record of __consumer_offsets") <= 10, "a client can repeat it"
    assert "does not fit into a record of __consumer_offsets" in broker.log()
