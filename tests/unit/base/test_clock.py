"""Expiry time: a wall clock that is ahead counts once it has stayed so, also over restarts; one set back at once."""

import random

import pytest

from kafkalite.base.clock import Ahead, ExpiryTime, StoredTime
from tests.kit.fakes.clock import FakeClock

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
HOLD_MS = 3_600_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time_ms=1_000_000_000_000)


def test_it_is_the_wall_clock_while_nothing_jumps(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    for seconds in (0.0, 1.0, HOUR_S, 1000 * HOUR_S):
        clock.advance(seconds)
        assert expiry.time_ms() == clock.time_ms()
    clock.jump(59)
    assert expiry.time_ms() == clock.time_ms(), "a clock that is put right by less than a minute is followed"


@pytest.mark.parametrize("jump_s", [HOUR_S, 10 * 365 * 24 * HOUR_S])
def test_a_jump_ahead_is_held_for_a_while_and_then_believed(clock: FakeClock, jump_s: float) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    before = expiry.time_ms()
    clock.jump(jump_s)
    assert expiry.time_ms() == before
    clock.advance(HOUR_S - 1)
    assert expiry.time_ms() == before + 3_599_000, "time goes on meanwhile"
    clock.advance(1)
    assert expiry.time_ms() == clock.time_ms() == before + round((jump_s + HOUR_S) * 1000)


def test_a_clock_set_right_in_time_leaves_no_trace(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    clock.jump(10 * HOUR_S)
    expiry.time_ms()
    clock.advance(60)
    clock.jump(-10 * HOUR_S)
    assert expiry.time_ms() == clock.time_ms()
    clock.advance(2 * HOUR_S)
    clock.jump(10 * HOUR_S)
    assert expiry.time_ms() == clock.time_ms() - 10 * 3_600_000, "the next jump is held again"


def test_a_clock_set_back_is_followed_at_once(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    clock.jump(-HOUR_S)
    assert expiry.time_ms() == clock.time_ms()
    clock.jump(HOUR_S)
    assert expiry.time_ms() == clock.time_ms() - 3_600_000, "from there the way back is a jump ahead"


def test_no_hold_follows_at_once(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, 0)
    clock.jump(HOUR_S)
    assert expiry.time_ms() == clock.time_ms()


def restarted(clock: FakeClock, before: ExpiryTime, *, down_s: float = 0, hold_ms: int = HOLD_MS) -> ExpiryTime:
    """Return the expiry time of the next process, after a stop and `down_s` seconds of downtime."""
    stored = before.to_store()
    clock.advance(down_s)
    expiry = ExpiryTime(clock, hold_ms)
    expiry.resume(stored)
    return expiry


def test_jump_that_changes_is_held_from_its_last_change_on(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    before = expiry.time_ms()
    for jump_s in (8 * DAY_S, DAY_S, -5 * DAY_S):
        clock.jump(jump_s)
        expiry.time_ms()
        clock.advance(HOUR_S - 1)
        expiry.time_ms()
    assert expiry.time_ms() == before + 3 * 3_599_000
    clock.advance(1)
    assert expiry.time_ms() == clock.time_ms()


@pytest.mark.parametrize("off_s", [8 * DAY_S, HOUR_S, 61])
def test_a_start_with_a_clock_ahead_continues_from_the_stored_time(clock: FakeClock, off_s: float) -> None:
    first = ExpiryTime(clock, HOLD_MS)
    before = first.time_ms()
    clock.jump(off_s)
    expiry = ExpiryTime(clock, HOLD_MS)
    expiry.resume(StoredTime(before))
    assert expiry.time_ms() == before
    assert expiry.ahead() == Ahead(round(off_s * 1000), HOLD_MS)
    clock.advance(HOUR_S)
    assert expiry.time_ms() == clock.time_ms()
    assert expiry.ahead() is None


@pytest.mark.parametrize("off_s", [-1, -HOUR_S, -8 * DAY_S])
def test_start_with_a_clock_that_is_behind_goes_by_the_clock(clock: FakeClock, off_s: float) -> None:
    stored = ExpiryTime(clock, HOLD_MS).to_store()
    clock.jump(off_s)
    expiry = ExpiryTime(clock, HOLD_MS)
    expiry.resume(stored)
    assert expiry.time_ms() == clock.time_ms()
    assert expiry.ahead() is None


def test_quick_restart_is_no_jump(clock: FakeClock) -> None:
    expiry = restarted(clock, ExpiryTime(clock, HOLD_MS), down_s=59)
    assert expiry.time_ms() == clock.time_ms()
    assert expiry.to_store() == StoredTime(clock.time_ms())


def test_hold_adds_up_over_restarts(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    before = expiry.time_ms()
    clock.jump(8 * DAY_S)
    for _ in range(6):
        assert expiry.time_ms() < before + HOLD_MS
        clock.advance(HOUR_S / 6)
        expiry = restarted(clock, expiry)
    assert expiry.time_ms() == clock.time_ms()


def test_downtime_within_a_hold_does_not_begin_it_again_and_is_held_itself(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    before = expiry.time_ms()
    clock.jump(8 * DAY_S)
    expiry.time_ms()
    clock.advance(HOUR_S / 2)
    expiry = restarted(clock, expiry, down_s=3 * DAY_S)
    clock.advance(HOUR_S / 2)
    assert expiry.time_ms() == before + round((8 * DAY_S + HOUR_S) * 1000) == clock.time_ms() - 3 * 86_400_000
    clock.advance(HOUR_S / 2)
    assert expiry.time_ms() == clock.time_ms(), "the downtime has been held since the start"


def test_broker_that_never_runs_for_the_hold_at_a_stretch_does_not_keep_things_forever(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    for _ in range(50):
        expiry.time_ms()
        clock.advance(HOUR_S / 4)
        expiry = restarted(clock, expiry, down_s=DAY_S)
        assert expiry.time_ms() <= clock.time_ms()
    assert clock.time_ms() - expiry.time_ms() < 10 * 86_400_000


def test_clock_that_is_ahead_by_less_after_a_restart_is_held_for_all_of_the_hold(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    clock.jump(8 * DAY_S)
    expiry.time_ms()
    clock.advance(HOUR_S - 1)
    clock.jump(-7 * DAY_S)
    expiry = restarted(clock, expiry)
    assert expiry.ahead() == Ahead(86_400_000, HOLD_MS)


def test_no_hold_follows_at_once_after_a_restart_too(clock: FakeClock) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    clock.jump(DAY_S)
    assert restarted(clock, expiry, down_s=DAY_S, hold_ms=0).time_ms() == clock.time_ms()


def test_a_jump_is_logged_once_when_seen_and_once_when_accepted(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    expiry = ExpiryTime(clock, HOLD_MS)
    clock.jump(8 * DAY_S)
    for _ in range(100):
        expiry.time_ms()
        clock.advance(HOUR_S / 50)
    seen, accepted = (record.getMessage() for record in caplog.records)
    assert "691200 s ahead" in seen
    assert "expiry time advances by 691200 s" in accepted


def test_expiry_never_runs_backwards_from_one_look_to_the_next_unless_the_wall_clock_does(clock: FakeClock) -> None:
    draw = random.Random(7)
    expiry = ExpiryTime(clock, HOLD_MS)
    last_ms = expiry.time_ms()
    for _ in range(2000):
        jump_s = draw.choice((0, 0, 0, 0, 30, HOUR_S, -HOUR_S, DAY_S))
        clock.jump(jump_s)
        clock.advance(draw.choice((1, 60, 600, 3000)))
        if draw.random() < 0.2:
            expiry = restarted(clock, expiry, down_s=draw.choice((0, 5, HOUR_S, DAY_S)))
        time_ms = expiry.time_ms()
        assert time_ms <= clock.time_ms()
        assert time_ms >= last_ms or jump_s < 0
        last_ms = time_ms
