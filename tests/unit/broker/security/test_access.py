"""Decisions that are kept for Produce and Fetch: as long as they hold, for one topic each, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite._native.serve.access import AccessControl, AccessView
from kafkalite._native.serve.topic_table import Topic
from kafkalite.base.acls import AclOperation

READ, WRITE = AclOperation.READ, AclOperation.WRITE


def topic(name: str) -> Topic:
    return Topic(name, bytes(16), (), None, {})


class Decisions:
    """A fake authorizer that counts the questions it gets."""

    def __init__(self) -> None:
        self.allowed: set[tuple[int, str]] = set()
        self.asked: list[tuple[str, str, int, str]] = []
        self.during: Any = None
        self.control = AccessControl(
            allows_topic=self.decide, allows_transactional_id=lambda *_: True, allows_following=lambda *_: False
        )

    def decide(self, principal: str, host: str, operation: int, name: str) -> bool:
        self.asked.append((principal, host, operation, name))
        answer = (operation, name) in self.allowed
        if self.during is not None:
            self.during()
        return answer

    def view(self) -> AccessView:
        return AccessView(self.control, "User:a", "10.0.0.1")


def test_a_decision_is_cached() -> None:
    decisions = Decisions()
    decisions.allowed = {(READ, "t")}
    view, t = decisions.view(), topic("t")
    assert [view.may(READ, t, now) for now in (1.0, 2.0, 3000.0)] == [True] * 3
    assert [view.may(WRITE, t, 1.0) for _ in range(3)] == [False] * 3
    assert view.may(READ, t, 1.0)
    assert decisions.asked == [("User:a", "10.0.0.1", READ, "t"), ("User:a", "10.0.0.1", WRITE, "t")]


def test_a_denial_is_checked_again_a_second_later() -> None:
    decisions = Decisions()
    view, t = decisions.view(), topic("t")
    for now in (10.1, 10.9, 11.0, 11.5, 12.0):
        assert not view.may(READ, t, now)
        assert not view.may(WRITE, t, now)
    assert len(decisions.asked) == 6


def test_a_changed_rule_counts_at_once_both_ways() -> None:
    decisions = Decisions()
    view, t = decisions.view(), topic("t")
    for allowed in (True, False, True):
        decisions.allowed = {(READ, "t")} if allowed else set()
        decisions.control.rules_changed()
        assert view.may(READ, t, 5.0) is allowed


def test_a_decision_that_the_rules_overtook_is_not_kept() -> None:
    decisions = Decisions()
    decisions.allowed = {(READ, "t")}
    view, t = decisions.view(), topic("t")
    decisions.during = decisions.control.rules_changed
    assert view.may(READ, t, 1.0)
    decisions.during = None
    decisions.allowed = set()
    assert not view.may(READ, t, 1.0)


def test_a_recreated_topic_is_checked_again() -> None:
    decisions = Decisions()
    decisions.allowed = {(READ, "t")}
    view = decisions.view()
    first, second = topic("t"), topic("t")
    assert second.number > first.number > 0
    assert view.may(READ, first, 1.0)
    assert view.may(READ, second, 1.0)
    assert len(decisions.asked) == 2


def test_topics_in_each_others_way_make_it_grow_and_stay_right() -> None:
    decisions = Decisions()
    view = decisions.view()
    topics = [topic(f"t{i}") for i in range(1000)]
    decisions.allowed = {(READ, f"t{i}") for i in range(0, 1000, 3)}
    for _ in range(3):
        for i, each in enumerate(topics):
            assert view.may(READ, each, 1.0) is (i % 3 == 0)
    assert 1024 <= view.capacity <= 2048
    decisions.asked.clear()
    for each in topics:
        view.may(READ, each, 1.0)
    assert decisions.asked == []


def test_more_topics_than_there_is_room_for_are_asked_about() -> None:
    decisions = Decisions()
    view = decisions.view()
    topics = [topic(f"t{i}") for i in range(140_000)]
    decisions.allowed = {(READ, f"t{i}") for i in range(0, 140_000, 2)}
    for _ in range(2):
        assert all(view.may(READ, each, 1.0) is (i % 2 == 0) for i, each in enumerate(topics))
    assert view.capacity == 131_072


def test_a_failing_authorizer_denies_every_request() -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("no answer")

    control = AccessControl(allows_topic=fail, allows_transactional_id=fail, allows_following=fail)
    view = AccessView(control, "User:a", "10.0.0.1")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            view.may(READ, topic("t"), 1.0)
