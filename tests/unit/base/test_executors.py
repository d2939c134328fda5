"""Workers with a thread each: turns on request, when due, and a stop that loses nothing."""

import threading
import time

import pytest

from kafkalite.base.executors import THREADS, ThreadWorker

PATIENCE_S = 30


class Turns:
    """Counts the turns of a worker; each returns what `delays` says, at last None."""

    def __init__(self, *delays: float | None) -> None:
        self.delays = list(delays)
        self.count = 0
        self.done = threading.Semaphore(0)
        self.threads: set[int] = set()
        self.worker = THREADS.worker("turns", self.turn)

    def turn(self) -> float | None:
        self.count += 1
        self.threads.add(threading.get_ident())
        self.done.release()
        return self.delays.pop(0) if self.delays else None

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.done.acquire(timeout=PATIENCE_S)

    def call(self) -> None:
        with self.worker.lock:
            self.worker.call_locked()


def test_first_turn_comes_with_the_start() -> None:
    turns = Turns()
    assert turns.count == 0
    turns.worker.start()
    turns.wait()
    turns.worker.stop()
    assert turns.count == 1
    assert turns.threads.isdisjoint({threading.get_ident()})


def test_a_call_brings_a_turn() -> None:
    turns = Turns()
    turns.worker.start()
    turns.wait()
    for _ in range(3):
        turns.call()
        turns.wait()
    turns.worker.stop()
    assert turns.count == 4


def test_a_turn_comes_when_it_is_due() -> None:
    turns = Turns(0.001, 0.0, 0.001)
    turns.worker.start()
    turns.wait(4)
    turns.worker.stop()
    assert turns.count == 4


def test_a_call_during_a_turn_brings_one_more() -> None:
    entered, go_on = threading.Event(), threading.Event()
    count = 0

    def turn() -> None:
        nonlocal count
        count += 1
        entered.set()
        assert go_on.wait(PATIENCE_S)

    worker = THREADS.worker("called", turn)
    worker.start()
    assert entered.wait(PATIENCE_S)
    for _ in range(5):
        with worker.lock:
            worker.call_locked()
    go_on.set()
    worker.stop()
    assert count == 2


def test_stop_lets_what_was_called_for_happen() -> None:
    """Each call before the stop is served."""
    for _ in range(50):
        turns = Turns()
        turns.worker.start()
        turns.wait()
        turns.call()
        turns.worker.stop()
        assert turns.count == 2


def test_stop_of_a_worker_that_was_never_started() -> None:
    THREADS.worker("idle", lambda: None).stop()


def test_a_turn_may_stop_its_own_worker() -> None:
    stopped = threading.Event()

    def turn() -> None:
        worker.stop()
        stopped.set()

    worker = THREADS.worker("own", turn)
    worker.start()
    assert stopped.wait(PATIENCE_S)
    assert isinstance(worker, ThreadWorker)
    assert worker._thread is not None
    worker._thread.join(PATIENCE_S)
    assert not worker._thread.is_alive()


def test_results_come_in_the_order_of_the_items() -> None:
    def slowly(number: int) -> int:
        time.sleep(0.01 * (number == 0))
        return number * number

    assert THREADS.each("squares", 3, slowly, range(10)) == [n * n for n in range(10)]


def test_what_fails_for_one_item_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        THREADS.each("reciprocals", 2, lambda number: 1 / number, [1, 0])


def test_job_is_done_when_joined() -> None:
    done: list[int] = []
    THREADS.job("once", lambda: done.append(1)).join()
    assert done == [1]


def test_event_is_waited_for() -> None:
    event = THREADS.event()
    assert not event.wait(0)
    THREADS.job("setter", event.set)
    assert event.wait(PATIENCE_S)
