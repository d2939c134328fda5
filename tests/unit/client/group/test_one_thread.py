"""Threads that use a GroupReader at the same time, and the effect of closing it."""

import select
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkalite.client import ReaderClosed
from kafkalite.client.group.one_thread import OneThread

WAIT_S = 60.0


@pytest.fixture
def one() -> Iterator[OneThread]:
    one = OneThread("the reader")
    yield one
    shut(one)


def in_another_thread(run: Callable[[], object]) -> Exception | None:
    """What it raised there."""
    raised: list[Exception] = []

    def guarded() -> None:
        try:
            run()
        except (RuntimeError, ReaderClosed) as error:
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    return raised[0] if raised else None


def enter(one: OneThread) -> None:
    with one.entered():
        pass


def shut(one: OneThread) -> bool:
    with one.shut(WAIT_S) as first:
        return first


def test_another_thread_is_refused_while_one_is_inside(one: OneThread) -> None:
    with one.entered(), one.entered():  # again, as from a callback
        assert isinstance(in_another_thread(lambda: enter(one)), RuntimeError)
    assert in_another_thread(lambda: enter(one)) is None


def test_no_thread_enters_a_closed_reader(one: OneThread) -> None:
    assert shut(one)
    with pytest.raises(ReaderClosed, match="the reader is closed"):
        enter(one)


def test_a_second_close_finds_it_done(one: OneThread) -> None:
    assert shut(one)
    assert not shut(one)


def test_a_close_from_a_callback_does_not_wait_for_itself(one: OneThread) -> None:
    with one.entered():
        assert shut(one)


def test_a_close_from_another_thread_ends_the_wait_inside_and_comes_after_it(one: OneThread) -> None:
    order = []

    def close() -> None:
        with one.shut(WAIT_S) as first:
            order.append(("closing", first))

    closing = threading.Thread(target=close)
    with one.entered():
        closing.start()
        assert select.select([one.bell], [], [], WAIT_S)[0]
        order.append(("woken", True))
        with pytest.raises(ReaderClosed):
            one.go_on()
    closing.join(WAIT_S)
    assert order == [("woken", True), ("closing", True)]


def test_what_is_inside_too_long_is_not_waited_for(one: OneThread) -> None:
    leave, inside = threading.Event(), threading.Event()

    def stay() -> None:
        with one.entered():
            inside.set()
            leave.wait(WAIT_S)

    staying = threading.Thread(target=stay)
    staying.start()
    assert inside.wait(WAIT_S)
    with one.shut(0.0) as first:
        assert first
    leave.set()
    staying.join(WAIT_S)
    with pytest.raises(ReaderClosed):
        enter(one)
