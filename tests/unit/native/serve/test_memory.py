"""The memory ceiling: each holder's share, the memory that connections charge, and the connections that are paused or
closed near the ceiling.
"""

from __future__ import annotations

import gc
import logging
import socket
import threading
from typing import NamedTuple

import pytest

from kafkalite._native.serve.connection import Connection
from kafkalite._native.serve.memory import (
    KIND_ANSWERS,
    KIND_FRAMES,
    KIND_GROUPS,
    KINDS,
    MemoryCeiling,
    MemoryCeilingReached,
)
from kafkalite.broker.limits.holder import Holder, holder_of
from tests.unit.native.serve.test_connection import ECHO, PARK, Harness, answer, request

KIB, MIB = 1024, 1024 * 1024
SIZE = 16 * MIB
LARGE = SIZE - SIZE // 16
HOG, OTHER = Holder("User:hog", "10.0.0.1"), Holder("User:other", "10.0.0.2")
ANONYMOUS = holder_of("User:ANONYMOUS", "127.0.0.1")


class Another(NamedTuple):
    """A further connection and its client's end."""

    client: socket.socket
    connection: Connection

    def close(self) -> None:
        self.connection.close()
        self.client.close()


class Near(Harness):
    """A harness whose connections share a small ceiling, and in which another holder can hold memory."""

    other: Connection | None = None
    other_interest = 1

    def __init__(self, size_max: int = SIZE, queued_max: int = -1, request_max: int = 100 * MIB) -> None:
        self.memory = MemoryCeiling(size_max, queued_max=queued_max)
        super().__init__(request_max=request_max, memory=self.memory)

    def connect_another(self, host: str) -> Another:
        """A second connection of the same worker, from another address."""
        client, server = socket.socketpair()
        server.setblocking(False)
        client.settimeout(20.0)
        self.other = Connection(self.io, server, host, 2, None)
        return Another(client, self.other)

    def on_interest(self, connection: Connection, events: int) -> None:
        if connection is self.other:
            self.other_interest = events
        else:
            self.interest = events

    def of_kind(self, name: str) -> int:
        return self.memory.by_kind()[name]

    def send(self, data: bytes) -> None:
        """From a thread, while the loop turns: a socket pair takes a few hundred kilobytes at a time."""
        thread = threading.Thread(target=self.client.sendall, args=(data,), daemon=True)
        thread.start()
        for _ in range(10_000):
            self.turn()
            thread.join(0.001)
            if not thread.is_alive():
                break
        assert not thread.is_alive()
        self.turn()

    def receive(self, size: int) -> bytes:
        """As of any harness, while the loop turns."""
        data = b""
        self.client.settimeout(0.001)
        for _ in range(20_000):
            try:
                data += self.client.recv(size - len(data))
            except TimeoutError:
                self.turn()
            if len(data) == size:
                return data
        raise AssertionError(f"{len(data)} of {size} bytes have come")

    def begin(self, size: int, have: int) -> None:
        """Send the first `have` bytes of a request whose frame has `size` bytes."""
        frame = request(ECHO, 1, bytes(size))
        self.send(frame[:have])


@pytest.fixture
def near():
    harnesses = []

    def make(**arguments) -> Near:
        harnesses.append(Near(**arguments))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.connection.close()
        harness.client.close()


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_a_holder_alone_gets_three_quarters_of_what_is_not_reserved():
    memory = MemoryCeiling(SIZE)
    hog = memory.of(HOG)
    assert hog.admits(LARGE * 3 // 4)
    assert not hog.admits(LARGE * 3 // 4 + 16)
    charge = hog.charge(KIND_ANSWERS, LARGE * 3 // 4)
    assert not hog.admits(128 * KIB)
    assert memory.of(OTHER).admits(128 * KIB)
    del charge
    assert memory.held == 0


def test_however_many_hold_all_they_may_a_newcomer_gets_something():
    memory = MemoryCeiling(SIZE)
    charges = []
    for number in range(40):
        hog = memory.of(Holder("User:hog", f"10.0.0.{number}"))
        while hog.admits(100 * KIB):
            charges.append(hog.charge(KIND_ANSWERS, 100 * KIB))
    assert memory.held > LARGE * 0.9
    assert memory.of(OTHER).admits(64 * KIB)


def test_small_charges_alone_get_the_reserve():
    memory = MemoryCeiling(SIZE)
    held = memory.of(HOG).charge(KIND_ANSWERS, LARGE)
    assert not memory.of(OTHER).admits(64 * KIB + 1)
    assert memory.of(OTHER).admits(64 * KIB)
    held.resize(SIZE)
    assert not memory.of(OTHER).admits(1)


def test_what_lasts_gets_half_at_most():
    hog = MemoryCeiling(SIZE).of(HOG)
    assert hog.admits(LARGE // 2, lasting=True)
    assert not hog.admits(LARGE // 2 + 1, lasting=True)


def test_a_charge_is_given_back_with_its_last_reference_whatever_is_collected_before_it():
    memory = MemoryCeiling(SIZE)
    ring: list[object] = [memory.of(HOG).charge(KIND_GROUPS, 1000)]
    ring.append(ring)
    kept = memory.of(OTHER).charge(KIND_FRAMES, 7)
    assert memory.by_kind()["groups"] == 1000
    del ring
    gc.collect()
    assert memory.by_kind()["groups"] == 0
    del memory
    gc.collect()
    kept.resize(9)  # its counts outlive the ceiling
    del kept


def test_a_charge_grows_until_it_does_not_fit():
    memory = MemoryCeiling(SIZE)
    charge = memory.of(HOG).charge(KIND_ANSWERS)
    for _ in range(11):
        charge.grow(MIB)
    with pytest.raises(MemoryCeilingReached) as raised:
        charge.grow(MIB)
    assert raised.value.size == 12 * MIB
    assert charge.size == memory.held - memory.of(None).held == 11 * MIB
    assert charge.may_become(5)
    assert not charge.may_become(12 * MIB)


def test_a_charge_is_of_a_kind_that_there_is_and_not_negative():
    holder = MemoryCeiling(SIZE).of(HOG)
    for kind, size in ((len(KINDS), 0), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="no charge"):
            holder.charge(kind, size)
    with pytest.raises(ValueError, match="-1"):
        holder.charge(0, 1).resize(-1)


def test_holders_that_hold_nothing_are_forgotten_and_the_others_told_by_size():
    memory = MemoryCeiling(SIZE)
    charges = [memory.of(HOG).charge(KIND_GROUPS, 5), memory.of(OTHER).charge(KIND_GROUPS, 50)]
    for number in range(2000):
        memory.of(Holder("User:passing", str(number)))
    memory.purge()
    assert memory.biggest(5) == [(OTHER, 50), (HOG, 5)]
    assert memory.of(HOG).held == charges[0].size


# ---- frames ----------------------------------------------------------------------------------------------------------


def test_a_cut_frame_is_charged_in_full_before_it_comes_and_given_back_when_it_is_served(near):
    harness = near()
    harness.begin(MIB, have=200_000)
    assert harness.of_kind("frames") == 2 * (4 + 10 + 2 + MIB)  # it is copied out of the buffer when it is whole
    assert harness.memory.queued == 4 + 10 + 2 + MIB
    assert harness.memory.biggest(1) == [(ANONYMOUS, harness.of_kind("frames"))]
    harness.send(request(ECHO, 1, bytes(MIB))[200_000:])
    assert harness.receive_frame()[0] == 1
    assert harness.memory.queued == 0
    assert harness.of_kind("frames") < 2 * MIB
    harness.connection.close()
    assert harness.of_kind("frames") == 0


def test_a_small_cut_frame_is_charged_by_its_buffer(near):
    harness = near()
    harness.begin(1000, have=20)
    assert 0 < harness.of_kind("frames") < 16 * KIB


def test_a_frame_that_does_not_fit_waits_until_others_hold_less(near):
    harness = near()
    held = harness.memory.of(OTHER).charge(KIND_GROUPS, 14 * MIB)
    harness.begin(MIB, have=200_000)
    assert harness.interest == 0
    assert harness.of_kind("frames") < 600_000
    assert harness.io.memory_is_needed()
    held.resize(MIB)
    harness.turn()
    harness.send(request(ECHO, 1, bytes(MIB))[200_000:])
    assert harness.receive_frame()[0] == 1


def test_a_frame_that_can_never_fit_closes_its_connection_with_the_settings_name(near, caplog):
    harness = near()
    with caplog.at_level(logging.WARNING):
        harness.begin(20 * MIB, have=100_000)
    assert harness.closed == 1
    assert "does not fit into broker.memory.max" in caplog.text
    assert harness.memory.held == harness.memory.of(None).held


def test_small_requests_are_served_while_another_holds_all_that_it_may(near):
    harness = near()
    kept = harness.memory.of(HOG).charge(KIND_GROUPS, LARGE)
    for number in range(50):
        harness.send(request(ECHO, number, bytes(60 * KIB)))
        assert harness.receive_frame()[0] == number
    assert kept.size == LARGE


def test_a_connection_of_the_holder_that_holds_most_is_not_read_and_another_is(near):
    harness = near()
    hog = harness.memory.of(ANONYMOUS).charge(KIND_GROUPS, 15 * MIB)
    harness.client.sendall(request(ECHO, 1))
    harness.turn()
    assert harness.nothing_to_receive()
    harness.turn()
    assert harness.interest == 0
    other = harness.connect_another("10.0.0.9")
    other.client.sendall(request(ECHO, 2))
    other.connection.on_event(1)
    assert other.client.recv(100) == answer(2, b"")
    hog.resize(0)
    harness.turn()
    assert harness.receive_frame()[0] == 1
    other.close()


def test_an_unfinished_frame_is_given_up_when_memory_is_needed_by_one_who_holds_less(near):
    harness = near()
    harness.begin(5 * MIB, have=200_000)
    connection = harness.connection
    since = harness.io.now
    assert not harness.io.memory_is_needed()
    hungry = harness.connect_another("10.0.0.9")
    thread = threading.Thread(
        target=hungry.client.sendall, args=(request(ECHO, 1, bytes(4 * MIB))[:200_000],), daemon=True
    )
    thread.start()
    for _ in range(200):
        hungry.connection.on_event(1)
        if harness.io.memory_is_needed():
            break
        thread.join(0.01)
    thread.join()
    assert harness.io.memory_is_needed()
    assert connection.withholds(since)
    assert not connection.withholds(since - 100.0), "it began later"
    assert not hungry.connection.withholds(since - 100.0)
    hungry.close()


def test_a_frame_of_a_connection_that_the_broker_does_not_read_is_not_given_up(near):
    harness = near()
    harness.begin(2 * MIB, have=200_000)
    since = harness.io.now
    harness.memory.of(HOG).charge(KIND_GROUPS, 1)
    harness.connection.mute(1_000_000)
    harness.io.now += 50.0
    assert not harness.connection.withholds(since)


def test_no_new_request_is_read_while_queued_max_request_bytes_are_used_up(near):
    harness = near(queued_max=100_000)
    harness.begin(100_000, have=80_000)
    assert harness.memory.queued > 100_000
    other = harness.connect_another("10.0.0.9")
    other.client.sendall(request(ECHO, 2))
    other.connection.on_event(1)
    assert harness.other_interest == 0
    harness.send(request(ECHO, 1, bytes(100_000))[80_000:])
    assert harness.receive_frame()[0] == 1
    harness.turn()
    assert harness.other_interest == 1
    other.connection.on_event(1)
    assert other.client.recv(100) == answer(2, b"")
    other.close()


def test_the_buffer_of_a_long_request_is_freed_at_once_near_the_ceiling(near):
    harness = near()
    kept = harness.memory.of(OTHER).charge(KIND_GROUPS, 11 * MIB)
    harness.send(request(ECHO, 1, bytes(900_000)))
    assert harness.receive_frame()[0] == 1
    assert harness.of_kind("frames") < 300_000
    assert kept.size == 11 * MIB


# ---- requests and answers --------------------------------------------------------------------------------------------


def test_a_parked_request_is_charged_until_its_answer_and_that_until_it_is_sent(near):
    harness = near()
    before = harness.of_kind("answers")
    harness.park_size = 5000
    harness.send(request(PARK, 1, bytes(5000)))
    assert harness.of_kind("requests") == 2048 + 5000
    harness.complete(0)
    assert harness.of_kind("requests") == 0
    assert harness.receive_frame() == (1, b"late")
    harness.parked.clear()
    assert harness.of_kind("answers") == before


def test_what_an_unread_client_is_owed_is_charged(near):
    harness = near()
    before = harness.of_kind("answers")
    harness.send(request(PARK, 1))
    _, place = harness.parked.pop()
    place.complete(answer(1, bytes(3 * MIB)))
    del place
    harness.io.handle_posted()
    assert harness.of_kind("answers") - before >= 3 * MIB
    harness.connection.close()
    assert harness.of_kind("answers") == before


def test_an_answer_that_does_not_fit_closes_its_connection_with_one_line(near, caplog):
    harness = near()
    with caplog.at_level(logging.WARNING):
        harness.send(request(PARK, 1))
        _, place = harness.parked.pop()
        place.complete(answer(1, bytes(14 * MIB)))
        harness.io.handle_posted()
    assert harness.closed == 1
    assert caplog.text.count("broker.memory.max") == 1


def test_a_dropped_request_is_charged_until_it_is_freed(near):
    """Its client has gone, but what it asked for still waits for its turn."""
    harness = near()
    harness.park_size = 5000
    harness.send(request(PARK, 1, bytes(5000)))
    harness.connection.close()
    assert harness.of_kind("requests") == 2048 + 5000
    harness.parked.clear()
    gc.collect()
    assert harness.of_kind("requests") == 0


def test_a_principal_takes_what_its_connection_holds_along(near):
    harness = near()
    harness.begin(MIB, have=100_000)
    held = harness.of_kind("frames")
    harness.connection.principal = "User:alice"
    harness.send(request(ECHO, 1, bytes(MIB))[100_000:150_000])
    assert harness.memory.biggest(2) == [(Holder("User:alice", "127.0.0.1"), held)]


def test_what_a_long_answer_leaves_in_a_worker_is_given_back(near):
    harness = near()
    before = harness.of_kind("answers")
    harness.send(request(ECHO, 1, bytes(3 * MIB)))
    assert harness.of_kind("answers") >= 3 * MIB
    assert harness.receive_frame()[0] == 1
    harness.turn()
    harness.io.give_back()
    assert harness.of_kind("answers") <= before + MIB + 1024


def test_connections_that_are_collected_in_any_order_give_back_what_they_hold():
    for _ in range(20):
        harness = Near()
        harness.begin(MIB, have=100_000)
        harness.send(request(ECHO, 1, bytes(MIB))[100_000:])
        harness.send(request(PARK, 2, bytes(100)))
        memory = harness.memory
        harness.begin(MIB, have=100_000)
        harness.cycle = harness, harness.connection, harness.parked  # type: ignore[attr-defined]
        harness.connection.socket.close()
        harness.client.close()
        del harness
        gc.collect()
        assert memory.held - memory.of(None).held == 0
