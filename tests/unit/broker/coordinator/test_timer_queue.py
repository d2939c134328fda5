"""The timer queue on a clock that is turned by hand, and once on the real one."""

import threading

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker.coordinator.timer_queue import CANCELLED_KEPT_MIN, GRACE_S_MAX, PAUSE_S_MIN, TimerQueue
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
    assert "a timer callback failed" in caplog.text


@pytest.mark.parametrize(("timeout_s", "grace_s"), [(2, 1), (45, GRACE_S_MAX)])
def test_after_a_pause_clients_have_a_moment_to_be_heard(clock, queue, timeout_s, grace_s):
    fired = []
    session = queue.timer(lambda: fired.append("session"), awaits_client=True)
    session.set(timeout_s)
    queue.timer(lambda: fired.append("retry")).set(timeout_s)
    queue._turn()
    clock.advance(timeout_s + 10)
    queue._turn()
    assert fired == ["retry"]
    clock.advance(grace_s - 0.01)
    queue._turn()
    assert fired == ["retry"]
    clock.advance(0.01)
    queue._turn()
    assert fired == ["retry", "session"]


@pytest.mark.parametrize(("timeout_s", "pause_s", "joins"), [(2, 60, True), (45, 20, False)])
def test_who_cannot_have_given_up_has_its_whole_time_after_a_pause(clock, queue, timeout_s, pause_s, joins):
    fired = []
    session = queue.timer(lambda: fired.append("session"), awaits_client=True)
    session.set(timeout_s)
    queue._turn()
    clock.advance(pause_s)
    if joins:
        queue._turn()
        session.set(timeout_s)
    else:
        session.heard(timeout_s, one_at_a_time=True)
    live(clock, queue, timeout_s - 0.1)
    assert fired == []
    live(clock, queue, 0.2)
    assert fired == ["session"]


@pytest.mark.parametrize("noticed_by_thread", [True, False])
def test_what_may_have_been_said_before_a_pause_is_worth_a_moment(clock, queue, noticed_by_thread):
    fired = []
    gone = queue.timer(lambda: fired.append("gone"), awaits_client=True)
    there = queue.timer(lambda: fired.append("there"), awaits_client=True)
    gone.set(45)
    there.set(45)
    queue._turn()
    clock.advance(60)
    if noticed_by_thread:
        queue._turn()
    for timer in (gone, there):
        timer.heard(45, one_at_a_time=True)
        timer.heard(45, one_at_a_time=False)
    there.heard(45, one_at_a_time=True)
    live(clock, queue, GRACE_S_MAX - 0.2)
    assert fired == []
    live(clock, queue, 0.4)
    assert fired == ["gone"]
    live(clock, queue, 41)
    assert fired == ["gone"]
    live(clock, queue, 1.2)
    assert fired == ["gone", "there"]


def live(clock, queue, seconds):
    """Run the timer queue of a broker without pauses."""
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        queue._turn()


def test_who_comes_a_bit_late_gives_no_grace(clock, queue):
    fired = []
    queue.timer(lambda: fired.append("session"), awaits_client=True).set(0.9)
    queue._turn()
    clock.advance(0.9 + PAUSE_S_MIN)
    queue._turn()
    assert fired == ["session"]


def test_a_pause_within_a_turn_counts(clock, queue):
    fired = []
    queue.timer(lambda: clock.advance(10)).set(1)
    queue.timer(lambda: fired.append("session"), awaits_client=True).set(2)
    queue._turn()
    clock.advance(1)
    queue._turn()
    queue._turn()
    assert fired == []
    clock.advance(1)
    queue._turn()
    assert fired == ["session"]


def test_a_broker_that_is_starved_all_the_time_ends_sessions_too(clock, queue):
    fired = []
    queue.timer(lambda: fired.append("session"), awaits_client=True).set(2)
    for _ in range(4):
        queue._turn()
        clock.advance(2)
    assert fired == ["session"]


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
