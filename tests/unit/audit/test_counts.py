"""What producers count, what stages have, and the comparison: against plain dictionaries, and at each edge."""

import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.audit import tally as tally_module
from kafkalite.audit.counts import PAGE_SIZE, RANGES_MAX, Count, SeenCounts, Window
from kafkalite.audit.events import Increment, Reported, increment_of
from kafkalite.audit.judge import Difference, Selection, Verdict, judge
from kafkalite.audit.marks import HEADER, mark
from kafkalite.audit.tally import SentTally
from kafkalite.wire.record.columns import HeaderColumns, Record, RecordColumns

MINUTE = 60_000
ALWAYS = 10**15


class Sent(NamedTuple):
    run: int
    sequence: int
    timestamp: int


def headers_of(messages: Sequence[Sent]) -> HeaderColumns:
    return HeaderColumns.from_items(
        ((HEADER, mark(one.run, one.sequence, one.timestamp, b"s%d" % one.run)),) for one in messages
    )


def reported_of(messages: Sequence[Sent], topic: str = "t", *, length: int = MINUTE) -> Reported:
    """Everything of each run in one increment."""
    reported = Reported()
    for run in {one.run for one in messages}:
        own = [one for one in messages if one.run == run]
        windows = Counter(one.timestamp // length * length for one in own)
        end = max(one.sequence for one in own) + 1
        reported.add(Increment(run, f"s{run}", topic, length, 0, end, 0, tuple(windows.items())))
    return reported


def verdict_of(
    reported: Reported, stage: Sequence[Sent], *, closed_ms: int = ALWAYS, topic: str = "t", chunk: int = 1000
) -> Verdict:
    count = Count(reported)
    for at in range(0, len(stage), chunk):
        part = stage[at : at + chunk]
        count.add(topic, headers_of(part), len(part))
    return judge(reported, {"stage": count}, Selection(frozenset({topic}), closed_ms))


def test_a_loss_of_seven_and_three_that_came_twice_are_found_in_one_window_and_nothing_else() -> None:
    sent = [Sent(run, number, 1000 * number) for run in (1, 2) for number in range(600)]
    lost = {(1, number) for number in range(100, 107)}
    stage = [one for one in sent if one[:2] not in lost] + [Sent(1, number, 1000 * number) for number in (70, 90, 110)]
    verdict = verdict_of(reported_of(sent), stage)
    assert verdict.differences == [Difference("stage", "t", MINUTE, MINUTE, "s1", 60, 7, 3, 0)]
    assert (verdict.expected, verdict.window_count, verdict.complete) == (1200, 10, False)


def test_as_many_lost_as_doubled_do_not_cancel_out() -> None:
    sent = [Sent(1, number, 5) for number in range(10)]
    stage = [*sent[:5], *sent[:5]]
    assert verdict_of(reported_of(sent), stage).differences == [Difference("stage", "t", 0, MINUTE, "s1", 10, 5, 5, 0)]


sequences = st.integers(0, 40) | st.integers(PAGE_SIZE - 20, PAGE_SIZE + 20)


@settings(deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(1, 3), sequences), st.integers(-200, 200), max_size=30),
    st.lists(st.integers(0, 3), min_size=30, max_size=30),
    st.sets(st.integers(0, 29)),
    st.integers(1, 17),
    st.randoms(use_true_random=False),
)
def test_any_loss_and_any_doubling_is_counted_as_a_dictionary_counts_it(
    numbered: dict[tuple[int, int], int], copies: list[int], silent: set[int], chunk: int, order: random.Random
) -> None:
    length = 50
    sent = [Sent(run, sequence, timestamp) for (run, sequence), timestamp in numbered.items()]
    reported = Reported()
    for index, one in enumerate(sent):
        if index not in silent:
            start = one.timestamp // length * length
            reported.add(
                Increment(one.run, f"s{one.run}", "t", length, one.sequence, one.sequence + 1, 0, ((start, 1),))
            )
    stage = [one for one, times in zip(sent, copies, strict=False) for _ in range(times)]
    order.shuffle(stage)
    count = Count(reported, window_ms=length)
    for at in range(0, len(stage), chunk):
        part = stage[at : at + chunk]
        count.add("t", headers_of(part), len(part))
    wanted: dict[tuple[int, str], list[int]] = {}
    for index, one in enumerate(sent):
        row = wanted.setdefault((one.timestamp // length * length, f"s{one.run}"), [0, 0, 0, 0])
        vouched = index not in silent
        row[0] += vouched
        row[1] += vouched and not copies[index]
        row[2] += max(copies[index] - 1, 0)
        row[3] += not vouched and copies[index] > 0
    verdict = judge(reported, {"stage": count}, Selection(frozenset({"t"}), ALWAYS))
    assert {(row.window_ms, row.server): list(row[5:]) for row in verdict.differences} == {
        key: row for key, row in wanted.items() if any(row[1:])
    }
    for run in (1, 2, 3):
        missing = {number for first, end in count.missing_ranges("t", run) for number in range(first, end)}
        assert missing == {
            one.sequence
            for index, one in enumerate(sent)
            if one.run == run and index not in silent and not copies[index]
        }
        assert count.duplicated_sequences("t", run) == dict(
            sorted(
                (one.sequence, times - 1)
                for one, times in zip(sent, copies, strict=False)
                if one.run == run and times > 1 and one.sequence in count.duplicated_sequences("t", run)
            )
        )
        assert len(count.duplicated_sequences("t", run)) <= RANGES_MAX


def test_an_open_window_is_not_judged() -> None:
    sent = [Sent(1, number, 1000 * number) for number in range(120)]
    reported = reported_of(sent)
    assert verdict_of(reported, [], closed_ms=2 * MINUTE - 1).differences == [
        Difference("stage", "t", 0, MINUTE, "s1", 60, 60, 0, 0)
    ]
    verdict = verdict_of(reported, sent[:60], closed_ms=2 * MINUTE - 1)
    assert (verdict.complete, verdict.window_count, verdict.open_count) == (True, 1, 1)


def test_messages_of_a_producer_that_reported_nothing_are_unreported() -> None:
    known = [Sent(1, number, 5) for number in range(10)]
    stage = [*known, Sent(2, 0, 5), Sent(2, 1, 5), Sent(2, 1, 5)]
    assert verdict_of(reported_of(known), stage).differences == [Difference("stage", "t", 0, MINUTE, "s2", 0, 0, 1, 2)]


def test_messages_behind_the_last_increment_are_unreported_and_cover_no_loss() -> None:
    sent = [Sent(1, number, 5) for number in range(10)]
    stage = [*sent[:8], *(Sent(1, number, 5) for number in range(10, 14))]
    assert verdict_of(reported_of(sent), stage).differences == [Difference("stage", "t", 0, MINUTE, "s1", 10, 2, 0, 4)]


def test_only_requested_windows_and_topics_are_judged() -> None:
    sent = [Sent(1, number, 1000 * number) for number in range(300)]
    reported = reported_of(sent)
    count = Count(reported, since_ms=MINUTE)
    count.add("t", headers_of(sent[:200]), 200)
    chosen = Selection(frozenset({"t"}), ALWAYS, since_ms=MINUTE, until_ms=4 * MINUTE)
    verdict = judge(reported, {"stage": count}, chosen)
    assert [(row.window_ms, row.missing) for row in verdict.differences] == [(3 * MINUTE, 40)]
    assert verdict.expected == 180
    of_others = judge(reported, {"stage": count}, Selection(frozenset({"u"}), ALWAYS))
    assert (of_others.differences, of_others.window_count) == ([], 0)
    assert not of_others.complete, "nothing was judged"


def test_records_without_marks_are_counted_apart() -> None:
    count = Count(Reported())
    count.add("t", None, 3)
    count.add("t", HeaderColumns.from_items([(), ((HEADER, mark(1, 0, 5, b"s")),)]), 2)
    assert (count.unmarked, count.record_count) == ({"t": 4}, 5)
    assert count.windows == {Window("t", 1, 0): SeenCounts(unreported=1)}


def test_an_increment_that_was_sent_twice_counts_once() -> None:
    reported = Reported()
    one = Increment(7, "web1", "t", MINUTE, 0, 3, 0, ((0, 2), (MINUTE, 1)))
    for increment in (one, one._replace(first=3, end=4, counts=((0, 1),)), one):
        reported.add_message(increment.record().value)
    assert reported.expected == {("t", 7): {0: 3, MINUTE: 1}}
    assert reported.spans("t", 7) == [(0, 3), (3, 4)]
    assert reported.covers("t", 7, np.array([0, 3, 4])).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"version": 2}',
        b"[" * 100_000,
        b'{"version":1,"run":"-1","server":"s","topic":"t","window_ms":1,"first":0,"end":1,"part":0,"counts":[]}',
        b'{"version":1,"run":"1","server":"s","topic":"t","window_ms":0,"first":0,"end":1,"part":0,"counts":[]}',
        b'{"version":1,"run":"1","server":"s","topic":"t","window_ms":1,"first":2,"end":1,"part":0,"counts":[]}',
        b'{"version":1,"run":"1","server":"s","topic":"t","window_ms":1,"first":0,"end":1,"part":0,"counts":[[0,-1]]}',
        b'{"version":1,"run":"1","server":"s","topic":"t","window_ms":1e3,"first":0,"end":1,"part":0,"counts":[]}',
    ],
)
def test_a_message_that_is_no_increment_is_counted_and_changes_nothing(value: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        increment_of(value)
    reported = Reported()
    reported.add_message(value)
    assert (reported.unreadable, reported.expected) == (1, {})


# --- the producer's side ----------------------------------------------------------------------------------------------


def values(count: int, timestamps: list[int] | None = None) -> RecordColumns:
    stamps = timestamps or [-1] * count
    return RecordColumns.from_records(Record(-1, stamp, None, b"v") for stamp in stamps)


def test_counts_follow_the_messages_own_time_and_spans_follow_each_other() -> None:
    tally = SentTally("web1", window_s=60)
    tally.mark_columns("t", values(4, [0, 59_999, 60_000, -1]), now_ms=120_000)
    tally.mark_one("t", -1000)
    tally.mark_columns("u", values(2), now_ms=5)
    first, other = tally.take()
    assert first[:-1] == (tally.run, "web1", "t", MINUTE, 0, 5, 0)
    assert first.counts == ((-MINUTE, 1), (0, 2), (MINUTE, 1), (2 * MINUTE, 1))
    assert (other.topic, other.counts) == ("u", ((0, 2),))
    assert tally.take() == []
    tally.mark_one("t", 0)
    (late,) = tally.take()
    assert (late.first, late.end, late.counts) == (5, 6, ((0, 1),))


def test_a_message_that_was_refused_is_not_counted_and_its_number_is_used_again() -> None:
    tally = SentTally("web1")
    tally.mark_one("t", 0)
    refused = tally.mark_one("t", 70_000)
    tally.take_back("t", 70_000)
    assert tally.mark_one("t", 70_000) == refused
    (increment,) = tally.take()
    assert (increment.end, increment.counts) == (2, ((0, 1), (MINUTE, 1)))


def test_what_was_given_up_leaves_a_gap_between_spans() -> None:
    tally = SentTally("web1")
    tally.mark_columns("t", values(3), now_ms=0)
    tally.forget()
    assert tally.take() == []
    tally.mark_columns("t", values(2), now_ms=0)
    assert [increment[4:6] for increment in tally.take()] == [(3, 5)]


def test_many_windows_become_several_increments_and_are_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "WINDOWS_MAX", 10)
    monkeypatch.setattr(tally_module, "WINDOWS_PENDING_MAX", 25)
    tally = SentTally("web1")
    assert not tally.due(0)
    tally.mark_columns("t", values(0, [MINUTE * n for n in range(24)]), now_ms=0)
    assert not tally.due(1e6)
    assert tally.due(0)
    tally.mark_columns("t", values(0, [MINUTE * 24]), now_ms=0)
    assert tally.due(1e6)
    reported = Reported()
    for increment in tally.take():
        reported.add(increment)
    assert reported.expected == {("t", tally.run): {MINUTE * n: 1 for n in range(25)}}


def test_a_process_that_was_forked_has_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = SentTally("web1")
    tally.mark_one("t", 0)
    run = tally.run
    monkeypatch.setattr(tally_module, "os", SimpleNamespace(getpid=lambda: -1))
    assert not tally.due(0)
    assert tally.take() == []
    tally.mark_one("t", 0)
    (increment,) = tally.take()
    assert (increment.run == run, increment.first, increment.end) == (False, 0, 1)


def test_a_window_needs_a_length() -> None:
    with pytest.raises(ValueError, match="too short"):
        SentTally("web1", window_s=0.0001)


def test_an_increment_of_any_length_is_looked_through_at_once() -> None:
    reported = Reported()
    reported.add(Increment(1, "s1", "t", MINUTE, 0, 2**63 - 1, 0, ((0, 1),)))
    count = Count(reported)
    part = [Sent(1, 5, 0), Sent(1, 3 * PAGE_SIZE, 0)]
    count.add("t", headers_of(part), len(part))
    assert list(count.missing_ranges("t", 1)) == [
        (0, 5),
        (6, 3 * PAGE_SIZE),
        (3 * PAGE_SIZE + 1, 2**63 - 1),
    ]
