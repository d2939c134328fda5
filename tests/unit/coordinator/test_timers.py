"""The timer queue on a clock that is turned by hand, and once on the real one."""

import threading

import pytest

from kafkalite.clock import SystemClock
from kafkalite.coordinator.timers import CANCELLED_KEPT_MIN, TimerQueue
from tests.kit.fakes.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def queue(clock):
    return TimerQueue(clock, threaded=False)


def test_fires_when_due_and_once(clock, queue):
    fired = []
    queue.timer(lambda: fired.append("a")).set(5)
    clock.advance(4.9)
    queue.run_due()
    assert fired == []
    clock.advance(0.1)
    queue.run_due()
    clock.advance(10)
    queue.run_due()
    assert fired == ["a"]


def test_setting_later_moves_it_without_another_entry(clock, queue):
    fired = []
    timer = queue.timer(lambda: fired.append(clock.monotonic()))
    for _ in range(1000):
        timer.set(5)
        clock.advance(0.01)
    assert len(queue._heap) == 1
    began = clock.monotonic()
    for _ in range(60):
        clock.advance(0.1)
        queue.run_due()
    assert fired == [pytest.approx(began + 5, abs=0.1)]


def test_timers_that_were_cancelled_leave_the_queue_however_far_ahead_they_were_set(clock, queue):
    fired = []
    kept = queue.timer(lambda: fired.append("kept"))
    kept.set(1e9)
    again = queue.timer(lambda: fired.append("again"))
    again.set(1e9)
    again.cancel()
    for _ in range(10_000):
        timer = queue.timer(lambda: fired.append("cancelled"))
        timer.set(1e8)
        timer.cancel()
    assert len(queue._heap) <= CANCELLED_KEPT_MIN + 2
    again.set(1e9)
    clock.advance(1e9)
    queue.run_due()
    assert sorted(fired) == ["again", "kept"]


def test_setting_earlier_fires_earlier_and_only_then(clock, queue):
    fired = []
    timer = queue.timer(lambda: fired.append(1))
    timer.set(60)
    timer.set(1)
    clock.advance(1)
    queue.run_due()
    assert fired == [1]
    clock.advance(60)
    queue.run_due()
    assert fired == [1]


def test_cancelled_does_not_fire_and_may_be_set_again(clock, queue):
    fired = []
    timer = queue.timer(lambda: fired.append(1))
    timer.set(1)
    timer.cancel()
    assert not timer.armed
    clock.advance(2)
    queue.run_due()
    assert fired == []
    timer.set(1)
    clock.advance(1)
    queue.run_due()
    assert fired == [1]


def test_a_failing_function_does_not_harm_the_others(clock, queue, caplog):
    fired = []
    queue.timer(lambda: 1 / 0).set(1)
    queue.timer(lambda: fired.append(1)).set(1)
    clock.advance(1)
    queue.run_due()
    assert fired == [1]
    assert "a timer's work failed" in caplog.text


def test_thread_fires_and_ends_with_stop():
    queue = TimerQueue(SystemClock())
    fired = threading.Event()
    late = queue.timer(lambda: None)
    late.set(1000)
    queue.timer(fired.set).set(0.01)
    assert fired.wait(10)
    thread = queue._worker._thread
    queue.stop()
    assert not thread.is_alive()
