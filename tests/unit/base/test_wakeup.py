"""A wake-up interrupts any wait for sockets, and is never lost."""

import select
import selectors
import threading
from collections.abc import Iterator

import pytest

from kafkalite.base.wakeup import HUSH_SIZE, Wakeup


@pytest.fixture
def bell() -> Iterator[Wakeup]:
    bell = Wakeup()
    yield bell
    bell.close()


def is_heard(bell: Wakeup) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_a_ring_before_anybody_waits_is_heard(bell: Wakeup) -> None:
    bell.ring()
    bell.wait(None)
    assert not is_heard(bell)


def test_a_ring_from_another_thread_ends_the_wait(bell: Wakeup) -> None:
    ringer = threading.Thread(target=bell.ring)
    ringer.start()
    bell.wait(None)
    ringer.join()


def test_many_rings_are_one(bell: Wakeup) -> None:
    for _ in range(HUSH_SIZE):
        bell.ring()
    bell.hush()
    assert not is_heard(bell)


def test_nobody_is_held_up_by_a_bell_that_is_full_of_rings(bell: Wakeup) -> None:
    for _ in range(1_000_000):
        bell.ring()
    assert is_heard(bell)


def test_hushing_what_is_silent_does_not_wait(bell: Wakeup) -> None:
    bell.hush()
    bell.wait(0.0)
    assert not is_heard(bell)


def test_a_selector_takes_it_as_a_socket(bell: Wakeup) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(bell, selectors.EVENT_READ, "data")
        assert selector.select(0) == []
        bell.ring()
        assert [key.data for key, _ in selector.select(None)] == ["data"]


def test_a_closed_bell_may_be_rung_and_closed_again(bell: Wakeup) -> None:
    bell.close()
    bell.ring()
    bell.close()
