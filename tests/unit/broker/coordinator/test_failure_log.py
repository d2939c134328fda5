"""A failure that lasts for hours is logged a few times only."""

import itertools

from kafkalite.broker.coordinator.failure_log import Trouble, Troubles
from tests.kit.fakes.clock import FakeClock


def test_a_day_of_failures_is_logged_ever_more_rarely_and_at_its_end():
    clock = FakeClock()
    troubles = Troubles(clock)
    told = []
    for second in range(24 * 3600):
        if (trouble := troubles.failed("a")) is not None:
            told.append(trouble)
            assert trouble == Trouble(second + 1, second)
        clock.advance(1)
    gaps = [later.seconds - earlier.seconds for earlier, later in itertools.pairwise(told)]
    assert gaps[:4] == [10, 20, 40, 80]
    assert set(gaps[9:]) == {3600}
    assert len(told) < 40
    assert troubles.failed("b") == Trouble(1, 0)
    assert troubles.over("a") == Trouble(24 * 3600, 24 * 3600)
    assert troubles.over("a") is None
    assert troubles.failed("a") == Trouble(1, 0)
