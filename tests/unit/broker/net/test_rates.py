"""Connection rate limits: who is throttled and for how long. The test sets the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.net import rates
from kafkalite.broker.net.rates import UNBOUNDED, ConnectionRates

if TYPE_CHECKING:
    import pytest


def counted() -> ConnectionRates:
    return ConnectionRates(window_s=1.0, samples=11)


def test_without_rates_no_connection_is_throttled() -> None:
    one = counted()
    one.set_rates(UNBOUNDED, {"A": UNBOUNDED})
    assert {one.accepted("A", 1.0) for _ in range(1000)} == {0.0}
    assert {one.from_address("127.0.0.1", 1.0) for _ in range(1000)} == {0.0}


def test_a_samples_worth_comes_at_once_and_then_one_at_a_time() -> None:
    one = counted()
    one.set_rates(4, {})
    assert [one.accepted("A", 10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.25, 0.5]
    assert one.accepted("A", 10.5) == 0.25


def test_a_wait_is_no_longer_than_a_sample() -> None:
    one = counted()
    one.set_rates(1, {})
    assert [one.accepted("A", 10.0) for _ in range(5)] == [1.0] * 5


def test_a_listener_waits_for_its_own_rate_and_for_the_brokers() -> None:
    one = counted()
    one.set_rates(10, {"A": 2, "B": UNBOUNDED})
    assert [one.accepted("A", 1.0) for _ in range(2)] == [0.0, 0.5]
    assert [one.accepted("B", 1.0) for _ in range(8)] == [0.0] * 7 + [0.1]


def test_a_changed_rate_counts_at_once() -> None:
    one = counted()
    one.set_rates(1, {})
    one.accepted("A", 1.0)
    one.set_rates(100, {})
    assert one.accepted("A", 1.0) == 0.0
    one.set_rates(UNBOUNDED, {})
    assert {one.accepted("A", 1.0) for _ in range(1000)} == {0.0}


def test_an_address_has_its_own_rate_before_the_default() -> None:
    one = counted()
    one.set_address_rates({"::1": 2.0}, 4.0)
    assert [one.from_address("::1", 1.0) for _ in range(4)] == [0.0, 0.0, 0.5, 0.5], (
        "those that are refused do not count"
    )
    assert [one.from_address("10.0.0.1", 1.0) for _ in range(5)] == [0.0] * 4 + [0.25]
    assert one.from_address("10.0.0.2", 1.0) == 0.0, "each address has the default for itself"
    one.set_address_rates({}, None)
    assert {one.from_address("::1", 1.0) for _ in range(100)} == {0.0}


def test_endless_addresses_take_no_endless_memory_and_get_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "ADDRESSES_MAX", 100)
    one = counted()
    one.set_address_rates({}, 1.0)
    assert {one.from_address(f"a{i}", 1.0) for i in range(100)} == {0.0}
    assert [one.from_address(f"b{i}", 1.0) for i in range(3)] == [0.0, 1.0, 1.0]
    assert one.from_address("late", 100.0) == 0.0
