"""What consumers took: sets of offsets against Python's, reports that say the same twice, and metadata of commits."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.audit.taken import METADATA_SIZE_MAX, Spans, Taken, TakenTally, metadata_of, spans_of_metadata
from kafkalite.model import TopicPartition

KEY = TopicPartition("t", 0)
ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda row: (row[0], row[0] + row[1])))


def members(spans: Spans) -> set[int]:
    return {number for first, end in spans.all() for number in range(first, end)}


@given(ranges, ranges, st.integers(0, 70))
def test_spans_are_a_set(first: list[tuple[int, int]], more: list[tuple[int, int]], cut: int) -> None:
    spans = Spans(first)
    for row in more:
        spans.add(*row)
    plain = {number for row in [*first, *more] for number in range(*row)}
    assert members(spans) == plain
    assert all(end < start for (_, end), (start, _) in zip(spans.all(), spans.all()[1:], strict=False))
    assert spans.has(np.arange(80)).tolist() == [number in plain for number in range(80)]
    assert {number for row in spans.below(cut) for number in range(*row)} == {one for one in plain if one < cut}
    spans.drop_below(cut)
    assert members(spans) == {one for one in plain if one >= cut}


@given(st.sets(st.integers(0, 80)))
def test_offsets_that_were_handed_out_become_spans(offsets: set[int]) -> None:
    spans = Spans()
    spans.add_offsets(np.array(sorted(offsets), np.int64))
    assert members(spans) == offsets


@given(ranges)
def test_the_metadata_of_a_commit_says_what_it_covers(rows: list[tuple[int, int]]) -> None:
    merged = Spans(rows).all()
    assert spans_of_metadata(metadata_of(merged)) == merged


@pytest.mark.parametrize(
    "text", [None, "", "mine", "kafkalite.audit/1 ", "kafkalite.audit/1 1-2", "kafkalite.audit/1 1+x"]
)
def test_metadata_of_somebody_else_says_nothing(text: str | None) -> None:
    assert spans_of_metadata(text) == []


def test_metadata_that_has_no_room_is_cut_between_spans() -> None:
    rows = [(10 * at, 10 * at + 5) for at in range(3000)]
    text = metadata_of(rows)
    assert len(text) <= METADATA_SIZE_MAX
    found = spans_of_metadata(text)
    assert found == rows[: len(found)]
    assert len(found) > 500


def taken_by(*tallies: TakenTally) -> list[tuple[int, int]]:
    taken = Taken(["billing"])
    for tally in tallies:
        for record in tally.reports():
            assert taken.add_message(record.value, "c")
    spans = taken.of("billing", "c").get(KEY)
    return [] if spans is None else spans.all()


def test_what_is_not_committed_is_not_reported() -> None:
    tally = TakenTally("billing")
    tally.took(KEY, np.arange(100, 200))
    assert taken_by(tally) == []
    tally.committed(KEY, 150)
    assert taken_by(tally) == [(100, 150)]
    tally.committed(KEY, 200)
    assert taken_by(tally) == [(150, 200)]


def test_a_second_reading_after_a_crash_is_the_same_set() -> None:
    one, two = TakenTally("billing"), TakenTally("billing")
    one.took(KEY, np.arange(0, 100))
    one.committed(KEY, 60)  # and dies, with 40 more that it never reports
    two.begin(KEY, one.metadata(KEY, 60))
    two.took(KEY, np.arange(60, 120))
    two.took(KEY, np.arange(30, 70))  # it went back
    two.committed(KEY, 120)
    assert taken_by(one, two) == [(0, 120)]


def test_who_follows_a_consumer_that_died_between_commit_and_report_makes_the_report() -> None:
    one, two = TakenTally("billing"), TakenTally("billing")
    one.took(KEY, np.array([0, 1, 2, 5, 6]))  # 3 and 4 never came
    carried = one.metadata(KEY, 7)
    two.begin(KEY, carried)
    assert taken_by(two) == [(0, 3), (5, 7)]


def test_reports_that_could_not_be_sent_are_sent_later() -> None:
    tally = TakenTally("billing")
    tally.took(KEY, np.arange(3))
    tally.committed(KEY, 3)
    records = tally.reports()
    assert tally.reports() == []
    tally.put_back(records)
    assert taken_by(tally) == [(0, 3)]


@pytest.mark.parametrize("stage", ["", "live", "offline", "a=b"])
def test_a_stage_has_a_unique_name(stage: str) -> None:
    with pytest.raises(ValueError, match="invalid name of a consumer stage"):
        TakenTally(stage)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"{}",
        b'{"taken"',
        json.dumps({"version": 2, "taken": "billing", "topic": "t", "partition": 0, "ranges": []}).encode(),
        json.dumps({"version": 1, "taken": "billing", "topic": "t", "partition": 0, "ranges": [[1]]}).encode(),
        json.dumps({"version": 1, "taken": "billing", "topic": "t", "partition": -1, "ranges": []}).encode(),
    ],
)
def test_what_is_no_report_is_none(value: bytes | None) -> None:
    assert not Taken(["billing"]).add_message(value, "c")


def test_reports_of_other_stages_and_clusters_stand_apart() -> None:
    mine, other = TakenTally("billing", "far"), TakenTally("other")
    for tally in (mine, other):
        tally.took(KEY, np.arange(3))
        tally.committed(KEY, 3)
    taken = Taken(["billing"])
    for tally in (mine, other):
        (record,) = tally.reports()
        assert taken.add_message(record.value, "near")
    assert taken.of("billing", "near") == {}
    assert taken.of("billing", "far")[KEY].all() == [(0, 3)]
    assert taken.of("other", "near") == {}
