"""What filters say about ranges, and that they never cut off a row that passes."""

import datetime as dt
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.load.selection import INT64_MAX
from kafkalite.model import TopicPartition
from kafkalite.spark.source.pushdown import EPOCH, Narrowing, narrowed

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Comparison(NamedTuple):
    attribute: tuple[str, ...]
    value: Any


def made(kind: str, column: str, value: object) -> Any:
    """A filter as PySpark has it: known by the name of its class."""
    return type(kind, (Comparison,), {})((column,), value)


class Not(NamedTuple):
    child: Any


def time(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("EqualTo", "topic", "a", Narrowing(topics=frozenset("a"))),
        ("EqualNullSafe", "partition", 3, Narrowing(partitions=frozenset([3]))),
        ("In", "partition", (1, None, 2), Narrowing(partitions=frozenset([1, 2]))),
        ("EqualTo", "offset", 5, Narrowing(offset_from=5, offset_end=6)),
        ("GreaterThan", "offset", 5, Narrowing(offset_from=6)),
        ("GreaterThanOrEqual", "offset", -5, Narrowing()),
        ("LessThan", "offset", 5, Narrowing(offset_end=5)),
        ("LessThanOrEqual", "offset", 5, Narrowing(offset_end=6)),
        ("In", "offset", (9, 4), Narrowing(offset_from=4, offset_end=10)),
        ("In", "offset", (None,), Narrowing(offset_from=INT64_MAX)),
        ("EqualTo", "timestamp", time(7000), Narrowing(time_from_ms=7)),
        ("GreaterThan", "timestamp", time(7000), Narrowing(time_from_ms=8)),
        ("GreaterThanOrEqual", "timestamp", time(7001), Narrowing(time_from_ms=8)),
        ("GreaterThan", "timestamp", time(7999), Narrowing(time_from_ms=8)),
        ("GreaterThan", "timestamp", time(-7000), Narrowing()),
        ("LessThan", "timestamp", time(7000), Narrowing()),
        ("GreaterThan", "timestamp", dt.datetime(2026, 1, 1), Narrowing()),  # noqa: DTZ001  # what the test is about
        ("EqualTo", "offset", None, Narrowing()),
        ("EqualTo", "offset", True, Narrowing()),
        ("EqualTo", "value", b"x", Narrowing()),
        ("GreaterThan", "partition", 1, Narrowing()),
        ("IsNotNull", "offset", None, Narrowing()),
    ],
)
def test_one_filter(kind: str, column: str, value: object, expected: Narrowing) -> None:
    assert narrowed([made(kind, column, value)]) == expected


def test_filters_are_joined_by_and() -> None:
    filters = [
        made("In", "topic", ("a", "b")),
        made("EqualTo", "topic", "b"),
        made("GreaterThan", "offset", 3),
        made("GreaterThan", "offset", 1),
        made("LessThan", "offset", 9),
        made("LessThan", "offset", 8),
        Not(made("EqualTo", "offset", 4)),
        made("EqualTo", "partition", 1),
        made("EqualTo", "partition", 2),
    ]
    found = narrowed(filters)
    assert found == Narrowing(frozenset("b"), frozenset(), 4, 8)
    assert not found.wants(B0)


def test_apply_asks_only_for_what_is_left() -> None:
    asked: list[dict[TopicPartition, int]] = []

    def look_up(stamps: Any) -> dict[TopicPartition, int]:
        asked.append(dict(stamps))
        return {key: 7 if key == A0 else -1 for key in stamps}

    narrowing = Narrowing(topics=frozenset("a"), offset_end=20, time_from_ms=100)
    starts, ends = narrowing.apply({A0: 2, A1: 3, B0: 4}, {A0: 50, A1: 10, B0: 9}, look_up)
    assert asked == [{A0: 100, A1: 100}]
    assert (starts, ends) == ({A0: 7, A1: 10}, {A0: 20, A1: 10})
    assert Narrowing().apply({A0: 1}, {A0: 2}, look_up) == ({A0: 1}, {A0: 2})
    assert len(asked) == 1, "without a time nobody is asked"


TESTS = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
}
conditions = st.lists(
    st.tuples(
        st.sampled_from(sorted(TESTS)), st.sampled_from(["partition", "offset", "timestamp"]), st.integers(-3, 9)
    ),
    max_size=4,
)


@given(conditions, st.lists(st.integers(-2, 9), max_size=12))
def test_no_row_that_passes_is_cut_off(wanted: list[tuple[str, str, int]], stamps: list[int]) -> None:
    """Against a log of one record an offset, whose times (in ms) come in any order; compared at half a ms."""
    filters = [
        made(kind, column, time(value * 500) if column == "timestamp" else value) for kind, column, value in wanted
    ]

    def passes(offset: int) -> bool:
        row = {"partition": 0, "offset": offset, "timestamp": 2 * stamps[offset]}
        return all(TESTS[kind](row[column], value) for kind, column, value in wanted)

    def look_up(asked: Any) -> dict[TopicPartition, int]:
        return {
            key: next((offset for offset, stamp in enumerate(stamps) if stamp >= at), -1) for key, at in asked.items()
        }

    starts, ends = narrowed(filters).apply({A0: 0}, {A0: len(stamps)}, look_up)
    read = range(starts[A0], ends[A0]) if A0 in starts else range(0)
    assert {offset for offset in range(len(stamps)) if passes(offset)} <= set(read)
