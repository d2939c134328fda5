"""Portions of work: free on a network thread; rests, and an end, between two items of a long request."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.limits import pace as pace_module
from kafkalite.broker.limits.pace import PORTION_NS, Pace, Stopped, checkpoint, checkpointed, has_gone, run_with

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """`time`, as the module uses it: work takes what the test says, and sleeps are noted."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000
        self.slept_ns: list[int] = []

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.slept_ns.append(round(seconds * 1e9))
        self.now_ns += self.slept_ns[-1]


class Client:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace_module, "time", clock)
    monkeypatch.setattr(pace_module, "_free_ns", 0)
    return clock


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_network_thread_gets_the_list_itself() -> None:
    items = [1, 2, 3]
    assert checkpointed(items) is items
    checkpoint()


def test_a_long_request_rests_after_each_portion_for_at_least_as_long(
    clock: Clock, ends: tuple[socket.socket, socket.socket]
) -> None:
    pace = Pace(lambda: False)
    pace.begin(Client(ends[0].fileno()))
    spent = [PORTION_NS // 4] * 40 + [5 * PORTION_NS] * 3

    def work(_pace: Pace) -> list[int]:
        done = []
        for item in checkpointed(spent):
            clock.now_ns += item
            done.append(item)
        checkpoint()
        return done

    assert run_with(pace, work) == spent
    assert len(clock.slept_ns) == 10 + 3
    assert clock.slept_ns[:10] == [PORTION_NS] * 10
    assert clock.slept_ns[10:] == [5 * PORTION_NS] * 3
    assert pace.spent_s == pytest.approx(sum(spent) / 1e9)
    items = [1]
    assert checkpointed(items) is items, "the thread runs no long request any more"


def test_a_request_that_looked_at_nothing_rests_after_its_end(clock: Clock) -> None:
    pace = Pace(lambda: True)
    pace.resume()
    clock.now_ns += PORTION_NS - 1
    pace.rest()
    assert clock.slept_ns == []
    clock.now_ns += 7 * PORTION_NS
    pace.rest()
    assert [slept >= 8 * PORTION_NS - 1 for slept in clock.slept_ns] == [True]


def test_others_have_a_pause_between_the_portions_of_two_threads(
    clock: Clock, ends: tuple[socket.socket, socket.socket]
) -> None:
    first, second = (Pace(lambda: False) for _ in range(2))
    for pace in (first, second):
        pace.begin(Client(ends[0].fileno()))
    began = clock.now_ns
    clock.now_ns += PORTION_NS
    first.check()
    begins_first = clock.now_ns - began
    clock.now_ns = began + PORTION_NS  # the other thread's portion ended at the same time
    second.check()
    begins_second = clock.now_ns - began
    assert begins_first == 2 * PORTION_NS
    assert begins_second == begins_first + 2 * PORTION_NS


@pytest.mark.parametrize("end", ["closed", "stops", "gone"])
def test_the_work_ends_between_two_items_once_nothing_wants_its_answer(
    clock: Clock, ends: tuple[socket.socket, socket.socket], end: str
) -> None:
    stops = False
    client = Client(ends[0].fileno())
    pace = Pace(lambda: stops)
    pace.begin(client)
    begun, done = [], []

    def work(_pace: Pace) -> None:
        nonlocal stops
        for item in checkpointed(range(10_000)):
            begun.append(item)
            clock.now_ns += PORTION_NS
            if item == 100:
                client.closed, stops = end == "closed", end == "stops"
                if end == "gone":
                    ends[1].close()
            done.append(item)

    with pytest.raises(Stopped):
        run_with(pace, work)
    assert begun == done
    assert 101 <= len(done) < 1000, "a connection's end is looked for ten times a second"


def test_stopped_passes_by_what_handles_errors(clock: Clock, ends: tuple[socket.socket, socket.socket]) -> None:
    client = Client(ends[0].fileno())
    pace = Pace(lambda: False)
    pace.begin(client)
    client.closed = True

    def work(_pace: Pace) -> None:
        clock.now_ns += PORTION_NS
        try:
            checkpoint()
        except Exception:  # noqa: BLE001  # as handlers do
            pytest.fail("an end is no error")

    with pytest.raises(Stopped):
        run_with(pace, work)


def test_growth_of_the_answer_is_charged_once(clock: Clock, ends: tuple[socket.socket, socket.socket]) -> None:
    pace = Pace(lambda: False)
    charged: list[int] = []
    pace.begin(Client(ends[0].fileno()))
    pace.charge_to(charged.append)
    for size in (0, 100, 100, 250):
        pace.check_size(size)
    assert charged == [100, 150]
    pace.begin(Client(ends[0].fileno()))
    pace.check_size(1000)
    assert charged == [100, 150], "the next request is charged to its own client"
    assert clock.slept_ns == []


def test_a_socket_whose_other_end_is_closed_has_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    client = Client(ends[0].fileno())
    ends[1].sendall(b"a request that nothing reads")
    assert not has_gone(client)
    ends[1].close()
    assert has_gone(client)
