"""Meters: how long who has done too much has to wait, and who has which. Time is given by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.serve.quota import Meter, QuotaControl
from kafkalite.base.clock import SystemClock
from kafkalite.broker.quotas.mutations import Mutations
from kafkalite.errors import KafkaError
from tests.kit.fakes.clock import FakeClock

RATE = 100.0
BURST = 1000.0


def meter(start: float = RATE) -> Meter:
    return Meter(RATE, BURST, start)


def test_the_wait_is_what_is_over_by_the_rate() -> None:
    one = meter()
    one.charge(350.0, 50.0)
    assert one.owes_ms(50.0) == 2500
    assert one.owes_ms(52.4999) == 1
    assert one.owes_ms(52.5) == 0


def test_it_begins_with_what_is_done_first_however_long_ago_it_was_made() -> None:
    one = meter()
    assert one.owes_ms(1e6) == 0
    one.charge(101.0, 1e6)
    assert one.owes_ms(1e6) == 10


def test_after_a_rest_all_of_a_window_may_be_had_at_once_and_no_more() -> None:
    one = meter()
    one.charge(0.0, 1.0)
    one.charge(BURST, 1000.0)
    assert one.owes_ms(1000.0) == 0
    one.charge(1.0, 1000.0)
    assert one.owes_ms(1000.0) == 10


def test_time_that_goes_back_gives_nothing() -> None:
    one = meter(0.0)
    one.charge(100.0, 10.0)
    assert one.owes_ms(5.0) == 1000
    assert one.owes_ms(10.0) == 1000


def test_a_wait_is_never_more_than_fits_its_field() -> None:
    one = Meter(1e-9, 1.0, 0.0)
    one.charge(1e30, 1.0)
    assert one.owes_ms(1.0) == 2**31 - 1


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 500.0)), min_size=1, max_size=60))
def test_a_client_that_waits_its_throttle_time_never_exceeds_its_rate_and_one_window(
    steps: list[tuple[float, float]],
) -> None:
    one = meter()
    now = first = 1.0
    done = last = 0.0
    for pause, amount in steps:
        now += pause + one.owes_ms(now + pause) / 1000
        one.charge(amount, now)
        done, last = done + amount, amount
    assert done - last <= RATE + (now - first) * RATE + BURST * 1e-9


def control(limits: dict[tuple[str, str | None, str | None], float], *, window_s: float = 1.0) -> QuotaControl:
    """Of producers alone: (user, client id) exactly, else the user's, else the client id's."""

    def bounds(user: str, client_id: str) -> tuple[object, ...]:
        for owner in ((user, client_id), (user, None), (None, client_id)):
            limit = limits.get(("p", *owner), limits.get(("p", owner[0] and "*", owner[1] and "*")))
            if limit is not None:
                return (limit, ("p", *owner)), None, None, (1.0, ("m", None, None))
        return (None,) * 4

    return QuotaControl(bounds, window_s=window_s, samples=11, mutation_window_s=1.0, mutation_samples=11)


def test_a_quota_that_is_gone_counts_for_nobody_and_a_new_one_at_once() -> None:
    quotas = control({("p", "a", None): 5.0})
    assert quotas.quota_of("User:b", "x") is None
    assert quotas.quota_of("User:a", "x") is quotas.quota_of("User:a", "x")
    epoch = quotas.epoch
    quotas.change(lambda *_names: (None,) * 4)
    assert quotas.epoch > epoch
    assert quotas.quota_of("User:a", "x") is None


def test_what_was_owed_is_owed_under_the_new_limit() -> None:
    quotas = control({("p", "a", None): 100.0})
    quotas.quota_of("User:a", "x")
    [one] = [meter for owner, meter in quotas.meters.items() if owner[0] == "p"]
    one.charge(300.0, 10.0)
    assert one.owes_ms(10.0) == 2000
    quotas.change(lambda user, _client: ((50.0, ("p", user, None)), None, None, None))
    quotas.quota_of("User:a", "y")
    assert one.limit == 50.0
    assert one.owes_ms(10.0) == 4000


def test_endless_names_take_no_endless_memory_and_get_no_more() -> None:
    quotas = control({("p", None, "*"): 10.0}, window_s=3600.0)  # those at rest go once in it
    for i in range(66_000):
        quotas.quota_of("User:u", f"c{i}")
        if i % 11_000 == 0:
            for one in quotas.meters.values():
                one.charge(1e9, SystemClock().monotonic())
    for one in quotas.meters.values():
        one.charge(1e9, SystemClock().monotonic())
    for i in range(70_000):
        quotas.quota_of("User:u", f"d{i}")
    assert len(quotas.meters) <= 65_536 + 2
    shared = quotas.meters["p", None, "\0"]
    shared.charge(1e9, SystemClock().monotonic())
    assert shared.owes_ms(SystemClock().monotonic()) > 0


def test_those_at_rest_make_room_and_are_asked_for_anew() -> None:
    quotas = control({("p", None, "*"): 10.0})
    held = quotas.quota_of("User:u", "held")
    for i in range(66_000):
        quotas.quota_of("User:u", f"c{i}")
    assert len(quotas.meters) < 1000
    assert quotas.quota_of("User:u", "held") is not held


def test_client_ids_that_begin_alike_at_length_share_what_they_have() -> None:
    quotas = control({("p", None, "*"): 10.0})
    for end in "ab":
        quotas.quota_of("User:u", "x" * 30_000 + end)
    assert [owner for owner in quotas.meters if owner[0] == "p"] == [("p", None, "x" * 256)]


class TestMutations:
    """Partitions, of which 0.5 a second are allowed and 5 at once."""

    def mutations(self, one: Meter | None, clock: FakeClock, *, strict: bool) -> Mutations:
        return Mutations(one, clock, strict=strict)

    def test_strictly_nothing_is_done_while_something_is_owed(self) -> None:
        clock, one = FakeClock(), Meter(0.5, 5.0, 5.0)
        request = self.mutations(one, clock, strict=True)
        request.record(7)
        with pytest.raises(KafkaError):
            request.record(1)
        assert request.throttle_ms == 4000
        clock.advance(4.0)
        again = self.mutations(one, clock, strict=True)
        again.record(1)
        assert again.throttle_ms == 0

    def test_otherwise_it_is_done_and_waited_for(self) -> None:
        clock, one = FakeClock(), Meter(0.5, 5.0, 5.0)
        request = self.mutations(one, clock, strict=False)
        request.record(5)
        assert request.throttle_ms == 0
        request.record(2)
        request.record(1)
        assert request.throttle_ms == 6000
        assert (one.throttled_count, one.done) == (1, 8.0)

    def test_without_a_quota_nothing_counts(self) -> None:
        request = self.mutations(None, FakeClock(), strict=True)
        request.record(10**9)
        assert request.throttle_ms == 0
