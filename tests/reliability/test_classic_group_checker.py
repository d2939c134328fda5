"""The checker of 0.7 groups itself: each planted fault must be found, and what is allowed must not be."""

from __future__ import annotations

import pytest

from tests.kit.checkers.classic_checker import (
    GRACE_S,
    Claimed,
    ClassicVerdict,
    Committed,
    Event,
    Given,
    Killed,
    Released,
    Stalled,
    Stored,
    judge,
)

SESSION_S = 2.0
MESSAGE_COUNT = 60
SIZE = 10


def name(index: int) -> str:
    return f"n{index}"


def log() -> list[Event]:
    """One partition: single messages, and a wrapper of four, n20 to n23."""
    found: list[Event] = []
    for index in range(MESSAGE_COUNT):
        start, end = index * SIZE, (index + 1) * SIZE
        if 20 <= index < 24:
            start, end = 20 * SIZE, 24 * SIZE if index == 23 else 20 * SIZE
        found.append(Stored("0-0", name(index), start, end))
    return found


def given(consumer: str, first: int, last: int, at_s: float) -> list[Event]:
    return [Given(at_s + index * 0.001, consumer, name(index)) for index in range(first, last)]


def honest() -> list[Event]:
    """a reads 0 to 29 and loses its session; b continues at 20, which a had stored."""
    return [
        *log(),
        Claimed(1.0, "0-0", "a", 1),
        Committed(3.0, "0-0", "a", 20 * SIZE),
        Released(4.0, "0-0", 1, with_session=True),
        Claimed(4.1, "0-0", "b", 2),
        Committed(8.0, "0-0", "b", MESSAGE_COUNT * SIZE),
        Released(8.1, "0-0", 2, with_session=False),
        *given("a", 0, 30, 2.0),
        *given("b", 20, MESSAGE_COUNT, 5.0),
    ]


def verdict_of(events: list[Event]) -> ClassicVerdict:
    return judge(events, SESSION_S)


def without(events: list[Event], *unwanted: Event) -> list[Event]:
    assert all(event in events for event in unwanted)
    return [event for event in events if event not in unwanted]


def changed(events: list[Event], old: Event, new: Event) -> list[Event]:
    assert old in events
    return [new if event == old else event for event in events]


def test_honest_history_is_clean_and_counted() -> None:
    verdict = verdict_of(honest())
    assert verdict, str(verdict)
    assert (verdict.read_count, verdict.given_count, verdict.repeated_count) == (MESSAGE_COUNT, 70, 10)
    assert verdict.in_hand == set()


def test_overlap_that_ends_in_time_is_counted() -> None:
    verdict = verdict_of([*honest(), Given(7.0, "a", name(30))])
    assert verdict, str(verdict)
    ((running, wall),) = verdict.overlaps
    assert running == wall == pytest.approx(3.0 - 0.001)


def test_time_in_which_a_consumer_did_not_run_is_no_overlap() -> None:
    late = Given(4.0 + SESSION_S + GRACE_S + 7.0, "a", name(30))
    assert verdict_of([*honest(), late]).kinds == {"overlap"}
    verdict = verdict_of([*honest(), late, Stalled(3.9, "a", 7.5)])
    assert verdict, str(verdict)
    assert verdict_of([*honest(), late, Stalled(3.9, "b", 7.5)]).kinds == {"overlap"}
    assert verdict_of([*honest(), late, Stalled(3.9, "", 7.5)])


def test_message_in_the_hands_of_a_killed_consumer_is_not_lost() -> None:
    last = Given(5.0 + (MESSAGE_COUNT - 1) * 0.001, "b", name(MESSAGE_COUNT - 1))
    events = without(honest(), last)
    assert verdict_of(events).kinds == {"lost", "beyond"}
    verdict = verdict_of([*events, Killed(9.0, "b")])
    assert verdict, str(verdict)
    assert verdict.in_hand == {name(MESSAGE_COUNT - 1)}


def test_offset_of_a_message_that_is_being_handed_out_may_be_stored() -> None:
    early = Committed(2.0 + 0.0095, "0-0", "a", 11 * SIZE)  # n10 is written down half a millisecond later
    assert verdict_of(_insert(honest(), early, before=Committed(3.0, "0-0", "a", 20 * SIZE)))


def _insert(events: list[Event], new: Event, *, before: Event) -> list[Event]:
    at = events.index(before)
    return [*events[:at], new, *events[at:]]


def skipped() -> list[Event]:
    return without(honest(), *given("b", 40, 41, 5.0))


def skipped_and_lost_at_the_claim() -> list[Event]:
    return without(honest(), *given("b", 20, 33, 5.0))


def doubled_owner() -> list[Event]:
    return _insert(honest(), Claimed(2.5, "0-0", "b", 2), before=Committed(3.0, "0-0", "a", 20 * SIZE))


def evicted_owner() -> list[Event]:
    old = Released(4.0, "0-0", 1, with_session=True)
    return changed(honest(), old, Released(4.0, "0-0", 2, with_session=False))


def offset_beyond() -> list[Event]:
    old = Committed(3.0, "0-0", "a", 20 * SIZE)
    return changed(without(honest(), *given("b", 20, 36, 5.0)), old, old._replace(offset=36 * SIZE))


def offset_nowhere() -> list[Event]:
    return _insert(
        honest(), Committed(3.9, "0-0", "a", 17 * SIZE + 3), before=Released(4.0, "0-0", 1, with_session=True)
    )


def overlap_too_long() -> list[Event]:
    return [*honest(), Given(4.0 + SESSION_S + GRACE_S + 0.1, "a", name(30))]


def handed_out_after_giving_back() -> list[Event]:
    more = [Given(8.2 + index * 0.01, "b", name(index)) for index in (57, 58, 59)]
    return [*without(honest(), *given("b", 57, 60, 5.0)), *more]


def repeated_from_too_early() -> list[Event]:
    return [*honest()[: MESSAGE_COUNT + 6], *given("a", 0, 30, 2.0), *given("b", 10, MESSAGE_COUNT, 5.0)]


def never_owned() -> list[Event]:
    return [*honest(), Given(6.0, "c", name(3))]


def vanished() -> list[Event]:
    return [*honest(), Given(6.0, "b", "n-nobody")]


def stored_twice() -> list[Event]:
    return [*honest(), Stored("1-0", name(5), 0, SIZE)]


FAULTS = {
    skipped: {"skipped", "lost"},
    skipped_and_lost_at_the_claim: {"skipped", "lost"},
    doubled_owner: {"owners"},
    evicted_owner: {"owners"},
    offset_beyond: {"beyond"},
    offset_nowhere: {"offset"},
    overlap_too_long: {"overlap"},
    handed_out_after_giving_back: {"overlap"},
    repeated_from_too_early: {"repeated"},
    never_owned: {"unowned"},
    vanished: {"vanished"},
    stored_twice: {"twice"},
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant) -> None:
    verdict = verdict_of(plant())
    assert verdict.kinds & FAULTS[plant] == FAULTS[plant], str(verdict)


def test_any_message_left_out_is_found() -> None:
    """Except the last message that `a` got: `b` got it again, so it is not lost."""
    events = honest()
    hand_outs = [event for event in events if isinstance(event, Given)]
    spare = given("a", 29, 30, 2.0)[0]
    assert not verdict_of(without(events, spare)).kinds
    for event in without(hand_outs, spare):
        assert verdict_of(without(events, event)).kinds & {"skipped", "lost"}, event
