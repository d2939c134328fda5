"""Observations of a cluster over time: rates, lags, ages, problems, and the state dropped with a recreated topic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.admin.groups import GroupListing, GroupProgress
from kafkalite.client.cluster import PartitionDescription, TopicDescription
from kafkalite.console.observations import Look, Observer, Sample
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from kafkalite.console.rings import Value

START = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)


def topic(name: str = "orders", *, number: int = 1, leader: int = 1) -> TopicDescription:
    part = PartitionDescription(0, leader, 0, (1, 2), (1,), 0)
    return TopicDescription(name, bytes([number]) * 16, False, (part,))


def look(after_s: float, end: int, committed: int | None, state: str = "Stable", number: int = 1) -> Look:
    offsets = None if committed is None else {ORDERS: committed}
    group = GroupProgress(GroupListing("billing", "consumer", state, "classic"), offsets)
    return Look(START + int(after_s * 1000), {"orders": topic(number=number)}, {ORDERS: end}, (group,), {ORDERS: 77})


def watched(*looks: Look) -> tuple[Sample, dict[tuple[str, ...], Value]]:
    observer = Observer()
    for each in looks:
        sample, values = observer.observe(each)
    return sample, {value.key: value for value in values}


def test_rates_lags_and_ages_come_from_the_differences() -> None:
    looks = [look(5 * n, 1000 + 100 * n, 1000 + 50 * n) for n in range(25)]
    sample, values = watched(*looks)
    row = sample.topics["orders"]
    assert (row.rate, row.size, row.under_replicated, row.offline) == (20.0, 77, 1, 0)
    group = sample.groups["billing"]
    assert (group.lag, group.rate, group.trend, group.trouble) == (1200, 10.0, 10.0, "rising")
    # What was committed last, 2200, was the end 60 s ago.
    assert (group.age_ms, group.exact, group.zero_s) == (60_000, True, None)
    assert (sample.rate_in, sample.rate_out) == (20.0, 10.0)
    uuid = ("01" * 16,)
    assert values["in", "orders", *uuid].value == 20.0
    assert values["lag", "billing", "orders", *uuid].value == 1200
    assert values["lag-seconds", "billing", "orders", *uuid].value == 60
    assert values["out", "billing", "orders", *uuid].value == 10.0
    assert (values["total-in",].value, values["total-out",].value) == (20.0, 10.0)


def test_a_group_that_catches_up_is_told_when() -> None:
    sample, _ = watched(*(look(5 * n, 10_000, 100 * n) for n in range(25)))
    group = sample.groups["billing"]
    assert (group.lag, group.trend, group.trouble) == (7600, -20.0, "")
    assert group.zero_s == pytest.approx(380)
    assert not group.exact


@pytest.mark.parametrize(
    ("state", "commits", "trouble"),
    [
        ("Stable", [100, 100], "stopped"),
        ("Stable", [100, 1000], ""),
        ("Empty", [100, 100], "no consumers"),
        ("Empty", [100, 500], ""),
        ("Empty", [1000, 1000], ""),
        ("PreparingRebalance", [100, 100], "rebalancing"),
        ("Stable", [None, None], ""),
    ],
)
def test_what_is_the_matter_with_a_group(state: str, commits: list[int | None], trouble: str) -> None:
    sample, _ = watched(*(look(70 * n, 1000, committed, state) for n, committed in enumerate(commits)))
    assert sample.groups["billing"].trouble == trouble


def test_nobody_is_called_stopped_before_a_minute_has_passed() -> None:
    sample, _ = watched(look(0, 1000, 10), look(5, 1000, 10))
    assert sample.groups["billing"].trouble == ""
    sample, _ = watched(look(0, 1000, 10), look(61, 1000, 10))
    assert sample.groups["billing"].trouble == "stopped"


def test_a_count_that_goes_back_is_a_gap() -> None:
    sample, values = watched(look(0, 1000, 900), look(5, 10, 5))
    assert (sample.topics["orders"].rate, sample.groups["billing"].rate) == (None, None)
    assert math.isnan(values["in", "orders", "01" * 16].value)


def test_a_recreated_topic_has_no_past_and_another_series() -> None:
    sample, values = watched(look(0, 1000, 900), look(65, 2000, 1900), look(70, 2500, 2400, number=2))
    assert sample.topics["orders"].rate is None
    assert sample.groups["billing"].rate is None
    assert ("in", "orders", "01" * 16) not in values
    assert ("lag", "billing", "orders", "02" * 16) in values
    assert ("in", "orders", "02" * 16) not in values  # one look makes no rate


def test_groups_that_have_gone_leave_nothing_behind() -> None:
    observer = Observer()
    for number in range(50):
        group = GroupProgress(GroupListing(f"short-{number}", "consumer", "Stable", "classic"), {ORDERS: 10})
        observer.observe(Look(START + number * 1000, {"orders": topic()}, {ORDERS: 20}, (group,), {ORDERS: 77}))
    assert set(observer._sums) == {("", "orders"), ("short-49", "orders")}


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 1000), st.floats(0, 1)), min_size=2, max_size=60))
def test_lags_and_rates_are_never_negative(steps: list[tuple[int, int, float]]) -> None:
    observer, now, end, committed = Observer(), 0.0, 0, 0
    for after, more, share in steps:
        now, end = now + after, end + more
        committed += int((end - committed) * share)
        sample, values = observer.observe(look(now, end, committed))
        group = sample.groups["billing"]
        assert group.lag == end - committed
        assert all(value.value >= 0 for value in values)
        assert group.age_ms is not None
        assert 0 <= group.age_ms <= now * 1000
        assert (group.age_ms == 0) == (group.lag == 0) or more == 0 or not group.exact or group.age_ms < after * 1000
