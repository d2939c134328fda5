"""Subscriptions by regular expression: names are tried in portions, before a group's lock is taken, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.limits.pace import Pace, run_with
from kafkalite.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class CountingPace(Pace):
    """Counts the items that a long request looks at."""

    def __init__(self) -> None:
        super().__init__(lambda: False)
        self.count = 0

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in super().each(items):
            self.count += 1
            yield item


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Others may have used the same expressions."""
    for number in range(topic_regex.REMEMBERED_MAX):
        topic_regex.prepare(f"other-{number}", [])


def tried(expression: str, names: Iterable[str]) -> int:
    """How many names an expression is tried on, with a checkpoint before each."""
    pace = CountingPace()
    run_with(pace, lambda _pace: topic_regex.prepare(expression, names))
    return pace.count


def test_an_expression_means_whole_names() -> None:
    assert topic_regex.matching("lo.*", ["logs", "blogs", "lo", "l"]) == {"logs", "lo"}


def test_a_name_that_comes_later_is_tried_alone() -> None:
    names = {"logs": 1, "orders": 2, "lost": 3}
    assert tried("lo.*", names) == 3
    assert tried("lo.*", names) == 0
    assert tried("lo.*", {**names, "lot": 4}) == 1
    assert topic_regex.matching("lo.*", ["logs", "orders", "lot"]) == {"logs", "lot"}
    assert topic_regex.matching("lo.*", ["new", "lower"]) == {"lower"}


def test_a_deleted_name_is_forgotten() -> None:
    tried("lo.*", ["logs", "lost"])
    assert tried("lo.*", ["logs"]) == 0
    assert tried("lo.*", ["logs", "lost"]) == 1


def test_only_a_few_expressions_are_remembered() -> None:
    assert tried("lo.*", ["logs"]) == 1
    for number in range(topic_regex.REMEMBERED_MAX):
        tried(f"lo{number}.*", ["logs"])
    assert tried("lo.*", ["logs"]) == 1


def test_what_is_no_expression_is_refused_before_any_name_is_tried() -> None:
    with pytest.raises(InvalidRegularExpression):
        tried("(", ["logs"])
