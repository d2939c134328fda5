"""The states of a waiting batch: the module draws the allowed transitions, and these tests check them."""

import pytest

from kafkalite._native.serve.deferred_produce import (
    AFTER_ANOTHER,
    APPENDING,
    ASKED,
    DONE,
    FLUSHING,
    QUEUED,
    may_follow,
)

STATES = (DONE, ASKED, AFTER_ANOTHER, QUEUED, APPENDING, FLUSHING)
DRAWN = {
    ASKED: {QUEUED, DONE},
    AFTER_ANOTHER: {QUEUED, APPENDING},
    QUEUED: {APPENDING, DONE},
    APPENDING: {ASKED, AFTER_ANOTHER, FLUSHING, DONE},
    FLUSHING: {DONE},
    DONE: set(),
}


@pytest.mark.parametrize("before", STATES)
def test_a_part_goes_where_an_arrow_leads_and_nowhere_else(before: int) -> None:
    assert {after for after in STATES if may_follow(before, after)} == DRAWN[before]


def test_every_state_ends() -> None:
    """From each of them a part can become done: no arrow leads into a corner."""
    ending = {DONE}
    while more := {state for state in STATES if DRAWN[state] & ending} - ending:
        ending |= more
    assert ending == set(STATES)
