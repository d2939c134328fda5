"""Ring buffers of numbers: slots, gaps, the series kept, and the limits of a stored file."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.ages import POINTS_MAX, SeenEnds
from kafkalite.console.rings import ABSENT_MS, DAY, FORTNIGHT, HOUR, SPANS, Ring, Rings, Series, Value

START = 1_700_000_100_000 // FORTNIGHT.step_ms * FORTNIGHT.step_ms
KEY = ("lag", "billing", "orders", "id-1")


def known(values: list[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(-1e9, 1e9)), max_size=60), st.integers(0, 90))
def test_a_ring_is_a_table_of_its_last_slots(writes: list[tuple[int, float]], last: int) -> None:
    count = 16
    ring, table, head = Ring(count), dict[int, float](), -1
    for slot, value in writes:
        if head >= 0 and slot <= head - count:
            table.clear()
            head = slot
        head = max(head, slot)
        table[slot] = value
        table = {each: value for each, value in table.items() if each > head - count}
    for slot, value in writes:
        ring.put(slot, value)
    seen = ring.window(last, count)
    for slot, value in zip(range(last - count + 1, last + 1), seen, strict=True):
        expected = table.get(slot, math.nan)
        assert value == expected or (math.isnan(value) and math.isnan(expected))


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1e6)), min_size=1, max_size=200))
def test_coarse_slots_hold_peaks_of_lags_and_means_of_the_rest(writes: list[tuple[int, float]]) -> None:
    lag, rate = Series("lag"), Series("in")
    table: dict[int, float] = {}
    for slot, value in sorted(writes, key=lambda pair: pair[0]):
        table[slot] = value
        for series in (lag, rate):
            series.add(START + slot * HOUR.step_ms, value)
    minutes: dict[int, list[float]] = {}
    for slot, value in table.items():
        minutes.setdefault(slot // 12, []).append(value)
    now = START + max(table) * HOUR.step_ms
    assert known(lag.window(DAY, now)) == [max(values) for _, values in sorted(minutes.items())]
    means = [math.fsum(values) / len(values) for _, values in sorted(minutes.items())]
    assert known(rate.window(DAY, now)) == pytest.approx(means)
    assert max(known(lag.window(FORTNIGHT, now))) == max(table.values())


def test_time_in_which_nothing_was_seen_is_a_gap_and_not_what_was_there_a_round_before() -> None:
    series = Series("in")
    for slot in range(HOUR.slots):
        series.add(START + slot * HOUR.step_ms, 1.0)
    later = START + (HOUR.slots + 300) * HOUR.step_ms
    series.add(later, 2.0)
    window = series.window(HOUR, later)
    assert len(window) == HOUR.slots
    assert (known(window[:-1]), window[-1]) == ([1.0] * (HOUR.slots - 301), 2.0)
    assert all(math.isnan(value) for value in window[-301:-1])


def test_a_series_takes_28_kilobytes() -> None:
    assert sum(len(ring.values) * ring.values.itemsize for ring in Series("lag").rings) == 28_032
    assert [span.length_ms for span in SPANS] == [3_600_000, 86_400_000, 14 * 86_400_000]


def test_of_too_many_series_the_busiest_are_kept_and_the_rest_is_counted() -> None:
    rings = Rings(series_max=3)
    rings.add(START, [Value(("in", f"quiet-{n}"), 0.0, 0.0) for n in range(5)])
    assert (len(rings), rings.left_out) == (3, 2)
    rings.add(START + 5000, [Value(("in", "busy"), 9.0, 100.0), Value(("in", "quiet-0"), 0.0, 0.0)])
    assert rings.get("in", "busy") is not None
    assert (len(rings), rings.left_out) == (3, 0)
    rings.add(START + 10_000, [Value(("in", "busy"), 9.0, 100.0), Value(("in", "no-busier"), 9.0, 0.0)])
    assert (rings.get("in", "no-busier"), rings.left_out) == (None, 1)


def test_series_of_what_is_gone_for_long_are_forgotten_and_the_others_stay() -> None:
    rings = Rings()
    gone, idle, here = ("lag", "gone", "t", "id"), ("lag-seconds", "idle", "t", "id"), ("lag", "idle", "t", "id")
    rings.add(START, [Value(key, 1.0, 1.0) for key in (gone, idle, here)])
    last = START + ABSENT_MS
    for now in range(START + 5000, last + 1, 5000):
        rings.add(now, [Value(here, 1.0, 1.0)])
    assert len(rings) == 3
    rings.add(last + 5000, [Value(here, 1.0, 1.0)])
    assert rings.get(*gone) is None
    assert rings.get(*idle) is not None, "another kind of the same group is in every sample"
    assert rings.get(*here) is not None


def test_what_is_saved_comes_back_for_the_same_cluster_alone() -> None:
    rings = Rings()
    for slot in range(50):
        rings.add(START + slot * 5000, [Value(KEY, slot, 1.0), Value(("in", "orders", "é"), slot / 3, 1.0)])
    raw = rings.dump("cluster-1")
    again = Rings()
    assert again.load(raw, "cluster-1")
    now = START + 49 * 5000
    for key in (KEY, ("in", "orders", "é")):
        before, after = rings.get(*key), again.get(*key)
        assert before is not None
        assert after is not None
        for span in SPANS:
            assert known(after.window(span, now)) == known(before.window(span, now))
    assert again.dump("cluster-1") == raw
    other = Rings()
    assert (other.load(raw, "cluster-2"), len(other)) == (False, 0)


@given(st.data())
def test_a_damaged_file_is_refused_and_changes_nothing(data: st.DataObject) -> None:
    rings = Rings()
    rings.add(START, [Value(KEY, 1.0, 1.0)])
    raw = bytearray(rings.dump("c"))
    place = data.draw(st.integers(0, len(raw) - 1))
    damaged = (
        bytes(raw[:place])
        if data.draw(st.booleans())
        else bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    )
    with pytest.raises(ValueError, match=r"\w"):
        rings.load(damaged, "c")
    assert len(rings) == 1


@given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 500)), min_size=2, max_size=600), st.data())
def test_an_age_lies_between_the_samples_around_its_offset(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    seen, now, end = SeenEnds(), START, 1000
    points: list[tuple[int, int]] = []
    for after, more in steps:
        now, end = now + after, end + more
        seen.see(now, end)
        points.append((now, end))
    committed = data.draw(st.integers(900, end + 5))
    age = seen.age(committed, now)
    assert age is not None
    if committed >= end:
        assert age == (0.0, True)
    elif committed < points[0][1]:
        assert age == (now - points[0][0], False)
    else:
        # The record was written after the last sample that ends at or before it, and by the first that ends after it.
        upper = now - max(stamp for stamp, at in points if at <= committed)
        lower = now - min(stamp for stamp, at in points if at > committed)
        if len(points) <= POINTS_MAX:
            assert lower - 1 <= age.ms <= upper + 1
        assert 0 <= age.ms <= now - points[0][0] + 1


def test_an_offset_that_goes_back_begins_anew_and_a_clock_that_does_is_not_followed() -> None:
    seen = SeenEnds()
    assert seen.age(0, START) is None
    seen.see(START, 100)
    seen.see(START - 1, 200)
    assert seen.age(100, START) == (0.0, True)
    seen.see(START + 5000, 10)
    assert seen.age(5, START + 6000) == (1000, False)
