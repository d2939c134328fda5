"""Long-running counts: late reports give the same result as all at once, memory is bounded, and a saved
state restores.
"""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.audit import lasting
from kafkalite.audit.counts import FULL, PAGE_SIZE, Count
from kafkalite.audit.events import Increment, Reported
from kafkalite.audit.judge import Selection, judge_stage
from kafkalite.audit.lasting import LastingCount, LastingReported, Unclaimed
from kafkalite.audit.marks import Marks
from kafkalite.wire.record.columns import BytesColumn

SECOND = 1000
ALWAYS = Selection(frozenset({"t"}), 10**15)


def marks_of(run: int, sequences: list[int], timestamps: list[int] | None = None) -> Marks:
    times = [10 * one for one in sequences] if timestamps is None else timestamps
    return Marks(
        np.arange(len(sequences)),
        np.full(len(sequences), run, np.uint64),
        np.array(sequences, np.int64),
        np.array(times, np.int64),
        BytesColumn.from_items([b"s%d" % run] * len(sequences)),
    )


def increment_of(run: int, first: int, end: int) -> Increment:
    """Of messages whose time is ten times their number, in windows of a second."""
    counts: dict[int, int] = {}
    for one in range(first, end):
        start = 10 * one // SECOND * SECOND
        counts[start] = counts.get(start, 0) + 1
    return Increment(run, f"s{run}", "t", SECOND, first, end, 0, tuple(counts.items()))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("marks"), st.integers(1, 2), st.lists(st.integers(0, 400), min_size=1, max_size=60)),
        st.tuples(st.just("count"), st.integers(1, 2), st.integers(0, 3)),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=60)
@given(steps, st.booleans())
def test_counts_do_not_depend_on_the_order_of_reports(
    rows: list[tuple[str, int, object]],
    saves: bool,
) -> None:
    reported = LastingReported()
    count = LastingCount(reported, 0)
    count.look_ahead(10**9)
    plain, everything = Reported(), []
    for kind, run, what in rows:
        if kind == "marks":
            assert isinstance(what, list)
            count.add_marks("t", marks_of(run, what), len(what))
            everything.append((run, what))
        else:
            assert isinstance(what, int)
            one = increment_of(run, 100 * what, 100 * what + 100)
            plain.add(one)
            if reported.take(one, 0, 10**12):
                count.claim([one])
        if saves:
            meta, arrays = count.saved()
            again = LastingReported()
            again.restore(json.loads(json.dumps(reported.saved())))
            reported, count = again, LastingCount(again, 0)
            count.restore(json.loads(json.dumps(meta)), arrays)
            count.look_ahead(10**9)
    count.settle(10**15)
    wanted = Count(plain)
    for run, numbers in everything:
        wanted.add_marks("t", marks_of(run, numbers), len(numbers))
    if {run for _, run in plain.expected} >= {run for run, _ in everything}:  # others have windows of a minute
        assert judge_stage(reported, count, ALWAYS).groups == judge_stage(plain, wanted, ALWAYS).groups
    assert count.record_count == wanted.record_count


@given(st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 60))
def test_what_is_claimed_is_claimed_once(sequences: set[int], first: int, end: int) -> None:
    unclaimed = Unclaimed()
    rows = sorted(sequences)
    windows = np.array([one // 20 for one in rows], np.int64)
    unclaimed.add(np.array(rows, np.int64), windows)
    found = unclaimed.claim(first, end)
    inside = [one for one in rows if first <= one < end]
    assert found == {window: sum(one // 20 == window for one in inside) for window in {one // 20 for one in inside}}
    assert unclaimed.claim(first, end) == {}
    assert sum(unclaimed.claim(0, 100).values()) == len(rows) - len(inside)


def test_a_page_whose_messages_are_all_there_takes_no_memory_of_its_own() -> None:
    reported = LastingReported()
    assert reported.take(Increment(1, "s1", "t", SECOND, 0, 3 * PAGE_SIZE, 0, ((0, 3 * PAGE_SIZE),)), 0, 10**9)
    count = LastingCount(reported, 0)
    count.look_ahead(10**9)
    sequences = list(range(3 * PAGE_SIZE))
    random.Random(1).shuffle(sequences)
    for at in range(0, len(sequences), 50_000):
        part = sequences[at : at + 50_000]
        count.add_marks("t", marks_of(1, part, [0] * len(part)), len(part))
    assert all(page is FULL for page in count._pages.values())
    count.add_marks("t", marks_of(1, [70_000], [0]), 1)
    ((_, row),) = judge_stage(reported, count, ALWAYS).groups.items()
    assert row == [3 * PAGE_SIZE, 0, 1, 0]
    assert count.duplicated_sequences("t", 1) == {70_000: 1}


def test_what_is_older_than_the_horizon_is_forgotten_and_late() -> None:
    reported = LastingReported()
    count = LastingCount(reported, 0)
    count.look_ahead(10**9)
    for first in range(0, 1000, 100):
        one = increment_of(1, first, first + 100)
        assert reported.take(one, 0, 10**9)
        count.claim([one])
    count.add_marks("t", marks_of(1, list(range(900))), 900)
    reported.forget(5 * SECOND)
    count.forget(5 * SECOND)
    assert sorted(start for start in reported.expected["t", 1]) == [5000, 6000, 7000, 8000, 9000]
    count.add_marks("t", marks_of(1, [3, 950]), 2)
    assert (count.late, not reported.take(increment_of(1, 0, 100), 5 * SECOND, 10**9)) == (1, True)
    missing = {start: row[1] for (_, start, _, _), row in judge_stage(reported, count, ALWAYS).groups.items()}
    assert missing == {5000: 0, 6000: 0, 7000: 0, 8000: 0, 9000: 99}
    reported.forget(10**9)
    count.forget(10**9)
    assert (reported.expected, reported.saved()["spans"], count.windows, count._pages) == ({}, [], {}, {})


def test_programs_that_are_broken_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "PAGES_MAX", 10)
    monkeypatch.setattr(lasting, "HELD_MAX", 50)
    reported = LastingReported()
    count = LastingCount(reported, 0)
    count.look_ahead(0)
    for run in range(200):
        count.add_marks("t", marks_of(run, [0]), 1)
    assert len(count._held) <= 51
    count.settle(10**12)
    assert len(count._pages) == 10
    assert count.untracked == 190
    count.add_marks("t", marks_of(1, [5], [10**15]), 1)
    assert count.untracked == 191


def test_ranges_that_wait_for_an_increment_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "UNCLAIMED_MAX", 10)
    reported = LastingReported()
    count = LastingCount(reported, 0)
    count.look_ahead(10**9)
    assert reported.take(increment_of(1, 0, 1), 0, 10**12)
    for number in range(2, 100, 2):
        count.add_marks("t", marks_of(1, [number]), 1)
    later = increment_of(1, 1, 100)
    assert reported.take(later, 0, 10**12)
    count.claim([later])
    assert sum(seen.distinct for seen in count.windows.values()) == 10
    assert sum(seen.unreported for seen in count.windows.values()) == 39


def test_the_marks_of_a_dead_producer_are_unreported_once_their_window_is_closed() -> None:
    reported = LastingReported()
    count = LastingCount(reported, 0)
    count.look_ahead(10**9)
    count.add_marks("t", marks_of(7, [0, 1, 2]), 3)
    assert count.windows == {}
    count.settle(59_000)
    assert count.windows == {}
    count.settle(61_000)
    assert [(window.start_ms, seen.unreported) for window, seen in count.windows.items()] == [(0, 3)]
