"""Expiry time: a jump of the wall clock ahead counts only once it has lasted, one back at once."""

import pytest

from kafkalite.clock import ExpiryTime
from tests.kit.fakes.clock import FakeClock

HOUR_S = 3600.0
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
