"""The last tenth of a limit is for holders with few entries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkalite.broker.limits.holder import holder_of
from kafkalite.broker.limits.shares import SMALL_COUNT, Shares, note_refusal

if TYPE_CHECKING:
    import pytest

    from kafkalite.broker.limits.holder import Holder

LARGE = holder_of("User:ANONYMOUS", "127.0.0.2")
SMALL = holder_of("User:ANONYMOUS", "127.0.0.1")
LIMIT = 1000


def taken(shares: Shares, holder: Holder, total: int = 0, limit: int = LIMIT) -> int:
    """How many entries a holder gets that takes all it can."""
    count = 0
    while shares.admits(holder, total + count, limit):
        shares.add(holder)
        count += 1
    return count


def test_a_holder_of_many_entries_gets_none_of_the_last_tenth() -> None:
    shares = Shares()
    assert taken(shares, LARGE) == LIMIT - LIMIT // 10
    assert shares.admits(SMALL, LIMIT - LIMIT // 10, LIMIT)


def test_a_holder_of_few_entries_gets_the_last_tenth_until_it_is_a_holder_of_many() -> None:
    shares = Shares()
    large = taken(shares, LARGE)
    assert taken(shares, SMALL, large, limit=2 * LIMIT) > SMALL_COUNT
    shares = Shares()
    large = taken(shares, LARGE, limit=10 * LIMIT)
    assert taken(shares, SMALL, large, limit=10 * LIMIT) == SMALL_COUNT + 1


def test_the_limit_itself_applies_to_every_holder() -> None:
    shares = Shares()
    assert not shares.admits(SMALL, LIMIT, LIMIT)
    assert taken(Shares(), SMALL, LIMIT - 3) == 3


def test_what_is_counted_out_can_be_taken_again_and_leaves_nothing() -> None:
    shares = Shares()
    large = taken(shares, LARGE)
    for _ in range(large):
        shares.remove(LARGE)
    assert len(shares) == 0
    assert taken(shares, LARGE) == large


def test_an_entry_without_a_holder_is_not_counted() -> None:
    shares = Shares()
    shares.add(None)
    shares.remove(None)
    assert len(shares) == 0
    assert shares.admits(None, LIMIT - 1, LIMIT)


def test_sizes_are_counted_as_entries_are() -> None:
    shares = Shares(small=10)
    shares.add("large", 11)
    assert not shares.admits("large", 85, 100, size=6)
    assert shares.admits("large", 85, 100, size=5)
    assert shares.admits("small", 85, 100, size=11)
    assert not shares.admits("small", 85, 100, size=12), "it would be a large holder with the last of them"


def test_who_reached_which_limit_is_logged_once_a_minute_for_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            note_refusal(LARGE, "max.groups", 10, 9)
            note_refusal(SMALL, "transaction.max.ids", 20, 0)
    first, second = (record.getMessage() for record in caplog.records)
    assert "User:ANONYMOUS at 127.0.0.2" in first
    assert "max.groups (10)" in first
    assert "User:ANONYMOUS at 127.0.0.1" in second
    assert "transaction.max.ids (20)" in second
